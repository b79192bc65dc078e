"""KT-NET's layers of the original code (PaddlePaddle/models) to ours and back; the encoder is converted by itself.

The original keeps matrices as (in, out). With one knowledge base its names have no name of it in front.
"""

from collections.abc import Mapping
from typing import Any

import torch

from .files import name_some
from .tensors import Tensors, check_weights

TABLE = "concept_emb_mat"


def names(config: Any) -> dict[str, str]:
    """Our name of each weight -> the original's."""
    bases = list(config.knowledge_bases)
    found = {}
    for base in bases:
        front, own = "" if len(bases) == 1 else f"{base}_", f"ktnet.memories.{base}."
        found[f"{own}projection.weight"] = f"{front}memory_layer_projection.w_0"
        found[f"{own}sentinel"] = f"{front}memory_layer_sentinel"
        found[f"{own}concept_embeddings.weight"] = f"{front}{TABLE}"
    matching = ("bias", "weight1", "weight2", "weightmul")
    found |= {f"ktnet.matching.{part}": f"self_matching_layer_{part}" for part in matching}
    return found | {"qa_outputs.weight": "cls_squad_out_w", "qa_outputs.bias": "cls_squad_out_b"}


def turned(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """A matrix of the one kind as the other keeps it."""
    return tensor.T.contiguous() if name.endswith(("projection.weight", "qa_outputs.weight")) else tensor


def convert_layers(original: Mapping[str, torch.Tensor], config: Any) -> Tensors:
    """Our state dict of what stands on the encoder, from the original's; tables of concepts may be missing.

    Args:
        original: tensors under the original's names; those of the encoder are not read.
        config: the `KtNetConfig` of the model, with the knowledge bases in their order.

    Returns:
        For `KtNetForQuestionAnswering.load_state_dict(..., strict=False)`.

    Raises:
        ValueError: a weight is missing, or no finite matrix.
    """
    wanted = names(config)
    lacking = [theirs for theirs in wanted.values() if theirs not in original and not theirs.endswith(TABLE)]
    if lacking:
        raise ValueError(f"The file lacks weights of KT-NET's layers: {name_some(lacking)}.")
    kept = {theirs: original[theirs] for theirs in wanted.values() if theirs in original}
    check_weights(kept)
    return {ours: turned(ours, kept[theirs]) for ours, theirs in wanted.items() if theirs in kept}


def revert_layers(ours: Mapping[str, torch.Tensor], config: Any) -> Tensors:
    """The original's state dict of what stands on the encoder, from a model's."""
    return {theirs: turned(name, ours[name]) for name, theirs in names(config).items() if name in ours}
