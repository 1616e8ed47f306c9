"""One of upstream's test files, with the result of every test: python tests.py OUT FILE [-k NAME]...

What ends the process is tried again with the tests that are left, and after ATTEMPTS times it has crashed.
What takes too long is not tried again.
"""

import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from attempt import DONE, IMPORT, LONGEST

ATTEMPTS = 3
ATTEMPT = Path(__file__).with_name("attempt.py")


def read(journal: Path) -> list[list[str]]:
    return [json.loads(line) for line in journal.read_text().splitlines()]


def main() -> None:
    out, *file_and_names = sys.argv[1:]
    journal, ended = Path(f"{out}.journal"), Path(f"{out}.ended")
    journal.write_text("")
    ended.unlink(missing_ok=True)
    crashes: Counter[str] = Counter()
    while True:
        command = [sys.executable, ATTEMPT, ended, journal, *file_and_names]
        code = subprocess.call(command)
        lines = read(journal)
        if ended.exists():
            break
        place, what, _ = lines[-1]
        where = place if what == "begun" else f"after {place}"
        too_long = time.time() - journal.stat().st_mtime > LONGEST
        crashes[where] += not too_long
        again = not too_long and crashes[where] < ATTEMPTS
        if what == "begun" and place != IMPORT:
            lines.pop()
            if not again:
                lines.append([place, "no end" if too_long else "crashed", ""])
        elif not again:
            sys.exit(f"{'no end' if too_long else f'ended with {code}'}: {where}")
        kept = (line for line in lines if line[0] != IMPORT)
        journal.write_text("".join(json.dumps(line) + "\n" for line in kept))
    of_tests = [line for line in lines if line[1] not in ("begun", DONE)]
    found = {
        "results": {test: result for test, result, _ in of_tests},
        "causes": {test: why for test, _, why in of_tests if why},
        "crashes": dict(+crashes),
        "error": json.loads(ended.read_text()),
    }
    Path(out).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
