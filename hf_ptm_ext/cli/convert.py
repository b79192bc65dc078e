"""`hf-ptm-ext convert FAMILY SOURCE TARGET`: an original checkpoint to a folder ready for the Hub, and back."""

import argparse
import dataclasses
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import COMMANDS, convert_adapters
from .console import log_to_console, phase
from .tables import print_report

if TYPE_CHECKING:
    from ..conversion.files import Checkpoint
    from ..conversion.layout import Conversion, Layout

# Families, each with a module of its name in `hf_ptm_ext.conversion`.
FAMILIES = (
    *("awd_lstm", "context2vec", "cove", "elmo", "ernie_thu", "ib_bert", "k_adapter", "kbert", "knowbert"),
    *(
        "ktnet",
        "mass",
        "mass_nmt",
        "nezha",
        "skip_thought",
        "spanbert",
        "static_embedding",
        "tinybert",
        "transfo_xl",
        "unilm",
    ),
    "zen",
)
CONFIG_NAMES = ("config.json", "bert_config.json", "ernie_config.json", "options.json")
# Flag of some families alone -> those, and what the parser is told of it: options of the conversion, but for `FILES`.
FAMILY_OPTIONS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "--codes": (
        ("mass", "mass_nmt"),
        {"type": Path, "help": "BPE codes of an XLM-like model (default: `codes` beside the source)"},
    ),
    "--reference_parity": (
        ("kbert",),
        {
            "action": "store_true",
            "default": None,
            "help": "keep UER's LayerNorm, three segment rows and the reference's padding (default: as in BERT)",
        },
    ),
    "--no_fold_layer_norm": (
        ("kbert",),
        {
            "action": "store_false",
            "dest": "fold_layer_norm",
            "default": None,
            "help": "the weights are Google's, renamed for UER (google_model.bin), so LayerNorms are BERT's already",
        },
    ),
    "--word_vectors": (
        ("cove",),
        {"type": Path, "help": "file of the word vectors that the weights lack, GloVe's say (default: none)"},
    ),
    "--layout": (
        ("awd_lstm",),
        {
            "choices": ("fastai2", "fastai1", "fastai0.7", "encoder", "salesforce"),
            "help": "whose names --to_original writes (default: fastai2)",
        },
    ),
    "--encoder": (
        ("k_adapter", "ktnet"),
        {"help": "the folder or repository of the encoder (default: none, it is new)"},
    ),
}
FILES = ("codes", "word_vectors")
# End of a class name -> task of the Hub; other classes fill masks.
PIPELINE_TAGS = {
    "Model": "feature-extraction",
    "ForSequenceClassification": "text-classification",
    "ForTokenClassification": "token-classification",
    "ForQuestionAnswering": "question-answering",
}
# Classes whose predictions come from the pooler.
READ_POOLERS = ("ForSequenceClassification", "ForMultipleChoice", "ForEntityTyping", "ForNextSentencePrediction")
TOKENIZER_FILE = "tokenizer.json"


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
    """Add the options of this sub-command."""
    about = COMMANDS["convert"]
    parser = subparsers.add_parser("convert", help=about, description=about, add_help=False)
    parser.add_argument("-h", "--help", action=_Help, nargs=0, help="show this help, behind a family also its options")
    parser.add_argument(
        "family",
        choices=sorted((*FAMILIES, *convert_adapters.METHODS)),
        help="the family of the checkpoint, or the method of an adapter of the `adapters` library",
    )
    parser.add_argument(
        "source",
        type=Path,
        help="a .safetensors, .bin, .pt, .pth, .th, .npz, .hdf5 or .ckpt.index file, or a folder with one or shards",
    )
    parser.add_argument("target", type=Path, help="the folder to write")
    parser.add_argument(
        "--config", type=Path, help="JSON file of the original's options (default: the one beside the source)"
    )
    parser.add_argument(
        "--vocab",
        type=Path,
        help="vocab.txt, or a tokenizer.json of word pieces (default: the one beside the source, if any)",
    )
    case = parser.add_mutually_exclusive_group()
    case.add_argument("--cased", action="store_true", help="the vocabulary is cased (default: seen from its pieces)")
    case.add_argument("--uncased", action="store_true", help="the vocabulary is lower case")
    own = parser.add_argument_group(
        "options of one family", f"`convert FAMILY --help` shows those of {', '.join(_with_options())}"
    )
    for flag, (_, told) in FAMILY_OPTIONS.items():
        own.add_argument(flag, **told)
    parser.add_argument("--license", default="unknown", help="licence of the weights, for the card (default: unknown)")
    parser.add_argument(
        "--language",
        nargs="+",
        help="language codes, for the card (default: the model's own if it names them, else en)",
    )
    parser.add_argument("--repo_id", help="where the folder will be on the Hub, for the card's snippets")
    parser.add_argument(
        "--to_original",
        action="store_true",
        help="the other way: SOURCE is a folder of ours, TARGET gets model.pt and config.json of the original code",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace a checkpoint in the target folder")
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Convert, write and report."""
    from ..conversion.files import read_checkpoint
    from ..hub.folders import check_target

    check_target(arguments.target, arguments.overwrite)
    source, target = arguments.source.resolve(), arguments.target.resolve()
    if source == target or target in source.parents:
        raise ValueError(f"`target` must not hold the source, got {target}. Choose another folder.")
    if arguments.family in convert_adapters.METHODS:
        return convert_adapters.run(arguments)
    log_to_console()
    layout = importlib.import_module(f"hf_ptm_ext.conversion.{arguments.family}").LAYOUT
    with phase("reading the checkpoint"):
        if arguments.to_original:
            return _to_original(read_checkpoint(arguments.source), layout, arguments)
        checkpoint = layout.read(arguments.source, arguments.word_vectors)
    return _to_ours(checkpoint, layout, arguments)


# ---- an original to ours ----


def _to_ours(checkpoint: "Checkpoint", layout: "Layout", arguments: argparse.Namespace) -> int:
    from safetensors.torch import save_file

    from ..conversion.tensors import unshared
    from ..hub.folders import written_whole

    infers = bool(checkpoint.arguments) or layout.infers_sizes
    options = {**checkpoint.arguments, **_options(arguments, infers), **_family_options(arguments)}
    vocabulary = _vocabulary(layout, arguments)
    if vocabulary is not None:
        options |= layout.vocabulary_options(vocabulary[1], options)
    with phase("converting"):
        conversion = layout.convert_checkpoint(checkpoint.tensors, options)
    conversion = dataclasses.replace(conversion, initialised=conversion.initialised | _made_new(conversion))
    write_tokenizer, tokenizer = _tokenizer(layout, checkpoint, conversion, vocabulary, arguments)
    more = layout.more_files(checkpoint.tensors)
    with phase("writing"), written_whole(arguments.target, arguments.overwrite) as folder:
        write_tokenizer(folder)
        _write_model(folder, conversion)
        _write_card(folder, conversion, layout, arguments)
        for name, tensors in more.items():
            save_file(unshared(tensors), folder / name, metadata={"format": "pt"})
        written = sorted(path.name for path in folder.iterdir())
    _report(checkpoint, conversion, tokenizer, arguments.target, written)
    return 0


def _options(arguments: argparse.Namespace, has_own: bool) -> dict[str, Any]:
    """The options in the config file; without one those inside the checkpoint must do."""
    from ..conversion.files import beside
    from ..files import read_json

    path = arguments.config or beside(arguments.source, CONFIG_NAMES)
    if path is not None:
        return read_json(path, strict=True)
    if has_own:
        return {}
    raise ValueError(
        f"`--config` must name the JSON file with the sizes of the model: there is no {' or '.join(CONFIG_NAMES)} "
        f"beside {arguments.source}, and the checkpoint holds no options."
    )


def _family_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Options of the conversion itself, of the family that has them."""
    options = {}
    for flag, (families, told) in FAMILY_OPTIONS.items():
        name = told.get("dest", flag[2:])
        value = getattr(arguments, name)
        if value is None:
            continue
        if arguments.family not in families:
            raise ValueError(
                f"`{flag}` is one of the options of {' and '.join(families)}, got {arguments.family}: leave it out."
            )
        if name not in FILES:
            options[name] = value
    return options


def _with_options() -> list[str]:
    """The families that have options of their own."""
    return sorted({family for families, _ in FAMILY_OPTIONS.values() for family in families})


class _Help(argparse.Action):
    """Prints the help with the options of the family that stands before it, without those of the others, and ends."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, *_: Any) -> None:
        for action in parser._actions:
            known = [FAMILY_OPTIONS[flag][0] for flag in action.option_strings if flag in FAMILY_OPTIONS]
            if known and getattr(namespace, "family", None) not in known[0]:
                action.help = argparse.SUPPRESS
        parser.print_help()
        parser.exit()


def _made_new(conversion: "Conversion") -> dict[str, str]:
    """What loading the folder makes new beside the heads that the report names: a pooler, if no head reads it."""
    import torch
    import transformers

    import hf_ptm_ext

    owner = hf_ptm_ext if hasattr(hf_ptm_ext, conversion.architecture) else transformers
    with torch.device("meta"):
        model = getattr(owner, conversion.architecture)(conversion.config)
    base = f"{model.base_model_prefix}." if model.base_model is model else ""
    told = tuple(head.removesuffix("*") for head in conversion.initialised)
    names = {f"{base}{name}" for name, _ in model.named_parameters()}
    names -= {*conversion.tensors, *(f"{base}{name}" for name in model.all_tied_weights_keys)}
    names = {name for name in names if not (told and name.startswith(told))}
    foreign = [name for name in names if ".pooler." not in name or conversion.architecture.endswith(READ_POOLERS)]
    if foreign:
        from ..conversion.files import name_some

        raise ValueError(f"The file lacks weights of {conversion.architecture}: {name_some(sorted(foreign))}.")
    return {"bert.pooler.*": "pooler"} if names else {}


def _vocabulary(layout: "Layout", arguments: argparse.Namespace) -> tuple[Path, dict[str, int]] | None:
    """The file of word pieces and what it holds, if there is one and the family has such."""
    from ..conversion.vocabulary import read_tokenizer

    path = _vocab_file(arguments, layout.vocabulary_names(arguments.source)) if layout.wordpieces else None
    if path is None:
        return None
    return path, (read_tokenizer if path.suffix == ".json" else layout.read_vocabulary)(path)


def _vocab_file(arguments: argparse.Namespace, names: tuple[str, ...]) -> Path | None:
    from ..conversion.files import beside

    if arguments.vocab is not None and not arguments.vocab.exists():
        raise FileNotFoundError(f"`--vocab` must be a vocab.txt, got {arguments.vocab}, which does not exist.")
    return arguments.vocab or beside(arguments.source, names)


def _tokenizer(
    layout: "Layout",
    checkpoint: "Checkpoint",
    conversion: "Conversion",
    vocabulary: tuple[Path, dict[str, int]] | None,
    arguments: argparse.Namespace,
) -> tuple[Callable[[Path], None], list[str]]:
    """What writes the tokenizer into a folder, and what the report says of it; sets what the config takes from it."""
    from ..conversion.files import beside
    from ..conversion.vocabulary import looks_cased, lowercases
    from ..files import write_whole

    config = conversion.config
    if not layout.wordpieces:
        codes = arguments.codes or beside(arguments.source, ("codes",))
        vocab = arguments.vocab or beside(checkpoint.files[0], layout.word_files)
        files, lines = layout.tokenizer_from(checkpoint.words, config, vocab, codes, arguments.uncased)

        def write_files(folder: Path) -> None:
            for name, text in files.items():
                write_whole(folder / name, text)

        return write_files, lines
    if vocabulary is None:
        return lambda folder: None, []
    vocab_file, vocab = vocabulary
    if len(vocab) > config.vocab_size:
        raise ValueError(
            f"{vocab_file} has {len(vocab)} pieces, more than `vocab_size` = {config.vocab_size} of the weights."
        )
    if max(vocab.values()) >= config.vocab_size:
        raise ValueError(
            f"{vocab_file} has the id {max(vocab.values())}, and the weights `vocab_size` = {config.vocab_size} rows."
        )
    seen = not lowercases(vocab_file) if vocab_file.suffix == ".json" else looks_cased(vocab)
    cased = arguments.cased or (not arguments.uncased and seen)
    config.pad_token_id = vocab.get("[PAD]", config.pad_token_id)
    more = {}
    for argument, name in layout.tokenizer_files.items():
        path = beside(arguments.source, (name,))
        if path is None:
            raise ValueError(f"{name} must be beside {arguments.source}: the tokenizer needs it. Copy it there.")
        more[argument] = path

    def write_bert(folder: Path) -> None:
        layout.wordpiece_tokenizer(vocab, config, not cased, **more).save_pretrained(folder)

    read = [f"{vocab_file}, {'cased' if cased else 'lower case'}", *(str(path) for path in more.values())]
    return write_bert, read


def _write_model(folder: Path, conversion: "Conversion") -> None:
    from huggingface_hub import save_torch_state_dict

    from ..conversion.tensors import unshared
    from ..hub.export import finish_folder

    config = conversion.config
    config.architectures = [conversion.architecture]
    config.dtype = next(tensor.dtype for tensor in conversion.tensors.values() if tensor.is_floating_point())
    config.save_pretrained(folder)
    save_torch_state_dict(unshared(conversion.tensors), folder)
    finish_folder(folder)


def _write_card(folder: Path, conversion: "Conversion", layout: "Layout", arguments: argparse.Namespace) -> None:
    from ..hub.model_card import write_model_card

    tag = next((tag for head, tag in PIPELINE_TAGS.items() if conversion.architecture.endswith(head)), "fill-mask")
    if conversion.architecture.endswith("ForConditionalGeneration") and not conversion.config.is_encoder_decoder:
        tag = "text-generation"
    repo_id = arguments.repo_id or f"your-name/{arguments.target.resolve().name}"
    write_model_card(
        folder,
        family=arguments.family,
        metrics={},
        baselines={},
        training={},
        data={"name": "see the original checkpoint", "license": "unknown"},
        language=arguments.language or sorted(getattr(conversion.config, "lang2id", None) or ["en"]),
        license=arguments.license,
        repo_id=repo_id,
        pipeline_tag=layout.pipeline_tag or tag,
        description=f"Converted from `{arguments.source.name}` by `hf-ptm-ext convert {arguments.family}`: the same "
        "weights under the names of transformers.",
        limitations=[
            f"The file had no {what} (`{head}`): it is new in every model that has it."
            for head, what in conversion.initialised.items()
        ]
        + [
            f"The {what} (`{part}`) is random: the source had none. It has to be trained."
            for part, what in conversion.filled.items()
        ],
    )


def _report(
    checkpoint: "Checkpoint", conversion: "Conversion", tokenizer: list[str], target: Path, written: list[str]
) -> None:
    wrapper = f", under `{checkpoint.wrapper}`" if checkpoint.wrapper else ""
    weights = sum(tensor.numel() for tensor in conversion.tensors.values())
    lines = [
        ("read", [f"{', '.join(str(path) for path in checkpoint.files)}{wrapper}"]),
        ("mapped", [f"{len(conversion.tensors)} tensors, {weights} weights, to {conversion.architecture}"]),
        ("renamed", [f"{change}: {number} keys" for change, number in conversion.renamed.items()]),
        ("dropped", [f"{key}: {reason}" for key, reason in conversion.dropped.items()]),
        (
            "initialised",
            [
                f"{head} ({what}), whenever a model that has it is loaded: the file has none"
                for head, what in conversion.initialised.items()
            ]
            + [
                f"{part} ({what}), at random, in the file that was written: the source has none"
                for part, what in conversion.filled.items()
            ],
        ),
        ("assumed", [f"{field} {value}" for field, value in conversion.assumed.items()]),
        ("tokenizer", tokenizer),
        ("wrote", [f"{target}: {', '.join(written)}"]),
        ("next", [f"hf-ptm-ext verify {target}"]),
    ]
    print_report([(word, entries or ["nothing"]) for word, entries in lines])


# ---- ours to the original's ----


def _to_original(checkpoint: "Checkpoint", layout: "Layout", arguments: argparse.Namespace) -> int:
    from transformers import AutoConfig

    import hf_ptm_ext  # noqa: F401 - registers the families

    from ..conversion.files import beside
    from ..conversion.options import made_config
    from ..files import read_json
    from ..hub.folders import written_whole

    config_file = arguments.config or beside(arguments.source, CONFIG_NAMES)
    if config_file is None:
        raise ValueError(f"`source` must be a folder of ours with a config.json, got {arguments.source}.")
    fields = read_json(config_file, strict=True)
    if fields.get("model_type") != (layout.model_type or layout.family):
        raise ValueError(
            f"`source` must be a {arguments.family} checkpoint, got `model_type` {fields.get('model_type')!r}."
        )
    config: Any = made_config(lambda **options: AutoConfig.for_model(**options), fields, arguments.family)
    layout = layout.for_options(_family_options(arguments))
    tensors, options = layout.revert_checkpoint(checkpoint.tensors, config)
    tensors |= layout.revert_more_files(config_file.parent, config)
    vocabulary = _vocab_file(arguments, ("vocab.txt", TOKENIZER_FILE)) if layout.wordpieces else None
    with written_whole(arguments.target, arguments.overwrite) as folder:
        layout.write_original(folder, tensors, options, config_file.parent, vocabulary)
        written = sorted(path.name for path in folder.iterdir())
    print_report(
        [
            ("read", [", ".join(str(path) for path in checkpoint.files)]),
            ("mapped", [f"{len(tensors)} tensors to the original's names, tied copies included"]),
            ("made up", layout.made_up(config)),
            ("wrote", [f"{arguments.target}: {', '.join(written)}"]),
        ]
    )
    return 0
