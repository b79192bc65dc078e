"""Write the families' synced copies of the canonical encoder block and heads, or check that they are up to date.

    python scripts/sync_copies.py          # write
    python scripts/sync_copies.py --check  # exit code 1 and the names of the stale files

A checkpoint carries its family's folder and nothing else of the package, so shared code travels as one copy per
family; this script is the only thing that may write a copy.
"""

import argparse
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MODELS = ROOT / "hf_ptm_ext" / "models"
# canonical file stem -> families that carry it, with their class prefixes
COPIES = {
    "encoder": {"spanbert": "SpanBert", "unilm": "UniLM"},
    "heads": {"spanbert": "SpanBert", "unilm": "UniLM"},
    "loading": {"spanbert": "SpanBert", "unilm": "UniLM"},
}
HEADER = "# Generated from models/canonical/{stem}_canonical.py by scripts/sync_copies.py; change that file.\n"


def render(stem: str, prefix: str) -> str:
    """The copy of one canonical file under a family's class prefix, formatted as the project is."""
    source = (MODELS / "canonical" / f"{stem}_canonical.py").read_text(encoding="utf-8")
    text = HEADER.format(stem=stem) + source.replace("Canonical", prefix)
    formatted = subprocess.run(
        [sys.executable, "-m", "ruff", "format", "--config", str(ROOT / "pyproject.toml"), "-"],
        input=text,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
        cwd=ROOT,
    )
    return formatted.stdout


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, exit with 1 if a copy is stale")
    options = parser.parse_args(arguments)
    stale = []
    for stem, families in COPIES.items():
        for family, prefix in families.items():
            target = MODELS / family / f"{stem}_{family}.py"
            text = render(stem, prefix)
            if target.exists() and target.read_text(encoding="utf-8") == text:
                continue
            stale.append(str(target.relative_to(ROOT)))
            if not options.check:
                target.parent.mkdir(exist_ok=True)
                target.write_text(text, encoding="utf-8")
    for name in stale:
        print(("stale: " if options.check else "wrote: ") + name)
    return int(options.check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
