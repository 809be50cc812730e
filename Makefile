PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python -m

.DEFAULT_GOAL := help
.PHONY: help setup setup-node setup-java demo test check unit fuzz bench lock proto clean

help: ## Show this help
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):[^#]*## /  make \1\t/' | expand -t 16

setup: $(VENV)/.installed ## Make .venv with everything, by version and hash

$(VENV)/.installed: requirements/dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "wakupush needs Python 3.11 or newer: make PYTHON=python3.12 …")'
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(RUN) pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.lock
	$(RUN) pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

# Only the tests in tests/interop use Node.js: what is missing here is for them to report.
setup-node: tests/interop/node_modules/.package-lock.json

tests/interop/node_modules/.package-lock.json: tests/interop/package-lock.json
	@if ! command -v npm && command -v apt-get && test "$$(id -u)" = 0; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends nodejs npm; \
	fi >/dev/null || true
	@if command -v npm >/dev/null; then (cd tests/interop && npm ci) && touch $@ || true; fi

# Only the pipeline uses Java: what is missing here is for its tests to report.
setup-java:
	@if ! command -v java && command -v apt-get && test "$$(id -u)" = 0; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends openjdk-17-jre-headless; \
	fi >/dev/null || true

demo: setup ## Run the whole server on embedded parts, send it messages, and show what happens
	@$(VENV)/bin/wakupush demo

test: setup setup-node setup-java check ## Run everything: linters, types, all tests
	$(RUN) pytest tests

check: setup ## Run the linters and the type checker
	$(RUN) ruff check
	$(RUN) ruff format --check
	$(RUN) mypy
	$(VENV)/bin/lint-imports --no-logo

unit: setup ## Run the unit tests alone: no sockets, seconds
	$(RUN) pytest tests/unit

fuzz: setup ## Throw 20,000 examples of strange bytes at everything that reads them (about half an hour)
	$(RUN) pytest tests/unit -m hypothesis --hypothesis-profile=long --timeout=0

bench: setup ## Measure the budgets: a second, latencies, what grows (about half an hour)
	$(RUN) benchmarks.bench

lock: ## Resolve the dependencies anew (needs uv)
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url \
		pyproject.toml --all-extras --group test -o requirements/dev.lock
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url \
		-c requirements/dev.lock pyproject.toml -o requirements/runtime.lock

proto: setup ## Generate the protobuf modules anew
	proto/generate.sh

clean: ## Remove .venv and caches
	rm -rf $(VENV) tests/interop/node_modules .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
