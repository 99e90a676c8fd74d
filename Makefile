# Two commands matter: `make demo` and `make test`. Each makes its own environment on a fresh machine.
PYTHON ?= python3
BIN := .venv/bin
OLDEST := .venv-oldest
MIDDLE := .venv-middle
OLD_LAB := .venv-lab42
PIP := -m pip install --quiet --disable-pip-version-check
TESTED := torch==2.13.0 numpy pandas plotly pytest pytest-timeout nbclient nbformat jupyter-client psutil nvidia-ml-py

SIDEBAR := jupyter_gpumem/labextension/static/style.js
SIDEBAR_SOURCES := $(shell find labextension/src labextension/style labextension/schema -type f -not -path '*/__tests__/*') \
  labextension/package.json labextension/package-lock.json labextension/tsconfig.json
SUDO := $(if $(filter 0,$(shell id -u)),,sudo)

.PHONY: help demo lab test test-matrix test-gpu bench soak screenshots lint fix clean browser

help: ## what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: .venv/made ## run the quickstart on a GPU, real or simulated, and print what one sees
	$(BIN)/python notebooks/demo.py

lab: .venv/made ## open JupyterLab with the sidebar, on your GPU or on a simulated one
	$(BIN)/python notebooks/demo.py --lab

test: .venv/made $(OLDEST)/made browser ## all tests: Python, TypeScript, browser; kernels also on the oldest IPython
	$(BIN)/python tests/run_all.py "TypeScript:npm:labextension" "IPython 9:$(BIN)/python:tests" \
	  "IPython 7.34:$(OLDEST)/bin/python:tests/kernel" "browser:$(BIN)/python:tests/lab"

test-matrix: .venv/made $(MIDDLE)/made $(OLDEST)/made $(OLD_LAB)/made browser ## all on IPython 9, 8, 7.34; JupyterLab 4.2
	$(BIN)/python tests/run_all.py "TypeScript:npm:labextension" "IPython 9:$(BIN)/python:tests" \
	  "IPython 8:$(MIDDLE)/bin/python:tests" "IPython 7.34:$(OLDEST)/bin/python:tests" "browser:$(BIN)/python:tests/lab"
	GPUMEM_LAB_PREFIX=$(CURDIR)/$(OLD_LAB) $(BIN)/python tests/run_all.py "JupyterLab 4.2:$(BIN)/python:tests/lab/test_story.py"

test-gpu: .venv/made ## the tests that need a real GPU
	$(BIN)/python -m pytest tests -m gpu

bench: .venv/made $(OLDEST)/made browser ## speed, as ratios measured in one run
	$(BIN)/python -m pytest tests/benchmarks -q -s -p no:cacheprovider

soak: .venv/made browser ## ten minutes of the panel at 10 Hz: is memory flat, is every message answered
	$(BIN)/python tests/benchmarks/soak.py

screenshots: .venv/made browser ## the pictures of README
	$(BIN)/python notebooks/screenshots.py

lint: .venv/made ## ruff, mypy --strict, tsc, eslint and prettier
	$(BIN)/ruff check .
	$(BIN)/mypy
	cd labextension && npm run --silent lint

fix: .venv/made ## what ruff, eslint and prettier can mend by themselves
	$(BIN)/ruff check --fix .
	cd labextension && npm run --silent fix

clean: ## remove environments and what was built
	rm -rf .venv .venv-* .cache build dist labextension/node_modules labextension/lib jupyter_gpumem/labextension

.venv/made: .venv/tools $(SIDEBAR)
	rm -rf .venv/share/jupyter/labextensions/jupyter-gpumem # pip would write through the link that develop made
	$(BIN)/python $(PIP) --editable .
	$(BIN)/jupyter-builder develop . --overwrite > /dev/null
	touch $@

.venv/tools: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python $(PIP) --upgrade "pip>=25.1"
	$(BIN)/python $(PIP) --group dev
	touch $@

# the sidebar's JavaScript
$(SIDEBAR): .venv/tools labextension/node_modules/made $(SIDEBAR_SOURCES)
	cd labextension && PATH="$(CURDIR)/$(BIN):$$PATH" npm run --silent build:prod

labextension/node_modules/made: labextension/package.json labextension/package-lock.json
	cd labextension && npm ci --no-progress
	touch $@

browser:
	@command -v chromium chromium-browser google-chrome > /dev/null || \
	  { $(SUDO) apt-get update -qq && $(SUDO) apt-get install -y -qq --no-install-recommends chromium fonts-noto-cjk; }

# the oldest JupyterLab and Notebook that are supported, with the wheel as a user installs it
$(OLD_LAB)/made: .venv/made
	$(PYTHON) -m venv $(OLD_LAB)
	$(OLD_LAB)/bin/python $(PIP) "jupyterlab==4.2.*" "notebook==7.2.*"
	$(BIN)/python -m build --wheel --no-isolation --outdir dist . > /dev/null
	$(OLD_LAB)/bin/python $(PIP) --no-deps --force-reinstall dist/jupyter_gpumem-*.whl
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
