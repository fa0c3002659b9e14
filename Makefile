# Every target may be run on a fresh machine with Debian 12 or 13: set-up comes first.
EXPERIMENT ?= configs/experiments/filemap-v4.toml
PYTEST_FLAGS ?=
# Two more than the cores that a machine is sure to have: tests wait for guests and clocks, too.
WORKERS ?= 4
LOCK_FLAGS ?=
BIN ?= $(HOME)/.local/bin
# What `make gallery` measures, and options of `lab.py run` for each.
GALLERY ?= filemap-v4 iomap-dirty reclaim-contention slow-add thp-matrix
GALLERY_FLAGS ?=

MAKEFLAGS += --no-print-directory
# virtme-ng's programs live in the virtual environment.
export PATH := $(CURDIR)/.venv/bin:$(PATH)
# Images for containers set it.  Here hundreds of processes import the same files, and workers rewrite
# the assertions of the same tests.
unexport PYTHONDONTWRITEBYTECODE
VENV_PYTHON := .venv/bin/python
ACTIONLINT := .make/actionlint
ACTIONLINT_VERSION := v1.7.12
FUZZER := atheris==3.0.0

.PHONY: help setup programs link run lint lint-types lint-names lint-rest actionlint browser check test test-all \
	try-newest measure-newest lock schema gallery gallery-site gallery-records \
	picture clean

help:
	@echo "make run     set up, then measure $(EXPERIMENT) and name the report"
	@echo "make test    set up, then every check and test but the long ones, guests included"
	@echo "make check   set up, then the checks and the quick tests, in minutes"
	@echo "make test-all  the same with the long tests and every kernel: hours on a new machine"
	@echo "make setup   install Debian packages and .venv, as far as missing"
	@echo "make link    put a launcher named twinboot into BIN ($(BIN))"
	@echo "make lock    pin the Python packages anew (LOCK_FLAGS=--upgrade for newer ones)"
	@echo "make schema  write docs/schema/ and docs/experiment-file.md anew, from the models"
	@echo "make gallery measure shipped experiments ($(GALLERY)) and make a"
	@echo "             site of their reports, gallery/site; an hour or two with nothing cached"
	@echo "make gallery-records  the same site of five recorded sessions, without measuring"
	@echo "make picture draw docs/filemap-v4.svg, the picture in README, from a recorded session"
	@echo "make clean   remove .venv and what checks leave; sessions and the cache stay"

setup:
	@sh setup/prepare.sh

# What workloads copy into guests, and set-up leaves out; who may not install it is told by lab.py.
programs: setup
	-@sed -n 's/^\([a-z0-9-]*\) *| special *|.*| workload .*/\1/p' host/packages.txt | \
		xargs apt-get -qq install --yes --no-install-recommends

# It needs no set-up: what is missing is said when it is called.
link:
	@sh setup/link.sh "$(BIN)"

# A regression is an answer and no failure of the run: lab.py says 1, make goes on.
run: setup
	@$(VENV_PYTHON) lab.py run $(EXPERIMENT) || [ $$? -eq 1 ]

# Where lab.py keeps kernels.  The program is kept there by its version and the toolchain's.
CACHE := $(or $(TWINBOOT_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/twinboot)
KEPT_ACTIONLINT := $(CACHE)/native/actionlint-$(ACTIONLINT_VERSION)-$(shell \
	sha256sum <setup/lint.txt | cut -c 1-16)

$(ACTIONLINT): setup/lint.txt Makefile | browser
	@cp "$(KEPT_ACTIONLINT)" $@ 2>/dev/null || $(MAKE) actionlint
	@touch $@ && touch -c "$(KEPT_ACTIONLINT)" 2>/dev/null || :

# actionlint is published as a Go module alone: the toolchain of setup/lint.txt, pinned by
# hash, builds it once, and the module is checked by Go's checksum database.
actionlint:
	@echo "setup: building actionlint $(ACTIONLINT_VERSION)" >&2
	@$(VENV_PYTHON) -m pip install --quiet --no-input --disable-pip-version-check --upgrade \
		--only-binary :all: --require-hashes --no-deps --target .make/go --requirement setup/lint.txt
	@env GOBIN=$(CURDIR)/.make GOPATH=$(CURDIR)/.make/gopath GOCACHE=$(CURDIR)/.make/gocache \
		GOFLAGS=-modcacherw GOTOOLCHAIN=local CGO_ENABLED=0 .make/go/go/bin/go install \
		github.com/rhysd/actionlint/cmd/actionlint@$(ACTIONLINT_VERSION)
	@rm -rf .make/go .make/gopath .make/gocache
# A cache that cannot be written to is no error.
	@mkdir -p "$(CACHE)/native" && cp $(ACTIONLINT) "$(KEPT_ACTIONLINT).$$$$" && \
		mv "$(KEPT_ACTIONLINT).$$$$" "$(KEPT_ACTIONLINT)" || :

lint: browser
	@$(MAKE) -j3 lint-types lint-names lint-rest

# What mypy knows of a file holds in another clone, too: it goes by what is in it.
lint-types:
	@mkdir -p "$(CACHE)/mypy" && [ -w "$(CACHE)/mypy" ] && export MYPY_CACHE_DIR="$(CACHE)/mypy"; \
		$(VENV_PYTHON) -m mypy --strict .

# Every file of tests is there to be imported, and is compiled once, not by each worker.
lint-names:
	@$(VENV_PYTHON) -m pytest -q -k "test_names.py or test_house.py"

lint-rest: $(ACTIONLINT)
	@$(VENV_PYTHON) -m ruff check .
	@$(VENV_PYTHON) -m ruff format --check .
	@.venv/bin/lint-imports --no-logo --no-cache
	@$(ACTIONLINT)
	@.venv/bin/zizmor --offline --quiet --persona auditor .github

# What only checks and tests need.
browser:
	@sh setup/prepare.sh tests

# A file of tests shares what it boots and builds, so it stays with one worker.  The order is
# that of tests/conftest.py: xdist's own begins with the files of most tests, which are quick.
# What lint ran is left out.
PYTEST = $(VENV_PYTHON) -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations-table=.make/durations.csv \
	--ignore=tests/test_names.py --ignore=tests/test_house.py

check: lint browser
	@$(PYTEST) -m "not guest and not slow and not long" $(PYTEST_FLAGS)

test: lint browser
	@$(PYTEST) -m "not long" $(PYTEST_FLAGS)

# Also the long ones, with every kernel that any of them needs.
test-all: lint browser
	@$(VENV_PYTHON) -m pip install --quiet --only-binary :all: $(FUZZER) || echo "no build of $(FUZZER): its tests are skipped"
	@TWINBOOT_TEST_KERNELS=all $(PYTEST) $(PYTEST_FLAGS)
	@$(MAKE) --no-print-directory try-newest measure-newest

# The newest kernel that Debian has a source of, looked up once; NEWEST names another source.
ifndef NEWEST
NEWEST = $(eval NEWEST := $(shell ./lab.py fetch linux-source | sed -n 's/^--source //p'))$(NEWEST)
endif

try-newest: browser
	@./lab.py doctor --kernel "$(NEWEST)"
	@$(VENV_PYTHON) -m pytest -q tests/kernels/test_shipped_series.py tests/runs/test_manifest.py

# Each workload against itself, those of other files apart; the rows go into configs/kernels-tried.csv.
# Nothing kept is taken for a run: both arms would be one.  What failed is in a row, and judged there.
TRIED_AT := sessions/newest-kernel-$(shell date +%Y%m%d-%H%M%S)
AGAINST_ITSELF = ./lab.py run --arm "$(NEWEST)" --arm "$(NEWEST)" --set guest=smoke --seeds 8 \
	--no-twins --measure-anyway --measure-again --session $(TRIED_AT)

measure-newest: programs
	-@$(AGAINST_ITSELF) --workloads all
	-@$(AGAINST_ITSELF)-iomap --workloads iomap-dirty
	@$(VENV_PYTHON) benchmarks/kernels.py $(TRIED_AT) $(TRIED_AT)-iomap

# Two parts of one lock: what a run needs, and what checks and tests add.  Neither the address of an
# index nor that of a folder goes in.  Versions are those of before, as far as they fit.
LOCKED = UV_SYSTEM_CERTS=1 UV_FIND_LINKS= .venv/bin/uv pip compile --quiet --generate-hashes --no-header \
	--python-version 3.11 $(LOCK_FLAGS)

lock: setup
	@cp requirements.lock .make/all.lock
	@$(LOCKED) --extra dev --output-file .make/all.lock pyproject.toml
	@$(LOCKED) --constraint .make/all.lock --output-file .make/run.lock pyproject.toml
	@echo uv >.make/uv.in && $(LOCKED) --no-annotate --output-file setup/uv.txt .make/uv.in
	@{ echo "# Written by make lock."; cat .make/run.lock; echo "# --- for tests"; \
		awk '/^[a-z]/ { known = $$1 in of_run } FNR == NR { of_run[$$1]; next } !known' \
		.make/run.lock .make/all.lock; } >.make/lock && mv .make/lock requirements.lock

schema: setup
	@$(VENV_PYTHON) -m verbs.reference

# A session that is there already is finished and not begun again.
gallery: setup
	@set -e; for name in $(GALLERY); do \
		session=gallery/sessions/$$name; \
		if [ -e $$session ]; then set -- --resume $$session; \
		else set -- $$name --session $$session $(GALLERY_FLAGS); fi; \
		$(VENV_PYTHON) lab.py run "$$@" || [ $$? -eq 1 ]; \
	done
	@$(MAKE) gallery-site

# Of whatever is in gallery/sessions.
gallery-site: setup
# One that is not finished is named, and the site has the others.
	@rm -rf gallery/history
	@$(VENV_PYTHON) lab.py history add gallery/sessions/* --history gallery/history || [ $$? -eq 2 ]
	@$(VENV_PYTHON) lab.py pages gallery/history --output gallery/site --sessions gallery/sessions

# Five sessions that were recorded: minutes of CPU time, and no guest.
gallery-records: setup
	@rm -rf gallery/history gallery/sessions gallery/site
	@mkdir -p gallery/sessions
	@set -e; for record in configs/gallery/*.tar.xz; do tar -xJf $$record -C gallery/sessions; done
	@$(MAKE) gallery-site

# README's picture, of a recorded session.  It stands alone: colours of the light page, on white.
PICTURE := waterfall-filemap-4k-4k-alt
picture: setup
	@mkdir -p gallery/sessions && tar -xJf configs/gallery/filemap-v4.tar.xz -C gallery/sessions
	@$(VENV_PYTHON) lab.py report gallery/sessions/filemap-v4 --form html --no-judge | \
		sed -n '/<svg[^>]*$(PICTURE)/,/<\/svg>/p' | sed -E 's/var\(--[a-z]+, ([^)]*)\)/\1/g' | \
		sed '1s|<svg |<svg width="700" style="background: \#fff" |' >docs/filemap-v4.svg

clean:
	rm -rf .venv .make .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
