# Everything here needs only Python 3.11+ and make: each target sets up what it uses in .venv.
#
#   make demo        learn parts of the digits, print a table, write partwise-demo.html
#   make test        make lint and the tests         make test-long   the long tests alone
#   make test-oldest the tests on the lowest versions that pyproject.toml names
#   make test-anywhere the tests as other processors, Pythons, threads; build/anywhere/table.md
#   make mutate      whether the tests notice small wrong changes, a sample of them
#   make bench       quick benchmarks                make bench-full  all of them
#   make docs        the documentation, in build/docs
#   make lint        ruff, codespell and mypy        make format      let ruff rewrite the files
#   make release     wheel, sdist and conda recipe in dist/, built and checked
#   make clean       remove .venv and what was built

PYTHON ?= python3
# where an environment has its programs
BINDIR := $(if $(filter Windows_NT,$(OS)),Scripts,bin)
BIN := .venv/$(BINDIR)
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
PYTEST_ARGS ?=
MUTATE_ARGS ?=
# as many processes as cores; WORKERS= runs the tests in one
WORKERS ?= -n auto --dist worksteal
BENCH_ARGS ?=
ANYWHERE_ARGS ?=
OLDEST ?= .venv-oldest

# Data sets for tests and experiments. `PARTWISE_DATA= make test` runs without them.
ifeq ($(origin PARTWISE_DATA),undefined)
ifneq ($(wildcard ../shared/data/.),)
export PARTWISE_DATA := $(abspath ../shared/data)
endif
endif

# Threads that wait for work by spinning take the cores from other processes. On a busy machine
# these two made k-means and scikit-learn's NMF on the digits more than ten times faster.
demo test test-long test-oldest test-anywhere: export OMP_WAIT_POLICY = passive
demo test test-long test-oldest test-anywhere: export OPENBLAS_THREAD_TIMEOUT = 4

.DELETE_ON_ERROR:
.PHONY: help demo test test-long mutate test-oldest test-anywhere bench bench-full docs lint format release clean

help:
	@sed -n '3,12s/^# *//p' Makefile

demo: .venv/.core
	@$(BIN)/partwise demo --force

# numba compiles beside mypy, which leaves a core free; else every process of pytest would
test: .venv/.test
	@$(BIN)/python tests/compile_kernels.py & compiled=$$!; \
	$(MAKE) --no-print-directory lint && wait $$compiled
	$(BIN)/python -m pytest $(WORKERS) -m "not long" $(PYTEST_ARGS)

test-long: .venv/.test
	$(BIN)/python -m pytest $(WORKERS) -m long $(PYTEST_ARGS)
	$(BIN)/python -m pytest $(WORKERS) -m "hypothesis and not long" --hypothesis-profile=new $(PYTEST_ARGS)

# small wrong changes that the tests have to notice; goes on where it was stopped
mutate: .venv/.test
	$(BIN)/python tests/mutate.py $(MUTATE_ARGS)

test-oldest: $(OLDEST)/.test
	$(OLDEST)/$(BINDIR)/python -m pytest $(WORKERS) -m "not long" $(PYTEST_ARGS)

# ANYWHERE_ARGS="--only haswell,core" runs some rows of the table, --list names them.
test-anywhere: .venv/.test $(OLDEST)/.test
	$(BIN)/python tests/anywhere.py $(ANYWHERE_ARGS) $(PYTEST_ARGS)

bench: .venv/.test
	$(BIN)/python -m benchmarks.run $(BENCH_ARGS)

bench-full: .venv/.test
	$(BIN)/python -m benchmarks.run --full --resume $(BENCH_ARGS)

DOC_FOLDERS = get_started tutorials how_to explanation reference papers/methods

docs: .venv/.docs
	$(BIN)/python -m doctest -o NORMALIZE_WHITESPACE -o ELLIPSIS docs/*.rst $(DOC_FOLDERS:%=docs/%/*.rst)
	rm -rf docs/api/generated
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs build/docs
	$(BIN)/python docs/check_links.py build/docs
	@echo "Open build/docs/index.html"

lint: .venv/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(BIN)/mypy

format: .venv/.test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The wheel is built from the sdist; tests/test_project.py holds what lies in both.
release: .venv/.release
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python conda/fill_recipe.py dist

clean:
	rm -rf docs/api/generated docs/auto_gallery docs/results .venv .venv-oldest build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis partwise-demo.html
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# Set-up. One environment, one stamp per set of requirements; a changed pyproject.toml renews it.
.venv/pyvenv.cfg:
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit("Partwise needs \
	Python 3.11 or newer, this is %d.%d; try: make PYTHON=python3.12" % v[:2])'
	@echo "Setting up .venv (once; a minute or two)"
	@$(PYTHON) -m venv .venv

.venv/.core: pyproject.toml | .venv/pyvenv.cfg
	@$(PIP) install -e .
	@touch $@

# torch never comes with the package itself. The tests take the CPU build; without a wheel for this
# machine those of the torch back end skip.
.venv/.test: pyproject.toml | .venv/pyvenv.cfg
	@echo "Installing what the tests need"
	@$(PIP) install -e '.[test]'
	@$(PIP) install torch==2.13.0 || echo "torch could not be installed: its tests will skip"
	@touch $@ .venv/.core

.venv/.docs: pyproject.toml | .venv/pyvenv.cfg
	@echo "Installing what the documentation needs"
	@$(PIP) install -e '.[docs]'
	@touch $@

.venv/.release: pyproject.toml | .venv/pyvenv.cfg
	@$(PIP) install 'build>=1.2' 'twine>=6.1'
	@touch $@

# No torch here: the tests of that back end skip.
$(OLDEST)/.test: pyproject.toml tests/oldest.py
	@echo "Setting up $(OLDEST) with the lowest versions"
	@$(PYTHON) -m venv $(OLDEST)
	@$(PYTHON) tests/oldest.py > $(OLDEST)/lowest.txt
	@$(OLDEST)/$(BINDIR)/python -m pip --disable-pip-version-check -qq install -c $(OLDEST)/lowest.txt -e '.[test]'
	@touch $@
