#!/usr/bin/env bash
# Every check of the project. Usage: bash scripts/test.sh [--slow] [further arguments of pytest]
#   default   lint, format, types, tests of the default tier, doctests
#   --slow    the second tier of tests only
set -euo pipefail
cd "$(dirname "$0")/.."
extras=dev
[ "${1:-}" != "--slow" ] || extras=dev,torchao  # quantisation of every family, in the second tier alone
source scripts/environment.sh "$extras"
export OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false HF_HUB_OFFLINE=1 HF_HUB_DISABLE_TELEMETRY=1
workers="${TEST_WORKERS:-2}"
if [ "${1:-}" = "--slow" ]; then
  shift
  exec pytest -m slow -n "$workers" --durations=15 "$@"
fi
ruff check .
ruff format --check .
mypy
pytest -m "not slow" -n "$workers" --durations=15 tests "$@"
pytest --doctest-modules -n "$workers" hf_ptm_ext
