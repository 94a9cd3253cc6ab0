# Every target does its own set-up. PYTHON picks the interpreter (3.11 or newer).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 8
HARNESS ?= scripted
SPEC ?= team.toml
STORES := tests/contract/board tests/contract/gateway/test_ledger.py $(wildcard tests/contract/test_router_*.py) \
  tests/integration/test_board_process.py tests/integration/test_rehearse.py tests/chaos/test_kill_database.py
STAMP := $(VENV)/.installed
# Half as many again as there are cores: much of the suite waits for processes that it has started.
JOBS ?= $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$((n + n / 2)))

.DEFAULT_GOAL := help
.PHONY: help setup demo demos up down test test-docker test-mysql chaos bench lint format lock clean

help:  ## Show the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /\1\t/' | expand -t 12

$(STAMP): pyproject.toml requirements.lock requirements-dev.lock
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Agensh needs Python 3.11 or newer; set PYTHON=/path/to/python3.11")'
	@command -v git >/dev/null || { echo "Agensh needs git: install it with your package manager" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

setup: $(STAMP)  ## Install Agensh and its tools into .venv

demo: $(STAMP)  ## A team of WORKERS (8) rebuilds a program, embedded; HARNESS=codex, claude-code or copilot: with that CLI
	$(BIN)/agensh demo --workers $(WORKERS) --harness $(HARNESS)

up: $(STAMP)  ## Bring up the team of SPEC (team.toml) on this box with Docker; .env holds the model's key
	$(BIN)/agensh up $(SPEC)

down: $(STAMP)  ## Stop it; the record stays, and make up goes on
	$(BIN)/agensh down

test: $(STAMP)  ## Run the test suite
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal --ignore=tests/docker

test-docker: $(STAMP)  ## Run the tests that need Docker (root: installs and starts the engine when there is none)
	$(BIN)/python -m pytest tests/docker

# Not part of .ci/run: the server comes from Debian's unstable suite, which must not decide about a change.
test-mysql: $(STAMP)  ## Run the store tests on the real MySQL (root, Docker; its image is made from Debian's unstable suite)
	$(BIN)/python -m tests.support.mysql
	AGENSH_TEST_MYSQL=real $(BIN)/python -m pytest -n 2 --dist loadfile -k "not sqlite" $(STORES)

chaos: $(STAMP)  ## The chaos suite, long, three times in a row (CHAOS="-k disk" picks)
	for round in 1 2 3; do AGENSH_CHAOS=long $(BIN)/python -m pytest tests/chaos -n 2 --dist worksteal $(CHAOS) || exit 1; done

demos: $(STAMP)  ## The demo with each real CLI, minutes each (make test runs the shortest)
	AGENSH_DEMOS=all $(BIN)/python -m pytest tests/e2e/test_demo_cli.py

bench: $(STAMP)  ## Measure against floors of the same run (BENCH="--only NAME --seconds 3"); writes build/bench.json
	$(BIN)/python -m tests.load $(BENCH)

lint: $(STAMP)  ## ruff, mypy --strict, import-linter
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP)  ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: $(STAMP)  ## Pin the dependencies anew (needs uv)
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header -o requirements.lock pyproject.toml
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --group dev -o requirements-dev.lock pyproject.toml

clean:  ## Remove the team's containers, networks and volumes, and what the build and the tests made (runs/ stays)
	test ! -x $(BIN)/agensh || $(BIN)/agensh clean --all
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
