"""Extracts from wheels the text of upstream's that the series for a
release need, for patches/upstream:

    python lab/upstream_text.py WHEEL_OR_SITE_PACKAGES... > patches/upstream/derivatives-2.14.yaml

The entries of derivatives.yaml about clamp and its family, each with its neighbours, so that
the hunks find their context. Several releases may be named if they have the same text. A
wheel holds nothing else that the series change: not FunctionsManual.cpp, not
symbolic_script.cpp, no tests, no documentation.
"""

import hashlib
import re
import sys
import zipfile
from pathlib import Path

NAME = "torchgen/packaged/autograd/derivatives.yaml"
FAMILY = re.compile(r"- name: (clamp|maximum|minimum|fmax|fmin)\w*[.(]")


def excerpt(text: str) -> str:
    """The entries of the family and those before and after each."""
    entries = re.split(r"^(?=- name: )", text, flags=re.MULTILINE)
    indices = {i for i, entry in enumerate(entries) if FAMILY.match(entry)}
    return "".join(e for i, e in enumerate(entries) if indices & {i - 1, i, i + 1})


def blob(text: str) -> str:
    """As git names it."""
    content = text.encode()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()[:8]


def read(place: Path, name: str) -> str:
    if place.is_dir():
        return (place / name).read_text()
    with zipfile.ZipFile(place) as wheel:
        return wheel.read(name).decode()


def header(place: Path) -> str:
    version = read(place, "torch/version.py")
    words = "__version__", "git_version"
    release, commit = (re.search(rf"^{w} = '([\w.]+)", version, re.M)[1] for w in words)
    return f"#   v{release} ({commit[:8]}), blob {blob(read(place, NAME))}"


def main() -> None:
    places = [Path(name) for name in sys.argv[1:]]
    texts = {excerpt(read(place, NAME)) for place in places}
    if len(texts) != 1:
        raise SystemExit(f"{len(texts)} different texts: they need a file each")
    print(
        "# What upstream's derivatives.yaml says of clamp and its family (lab/upstream_text.py), in"
    )
    print("\n".join(map(header, places)))
    print(texts.pop(), end="")


if __name__ == "__main__":
    main()
