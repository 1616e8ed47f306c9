"""python jax_clip.py ARRAYS GRADIENTS, with JAX: reads arrays, writes the gradients of jax.numpy.clip."""

import sys

import jax
import jax.numpy as jnp
import numpy

arrays = dict(numpy.load(sys.argv[1]))
x, lo, hi, g = (arrays[name] for name in ("x", "lo", "hi", "g"))
gradients = {}


def measure(name, f, *args):
    value, pull = jax.vjp(f, *args)
    for i, gradient in enumerate((value, *pull(g))):
        gradients[f"{name} {i}"] = numpy.asarray(gradient)


measure("tensors", jnp.clip, x, lo, hi)
measure("min tensor", lambda x, lo: jnp.clip(x, min=lo), x, lo)
measure("max tensor", lambda x, hi: jnp.clip(x, max=hi), x, hi)
for i, (a, b) in enumerate(arrays["numbers"].tolist()):
    measure(f"numbers {i}", lambda x: jnp.clip(x, a, b), x)
    measure(f"min number {i}", lambda x: jnp.clip(x, min=a), x)
    measure(f"max number {i}", lambda x: jnp.clip(x, max=b), x)
    measure(f"number and tensor {i}", lambda x, hi: jnp.clip(x, a, hi), x, hi)
    measure(f"tensor and number {i}", lambda x, lo: jnp.clip(x, lo, b), x, lo)
numpy.savez(sys.argv[2], **gradients)
print("jax", jax.__version__)
