# Every target does its own set-up: it uses the uv on PATH, or installs one into .venv with pip.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= python3
REPORTS ?= reports

# The environment is that of this folder: programs need not compile their modules at each start.
unexport PYTHONDONTWRITEBYTECODE

# Looked up when a target runs, because set-up may be what puts it there.
UV = $$(command -v uv || echo .venv/bin/uv)
RUN = $(UV) run --frozen --no-sync

.PHONY: help setup demo test test-fast test-long lint format conformance faults reference docs bench record-demo clean

help:  ## This list
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup:  ## The environment in .venv, from the lock file
	@command -v uv >/dev/null || test -x .venv/bin/uv || { \
	  $(PYTHON) -m venv .venv 2>/dev/null || { \
	    echo "make: $(PYTHON) cannot make an environment; install uv or python3-venv" >&2; exit 2; }; \
	  .venv/bin/pip install --quiet uv; }
	@$(UV) sync --frozen --quiet --inexact

demo: setup  ## Replay a recording of a real MySQL database into a local Iceberg lake
	@$(RUN) replicator demo

lint: setup  ## Style, types and the import rules
	@$(RUN) ruff check .
	@$(RUN) ruff format --check .
	@$(RUN) mypy
	@$(RUN) lint-imports --no-cache | tail -n 8

format: setup  ## Rewrite the code in the project's style
	@$(RUN) ruff check --fix .
	@$(RUN) ruff format .

test-fast: setup  ## Tests that need neither Spark nor the real stack
	@$(RUN) pytest -q -n auto --dist worksteal tests/unit

test: setup  ## Linters, units, and the main tests with Spark and with the real MySQL, Kafka and Connect
	@$(MAKE) --no-print-directory --output-sync -j 2 lint docs
	@mkdir -p $(REPORTS)
	@# The tests on the real stack mostly wait, and those of Spark wait for Java: all three run at the same time, two of
	@# each kind, with a stack and a Java process of their own. The last lines name what failed.
	@rm -f $(REPORTS)/{units,spark,stack}.xml
	@$(RUN) pytest -q -n 2 --dist worksteal --one-case --durations=20 -m "spark and not long" --junitxml=$(REPORTS)/spark.xml tests/spark >$(REPORTS)/spark.log 2>&1 & \
	  spark=$$!; failed=0; \
	  $(RUN) pytest -q --junitxml=$(REPORTS)/units.xml tests/unit >$(REPORTS)/units.log 2>&1 & \
	  units=$$!; trap 'kill $$spark $$units 2>/dev/null || true' EXIT; \
	  $(RUN) pytest -v -n 2 --dist worksteal --one-case --durations=20 -m "stack and not long" \
	    --junitxml=$(REPORTS)/stack.xml tests/e2e tests/stack || failed=1; \
	  wait $$units || failed=1; cat $(REPORTS)/units.log; wait $$spark || failed=1; cat $(REPORTS)/spark.log; \
	  $(RUN) python -m tests.support.reports $(REPORTS)/{units,spark,stack}.xml; exit $$failed

test-long: setup  ## The tests that take hours: all tests, cases and kills, an hour of faults, a Spark cluster, on the newest MySQL and on 8.0; the law
	@mkdir -p $(REPORTS)
	@REPLICATOR_LAW_EXAMPLES=100 $(RUN) pytest -q tests/spark/test_law.py tests/spark/test_tag_law.py \
	  tests/spark/test_rebuild_law.py tests/spark/test_reread_law.py tests/spark/test_narrowed_reread_law.py \
	  tests/spark/test_consumer_law.py
	@REPLICATOR_LAW_EXAMPLES=1000 $(RUN) pytest -q tests/spark/test_story_law.py
	@REPLICATOR_FUZZ_EXAMPLES=10000 $(RUN) pytest -q tests/unit/config/test_any_config.py \
	  tests/unit/sources/archive/test_any_archive.py tests/unit/decode/test_any_bytes.py
	@$(RUN) pytest -q -m "spark and not stack" tests/spark
	@REPLICATOR_CHECK_REBUILDS=1 $(RUN) pytest -q tests/spark/test_schema_changes.py tests/spark/test_key_changes.py \
	  tests/spark/test_snapshots.py tests/spark/test_truncate.py tests/spark/test_keyless.py tests/spark/test_keyless_json.py \
	  tests/spark/test_renamed_tables.py tests/spark/test_topics.py tests/spark/test_column_rules.py
	@failed=0; for mysql in "" 8.0.33; do \
	  REPLICATOR_MYSQL=$$mysql REPLICATOR_REQUIRE_STACK=1 REPLICATOR_LONG_TESTS=1 $(RUN) pytest -q \
	    -m "long or (stack and not spark)" --junitxml=$(REPORTS)/long$$mysql.xml tests/e2e tests/stack || failed=1; \
	done; $(RUN) python -m tests.support.reports $(REPORTS)/long{,8.0.33}.xml; exit $$failed

conformance: setup  ## Write docs/conformance.md from the results of the tests on the real stack
	@REPLICATOR_REQUIRE_STACK=1 $(RUN) pytest -q -m conformance --write-conformance

faults: setup  ## Write docs/faults.md from the marks of the tests
	@$(RUN) python -m tests.support.faults

reference: setup  ## Write the generated pages of docs/reference from the code
	@$(RUN) python -m tests.support.reference_pages

docs: setup  ## Build the documentation into site/, offline; fails on a broken link
	@$(UV) sync --frozen --quiet --inexact --group docs
	@NO_MKDOCS_2_WARNING=1 $(RUN) mkdocs build --strict --quiet
	@! grep -rhoE '<(script|link|img|iframe)[^>]* (src|href)="(https?:)?//[^"]*"' site --include='*.html' || \
	  { echo "make: a page of the documentation loads something from the network" >&2; exit 1; }
	@echo "documentation: site/index.html"

bench: setup  ## The benchmarks; tables on the screen, JSON in benchmarks/results/
	@$(UV) sync --frozen --quiet --inexact --group bench
	@$(RUN) python -m benchmarks

record-demo: setup  ## Record the event archive of the demo from the real stack
	@$(RUN) python -m tests.workload.record_demo

clean:  ## Remove the results of the other targets, except downloads and the lock file
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis .replicator $(REPORTS) demo-lake site
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
