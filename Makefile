# kompakt's commands; `make help` lists them. Everything below needs only Python >= 3.11 (and a JVM for Spark and Kafka's tools).
PYTHON ?= python3
BIN := .venv/bin
WORKERS ?= 4
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder
# The tests' compiled form is kept, whatever the environment says: to make it is half of each worker's collection (24 s).
unexport PYTHONDONTWRITEBYTECODE
SOURCES := broker cleaner config demo protocol spark_connector storage tests benchmarks pyspark_kompakt

.DEFAULT_GOAL := help

help: ## list the commands
	@grep -E '^[a-z-]+:.*## ' Makefile | sed 's/:.*## /\t/' | expand -t 14

setup: .venv/.ready ## .venv with everything, the kernels compiled into their cache

.venv/.installed: locks/build.txt locks/dev.txt pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r locks/build.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --require-hashes -r locks/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps \
		--config-settings editable_mode=compat -e .
	touch $@

.venv/.ready: .venv/.installed $(shell grep -lr '^@kernel' --include=*.py cleaner protocol spark_connector storage)
	$(BIN)/python -m compileall -q broker cleaner config protocol spark_connector storage
	$(BIN)/kompakt kernels
	$(BIN)/python -m spark_connector.warm_up
	touch $@

run: setup ## the broker on 127.0.0.1:9092, its data in ./data, HTTP on 127.0.0.1:9644
	$(BIN)/kompakt serve --data data

test: setup ## the whole test suite but the slow suites below
	$(PYTEST) -m 'not slow and not crash and not fuzz'

collect: setup ## look what tests there are, which leaves them compiled for the workers of `test`
	$(BIN)/python -m pytest --collect-only -qqqq

test-slow: setup ## the tests that take long
	$(PYTEST) -m slow --timeout 3600

crash: setup ## kill -9 of real processes at random moments
	$(PYTEST) -m crash --timeout 3600

fuzz: setup ## random input at length
	$(PYTEST) -m fuzz --timeout 3600

check: setup ## format, lint, types, import contracts, tidiness
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -p no:randomly tests/test_tidy.py tests/test_docs.py

format: setup ## put the code into form
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

demo: setup ## the main job on 336,776 real flights: clients, groups, compaction, Spark
	$(BIN)/python -m demo.flights

bench: setup ## kompakt beside Apache Kafka, goal by goal, into the README's table (about 10 minutes)
	$(BIN)/python -m benchmarks

bench-long: setup ## the lines that write gigabytes and all other cases, into the same table (about 30 minutes)
	$(BIN)/python -m benchmarks --long

bench-quick: setup ## a little of it, to see that it runs (about 2 minutes)
	$(BIN)/python -m benchmarks --quick

wheel: setup ## dist/pyspark_kompakt-*.whl: the Spark connector by itself
	$(BIN)/python -m spark_connector.packaging dist

bench-cleaner: setup ## the cleaner beside Apache Kafka's, and what it costs (10 minutes)
	$(BIN)/python -m benchmarks.cleaner

bench-spark: setup ## both Spark sources on both brokers, into the README's table (9 minutes)
	$(BIN)/python -m benchmarks.spark

docs: setup ## REFERENCE.md and the table of tests, from the code
	$(BIN)/python -m tests.reference
	$(BIN)/python -m tests.promises

lock: setup ## resolve the dependencies anew into locks/ (needs uv)
	printf 'setuptools>=77\nwheel\n' | uv pip compile $(LOCK_FLAGS) - -o locks/build.txt
	uv pip compile $(LOCK_FLAGS) pyproject.toml --extra oauth -o locks/run.txt
	uv pip compile $(LOCK_FLAGS) pyproject.toml --extra spark --extra avro --extra oauth --group dev -o locks/dev.txt
	for older in 4.0 4.1 4.2; do echo "pyspark==$$older.*" | uv pip compile $(LOCK_FLAGS) - -o locks/spark-$$older.txt; done

LOCK_FLAGS := --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	--no-emit-index-url --no-emit-find-links

clean: ## remove what was built here; data and .venv stay
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -path ./.venv -prune -o -name __pycache__ -type d -print | xargs rm -rf
	rm -f .venv/.ready

.PHONY: help setup run test collect test-slow crash fuzz check format demo bench-cleaner bench-spark bench bench-long bench-quick wheel docs lock clean
