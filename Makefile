# The project's own commands. Each sets up what it needs; `make` alone lists them.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SEED ?= 1
MINUTES ?= 20

.DEFAULT_GOAL := help
.PHONY: help install demo test test-slow test-browser test-clients lint format docs bench bench-quick chaos soak test-chaos test-chaos-quick mutate clean

help:  ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(VENV)/.installed  ## create .venv with the product and all that tests, lint and docs need, at pinned versions

# Two stamps in one .venv: the product alone, and what work on it needs besides. They make this quick when nothing
# they depend on changed. pip is renewed first: an old one cannot make an editable install from pyproject.toml alone.
# The build tool's own warnings are no news to whoever installs.
$(VENV)/.product: pyproject.toml setup.py constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Vibey needs Python 3.11 or newer; name one: make PYTHON=/path/to/python3.13"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

$(VENV)/.installed: $(VENV)/.product
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(VENV)/.product  ## see the router at work on this machine, with no engine or account needed; installs the product alone
	$(BIN)/vibey demo

# One process more than cores: tests of whole fleets wait as much as they compute.
test: install  ## run the tests, all but the slow suites
	$(BIN)/python -m pytest -n 3 --dist worksteal --durations 12 -m "not slow and not chaos and not bench and not clients and not browser"

test-slow: install  ## run the tests that keep real processes busy for a minute or so
	$(BIN)/python -m pytest -n 2 --dist loadfile --durations 12 -m "slow and not clients"

test-browser: install  ## look at the pages in a headless Chromium, if one is installed here
	$(BIN)/python -m pytest tests/browser -m browser --durations 5

# The pinned and the newest version of each; what cannot be installed is named and skipped. What was tried is written
# down for the doctor and for the reference.
test-clients: install  ## drive the real coding clients against a provider of our own (2 GB on disk)
	$(BIN)/python -m tests.clients.install
	VIBEY_RECORD_CLIENTS=1 $(BIN)/python -m pytest tests/clients -m clients -n 2; \
	  ended=$$?; $(BIN)/python -m docs.generate; exit $$ended

lint: install  ## check style, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy vibey tasks docs/generate
	$(BIN)/lint-imports

format: install  ## put the code in the house format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.docs  ## make a site of docs/ in build/site; a warning, a broken link or a page that no list names is an error
	$(BIN)/sphinx-build --quiet --fail-on-warning --nitpicky --fresh-env -b html -d build/doctrees docs build/site
	@echo "open $(CURDIR)/build/site/index.html"

$(VENV)/.docs: $(VENV)/.installed
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@touch $@

bench: install build/peers/.installed  ## measure against the bars, and against peers; writes benchmarks/results
	$(BIN)/vibey bench --peers build/peers --write benchmarks/results

bench-quick: install build/peers/.installed  ## see that everything can be measured, peers included
	$(BIN)/vibey bench --quick --peers build/peers

# One at a time: a peer that cannot be installed is named as missing, and takes no other with it.
build/peers/.installed: benchmarks/peers.txt
	$(PYTHON) -m venv build/peers
	@grep -v '^#' $< | while read -r each; do \
	  build/peers/bin/python -m pip install --quiet --disable-pip-version-check "$$each" || \
	  echo "$$each cannot be installed: the results will name it as missing"; done
	@touch $@

chaos: install  ## 520 faults over 5000 jobs on real processes, reproducibly: make chaos SEED=7
	$(BIN)/python -m tests.support.chaos --seed $(SEED)

soak: install  ## twenty minutes of a steady load, and two hours of virtual time: nothing may grow; make soak MINUTES=60
	$(BIN)/python -m tests.support.soak --minutes $(MINUTES) --virtual-hours 2 --write benchmarks/results

test-chaos: install  ## a minute of chaos, half a minute of soak, and the bugs they have to find
	$(BIN)/python -m pytest tests/acceptance/test_chaos.py tests/acceptance/test_soak.py -m chaos --durations 5

test-chaos-quick: install  ## of test-chaos what CI runs: all but the bugs of chaos
	$(BIN)/python -m pytest tests/acceptance/test_chaos.py tests/acceptance/test_soak.py -m chaos -k "not bug_put_in" --durations 5

mutate: install  ## change the domain in small ways, one at a time, and see which changes no test notices
	$(PYTHON) -m venv build/mutate
	build/mutate/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]' mutmut==3.8.1
	HYPOTHESIS_PROFILE=mutation build/mutate/bin/mutmut run --max-children 2
	build/mutate/bin/mutmut results

clean:  ## remove the environment and caches; data under .vibey stays
	rm -rf $(VENV) build mutants *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
