"""What is private to torch: the list of it, plain names for it, and how torch is changed.

    private_names   the list: what for, and what happens where a name is gone
    surroundings    where a call runs: torch.func, forward mode, backward, modes
    tensors         what torch knows of a tensor
    function_modes  the stack of function modes
    dynamo          compiled code: its guards, and how it is dropped
    functions       what compilers know of clampgrad's functions
    functionalize, quantization  what those parts of torch know of clampgrad
    changes         changes of torch: checked, made together or not at all
    after_import    something to be done to a module that torch imports later

Nothing here knows of conventions or pins. The rest of the package uses no private name of torch but through
these files (test/test_private.py).
"""
