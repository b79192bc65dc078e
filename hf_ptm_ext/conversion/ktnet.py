"""KT-NET's layers of the original code (PaddlePaddle/models) to ours and back; the encoder is taken from elsewhere.

The original keeps matrices as (in, out). With one knowledge base its names have no name of it in front.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from ..models.configuration_ktnet import KtNetConfig
from .files import name_some
from .k_adapter import with_encoder
from .layout import Conversion, Layout, functions_of
from .options import check_options, read_fields
from .tensors import Tensors, check_weights, size_of

TABLE = "concept_emb_mat"
SENTINEL = "memory_layer_sentinel"
ORDER = ("wn", "nell")  # the reference's
OUR_ENCODER = "ktnet.encoder."
SET = "table of concepts, which `set_concept_table` sets"


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


class KtNetLayout(Layout):
    title, family, prefix = "KT-NET", "ktnet", "KtNet"
    config_class = KtNetConfig
    infers_sizes = True
    heads = {OUR_ENCODER: "encoder, which `--encoder` names"}
    other_parts = ()
    needs = {}
    tied = {}
    stacks = ()
    dimensions = ()
    optional = r"\.concept_embeddings\.weight$"
    wordpieces = False
    pipeline_tag = "question-answering"

    def convert_config(self, original: Mapping[str, Any]) -> Any:
        """Our configuration from `knowledge_bases` and `encoder_config` or the options of a BERT."""
        bases, encoder = original.get("knowledge_bases"), original.get("encoder_config")
        if not isinstance(bases, Mapping) or not bases:
            raise ValueError(f"`knowledge_bases` must be name -> [rows, width] of each table, got {bases!r}.")
        check_options(original if encoder is None else {})
        encoder = encoder or {"model_type": "bert", **read_fields(original, self.fields, self.sizes)}
        return self.made({"encoder_config": encoder, "knowledge_bases": dict(bases)})

    def revert_config(self, config: Any) -> dict[str, Any]:
        """The options that `convert_config` reads."""
        return {"encoder_config": config.encoder_config.to_dict(), "knowledge_bases": config.knowledge_bases}

    def complete_options(self, options: dict[str, Any], tensors: Mapping[str, torch.Tensor]) -> dict[str, str]:
        given = options.get("knowledge_bases") or {}
        found = [key.removesuffix(SENTINEL).removesuffix("_") for key in tensors if key.endswith(SENTINEL)]
        bases = list(given) or sorted(found, key=lambda name: (*ORDER, name).index(name))
        if found == [""]:
            bases = list(given) or list(ORDER[:1])
        sizes = {}
        for base in bases:
            front = f"{base}_" if found != [""] else ""
            rows = size_of(tensors, f"{front}{TABLE}") or (given.get(base) or [None])[0]
            if rows is None:
                raise ValueError(
                    f"The file has no `{front}{TABLE}`, the table of {base}: its options must say `knowledge_bases`, "
                    f'{{"{base}": [rows, width]}}.'
                )
            sizes[base] = [rows, size_of(tensors, f"{front}{SENTINEL}") or (given.get(base) or [None, None])[1]]
        options["knowledge_bases"] = sizes
        return {} if given else {"knowledge_bases": f"{', '.join(bases)}: the reference's order, or its first name"}

    def tokenizer_from(self, *arguments: Any, **options: Any) -> tuple[dict[str, str], list[str]]:
        return {}, ["none: copy the encoder's"]

    def model(self, config: Any) -> Any:
        from ..models.modeling_ktnet import KtNetForQuestionAnswering

        return KtNetForQuestionAnswering(config)

    def architecture(self, tensors: Mapping[str, torch.Tensor], config: Any) -> str:
        return "KtNetForQuestionAnswering"

    def tied_names(self, config: Any) -> set[str]:
        return set()

    def their_name(self, name: str, config: Any) -> str:
        return names(config).get(name, name)

    def convert_state_dict(self, original: Mapping[str, torch.Tensor], config: Any) -> Tensors:
        """Our names, for the layers on the encoder."""
        converted = convert_layers(original, config)
        return self.check(converted, {ours: self.their_name(ours, config) for ours in converted}, config)

    def convert_checkpoint(self, original: Mapping[str, torch.Tensor], options: Mapping[str, Any]) -> Conversion:
        """Convert a file; the option `encoder` names what the encoder's weights are taken from."""
        options, encoder = with_encoder(options)
        assumed = self.complete_options(options, original)
        config = self.convert_config(options)
        converted = self.convert_state_dict(original, config)
        own = self.shapes(config, {}) if encoder else {}
        converted |= {f"{OUR_ENCODER}{name}": one for name, one in encoder.items() if f"{OUR_ENCODER}{name}" in own}
        layers = names(config)
        tables = {f"{ours[: -len('weight')]}": SET for ours, theirs in layers.items() if theirs.endswith(TABLE)}
        layout = KtNetLayout()
        layout.heads = {**self.heads, **tables}
        found = layout.reported(original, converted, config, assumed)
        other = {key: "not of the layers on the encoder" for key in original if key not in layers.values()}
        return replace(found, dropped={**found.dropped, **other})

    def revert_state_dict(
        self, ours: Mapping[str, torch.Tensor], config: Any, tied_copies: bool | None = None
    ) -> Tensors:
        """The original's names; the encoder is left out."""
        self.check_ours(ours, config)
        return revert_layers(ours, config)


LAYOUT = KtNetLayout()
globals().update(functions_of(LAYOUT))
