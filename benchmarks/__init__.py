"""The benchmarks. Each file is a command, `python -m benchmarks.run` for example."""
