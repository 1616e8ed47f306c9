"""The files of a release, with their sizes and hashes: records/artefacts.jsonl.

    python -m lab.artefacts DIST     the step `artefacts` of a release does it

Beside the hash of a wheel there is one of its contents, by which the steps of a release know the
wheels that they have tested (lab/release.py). It leaves out what README.md and the tool that packs
the wheel change, so another machine makes the same contents, if its compilers are the same.
"""

import hashlib
import sys
import zipfile
from pathlib import Path

import records
from records import code, table

# In *.dist-info. What METADATA requires comes from pyproject.toml, which is part of the package.
LEFT_OUT = ("METADATA", "RECORD", "WHEEL")


def contents(wheel: Path) -> str:
    """A hash of the files in it, by name."""
    digest = hashlib.sha256()
    with zipfile.ZipFile(wheel) as archive:
        for name in sorted(archive.namelist()):
            folder, _, file = name.rpartition("/")
            if not (folder.endswith(".dist-info") and file in LEFT_OUT):
                digest.update(f"{hashlib.sha256(archive.read(name)).hexdigest()} {name}\n".encode())
    return digest.hexdigest()


def main(dist: str) -> None:
    sums = [line.split() for line in Path(dist, "SHA256SUMS").read_text().splitlines()]
    rows = []
    for sha256, name in sorted(sums, key=lambda line: line[1]):
        file = Path(dist, name)
        rows.append({"file": name, "bytes": file.stat().st_size, "sha256": sha256})
        if file.suffix == ".whl":
            rows[-1]["contents"] = contents(file)
    records.write("artefacts", rows)


@table(right=(1,))
def artefacts():
    found = records.read("artefacts")
    yield "file", "MB", "SHA-256 begins with", "that of the contents"
    for row in found["rows"]:
        of_contents = code(row["contents"][:12]) if "contents" in row else ""
        yield code(row["file"]), f"{row['bytes'] / 1e6:.2f}", code(row["sha256"][:12]), of_contents


if __name__ == "__main__":
    main(*sys.argv[1:])
