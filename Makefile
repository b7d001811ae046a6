# `make demo` and `make test` need Python 3.10 or newer, a C++20 compiler and make; the rest they install themselves.
PYTHON ?= python3
BIN := .venv/bin
TORCH := torch==2.13.0
CSRC := $(shell find neuron_dist/csrc -name '*.cpp' -o -name '*.h')
WORKERS := 2

.PHONY: demo test test-full lint format install clean

demo: install
	$(BIN)/neuronrun --nproc-per-node 4 examples/train_gpt.py

test: install
	$(BIN)/python -m pytest -n $(WORKERS) -m "not full"

test-full: install
	$(BIN)/python -m pytest -n $(WORKERS)

lint: .venv/dev.stamp
	$(BIN)/pre-commit run --all-files

install: .venv/build.stamp

.venv/deps.stamp: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --upgrade "setuptools>=77" wheel ninja
	$(BIN)/pip install --quiet $(TORCH) numpy
	touch $@

.venv/build.stamp: .venv/deps.stamp setup.py $(CSRC)
	$(BIN)/pip install --quiet --no-build-isolation --editable ".[test]"
	touch $@

.venv/dev.stamp: .venv/build.stamp
	$(BIN)/pip install --quiet --no-build-isolation --editable ".[dev]"
	touch $@

clean:
	rm -rf .venv build dist *.egg-info neuron_dist/_C*.so
