"""What is timed, and how: each file is a command, `python -m benchmarks.run`, say."""
