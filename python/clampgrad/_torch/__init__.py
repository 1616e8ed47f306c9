"""All use of torch's private names: the list, plain names for them, and how torch is changed.

    private_names   the list: what for, and what happens if a name is gone
    surroundings    where a call runs (torch.func, backward, modes); what torch knows of a tensor
    dispatcher      kernels in Python, and the node that one makes
    tangents        what carries a tangent, in forward mode
    engine          how Python enters the engine of autograd
    thread_state    the state that torch copies to the threads that work for a thread
    compiler        how compiled code is guarded and dropped, and the kernels that tracing caches
    rounding        numbers, rounded to a dtype as torch rounds them beside a Tensor
    torchs_functions  torch's clamps, extrema and activations, as they were at import
    our_functions   introduces our functions to torch.compile, torch.fx and torch.jit
    modules         modules of torch whose forward an attribute of the instance overrides
    replacements    replaces functions of torch: checked first, together or not at all
    after_import    actions on a module that torch imports later

Nothing here knows of conventions or pins, and nothing else reaches for a private name of torch
(test/pin/test_private.py).
"""
