# Everything runs in a .venv of its own, made from a bare Python (3.10 to 3.13).
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Two processes with one thread each. A group of tests (tests/conftest.py) runs in one process, the longest first.
# Bytecode is kept, whatever the environment says: without it, pytest compiles all tests anew in both processes.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist loadscope --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help demo quick test bench fuzz torture docs docs-serve dist wheels lint install clean

help: ## list the targets
	@grep -hE '^[a-z][a-z-]*:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: $(VENV)/.installed ## find new classes in scikit-learn's digits and print what was found
	@$(BIN)/rpim demo --output rpim-demo --overwrite

quick: lint ## style, types, layers and the fast tests: at most two minutes
	$(PYTEST) -m "not slow and not ray and not browser"

test: lint ## set up and run every check: style, types, layers, all tests
	$(PYTEST)

bench: $(VENV)/.installed ## speed and memory against a plain reference; DATA=FOLDER for real embeddings
	$(BIN)/python benchmarks/speed.py $(if $(DATA),--data $(DATA))

fuzz: $(VENV)/.installed-dev ## damaged and hostile files for MINUTES=30; REPLAY=KIND:SEED repeats a case
	$(BIN)/python tests/shared/fuzzing.py --minutes $(or $(MINUTES),30) $(if $(REPLAY),--replay $(REPLAY))

torture: $(VENV)/.installed-dev ## kill every long command N=10 times at random and check that a rerun loses nothing
	$(BIN)/python tests/shared/torture.py --kills $(or $(N),10)

docs: $(VENV)/.installed-dev ## build the documentation site into build/docs, running the tutorials and the gallery
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -W --keep-going -b html docs build/docs

docs-serve: docs ## build the site and show it at http://localhost:8000
	$(BIN)/python -m http.server --bind 127.0.0.1 --directory build/docs 8000

dist: $(VENV)/.installed-dev ## build the source distribution and the wheel into dist
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist

wheels: $(VENV)/.installed-dev ## install the wheel into empty environments, with each extra, and use it; PYTHONS=..., LOWEST=1, UV=1
	$(BIN)/python tests/shared/wheels.py $(if $(PYTHONS),--pythons $(PYTHONS)) $(if $(EXTRAS),--extras $(EXTRAS)) $(if $(SHARED),--shared) $(if $(UV),--uv) $(if $(LOWEST),--lowest)

install: $(VENV)/.installed ## make .venv with the package in it

lint: $(VENV)/.installed-dev ## style, types and layers alone
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

clean: ## remove .venv and what the tools left behind
	rm -rf $(VENV) rpim-demo build dist docs/generated .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	@touch $@ $(VENV)/.installed
