"""UniLM checkpoints of microsoft/unilm: names of the original <-> ours.

The original's names are BERT's. What has to be done: `gamma`/`beta` and a `module.` prefix of older files, the buffer
of the label-smoothing loss, token-type tables of another size, position tables of another length, and the fused
projection of the unilm1.2 code (`qkv_linear` with `q_bias` and `v_bias`, and no key bias).
"""

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from ..models.unilm.configuration_unilm import UniLMConfig
from ..models.unilm.modeling_unilm import UniLMForPreTraining
from ..models.unilm.tokenizer_unilm import unilm_tokenizer
from .layout import WORD_EMBEDDINGS, Layout, by_our_names, check_weights, has_part
from .options import check_options, made_config, read_fields
from .report import Conversion

Tensors = dict[str, torch.Tensor]

TYPES = "bert.embeddings.token_type_embeddings.weight"
POSITIONS = "bert.embeddings.position_embeddings.weight"
DECODER = "cls.predictions.decoder.weight"
# A longer table of positions is a mistake in the config.
MOST_COPIES = 64
# Row of a two-row BERT table that each token type starts from: 2, 3, 4 from the first, 5 and 6 from the second.
TYPE_ROWS = (0, 1, 0, 0, 0, 1, 1)
# Buffers, no weights: of the reference's losses, and an index of older transformers.
BUFFERS = ("crit_mask_lm_smoothed.", "bert.embeddings.position_ids", "embeddings.position_ids")
FIELDS = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "hidden_act",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "max_position_embeddings",
    "type_vocab_size",
    "initializer_range",
    "layer_norm_eps",
    "label_smoothing",
    "source_type_id",
    "target_type_id",
    "pad_token_id",
    "mask_token_id",
    "eos_token_id",
)


def _model(config: UniLMConfig) -> nn.Module:
    """The pre-training model with all heads, whichever the config says that there are."""
    config = copy.deepcopy(config)
    config.next_sentence_prediction = config.add_pooling_layer = True
    return UniLMForPreTraining(config)


LAYOUT = Layout(
    title="UniLM",
    model=_model,
    foreign="Names that no UniLM model reads",
    hint="Tables of several positions or projections side by side are of an option that no released checkpoint has.",
)


def convert_config(original: Mapping[str, Any]) -> UniLMConfig:
    """Read the original's configuration.

    Args:
        original: as its config.json holds it; `layer_norm_epsilon` is `layer_norm_eps`, and keys that no encoder reads
            (token ids of a batch, lengths, seeds) are ignored.

    Returns:
        The configuration, of six token types unless the original says otherwise.

    Example:
        >>> convert_config({"hidden_size": 32, "num_attention_heads": 4, "layer_norm_epsilon": 1e-12}).layer_norm_eps
        1e-12
    """
    check_options(original, ("layer_norm_epsilon",))
    fields = read_fields(original, FIELDS, ())
    if original.get("layer_norm_epsilon") is not None:
        fields["layer_norm_eps"] = original["layer_norm_epsilon"]
    return made_config(UniLMConfig, fields, "UniLM")


def convert_state_dict(original: Mapping[str, torch.Tensor], config: UniLMConfig) -> Tensors:
    """Rename and fit the original's tensors.

    Args:
        original: keys as in its file, with or without `module.`.
        config: decides the sizes: token-type tables of two rows are extended as the reference does (2, 3, 4 from row
            0, 5 from row 1), position tables are cut or extended by copying rows from the start.

    Returns:
        Our state dict, the tied decoder included if the file has a vocabulary head.

    Raises:
        ValueError: layers or sizes that do not fit the config, names that nothing reads, weights that are missing or
            none, or a relative position bias (UniLMv2); the message names them.
    """
    weights = {name: value for name, value in original.items() if not is_no_weight(name)}
    check_weights(weights)
    relative = [name for name in weights if "rel_pos_bias" in name]
    if relative:
        raise ValueError(
            f"`{relative[0]}` is a relative position bias: this is a UniLMv2 checkpoint, and UniLM (v1 and v1.2) has "
            "absolute positions alone, so that its outputs would be wrong. There is no conversion for it."
        )
    names = {name: modern_name(name) for name in weights}
    if not has_part(names.values(), "bert."):
        names = {name: ours if ours.startswith("cls.") else f"bert.{ours}" for name, ours in names.items()}
    foreign = [name for name, ours in names.items() if not ours.startswith(("bert.", "cls."))]
    if foreign:
        raise ValueError(f"{LAYOUT.foreign}: {', '.join(foreign[:5])}{', ...' * (len(foreign) > 5)}.")
    parts = ((part, name) for name, value in weights.items() for part in split_projection(names[name], value).items())
    tensors, sources = by_our_names((ours, name, value) for (ours, value), name in parts)
    for table, fitted, rows in (
        (TYPES, fitted_types, config.type_vocab_size),
        (POSITIONS, fitted_positions, config.max_position_embeddings),
    ):
        if table in tensors and tensors[table].ndim == 2:
            tensors[table] = fitted(tensors[table], rows)
    return LAYOUT.check(tensors, sources, config)


def revert_state_dict(
    ours: Mapping[str, torch.Tensor], config: UniLMConfig, tied_copies: bool | None = None
) -> Tensors:
    """Give back the original's names.

    Args:
        ours: a state dict of ours.
        config: its configuration.
        tied_copies: see `Layout.revert_tensors`.

    Returns:
        The original's state dict.

    Raises:
        ValueError: weights are missing, or are none of a UniLM pre-training model with this config.
    """
    return LAYOUT.revert_tensors(ours, config, tied_copies)


def is_no_weight(name: str) -> bool:
    """Whether a key of the file is a buffer that nothing reads."""
    return name.removeprefix("module.").startswith(BUFFERS)


def convert_checkpoint(original: Mapping[str, torch.Tensor], options: Mapping[str, Any]) -> Conversion:
    """Convert a checkpoint as it was found; a BERT's two token types become the six of UniLM.

    Args:
        original: tensors under the file's names.
        options: as for `convert_config`.

    Returns:
        Configuration, tensors without tied copies, and report.

    Raises:
        ValueError: as `convert_state_dict`.
    """
    check_options(options, FIELDS)
    config = convert_config(
        {**options, "type_vocab_size": 6 if options.get("type_vocab_size") == 2 else options.get("type_vocab_size")}
    )
    tensors = convert_state_dict(original, config)
    config.next_sentence_prediction = "cls.seq_relationship.weight" in tensors
    config.add_pooling_layer = "bert.pooler.dense.weight" in tensors
    head = "cls.predictions.bias" in tensors
    architecture = "UniLMModel"
    if head:
        architecture = "UniLMForPreTraining" if config.next_sentence_prediction else "UniLMForConditionalGeneration"
    dropped = {name: "a buffer, no weight" for name in original if is_no_weight(name)}
    if head:
        dropped |= {name: f"tied to `{WORD_EMBEDDINGS}`" for name in original if modern_name(name) == DECODER}
    changed = sum(modern_name(name) != name for name in original)
    return Conversion(
        config=config,
        tensors={name: value for name, value in tensors.items() if name not in (DECODER, f"{DECODER[:-6]}bias")},
        architecture=architecture,
        renamed={"older names": changed} if changed else {},
        dropped=dropped,
        initialised={} if head else {"cls.predictions.*": "masked tokens"},
    )


def revert_checkpoint(
    ours: Mapping[str, torch.Tensor], config: UniLMConfig
) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """A checkpoint of ours as the reference code reads it.

    Args:
        ours: tensors as one of our classes saved them.
        config: their configuration.

    Returns:
        The state dict, with the decoder's copy of the word embeddings, and the options.

    Raises:
        ValueError: as `revert_state_dict`.
    """
    named = {name if name.startswith(("bert.", "cls.")) else f"bert.{name}": value for name, value in ours.items()}
    return revert_state_dict(named, config, True), {name: getattr(config, name) for name in FIELDS}


def wordpiece_tokenizer(vocab: Mapping[str, int], config: UniLMConfig, do_lower_case: bool) -> Any:
    """The tokenizer of a converted checkpoint; its [MASK] and [SEP] become the configuration's.

    Args:
        vocab: piece -> id.
        config: gets `mask_token_id` and `eos_token_id`, and gives the longest input.
        do_lower_case: whether the vocabulary is lower case.

    Returns:
        See `unilm_tokenizer`.
    """
    config.mask_token_id, config.eos_token_id = vocab["[MASK]"], vocab["[SEP]"]
    return unilm_tokenizer(vocab, do_lower_case=do_lower_case, model_max_length=config.max_position_embeddings)


def modern_name(name: str) -> str:
    """The name without a wrapper's prefix, and LayerNorm's weights by today's names."""
    name = name.removeprefix("module.")
    for old, new in ((".LayerNorm.gamma", ".LayerNorm.weight"), (".LayerNorm.beta", ".LayerNorm.bias")):
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name


def split_projection(name: str, value: torch.Tensor) -> Tensors:
    """Query, key and value of the fused projection, which has no bias of the key; other tensors as they are."""
    base, _, last = name.rpartition(".self.")
    if last == "qkv_linear.weight" and value.ndim == 2 and len(value) % 3 == 0:
        parts = zip(("query", "key", "value"), value.chunk(3), strict=True)
        weights = {f"{base}.self.{part}.weight": weight for part, weight in parts}
        return weights | {f"{base}.self.key.bias": value.new_zeros(len(value) // 3)}
    if last in ("q_bias", "v_bias"):
        return {f"{base}.self.{'query' if last == 'q_bias' else 'value'}.bias": value.reshape(-1)}
    return {name: value}


def fitted_types(table: torch.Tensor, rows: int) -> torch.Tensor:
    """A token-type table of the asked size."""
    if table.shape[0] == rows:
        return table
    if table.shape[0] != 2 or rows > len(TYPE_ROWS):
        raise ValueError(
            f"`type_vocab_size` is {rows} and the file has {table.shape[0]} token types: only a BERT table of 2 rows "
            f"is extended, to at most {len(TYPE_ROWS)}. Set `type_vocab_size` to {table.shape[0]}."
        )
    return table[list(TYPE_ROWS[:rows])].clone()


def fitted_positions(table: torch.Tensor, rows: int) -> torch.Tensor:
    """A position table of the asked length: cut, or extended by copying rows from the start."""
    if len(table) * MOST_COPIES < rows:
        raise ValueError(
            f"`max_position_embeddings` is {rows} and the file has {len(table)} positions: a table is extended to "
            f"{MOST_COPIES} times its length at most. Correct the config."
        )
    return table[torch.arange(rows) % len(table)]
