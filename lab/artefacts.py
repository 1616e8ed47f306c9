"""The files of a release, with their sizes and hashes: records/artefacts.jsonl.

    python -m lab.artefacts DIST     the step `artefacts` of a release does it

These are of the files that the steps have tested. The same compilers make them again, in a folder
of the same name (buildtools/wheels.py); what is published was made by others.
"""

import sys
from pathlib import Path

import records
from records import code, table


def main(dist: str) -> None:
    sums = [line.split() for line in Path(dist, "SHA256SUMS").read_text().splitlines()]
    rows = [
        {"file": name, "bytes": Path(dist, name).stat().st_size, "sha256": sha256}
        for sha256, name in sorted(sums, key=lambda line: line[1])
    ]
    records.write("artefacts", rows)


@table(right=(1,))
def artefacts():
    found = records.read("artefacts")
    yield "file", "MB", "SHA-256 begins with"
    for row in found["rows"]:
        yield code(row["file"]), f"{row['bytes'] / 1e6:.2f}", code(row["sha256"][:12])


if __name__ == "__main__":
    main(*sys.argv[1:])
