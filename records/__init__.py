"""Measurements, in one place and one shape: NAME.jsonl has a header in its first line (what was
measured, with what, on what, if that is the same for all) and a case in every other. This module
alone reads and writes these files. What the scripts of examples/ write is in a folder of that name,
and theirs."""

import functools
import itertools
import json
import os
import platform
import subprocess
from pathlib import Path

FOLDER = Path(__file__).parent
# Where a change changes nothing that is measured.
PAGES = (":!records", ":!docs", ":!*.md")
TABLES = {}  # those of the docs, by name


def path(name):
    """A record of ours, or a file that is named in full."""
    return Path(name) if str(name).endswith(".jsonl") else FOLDER / f"{name}.jsonl"


def read(name):
    """The header, with the cases under "rows"."""
    header, *rows = map(json.loads, path(name).read_text().splitlines())
    return {**header, "rows": rows}


def write(name, rows, digits=4, **header):
    """Writes a record, which names the commit that it is of; `commit=None` if each row does.
    Times have four digits: their quartiles are further apart than that."""
    if "commit" not in header:
        header = {"commit": commit(), **header}
    elif header["commit"] is None:
        del header["commit"]
    text = "".join(line(case, digits) + "\n" for case in (header, *rows))
    to = path(name)
    to.parent.mkdir(parents=True, exist_ok=True)
    write_at_once(to, text)


def write_at_once(to, text):
    """Replaces a file in one step: an interrupted write leaves the old one."""
    to.with_suffix(".new").write_text(text)
    to.with_suffix(".new").replace(to)


def line(case, digits):
    case = case if digits is None else rounded(case, digits)
    return json.dumps(case, ensure_ascii=False, separators=(",", ":"))


def rounded(value, digits):
    if isinstance(value, dict):
        return {k: rounded(v, digits) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(v, digits) for v in value]
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value


def table(**columns):
    """Makes a table of the docs from what a function yields, under its name: a heading and rows,
    and paragraphs, which are texts. What comes after a paragraph is a table of its own.
    `columns` are those of `markdown`."""

    def register(function):
        @functools.wraps(function)
        def shown(*arguments):
            parts = []
            lines = function(*arguments)
            for texts, some in itertools.groupby(lines, lambda line: isinstance(line, str)):
                some = [*some]
                parts += some if texts else [markdown(*some, **columns)]
            return "\n\n".join(filter(None, parts))

        TABLES[function.__name__] = shown
        return shown

    return register


def markdown(heading, *rows, right=(), left=None):
    """A table. The columns `right` are numbers; or all are but the first `left`."""
    right = range(left, len(heading)) if left is not None else right
    rule = ["---:" if i in right else "---" for i in range(len(heading))]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in (heading, rule, *rows))


def code(text):
    return f"`{text}`"


def minutes(seconds):
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


# ---- The machine ---------------------------------------------------------------------------------


def processor():
    """Its name, as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or platform.machine()


def machine():
    """The description of this machine in a record, under the key "machine"."""
    import torch

    return {
        "cpu": processor(),
        "cores": os.cpu_count(),
        "instruction_set": torch.backends.cpu.get_cpu_capability(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def here(device="cpu"):
    """The header of a measurement: the release of torch, Python and the machine, or its GPU."""
    import torch

    where = machine() if device == "cpu" else {"gpu": torch.cuda.get_device_name()}
    return {"torch": torch.__version__, "python": platform.python_version(), "machine": where}


def commit():
    """Returns the commit of this source tree, with "-dirty" if there are changes or new files."""

    def git(*words):
        command = ["git", *words]
        try:
            return subprocess.run(command, cwd=FOLDER.parent, capture_output=True, text=True).stdout
        except FileNotFoundError:  # a measurement is not lost for want of git
            return ""

    head = git("describe", "--always", "--exclude", "*").strip()
    return head + "-dirty" * bool(git("status", "--porcelain", "--", ".", *PAGES))


def made_on(record):
    """Says on what a record was made. Some name no processor, or no commit."""
    m = record["machine"]
    parts = [
        f"torch {record['torch']}",
        m.get("cpu") or "a processor that the record does not name",
    ]
    parts += [f"{m['cores']} cores"] if "cores" in m else []
    parts += [m["instruction_set"]] if "instruction_set" in m else []
    return ", ".join(parts) + at_commit(record)


def at_commit(record):
    head, _, changed = record.get("commit", "").partition("-")
    return f", at commit {code(head)}{' with changes' * bool(changed)}" if head else ""
