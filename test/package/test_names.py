"""Words that say nothing as a name are not used for new ones: CONTRIBUTING.md, "Names".

names.json has the words, and how many names each still is at most. A count may fall and not rise:
after a renaming, `python test/package/test_names.py` lowers what is lower now, and raises nothing.
"""

import ast
import json
import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILE = Path(__file__).with_name("names.json")
ALLOWED = json.loads(FILE.read_text())
FOLDERS = ("python", "codegen", "buildtools", "csrc", "test", "testing", "lab", "benchmarks")
FOLDERS += ("examples",)
PROSE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)


def names_of_python(text):
    """Yields each name that is defined or assigned."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.alias) and node.asname:
            yield node.asname
        elif isinstance(getattr(node, "ctx", None), ast.Store):
            yield getattr(node, "id", getattr(node, "attr", ""))


def names_of_cpp(text):
    """Yields each word outside comments and strings, because only a compiler knows which define."""
    return re.findall(r"\w+", PROSE.sub("", text))


def count_words():
    counts = Counter()
    for path in sorted(p for folder in FOLDERS for p in (ROOT / folder).rglob("*.*")):
        if path.suffix == ".py":
            counts.update(names_of_python(path.read_text()))
        elif path.suffix in (".h", ".cpp", ".cu", ".cuh"):
            counts.update(names_of_cpp(path.read_text()))
    return {word: counts[word] for word in ALLOWED}


def test_words_are_counted():
    python = "def found(of, *, here=1):\n    own = found\n    for said in own: self.kept = said\n"
    assert sorted({*ALLOWED}.intersection(names_of_python(python))) == [
        "found", "here", "kept", "of", "own", "said",
    ]  # fmt: skip
    assert names_of_cpp('int of; // here\nf("own");') == ["int", "of", "f"]


def test_no_word_names_more_than_before():
    more = {word: n for word, n in count_words().items() if n > ALLOWED[word]}
    assert not more, f'new names of these words (CONTRIBUTING.md, "Names"): {more}'


if __name__ == "__main__":
    lowered = {word: min(n, ALLOWED[word]) for word, n in count_words().items()}
    FILE.write_text(json.dumps(lowered, indent=0) + "\n")
