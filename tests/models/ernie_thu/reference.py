"""The reference's model as plain functions on its own state dict, independent of our modules.

Two streams with -10000 added to the score of every masked key, the three pre-training heads and their losses, as in
thunlp/ERNIE, `code/knowledge_bert/modeling.py`. Layer kinds are read from the keys.
"""

import math
from dataclasses import dataclass

import torch
from torch.nn import functional


@dataclass
class Reference:
    """Original names -> tensors, and what they do not say."""

    state: dict[str, torch.Tensor]
    layers: int
    heads: int
    entity_heads: int
    eps: float = 1e-12

    def dense(self, name: str, value: torch.Tensor) -> torch.Tensor:
        return functional.linear(value, self.state[f"{name}.weight"], self.state[f"{name}.bias"])

    def norm(self, name: str, value: torch.Tensor) -> torch.Tensor:
        scale, shift = self.state[f"{name}.weight"], self.state[f"{name}.bias"]
        return functional.layer_norm(value, scale.shape, scale, shift, self.eps)

    def has(self, name: str) -> bool:
        return f"{name}.weight" in self.state

    def attend(self, name: str, value: torch.Tensor, bias: torch.Tensor, heads: int) -> torch.Tensor:
        """Context of self-attention."""
        query, key, content = (
            self.dense(f"{name}.{part}", value).reshape(*value.shape[:2], heads, -1).transpose(1, 2)
            for part in ("query", "key", "value")
        )
        scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1]) + bias
        return (scores.softmax(-1) @ content).transpose(1, 2).reshape(value.shape)

    def layer(
        self, name: str, text: torch.Tensor, entities: torch.Tensor, biases: list[torch.Tensor], mask: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        context = self.attend(f"{name}.attention.self", text, biases[0], self.heads)
        out = f"{name}.attention.output"
        text = self.norm(f"{out}.LayerNorm", self.dense(f"{out}.dense", context) + text)
        inner = self.dense(f"{name}.intermediate.dense", text)
        fuses = self.has(f"{name}.intermediate.dense_ent")
        if fuses:
            if self.has(f"{name}.attention.self_ent.query"):
                context = self.attend(f"{name}.attention.self_ent", entities, biases[1], self.entity_heads)
                out = f"{name}.attention.output_ent"
                entities = self.norm(f"{out}.LayerNorm", self.dense(f"{out}.dense", context) + entities)
            entities = entities * mask[..., None]
            inner = inner + self.dense(f"{name}.intermediate.dense_ent", entities)
        inner = functional.gelu(inner)
        text = self.norm(f"{name}.output.LayerNorm", self.dense(f"{name}.output.dense", inner) + text)
        if fuses:
            entities = self.norm(
                f"{name}.output.LayerNorm_ent", self.dense(f"{name}.output.dense_ent", inner) + entities
            )
        return text, entities

    def streams(
        self,
        ids: torch.Tensor,
        mask: torch.Tensor,
        types: torch.Tensor,
        vectors: torch.Tensor,
        entity_mask: torch.Tensor,
    ) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Embeddings and the text of each layer, vectors and the entities of each layer."""
        tables = [
            self.state[f"bert.embeddings.{name}_embeddings.weight"] for name in ("word", "position", "token_type")
        ]
        value = tables[0][ids] + tables[1][: ids.shape[1]] + tables[2][types]
        texts, entities = [self.norm("bert.embeddings.LayerNorm", value)], [vectors]
        entity_mask = entity_mask.float()
        biases = [(1.0 - each[:, None, None].float()) * -10000.0 for each in (mask, entity_mask)]
        for number in range(self.layers):
            text, entity = self.layer(f"bert.encoder.layer.{number}", texts[-1], entities[-1], biases, entity_mask)
            texts.append(text)
            entities.append(entity)
        return texts, entities

    def transform(self, name: str, states: torch.Tensor) -> torch.Tensor:
        return self.norm(f"{name}.LayerNorm", functional.gelu(self.dense(f"{name}.dense", states)))

    def logits(self, text: torch.Tensor, candidates: torch.Tensor) -> dict[str, torch.Tensor]:
        """Of tokens, of the next sentence, of entities."""
        words = self.state["bert.embeddings.word_embeddings.weight"]
        pooled = torch.tanh(self.dense("bert.pooler.dense", text[:, 0]))
        return {
            "prediction_logits": self.transform("cls.predictions.transform", text) @ words.T
            + self.state["cls.predictions.bias"],
            "seq_relationship_logits": self.dense("cls.seq_relationship", pooled),
            "entity_logits": self.transform("cls.predictions_ent.transform", text) @ candidates.T,
        }


def reference_losses(logits: dict[str, torch.Tensor], targets: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Means of cross entropies over -100-masked targets, and their sum; 0 where there is no target."""
    names = {
        "mlm_loss": ("prediction_logits", "labels"),
        "nsp_loss": ("seq_relationship_logits", "next_sentence_label"),
        "entity_loss": ("entity_logits", "entity_labels"),
    }
    losses = {}
    for name, (scores, labels) in names.items():
        flat = targets[labels].flatten()
        total = functional.cross_entropy(logits[scores].flatten(0, -2), flat, reduction="sum")
        losses[name] = total / (flat != -100).sum().clamp(min=1)
    losses["loss"] = sum(losses.values())
    return losses
