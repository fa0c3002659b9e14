# Every target may be run on a fresh Debian 12 machine: set-up comes first.
EXPERIMENT ?= configs/experiments/filemap-v4.toml
PYTEST_FLAGS ?=
LOCK_FLAGS ?=

MAKEFLAGS += --no-print-directory
# virtme-ng's programs live in the virtual environment.
export PATH := $(CURDIR)/.venv/bin:$(PATH)
PYTHON := .venv/bin/python

.PHONY: help setup run lint check test lock schema clean

help:
	@echo "make run     set up, then measure $(EXPERIMENT) and name the report"
	@echo "make test    set up, then every check and test, guests included"
	@echo "make check   set up, then the checks and the tests that boot no guest"
	@echo "make setup   install Debian packages and .venv, as far as missing"
	@echo "make lock    pin the Python packages anew (LOCK_FLAGS=--upgrade for newer ones)"
	@echo "make schema  write docs/schema/report.schema.json anew, from what reports render"
	@echo "make clean   remove .venv and what checks leave; sessions and the cache stay"

setup:
	@sh setup/prepare.sh

run: setup
	@$(PYTHON) lab.py run $(EXPERIMENT)

lint: setup
	@$(PYTHON) -m ruff check .
	@$(PYTHON) -m ruff format --check .
	@$(PYTHON) -m mypy --strict .

check: lint
	@$(PYTHON) -m pytest -m "not guest" $(PYTEST_FLAGS)

test: lint
	@$(PYTHON) -m pytest $(PYTEST_FLAGS)

# A local wheel folder is nobody else's: neither its address nor its hashes go in.
lock: setup
	@PIP_FIND_LINKS= CUSTOM_COMPILE_COMMAND="make lock" $(PYTHON) -m piptools compile --quiet \
		--extra dev --generate-hashes --allow-unsafe --strip-extras \
		--no-emit-index-url --no-emit-find-links --no-emit-trusted-host \
		$(LOCK_FLAGS) --output-file requirements.lock pyproject.toml

schema: setup
	@$(PYTHON) -m reports.json_form > docs/schema/report.schema.json

clean:
	rm -rf .venv .make .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
