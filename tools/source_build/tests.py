"""One of upstream's test files, with the result of every test: python tests.py OUT FILE [-k NAME]...

It runs as upstream runs it, under its own runner; only the results are noted as they come. A test that ends
the process is tried again with those that are left, and after ATTEMPTS times it has crashed.
"""

import json
import re
import runpy
import subprocess
import sys
import traceback
import unittest
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

ATTEMPTS = 3


def named_in(patch: str) -> Iterator[str]:
    """The tests that a patch adds, or changes the body of, as its hunks show them."""
    for hunk in re.split(r"^@@ ", patch, flags=re.MULTILINE)[1:]:
        test = None
        for line in hunk.splitlines()[1:]:
            if found := re.match(r"[+ ] +def (test_\w+)", line):
                test = found[1]
            if test and line.startswith("+"):
                yield test


def name_of(test: unittest.TestCase) -> str:
    # A subtest's own name may hold addresses.
    return getattr(test, "test_case", test).id().removeprefix("__main__.")


class Recording(unittest.TextTestResult):
    found: dict[str, str] = {}
    journal: TextIO

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        print(json.dumps([name_of(test), "begun"]), file=self.journal, flush=True)

    def note(self, test: unittest.TestCase, result: str) -> None:
        key = name_of(test)
        # A test whose subtest or teardown failed has failed, whatever comes after.
        if self.found.get(key) not in ("failed", "error"):
            self.found[key] = result
            print(json.dumps([key, result]), file=self.journal, flush=True)

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


def attempt(out: str, journal: str, file: str, *chosen: str) -> None:
    """All tests that the journal does not name, in this process."""
    done = {key for key, _ in read(Path(journal))}
    run = unittest.TestCase.__call__

    def unless_done(self: unittest.TestCase, *arguments: Any, **more: Any) -> Any:
        return None if name_of(self) in done else run(self, *arguments, **more)

    unittest.TestCase.__call__ = unless_done  # type: ignore[method-assign]
    unittest.TextTestRunner.resultclass = Recording
    Recording.journal = Path(journal).open("a")  # noqa: SIM115  until the process ends
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
    Path(out).write_text(json.dumps(error))


def read(journal: Path) -> list[list[str]]:
    return [json.loads(line) for line in journal.read_text().splitlines()]


def main() -> None:
    if sys.argv[1] == "--attempt":
        return attempt(*sys.argv[2:])
    out, *file_and_names = sys.argv[1:]
    journal, ended = Path(f"{out}.journal"), Path(f"{out}.ended")
    journal.write_text("")
    ended.unlink(missing_ok=True)
    crashes: Counter[str] = Counter()
    while True:
        command = [sys.executable, __file__, "--attempt", str(ended), str(journal)]
        code = subprocess.call([*command, *file_and_names])
        lines = read(journal)
        if ended.exists():
            break
        if not lines or (after := lines[-1][1] != "begun") and crashes[lines[-1][0]] == ATTEMPTS:
            sys.exit(f"ended with {code}, and not within a test")
        test = lines[-1][0] if after else lines.pop()[0]
        crashes[test] += 1
        if not after and crashes[test] == ATTEMPTS:
            lines.append([test, "crashed"])
        journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
    results = dict(line for line in lines if line[1] != "begun")
    found = {"results": results, "crashes": dict(crashes), "error": json.loads(ended.read_text())}
    Path(out).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
