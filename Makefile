# Everything runs in a .venv of its own, made from a bare Python (3.10 to 3.13).
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help demo test bench lint install clean

help: ## list the targets
	@grep -hE '^[a-z][a-z-]*:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: $(VENV)/.installed ## find new classes in scikit-learn's digits and print what was found
	@$(BIN)/rpim demo --output rpim-demo --overwrite

test: $(VENV)/.installed-dev ## set up and run every check: style, types, tests
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest

bench: $(VENV)/.installed ## speed and memory against a plain reference; DATA=FOLDER for real embeddings
	$(BIN)/python benchmarks/speed.py $(if $(DATA),--data $(DATA))

install: $(VENV)/.installed ## make .venv with the package in it

lint: $(VENV)/.installed-dev ## style and types alone
	$(BIN)/ruff check .
	$(BIN)/mypy

clean: ## remove .venv and what the tools left behind
	rm -rf $(VENV) rpim-demo build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	@touch $@ $(VENV)/.installed
