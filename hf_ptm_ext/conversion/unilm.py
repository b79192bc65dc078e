"""UniLM checkpoints of microsoft/unilm to ours and back, the fused projection of its unilm1.2 code included."""

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..models.configuration_unilm import UniLMConfig
from .layout import BERT_FIELDS, BUFFERS, Conversion, Layout, functions_of
from .tensors import Options, State, Tensors, has_part
from .unilm_tokenizer import unilm_tokenizer

TYPES = "bert.embeddings.token_type_embeddings.weight"
POSITIONS = "bert.embeddings.position_embeddings.weight"
# A longer table of positions is a mistake in the config.
MOST_COPIES = 64
# Row of a two-row BERT table that each token type starts from: 2, 3, 4 from the first, 5 and 6 from the second.
TYPE_ROWS = (0, 1, 0, 0, 0, 1, 1)


class UniLMLayout(Layout):
    title, family, prefix = "UniLM", "unilm", "UniLM"
    config_class = UniLMConfig
    fields = (
        *BERT_FIELDS,
        "label_smoothing",
        "source_type_id",
        "target_type_id",
        "mask_token_id",
        "eos_token_id",
    )
    sizes = ()
    theirs = {"layer_norm_epsilon": "layer_norm_eps"}
    buffers = rf"^crit_mask_lm_smoothed\.|{BUFFERS}"
    foreign = "Names that no UniLM model reads"
    hint = "Tables of several positions or projections side by side are of an option that no released checkpoint has."

    def adjusted(self, fields: dict[str, Any], original: Options) -> dict[str, Any]:
        epsilon = original.get("layer_norm_epsilon")
        return fields if epsilon is None else {**fields, "layer_norm_eps": epsilon}

    def complete_options(self, options: dict[str, Any], tensors: State) -> dict[str, str]:
        """A BERT's two token types become the six of UniLM."""
        if options.get("type_vocab_size") == 2:
            options["type_vocab_size"] = 6
        return {}

    def model(self, config: Any) -> nn.Module:
        """The pre-training model with all heads, whichever the config says that there are."""
        config = copy.deepcopy(config)
        config.next_sentence_prediction = config.add_pooling_layer = True
        return super().model(config)

    def architecture(self, tensors: State, config: Any) -> str:
        if not has_part(tensors, "cls.predictions."):
            return "UniLMModel"
        return "UniLMForPreTraining" if config.next_sentence_prediction else "UniLMForConditionalGeneration"

    def convert_state_dict(self, original: State, config: Any) -> Tensors:
        relative = [key for key in original if "rel_pos_bias" in key]
        if relative:
            raise ValueError(
                f"`{relative[0]}` is a relative position bias: this is a UniLMv2 checkpoint, and UniLM (v1 and v1.2) "
                "has absolute positions alone, so that its outputs would be wrong. There is no conversion for it."
            )
        return super().convert_state_dict(original, config)

    def ours_of(self, name: str, key: str, tensor: torch.Tensor, config: Any) -> Tensors:
        """Fused projections are taken apart, tables of token types and positions brought to the config's sizes."""
        if name == TYPES and tensor.ndim == 2:
            return {name: fitted_types(tensor, config.type_vocab_size)}
        if name == POSITIONS and tensor.ndim == 2:
            return {name: fitted_positions(tensor, config.max_position_embeddings)}
        return split_projection(name, tensor)

    def reported(self, original: State, converted: Tensors, config: Any, assumed: dict[str, str]) -> Conversion:
        config.next_sentence_prediction = has_part(converted, "cls.seq_relationship.")
        config.add_pooling_layer = has_part(converted, "bert.pooler.")
        return super().reported(original, converted, config, assumed)

    def wordpiece_tokenizer(self, vocab: Mapping[str, int], config: Any, do_lower_case: bool, **files: Path) -> Any:
        """The tokenizer of a converted checkpoint; its [MASK] and [SEP] become the configuration's."""
        config.mask_token_id, config.eos_token_id = vocab["[MASK]"], vocab["[SEP]"]
        return unilm_tokenizer(vocab, do_lower_case=do_lower_case, model_max_length=config.max_position_embeddings)


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


LAYOUT = UniLMLayout()
globals().update(functions_of(LAYOUT))
