# One command each; `make help` lists them. Every target builds .venv itself when it is missing.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
WORKERS ?= 2
# Percent of all lines that the fast tests reach at least (numba's do not count), a bit less than they do.
COVERED := 45
PROTOS := $(addprefix costbench/,hlo/proto/hlo.proto datasets/tpugraphs/proto/tuning.proto datasets/profiles/proto/xplane.proto)
# Files that ruff and the link checker look at, present or not yet.
LINTED := $(wildcard src corpus tests pipelines benchmarks examples tools hatch_build.py)

# How to look at the runs, where there are any.
PAGES = @[ "$${COSTBENCH_TRACKING:-}" = off ] || costbench runs pages

# Stages call `python`; it has to be the one of .venv.
export PATH := $(CURDIR)/$(BIN):$(PATH)
# Processes, not threads, use the cores: two OpenMP teams on the same cores spin against each other.
export OMP_NUM_THREADS ?= 1
export GOMP_SPINCOUNT ?= 0
# Stages and tests are many short processes: without byte code on disk each compiles every library again.
unexport PYTHONDONTWRITEBYTECODE
export DVC_NO_ANALYTICS := 1
export MLFLOW_DISABLE_TELEMETRY := true

.PHONY: help venv repro status profiles demo evidence evidence-report headline data-curve gpu xla-cpu suite test test-fast fuzz coverage test-lowest test-cpu test-wheel
.PHONY: test-postgres test-gpu
.PHONY: check docs gpu-searches schedule-searches
.PHONY: format lock proto clean
.PHONY: distclean need-git

help: ## List the targets
	@sed -nE 's/^([a-z-]+):[^#]*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

venv: $(INSTALLED) ## Build .venv from requirements.lock (a no-op when it is up to date)

$(INSTALLED): requirements.lock pyproject.toml tools/install.sh
	bash tools/install.sh $(VENV)
	@touch $@

repro: $(INSTALLED) need-git ## Run the default profile (params.yaml): a quarter to half an hour on two idle cores
	@printf 'Every question of the papers once: a quarter to half an hour on two idle cores; a rerun goes on where it was.\n'
	bash tools/with_workers.sh $(WORKERS) dvc repro
	@printf '\nReport:  %s\nTables:  %s\n' "$(CURDIR)/reports/index.html" "$(CURDIR)/reports/tables/"
	$(PAGES)

status: $(INSTALLED) need-git ## Say which stages are out of date, and why
	dvc repro --quiet inputs
	dvc status dvc.yaml

profiles: profiles/smoke/dvc.yaml profiles/evidence/dvc.yaml profiles/paper/dvc.yaml ## Copy dvc.yaml, which profiles share, into their folders

profiles/%/dvc.yaml: dvc.yaml
	cp $< $@

demo: $(INSTALLED) need-git profiles ## Run the smoke profile: the same stages in miniature, minutes
	@printf 'A demonstration, every stage in miniature: three to five minutes on two idle cores. Its numbers decide nothing.\n'
	bash tools/with_workers.sh $(WORKERS) dvc repro profiles/smoke/dvc.yaml
	@printf '\nReport:  %s\nTables:  %s\n' "$(CURDIR)/out/smoke/reports/index.html" "$(CURDIR)/out/smoke/reports/tables/"
	$(PAGES)

# What data/results has is not computed again by the next three, unless FRESH is set. With it, stages run that DVC takes for
# done, since their results may come from there; what they have computed themselves they keep.
evidence: $(INSTALLED) need-git profiles ## Compute what data/results/evidence lacks of the papers' splits, two chips and ablations, and pack it: hours, a rerun goes on (FRESH=1: everything)
	COSTBENCH_ARCHIVE=$(if $(FRESH),,data/results/evidence) \
	  bash tools/with_workers.sh $(WORKERS) dvc repro $(if $(FRESH),--force) profiles/evidence/dvc.yaml
	costbench results pack data/results/evidence --params profiles/evidence/params.yaml
	@printf '\nReport:  %s\nTables:  %s\n' "$(CURDIR)/reports/evidence/index.html" "$(CURDIR)/reports/evidence/tables/"
	$(PAGES)

evidence-report: $(INSTALLED) ## Render the page of that profile from the results that git keeps, without those that are missing: minutes
	costbench results unpack data/results/evidence --params profiles/evidence/params.yaml
	costbench report --partial --params profiles/evidence/params.yaml

headline: $(INSTALLED) ## Train networks and trees until they gain no more, and pack what the first page rests on: an estimated 20 core-hours, a rerun goes on (FRESH=1: everything)
	bash tools/with_workers.sh $(WORKERS) bash tools/packed.sh headline \
	  {curves,headline,trees}-{tile,fusion} expert-{tile,fusion} {,orders-}{inputs,networks}-{tile,fusion} {,orders-}rates-tile lpm2020-fusion orders-lpm2020 shift-{,trees-}{tile,fusion} \
	  orders-tpugraphs tpugraphs-tile runs-{tile,main-tile,inputs-tile,fusion,reductions-fusion} estimates-{tile,fusion}
	for one in runs-main-tile runs-fusion; do bash tools/with_workers.sh $(WORKERS) costbench train --experiment $$one --archive data/results/headline --params profiles/headline/params.yaml || exit; done
	bash tools/with_workers.sh $(WORKERS) costbench autotune --params profiles/headline/params.yaml
	costbench results pack --compact --experiment autotune data/results/headline --params profiles/headline/params.yaml
	bash tools/with_workers.sh $(WORKERS) bash tools/packed.sh headline/layouts curves-layout headline-layout runs-layout
	bash tools/with_workers.sh $(WORKERS) bash tools/packed.sh headline/second_chip splits-{tile,fusion} loss-manual second-{tile,fusion}

data-curve: $(INSTALLED) ## Train fusion models on 6,000, 60,000 and all kernels of ten times the fusion configs, and pack it: an estimated two core-hours, a rerun goes on
	bash tools/with_workers.sh $(WORKERS) bash tools/packed.sh data_curve kernels-fusion trees-of-kernels

gpu: $(INSTALLED) ## Train fusion networks as wide as the papers' on a CUDA GPU, narrow ones beside them, and pack their results: an estimated 20 minutes on an H100, a rerun goes on
	bash tools/packed.sh gpu wide-fusion narrow-fusion

xla-cpu: $(INSTALLED) ## Train and compare models on what XLA's processor backend was recorded at, and pack it: an estimated two core-hours, a rerun goes on (FRESH=1: everything)
	bash tools/with_workers.sh $(WORKERS) bash tools/packed.sh xla_cpu \
	  real-{fusion,networks,trees,curves} simulated-fusion transfer-fusion real-{ablations,orders}

suite: $(INSTALLED) ## Tune and score all architectures of the suite, and render the leaderboard: about two core-hours, a rerun goes on (FRESH='1 2 3': fresh test sets)
	bash tools/with_workers.sh $(WORKERS) bash tools/suite.sh $(FRESH)

test: $(INSTALLED) ## Run the tests on WORKERS=2 processes (PYTEST_ARGS='-k name' narrows them)
	pytest -n $(WORKERS) --dist worksteal --durations 10 --durations-min 5 $(PYTEST_ARGS)

test-fast: $(INSTALLED) ## Run the tests that neither compile nor train anything: under a minute on two cores
	pytest --fast -n $(WORKERS) --dist worksteal $(PYTEST_ARGS)

fuzz: $(INSTALLED) ## Change files for every reader for SECONDS=60 each, on WORKERS=2 processes (SEED=1)
	python -m tests.fuzz.long_run --seconds $(or $(SECONDS),60) --seed $(or $(SEED),1) --workers $(WORKERS)

coverage: $(INSTALLED) ## Run the fast tests and fail below a floor of covered lines (PYTEST_ARGS='--cov-report term-missing' lists the others)
	pytest --fast -n $(WORKERS) --dist worksteal --cov --cov-report= --cov-fail-under $(COVERED) $(PYTEST_ARGS)

test-lowest: $(INSTALLED) ## Run the fast tests on the lowest versions that pyproject.toml allows, in .venv-lowest
	bash tools/test_lowest.sh $(VENV) .venv-lowest -n $(WORKERS) --dist worksteal $(PYTEST_ARGS)

test-cpu: $(INSTALLED) ## Test schedules on this processor with the extra `cpu` (TVM), in .venv-cpu
	bash tools/test_cpu.sh $(VENV) .venv-cpu $(PYTEST_ARGS)

test-wheel: $(INSTALLED) ## Test the wheel in empty environments of this Python and the newest: a project, its pipeline, tune
	bash tools/test_wheel.sh $(VENV) .venv-wheel $(PYTEST_ARGS)

test-gpu: $(INSTALLED) ## Compare networks and trainings on a CUDA GPU with those on the processor, and print steps a second of both
	pytest -rs -k on_a_gpu tests/kernels tests/training
	python -m benchmarks.gpu_steps

test-postgres: $(INSTALLED) ## Test sweeps on a real PostgreSQL, which is installed if need be (as root on Debian)
	bash tools/install_postgres.sh
	pytest -rs tests/experiments/sweeps/test_sweep_postgres.py

check: $(INSTALLED) ## ruff, mypy --strict, import contracts, links in the documentation, CI workflow
	ruff check $(LINTED)
	ruff format --check $(LINTED)
	mypy --strict src corpus
	lint-imports
	python tools/check_links.py .
	zizmor --offline --quiet --no-progress .github

format: $(INSTALLED) ## Let ruff rewrite what it can
	ruff check --fix $(LINTED)
	ruff format $(LINTED)

gpu-searches: $(INSTALLED) ## Search data/gpu_tuning with all strategies, Kernel Tuner's too, and pack the searches (hours; goes on where it stopped)
	uv pip install --quiet --python $(BIN)/python --editable '.[kernel-tuner]'
	python tools/gpu_searches.py

schedule-searches: $(INSTALLED) ## Search data/schedules as profiles/evidence asks, 30 repeats, and pack the searches (an estimated core-hour; goes on where it stopped)
	bash tools/with_workers.sh $(WORKERS) python tools/schedule_searches.py

docs: $(INSTALLED) ## Make a site of the documentation and of all docstrings in out/docs (installs the extra docs)
	uv pip install --quiet --python $(BIN)/python --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 mkdocs build --quiet --strict --config-file tools/site.yml
	pdoc --docformat google --output-directory out/docs/api costbench.workbench costbench '!costbench.*_pb2'
	@printf '\nPages:  %s\n' "$(CURDIR)/out/docs/index.html"

lock: $(INSTALLED) ## Resolve pyproject.toml into requirements.lock
	bash tools/lock.sh $(VENV)

proto: $(INSTALLED) ## Regenerate the protocol buffer modules from their .proto files
	cd src && python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. $(PROTOS)

clean: ## Remove caches and what runs left behind (not .venv, not the DVC cache)
	rm -rf out build dist *.egg-info src/*.egg-info mlflow.db* mlruns mlartifacts optuna.db* lightning_logs
	rm -rf .coverage .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis dvc_plots
	find src corpus tests pipelines tools benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

distclean: clean ## clean, and .venv and the DVC cache as well
	rm -rf $(VENV) .venv-lowest .venv-cpu .venv-wheel .venv-wheel-newest .dvc/cache .dvc/tmp

need-git:
	@git rev-parse --is-inside-work-tree >/dev/null 2>&1 || { \
	  echo "DVC needs a git repository, and this folder is none (an unpacked archive?). Make it one:" >&2; \
	  echo "  git init && git add -A && git commit -m 'costbench'" >&2; exit 1; }
