# Every target sets up what it needs. `make` alone lists them.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet
DECLARED := pyproject.toml setup.py
CODEC  := $(addprefix src/barnabas/records/,codec.py column_codec.py row_codec.py compaction_codec.py append_codec.py \
  utf8.py value_sinks.py json_scanner.py value_numbers.py json_codec.py csv_codec.py avro_decoder.py avro_codec.py)
RELEASE := .release

.DEFAULT_GOAL := help
# A half-made .venv is made again.
.DELETE_ON_ERROR:
.PHONY: help setup java run demo test quick proof check fmt wheel bench chaos simulate fuzz soak peers clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile
	@echo "  ARGS passes on: make run ARGS='--port 9093', make test ARGS='-k kcat', make bench ARGS=--quick"

setup: $(VENV)/.dev $(VENV)/.codec java ## Make .venv with everything that tests, checks and benchmarks need

run: $(VENV)/.base ## Run a broker on 127.0.0.1:9092 (sets up only what the broker needs)
	@exec $(BIN)/barnabas up $(ARGS)

demo: $(VENV)/.spark java ## Clicks and orders through three brokers and Spark into tables, in a minute
	@exec $(BIN)/python -m examples.demo $(ARGS)

# Four processes for two cores: many tests wait for other programs.
WORKERS ?= 4
test: setup peers ## Run the tests, four at a time (with ARGS: those that it names, one after the other)
	$(BIN)/python -m pytest $(if $(ARGS),$(ARGS),-n $(WORKERS) --dist loadgroup --no-loadscope-reorder -m "not proof")

quick: setup ## Run the unit tests that need no program of others
	BARNABAS_TEST_WITHOUT_PEERS=1 $(BIN)/python -m pytest -n 2 --dist loadgroup --no-loadscope-reorder -m "not proof and not peers" \
	  tests/unit tests/checker $(ARGS)

proof: setup peers ## Run the long programs: simulated hours, chaos, planted bugs, fuzzing, kills of pipelines: MINUTES=60
	$(BIN)/python -m tests.proof --minutes $(or $(MINUTES),60) $(ARGS)

check: setup ## Check format, lint, types and layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fmt: setup ## Format the code, and mend what the linter can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

wheel: $(RELEASE)/.wheel ## Build the wheel of a release, with the broker's hot path compiled, into dist/

# Brokers are of the release. Drivers of Spark need PySpark, so they run in .venv, as after pip install 'barnabas[spark]'.
bench: export BARNABAS_TEST_PYTHON = $(CURDIR)/$(RELEASE)/bin/python
bench: setup peers $(RELEASE)/.installed ## Measure a release against Apache Kafka, other clients and hand-written Spark (hours)
	$(BIN)/python -m benchmarks.broker $(ARGS)
	$(BIN)/python -m benchmarks.coordination $(ARGS)
	$(BIN)/python -m benchmarks.cluster $(ARGS)
	$(BIN)/python -m benchmarks.client $(ARGS)
	$(BIN)/python -m benchmarks.spark $(ARGS)
	$(BIN)/python -m benchmarks.pipelines $(ARGS)
	$(BIN)/python -m benchmarks.windows $(ARGS)
	$(BIN)/python -m benchmarks.compaction
	$(BIN)/python -m benchmarks.lake_files $(ARGS)
	$(BIN)/python -m benchmarks.growth $(ARGS)

chaos: setup peers ## Break a cluster of real brokers in every way that a seed brings: MINUTES=30 SEED=7
	$(BIN)/python -m tests.chaos --minutes $(or $(MINUTES),30) $(if $(SEED),--seed $(SEED)) $(ARGS)

simulate: setup ## Run fresh seeds of whole simulated clusters, on all cores: SEEDS=1000
	$(BIN)/python -m tests.simulation $(or $(SEEDS),1000) $(ARGS)

fuzz: setup peers ## Attack a broker: ten million mutated frames, crowds, bombs, readers that never read: FRAMES=10000000
	$(BIN)/python -m tests.hostile $(if $(FRAMES),--frames $(FRAMES)) $(if $(SEED),--seed $(SEED)) $(ARGS)

soak: setup peers ## The full counts: thirty kills under Spark for each kind of sink, a thousand of brokers, ten million records (hours)
	$(BIN)/python -m tests.spark.soak $(ARGS)
	$(BIN)/python -m tests.chaos --kills 1000 --records 10000000 --minutes 0 --seed $(or $(SEED),7) \
	  --rate 1400 --longest 4 --only kill --only "crash again and again"

# Spark's. All but Spark works without, so that its absence is told and stops nothing.
java:
	@command -v java >/dev/null || { command -v apt-get >/dev/null && { [ "$$(id -u)" = 0 ] || [ -n "$(SUDO)" ]; } && { \
	  echo "installing Java" && $(SUDO) apt-get update -qq && $(SUDO) env DEBIAN_FRONTEND=noninteractive \
	  apt-get install -qq -y --no-install-recommends openjdk-17-jre-headless >/dev/null; }; } \
	  || echo "Spark needs Java 17, and it is not there: install openjdk-17-jre-headless, or run make setup SUDO=sudo"

peers: ## Install the programs that the tests measure against (Kafka, kcat, KafkaJS, ...), where that is allowed
	@tests/install-peers

clean: ## Remove everything that make has made, peers included
	rm -rf $(VENV) $(RELEASE) .peers .benchmarks .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist
	rm -rf src/*.egg-info src/barnabas/records/_codec_c*
	find src tests benchmarks -name __pycache__ -prune -exec rm -rf {} +

# A Python whose venv module lacks ensurepip (Debian without python3-venv) gets its pip from the pip it has.
$(BIN)/python:
	@echo "making $(VENV)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "barnabas needs Python 3.11 or later; choose one: make PYTHON=python3.12")'
	@$(PYTHON) -m venv $(VENV) 2>/dev/null || { \
	  $(PYTHON) -m venv --clear --without-pip $(VENV) && $(PYTHON) -m pip --python $(BIN)/python install --quiet pip; }
	@$(PIP) install 'pip>=25.1'

$(VENV)/.base: $(DECLARED) | $(BIN)/python
	@echo "installing barnabas"
	@$(PIP) install --editable .
	@touch $@

$(VENV)/.spark: $(DECLARED) | $(BIN)/python
	@echo "installing barnabas with PySpark"
	@$(PIP) install --editable '.[spark]'
	@touch $(VENV)/.base $@

# Development demands the compiled codec, and builds it again when its source changes.
$(VENV)/.dev: $(DECLARED) | $(BIN)/python
	@echo "installing barnabas and what its tests need"
	@BARNABAS_REQUIRE_COMPILED=1 $(PIP) install --editable . --group dev
	@touch $(VENV)/.base $(VENV)/.spark $(VENV)/.codec $@

$(VENV)/.codec: $(CODEC) | $(VENV)/.dev
	@echo "compiling the record codec"
	@BARNABAS_REQUIRE_COMPILED=1 $(PIP) install --editable . --no-deps
	@$(BIN)/python -c 'import sys; from barnabas.records import engine; sys.exit(not engine.COMPILED and engine.REASON)'
	@touch $@

# A release is built from a copy, so that no compiled module comes to lie beside the sources that are worked on.
$(RELEASE)/.wheel: $(DECLARED) $(shell find src -name '*.py') | $(VENV)/.dev
	@echo "building the wheel of a release (about a minute)"
	@rm -rf $(RELEASE)/tree dist && mkdir -p $(RELEASE)/tree
	@cp -r LICENSE README.md pyproject.toml setup.py src $(RELEASE)/tree && rm -f $(RELEASE)/tree/src/barnabas/records/_codec_c*
	@BARNABAS_COMPILE_BROKER=1 BARNABAS_REQUIRE_COMPILED=1 \
	  $(BIN)/python -m build --wheel --no-isolation --outdir dist $(RELEASE)/tree > $(RELEASE)/build.log 2>&1 \
	  || { tail -n 30 $(RELEASE)/build.log; exit 1; }
	@touch $@ && ls dist/*.whl

$(RELEASE)/.installed: $(RELEASE)/.wheel
	@$(BIN)/python -m venv --without-pip $(RELEASE)
	@$(PIP) --python $(RELEASE)/bin/python install --force-reinstall "$$(ls dist/*.whl)[arrow]"
	@touch $@
