# Sluice's commands. Each sets up what it needs; `make help` lists them.
PYTHON ?= python3
RUN := $(PYTHON) -m tests.harness.bootstrap
.DEFAULT_GOAL := help
.PHONY: help test test-unit soak mutants demo bench up down lint clean-cache

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 20

test: lint ## Everything: style, types, layers, unit, component and end-to-end tests, simulation
	@$(RUN) python -m pytest tests/simulation
	@$(RUN) --stack python -m pytest tests/unit tests/component tests/e2e

test-unit: ## The unit tests alone, in seconds
	@$(RUN) python -m pytest tests/unit

soak: ## Simulate with new seeds until stopped (docs/simulation.md)
	@$(RUN) python -m tests.simulation --soak

mutants: ## Put faults into the code: the simulation has to find each
	@$(RUN) python -m tests.simulation.mutants

lint: ## Style (ruff), types (mypy) and layers (import-linter)
	@$(RUN) ruff check .
	@$(RUN) ruff format --check .
	@$(RUN) mypy
	@$(RUN) lint-imports

demo: ## The main job on the real parts, told as it happens
	@$(RUN) --stack python -m tests.demo

bench: ## Measure with 1,000 nodes beside plain kube-scheduler; writes build/bench.json
	@$(RUN) --stack python -m tests.bench

up: ## Keep the stack running in the background
	@$(RUN) --stack python -m tests.harness.up start

down: ## End what `make up` started
	@$(RUN) python -m tests.harness.up stop

clean-cache: ## Remove everything that was built once (see SLUICE_CACHE)
	@$(PYTHON) -m tests.harness.bootstrap clean-cache
