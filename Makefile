# Everything lives in .venv; nothing is installed elsewhere, except by `make test` as root on Debian: see `packages`.

VENV     := .venv
BIN      := $(VENV)/bin
PYTHONS  := python3 python3.14 python3.13 python3.12 python3.11
PYTHON   ?= $(firstword $(foreach python,$(PYTHONS),$(shell $(python) -c 'import sys; sys.version_info >= (3, 11) and print("$(python)")' 2>/dev/null)))
PIP      := $(BIN)/python -m pip --quiet --disable-pip-version-check
PACKAGES := sshd:openssh-server rsync:rsync lftp:lftp rclone:rclone iperf3:iperf3 nc:netcat-openbsd

.DEFAULT_GOAL := help
.PHONY: help demo test install fmt lint type unit integration bench clean packages

help: ## show this
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

demo: install ## install, then copy a dump set up to an embedded server and down again
	@$(BIN)/fastcopy demo $(ARGS)

test: dev packages lint type ## install what tests need, then lint, types and every fast test
	@$(BIN)/python -m pytest

install: $(VENV)/.installed ## make .venv/bin/fastcopy

fmt: dev ## format the sources
	@$(BIN)/ruff format
	@$(BIN)/ruff check --fix

lint: dev ## check style and format
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check

type: dev ## check types
	@$(BIN)/mypy

unit: dev ## tests without servers: unit, contract, property, layers
	@$(BIN)/python -m pytest tests/unit tests/contract tests/property tests/perf $(wildcard tests/test_*.py)

integration: dev packages ## the installed command against a real sshd
	@$(BIN)/python -m pytest tests/integration

bench: dev packages ## side by side with the installed peers: a table, and JSON under build/
	@$(BIN)/python -m tests.perf.bench $(ARGS)

clean: ## remove .venv, build results and caches
	@rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find fastcopy tests examples -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: dev
dev: $(VENV)/.installed-dev

$(VENV)/.installed: pyproject.toml
	@test -n "$(PYTHON)" || { echo "fastcopy needs Python 3.11 or newer: make PYTHON=/path/to/python3" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
	    { rm -rf $(VENV); echo "no venv module: on Debian, apt-get install python3-venv" >&2; exit 1; }
	@$(PIP) install --editable .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@$(PIP) install --editable '.[dev]'
	@touch $@

# The real sshd the tests run against, and the peers they compare with. RUNLEVEL=1: install, but start no service.
packages:
	@missing=; PATH="$$PATH:/usr/sbin:/sbin"; \
	for pair in $(PACKAGES); do \
	    command -v "$${pair%%:*}" >/dev/null || missing="$$missing $${pair#*:}"; \
	done; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then \
	    echo "not installed, tests that need it are skipped:$$missing"; exit 0; \
	fi; \
	export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1; \
	install="apt-get install -y -qq --no-install-recommends $$missing"; \
	echo "installing$$missing"; \
	$$install >/dev/null 2>&1 || { apt-get update -qq >/dev/null && $$install >/dev/null; }
