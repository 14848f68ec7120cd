# Everything a person does with Bailing. `make` alone lists it.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip install --quiet --disable-pip-version-check --require-hashes
SCHEMA := var/.schema
COMPILE := CUSTOM_COMPILE_COMMAND="make lock" $(PY) -m piptools compile --quiet --generate-hashes \
	--strip-extras --allow-unsafe --annotation-style=line --no-emit-index-url \
	--no-emit-trusted-host --no-emit-find-links --no-emit-options

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help run test lint crash bench test-installer mysql lock licences docs clean
.PHONY: build-packages test-packages FORCE

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' Makefile

run: $(VENV)/.run .env $(SCHEMA) ## set up what is missing, then start on 127.0.0.1:18900 (ARGS="--port N")
	@exec $(PY) manage.py standalone $(ARGS)

test: test-packages $(VENV)/.dev ## every suite, on SQLite and on a private MariaDB
	@$(PY) -m tests.support.suites

lint: $(VENV)/.dev ## style, format, types, Django's checks, the tidy rules
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy kernel console
	@DJANGO_SETTINGS_MODULE=tests.settings $(PY) manage.py check --fail-level WARNING
	@$(PY) -m pytest tests/tidy

crash: test-packages $(VENV)/.dev ## kill and cut everywhere, and write docs/crash-report.md
	@$(PY) -m tests.support.crash_run

bench: test-packages $(VENV)/.dev ## measure, and write docs/benchmarks.md
	@$(PY) -m tests.bench

test-installer: $(VENV)/.dev ## the installer against synthetic openssl commands
	@$(PY) -m pytest tests/installer

mysql: build-packages $(VENV)/.run ## add the driver for MySQL and MariaDB (BAILING_DATABASE_URL)
	@$(PIP) -r requirements/mysql.lock

lock: $(VENV)/.dev ## resolve requirements/*.lock anew from pyproject.toml
	$(COMPILE) -o requirements/run.lock pyproject.toml
	$(COMPILE) -c requirements/run.lock --extra mysql -o requirements/mysql.lock pyproject.toml
	$(COMPILE) -c requirements/mysql.lock --extra mysql --extra chat --extra dev -o requirements/dev.lock \
		pyproject.toml

licences: $(VENV)/.dev ## write docs/licences.md from what is installed
	@DJANGO_SETTINGS_MODULE=tests.settings $(PY) manage.py licences

docs: licences ## write every document that is made from the code
	@DJANGO_SETTINGS_MODULE=tests.settings $(PY) manage.py state_machines

clean: ## remove what can be made again; .env and var/ stay
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- what the targets above stand on ---------------------------------------------------------

define CHECK_PYTHON
@command -v $(PYTHON) >/dev/null \
	|| { echo "Install python3 (3.11 or later) and python3-venv, then try again." >&2; exit 1; }
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	|| { echo "Bailing needs Python 3.11 or later: make PYTHON=python3.11 ..." >&2; exit 1; }
endef

$(VENV)/bin/python:
	$(CHECK_PYTHON)
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null \
		|| { echo "Install python3-venv, then try again." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.run: requirements/run.lock | $(VENV)/bin/python
	@echo "Installing the locked requirements into $(VENV)"
	@$(PIP) -r $<
	@touch $@

$(VENV)/.dev: requirements/dev.lock | build-packages $(VENV)/bin/python
	@echo "Installing the locked requirements of the tests into $(VENV)"
	@$(PIP) -r $<
	@touch $@ $(VENV)/.run

.env: | $(VENV)/.run
	@$(PY) manage.py install

# The schema is looked at again after an upgrade or an edited .env, and at each start when the
# embedded database file is not there (a first start, or a database of its own).
$(SCHEMA): .env $(wildcard kernel/migrations/*.py) | $(VENV)/.run
	@$(PY) manage.py db_init
	@mkdir -p var && touch $@
ifneq ($(BAILING_DATABASE_URL)$(BAILING_VAR_DIR),)
$(SCHEMA): FORCE
else ifeq ($(wildcard var/bailing.sqlite3),)
$(SCHEMA): FORCE
endif

build-packages:
	$(CHECK_PYTHON)
	@$(PYTHON) -m tests.support.system_packages build

test-packages:
	$(CHECK_PYTHON)
	@$(PYTHON) -m tests.support.system_packages build test
