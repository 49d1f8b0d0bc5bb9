# Every verb is one target with a line of help behind it. `make` alone lists them.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --constraint constraints.txt
PEERS  ?=
# The unit tests for a moment only: without plugins that they do not need, and without the types, checked beside them.
QUICK  := HYPOTHESIS_PROFILE=check $(BIN)/pytest -q -p no:schemathesis -p no:faker -p no:anyio --deselect tests/unit/test_typing.py

export PIP_DISABLE_PIP_VERSION_CHECK := 1

SHELL         := /bin/bash
.SHELLFLAGS   := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup dev demo test check format docs bench clean

help: ## List the verbs
	@grep -hE '^[a-z][a-z-]*:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-8s %s\n", $$1, $$2 }'

setup: $(VENV)/.stamp-dev ## Create .venv with everything that tests and checks need
	@echo "$(VENV) is ready."

dev: $(VENV)/.stamp-cli ## Start engine, HTTP API and dashboard with an example shop, on one SQLite file
	@$(BIN)/holdfast dev examples.shop

demo: $(VENV)/.stamp-cli ## Watch a worker die between charging and recording, and nothing go wrong
	@$(BIN)/python -m examples.demo

test: $(VENV)/.stamp-dev $(VENV)/.stamp-browser ## Run the whole suite, then hold the kernel to full branch coverage
	@$(BIN)/pytest -n auto
	@$(BIN)/pytest -n auto -q tests/unit --cov=holdfast.kernel --cov-branch --cov-fail-under=100

check: $(VENV)/.stamp-dev ## Format, lint, types, layers and unit tests, in under 30 s
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/lint-imports --no-logo
	@# Three at a time, each telling when it is done. One process for each half of the tests is faster than workers here.
	@told=$$(mktemp -d); trap 'rm -rf "$$told"' EXIT; \
	  $(BIN)/basedpyright > $$told/types & types=$$!; \
	  $(QUICK) tests/unit/kernel > $$told/kernel & kernel=$$!; \
	  failed=0; $(QUICK) tests/unit --ignore=tests/unit/kernel || failed=1; \
	  wait $$kernel || failed=1; cat $$told/kernel; wait $$types || failed=1; cat $$told/types; exit $$failed

format: $(VENV)/.stamp-dev ## Lay the code out and repair what can be repaired
	@$(BIN)/ruff check --fix-only .
	@$(BIN)/ruff format .

docs: $(VENV)/.stamp-dev ## Write the reference pages anew from the code
	@$(BIN)/python -m docs.generate

bench: $(VENV)/.stamp-bench$(if $(findstring restate,$(PEERS)),-restate) ## Measure against peers and a raw floor (PEERS=restate adds Restate)
	@PEERS='$(PEERS)' $(BIN)/python -m bench

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

$(VENV)/.stamp-bench: pyproject.toml constraints.txt | $(VENV)/.stamp-venv
	@echo "Installing Holdfast and the peers it is measured against into $(VENV) ..."
	@$(PIP) --editable '.[bench]'
	@touch $@

$(VENV)/.stamp-bench-restate: pyproject.toml constraints.txt | $(VENV)/.stamp-venv
	@echo "Installing Holdfast and the peers it is measured against into $(VENV) ..."
	@$(PIP) --editable '.[bench-restate]'
	@touch $(VENV)/.stamp-bench $@
