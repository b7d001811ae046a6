# `make demo` and `make test` need Python 3.10 or newer, a C++20 compiler and make; the rest they install themselves.
PYTHON ?= python3
# What pip is to take torch from, such as PIP_ARGS="--index-url https://download.pytorch.org/whl/cpu" where the
# default index would bring the build for CUDA.
PIP_ARGS ?=
TORCH ?= torch==2.13.0
WORKERS ?= 2
# Of `make soak`.
MINUTES ?= 30
SEED ?= 0

BIN := .venv/bin
PIP := $(BIN)/pip --disable-pip-version-check install --quiet
CSRC := $(shell find neuron_dist/csrc -name '*.cpp' -o -name '*.h')

.PHONY: demo test test-full soak lint install clean

demo: install
	$(BIN)/neuronrun --nproc-per-node 4 examples/train_gpt.py

test: install
	$(BIN)/python -m pytest -n $(WORKERS) -m "not full"

test-full: .venv/full.stamp
	$(BIN)/python -m pytest -n $(WORKERS)

soak: install
	$(BIN)/python -m tests.faults.soak --minutes $(MINUTES) --seed $(SEED)

lint: .venv/lint.stamp
	$(BIN)/pre-commit run --all-files

install: .venv/install.stamp

.venv/torch.stamp:
	$(PYTHON) -m venv .venv
	$(PIP) $(PIP_ARGS) "$(TORCH)" numpy
	$(PIP) "setuptools>=77" wheel ninja nlohmann-json
	touch $@

.venv/install.stamp: .venv/torch.stamp pyproject.toml setup.py $(CSRC)
	$(PIP) --no-build-isolation --editable ".[test]"
	touch $@

.venv/full.stamp: .venv/install.stamp
	$(PIP) --no-build-isolation --editable ".[full]"
	touch $@

.venv/lint.stamp: .venv/torch.stamp
	$(PIP) pre-commit
	touch $@

clean:
	rm -rf .venv build dist *.egg-info neuron_dist/_C*.so
