"""What tests and the laboratory share; no test is in here, and nothing of it is packaged.

comparing           arguments full of ties, calls, and what comes out, equal to the bit
cases               which cases of a test run where, and for how long
processes           commands, Python beside the same package, scripts that are forked
slopes, releases    which pin holds; the installed release of torch, and its convention
matrix              calls in every form and context: run.py first
models, audited     a model that tests convert, and programs that they audit
distributed_checks  what each process of a group runs
mock_device         an accelerator in the host's memory: `pytest --device mock`
quick_build         a copy of the tree that is compiled in a minute

The root of the tree is all that pytest has on its path; other programs run there.
"""
