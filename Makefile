PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DESK := $(VENV)/.desk
DEMO_ARGS ?= compare demo --checkpoint 10m --restart-cost 1m --report demo-report
# compile the engine once before several processes ask for it
WARM := @$(BIN)/python -c "from gpuyard.engine.compiler.entry import engine; engine()"
# worksteal gives a worker whole files, so that what a file shares is made once and not once per worker
PYTEST := $(BIN)/pytest -n 2 --dist worksteal -q
PYTEST_ARGS ?=
# the tests start many processes, which would each compile every source they import
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-all lint format bench docs clean

demo:  ## compare the schedulers that matter on an embedded workload, and write a report; needs a third of what tests need
	@test -f $(STAMP) || $(MAKE) --no-print-directory $(DESK)
	$(BIN)/gpuyard $(DEMO_ARGS)

test: $(STAMP)  ## all tests but the long ones
	$(WARM)
	$(PYTEST) -m "not slow" $(PYTEST_ARGS)

test-all: $(STAMP)  ## every test
	$(WARM)
	$(PYTEST) $(PYTEST_ARGS)

lint: $(STAMP)  ## style, strict types, import contracts, links of the documentation
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/zensical build --strict

format: $(STAMP)  ## rewrite to the house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(STAMP)  ## the documentation as a site in site/
	$(BIN)/zensical build --strict
	@echo "open site/index.html in a browser"

bench: $(STAMP)  ## speed and published-protocol tables
	$(BIN)/gpuyard bench

clean:  ## everything that can be made again
	rm -rf $(VENV) build dist site .cache .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +

INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check

$(DESK): pyproject.toml requirements/desk.lock
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --require-hashes -r requirements/desk.lock
	$(INSTALL) --no-build-isolation --no-deps --editable .
	@touch $@

$(STAMP): pyproject.toml requirements/dev.lock
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --require-hashes -r requirements/dev.lock
	$(INSTALL) --no-build-isolation --no-deps --editable .
	@touch $@
