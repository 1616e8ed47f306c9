"""What was measured: one JSON object a line and a run, in a file that an interrupted study adds to."""

import json
import os
from pathlib import Path

# The committed records, or those of a study of one's own: `make study` sets it.
FOLDER = Path(
    os.environ.get("STUDY_RESULTS") or Path(__file__).resolve().parents[2] / "records/study"
)
SETTINGS = ("model", "precision", "weights", "gradient", "alpha", "formula", "seed")


def settings(record):
    """What tells one run from another."""
    return tuple((key, record[key]) for key in SETTINGS if key in record)


def path(study):
    return FOLDER / f"{study}.jsonl"


def read(study):
    """All records of a study by their settings; a line that was cut short is one run less."""
    found = {}
    if path(study).exists():
        for line in path(study).read_text().splitlines():
            try:
                record = json.loads(line)
            except json.JSONDecodeError:
                continue
            found[settings(record)] = record
    return found


def add(study, record):
    FOLDER.mkdir(parents=True, exist_ok=True)
    with path(study).open("a+") as file:
        file.seek(0)
        cut_short = not (file.read() or "\n").endswith("\n")
        file.write("\n" * cut_short + json.dumps(record) + "\n")


def tidy(study, runs):
    """Puts the records in the order of `runs`, whatever order they were made in."""
    found = read(study)
    lines = [json.dumps(found[settings(run)]) for run in runs]
    path(study).write_text("".join(line + "\n" for line in lines))


def write(name, data):
    """What takes no time: one JSON file, made anew each time."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"{name}.json").write_text(json.dumps(data) + "\n")
