# Requires Python 3.11 or later and make; everything else is installed into .venv. To choose an interpreter: make run PYTHON=python3.13
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.DEFAULT_GOAL := help
.PHONY: help run test lint unit sweep verify bench readme docs catalogue format clean
.DELETE_ON_ERROR:

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(VENV)/package ## set up .venv, plan every spec in specs/, write reports/
	$(BIN)/planner run specs/*.yaml

test: lint unit ## set up .venv, then run all checks of CI; the last line names skipped tests

lint: $(VENV)/dev ## run ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

unit: $(VENV)/dev ## run only the tests
	$(BIN)/pytest

sweep: $(VENV)/dev ## draw many more random specs than the tests do, and change every key of every model type
	SHAPES=2000 SEEDS=0:200 $(BIN)/pytest tests/test_random_specs.py tests/verify/test_random_shapes.py
	CHANGES=all $(BIN)/pytest tests/importer/test_changed_keys.py

verify: $(VENV)/dev ## compare every spec's parameters with PyTorch
	$(BIN)/planner verify specs/*.yaml

bench: $(VENV)/package ## benchmark against lower bounds measured in the same run
	$(BIN)/python bench/bench.py

readme: $(VENV)/dev ## update the output shown in README.md, docs/ and the notebook
	$(BIN)/python tools/readme.py
	$(BIN)/python tools/notebook.py

docs: $(VENV)/dev ## regenerate the schema, the reference pages and the numbers in the other pages
	$(BIN)/python tools/schema.py
	$(BIN)/python tools/docs.py

catalogue: $(VENV)/package ## regenerate specs/catalog and its table in docs/models.md
	$(BIN)/python tools/catalogue.py

format: $(VENV)/dev ## format the code and fix what ruff can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove .venv and all caches
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Stamp files: an environment is updated when a file that it is installed from changes.
$(VENV)/python:
	$(PYTHON) -c 'import sys; sys.exit(f"Python 3.11 or later is needed, this is {sys.version}" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/package: pyproject.toml constraints.txt | $(VENV)/python
	$(PIP) install --constraint constraints.txt --editable .
	touch $@

$(VENV)/dev: requirements-dev.txt constraints.txt | $(VENV)/package
	$(PIP) install --requirement requirements-dev.txt
	touch $@
