"""All tests of one of upstream's files that have no result yet, in this process: python attempt.py OUT JOURNAL FILE ...

They run under upstream's own runner. Where the process is stands in the journal: [place, "begun", ""], then
[place, result, cause], where a place is a test, the set-up or tear-down of a class, or the import of the file.
"""

import faulthandler
import json
import runpy
import sys
import traceback
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import answering
import cause

IMPORT = "import"
DONE = "done"  # in place of a result, for what is no test
LONGEST = 1200  # seconds between two lines; the slowest tests take a few minutes


def name_of(test: unittest.TestCase) -> str:
    # A subtest's own name may hold addresses.
    return getattr(test, "test_case", test).id().removeprefix("__main__.")


def result_of(error: BaseException) -> str:
    """Whether a test failed at what it compares."""
    error = cause.first(error)
    compared = isinstance(error, AssertionError) or type(error).__name__ == "GradcheckError"
    return "failed" if compared else "error"


class Recording(unittest.TextTestResult):
    found: dict[str, str] = {}
    journal: TextIO

    @classmethod
    def write(cls, place: str, what: str, why: str = "") -> None:
        print(json.dumps([place, what, why]), file=cls.journal, flush=True)
        # If no line follows, this prints where the process hangs, and ends it.
        faulthandler.dump_traceback_later(LONGEST, exit=True, file=sys.__stderr__)

    def startTestRun(self) -> None:
        super().startTestRun()
        self.write(IMPORT, DONE)

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self.write(name_of(test), "begun")

    def note(self, test: unittest.TestCase, result: str, why: str = "") -> None:
        key = name_of(test)
        # A test whose subtest or teardown failed has failed, whatever comes after.
        if self.found.get(key) not in ("failed", "error"):
            self.found[key] = result
            self.write(key, result, why)

    def addSuccess(self, test: Any) -> None:
        super().addSuccess(test)
        self.note(test, "ok")

    def addFailure(self, test: Any, err: Any) -> None:
        super().addFailure(test, err)
        self.note(test, result_of(err[1]), cause.of(err[1]))

    def addError(self, test: Any, err: Any) -> None:
        super().addError(test, err)
        self.note(test, result_of(err[1]), cause.of(err[1]))

    def addSkip(self, test: Any, reason: str) -> None:
        super().addSkip(test, reason)
        self.note(test, "skipped", cause.plain(str(reason)))

    def addExpectedFailure(self, test: Any, err: Any) -> None:
        super().addExpectedFailure(test, err)
        self.note(test, "expected failure")

    def addUnexpectedSuccess(self, test: Any) -> None:
        super().addUnexpectedSuccess(test)
        self.note(test, "unexpected success")

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.note(test, result_of(err[1]), cause.of(err[1]))


def unless_done(run: Callable[..., Any], done: set[str]) -> Callable[..., Any]:
    def run_it(self: unittest.TestCase, *arguments: Any, **more: Any) -> Any:
        return None if name_of(self) in done else run(self, *arguments, **more)

    return run_it


def in_the_journal(method: Callable[..., None], what: str, done: set[str]) -> Callable[..., None]:
    """Writes the set-up or tear-down of a class into the journal. unittest calls `method` before every test."""

    def call(self: unittest.TestSuite, test: Any, result: Any) -> None:
        before = getattr(result, "_previousTestClass", None)
        of = type(test) if what == "setUpClass" else before
        if before is type(test) or of is None:  # no class begins or ends here
            return method(self, test, result)
        place = f"{what} of {of.__qualname__}"
        if place in done:  # it ended the process before: have unittest skip the tests of the class
            of._classSetupFailed = True
            return None
        Recording.write(place, "begun")
        method(self, test, result)
        Recording.write(place, DONE)

    return call


def main() -> None:
    out, journal, file, *chosen = sys.argv[1:]
    lines = map(json.loads, Path(journal).read_text().splitlines())
    done = {place for place, what, _ in lines if what not in ("begun", DONE)}
    Recording.journal = Path(journal).open("a")  # noqa: SIM115  until the process ends
    Recording.write(IMPORT, "begun")
    case, suite = unittest.TestCase, unittest.TestSuite
    case.__call__ = unless_done(case.__call__, done)  # type: ignore[method-assign]
    for method, what in (
        ("_handleClassSetUp", "setUpClass"),
        ("_tearDownPreviousClass", "tearDownClass"),
    ):
        setattr(suite, method, in_the_journal(getattr(suite, method), what, done))
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
    Path(out).write_text(json.dumps(error or answering.difference()))


if __name__ == "__main__":
    main()
