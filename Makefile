# Two commands matter: `make demo` and `make test`. Each makes its own environment on a fresh machine.
PYTHON ?= python3
BIN := .venv/bin
OLDEST := .venv-oldest
MIDDLE := .venv-middle
PIP := -m pip install --quiet --disable-pip-version-check
TESTED := torch==2.13.0 numpy pandas pytest pytest-timeout nbclient nbformat jupyter-client psutil nvidia-ml-py

.PHONY: help demo test test-matrix test-gpu bench lint fix clean

help: ## what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: .venv/made ## run the quickstart on a GPU, real or simulated, and print what one sees
	$(BIN)/python notebooks/demo.py

test: .venv/made $(OLDEST)/made ## all tests, the kernel's also on the oldest IPython that is supported
	$(BIN)/python tests/run_all.py "IPython 9":$(BIN)/python:tests "IPython 7.34":$(OLDEST)/bin/python:tests/kernel

test-matrix: .venv/made $(MIDDLE)/made $(OLDEST)/made ## everything on IPython 9, 8 and 7.34
	$(BIN)/python tests/run_all.py "IPython 9":$(BIN)/python:tests "IPython 8":$(MIDDLE)/bin/python:tests \
	  "IPython 7.34":$(OLDEST)/bin/python:tests

test-gpu: .venv/made ## the tests that need a real GPU
	$(BIN)/python -m pytest tests -m gpu

bench: .venv/made ## speed, as ratios measured in one run
	$(BIN)/python -m pytest tests/benchmarks -q -s -p no:cacheprovider

lint: .venv/made ## ruff and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/mypy

fix: .venv/made ## what ruff can mend by itself
	$(BIN)/ruff check --fix .

clean: ## remove environments and what was built
	rm -rf .venv .venv-* .cache build dist

.venv/made: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python $(PIP) --upgrade "pip>=25.1"
	$(BIN)/python $(PIP) --group dev --editable .
	touch $@

# what Colab and Kaggle pin; the package is not installed here, only looked at from the checkout
$(OLDEST)/made: Makefile
	$(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python $(PIP) "ipython==7.34.*" "ipykernel==6.17.*" "ipywidgets==7.7.*" "traitlets==5.7.*" \
	  "hypothesis" "pytest-xdist" $(TESTED)
	touch $@

$(MIDDLE)/made: Makefile
	$(PYTHON) -m venv $(MIDDLE)
	$(MIDDLE)/bin/python $(PIP) "ipython==8.*" "ipykernel==6.31.*" "ipywidgets==8.*" pickleshare "hypothesis" "pytest-xdist" $(TESTED)
	touch $@
