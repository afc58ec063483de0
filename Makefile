# Everything installs itself into .venv on a fresh machine with Python 3.11 or newer.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
EXTRAS := bench,data,serve,diffusion,cluster,photo,docs,dev

.PHONY: demo test test-all check lint types contract docs bench install clean help

help:            ## list the targets
	@grep -E '^[a-z-]+:.*##' Makefile | sed 's/:.*##/\t/' | expand -t 12

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(EXTRAS)]'
	touch $@

demo: install    ## the embedded model under shift: a live table, a figure, an HTML report
	$(BIN)/reta demo

test: install    ## the tests (a few minutes on 2 cores)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

test-all: install ## the tests, long ones too
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m 'slow or not slow'

lint: install    ## ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install   ## pyright
	PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/pyright

contract: install ## the parts import each other in one direction only
	$(BIN)/lint-imports

docs: install    ## build the documentation into site/
	$(BIN)/typer reta.cli utils docs --name reta --output docs/reference/cli.md > /dev/null
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict  # with --quiet, warnings would not be counted

check: lint types contract docs test ## all of the above

bench: install   ## speed: ratios against references measured in the same run
	$(BIN)/python benchmarks/views.py
	$(BIN)/python benchmarks/prompts.py
	$(BIN)/python benchmarks/store.py
	$(BIN)/python benchmarks/step.py

clean:           ## remove what was built
	rm -rf $(VENV) site build dist .pytest_cache .ruff_cache
