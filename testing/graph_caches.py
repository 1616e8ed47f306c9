"""torch.compile without its caches of graphs."""

from contextlib import contextmanager


@contextmanager
def no_graph_caches():
    """Each graph is compiled anew: the caches of Inductor and of AOTAutograd do not know our
    formulas, and a stale entry would test yesterday's.

    Inductor's cache of C++ remains. It knows the text that it was compiled from, and without it
    each test would compile torch's headers.
    """
    import torch._functorch.config as aot_autograd  # slow, and few tests need them
    import torch._inductor.config as inductor

    without_one = aot_autograd.patch(enable_autograd_cache=False)
    with without_one, inductor.patch(fx_graph_cache=False):
        yield
