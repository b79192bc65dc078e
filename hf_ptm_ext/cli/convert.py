"""`hf-ptm-ext convert FAMILY SOURCE TARGET`: an original checkpoint to a folder ready for the Hub, and back."""

import argparse
import dataclasses
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import COMMANDS, convert_adapters

# family -> module that converts it
FAMILIES = {
    "ib_bert": "hf_ptm_ext.conversion.ib_bert",
    "kbert": "hf_ptm_ext.conversion.kbert",
    "mass": "hf_ptm_ext.conversion.mass",
    "ernie_thu": "hf_ptm_ext.conversion.ernie_thu",
    "mass_nmt": "hf_ptm_ext.conversion.mass_nmt",
    "nezha": "hf_ptm_ext.conversion.nezha",
    "spanbert": "hf_ptm_ext.conversion.spanbert",
    "tinybert": "hf_ptm_ext.conversion.tinybert",
    "unilm": "hf_ptm_ext.conversion.unilm",
    "zen": "hf_ptm_ext.conversion.zen",
}
CONFIG_NAMES = ("config.json", "bert_config.json", "ernie_config.json")
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
SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
    """Add the options of this sub-command.

    Args:
        subparsers: what `add_subparsers` gave.

    Returns:
        Its parser.
    """
    parser = subparsers.add_parser("convert", help=COMMANDS["convert"], description=COMMANDS["convert"])
    parser.add_argument(
        "family",
        choices=sorted((*FAMILIES, *convert_adapters.METHODS)),
        help="the family of the checkpoint, or the method of an adapter of the `adapters` library",
    )
    parser.add_argument(
        "source", type=Path, help="a .safetensors, .bin, .pt, .pth or .npz file, or a folder with one or with shards"
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
    parser.add_argument(
        "--codes", type=Path, help="BPE codes of an XLM-like model (default: `codes` beside the source)"
    )
    case = parser.add_mutually_exclusive_group()
    case.add_argument("--cased", action="store_true", help="the vocabulary is cased (default: seen from its pieces)")
    case.add_argument("--uncased", action="store_true", help="the vocabulary is lower case")
    parser.add_argument(
        "--reference-parity",
        action="store_true",
        help="kbert: keep UER's LayerNorm, three segment rows and the reference's padding (default: as in BERT)",
    )
    parser.add_argument(
        "--no-fold-layer-norm",
        action="store_true",
        help="kbert: the weights are Google's, renamed for UER (google_model.bin), so LayerNorms are BERT's already",
    )
    parser.add_argument("--license", default="unknown", help="licence of the weights, for the card (default: unknown)")
    parser.add_argument(
        "--language",
        nargs="+",
        help="language codes, for the card (default: the model's own if it names them, else en)",
    )
    parser.add_argument("--repo-id", help="where the folder will be on the Hub, for the card's snippets")
    parser.add_argument(
        "--to-original",
        action="store_true",
        help="the other way: SOURCE is a folder of ours, TARGET gets model.pt and config.json of the original code",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace a checkpoint in the target folder")
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Convert, write and report.

    Args:
        arguments: the parsed command line.

    Returns:
        The exit code, 0.

    Raises:
        ValueError: checkpoint, options and vocabulary do not fit together, or the target is no place for them.
        OSError: a file cannot be read or written.
    """
    from ..hub.folders import check_target, written_whole

    check_target(arguments.target, arguments.overwrite)
    _check_apart(arguments.source, arguments.target)
    if arguments.family in convert_adapters.METHODS:
        return convert_adapters.run(arguments)

    from safetensors.torch import save_file

    from ..conversion.files import read_checkpoint
    from ..conversion.layout import unshared

    checkpoint = read_checkpoint(arguments.source)
    if arguments.to_original:
        return _revert(checkpoint, arguments)
    module = importlib.import_module(FAMILIES[arguments.family])
    infers = bool(checkpoint.arguments) or getattr(module, "INFERS_SIZES", False)
    options = {**checkpoint.arguments, **_options(arguments, infers), **_family_options(arguments)}
    vocabulary = _vocabulary(module, arguments)
    if vocabulary is not None and hasattr(module, "vocabulary_options"):
        options |= module.vocabulary_options(vocabulary[1], options)
    conversion = module.convert_checkpoint(checkpoint.tensors, options)
    conversion = dataclasses.replace(conversion, initialised=conversion.initialised | _made_new(conversion))
    write_tokenizer, tokenizer = _tokenizer(module, checkpoint, conversion, vocabulary, arguments)
    more = module.more_files(checkpoint.tensors) if hasattr(module, "more_files") else {}
    with written_whole(arguments.target, arguments.overwrite) as folder:
        _write(folder, conversion, module, write_tokenizer, arguments)
        for name, tensors in more.items():
            save_file(unshared(tensors), folder / name, metadata={"format": "pt"})
        written = sorted(path.name for path in folder.iterdir())
    _report(checkpoint, conversion, tokenizer, arguments.target, written)
    return 0


def _made_new(conversion: Any) -> dict[str, str]:
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


def _vocabulary(module: Any, arguments: argparse.Namespace) -> tuple[Path, dict[str, int]] | None:
    """The file of word pieces and what it holds, if there is one and the family has such."""
    if hasattr(module, "tokenizer_from"):
        return None
    path = _vocab_file(arguments, (*getattr(module, "VOCABULARY_FILES", ("vocab.txt",)), TOKENIZER_FILE))
    if path is None:
        return None
    read = _read_tokenizer if path.suffix == ".json" else getattr(module, "read_vocabulary", _read_vocab)
    return path, read(path)


def _tokenizer(
    module: Any,
    checkpoint: Any,
    conversion: Any,
    vocabulary: tuple[Path, dict[str, int]] | None,
    arguments: argparse.Namespace,
) -> tuple[Callable[[Path], None], list[str]]:
    """What writes the tokenizer into a folder, and what the report says of it; sets what the config takes from it."""
    from ..conversion.files import beside

    config = conversion.config
    if hasattr(module, "tokenizer_from"):  # a family whose vocabulary is not WordPiece
        codes = arguments.codes or beside(arguments.source, ("codes",))
        files, lines = module.tokenizer_from(checkpoint.words, config, arguments.vocab, codes, arguments.uncased)

        def write_files(folder: Path) -> None:
            for name, text in files.items():
                with open(folder / name, "w", encoding="utf-8", newline="\n") as file:
                    file.write(text)

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
    seen = not _lowercases(vocab_file) if vocab_file.suffix == ".json" else _looks_cased(vocab)
    cased = arguments.cased or (not arguments.uncased and seen)
    config.pad_token_id = vocab["[PAD]"]
    make = getattr(module, "wordpiece_tokenizer", _bert_tokenizer)  # a family may set its up in its own way
    more = _tokenizer_files(module, arguments.source)

    def write_bert(folder: Path) -> None:
        make(vocab, config, not cased, **more).save_pretrained(folder)

    read = [f"{vocab_file}, {'cased' if cased else 'lower case'}", *(str(path) for path in more.values())]
    return write_bert, read


def _tokenizer_files(module: Any, source: Path) -> dict[str, Path]:
    """Files that the family's tokenizer needs beside the vocabulary, by argument."""
    from ..conversion.files import beside

    files = {}
    for argument, name in getattr(module, "TOKENIZER_FILES", {}).items():
        path = beside(source, (name,))
        if path is None:
            raise ValueError(f"{name} must be beside {source}: the tokenizer needs it. Copy it there.")
        files[argument] = path
    return files


def _bert_tokenizer(vocab: dict[str, int], config: Any, do_lower_case: bool) -> Any:
    from transformers import BertTokenizerFast

    length = config.max_position_embeddings
    return BertTokenizerFast(vocab=vocab, do_lower_case=do_lower_case, model_max_length=length)


def _revert(checkpoint: Any, arguments: argparse.Namespace) -> int:
    """Write the original's files from a folder of ours."""
    import json
    import shutil

    import torch
    from transformers import AutoConfig

    import hf_ptm_ext  # noqa: F401 - registers the families

    from ..conversion.files import beside, read_checkpoint
    from ..conversion.options import made_config
    from ..files import read_json
    from ..hub.folders import written_whole

    config_file = arguments.config or beside(arguments.source, CONFIG_NAMES)
    if config_file is None:
        raise ValueError(f"`source` must be a folder of ours with a config.json, got {arguments.source}.")
    module = importlib.import_module(FAMILIES[arguments.family])
    fields = read_json(config_file, strict=True)
    if fields.get("model_type") != getattr(module, "MODEL_TYPE", arguments.family):
        raise ValueError(
            f"`source` must be a {arguments.family} checkpoint, got `model_type` {fields.get('model_type')!r}."
        )
    config: Any = made_config(lambda **options: AutoConfig.for_model(**options), fields, arguments.family)
    tensors, options = module.revert_checkpoint(checkpoint.tensors, config)
    if hasattr(module, "revert_projections"):
        projections = beside(arguments.source, (module.PROJECTIONS_FILE,))
        tensors |= module.revert_projections(read_checkpoint(projections).tensors if projections else {}, config)
    if hasattr(module, "write_original"):
        with written_whole(arguments.target, arguments.overwrite) as folder:
            module.write_original(folder, tensors, options, config_file.parent)
            written = sorted(path.name for path in folder.iterdir())
        _report_original(checkpoint, tensors, [], arguments.target, written)
        return 0
    vocab_file = _vocab_file(arguments, ("vocab.txt", TOKENIZER_FILE))
    vocab = None
    if vocab_file is not None and vocab_file.suffix == ".json":
        vocab = _read_tokenizer(vocab_file)
    with written_whole(arguments.target, arguments.overwrite) as folder:
        torch.save(tensors, folder / "model.pt")
        with open(folder / "config.json", "w", encoding="utf-8", newline="\n") as file:
            file.write(json.dumps(options, indent=2) + "\n")
        if vocab is not None:
            pieces = sorted(vocab, key=vocab.__getitem__)
            with open(folder / "vocab.txt", "w", encoding="utf-8", newline="\n") as file:
                file.write("".join(f"{piece}\n" for piece in pieces))
        elif vocab_file is not None:
            shutil.copyfile(vocab_file, folder / "vocab.txt")
    names = ["config.json", "model.pt", *(["vocab.txt"] if vocab_file is not None else [])]
    made_up = module.made_up(config) if hasattr(module, "made_up") else []
    _report_original(checkpoint, tensors, made_up, arguments.target, names)
    return 0


def _report_original(
    checkpoint: Any, tensors: dict[str, Any], made_up: list[str], target: Path, written: list[str]
) -> None:
    print(f"{'read':<12} {', '.join(str(path) for path in checkpoint.files)}")
    print(f"{'mapped':<12} {len(tensors)} tensors to the original's names, tied copies included")
    for note in made_up:
        print(f"{'made up':<12} {note}")
    print(f"{'wrote':<12} {target}: {', '.join(written)}")


def _check_apart(source: Path, target: Path) -> None:
    source, target = source.resolve(), target.resolve()
    if source == target or target in source.parents:
        raise ValueError(f"`target` must not hold the source, got {target}. Choose another folder.")


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


def _family_options(arguments: argparse.Namespace) -> dict[str, bool]:
    """Options of the conversion itself, of the family that has them."""
    options = {}
    if arguments.reference_parity:
        options["reference_parity"] = True
    if arguments.no_fold_layer_norm:
        options["fold_layer_norm"] = False
    if options and arguments.family != "kbert":
        raise ValueError(
            f"`--reference-parity` and `--no-fold-layer-norm` are options of kbert, got {arguments.family}."
        )
    return options


def _vocab_file(arguments: argparse.Namespace, names: tuple[str, ...] = ("vocab.txt",)) -> Path | None:
    if arguments.vocab is not None and not arguments.vocab.exists():
        raise FileNotFoundError(f"`--vocab` must be a vocab.txt, got {arguments.vocab}, which does not exist.")
    from ..conversion.files import beside

    return arguments.vocab or beside(arguments.source, names)


def _read_vocab(path: Path) -> dict[str, int]:
    """Pieces and their ids, one a line."""
    from ..models.canonical.texts_canonical import text_lines

    vocab: dict[str, int] = {}
    for number, piece in enumerate(text_lines(path)):
        if piece in vocab:
            raise ValueError(f"{path}, line {number + 1}: {piece!r} is there twice, first in line {vocab[piece] + 1}.")
        vocab[piece] = number
    absent = [token for token in SPECIAL_TOKENS if token not in vocab]
    if absent:
        raise ValueError(f"{path} must be a WordPiece vocabulary, one piece a line; it lacks {', '.join(absent)}.")
    return vocab


def _read_tokenizer(path: Path) -> dict[str, int]:
    """Pieces and their ids in a `tokenizer.json`, which is all that transformers 5 saves of a BERT's tokenizer."""
    from ..files import read_json

    content = read_json(path, strict=True)
    model = content.get("model")
    model = model if isinstance(model, dict) else {}
    kind = model.get("type")
    if kind != "WordPiece":
        raise ValueError(
            f"{path} must hold a WordPiece tokenizer, as BERT's; its model is {kind!r}. Name the right "
            "vocabulary by `--vocab`, or move this file away to convert without a tokenizer."
        )
    pieces, added = model.get("vocab"), content.get("added_tokens") or []
    if not isinstance(pieces, dict) or not isinstance(added, list) or not all(isinstance(a, dict) for a in added):
        raise ValueError(f"{path} must have a `vocab` of pieces and their ids, and a list of `added_tokens`.")
    vocab = {**pieces, **{str(token.get("content")): token.get("id") for token in added}}
    numbered = all(type(number) is int and number >= 0 for number in vocab.values())
    if not numbered or len({*vocab.values()}) < len(vocab):
        raise ValueError(f"{path} must number its pieces, each once.")
    absent = [token for token in SPECIAL_TOKENS if token not in vocab]
    if absent:
        raise ValueError(f"{path} must be a BERT's tokenizer; it lacks {', '.join(absent)}.")
    return vocab


def _lowercases(path: Path) -> bool:
    """Whether a `tokenizer.json` lower-cases texts."""
    from ..files import read_json

    normalizer = read_json(path).get("normalizer")
    steps = normalizer.get("normalizers") or [normalizer] if isinstance(normalizer, dict) else normalizer or []
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        raise ValueError(f"{path} must have a `normalizer` with a list of steps, or none.")
    return any(step.get("lowercase") or step.get("type") == "Lowercase" for step in steps)


def _looks_cased(vocab: dict[str, int]) -> bool:
    # Tags say nothing: Google's lower-case Chinese vocabulary has <S> and <T>.
    return any(piece != piece.lower() for piece in vocab if (piece[:1], piece[-1:]) not in (("[", "]"), ("<", ">")))


def _write(
    folder: Path,
    conversion: Any,
    module: Any,
    write_tokenizer: Callable[[Path], None],
    arguments: argparse.Namespace,
) -> None:
    from huggingface_hub import save_torch_state_dict

    from ..conversion.layout import unshared
    from ..hub.export import finish_folder
    from ..hub.model_card import write_model_card

    config = conversion.config
    config.architectures = [conversion.architecture]
    config.dtype = next(tensor.dtype for tensor in conversion.tensors.values() if tensor.is_floating_point())
    write_tokenizer(folder)
    config.save_pretrained(folder)
    save_torch_state_dict(unshared(conversion.tensors), folder)
    finish_folder(folder)
    tag = next((tag for head, tag in PIPELINE_TAGS.items() if conversion.architecture.endswith(head)), "fill-mask")
    if conversion.architecture.endswith("ForConditionalGeneration") and not config.is_encoder_decoder:
        tag = "text-generation"
    repo_id = arguments.repo_id or f"your-name/{arguments.target.resolve().name}"
    write_model_card(
        folder,
        family=arguments.family,
        metrics={},
        baselines={},
        training={},
        data={"name": "see the original checkpoint", "license": "unknown"},
        language=arguments.language or sorted(getattr(config, "lang2id", None) or ["en"]),
        license=arguments.license,
        repo_id=repo_id,
        pipeline_tag=getattr(module, "PIPELINE_TAG", tag),
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


def _report(checkpoint: Any, conversion: Any, tokenizer: list[str], target: Path, written: list[str]) -> None:
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
    for word, entries in lines:
        for entry in entries or ["nothing"]:
            print(f"{word:<12} {entry}")
