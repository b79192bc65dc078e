"""`hf-ptm-ext evidence [ID]`: what the experiments have shown, or claim, command and last results of one."""

import argparse
from typing import Any

from ..evidence import experiments, find_experiment, section
from . import COMMANDS
from .tables import text_table


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
    """Add the options of this sub-command."""
    parser = subparsers.add_parser("evidence", help=COMMANDS["evidence"], description=COMMANDS["evidence"])
    parser.add_argument("id", nargs="?", help="an experiment, such as K1")
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Print the list, or one experiment."""
    if arguments.id:
        print(section(find_experiment(arguments.id)), end="")
        return 0
    rows = [(one["id"], one["verdict"], " ".join(one["claim"].split())) for one in experiments().values()]
    print(text_table(("id", "verdict", "claim"), rows))
    return 0
