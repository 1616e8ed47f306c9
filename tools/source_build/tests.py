"""One of upstream's test files, with the result of every test: python tests.py OUT FILE [-k NAME]...

It runs as upstream runs it, under its own runner; only the results are noted as they come.
"""

import json
import re
import runpy
import sys
import traceback
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def named_in(patch: str) -> Iterator[str]:
    """The tests that a patch adds, or changes the body of, as its hunks show them."""
    for hunk in re.split(r"^@@ ", patch, flags=re.MULTILINE)[1:]:
        test = None
        for line in hunk.splitlines()[1:]:
            if found := re.match(r"[+ ] +def (test_\w+)", line):
                test = found[1]
            if test and line.startswith("+"):
                yield test


class Recording(unittest.TextTestResult):
    found: dict[str, str] = {}

    def note(self, test: unittest.TestCase, result: str) -> None:
        # A subtest's own name may hold addresses.
        key = getattr(test, "test_case", test).id().removeprefix("__main__.")
        # A test whose subtest or teardown failed has failed, whatever comes after.
        if self.found.get(key) not in ("failed", "error"):
            self.found[key] = result

    def addSuccess(self, test: Any) -> None:
        super().addSuccess(test)
        self.note(test, "ok")

    def addFailure(self, test: Any, err: Any) -> None:
        super().addFailure(test, err)
        self.note(test, "failed")

    def addError(self, test: Any, err: Any) -> None:
        super().addError(test, err)
        self.note(test, "error")

    def addSkip(self, test: Any, reason: str) -> None:
        super().addSkip(test, reason)
        self.note(test, "skipped")

    def addExpectedFailure(self, test: Any, err: Any) -> None:
        super().addExpectedFailure(test, err)
        self.note(test, "expected failure")

    def addUnexpectedSuccess(self, test: Any) -> None:
        super().addUnexpectedSuccess(test)
        self.note(test, "unexpected success")

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.note(test, "failed")


def main() -> None:
    out, file, *chosen = sys.argv[1:]
    unittest.TextTestRunner.resultclass = Recording
    sys.argv = [file, "-v", *chosen]
    sys.path[0] = str(Path(file).parent)
    error = ""
    try:
        runpy.run_path(file, run_name="__main__")
    except SystemExit:
        pass  # how unittest says that a test failed, which the results say too
    except BaseException:
        error = traceback.format_exc(limit=-3)
        print(error)
    Path(out).write_text(json.dumps({"results": Recording.found, "error": error}, indent=1))


if __name__ == "__main__":
    main()
