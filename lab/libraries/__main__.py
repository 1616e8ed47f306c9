"""A stock model beside a converted one, in other people's libraries: every case of
cases.py in a process of its own.

    python -m lab.libraries [--ways convert ...] [--before FILE] [--out FILE] [NAME ...]

Each runs with the stock model, with `clampgrad.nn.convert` by default and with `example_inputs`,
and with `clampgrad.nn.set_gradient`, for one kind of module at a time. Exits with 1 if a
converted model is not as stock, or if a convention is lost in silence. Cases of libraries that
are not installed are left out.

`--before` is what this program wrote with an older clampgrad on PYTHONPATH and `--ways convert`.
With NAME, only those cases run, and only their rows of FILE are written again.
"""

import argparse
import importlib.metadata
import multiprocessing
import sys

import records
from lab.libraries.cases import CASES, is_a_part
from lab.libraries.judging import WAYS, send_verdicts, wrong

SECONDS = 900  # for a case


def version(library):
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return None


def process(name, ways):
    """Forked from one that has imported torch, and has run nothing."""
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["lab.libraries.judging"])
    results, sent = processes.Pipe(duplex=False)
    child = processes.Process(target=send_verdicts, args=(sent, name, ways))
    child.start()
    sent.close()
    try:
        return results.recv() if results.poll(SECONDS) else {"stock": f"no end in {SECONDS} s"}
    except EOFError:
        child.join()
        return {"stock": f"exit code {child.exitcode}"}
    finally:
        child.kill()


def rows_of(path):
    """Those of an earlier run, by the name of the case."""
    there = path and records.path(path).exists()
    return {row["name"]: row for row in records.read(path)["rows"]} if there else {}


def run(names, ways, before, out):
    rows = rows_of(out) if names else {}
    earlier, judged = rows_of(before), {}
    for name in names or CASES:
        library = CASES[name].library
        if not is_a_part(library) and not version(library):
            print(f"{name}: left out, because {library} is not installed", flush=True)
            continue
        judged[name] = found = process(name, ways)
        print(f"{name}: {found}", flush=True)
        rows[name] = {"name": name, "library": library, "case": CASES[name].words, **found}
        if name in earlier:
            rows[name]["before"] = earlier[name]["convert"]
        if out:
            record(out, rows)
    return any(wrong(name, verdicts) for name, verdicts in judged.items())


def record(out, rows):
    """Writes the rows, in the order of the cases."""
    libraries = {row["library"]: version(row["library"]) for row in rows.values()}
    libraries = {name: number for name, number in sorted(libraries.items()) if number}
    ordered = [rows[name] for name in CASES if name in rows]
    records.write(out, ordered, **records.here(), libraries=libraries)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=[*WAYS])
    parser.add_argument("--before")
    parser.add_argument("--out")
    parser.add_argument("names", nargs="*", metavar="NAME")
    given = parser.parse_args()
    sys.exit(run(given.names, given.ways, given.before, given.out))
