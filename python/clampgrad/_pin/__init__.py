"""clampgrad.pin, and all that it tells torch.

pin              pin and set_pin, which people call
decorated        what becomes of a function that pin decorates
body             code that runs under a pin, whenever it runs
state            which pin holds where
installed        the convention that the installed torch has by itself
verbose          what a process says of its pin
first_pin        tells torch about pins, at the first one, by the next two
backward         what calls a function again in backward does so under its pin
compiled_code    compiled code is guarded by its pin
"""
