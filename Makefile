# Everything a fresh machine needs is Python >= 3.11 and make.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
CONFIG ?= breakers.yaml
ARGS ?=

.PHONY: run demo test lint types fuzz soak bench clean

run: $(VENV)/.installed ## Run the daemon on the shipped breakers.yaml
	$(BIN)/breaker-sidecar serve --config $(CONFIG) $(ARGS)

demo: $(VENV)/.installed ## Show in half a minute what it is for
	$(BIN)/breaker-sidecar demo

test: $(VENV)/.tests ## Run the whole suite
	$(BIN)/python -m pytest $(ARGS)

lint: $(VENV)/.dev ## Style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev ## Types
	$(BIN)/mypy

fuzz: $(VENV)/.tests ## Hostile input, ten minutes a target
	$(BIN)/python -m tests.fuzz --seconds 600 $(ARGS)

soak: $(VENV)/.tests ## An hour's work in ten minutes, and books that balance
	$(BIN)/python -m bench.soak $(ARGS)

bench: $(VENV)/.tests ## Measure beside the peers that are installed
	$(BIN)/python -m bench

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; say make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/.tests: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --group tests
	touch $@

$(VENV)/.dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --group dev
	touch $@

clean:
	rm -rf $(VENV) dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
