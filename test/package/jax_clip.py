"""python jax_clip.py ARRAYS GRADIENTS, with JAX: reads arrays, writes the
gradients of jax.numpy.clip."""

import sys


def calls(clip, numbers):
    """Names, functions, and which of the arrays each takes: of jax.numpy.clip, or of ours."""
    yield "tensors", clip, ("x", "lo", "hi")
    yield "min tensor", lambda x, lo: clip(x, min=lo), ("x", "lo")
    yield "max tensor", lambda x, hi: clip(x, max=hi), ("x", "hi")
    for a, b in numbers:
        yield from calls_with_numbers(clip, a, b)


def calls_with_numbers(clip, a, b):
    yield f"{a} and {b}", lambda x: clip(x, a, b), ("x",)
    yield f"min {a}", lambda x: clip(x, min=a), ("x",)
    yield f"max {b}", lambda x: clip(x, max=b), ("x",)
    yield f"{a} and tensor", lambda x, hi: clip(x, a, hi), ("x", "hi")
    yield f"tensor and {b}", lambda x, lo: clip(x, lo, b), ("x", "lo")


if __name__ == "__main__":
    import jax
    import numpy

    arrays, found = dict(numpy.load(sys.argv[1])), {}
    for name, f, names in calls(jax.numpy.clip, arrays["numbers"].tolist()):
        value, pull = jax.vjp(f, *(arrays[n] for n in names))
        for i, result in enumerate((value, *pull(arrays["g"]))):
            found[f"{name}, {i}"] = numpy.asarray(result)
    numpy.savez(sys.argv[2], **found)
