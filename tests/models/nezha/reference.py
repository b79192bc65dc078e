"""NEZHA's formulas in plain torch on the original's own keys, written from the paper for tests to compare with."""

import math

import torch
from torch.nn.functional import gelu, layer_norm, linear


class Reference:
    """The pre-training model.

    Args:
        state: the original's state dict.
        layers: number of layers.
        heads: number of attention heads.
        reach: `max_relative_position`.
    """

    def __init__(self, state, layers, heads, reach):
        self.state, self.layers, self.heads, self.reach = state, layers, heads, reach

    def encoding(self, query, key, width):
        """The sinusoids of one distance."""
        place = max(-self.reach, min(self.reach, key - query)) + self.reach
        row = [0.0] * width
        for pair in range(width // 2):
            angle = place / 10000 ** (2 * pair / width)
            row[2 * pair], row[2 * pair + 1] = math.sin(angle), math.cos(angle)
        return row

    def encodings(self, length, width):
        return torch.tensor([[self.encoding(query, key, width) for key in range(length)] for query in range(length)])

    def dense(self, states, name):
        return linear(states, self.state[f"{name}.weight"], self.state[f"{name}.bias"])

    def norm(self, states, name):
        return layer_norm(
            states, states.shape[-1:], self.state[f"{name}.weight"], self.state[f"{name}.bias"], eps=1e-12
        )

    def hidden_states(self, input_ids, attention_mask, token_type_ids):
        """Embeddings and the output of each layer."""
        words = self.state["bert.embeddings.word_embeddings.weight"][input_ids]
        types = self.state["bert.embeddings.token_type_embeddings.weight"][token_type_ids]
        states = [self.norm(words + types, "bert.embeddings.LayerNorm")]
        for number in range(self.layers):
            states.append(self.layer(states[-1], attention_mask, f"bert.encoder.layer.{number}"))
        return states

    def layer(self, states, attention_mask, name):
        batch, length, hidden = states.shape
        width = hidden // self.heads
        query, key, value = (
            self.dense(states, f"{name}.attention.self.{part}").view(batch, length, self.heads, width).transpose(1, 2)
            for part in ("query", "key", "value")
        )
        encodings = self.encodings(length, width)
        scores = query @ key.transpose(2, 3) + (query[..., None, :] * encodings).sum(-1)
        scores = scores / math.sqrt(width) + (1 - attention_mask[:, None, None].float()) * -10000.0
        weights = scores.softmax(-1)
        context = weights @ value + (weights[..., None] * encodings).sum(-2)
        context = context.transpose(1, 2).reshape(batch, length, hidden)
        attended = self.norm(
            self.dense(context, f"{name}.attention.output.dense") + states, f"{name}.attention.output.LayerNorm"
        )
        inner = gelu(self.dense(attended, f"{name}.intermediate.dense"))
        return self.norm(self.dense(inner, f"{name}.output.dense") + attended, f"{name}.output.LayerNorm")

    def logits(self, states):
        """Of the vocabulary and of the next sentence, and the pooled state."""
        pooled = self.dense(states[:, 0], "bert.pooler.dense").tanh()
        transformed = self.norm(
            gelu(self.dense(states, "cls.predictions.transform.dense")), "cls.predictions.transform.LayerNorm"
        )
        words = self.state["bert.embeddings.word_embeddings.weight"]
        vocabulary = linear(transformed, words, self.state["cls.predictions.bias"])
        return vocabulary, self.dense(pooled, "cls.seq_relationship"), pooled
