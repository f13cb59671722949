# What a newcomer types. Everything else is behind these targets; `make help` lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help

.PHONY: help demo demo-down wheel test test-deep test-unit check bench

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## Bring up the demo cluster and the portal; print the address and the log-ins
	@deploy/demo/up

demo-down: ## Take the demo cluster down and leave nothing behind
	@deploy/demo/down

wheel: ## Build the training runtime's Python package into dist/
	@training/wheel

test: ## Run every test, on the real demo cluster (large matrices sampled by a printed seed)
	@tests/run

test-deep: ## Run every test, all matrices whole
	@EIRENE_TEST_DEEP=1 tests/run

test-unit: ## Run only what needs neither Docker nor a cluster
	@EIRENE_UNIT_ONLY=1 tests/run

check: ## Formatting, lints, licences, shell scripts
	@tests/check

bench: ## Run every benchmark: us and the peer in turns, ratios printed
	@bench/run
