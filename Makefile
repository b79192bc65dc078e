# What CONTRIBUTING.md names; each target is what CI runs too.
.PHONY: setup check test test-all test-slow docs bench
SHELL := bash
PYTEST = OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false HF_HUB_OFFLINE=1 .venv/bin/pytest

setup:
	source scripts/environment.sh dev
check: setup
	.venv/bin/ruff check . && .venv/bin/ruff format --check . && .venv/bin/mypy
test: check
	$(PYTEST) -m "not slow and not full" -n 2 -x tests
test-all:
	bash scripts/test.sh
test-slow:
	bash scripts/test.sh --slow
docs: setup
	.venv/bin/mkdocs build --strict
bench: setup
	for script in scripts/bench_collators.py scripts/bench_step.py scripts/bench_injection.py scripts/bench_processor.py; do .venv/bin/python $$script; done
