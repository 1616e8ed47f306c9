"""The studies behind docs/study.md and docs/howto/qat.md: `python -m lab.study --help`.

Every run is a function of its own few settings and a seed, makes its data on the spot, and leaves a row in
records/study/. Tables are made from these rows alone.
"""
