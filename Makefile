# Everything a fresh machine needs: `make serve`, `make test`. `make lint` runs the linters that CI runs.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# The configuration and the plugin are named, because pytest would take the value of `--shared PATH` for a place to look.
PYTEST := $(BIN)/python -m pytest -c pyproject.toml -p tests.contract.marks
SERVE_ARGS ?=
PYTEST_ARGS ?=

.PHONY: serve test test-slow lint format

serve: $(VENV)/.runtime
	$(BIN)/python -m ninfer serve $(SERVE_ARGS)

test: $(VENV)/.dev
	$(PYTEST) -m "not slow" $(PYTEST_ARGS)

test-slow: $(VENV)/.dev
	$(PYTEST) -m slow $(PYTEST_ARGS) || [ $$? -eq 5 ]  # 5: there is no slow test

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet -e .
	touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet -e ".[dev]"
	touch $@ $(VENV)/.runtime
