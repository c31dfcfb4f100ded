# Each target sets itself up: nothing but Python >= 3.10 (with venv) and make is needed.
#   make demo      the quickstart, from synthetic text to a table of results
#   make test      the fast tests; make test-all runs the slow ones too
#   make wheel     builds the wheel, installs it elsewhere, and runs a short demo with it
#   make docs      the documentation as a site, build/docs/index.html
#   make mutants   hundreds of small errors, put into the package one by one: do the fast tests notice? Before a release
#   make PYTHON=python3.12 ...  uses another Python for the virtual environment

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
MKDOCS := $(VENV)/.mkdocs

.PHONY: demo test test-all wheel lint bench mutants docs install
.DEFAULT_GOAL := test

demo: $(INSTALLED)
	@$(BIN)/domainbert demo

# Bytecode is kept, also where the environment says otherwise: each process would rewrite the asserts of all tests anew.
# Files keep their order: xdist would put those of few tests last, among them the longest.
test: $(INSTALLED)
	@PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m "not slow" -n logical --maxprocesses 4 --dist loadfile \
		--no-loadscope-reorder

test-all: $(INSTALLED)
	@$(BIN)/python -m pytest -q --hypothesis-profile thorough

wheel: $(INSTALLED)
	@$(BIN)/python -m pytest -q tests/test_wheel.py

lint: $(INSTALLED)
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy --no-error-summary domainbert

bench: $(INSTALLED)
	@$(BIN)/python benchmarks/evaluate.py
	@$(BIN)/python benchmarks/finetune_ner.py
	@$(BIN)/python benchmarks/finetune_ner.py --data ncbi
	@$(BIN)/python benchmarks/predict.py
	@$(BIN)/python benchmarks/prepare.py
	@$(BIN)/python benchmarks/prepare.py --growth
	@for length in 128 512; do for encoder in small medium base; do \
		$(BIN)/python benchmarks/pretrain.py --encoder $$encoder --length $$length || exit; done; done
	@$(BIN)/python benchmarks/scaling.py
	@$(BIN)/python benchmarks/finetune_f1.py
	@$(BIN)/python benchmarks/finetune_f1.py --sides factors

mutants: $(INSTALLED)
	@OMP_NUM_THREADS=1 $(BIN)/python tests/mutants

docs: $(MKDOCS)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "build/docs/index.html"

install: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "make: Python >= 3.10 is needed; choose one with make PYTHON=...")'
	@echo "Setting up $(VENV) (this takes some minutes the first time)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

$(MKDOCS): $(INSTALLED)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	@touch $@
