"""The commands of `python -m clampgrad`, one module each; a module is imported when it is asked for.

A module COMMAND.py has a docstring, whose first line is shown by `--help`, and `main(arguments)`.
"""
