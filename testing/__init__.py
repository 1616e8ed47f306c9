"""What tests and the laboratory share. No test is in here, and nothing of it is packaged.

A program that imports it runs in the root of the tree, which is all that pytest has on its path.
"""
