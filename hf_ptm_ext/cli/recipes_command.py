"""`hf-ptm-ext recipes [NAME]`: the recipes that come with the package, or one of them, to copy and edit."""

import argparse
import sys
from typing import Any

from . import COMMANDS
from .recipes import jobs_of_recipes, recipe_file
from .tables import text_table


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
    """Add the options of this sub-command."""
    parser = subparsers.add_parser(
        "recipes",
        help=COMMANDS["recipes"],
        description=COMMANDS["recipes"],
        epilog="hf-ptm-ext recipes quickstart.yaml > my.yaml; hf-ptm-ext pretrain my.yaml",
    )
    parser.add_argument("name", nargs="?", help="print this recipe")
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Print a recipe, or the table of all."""
    if arguments.name is None:
        rows = [(job or "", name, summary_of(name)) for name, job in jobs_of_recipes().items()]
        print(text_table(("job", "recipe", "what it is for"), sorted(rows)))
        return 0
    name = arguments.name if "." in arguments.name else f"{arguments.name}.yaml"
    sys.stdout.write(recipe_file(name).read_text(encoding="utf-8"))
    return 0


def summary_of(name: str) -> str:
    """The first comment line of a recipe, cut to a line."""
    line = recipe_file(name).read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")
    return line if len(line) <= 90 else line[:87].rpartition(" ")[0] + " ..."
