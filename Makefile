# Lakefold: everything a person or CI runs. `make help` lists the targets.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
# The demo needs less than the tests. What they need contains it, so an environment that has that is not changed.
DEMO_STAMP := $(or $(wildcard $(STAMP)),$(VENV)/.demo-stamp)
# The paths of the packages in an editable install; linters that import modules need them as well.
ROOTS := .:protos:table:log:ingest:committer:reader:maintenance
# Pure modules in folders with other modules that do IO. All of table/lakefold_table/lance is pure.
CORE := $(addprefix table/lakefold_table/,allocation.py app_removal.py author.py bitmaps.py branch_deletion.py branch_names.py durations.py entry.py errors.py expansion.py \
	  format.py formats.py invariants.py layered_map.py nesting.py position.py proposal.py ref_files.py roots.py tag_proposal.py values.py version_mark.py \
	  version_names.py wire.py versions/succession.py) \
	$(wildcard table/lakefold_table/columns/*.py table/lakefold_table/marks/*.py committer/lakefold_committer/fold/*.py committer/lakefold_committer/states/*.py \
	  maintenance/lakefold_maintenance/planning/*.py)
# Tests without a broker that take longer: they run histories, test every store, start processes, or wait.
LONGER := $(addprefix tests/,contracts properties scenarios simulation) $(addprefix tests/unit/test_,bitmaps.py \
	cli.py conflicts_forgotten.py console_site.py cost.py demo_events.py expansion.py)
# Races and random faults with a broker or servers, which `make test` runs for a part of the time.
STORMS := $(addprefix tests/integration/test_,crash.py external_faults.py google_storage.py operations.py \
	retried_tasks.py s3_race.py)
# Faults at each step of a committer, and verdicts of delta-spark, of which `make test` has a sample.
EACH_POINT := tests/simulation/test_each_step.py tests/simulation/test_delta_format.py tests/scenarios/test_power_cuts.py \
	tests/integration/test_delta_spark.py tests/integration/test_s3_delta.py tests/oracle/test_true_indices.py
# What `make cluster-tools` prepares: binaries, sources and images, some 5 GB; the test adds 3 GB of images.
CLUSTER_TOOLS := $(or $(LAKEFOLD_CLUSTER_TOOLS),$(HOME)/.cache/lakefold-cluster)
# Tests whose examples Hypothesis chooses: `make test` plays the same ones each time, these targets play others.
RANDOM = tests/properties $$(grep -l '^from hypothesis' tests/unit/*.py tests/oracle/*.py) --hypothesis-profile=long
# Integration tests wait for most of their time, so four processes share two cores (tests/distribution.py).
SIDE_BY_SIDE := -n 4 --dist loadgroup --no-loadscope-reorder
STEP = @printf '\n\033[1m== %s\033[0m\n'
CHECK_PYTHON = @$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	echo 'Python 3.11 or newer is needed; $(PYTHON) is not. Name another: make PYTHON=python3.12' >&2; exit 1; }

.DEFAULT_GOAL := help
# Tests start hundreds of Python processes on this tree. Each of them would compile it again if it kept no bytecode.
unexport PYTHONDONTWRITEBYTECODE
.DELETE_ON_ERROR:
.PHONY: help demo test test-all lint types test-fast test-rest test-coverage test-oracle test-integration test-faults test-azure test-clients test-cluster cluster-tools soak bench docs site generate charts setup lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## / { printf "  \033[1m%-17s\033[0m %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: .java $(DEMO_STAMP) ## run all parts on real events, with progress on the screen (FORMAT=delta for a Delta table)
	@$(BIN)/lakefold demo $(if $(FORMAT),--format $(FORMAT))

# They begin in this order, two at a time. One process checks types for as long as most of the others take.
test: .java setup ## run what CI runs: lint, types, docs, and nine tests of ten (SINCE=main: those that changes since main can reach)
ifdef SINCE
	@$(MAKE) --no-print-directory -j 2 --output-sync=target lint types
	$(STEP) 'tests that the changes since $(SINCE) can reach'
	@reached=$$($(BIN)/python -m tests.reached $(SINCE)) && $(BIN)/pytest -q $$reached $(SIDE_BY_SIDE)
else
	@$(MAKE) --no-print-directory -j 2 --output-sync=target lint types .bytecode docs .classes test-fast
	@$(MAKE) --no-print-directory test-rest TIER=--gate
endif

test-all: .java setup ## run everything: what `make test` leaves out too, and simulated committers from a random seed on, for SECONDS=300
	@$(MAKE) --no-print-directory -j 2 --output-sync=target lint types .bytecode docs .classes test-fast
	@$(MAKE) --no-print-directory test-rest TIER=--keep-durations
	$(STEP) 'simulation from a random seed on'
	@$(BIN)/python -m tests.simulation.soak --seconds $(or $(SECONDS),300)

lint: setup ## check with ruff (all rules), the format, the purity of the core, the direction of imports
	$(STEP) 'lint'
	@$(BIN)/ruff check --quiet --output-format concise .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet --output-format concise --config ruff-core.toml $(CORE)
	@shown=$$(PYTHONPATH=$(ROOTS) $(BIN)/lint-imports --no-logo 2>&1) || { echo "$$shown"; exit 1; }

# Each of the test processes would compile the tests for itself.
.PHONY: .bytecode
.bytecode: setup
	@shown=$$($(BIN)/pytest -q --collect-only tests --ignore=tests/azure --ignore=tests/clients 2>&1) || \
		{ echo "$$shown" | tail -n 40; exit 1; }

types: setup ## check types with mypy, strict, in packages and tests
	$(STEP) 'types'
	@$(BIN)/mypy

# With these archives of classes, each of some eighty starts of Java takes half as long.
.PHONY: .classes
.classes: .java setup
	@$(BIN)/python -m tests.servers.quick_java > /dev/null

test-fast: setup ## run the tests that need no broker and no Spark (under a minute)
	$(STEP) 'fast tests'
	@$(BIN)/pytest -q tests $(addprefix --ignore=tests/,integration oracle azure clients faults) $(addprefix --ignore=,$(LONGER)) -n 2

# Integration tests wait for most of their time, oracle tests compute: side by side they take less time.
test-rest: .java setup ## run the tests of test-oracle and of test-integration side by side
	$(STEP) 'oracle and integration tests'
	@$(BIN)/pytest -q tests/oracle tests/faults tests/integration $(LONGER) $(SIDE_BY_SIDE) $(TIER)

test-coverage: .java setup ## run all tests twice as long under coverage.py; print which share of lines and branches they ran, and modules below 90 %
	$(STEP) 'all tests, with coverage'
	@rm -rf build/coverage && mkdir -p build/coverage
	@$(BIN)/coverage run -m pytest -q tests $(addprefix --ignore=tests/,azure clients) $(SIDE_BY_SIDE)
	@$(BIN)/python -m tests.coverage_figures

test-oracle: setup ## compare our tables with pylance's; test stores, random and simulated histories, faults
	$(STEP) 'oracle tests'
	@$(BIN)/pytest -q tests/oracle tests/faults --ignore=tests/faults/broker $(LONGER) -n 2

test-integration: .java setup ## run the tests that start a real broker and Spark, on free ports
	$(STEP) 'integration tests'
	@$(BIN)/pytest tests/integration tests/faults/broker $(SIDE_BY_SIDE)

test-faults: .java setup ## run all fault-injection tests and random examples (many hours; needs strace and faketime); `make test` runs some
	$(STEP) 'faults, all of them'
	@command -v strace >/dev/null || { echo 'strace is missing: apt-get install strace' >&2; exit 1; }
	@command -v faketime >/dev/null || { echo 'faketime is missing: apt-get install faketime' >&2; exit 1; }
	@$(BIN)/pytest tests/faults $(EACH_POINT) $(STORMS) --all-faults -n 2
	@$(BIN)/pytest $(RANDOM) -n 2

test-azure: setup ## run the tests on Azure's emulator, downloaded once from npm and PyPI; not part of `make test`
	$(STEP) 'tests on Azure'
	@$(BIN)/pytest -q tests/azure

test-clients: .java setup ## run the tests with other Lance clients, downloaded once; not part of `make test`
	$(STEP) 'tests with other clients'
	@$(BIN)/pytest -q tests/clients -n 2

soak: setup ## simulate committers with faults, for SECONDS=600, or SEEDS=1000 (FIRST= the first seed); then random examples
	@$(BIN)/python -m tests.simulation.soak $(if $(SEEDS),--seeds $(SEEDS),--seconds $(or $(SECONDS),600)) \
		$(if $(FIRST),--first $(FIRST))
	@$(BIN)/pytest -q $(RANDOM) -n 2

bench: .java setup ## measure throughput and latency, also of other clients (ONLY="maintenance delta" SOAK=1 for some)
	@$(BIN)/python -m benchmarks $(if $(ONLY),--only $(ONLY)) $(if $(SOAK),--soak)

docs: setup ## check that generated files are up to date (protobuf code, pages of docs/), and build the site
	$(STEP) 'generated files'
	@$(BIN)/python -m protos.generate --check
	@$(BIN)/python -m docs.generate --check
	@$(MAKE) --no-print-directory site

site: setup ## build the documentation as a site, in build/site (open build/site/index.html)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict

generate: setup ## generate files again: protobuf code, docs/conflicts.md, docs/states.md, docs/reference, diagrams
	@$(BIN)/python -m protos.generate
	@$(BIN)/python -m docs.generate
	@$(BIN)/python -m docs.diagrams

charts: setup ## render the Helm chart again for its tests (needs helm 3: on the PATH, or by `make cluster-tools`)
	@PATH="$(CLUSTER_TOOLS)/bin:$$PATH" $(BIN)/python deploy/helm/render.py

cluster-tools: setup ## prepare test-cluster, once: build Kubernetes and helm (needs Linux, root and Go; 10 minutes)
	@$(BIN)/python -m tests.cluster.tools

test-cluster: .java setup ## install image and chart on two nodes of Kubernetes, with faults (needs Linux and root)
	$(STEP) 'tests on a cluster'
	@$(BIN)/python -m tests.cluster

setup: $(STAMP) ## build the environment, and again when requirements.lock changes

LOCKED := --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --quiet

lock: ## write requirements.lock and requirements-demo.lock again (needs uv on the PATH)
	@uv pip compile pyproject.toml --all-extras $(LOCKED) --output-file requirements.lock
	@uv pip compile pyproject.toml --extra demo $(LOCKED) --constraint requirements.lock --output-file requirements-demo.lock

clean: ## stop the local broker; remove the environment, caches and the broker's files
	@if test -x $(BIN)/lakefold; then $(BIN)/lakefold down > /dev/null; fi
	@rm -rf $(VENV) .lakefold .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Built once, and again when the lock changes. Hashes are checked; the build backend is in the lock as well.
INSTALL = test -x $(BIN)/python || $(PYTHON) -m venv $(VENV); \
	$(BIN)/python -m pip install $(1) --disable-pip-version-check --require-hashes -r $< && \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .

$(STAMP): requirements.lock pyproject.toml
	$(CHECK_PYTHON)
	$(STEP) 'environment: $(VENV) (once; about a minute on a fresh machine)'
	@$(call INSTALL,--progress-bar off)
	@touch $@

$(VENV)/.demo-stamp: requirements-demo.lock pyproject.toml
	$(CHECK_PYTHON)
	$(STEP) 'environment of the demo: $(VENV) (once; 1.4 GB, most of it Spark; a minute on a quiet machine)'
	@$(call INSTALL,--quiet)
	@touch $@

# Checked before the environment is built, so that a missing Java is reported at once.
.PHONY: .java
.java:
	@version=$$("$${JAVA_HOME:+$$JAVA_HOME/bin/}java" -version 2>&1 \
		| awk -F '"' '/version/ { split($$2, v, "."); print v[1]; exit }'); \
	test "$${version:-0}" -ge 17 2>/dev/null || { \
		echo "Java 17 or newer is needed, in JAVA_HOME or on the PATH; found: $${version:-none}" >&2; exit 1; }
