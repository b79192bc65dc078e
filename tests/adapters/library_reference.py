"""A BERT encoder with the `adapters` library's bottleneck adapters, in plain torch on the library's own key names.

Checked against the goldens, and then the reference for other options than theirs.
"""

from typing import Any

import torch
from torch.nn.functional import gelu, layer_norm, linear, relu, silu

Tensors = dict[str, torch.Tensor]
ACTIVATIONS = {"gelu": gelu, "relu": relu, "swish": silu}
LIBRARY_EPS = 1e-5  # of the adapters' own LayerNorms
BERT_EPS = 1e-12


def make_weights(bert: dict[str, Any], adapter: dict[str, Any], seed: int, name: str = "task") -> Tensors:
    """Random weights of encoder and adapters, as a state dict of the library."""
    generator = torch.Generator().manual_seed(seed)
    width, inner = bert["hidden_size"], bert["intermediate_size"]

    def draw(*shape: int) -> torch.Tensor:
        return 0.2 * torch.randn(*shape, generator=generator)

    weights: Tensors = {}

    def norm(key: str) -> None:
        weights[f"{key}.weight"], weights[f"{key}.bias"] = 1 + draw(width), draw(width)

    def dense(key: str, rows: int, columns: int) -> None:
        weights[f"{key}.weight"], weights[f"{key}.bias"] = draw(rows, columns), draw(rows)

    for table, rows in (
        ("word", bert["vocab_size"]),
        ("position", bert["max_position_embeddings"]),
        ("token_type", bert["type_vocab_size"]),
    ):
        weights[f"embeddings.{table}_embeddings.weight"] = draw(rows, width)
    norm("embeddings.LayerNorm")
    for layer in range(bert["num_hidden_layers"]):
        prefix = f"encoder.layer.{layer}"
        for part in ("query", "key", "value"):
            dense(f"{prefix}.attention.self.{part}", width, width)
        dense(f"{prefix}.attention.output.dense", width, width)
        norm(f"{prefix}.attention.output.LayerNorm")
        dense(f"{prefix}.intermediate.dense", inner, width)
        dense(f"{prefix}.output.dense", width, inner)
        norm(f"{prefix}.output.LayerNorm")
        if layer in adapter.get("leave_out", []):
            continue
        for place in ("attention.output", "output") if adapter["mh_adapter"] else ("output",):
            key = f"{prefix}.{place}.adapters.{name}"
            size = max(width // adapter["reduction_factor"], 1)
            if adapter.get("ln_before"):
                norm(f"{key}.adapter_norm_before")
                for parameter in ("weight", "bias"):
                    weights[f"{key}.adapter_down.0.{parameter}"] = weights[f"{key}.adapter_norm_before.{parameter}"]
            dense(f"{key}.adapter_down.{1 if adapter.get('ln_before') else 0}", size, width)
            dense(f"{key}.adapter_up", width, size)
            if adapter.get("ln_after"):
                norm(f"{key}.adapter_norm_after")
            if isinstance(adapter.get("scaling", 1.0), str):
                weights[f"{key}.scaling"] = 1 + draw(1 if adapter["scaling"] == "learned" else width)
    return weights


def bottleneck(weights: Tensors, key: str, adapter: dict[str, Any], states: torch.Tensor) -> torch.Tensor:
    """What the adapter adds."""
    before = bool(adapter.get("ln_before"))
    if before:
        states = norm(weights, f"{key}.adapter_norm_before", states, LIBRARY_EPS)
    down = dense(weights, f"{key}.adapter_down.{int(before)}", states)
    up = dense(weights, f"{key}.adapter_up", ACTIVATIONS[adapter["non_linearity"]](down))
    up = up * weights.get(f"{key}.scaling", adapter.get("scaling", 1.0))
    return norm(weights, f"{key}.adapter_norm_after", up, LIBRARY_EPS) if adapter.get("ln_after") else up


def dense(weights: Tensors, key: str, states: torch.Tensor) -> torch.Tensor:
    return linear(states, weights[f"{key}.weight"], weights[f"{key}.bias"])


def norm(weights: Tensors, key: str, states: torch.Tensor, eps: float = BERT_EPS) -> torch.Tensor:
    return layer_norm(states, states.shape[-1:], weights[f"{key}.weight"], weights[f"{key}.bias"], eps)


def hidden_states(
    weights: Tensors, bert: dict[str, Any], adapter: dict[str, Any], inputs: Tensors, name: str = "task"
) -> list[torch.Tensor]:
    """Embeddings and the output of every layer, each `(batch, seq_len, hidden)`."""
    ids, mask, types = inputs["input_ids"], inputs["attention_mask"], inputs["token_type_ids"]
    states = (
        weights["embeddings.word_embeddings.weight"][ids]
        + weights["embeddings.position_embeddings.weight"][: ids.shape[1]]
        + weights["embeddings.token_type_embeddings.weight"][types]
    )
    all_states = [norm(weights, "embeddings.LayerNorm", states)]

    def block(key: str, projected: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        place = f"{key}.adapters.{name}"
        if f"{place}.adapter_up.weight" in weights:
            read = projected
            if adapter["original_ln_before"]:
                read = norm(weights, f"{key}.LayerNorm", projected + residual)
            projected = bottleneck(weights, place, adapter, read) + projected
        return norm(weights, f"{key}.LayerNorm", projected + residual)

    heads = bert["num_attention_heads"]
    for layer in range(bert["num_hidden_layers"]):
        prefix, states = f"encoder.layer.{layer}", all_states[-1]
        query, key, value = (
            dense(weights, f"{prefix}.attention.self.{part}", states).unflatten(-1, (heads, -1)).transpose(1, 2)
            for part in ("query", "key", "value")
        )
        scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
        scores = scores.masked_fill(mask[:, None, None] == 0, torch.finfo(scores.dtype).min)
        context = (scores.softmax(-1) @ value).transpose(1, 2).flatten(-2)
        output = f"{prefix}.attention.output"
        attended = block(output, dense(weights, f"{output}.dense", context), states)
        expanded = gelu(dense(weights, f"{prefix}.intermediate.dense", attended))
        all_states.append(block(f"{prefix}.output", dense(weights, f"{prefix}.output.dense", expanded), attended))
    return all_states
