# Everything below needs Debian (or a relative of it) with Python >= 3.11, make, and root or sudo. `make help` lists it.
SHELL := /bin/bash
.DEFAULT_GOAL := help
BIN := .venv/bin
READY := .venv/.ready

.PHONY: help demo test check bench e2e clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(READY) ## the main job on real input: an S3 server, a mount, a preload, every byte compared, a table of times
	@.ci/fuse-allowed
	@PYTHONPATH=tests $(BIN)/python -m bench.demo

test: $(READY) ## all tests but the long ones
	@if .ci/fuse-allowed; then $(BIN)/pytest -m "not slow"; \
	else $(BIN)/pytest -m "not slow and not fuse"; code=$$?; \
	echo "NOT RUN: the tests that mount, because FUSE is not allowed here (see above)." >&2; exit $$code; fi

check: $(READY) ## ruff, mypy, import-linter, drift of generated files
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m stoker.api.schema --check
	$(BIN)/python -m stoker.cli.reference --check
	$(BIN)/python -m stoker.node.metrics --check
	$(BIN)/python -m stoker.node.openapi --check
	$(BIN)/python -m bench.readme --check
	PYTHONPATH=tests $(BIN)/python -m bench.tuning --check

bench: $(READY) ## Stoker, the native disk and plain obstore side by side; QUICK=1 for a short form, PEER=rclone or s3fs
	@.ci/fuse-allowed
	@PYTHONPATH=tests $(BIN)/python -m bench $(if $(QUICK),--quick) $(if $(PEER),--peer $(PEER))

e2e: $(READY) ## the long scenarios on real mounts
	@.ci/fuse-allowed
	$(BIN)/pytest -m slow

clean: ## remove what the targets above made
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml .ci/setup
	@.ci/setup
	@touch $@
