"""Why a test did not pass, in words that two runs of one tree share."""

import re
import sys

# Addresses, times, the folders of a path, random names, and lines that an edit above them moves.
VARYING = (
    (r"0x[0-9a-fA-F]+", "0x"),
    (r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d:\d\d\S*)?|\d\d:\d\d:\d\d(\.\d+)?", "TIME"),
    (r"\d+(\.\d+)?(e[-+]?\d+)?( ?(ns|us|µs|ms|s|sec|secs|seconds?|minutes?))\b", "TIME"),
    (r"(?<![\w.])[\w.~+-]*/(?:[\w.+@=-]+/)*(?=[\w.+-])", ""),
    (r"\btmp[a-z0-9_]{8}\b", "tmp"),
    (r"\b(line|pid|process|thread) \d+", r"\1"),
    (r"(\.(?:py|cpp|h|cu|cuh)):\d+(:\d+)?", r"\1"),
)
LONGEST = 1000  # characters


def first(error: BaseException) -> BaseException:
    """The exception itself: upstream's runner wraps those of some tests."""
    while error.__cause__:
        error = error.__cause__
    return error


def of(error: BaseException) -> str:
    error = first(error)
    return f"{type(error).__name__}: {plain(str(error))}".strip()


def plain(text: str) -> str:
    # Each state has a version of its own. A test need not have imported torch.
    torch = sys.modules.get("torch")
    text = text.replace(torch.__version__, "VERSION") if torch else text
    # C++ appends where it was thrown, and upstream's runner how to run the test.
    text = re.split("Exception raised from|To execute this test, run", text)[0]
    text = text[: 20 * LONGEST]  # a message may be a whole graph
    for varying, same in VARYING:
        text = re.sub(varying, same, text)
    return " ".join(text.split())[:LONGEST]
