"""The console script `hf-ptm-ext`: one sub-command per job, each imported only when it is asked for."""

import argparse
import atexit
import gc
import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

from ..hints import did_you_mean
from ..version import __version__
from .console import console
from .errors import told, without_secrets
from .ranges import check_ranges

# sub-command -> (module of this folder, line of help)
COMMANDS = {
    "pretrain": "pre-train a model on text, from a checkpoint or from scratch",
    "finetune": "fine-tune an encoder (classification, tagging, question answering), with and without a graph",
    "adapt": "train adapters on an encoder, with other methods and full fine-tuning beside them",
    "compress": "fine-tune and compress an encoder (pruning, whole numbers, fewer layers), beside it uncompressed",
    "distill": "distil a student from a fine-tuned teacher, beside the same student alone",
    "multitask": "fine-tune one encoder on several tasks at once, beside each task alone",
    "stages": "run jobs one after the other, each from the model before it, with one report",
    "finetune-relations": "fine-tune an encoder for relation classification, with and without entities",
    "finetune-typing": "fine-tune an encoder for entity typing, with and without entities",
    "train-entity-vectors": "train entity vectors (TransE) on the triples of a knowledge graph",
    "finetune-seq2seq": "fine-tune a model on pairs of texts, and score what it writes",
    "convert": "turn an original checkpoint into a folder that is ready for the Hub",
    "verify": "load a checkpoint where this package is not installed and compare its outputs",
    "show": "draw what a pre-training objective or a knowledge graph does to a text, or the masks of a family",
    "systems": "list the systems of this package, or say what one is made of",
    "evidence": "list what experiments have shown, or print claim, command and last results of one",
    "recipes": "list the recipes that come with the package, or print one",
    "env": "print the versions and devices that a report needs",
}
# The jobs, which read their own command line, from the raw arguments.
RAW = (
    *("pretrain", "finetune", "adapt", "compress", "distill", "multitask", "stages"),
    *("finetune-seq2seq", "finetune-relations", "finetune-typing"),
)

USER_MISTAKE = 2
INTERRUPTED = (
    "interrupted. The same command with --resume_from_checkpoint auto goes on from the last checkpoint or finished "
    "run, if any."
)
# `main` takes the option out before anything is parsed; the parsers have it for their help.
DEBUG_HELP = "show the traceback of an error"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one sub-command.

    Args:
        argv: the arguments behind the program's name, those of the process by default.

    Returns:
        The exit code: 0 success, 1 the command's own verdict (`verify`), 2 a mistake in what was asked.

    Examples:
        >>> main(["convert", "spanbert", "nowhere.pt", "target"])
        2
    """
    arguments = [in_snake_case(word) for word in (sys.argv[1:] if argv is None else argv)]
    # Anywhere: whoever reads the hint adds it at the end, also behind commands that parse their own arguments.
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    position = _index_of_command(arguments)
    command = arguments[position] if position < len(arguments) else None
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # What a terminal cannot spell must not make a finished job fail.
            stream.reconfigure(errors="backslashreplace")
    atexit.register(gc.freeze)  # the interpreter would look through all of torch for what it can free, for seconds
    if command in COMMANDS and not any("disable_tqdm" in word for word in arguments):  # of a recipe it is read later
        console.start("loading the libraries")
    try:
        code = _run(command, arguments, position)
        if sys.stdout is not None:
            sys.stdout.flush()  # here, where an error of it can be told
        return code
    except KeyboardInterrupt:
        return _fail(command, INTERRUPTED if command in RAW else "interrupted", 130, debug)
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
    finally:
        console.stop()


def _run(command: str | None, arguments: list[str], position: int) -> int:
    if command in RAW:
        code = _loaded(command).run(arguments[position + 1 :])
        _leave_the_other_processes()
        return code
    if command is not None and command not in COMMANDS:
        raise ValueError(f"there is no command {command!r}.{did_you_mean(command, COMMANDS)} See `hf-ptm-ext --help`.")
    parser, subparser = _parser(command)
    namespace, rest = parser.parse_known_args(arguments)
    if namespace.command is None:
        parser.print_help()
        return USER_MISTAKE
    if rest and getattr(namespace, "subject", "") is None and not rest[0].startswith("-"):
        namespace.subject = rest.pop(0)  # argparse takes what may be missing before the options only
    subparser.refuse(rest)
    check_ranges(vars(namespace))
    return namespace.run(namespace)


def _loaded(command: str) -> Any:
    """A job's module. The libraries make a million objects that stay, so no search for garbage need look at them."""
    fresh = "torch" not in sys.modules
    if fresh:
        gc.disable()
    try:
        return importlib.import_module(f"{__name__}.{_module_of(command)}")
    finally:
        if fresh:
            gc.freeze()
            gc.enable()


def _leave_the_other_processes() -> None:
    """End the communication of a run over several processes: threads of it that outlive the interpreter abort it."""
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        gc.collect()  # what still holds it goes first
        distributed.destroy_process_group()


def _drop_output() -> None:
    """Forget what could not be written, if there is such, so that the interpreter does not try again at its end."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def in_snake_case(word: str) -> str:
    """A flag in the one spelling that the parsers know: `--train-file` is `--train_file`; other words stay."""
    if not word.startswith("--") or word == "--":
        return word
    flag, equals, value = word.partition("=")
    group, dot, name = flag[2:].rpartition(".")  # `--tasks.NAME.train-file`: the name is the user's own
    return f"--{group}{dot}{name.replace('-', '_')}{equals}{value}"


def _module_of(command: str) -> str:
    """Name of a sub-command's module."""
    return "recipes_command" if command == "recipes" else command.replace("-", "_")


def _index_of_command(arguments: Sequence[str]) -> int:
    """Position of the first argument that is no option of the program itself."""
    return next((index for index, argument in enumerate(arguments) if not argument.startswith("-")), len(arguments))


def _fail(command: str | None, message: str, code: int, debug: bool) -> int:
    if debug:
        print(without_secrets(traceback.format_exc()), file=sys.stderr)
    name = f"hf-ptm-ext {command}" if command in COMMANDS else "hf-ptm-ext"
    hint = "" if debug or code != USER_MISTAKE else " (--debug shows where)"
    print(f"{name}: error: {message}{hint}", file=sys.stderr)
    return code


class LineParser(argparse.ArgumentParser):
    """A parser whose mistakes are errors of one line, with what was meant; it takes no beginning for a whole flag."""

    def __init__(self, *groups: Any, **options: Any):
        super().__init__(*groups, **{"allow_abbrev": False, **options})

    def error(self, message: str) -> NoReturn:
        """Raise what the base class would print."""
        end = "" if message.endswith(("?", ".")) else "."
        raise ValueError(f"{message}{end} See `{self.prog.partition(',')[0]} --help`.")

    def refuse(self, rest: Sequence[str], hint: str = "") -> None:
        """Refuse words that nothing reads."""
        if rest:
            if rest[0].startswith("-"):
                hint = did_you_mean(rest[0].partition("=")[0], self._option_string_actions)
            self.error(f"{rest[0]!r} is no argument of {self.prog}{hint and f'.{hint}'}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        for one in value if isinstance(value, list) else [value]:  # a list may be one word, in JSON
            if action.choices is not None and one is not None:
                check_choice(action.dest, one, tuple(action.choices))


def check_choice(name: str, value: Any, choices: Sequence[Any]) -> None:
    """Refuse what is none of the choices."""
    if value not in choices:
        listed = ", ".join(map(str, choices))
        raise ValueError(f"`{name}` must be one of {listed}, got {value!r}.{did_you_mean(value, choices)}")


def _parser(command: str | None) -> tuple[LineParser, LineParser]:
    """The parser, with the options of one sub-command and the mere names of the others; that sub-command's."""
    parser = own = LineParser(
        prog="hf-ptm-ext",
        description="Pre-trained-model systems as plugins for transformers.",
        epilog="`hf-ptm-ext COMMAND --help` has options and examples, `hf-ptm-ext recipes` the settings of papers to "
        "begin with. Documentation: the folder docs of the source, `mkdocs serve`. Scripts: its folder examples.",
    )
    parser.add_argument("--version", action="version", version=f"hf-ptm-ext {__version__}")
    parser.add_argument("--debug", action="store_true", help=DEBUG_HELP)
    subparsers = parser.add_subparsers(dest="command", metavar="command")
    for name, line in COMMANDS.items():
        if name == command:
            module = importlib.import_module(f"{__name__}.{_module_of(name)}")
            own = module.add_parser(subparsers)
            own.set_defaults(run=module.run)
            own.add_argument("--debug", action="store_true", help=DEBUG_HELP)
        else:
            subparsers.add_parser(name, help=line)
    return parser, own


__all__ = ["main"]
