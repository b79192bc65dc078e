"""ZEN's formulas in plain torch on the original's own keys, written from the paper for tests to compare with."""

import math

import torch
from torch.nn.functional import gelu, layer_norm, linear


class Reference:
    """The pre-training model.

    Args:
        state: the original's state dict.
        layers: layers of the text.
        word_layers: layers of the n-grams.
        heads: number of attention heads.
    """

    def __init__(self, state, layers, word_layers, heads):
        self.state, self.layers, self.word_layers, self.heads = state, layers, word_layers, heads

    def dense(self, states, name):
        return linear(states, self.state[f"{name}.weight"], self.state[f"{name}.bias"])

    def norm(self, states, name):
        return layer_norm(
            states, states.shape[-1:], self.state[f"{name}.weight"], self.state[f"{name}.bias"], eps=1e-12
        )

    def embedded(self, ids, types, name, positions=False):
        states = self.state[f"{name}.word_embeddings.weight"][ids]
        if positions:
            states = states + self.state[f"{name}.position_embeddings.weight"][: ids.shape[1]]
        return self.norm(states + self.state[f"{name}.token_type_embeddings.weight"][types], f"{name}.LayerNorm")

    def layer(self, states, mask, name):
        batch, length, hidden = states.shape
        width = hidden // self.heads
        query, key, value = (
            self.dense(states, f"{name}.attention.self.{part}").view(batch, length, self.heads, width).transpose(1, 2)
            for part in ("query", "key", "value")
        )
        scores = query @ key.transpose(2, 3) / math.sqrt(width) + (1 - mask[:, None, None].float()) * -10000.0
        context = (scores.softmax(-1) @ value).transpose(1, 2).reshape(batch, length, hidden)
        attended = self.norm(
            self.dense(context, f"{name}.attention.output.dense") + states, f"{name}.attention.output.LayerNorm"
        )
        inner = gelu(self.dense(attended, f"{name}.intermediate.dense"))
        return self.norm(self.dense(inner, f"{name}.output.dense") + attended, f"{name}.output.LayerNorm")

    def hidden_states(self, input_ids, attention_mask, token_type_ids, ngrams, ngram_mask=None):
        """Embeddings and the text after each layer.

        `ngrams` holds a list of (id, start, length, type) per row.
        """
        width = max([1, *(len(row) for row in ngrams)])
        ids, types, real = (torch.zeros(len(ngrams), width, dtype=torch.long) for _ in range(3))
        matrix = torch.zeros(*input_ids.shape, width)
        for row, entries in enumerate(ngrams):
            for place, (number, start, length, kind) in enumerate(entries):
                ids[row, place], types[row, place], real[row, place] = number, kind, 1
                matrix[row, start : start + length, place] = 1
        grams = self.embedded(ids, types, "bert.word_embeddings")
        states = [self.embedded(input_ids, token_type_ids, "bert.embeddings", positions=True)]
        for number in range(self.layers):
            text = self.layer(states[-1], attention_mask, f"bert.encoder.layer.{number}")
            if number < self.word_layers:
                mask = real if ngram_mask is None else ngram_mask
                grams = self.layer(grams, mask, f"bert.encoder.word_layers.{number}")
            states.append(text + matrix @ grams)
        return states

    def logits(self, states):
        """Of the vocabulary and of the next sentence."""
        pooled = self.dense(states[:, 0], "bert.pooler.dense").tanh()
        transformed = self.norm(
            gelu(self.dense(states, "cls.predictions.transform.dense")), "cls.predictions.transform.LayerNorm"
        )
        words = self.state["bert.embeddings.word_embeddings.weight"]
        return linear(transformed, words, self.state["cls.predictions.bias"]), self.dense(
            pooled, "cls.seq_relationship"
        )
