"""`hf-ptm-ext systems`: the table of systems, as text, JSON or Markdown."""

import argparse
import json
from typing import Any

from ..systems import HEADER, markdown_table, systems_as_dicts, table_rows
from . import COMMANDS
from .tables import text_table


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
    """Add the options of this sub-command.

    Args:
        subparsers: what `add_subparsers` gave.

    Returns:
        Its parser.
    """
    parser = subparsers.add_parser("systems", help=COMMANDS["systems"], description=COMMANDS["systems"])
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON, with full class names")
    form.add_argument("--markdown", action="store_true", help="print the table of the README")
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Print the table.

    Args:
        arguments: the parsed command line.

    Returns:
        The exit code, 0.
    """
    if arguments.json:
        print(json.dumps(systems_as_dicts(), indent=2, ensure_ascii=False))
    elif arguments.markdown:
        print(markdown_table())
    else:
        print(text_table(HEADER, table_rows()))
    return 0
