"""YAML -> C++, by driving the installed torch's own torchgen. Entry point: generate.generate()."""
