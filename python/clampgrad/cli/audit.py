"""clampgrad audit: unsafe bounds of a program, and gradients that depend on the convention."""

import argparse
import logging
import os
import sys
import threading
from concurrent.futures import thread as pools
from contextlib import suppress
from pathlib import Path

import torch

from clampgrad._contract.changes import COMPARED
from clampgrad._tools.audit import WARNINGS, Report, audit
from clampgrad._tools.tables import width_of
from clampgrad.cli import program

logger = logging.getLogger("clampgrad")

NOT_WRITTEN = 2  # as argparse ends if it sees before the program that it cannot be written
FAILED = 3  # neither a program's 1 nor argparse's 2


def main(arguments: list[str]) -> int | str | None:
    parser = argparse.ArgumentParser(
        "clampgrad audit",
        description="Run a program, examine its calls of clamp and its family, and report to "
        "stderr when it ends.",
        usage=f"%(prog)s [-h] [OPTIONS] {program.USAGE}",
        epilog="warnings:\n" + "\n".join(f"  {name:20} {what}" for name, what in WARNINGS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--every",
        metavar="N",
        type=int,
        default=1,
        help="examine one in N calls of each call site (default: 1)",
    )
    parser.add_argument(
        "--json", metavar="FILE", type=Path, help="write the report to FILE as JSON"
    )
    parser.add_argument(
        "--fail-on",
        metavar="WARNING",
        action="append",
        default=[],
        choices=[*WARNINGS, "any"],
        help=f"exit with {FAILED} if there is such a warning (any: of whatever kind) and the program "
        "itself exited with 0; can be repeated",
    )
    for end, word in ((0, "from"), (1, "to")):
        parser.add_argument(
            f"--{word}",
            metavar="RELEASE",
            dest=word,
            help=f"compare releases of PyTorch {word} this one (default: {COMPARED[-end]}, "
            f"or the installed one if only the other is given)",
        )
    options, user_program = program.parse(parser, arguments)
    if options.every < 1:
        parser.error("--every must be at least 1")
    ends = getattr(options, "from"), options.to
    between = tuple(end or torch.__version__ for end in ends) if any(ends) else None
    try:
        audit_block = audit(every=options.every, between=between)
    except ValueError as error:
        parser.error(str(error).removeprefix("audit: "))
    # Check what the report needs before the program runs, not after.
    file = options.json and _path_of_rank(options.json)
    if file:
        _check_writable(parser, file)
        file = file.absolute()  # the program may go elsewhere

    code: int | str | None = 0
    is_written = True
    process = os.getpid()
    try:
        with audit_block:
            others = set(threading.enumerate())
            try:
                user_program.run()
            finally:
                _join_threads(others)
    except SystemExit as end:
        code = end.code
    finally:  # of a program that is interrupted, too, but not of a process that it has forked
        if os.getpid() == process:
            is_written = _write_report(audit_block.report, file)
    if code or os.getpid() != process:
        return code
    if not is_written:
        return NOT_WRITTEN
    if not options.fail_on:
        return code
    names = {warning.name for finding in audit_block.report for warning in finding.warnings}
    failing = names if "any" in options.fail_on else names.intersection(options.fail_on)
    return FAILED if failing else code


def _join_threads(others: set[threading.Thread]) -> None:
    """Waits for the threads that a program started, as Python does when its main module has ended.
    Does not wait for `others`, nor for threads of a pool that was left open, which wait for work
    for ever: Python ends them."""
    others = others | {threading.current_thread(), threading.main_thread()}
    of_pools = getattr(pools, "_threads_queues", {})

    def running_threads() -> list[threading.Thread]:
        return [
            t for t in set(threading.enumerate()) - others if not t.daemon and t not in of_pools
        ]

    while threads := running_threads():  # which may start others
        for thread in threads:
            thread.join()


# ---- Processes of one program --------------------------------------------------------------------


def _rank() -> int | None:
    """Returns which process of several this is, as torchrun says."""
    several = int(os.environ.get("WORLD_SIZE", "1")) > 1
    return int(os.environ.get("RANK", "0")) if several else None


def _path_of_rank(path: Path) -> Path:
    """Returns audit.rank0.json for audit.json: one file per process."""
    rank = _rank()
    return path if rank is None else path.with_suffix(f".rank{rank}{path.suffix}")


# ---- The report ----------------------------------------------------------------------------------


def _check_writable(parser: argparse.ArgumentParser, path: Path) -> None:
    """Ends with a message if nothing can be written there."""
    try:
        with path.open("a"):
            pass
    except OSError as error:
        parser.error(f"cannot write {path}: {error.strerror}")


def _write_report(report: Report, file: Path | None) -> bool:
    """Writes the report to the file, then to the terminal, which may be gone. If one fails, the
    other is still written. Returns whether there was a report, and the file has it."""
    is_written = True
    if file is not None:
        try:
            report.save(file)
        except Exception as error:
            logger.error("cannot write %s: %s", file, error)
            is_written = False
    rank = _rank()
    try:
        text = report.text(width_of(sys.stderr)) if not rank else f"rank {rank}: {report.summary()}"
    except Exception as error:
        text = f"The audit cannot be reported: {error}"
        is_written = False
    with suppress(OSError, ValueError, AttributeError):  # stderr is closed
        sys.stderr.write(f"\n{text}\n")
        sys.stderr.flush()
    return is_written
