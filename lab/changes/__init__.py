"""What changed between two releases of PyTorch, on a CPU, without clampgrad:

python -m lab.changes run --out out/changes-2.13.0.jsonl     in the environment of each release
python -m lab.changes compare out/changes-2.13.0.jsonl out/changes-2.15.0.jsonl

A run takes minutes on one core. `--only REGEX` runs the cases whose name matches; `--pin NAME`
runs them under a pin, to compare with an older release. `compare` prints how many cases are equal
to the bit, and a line for each that differs by more than rounding. What it finds becomes a row of
python/clampgrad/_contract/changes.json, after a look at the line: docs/comparing_releases.md.
"""
