# Every verb is one target with a line of help behind it. `make` alone lists them.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --constraint constraints.txt
PEERS  ?=
SEEDS  ?= 10000
# Without plugins that the tests do not need, and without the types, which are checked beside them.
LEAN   := -p no:schemathesis -p no:faker -p no:anyio --deselect tests/unit/test_typing.py
# The unit tests for a moment only.
QUICK  := HYPOTHESIS_PROFILE=check $(BIN)/pytest -q $(LEAN)

# Tests wait for leases and processes more than they compute, so there are twice as many workers as cores. Their files
# lie in memory where there is room: what a power loss takes away, they take away themselves.
WORKERS = $$((2 * $$(getconf _NPROCESSORS_ONLN)))
SCRATCH = $$([ "$$(df --output=avail -B1G /dev/shm 2>/dev/null | tail -1)" -ge 4 ] 2>/dev/null && echo /dev/shm || echo "$${TMPDIR:-/tmp}")

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Hundreds of Python processes are started: they are compiled once.
unexport PYTHONDONTWRITEBYTECODE

SHELL         := /bin/bash
.SHELLFLAGS   := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup dev demo lint types check test simulate planted soak format docs bench profile clean

help: ## List the verbs
	@grep -hE '^[a-z][a-z-]*:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-8s %s\n", $$1, $$2 }'

setup: $(VENV)/.stamp-dev ## Create .venv with everything that tests and checks need
	@echo "$(VENV) is ready."

dev: $(VENV)/.stamp-cli ## Start engine, HTTP API and dashboard with an example shop, on one SQLite file
	@$(BIN)/holdfast dev examples.shop

demo: $(VENV)/.stamp-cli ## Watch a worker die between charging and recording, and nothing go wrong
	@$(BIN)/python -m examples.demo

lint: $(VENV)/.stamp-dev ## Check the format, the lint rules and which layer imports which
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/lint-imports --no-logo

types: $(VENV)/.stamp-dev ## Check the types
	@$(BIN)/basedpyright

check: lint ## Run lint, types and the unit tests, in under 30 s
	@# Three at a time, each telling when it is done. One process for each half of the tests is faster than workers here.
	@told=$$(mktemp -d); trap 'rm -rf "$$told"' EXIT; \
	  $(BIN)/basedpyright > $$told/types & types=$$!; \
	  $(QUICK) tests/unit/kernel > $$told/kernel & kernel=$$!; \
	  failed=0; $(QUICK) tests/unit --ignore=tests/unit/kernel || failed=1; \
	  wait $$kernel || failed=1; cat $$told/kernel; wait $$types || failed=1; cat $$told/types; exit $$failed

# What takes seconds comes first, so that a slip is told before the suite has begun. Which lines of the kernel the tests
# reach does not need many examples: a few, and the same ones each time.
test: lint $(VENV)/.stamp-browser $(VENV)/.stamp-servers ## Run lint, types, the kernel's branch coverage, which must be full, and the whole suite
	@told=$$(mktemp -d); trap 'rm -rf "$$told"' EXIT; \
	  $(BIN)/basedpyright > $$told/types & types=$$!; \
	  failed=0; HYPOTHESIS_PROFILE=coverage $(BIN)/pytest -q $(LEAN) tests/unit/kernel --hypothesis-seed=0 \
	    --cov=holdfast.kernel --cov-branch --cov-fail-under=100 || failed=1; \
	  wait $$types || failed=1; cat $$told/types; exit $$failed
	@TMPDIR=$(SCRATCH) $(BIN)/pytest -n $(WORKERS) --dist worksteal $(LEAN)

simulate: $(VENV)/.stamp-dev ## Run whole clusters in virtual time, from 10,000 seeds, under faults (SEEDS=100000 for more)
	@$(BIN)/python -m tests.simulation --seeds $(SEEDS) --jobs 0

planted: $(VENV)/.stamp-dev $(VENV)/.stamp-servers ## Plant every known bug in a real installation, and see the gate fail
	@TMPDIR=$(SCRATCH) $(BIN)/python -m tests.gate.proving

soak: $(VENV)/.stamp-dev $(VENV)/.stamp-servers ## Kill and stop every part of a cluster in turn, for five minutes under load
	@mkdir -p build
	@$(BIN)/holdfast gate --redis cluster --nats 3 --only soak --soak 5m --strict --html build/soak.html

format: $(VENV)/.stamp-dev ## Lay the code out and repair what can be repaired
	@$(BIN)/ruff check --fix-only .
	@$(BIN)/ruff format .

docs: $(VENV)/.stamp-dev ## Write the reference pages again from the code
	@$(BIN)/python -m docs.generate

bench: $(VENV)/.stamp-bench$(if $(findstring restate,$(PEERS)),-restate) ## Measure against peers, a bare sketch and a raw floor (PEERS=restate adds Restate)
	@PEERS='$(PEERS)' $(BIN)/python -m bench

profile: $(VENV)/.stamp-cli $(VENV)/.stamp-valgrind ## Count and sample what a run and an effect cost, and write the account again
	@$(BIN)/python -m bench.profile

clean: ## Remove .venv, caches and build output
	@rm -rf $(VENV) build dist htmlcov .coverage .coverage.* .hypothesis .import_linter_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is newer than what it was installed from, so a second run installs nothing.

$(VENV)/.stamp-venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Holdfast needs Python 3.11 or newer, and '$(PYTHON)' is not: name another with 'make PYTHON=python3.x ...'." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.stamp-cli: pyproject.toml constraints.txt | $(VENV)/.stamp-venv
	@echo "Installing Holdfast and its command line into $(VENV) ..."
	@$(PIP) --editable '.[cli]'
	@touch $@

# What the command line and the demo need is part of this one.
$(VENV)/.stamp-dev: pyproject.toml constraints.txt | $(VENV)/.stamp-venv
	@echo "Installing Holdfast and its development tools into $(VENV) ..."
	@$(PIP) --editable '.[dev]'
	@touch $(VENV)/.stamp-cli $@

# The dashboard is tested in a real browser: Debian's Chromium, or the one that CHROMIUM names.
$(VENV)/.stamp-browser: | $(VENV)/.stamp-venv
	@command -v "$${CHROMIUM:-chromium}" >/dev/null || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "Installing Debian's Chromium, in which the dashboard is tested ..."; \
	    apt-get install -qq -y --no-install-recommends chromium >/dev/null 2>&1 || { \
	      apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium >/dev/null; }; \
	  else \
	    echo "The tests need Chromium: install Debian's package 'chromium', or name a browser with CHROMIUM=/path/to/it." >&2; \
	    exit 1; \
	  fi; }
	@touch $@

# Store and bus are tested on real servers. A NATS server is among the development tools; Redis or Valkey is not. While
# Debian's package is installed, its policy file keeps it from starting the service: the tests start servers of their own.
$(VENV)/.stamp-servers: | $(VENV)/.stamp-venv
	@has() { command -v "$$1" >/dev/null || command -v "$$2" >/dev/null; }; \
	has redis-server valkey-server && has redis-sentinel valkey-sentinel || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "Installing Debian's Redis, on which the store is tested ..."; \
	    policy=/usr/sbin/policy-rc.d; \
	    [ -e $$policy ] || { trap "rm -f $$policy" EXIT; printf '#!/bin/sh\nexit 101\n' > $$policy; chmod +x $$policy; }; \
	    packages="redis-server redis-sentinel"; \
	    apt-get install -qq -y --no-install-recommends $$packages >/dev/null 2>&1 || { \
	      apt-get update -qq && apt-get install -qq -y --no-install-recommends $$packages >/dev/null; }; \
	  else \
	    echo "The tests need Redis or Valkey, version 7 or newer, with its Sentinel, on PATH:" >&2; \
	    echo "install Debian's packages 'redis-server' and 'redis-sentinel', or 'valkey' and 'valkey-sentinel'." >&2; \
	    exit 1; \
	  fi; }
	@touch $@

# The account is complete without it but for the instructions of the processor, so nothing fails where it is missing.
$(VENV)/.stamp-valgrind: | $(VENV)/.stamp-venv
	@command -v valgrind >/dev/null || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "Installing Debian's Valgrind, which counts the instructions of the processor ..."; \
	    apt-get install -qq -y --no-install-recommends valgrind >/dev/null 2>&1 || { \
	      apt-get update -qq && apt-get install -qq -y --no-install-recommends valgrind >/dev/null; }; \
	  else \
	    echo "Without Valgrind (Debian's package 'valgrind') the instructions of the processor are not counted." >&2; \
	    exit 0; \
	  fi; }
	@command -v valgrind >/dev/null && touch $@ || true

$(VENV)/.stamp-bench: pyproject.toml constraints.txt | $(VENV)/.stamp-venv
	@echo "Installing Holdfast and the peers it is measured against into $(VENV) ..."
	@$(PIP) --editable '.[bench]'
	@touch $@

$(VENV)/.stamp-bench-restate: pyproject.toml constraints.txt | $(VENV)/.stamp-venv
	@echo "Installing Holdfast and the peers it is measured against into $(VENV) ..."
	@$(PIP) --editable '.[bench-restate]'
	@touch $(VENV)/.stamp-bench $@
