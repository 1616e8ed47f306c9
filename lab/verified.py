"""Runs lab/verify on the installed torch and records what it found in docs/verified.json:

    python -m lab.verified [SERIES...]       default: every series for this release

lab.fill_tables makes a table of it. A series that fails is not recorded, and the exit code says so.
"""

import json
import sys
import time
from pathlib import Path

import torch

from lab.series import all_series
from lab.verify.run import CODE, GRADIENTS, of_series, verify

RECORD = Path(__file__).parent.parent / "docs/verified.json"


def found(name, release):
    question = of_series(name, release)
    start = time.monotonic()
    result = verify(question, lambda line: print(name, line, file=sys.stderr))
    print(json.dumps(result, indent=2), file=sys.stderr)
    counts = [line.rpartition(": ")[2].split(" of ") for line in result[GRADIENTS]]
    return result["failures"], {
        "torch": release,
        "series": name,
        "convention": result["convention"],
        "unchanged": question.claim.unchanged,
        "functions": len(result[CODE]),
        "points that changed": sum(int(n) for n, _ in counts),
        "opinfo samples": result["opinfo samples"],
        "not proved": result["not proved"],
        "seconds": round(time.monotonic() - start),
    }


def main():
    release = torch.__version__.split("+")[0]
    names = sys.argv[1:] or [s.name for s in all_series().values() if s.fits(release)]
    record = json.loads(RECORD.read_text()) if RECORD.exists() else []
    results = {(r["torch"], r["series"]): r for r in record}
    failed = 0
    for name in names:
        failures, result = found(name, release)
        print(result, *failures, sep="\n")
        if failures:
            failed += 1
        else:
            results[release, name] = result
            RECORD.write_text(json.dumps([results[k] for k in sorted(results)], indent=1) + "\n")
    return failed


if __name__ == "__main__":
    sys.exit(main())
