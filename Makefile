# Needs Python 3.11 or later and make; everything else goes into .venv. Another interpreter: make run PYTHON=python3.13
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.DEFAULT_GOAL := help
.PHONY: help run test lint unit verify bench readme docs catalogue format clean
.DELETE_ON_ERROR:

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(VENV)/package ## set up, plan every spec of the catalogue, write reports/
	$(BIN)/planner run specs/*.yaml

test: lint unit ## set up, then everything that CI checks; the last line names what it could not try

lint: $(VENV)/dev ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

unit: $(VENV)/dev ## the tests alone
	$(BIN)/pytest

verify: $(VENV)/dev ## hold every spec's parameters against PyTorch's own count
	$(BIN)/planner verify specs/*.yaml

bench: $(VENV)/package ## time it against what it cannot avoid, side by side in one run
	$(BIN)/python bench/bench.py

readme: $(VENV)/dev ## bring what the README shows up to date
	$(BIN)/python tools/readme.py
	$(BIN)/python tools/review.py

docs: $(VENV)/dev ## write the schema, the pages of docs/ that the code can tell, and the tutorial's outputs
	$(BIN)/python tools/schema.py
	$(BIN)/python tools/docs.py

catalogue: $(VENV)/package ## write specs/catalog from the published configurations
	$(BIN)/python tools/catalogue.py

format: $(VENV)/dev ## let ruff format the code and fix what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove the environment and every cache
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Each stamp is as new as the set-up that it stands for, and is made again when what it was made from changes.
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
