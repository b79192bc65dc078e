"""`hf-ptm-ext verify FOLDER_OR_REPO`: does the checkpoint work where this package is not installed?"""

import argparse
from typing import Any

from . import COMMANDS
from .console import phase
from .tables import text_table

HEADER = ("auto class", "loads as", "new heads", "max difference", "re-save")


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
    """Add the options of this sub-command."""
    parser = subparsers.add_parser(
        "verify",
        help=COMMANDS["verify"],
        description=f"{COMMANDS['verify'].capitalize()}. This runs the code files of the checkpoint, which are listed "
        "first. A folder whose code is that of the installed package needs no flag.",
    )
    parser.add_argument("source", help="a checkpoint's folder, or the id of a repository of the Hub")
    parser.add_argument(
        "--trust_remote_code",
        action="store_true",
        help="run the code of a repository of the Hub, or of a folder that is not as installed; read it first",
    )
    parser.add_argument("--revision", help="branch, tag or commit of the repository (default: main)")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds for the fresh process (default: 600)")
    parser.add_argument(
        "--tolerance", type=float, default=1e-5, help="largest difference of an output that passes (default: 1e-5)"
    )
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Verify and print the findings."""
    from ..hub.verify import verify

    with phase("verifying"):
        found = verify(
            arguments.source,
            trust_remote_code=arguments.trust_remote_code,
            revision=arguments.revision,
            timeout=arguments.timeout,
            tolerance=arguments.tolerance,
            announce=lambda line: print(line, flush=True),
        )
    if found.results:
        print()
        print(text_table(HEADER, [_row(result) for result in found.results]))
    print()
    for problem in found.problems:
        print(f"FAILED  {problem}")
    if found.unread:
        print(f"UNREAD  {len(found.unread)} tensors of the file, by every class: {', '.join(found.unread[:4])}")
    if found.ok:
        print(f"OK      {found.source} works without the package and gives the outputs of the installed classes.")
    return 0 if found.ok else 1


def _row(result: Any) -> tuple[str, ...]:
    if not result.class_name:
        return (result.auto_class, "FAILED", "", "", "")
    difference = "unknown" if result.difference is None else f"{result.difference:.1e}"
    return (
        result.auto_class,
        result.class_name,
        ", ".join(result.new_heads) or "none",
        difference,
        "complete" if result.resaved else "FAILED",
    )
