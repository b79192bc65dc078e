"""`hf-ptm-ext systems [NAME]`: the table of systems, or what one is made of, as text, JSON or Markdown."""

import argparse
import json
from dataclasses import asdict
from typing import Any

from ..systems import HEADER, facts_of, find_system, markdown_page, systems_as_dicts, table_rows
from . import COMMANDS
from .tables import text_table


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
    """Add the options of this sub-command."""
    parser = subparsers.add_parser("systems", help=COMMANDS["systems"], description=COMMANDS["systems"])
    parser.add_argument("name", nargs="?", help="a system or a family, such as TinyBERT or kbert")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON, with full class names")
    form.add_argument("--markdown", action="store_true", help="print the page of the documentation")
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Print the table, or one system."""
    system = find_system(arguments.name) if arguments.name else None
    if arguments.json:
        print(json.dumps(asdict(system) if system else systems_as_dicts(), indent=2, ensure_ascii=False))
    elif arguments.markdown:
        print(markdown_page(), end="")
    elif system:
        print(system.name)
        print("\n".join(f"  {name:<10}  {value}" for name, value in facts_of(system).items()))
    else:
        print(text_table(HEADER, table_rows()))
    return 0
