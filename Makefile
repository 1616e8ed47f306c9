# make demo, make test: what a newcomer runs. They need make, Python and a compiler, and install all else into .venv.
# What there is to run beside them, nox runs (noxfile.py), in the environments that are made here.

TORCH ?= 2.13.0
PYTHON ?= python3
# As many as the machine has cores, if each can have 2 GiB of memory.
ifndef MAX_JOBS
MAX_JOBS := $(shell "$(PYTHON)" -c 'import os; print(min(os.cpu_count(), os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 31) or 1)' 2> /dev/null)
endif
# More arguments for pytest, as in `make test ARGS="-k nan -x"`.
ARGS ?=
# The extra of pyproject.toml for the tests: `test`, `test-core`, which installs less, or `test-slow`, which slow tests need.
EXTRA ?= test
# WHEEL=dist/NAME.whl, or several: the environment gets these, and nothing is compiled for it.
WHEEL ?=

# Each worker starts with whole files, so few fixtures are made twice.
PARALLEL = -n $(MAX_JOBS) --dist worksteal
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory
export MAX_JOBS
export PIP_DISABLE_PIP_VERSION_CHECK := 1

VENV := .venv/torch-$(TORCH)
PIP := $(VENV)/bin/pip install
NOX := .venv/nox/bin/nox
LOGGED := buildtools/logged.sh
# Folders are in the list so that a removed file counts as a change too.
SOURCES := $(shell find csrc codegen buildtools python/clampgrad -not -name __pycache__ -not -name "*.pyc" -not -name "*.so" -not -name "*.so.*") \
           conventions.yaml derivatives.yaml setup.py pyproject.toml torch_releases.txt

.PHONY: FORCE demo test docs nvcc tested help

demo: $(VENV)/installed ## Show what a clamp does to a gradient; writes to out/
	echo "==> demo on torch $(TORCH)"
	$(VENV)/bin/python examples/demo.py --out out
	ls -d $(VENV)/lib/python3*/site-packages/clampgrad/_lib/*_cu* > /dev/null 2>&1 || ! nvidia-smi -L > /dev/null 2>&1 || \
		echo "==> There is a GPU here, and clampgrad has no CUDA kernels: \`make nvcc\` installs a compiler for them" \
			"in $(VENV); then \`make demo\` builds them."

test: tested ## Run the tests on the installed package
	echo "==> tests on torch $(TORCH)"
	$(VENV)/bin/pytest $(PARALLEL) $(ARGS)

docs: $(NOX) ## Build the documentation site in out/site
	$(NOX) -s docs

help: ## This list
	awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-6s %s\n", $$1, $$2 }' Makefile
	echo "  These can be set on the command line:"
	printf "    %-9s %s\n" TORCH "the release of torch (now $(TORCH))" PYTHON "the Python that makes environments (now $(PYTHON))" \
		MAX_JOBS "how many files are compiled, and tests run, at once (now $(MAX_JOBS))" \
		ARGS 'arguments for pytest, as in: make test ARGS="-k nan -x"' \
		EXTRA "what the tests need: test, test-core or test-slow (now $(EXTRA))" \
		WHEEL "wheels to install instead of building, as in: WHEEL=dist/NAME.whl make test"
	echo "  All else is run by nox: \`make $(NOX)\` installs it, and \`$(NOX) -l\` lists what there is."

# ---- What they stand on --------------------------------------------------------------------------

# What must be there already, with a word on how to get it.
define check_python
"$(PYTHON)" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 10))' 2> /dev/null || { \
	echo "$(PYTHON) is not Python 3.10 or later with its venv module (Debian, Ubuntu: apt install python3-venv)." \
		"To name another: make PYTHON=python3.12 ..."; exit 1; }
endef
define check_machine
$(check_python)
command -v $${CXX:-c++} > /dev/null && "$(PYTHON)" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' || { \
	echo "A C++ compiler and the headers of $(PYTHON) are needed (Debian, Ubuntu: apt install g++ python3-dev;" \
		"Fedora: dnf install gcc-c++ python3-devel; macOS: xcode-select --install)."; exit 1; }
endef

$(NOX):
	$(check_python)
	"$(PYTHON)" -m venv .venv/nox
	.venv/nox/bin/pip install -q nox==2026.10.20

$(VENV)/torch:
	$(check_machine)
	echo "==> making $(VENV) with $$("$(PYTHON)" -V)"
	"$(PYTHON)" -m venv $(VENV)
	echo "==> installing torch $(TORCH) (the download is large)"
	$(LOGGED) $(VENV)/torch.log $(PIP) torch==$(TORCH) numpy ninja 'setuptools>=77' wheel pyyaml
	touch $@

# Which wheels are wanted there, or none: another choice is a reason to install again.
$(VENV)/wheels: $(VENV)/torch FORCE
	echo '$(WHEEL)' | cmp -s - $@ || echo '$(WHEEL)' > $@

ifdef WHEEL
$(VENV)/installed: $(VENV)/torch $(VENV)/wheels $(WHEEL)
	echo "==> installing $(WHEEL) beside torch $(TORCH)"
	$(VENV)/bin/pip uninstall -qqy clampgrad-cuda
	$(LOGGED) $(VENV)/build.log $(PIP) --force-reinstall --no-deps $(WHEEL)
	$(LOGGED) $(VENV)/demo.log $(PIP) '$(firstword $(WHEEL))[demo]'
	touch $@
else
# A compiler for CUDA that was installed since then is a reason to build again.
$(VENV)/installed: $(VENV)/torch $(VENV)/wheels $(SOURCES) $(wildcard $(VENV)/lib/python3*/site-packages/nvidia/cu*/bin/nvcc)
	echo "==> building clampgrad for torch $(TORCH), with $(MAX_JOBS) jobs (minutes the first time)"
	# The folders of an earlier build may hold files that are gone by now.
	rm -rf build/lib.* build/bdist.*
	$(VENV)/bin/pip uninstall -qqy clampgrad-cuda
	$(LOGGED) $(VENV)/build.log $(PIP) -v --no-build-isolation '.[demo]'
	$(if $(filter 1,$(CLAMPGRAD_CUDA)),,rm -f $(VENV)/asked-for-cuda)
	touch $@
# So is the wish for CUDA kernels on a machine without a GPU, if they were not built yet.
ifeq ($(CLAMPGRAD_CUDA),1)
$(VENV)/installed: $(VENV)/asked-for-cuda
$(VENV)/asked-for-cuda: $(VENV)/torch
	touch $@
endif
endif

# The demo does not need what the tests do.
tested: $(VENV)/tested-$(EXTRA)
$(VENV)/tested-%: $(VENV)/installed
	echo "==> installing what the tests need"
	$(LOGGED) $(VENV)/tested.log $(PIP) 'clampgrad[$*]'
	touch $@

nvcc: $(VENV)/torch
	echo "==> installing a compiler for CUDA beside torch $(TORCH)"
	packages=$$($(VENV)/bin/python -m buildtools.pip_nvcc) && $(LOGGED) $(VENV)/nvcc.log $(PIP) "$$packages"

# A variable of this file, for noxfile.py and .ci/run.
print-%:
	echo '$($*)'

# Say what happens, not how: the commands themselves are shown by `make -n`.
.SILENT:
