# Everything a fresh machine needs: `make serve`, `make test`. `make lint` runs the linters that CI runs, and
# `make test-kernels` the tests of GPU programs under the GPU machine's jax, without a GPU (Python >= 3.12: GPU_PYTHON).
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
GPU_PYTHON ?= python3.12
GPU_VENV ?= .venv-gpu
# The configuration and the plugin are named, because pytest would take the value of `--shared PATH` for a place to look.
PYTEST_OPTIONS := -m pytest -c pyproject.toml -p tests.contract.marks
PYTEST := $(BIN)/python $(PYTEST_OPTIONS)
KERNEL_TESTS := -m "kernels or deviceless" tests/kernels_pallas tests/engine
SERVE_ARGS ?=
PYTEST_ARGS ?=

.PHONY: serve test test-slow test-kernels count-kernels lint format

serve: $(VENV)/.runtime
	@$(BIN)/python -m ninfer serve $(SERVE_ARGS)

test: $(VENV)/.dev
	$(PYTEST) -m "not slow" $(PYTEST_ARGS)

test-slow: $(VENV)/.dev
	$(PYTEST) -m slow $(PYTEST_ARGS) || [ $$? -eq 5 ]  # 5: there is no slow test

test-kernels: $(GPU_VENV)/.deviceless
	JAX_PLATFORMS=cpu $(GPU_VENV)/bin/python $(PYTEST_OPTIONS) $(KERNEL_TESTS) $(PYTEST_ARGS)

# How many tests `test-kernels` would run; for where it cannot.
count-kernels: $(VENV)/.dev
	@$(PYTEST) --collect-only $(KERNEL_TESTS) | grep -c ::

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# tools/make_venv.py checks the Python, says what it does, and leaves no half-made folder that counts as made.
$(VENV)/.runtime: pyproject.toml
	@$(PYTHON) tools/make_venv.py $(VENV)
	@touch $@

$(VENV)/.dev: pyproject.toml
	@$(PYTHON) tools/make_venv.py $(VENV) --extra dev
	@touch $@ $(VENV)/.runtime

$(GPU_VENV)/.deviceless: pyproject.toml
	@$(GPU_PYTHON) tools/make_venv.py $(GPU_VENV) --extra test,deviceless
	@touch $@
