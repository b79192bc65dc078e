# Sourced by the other scripts: make .venv if there is none and install the package into it with the asked extras.
# Usage: source scripts/environment.sh EXTRAS     (EXTRAS: a comma-separated list, such as viz or dev)
extras="$1"
stamp=".venv/.installed-$extras-$(cat pyproject.toml scripts/constraints.txt | cksum | cut -d' ' -f1)"
if [ ! -f "$stamp" ]; then
  [ -x .venv/bin/python ] || "${PYTHON:-python3}" -m venv .venv
  # torch first and by itself: an exact version may come from a local wheel, where a range would not.
  .venv/bin/python -m pip install --quiet "$(grep '^torch==' scripts/constraints.txt)"
  .venv/bin/python -m pip install --quiet --constraint scripts/constraints.txt --editable ".[$extras]"
  touch "$stamp"
fi
PATH="$PWD/.venv/bin:$PATH"
