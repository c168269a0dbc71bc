# Requires Python 3.11 or later and make; everything else is installed into .venv. To choose an interpreter: make run PYTHON=python3.13
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
WORKFLOW := $(VENV)/init/.github/workflows/model-capacity.yml

.DEFAULT_GOAL := help
.PHONY: help run test lint unit sweep measure verify bench hostile readme docs site screenshots time catalogue composites pins format clean
.DELETE_ON_ERROR:

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(VENV)/package ## set up .venv, plan every spec in specs/, write reports/
	$(BIN)/planner run specs/*.yaml

test: lint unit ## set up .venv, then run all checks of CI; the last line names skipped tests

lint: $(VENV)/dev ## run ruff and mypy, and check the action and the files that `planner init` writes
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	rm -rf $(VENV)/init && mkdir $(VENV)/init
	cd $(VENV)/init && ../bin/planner init --ci github --action owner/modelplan@0123456789abcdef0123456789abcdef01234567
	$(BIN)/zizmor --offline --quiet --no-progress --persona auditor action.yml .github/workflows/site.yml .pre-commit-hooks.yaml $(VENV)/init/.pre-commit-config.yaml $(WORKFLOW)
	if command -v actionlint; then actionlint $(WORKFLOW) .github/workflows/site.yml; else echo 'actionlint is not installed: skipped'; fi

unit: $(VENV)/dev ## run only the tests, on all cores
	$(BIN)/pytest --numprocesses logical --maxprocesses 4 --dist loadfile

sweep: $(VENV)/dev ## draw many more random specs than the tests do, and change each key of every model type
	SHAPES=2000 SEEDS=0:200 $(BIN)/pytest tests/test_random_specs.py tests/verify/test_random_shapes.py
	TUNINGS=500 $(BIN)/pytest tests/verify/test_random_tuning.py
	CHANGES=keys $(BIN)/pytest tests/importer/test_changed_keys.py
	CHANGES=all $(BIN)/pytest tests/importer/test_composites.py tests/capacity/test_pipelining.py tests/explore/test_layout_search.py tests/test_every_value.py
	CHANGES_OF_PAGE=40 $(BIN)/pytest tests/report/test_live_in_browser.py
	CHANGES=all $(BIN)/pytest $(addprefix tests/verify/test_,class_steps.py layout.py measure.py)

measure: $(VENV)/dev ## measure training steps of every class of transformers for docs/trust.md; takes about 20 minutes
	$(BIN)/python tools/measure.py
	$(BIN)/python tools/docs.py

verify: $(VENV)/dev ## compare every spec's parameters with PyTorch
	$(BIN)/planner verify specs/*.yaml

bench: $(VENV)/package ## benchmark against lower bounds measured in the same run
	$(BIN)/python bench/bench.py

hostile: $(VENV)/dev ## run commands on mutated specs, configurations, policies and arguments: make hostile CASES=5000 SEED=2
	$(BIN)/python bench/hostile.py --cases $(or $(CASES),400) --seed $(or $(SEED),1)

readme: $(VENV)/dev ## update the output shown in README.md, docs/ and the notebook
	$(BIN)/python tools/readme.py
	$(BIN)/python tools/notebook.py

docs: $(VENV)/dev ## regenerate the schema, the reference pages and the numbers in the other pages
	$(BIN)/python tools/schema.py
	$(BIN)/python tools/docs.py

screenshots: $(VENV)/dev ## take the pictures of the HTML page in docs/images, with Chromium
	$(BIN)/python tools/screenshots.py

site: $(VENV)/dev ## build the documentation and a live page of every model into build/site; takes minutes
	$(BIN)/python tools/site.py

catalogue: $(VENV)/package ## regenerate specs/catalog and its table in docs/models.md
	$(BIN)/python tools/catalogue.py

time: $(VENV)/dev ## fit the coefficients of step time to published runs, and write docs/time.md; takes a minute
	$(BIN)/python tools/calibrate_time.py

composites: $(VENV)/dev ## regenerate what transformers makes of composite configurations (text and images); takes minutes
	$(BIN)/python tools/composites.py

pins: $(VENV)/python ## regenerate action/requirements.txt: the action's dependencies, with hashes, from constraints.txt
	$(PIP) install uv==0.13.9
	$(BIN)/uv --quiet pip compile --universal --python-version 3.11 --generate-hashes --no-annotate --default-index https://pypi.org/simple \
		--custom-compile-command 'make pins' --constraint constraints.txt pyproject.toml --output-file action/requirements.txt

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
