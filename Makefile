# One command for each thing; every target does the set-up it needs. `make` lists them.
# VERBOSE=1 shows the output of checks that pass. PYTHON=python3.13 does it with that Python, in .venv-3.13.

export VENV := $(if $(PYTHON),.venv-$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])'),.venv)
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
UV     := $(BIN)/uv
ARGS   ?=
PYTEST  = HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-ci} $(BIN)/pytest -q --dist worksteal --inline-snapshot=disable
FAST    = not program and not container and not process and not slow
TYPES   = $(BIN)/pyright --pythonpath $(BIN)/python
COMPILE = $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
          --custom-compile-command "make lock" $(if $(UPGRADE),--upgrade)

.DEFAULT_GOAL := help
.PHONY: help setup check test soak lint types layers unit coverage format bench demo record lock clean
# The targets share one environment and the checks read best in order.
.NOTPARALLEL:
# Tests start hundreds of interpreters: without compiled modules each would compile all of the package again.
unexport PYTHONDONTWRITEBYTECODE

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) ## make the environment from the lock files; does nothing when it is current
	@:

$(READY): pyproject.toml requirements/bootstrap.lock requirements/dev.lock requirements/hashing.lock \
          package-lock.json .npmrc scripts/setup scripts/system-packages scripts/other-pythons scripts/find-pythons \
          $(wildcard src/codesdk/runtimes/program/pinned/locks/*/*)
	@scripts/setup </dev/null

$(VENV)/.installer: requirements/bootstrap.in
	@scripts/setup installer </dev/null

check: lint layers ## all checks of the source, and the tests that need no program, no container and no minutes: for the work in between
	@scripts/quietly types $(TYPES) src & types=$$!; \
	CODESDK_COUNTS=check $(PYTEST) -n 3 -m "$(FAST)" $(ARGS) </dev/null; tests=$$?; \
	wait $$types && exit $$tests

test: lint types layers unit ## all checks and all tests, each with small counts: before a commit

soak: $(READY) ## all tests with the large counts, and a table of what ran: ARGS="--write docs/soak.md" keeps it
	@$(BIN)/python -m tests.soak $(ARGS) </dev/null

lint: $(READY) ## style and formatting (ruff)
	@scripts/quietly lint $(BIN)/ruff check .
	@scripts/quietly format $(BIN)/ruff format --check .

types: $(READY) ## types: strict on src, basic on tests (pyright)
	@scripts/quietly types $(TYPES)

layers: $(READY) ## which package may import which (import-linter)
	@scripts/quietly layers $(BIN)/lint-imports

unit: $(READY) ## the tests alone; ARGS="-k name" chooses some
	@$(PYTEST) -n 3 $(ARGS) </dev/null # three keep two cores busy: tests of processes wait a lot

coverage: $(READY) ## the tests, with a report of the lines they do not reach
	@$(BIN)/coverage erase
	@HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-ci} $(BIN)/coverage run -m pytest -q $(ARGS) </dev/null
	@$(BIN)/coverage combine -q
	@$(BIN)/coverage report

format: $(READY) ## rewrite the code in the house style
	@$(BIN)/ruff check --quiet --fix-only .
	@$(BIN)/ruff format --quiet .

bench: $(READY) ## the measurements; ARGS go to the bench
	@$(BIN)/python -m bench $(ARGS)

demo: $(READY) ## a short tour that needs no network and no account
	@$(BIN)/codesdk demo $(ARGS)

record: $(READY) ## record what real programs say again, for the tests: ARGS="claude|codex|opencode [CASE...]"; needs root
	@$(BIN)/python scripts/record-runtime $(ARGS)

lock: $(VENV)/.installer ## remake the lock files; UPGRADE=1 takes newer versions
	@$(COMPILE) requirements/bootstrap.in -o requirements/bootstrap.lock
	@$(COMPILE) pyproject.toml requirements/dev.in -o requirements/dev.lock
	@$(COMPILE) requirements/hashing.in -o requirements/hashing.lock
	@$(COMPILE) requirements/rivals.in --excludes requirements/rivals.excludes -o requirements/rivals.lock
	@scripts/lock-programs </dev/null

clean: ## remove the environments, caches and build output
	@rm -rf .venv .venv-* .programs node_modules dist build .pytest_cache .ruff_cache .hypothesis .import_linter_cache .coverage .coverage.* htmlcov
	@find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
