# Every verb is one target with a line of help behind it. `make` alone lists them.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --constraint constraints.txt
PEERS  ?=

export PIP_DISABLE_PIP_VERSION_CHECK := 1

SHELL         := /bin/bash
.SHELLFLAGS   := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup demo test check format docs bench clean

help: ## List the verbs
	@grep -hE '^[a-z][a-z-]*:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-8s %s\n", $$1, $$2 }'

setup: $(VENV)/.stamp-dev ## Create .venv with everything that tests and checks need
	@echo "$(VENV) is ready."

demo: $(VENV)/.stamp-demo ## Watch a worker die between charging and recording, and nothing go wrong
	@$(BIN)/python -m examples.demo

test: $(VENV)/.stamp-dev ## Run the whole suite, then hold the kernel to full branch coverage
	@$(BIN)/pytest -n auto
	@$(BIN)/pytest -n auto -q tests/unit --cov=holdfast.kernel --cov-branch --cov-fail-under=100

check: $(VENV)/.stamp-dev ## Format, lint, types, layers and unit tests, in under 30 s
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/basedpyright
	@$(BIN)/lint-imports --no-logo
	@HYPOTHESIS_PROFILE=check $(BIN)/pytest -n auto -q tests/unit

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

$(VENV)/.stamp-demo: pyproject.toml constraints.txt | $(VENV)/.stamp-venv
	@echo "Installing Holdfast and the demo into $(VENV) ..."
	@$(PIP) --editable '.[demo,speed]'
	@touch $@

# What the demo needs is part of this one.
$(VENV)/.stamp-dev: pyproject.toml constraints.txt | $(VENV)/.stamp-venv
	@echo "Installing Holdfast and its development tools into $(VENV) ..."
	@$(PIP) --editable '.[dev]'
	@touch $(VENV)/.stamp-demo $@

$(VENV)/.stamp-bench: pyproject.toml constraints.txt | $(VENV)/.stamp-venv
	@echo "Installing Holdfast and the peers it is measured against into $(VENV) ..."
	@$(PIP) --editable '.[bench]'
	@touch $@

$(VENV)/.stamp-bench-restate: pyproject.toml constraints.txt | $(VENV)/.stamp-venv
	@echo "Installing Holdfast and the peers it is measured against into $(VENV) ..."
	@$(PIP) --editable '.[bench-restate]'
	@touch $(VENV)/.stamp-bench $@
