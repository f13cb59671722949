# What a newcomer types. Everything else is behind these targets; `make help` lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help

.PHONY: help demo demo-down wheel test test-deep areas test-unit check bench

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## Bring up the demo cluster and the portal; print the address and the log-ins
	@deploy/demo/up

demo-down: ## Take the demo cluster down and leave nothing behind
	@deploy/demo/down

wheel: ## Build the training runtime's Python package into dist/
	@training/wheel

test: ## The gate: checks, all unit tests, and the smoke set on the demo cluster
	@tests/run

test-deep: ## Everything, whole; AREA=sessions|files|spaces|monitoring|training|mpi|images|portal for one area
	@AREA='$(AREA)' tests/deep

areas: ## Name the areas that the change since origin/main touches (BASE=… for another base)
	@tests/areas $(BASE)

test-unit: ## Run only what needs neither Docker nor a cluster
	@EIRENE_UNIT_ONLY=1 tests/run

check: ## Formatting, lints, licences, shell scripts
	@tests/check

bench: ## Run every benchmark: us and the peer in turns, ratios printed
	@bench/run
