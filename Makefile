# `make demo` and `make test` install what they need; `make help` lists all targets.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV ?= .venv
BIN := $(VENV)/bin
# One more than the processors of a small machine, because tests wait for processes and the disk.
WORKERS ?= 3
# Without compiled files, each worker would compile all modules and tests again.
unexport PYTHONDONTWRITEBYTECODE
# Tests create thousands of small files, so they use a file system in memory if there is one.
ifeq ($(origin TMPDIR), undefined)
ifneq ($(wildcard /dev/shm/.),)
export TMPDIR := /dev/shm
endif
endif
# The program that an older pip writes for a command loads `re` first, which takes 6 ms of each start of orch23.
FASTER_SCRIPTS := $(BIN)/python -m pip install --quiet --disable-pip-version-check 'pip>=26'
# Files that are installed. An editable environment (make setup) is not changed.
PRODUCT := pyproject.toml README.md LICENSE $(shell find orch23 docs -type f -not -name '*.pyc')
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal
QUICK := -m "not slow and not thorough"
# Distributing thousands of tests that take a millisecond costs more than running them, and each worker of xdist loads
# all tests. So each part that this reads, a line of arguments, has one process.
QUICK_PYTEST := HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-quick} xargs -P 2 -I {} $(SHELL) -c '$(BIN)/python -m pytest -q $(QUICK) {}'

.PHONY: help setup demo test tests check fmt lint types contracts unit thorough cover vendor docs site economy templates regold build
.PHONY: clean
.PHONY: bench bench-long

help: ## list all targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 20

setup: $(BIN)/python ## create .venv with orch23 in editable mode and the test extra
	$(FASTER_SCRIPTS)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	touch $(VENV)/.editable $(VENV)/.orch23 $(VENV)/.orch23-test

demo: $(VENV)/.orch23 ## build pipelines/quickstart.yaml with recorded responses: no key, no network
	$(BIN)/orch23 build pipelines/quickstart.yaml
	@echo 'next: edit specs/quickstart.md, then `$(BIN)/orch23 plan pipelines/quickstart.yaml`; "Five minutes" in README.md goes on'

# mypy takes one processor for half a minute, so the tests begin beside it. A failure of `lint` ends the run at once.
test: $(VENV)/.orch23-test ## run all checks and tests: format, lint, types, layers, each test (of long tables some cases)
	@echo 'make test: format, ruff, codespell, mypy, the layers, and beside them pytest. It runs each test; of long tables'
	@echo 'it runs every n-th case, and benchmarks only if bench/ changed: make thorough runs all. Percentages are of all tests.'
	$(MAKE) --no-print-directory --jobs=2 lint contracts types tests

# In a new tree, one process compiles the tests. Otherwise, each worker would compile all of them.
tests: $(VENV)/.orch23-test
	[ -e tests/__pycache__ ] || $(BIN)/python -m pytest --collect-only -qq -p no:cacheprovider >/dev/null || true
	$(PYTEST)

check: $(VENV)/.orch23-test ## run the same without the slow tests: under a minute
	$(MAKE) --no-print-directory --jobs=2 lint contracts types unit
	printf '%s\n' tests/e2e 'tests --ignore tests/unit --ignore tests/e2e' | $(QUICK_PYTEST)

fmt: $(VENV)/.orch23-test ## format, and fix what ruff can fix
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

lint: $(VENV)/.orch23-test ## check format, ruff's rules and words
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/codespell orch23 orch23_checks bench scripts docs *.md Makefile .ci/run

types: $(VENV)/.orch23-test ## run mypy in strict mode
	$(BIN)/mypy

contracts: $(VENV)/.orch23-test ## check the layers with import-linter
	PYTHONPATH=. $(BIN)/lint-imports

unit: $(VENV)/.orch23-test ## run the quick unit tests: under 15 seconds
	printf '%s\n' 'tests/unit/[a-l]*' 'tests/unit/[m-z]*' | $(QUICK_PYTEST)

thorough: $(VENV)/.orch23-test ## run every case of every test with very many examples, and the mutants of docs/seeds.md: hours
	HYPOTHESIS_PROFILE=thorough $(PYTEST) -m "" --timeout 3600
	$(BIN)/python scripts/without_features.py

cover: $(VENV)/.orch23-test ## run all tests, and check the minimum of branch coverage: about ten minutes
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -n $(WORKERS) --dist worksteal
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

vendor: $(BIN)/python ## download the archives that pipelines/sdist.yaml needs
	$(BIN)/python -m pip download --quiet --disable-pip-version-check --no-deps --no-binary idna idna==3.10 -d vendor
	$(BIN)/python -m pip download --quiet --disable-pip-version-check --no-deps flit_core==3.10.1 -d vendor
	@touch vendor

docs: $(VENV)/.orch23-test ## write the generated pages
	PYTHONPATH=. $(BIN)/python -c "$$PAGES"

define PAGES
from pathlib import Path
from scripts.reference_pages import events_page
from scripts.reference_pages import checks_page, commands_page, expressions_page
from scripts.pipeline_reference import reference_page
pages = {"pipeline-reference": reference_page, "commands": commands_page}
pages |= {"events": events_page, "checks": checks_page, "expressions": expressions_page}
for name, page in pages.items():
    Path("docs", name + ".md").write_text(page(), encoding="utf-8")
endef
export PAGES

site: $(VENV)/.orch23-docs ## build the documentation as a site in build/site, and follow all of its links
	PYTHONPATH=. $(BIN)/python scripts/docs_site.py

economy: $(VENV)/.orch23-test ## measure the model calls that edits cost; write docs/economy.md
	PYTHONPATH=. $(BIN)/python bench/model_economy.py > docs/economy.md.new
	mv docs/economy.md.new docs/economy.md

templates: $(VENV)/.orch23-test ## write the templates of orch23 init from the pipelines; commit them
	$(BIN)/python scripts/make_templates.py

regold: $(VENV)/.orch23-test ## write the golden files; read the diff before you commit
	REGOLD=1 $(PYTEST) -q

# The benchmark needs no library. It installs the measured tools into separate environments.
bench: $(BIN)/python ## compare the speed with other tools: under five minutes, the first time plus installation
	PYTHONPATH=. $(BIN)/python -m bench short

bench-long: $(BIN)/python ## run the long comparison; write bench/results, docs/performance.md and the figures of the README
	PYTHONPATH=. $(BIN)/python -m bench long

build: $(BIN)/python ## build the wheel and the source distribution in dist/
	$(BIN)/python -m pip install --quiet --disable-pip-version-check build
	rm -rf dist
	$(BIN)/python -m build --outdir dist

clean: ## remove build, coverage and cache files; keep .venv and everything that orch23 built
	rm -rf build dist .coverage .coverage.* htmlcov .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find orch23 tests -type d -name __pycache__ -prune -exec rm -rf {} +

# ---- environments ---------------------------------------------------------------------------------

$(VENV)/.orch23: $(PRODUCT) | $(BIN)/python
	@if [ ! -e $(VENV)/.editable ]; then \
	  echo "installing orch23 into $(VENV)"; \
	  $(FASTER_SCRIPTS); \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check .; \
	fi
	@touch $@

$(VENV)/.orch23-test: $(PRODUCT) | $(BIN)/python
	@if [ ! -e $(VENV)/.editable ]; then \
	  echo "installing orch23 and its test dependencies into $(VENV)"; \
	  $(FASTER_SCRIPTS); \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check '.[test]'; \
	fi
	@touch $@ $(VENV)/.orch23

$(VENV)/.orch23-docs: pyproject.toml $(VENV)/.orch23
	$(BIN)/python -m pip install --quiet --disable-pip-version-check '.[docs]'
	@touch $@

# The interpreter: $$PYTHON, else the first on PATH that is 3.11 or newer and can create a virtual environment.
$(BIN)/python:
	@if [ -n "$${PYTHON:-}" ]; then names="$$PYTHON"; else names="python3 python3.13 python3.12 python3.11 python"; fi; \
	old=""; bare=""; chosen=""; \
	for name in $$names; do \
	  "$$name" -c 'pass' >/dev/null 2>&1 || continue; \
	  if ! "$$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then old="$$old $$name"; continue; fi; \
	  if ! "$$name" -c 'import ensurepip, venv' >/dev/null 2>&1; then bare="$$bare $$name"; continue; fi; \
	  chosen="$$name"; break; \
	done; \
	if [ -z "$$chosen" ]; then \
	  echo "orch23 needs Python 3.11 or newer with the venv module; searched for: $$names" >&2; \
	  [ -z "$$old" ] || echo "  older than 3.11:$$old" >&2; \
	  [ -z "$$bare" ] || echo "  without venv:$$bare (on Debian and Ubuntu: apt install python3-venv)" >&2; \
	  echo "  to use another one: make demo PYTHON=/path/to/python3" >&2; \
	  exit 1; \
	fi; \
	echo "creating the virtual environment $(VENV) with $$("$$chosen" --version)"; \
	"$$chosen" -m venv $(VENV)
