"""A newcomer's first minute: clampgrad from the files of a folder, beside torch in an
environment of its own, where no compiler is on PATH. `make artefacts` and the steps of a release
do it: records/first-minute.jsonl.

    python -m lab.first_minute TORCH DIST     leaves the environment in .venv/newcomer

Where torch is a build for CUDA, and DIST has clampgrad-cuda, that is
installed too, as `clampgrad[cuda]`.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
import venv
from pathlib import Path

import records
from records import code, table

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".venv/newcomer"
ABOUT = "import sys, torch; print(torch.__version__, torch.version.cuda, sys.version.split()[0])"


def examples() -> str:
    """The Python of README.md, as one program."""
    return "\n".join(
        re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)
    )


def ran(*words: object, **variables: str) -> str:
    """What a program of the environment prints. Its PATH has the
    programs of the environment alone."""
    env = {**os.environ, "PATH": str(HOME / "bin"), **variables}
    return subprocess.run(
        [*map(str, words)], cwd=HOME, env=env, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def main(torch: str, dist: str) -> None:
    files, python, seconds = Path(dist).resolve(), HOME / "bin/python", {}
    shutil.rmtree(HOME, ignore_errors=True)
    venv.create(HOME, with_pip=True)

    def timed(what: str, *words: object) -> str:
        began = time.monotonic()
        said = ran(*words)
        seconds[what] = round(time.monotonic() - began, 1)
        return said

    timed("installing torch", python, "-m", "pip", "install", "-q", f"torch=={torch}")
    release, cuda, version = ran(python, "-c", ABOUT).split()
    kernels = cuda != "None" and any(files.glob("clampgrad_cuda-*.whl"))
    wanted = "clampgrad[cuda]" if kernels else "clampgrad"
    offline = ("-q", "--no-index", "--find-links", files)
    timed("installing clampgrad", python, "-m", "pip", "install", *offline, wanted)
    info = json.loads(timed("clampgrad info", HOME / "bin/clampgrad", "info", "--json"))
    timed("the examples", python, "-c", examples())
    if (info["implementation"], info["cuda_kernels"]) != ("compiled", kernels):
        sys.exit(
            f"{wanted} beside torch {release}: {info['implementation']}, because {info['because']}"
        )
    row = {"torch": release, "wanted": wanted, "python": version, "seconds": seconds}
    path = Path(os.environ.get("RECORDS", ROOT / "out")) / "first-minute.jsonl"
    others = records.read(path)["rows"] if path.exists() else []
    rows = [*(r for r in others if r["torch"] != release), row]
    records.write(path, rows, cpu=records.processor(), cores=os.cpu_count())
    print(json.dumps(row))


@table()
def first_minute():
    found = records.read("first-minute")
    yield "torch", "Python", "installed", *found["rows"][0]["seconds"]
    for row in found["rows"]:
        times = (f"{seconds:.0f} s" for seconds in row["seconds"].values())
        yield row["torch"], row["python"], code(row["wanted"]), *times
    yield f"On {found['cores']} cores of {found['cpu']}. The first time depends on the network."


if __name__ == "__main__":
    main(*sys.argv[1:])
