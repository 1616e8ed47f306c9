"""What builds, checks and measures this project.

This file is here because a PyTorch that is installed from its checkout has a package `tools` on the path too: a
folder without such a file would come after that.
"""
