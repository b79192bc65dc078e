"""ZEN checkpoints of the original code (sinovation/ZEN) to ours and back.

The original's names are BERT's and ours, also those of the n-gram encoder (`bert.word_embeddings.*`,
`bert.encoder.word_layers.*`). `gamma` and `beta`, a `module.` in front and encoders without a prefix are read too. The
lexicon `ngram.txt` goes into the folder unchanged: an n-gram's id is the number of its line.
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..files import read_json
from ..models.zen.configuration_zen import AUTO_MAP, ZenConfig
from ..models.zen.lexicon_zen import LEXICON_FILE, read_lexicon
from .files import beside
from .layout import DIMENSIONS, RENAMES, Layout
from .options import check_options, made_config, read_fields
from .report import Conversion

__all__ = [
    "convert_checkpoint",
    "convert_config",
    "convert_state_dict",
    "revert_checkpoint",
    "revert_config",
    "revert_state_dict",
    "wordpiece_tokenizer",
    "write_original",
]

# Argument of `wordpiece_tokenizer` -> the file that must be beside the weights.
TOKENIZER_FILES = {"ngram_file": LEXICON_FILE}
SIZES = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
FIELDS = (
    *SIZES,
    "word_vocab_size",
    "num_hidden_word_layers",
    "hidden_act",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "max_position_embeddings",
    "type_vocab_size",
    "initializer_range",
    "layer_norm_eps",
    "pad_token_id",
    "tie_word_embeddings",
    "is_decoder",
    "position_embedding_type",
)


def _pretraining_model(config: ZenConfig) -> nn.Module:
    from ..models.zen.modeling_zen import ZenForPreTraining

    return ZenForPreTraining(config)


LAYOUT = Layout(
    title="ZEN",
    prefix="Zen",
    model=_pretraining_model,
    renames=(
        RENAMES[0],
        (r"^(embeddings|word_embeddings|encoder|pooler)\.", r"bert.\1.", RENAMES[1][2]),
        *RENAMES[2:],
    ),
    stacks=(
        ("bert.encoder.layer", "num_hidden_layers"),
        ("bert.encoder.word_layers", "num_hidden_word_layers"),
    ),
    dimensions=(
        *DIMENSIONS,
        (r"bert\.word_embeddings\.word_embeddings\.weight", 0, "word_vocab_size"),
        (r".*", -1, "hidden_size"),
    ),
)


def convert_config(original: Mapping[str, Any]) -> ZenConfig:
    """Our configuration from the original's `config.json`.

    Args:
        original: its options; `word_size` and `word_vocab_size` are the same, and what says nothing about the model
            (ids, lengths, seeds) is ignored.

    Returns:
        The configuration, with the whole auto_map.

    Raises:
        TypeError: `original` is not a mapping.
        ValueError: a size is missing, or a field is out of its range.

    Example:
        >>> options = dict(vocab_size=100, word_size=60, hidden_size=32, num_hidden_layers=4, num_attention_heads=4,
        ...     intermediate_size=64, num_hidden_word_layers=2)
        >>> convert_config(options).word_vocab_size
        60
    """
    check_options(original, ("word_size",))
    if original.get("word_size") is not None:
        original = {"word_vocab_size": original["word_size"], **original}
    config = made_config(ZenConfig, read_fields(original, FIELDS, SIZES), "ZEN")
    config.auto_map = dict(AUTO_MAP)
    return config


def convert_state_dict(original: Mapping[str, torch.Tensor], config: ZenConfig) -> dict[str, torch.Tensor]:
    """Our state dict from the original's.

    Args:
        original: tensors under the original's names; pooler and heads may be missing whole.
        config: what `convert_config` gave.

    Returns:
        The tensors under our names, the tied decoder included if the file has a vocabulary head.

    Raises:
        ValueError: a key, a shape or the number of layers does not fit, or weights are missing. Keys are named.

    Example:
        >>> config = ZenConfig(vocab_size=9, word_vocab_size=5, hidden_size=8, num_hidden_layers=1,
        ...     num_hidden_word_layers=1, num_attention_heads=2, intermediate_size=8, max_position_embeddings=8)
        >>> ours = _pretraining_model(config).state_dict()
        >>> original = revert_state_dict(ours, config)
        >>> converted = convert_state_dict(original, config)
        >>> converted.keys() == ours.keys(), all(torch.equal(converted[key], ours[key]) for key in ours)
        (True, True)
    """
    return LAYOUT.convert_tensors(original, config)


def revert_state_dict(ours: Mapping[str, torch.Tensor], config: ZenConfig) -> dict[str, torch.Tensor]:
    """The original's state dict from ours.

    Args:
        ours: tensors of `ZenForPreTraining` or of a part of it.
        config: their configuration.

    Returns:
        The tensors under the original's names, without the entries that `convert_state_dict` added.

    Raises:
        ValueError: a key is not one of a ZEN pre-training model, or an untied bias would be lost.
    """
    return LAYOUT.revert_tensors(ours, config)


def convert_checkpoint(original: Mapping[str, torch.Tensor], options: Mapping[str, Any]) -> Conversion:
    """Convert a checkpoint as it was found.

    Args:
        original: tensors under the file's names.
        options: as for `convert_config`.

    Returns:
        Configuration, tensors and report.

    Raises:
        ValueError: as `convert_config` and `convert_state_dict`.
    """
    return LAYOUT.convert_file(original, convert_config(options))


def revert_config(config: ZenConfig) -> dict[str, Any]:
    """The original's `config.json` for a configuration of ours.

    Args:
        config: the configuration.

    Returns:
        What `convert_config` reads, with `word_size`.

    Example:
        >>> revert_config(ZenConfig(word_vocab_size=9))["word_size"]
        9
    """
    own = ("word_vocab_size", "pad_token_id", "tie_word_embeddings", "is_decoder", "position_embedding_type")
    options = {name: getattr(config, name) for name in FIELDS if name not in own}
    return {**options, "word_size": config.word_vocab_size}


def revert_checkpoint(
    ours: Mapping[str, torch.Tensor], config: ZenConfig
) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """A checkpoint of ours as the original code reads it.

    Args:
        ours: tensors as one of our classes saved them, the bare encoder's without `bert.` included.
        config: their configuration.

    Returns:
        The state dict, with the decoder's copy of the word embeddings, and the options.

    Raises:
        ValueError: the checkpoint has heads that the original's pre-training model has not.
    """
    return LAYOUT.revert_file(ours, config), revert_config(config)


def wordpiece_tokenizer(vocab: Mapping[str, int], config: ZenConfig, do_lower_case: bool, ngram_file: Path) -> Any:
    """The tokenizer of a converted checkpoint.

    Args:
        vocab: piece -> id.
        config: gives the longest input and the size of the n-gram table.
        do_lower_case: whether the vocabulary is lower case.
        ngram_file: the original's lexicon.

    Returns:
        A `ZenTokenizer`.

    Raises:
        ValueError: the lexicon is malformed, or has more lines than the table has rows.
    """
    from ..models.zen.tokenization_zen import ZenTokenizer

    length = config.max_position_embeddings
    tokenizer = ZenTokenizer(dict(vocab), do_lower_case, ngrams=ngram_file, model_max_length=length)
    if len(tokenizer.lexicon) >= config.word_vocab_size:
        raise ValueError(
            f"{ngram_file} has {len(tokenizer.lexicon)} n-grams, and the table of the weights `word_vocab_size` = "
            f"{config.word_vocab_size} rows, one of them for padding. Is it another model's file?"
        )
    return tokenizer


def write_original(
    folder: Path, tensors: Mapping[str, torch.Tensor], options: Mapping[str, Any], source: Path
) -> None:
    """Write the files that the original code loads: weights, config, vocabulary and lexicon.

    Args:
        folder: where to.
        tensors: what `revert_checkpoint` gave.
        options: likewise.
        source: the folder of ours, for its tokenizer; without one, weights and config are written.
    """
    torch.save(dict(tensors), folder / "pytorch_model.bin")
    with open(folder / "config.json", "w", encoding="utf-8", newline="\n") as file:
        file.write(json.dumps(dict(options), indent=2) + "\n")
    if (tokenizer := beside(source, ("tokenizer.json",))) is not None:
        vocab = (read_json(tokenizer).get("model") or {}).get("vocab")
        if not isinstance(vocab, dict) or not all(isinstance(number, int) for number in vocab.values()):
            raise ValueError(f"{tokenizer} must hold a WordPiece tokenizer, as BERT's; it has no `vocab` of numbers.")
        with open(folder / "vocab.txt", "w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{piece}\n" for piece in sorted(vocab, key=vocab.__getitem__))
    if (lexicon := beside(source, (LEXICON_FILE,))) is not None:
        read_lexicon(lexicon)  # refuses what is none
        shutil.copyfile(lexicon, folder / LEXICON_FILE)
