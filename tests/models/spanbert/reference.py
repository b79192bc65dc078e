"""The reference's pre-training model as plain functions on its own state dict, independent of our modules.

Post-LayerNorm BERT with -10000 added to the score of every padding key, the masked-language-model head and the span
boundary head, as in facebookresearch/SpanBERT, `pretraining/fairseq/models/pair_bert.py`.
"""

import math
from dataclasses import dataclass

import torch
from torch.nn import functional

ACTIVATIONS = {"gelu": functional.gelu, "relu": functional.relu}


@dataclass
class Reference:
    """Original names without the `decoder.` prefix -> tensors, and what they do not say."""

    state: dict[str, torch.Tensor]
    layers: int
    heads: int
    activation: str = "gelu"
    eps: float = 1e-12

    def dense(self, name: str, value: torch.Tensor) -> torch.Tensor:
        return functional.linear(value, self.state[f"{name}.weight"], self.state[f"{name}.bias"])

    def norm(self, name: str, value: torch.Tensor) -> torch.Tensor:
        scale, shift = self.state[f"{name}.gamma"], self.state[f"{name}.beta"]
        return functional.layer_norm(value, scale.shape, scale, shift, self.eps)

    def act(self, value: torch.Tensor) -> torch.Tensor:
        return ACTIVATIONS[self.activation](value)

    def split(self, value: torch.Tensor) -> torch.Tensor:
        return value.reshape(*value.shape[:2], self.heads, -1).transpose(1, 2)

    def layer(self, name: str, value: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        query, key, content = (
            self.split(self.dense(f"{name}.attention.self.{part}", value)) for part in ("query", "key", "value")
        )
        scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1]) + bias
        context = (scores.softmax(-1) @ content).transpose(1, 2).reshape(value.shape)
        value = self.norm(
            f"{name}.attention.output.LayerNorm", self.dense(f"{name}.attention.output.dense", context) + value
        )
        inner = self.act(self.dense(f"{name}.intermediate.dense", value))
        return self.norm(f"{name}.output.LayerNorm", self.dense(f"{name}.output.dense", inner) + value)

    def hidden_states(self, ids: torch.Tensor, mask: torch.Tensor, types: torch.Tensor) -> list[torch.Tensor]:
        """Embeddings and the output of each layer."""
        tables = [
            self.state[f"bert.embeddings.{name}_embeddings.weight"] for name in ("word", "position", "token_type")
        ]
        value = tables[0][ids] + tables[1][: ids.shape[1]] + tables[2][types]
        states = [self.norm("bert.embeddings.LayerNorm", value)]
        bias = (1.0 - mask[:, None, None].float()) * -10000.0
        for number in range(self.layers):
            states.append(self.layer(f"bert.encoder.layer.{number}", states[-1], bias))
        return states

    def token_logits(self, states: torch.Tensor) -> torch.Tensor:
        head = "cls.predictions"
        value = self.norm(f"{head}.transform.LayerNorm", self.act(self.dense(f"{head}.transform.dense", states)))
        return value @ self.state["bert.embeddings.word_embeddings.weight"].T + self.state[f"{head}.bias"]

    def boundary_logits(self, states: torch.Tensor, pairs: torch.Tensor) -> torch.Tensor:
        """`(batch, pairs, max_pair_targets, vocab_size)`."""
        head = "cls.pair_target_predictions"
        table = self.state[f"{head}.position_embeddings.weight"]
        rows = torch.arange(states.shape[0])[:, None]
        left, right = states[rows, pairs[..., 0]], states[rows, pairs[..., 1]]
        ends = torch.cat([left, right], -1)[:, :, None].expand(-1, -1, len(table), -1)
        value = torch.cat([ends, table.expand(*pairs.shape[:2], -1, -1)], -1)
        for number in (1, 2):
            inner = self.act(self.dense(f"{head}.mlp_layer_norm.linear{number}", value))
            value = self.norm(f"{head}.mlp_layer_norm.layer_norm{number}", inner)
        return value @ self.state["bert.embeddings.word_embeddings.weight"].T + self.state[f"{head}.bias"]

    def sentence_logits(self, states: torch.Tensor) -> torch.Tensor:
        return self.dense("cls.seq_relationship", torch.tanh(self.dense("bert.pooler.dense", states[:, 0])))


def reference_losses(logits: dict[str, torch.Tensor], targets: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The criterion: sums of cross entropies over -100-masked targets, and the reference's denominators."""

    def total(name: str, labels: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(logits[name].flatten(0, -2), labels.flatten(), reduction="sum")

    losses = {
        "mlm_loss": total("token", targets["labels"]) / (targets["labels"] != -100).sum().clamp(min=1),
        "sbo_loss": total("boundary", targets["span_labels"]) / ((targets["span_labels"] != -100).sum() + 1),
    }
    if "next_sentence_label" in targets:
        labels = targets["next_sentence_label"]
        losses["nsp_loss"] = total("sentence", labels) / (labels != -100).sum().clamp(min=1)
    losses["loss"] = sum(losses.values())
    return losses
