"""The console script `hf-ptm-ext`: one sub-command per job, each imported only when it is asked for."""

import argparse
import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

from ..version import __version__
from .errors import folded, told, without_secrets
from .ranges import check_ranges

# sub-command -> (module of this folder, line of help)
COMMANDS = {
    "pretrain": "pre-train a model on text, from a checkpoint or from scratch",
    "finetune": "fine-tune an encoder (classification, tagging, question answering), with and without a graph",
    "adapt": "train adapters on an encoder, with other methods and full fine-tuning beside them",
    "distill": "distil a student from a fine-tuned teacher, beside the same student alone",
    "multitask": "fine-tune one encoder on several tasks at once, beside each task alone",
    "stages": "run jobs one after the other, each from the model before it, with one report",
    "finetune-relations": "fine-tune an encoder for relation classification, with and without entities",
    "finetune-typing": "fine-tune an encoder for entity typing, with and without entities",
    "train-entity-vectors": "train entity vectors (TransE) on the triples of a knowledge graph",
    "finetune-seq2seq": "fine-tune a model on pairs of texts, and score what it writes",
    "convert": "turn an original checkpoint into a folder that is ready for the Hub",
    "verify": "load a checkpoint where this package is not installed and compare its outputs",
    "show": "draw the attention masks of a family, or what a knowledge graph injects into a text",
    "systems": "list the systems of this package and what they are made of",
}
# These read their own command line, from the raw arguments.
RAW = (
    *("pretrain", "finetune", "adapt", "distill", "multitask", "stages"),
    *("finetune-seq2seq", "finetune-relations", "finetune-typing"),
)

USER_MISTAKE = 2
# `main` takes the option out before anything is parsed; the parsers have it for their help.
DEBUG_HELP = "show the traceback of an error"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one sub-command.

    Args:
        argv: the arguments behind the program's name, those of the process by default.

    Returns:
        The exit code: 0 success, 1 the command's own verdict (`verify`), 2 a mistake in what was asked.

    Example:
        >>> main(["convert", "spanbert", "nowhere.pt", "target"])
        2
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    # Anywhere: whoever reads the hint adds it at the end, also behind commands that parse their own arguments.
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    position = _index_of_command(arguments)
    command = arguments[position] if position < len(arguments) else None
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # What a terminal cannot spell must not make a finished job fail.
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _run(command, arguments, position)
        if sys.stdout is not None:
            sys.stdout.flush()  # here, where an error of it can be told
        return code
    except KeyboardInterrupt:
        return _fail(command, "interrupted", 130, debug)
    except BrokenPipeError:
        # The reader of the output has seen enough (`| head`); without this the interpreter complains at its end.
        _drop_output()
        return 0
    except SystemExit:
        raise
    except BaseException as error:  # also the panics of libraries in Rust, which are no Exception
        line = told(error)
        if line is None:
            trace = traceback.format_exc()
            if without_secrets(trace) == trace:
                raise
            print(without_secrets(trace), file=sys.stderr)
            return 1
        if isinstance(error, OSError):
            _drop_output()
        return _fail(command, line, USER_MISTAKE, debug)


def _run(command: str | None, arguments: list[str], position: int) -> int:
    if command in RAW:
        return importlib.import_module(f"{__name__}.{_module_of(command)}").run(arguments[position + 1 :])
    parser = _parser(command)
    namespace = parser.parse_args(arguments)
    if namespace.command is None:
        parser.print_help()
        return USER_MISTAKE
    check_ranges(vars(namespace))
    return namespace.run(namespace)


def _drop_output() -> None:
    """Forget what could not be written, if there is such, so that the interpreter does not try again at its end."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _module_of(command: str) -> str:
    """Name of a sub-command's module."""
    return command.replace("-", "_")


def _index_of_command(arguments: Sequence[str]) -> int:
    """Position of the first argument that is no option of the program itself."""
    return next((index for index, argument in enumerate(arguments) if not argument.startswith("-")), len(arguments))


def _fail(command: str | None, message: str, code: int, debug: bool) -> int:
    if debug:
        print(without_secrets(traceback.format_exc()), file=sys.stderr)
    name = f"hf-ptm-ext {command}" if command else "hf-ptm-ext"
    hint = "" if debug or code != USER_MISTAKE else " (--debug shows where)"
    print(f"{name}: error: {message}{hint}", file=sys.stderr)
    return code


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line of sensible length, without secrets."""

    def error(self, message: str) -> NoReturn:
        super().error(folded(message))


def _parser(command: str | None) -> argparse.ArgumentParser:
    """The parser, with the options of one sub-command and the mere names of the others."""
    parser = _Parser(prog="hf-ptm-ext", description="Pre-trained-model systems as plugins for transformers.")
    parser.add_argument("--version", action="version", version=f"hf-ptm-ext {__version__}")
    parser.add_argument("--debug", action="store_true", help=DEBUG_HELP)
    subparsers = parser.add_subparsers(dest="command", metavar="command")
    for name, line in COMMANDS.items():
        if name == command:
            module = importlib.import_module(f"{__name__}.{_module_of(name)}")
            subparser = module.add_parser(subparsers)
            subparser.set_defaults(run=module.run)
            subparser.add_argument("--debug", action="store_true", help=DEBUG_HELP)
        else:
            subparsers.add_parser(name, help=line)
    return parser


__all__ = ["main"]
