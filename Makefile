# Everything a person types. Needs Python 3.11+ with venv, make and a package index; `make` alone lists the targets.
PYTHON ?= python3
RUN := .venv/bin/python
ARGS ?=
# Two test processes that each use one thread: faster than one process that uses them all, and repeatable.
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 NUMBA_NUM_THREADS=1 POLARS_MAX_THREADS=1
PINS := pyproject.toml $(wildcard requirements/*.txt)
LOOPS := $(shell find src/newcomer -name "*_loops.py")

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test test-service lint format docs dist dist-check check-tag test-minimum bench bench-peers clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 20

demo: .venv/.ready-demo .venv/.warm ## make logs, fit them, see what was learned: files in ./demo
	@$(ONE_THREAD) $(RUN) -m newcomer demo --force $(ARGS)

test: .venv/.ready-test .venv/.warm ## run the tests; ARGS="-k rank" chooses
	@$(ONE_THREAD) $(RUN) -m pytest -n 2 $(ARGS)

test-service: .venv/.ready-test .venv/.warm ## faults and load of the decision service: some minutes, on loopback
	@$(ONE_THREAD) $(RUN) -m pytest -m service tests/serve $(ARGS)

lint: .venv/.ready-test ## style (ruff) and types (mypy --strict)
	@$(RUN) -m ruff check .
	@$(RUN) -m ruff format --check .
	@$(RUN) -m mypy --strict -p newcomer

format: .venv/.ready-test ## rewrite the files in the house style
	@$(RUN) -m ruff check --fix .
	@$(RUN) -m ruff format .

docs: .venv/.ready-docs .venv/.warm ## build the site in build/site, its notebooks included: about 2 minutes
	@$(ONE_THREAD) $(RUN) -m sphinx -b html -W --keep-going -q -d build/doctrees docs build/site
	@$(RUN) tools/check_site.py build/site
	@echo "The site: build/site/index.html"

dist: .venv/.ready-demo ## wheel and sdist in dist/, built twice to the same bytes
	@rm -rf dist
	@$(RUN) tools/dist.py dist

dist-check: dist ## install both files in fresh environments: the demo, types, metadata; PYTHON=python3.13 chooses
	@$(PYTHON) tools/check_install.py metadata
	@$(PYTHON) tools/check_install.py wheel
	@$(PYTHON) tools/check_install.py sdist

check-tag: ## may this tag be released? make check-tag TAG=v1.2.3
	@$(PYTHON) tools/check_tag.py $(TAG)

test-minimum: dist ## the demo and some tests with the oldest dependencies, on Python 3.11
	@$(PYTHON) tools/check_install.py minimum $(ARGS)

bench: .venv/.ready-test .venv/.warm ## measure against the alternatives, side by side in one run
	@$(ONE_THREAD) $(RUN) -m benchmarks $(ARGS)

bench-peers: benchmarks/peers/.venv/.ready ## measure beside other bandit libraries, in an environment of their own
	@$(ONE_THREAD) benchmarks/peers/.venv/bin/python -m benchmarks.peers $(ARGS)

benchmarks/peers/.venv/.ready: requirements/demo.txt benchmarks/peers/requirements.txt benchmarks/peers/prepare.py
	@$(PYTHON) benchmarks/peers/prepare.py

clean: ## remove the environment and caches; results stay
	@rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
	@find src tests benchmarks -name __pycache__ -prune -exec rm -rf {} +

# The stamp is written last, so an interrupted set-up is never taken for a finished one.
.venv/.ready-%: $(PINS) tools/prepare.py
	@$(PYTHON) tools/prepare.py $*

# Set-up compiles the inner loops; they are compiled again here, not in front of the person, when their code changed.
.venv/.warm: $(LOOPS)
	@echo "Compiling the inner loops, which changed: about a minute"
	@$(RUN) -m newcomer.compile_cache
	@touch $@

# An environment knows its folder by its absolute path: prepare it again when the folder was moved or copied.
ifneq ($(shell cat .venv/.folder 2>/dev/null),$(CURDIR))
.venv/.ready-demo .venv/.ready-test .venv/.ready-docs: moved
.PHONY: moved
moved:
endif
