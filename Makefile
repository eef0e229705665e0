# Everything a contributor needs: `make setup && make check`.
PYTHON ?= python3
VENV ?= .venv
# Tests mostly wait: for processes to start, for links, for Slurm.
AT_ONCE ?= 3
# The processes of tests then read the bytecode that the first of them wrote.
unexport PYTHONDONTWRITEBYTECODE
# Inputs per target of `make fuzz`.
INPUTS ?= 100000
BIN := $(VENV)/bin
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check
LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
  --no-annotate --custom-compile-command "make lock"

.PHONY: setup check check-all lint types contracts test test-all docs fuzz nightly lock release try-wheel cut reproduce clean

setup: $(VENV)/.installed  ## a virtual environment with Paceline and its tools

$(VENV)/.installed: pyproject.toml constraints.txt requirements/ci.txt
	$(PYTHON) -m venv $(VENV)
	@# torch by its exact version: a range would pull another build and gigabytes with it
	$(INSTALL) --no-deps $$(cat constraints.txt)
	$(INSTALL) --no-deps --require-hashes -r requirements/ci.txt
	@# downloads only what a build of torch for GPUs needs beyond the others (no hash is pinned for
	@# it), and what requirements/ci.txt lacks: a test tells
	$(INSTALL) --no-build-isolation -c constraints.txt -e '.[dev]'
	@if [ -d .git ] && [ -z "$$CI" ]; then $(BIN)/pre-commit install --install-hooks || true; fi
	@touch $@

check: lint types contracts test docs  ## what a contributor runs: within 10 minutes on 2 cores

check-all: lint types contracts test-all docs  ## what CI runs: within 40 minutes on 2 cores

lint:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types:
	$(BIN)/mypy

contracts:
	$(BIN)/lint-imports

test:  ## quick tests; those that need root or Chromium are skipped where these are missing
	$(BIN)/pytest -m "not nightly and not alone and not slow and not slurm" -n $(AT_ONCE) --dist loadfile

test-all:  ## all tests but the nightly ones; those that measure time run one by one
	$(BIN)/pytest -m "not nightly and not alone" -n $(AT_ONCE) --dist loadfile
	$(BIN)/pytest -m "alone and not nightly" --rerun-show-tracebacks

docs:
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

fuzz: setup  ## mutate each file format and message, guided by coverage: about half an hour
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[fuzz]' -c constraints.txt
	PYTHONPATH=tests $(BIN)/python -m fuzzing --inputs $(INPUTS)

nightly: setup  ## minutes-long tests and the benchmarks
	$(INSTALL) --no-build-isolation -c constraints.txt -e '.[dev,peers,mlflow,wandb]'
	PACELINE_NIGHTLY=1 $(BIN)/pytest -m nightly --rerun-show-tracebacks
	$(BIN)/pytest tests/security -m "not nightly" --hypothesis-profile long --timeout 1200
	$(BIN)/python -m benchmarks.overhead
	$(BIN)/python -m benchmarks.overhead.layouts
	$(BIN)/python -m benchmarks.overhead.engine
	$(BIN)/python -m benchmarks.frameworks --only Paceline Accelerate Fabric
	$(BIN)/python -m benchmarks.memory
	$(BIN)/python -m benchmarks.loading
	$(BIN)/python -m benchmarks.checkpoints
	$(BIN)/python -m benchmarks.recovery --rounds 5
	$(BIN)/python -m benchmarks.chaos --settings all --faults 200
	$(BIN)/pip install --quiet --no-deps ./simulated
	PACELINE_DEVICE_KIND=sim $(BIN)/python -m benchmarks.chaos --settings ddp,fsdp,hsdp,diloco --faults 125 --lease 5
	$(BIN)/python -m benchmarks.recovery.slurm --out runs/cluster-faults
	$(BIN)/python -m benchmarks.overhead.fault_tolerance
	$(BIN)/python -m benchmarks.control_plane
	$(BIN)/python -m benchmarks.control_plane.chaos
	$(BIN)/python -m benchmarks.overhead.peer_copies
	$(BIN)/python -m benchmarks.planner.speed
	$(BIN)/python -m benchmarks.planner.testbed
	$(BIN)/python -m benchmarks.planner.testbed.sync_modes
	$(BIN)/python -m benchmarks.sync.encodings
	$(BIN)/python -m benchmarks.sync.consensus
	$(BIN)/python -m benchmarks.sync.staleness
	$(BIN)/python -m benchmarks.sync.canonical
	$(BIN)/python -m benchmarks.overhead.step_breakdown
	$(BIN)/python -m benchmarks.report.telemetry_scale
	$(BIN)/python -m benchmarks.report.attribution
	$(BIN)/python -m benchmarks.scaling --out studies/scaling --directions 1gbit
	$(BIN)/python -m benchmarks.sync.time_to_loss --model main --ratios 0.25 1 4 16

lock:  ## pin new dependencies by hash; to upgrade all, delete requirements/*.txt first
	$(LOCK) --extra dev --override requirements/torch.override \
	  -o requirements/ci.txt pyproject.toml requirements/ci.in
	$(LOCK) -o requirements/release.txt requirements/release.in

release:  ## wheel, source distribution and their software bill of materials, in dist/
	rm -rf dist $(VENV)/release
	$(PYTHON) -m venv $(VENV)/release/tools
	$(VENV)/release/tools/bin/pip install --quiet --require-hashes -r requirements/release.txt
	$(VENV)/release/tools/bin/python -m build --no-isolation
	$(VENV)/release/tools/bin/twine check --strict dist/*
	@# the bill lists what an installation of the wheel consists of
	$(PYTHON) -m venv --without-pip $(VENV)/release/installed
	$(VENV)/release/tools/bin/pip --python $(VENV)/release/installed/bin/python install --quiet \
	  -c constraints.txt dist/*.whl
	$(VENV)/release/tools/bin/cyclonedx-py environment --pyproject pyproject.toml \
	  --output-reproducible -o dist/paceline.cdx.json $(VENV)/release/installed/bin/python
	rm -rf $(VENV)/release

try-wheel:  ## the quick start from the wheel, in a new environment with the torch of constraints.txt
	$(PYTHON) scripts/try_wheel.py $$(cat constraints.txt)

cut: setup  ## commit and tag a release: make cut VERSION=0.2.0
	$(BIN)/python scripts/cut_release.py $(VERSION)

reproduce:  ## repeat some documented figures here, in about 5 minutes
	@$(BIN)/python scripts/reproduce.py

clean:
	rm -rf $(VENV) site dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
