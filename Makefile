# Lakefold: everything a person or CI runs. `make help` lists the targets.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
# Where an editable install of this tree finds its packages; linters that import need the same.
ROOTS := .:protos:table:log:ingest:committer:reader
# Modules of the pure core that lie beside others which may do IO; table/lakefold_table/lance is wholly pure.
CORE := $(addprefix table/lakefold_table/,allocation.py branch_names.py entry.py errors.py expansion.py format.py formats.py \
	  position.py roots.py values.py wire.py versions/succession.py) \
	$(wildcard table/lakefold_table/marks/*.py committer/lakefold_committer/fold/*.py)
# Tests without a broker that take longer: they play histories, try every store, or start processes.
LONGER := $(addprefix tests/,contracts properties scenarios simulation) $(addprefix tests/unit/test_,bitmaps.py \
	cli.py conflicts_forgotten.py cost.py demo_events.py expansion.py)
STEP = @printf '\n\033[1m== %s\033[0m\n'
CHECK_PYTHON = @$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	echo 'Python 3.11 or newer is needed; $(PYTHON) is not. Name another: make PYTHON=python3.12' >&2; exit 1; }

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test lint types test-fast test-oracle test-integration test-faults test-azure test-clients soak bench docs generate charts setup lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## / { printf "  \033[1m%-17s\033[0m %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: .java setup ## the whole way on real events: Kafka, Spark, committer, reader, with progress on the screen
	@$(BIN)/lakefold demo

test: setup ## everything that CI runs: lint, types, docs, fast tests, oracle tests, integration tests
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory types
	@$(MAKE) --no-print-directory docs
	@$(MAKE) --no-print-directory test-fast
	@$(MAKE) --no-print-directory test-oracle
	@$(MAKE) --no-print-directory test-integration

lint: setup ## ruff (all rules), the format, the purity of the core, the direction of imports
	$(STEP) 'lint'
	@$(BIN)/ruff check --quiet --output-format concise .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet --output-format concise --config ruff-core.toml $(CORE)
	@shown=$$(PYTHONPATH=$(ROOTS) $(BIN)/lint-imports --no-logo 2>&1) || { echo "$$shown"; exit 1; }

types: setup ## mypy, strict, over packages and tests
	$(STEP) 'types'
	@$(BIN)/mypy

test-fast: setup ## the tests that need no broker and no Spark, and take no time (under a minute)
	$(STEP) 'fast tests'
	@$(BIN)/pytest -q tests $(addprefix --ignore=tests/,integration oracle azure clients faults) $(addprefix --ignore=,$(LONGER)) -n 2

test-oracle: setup ## the tests that hold our tables against pylance's, both ways; stores; random and simulated histories; faults
	$(STEP) 'oracle tests'
	@$(BIN)/pytest -q tests/oracle tests/faults --ignore=tests/faults/broker $(LONGER) -n 2

test-integration: .java setup ## the tests that start a real broker and Spark, on free ports
	$(STEP) 'integration tests'
	@$(BIN)/pytest tests/integration tests/faults/broker -n 2 --dist loadfile

test-faults: .java setup ## every point of the fault-injection tests, two hours or more; needs strace and faketime (apt-get install strace faketime); `make test` plays some
	$(STEP) 'faults, all of them'
	@command -v strace >/dev/null || { echo 'strace is missing: apt-get install strace' >&2; exit 1; }
	@command -v faketime >/dev/null || { echo 'faketime is missing: apt-get install faketime' >&2; exit 1; }
	@$(BIN)/pytest tests/faults --all-faults -n 2

test-azure: setup ## the tests on Azure's emulator, fetched once from npm and PyPI; not part of `make test`
	$(STEP) 'tests on Azure'
	@$(BIN)/pytest -q tests/azure

test-clients: .java setup ## other clients beside ours, each in its own environment, fetched once; not part of `make test`
	$(STEP) 'tests with other clients'
	@$(BIN)/pytest -q tests/clients -n 2

soak: setup ## simulated committers in trouble, seed by seed, for SECONDS=600, or SEEDS=1000 (FIRST= the first one)
	@$(BIN)/python -m tests.simulation.soak $(if $(SEEDS),--seeds $(SEEDS),--seconds $(or $(SECONDS),600)) \
		$(if $(FIRST),--first $(FIRST))

bench: .java setup ## measure committer, stream and latency beside their peers; results under benchmarks/results
	@$(BIN)/python -m benchmarks

docs: setup ## what is generated is fresh: protobuf code, docs/conflicts.md, the pages of docs/reference
	$(STEP) 'generated files'
	@$(BIN)/python protos/generate.py --check
	@$(BIN)/python docs/generate.py --check

generate: setup ## write again what is generated: protobuf code, docs/conflicts.md, the pages of docs/reference
	@$(BIN)/python protos/generate.py
	@$(BIN)/python docs/generate.py

charts: setup ## render the Helm chart again for its checks (needs helm 3 on the PATH)
	@$(BIN)/python deploy/helm/render.py

setup: $(STAMP) ## build the environment, once and again when the lock changes

lock: ## resolve requirements.lock again (needs uv on the PATH)
	@uv pip compile pyproject.toml --all-extras --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-emit-find-links --no-header --quiet --output-file requirements.lock

clean: ## stop the local broker; remove the environment, caches and the broker's files
	@if test -x $(BIN)/lakefold; then $(BIN)/lakefold down > /dev/null; fi
	@rm -rf $(VENV) .lakefold .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Made once, and again when the lock changes. Hashes are checked; the build backend comes from the lock too.
$(STAMP): requirements.lock pyproject.toml
	$(CHECK_PYTHON)
	$(STEP) 'environment: $(VENV) (once; about a minute on a fresh machine)'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --progress-bar off --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

# Before the environment is built: who lacks Java should know at once.
.PHONY: .java
.java:
	@version=$$("$${JAVA_HOME:+$$JAVA_HOME/bin/}java" -version 2>&1 \
		| awk -F '"' '/version/ { split($$2, v, "."); print v[1]; exit }'); \
	test "$${version:-0}" -ge 17 2>/dev/null || { \
		echo "Java 17 or newer is needed, by JAVA_HOME or on the PATH; found: $${version:-none}" >&2; exit 1; }
