"""Which attention a job computes with if its user names none."""

import inspect
from typing import Any

# Longest packed rows of which sdpa gets a mask over all pairs of tokens, 256 KiB a row of this length and more by the
# square. A step of BERT-base on one H200, rows of 1,024 without attention dropout: 49 ms by sdpa, 44 by flex_attention
# (`scripts/bench_gpu.py --attention`).
LONGEST_DENSE_ROW = 512
DROPOUTS = ("attention_probs_dropout_prob", "attention_dropout")


def settle_attention(model: Any, named: str | None, packed_length: int | None, device: str) -> str:
    """Choose the attention of a model whose packed rows have so many tokens (`None`: not packed), and say why."""
    dropout = next((rate for name in DROPOUTS if (rate := getattr(model.config, name, 0.0))), 0.0)
    if named is not None:
        if named == "flex_attention" and dropout:
            raise ValueError(
                f"`attn_implementation` = {named} has no attention dropout, and the model's is {dropout}: add "
                "--config_overrides attention_probs_dropout_prob=0, or leave the option out."
            )
        return "as asked"
    if packed_length is None:
        return "rows are not packed"
    why = f"packed rows of {packed_length:,}"
    if device == "cpu":
        return f"{why} on a CPU"
    if packed_length <= LONGEST_DENSE_ROW:
        return why
    if "sequence_ids" not in inspect.signature(model.forward).parameters:
        return f"{why}, which a mask keeps apart"
    if not model._supports_flex_attn:
        return f"{why}, {type(model).__name__} has no flex_attention"
    if dropout:
        return f"{why} with attention dropout {dropout}; without it flex_attention"
    model.set_attn_implementation("flex_attention")
    return why
