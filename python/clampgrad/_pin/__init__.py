"""clampgrad.pin, and all that it tells torch.

pin         pin and set_pin, which people call
decorated   what becomes of a function that pin decorates
functions   functions that run under a pin, whenever they run
state       which pin holds where
installed   the convention that the installed torch has by itself
report      what a process says of its pin
first_pin   tells torch about pins, at the first one:
checkpoint, higher_order  what calls a function again in backward does so under its pin
compiled_code, cache_key  compiled code knows its pin, and so do the keys of caches on disk
forks       locks that hold over a fork
"""
