"""The laboratory, which no user of the package needs: README.md lists it.

It runs on an installed clampgrad and uses the product's folders; none of these imports it
(test/package/test_layers.py).
"""
