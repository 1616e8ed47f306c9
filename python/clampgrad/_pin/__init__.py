"""clampgrad.pin, and the hooks that it installs in torch.

pin              pin and set_pin, which people call
decorated        functions that pin decorates
body             bodies of functions that run under a pin, whenever they run
state            which pin is active
installed        the convention that the installed torch has by itself
verbose          what a process prints about its pin
first_pin        installs the hooks of the next two, at the first pin
backward         functions that backward calls again run under the pin of their forward
compiled_code    compiled code is guarded by its pin
"""
