"""KnowBERT's formulas in plain torch on the original's own keys, written from the paper for tests to compare with."""

import math

import torch
from torch.nn.functional import cross_entropy, gelu, layer_norm, linear


class Reference:
    """The pre-training model.

    Args:
        state: the original's state dict.
        heads: attention heads of BERT.
        bases: name -> (layer, loss, heads, null entity's row).
    """

    def __init__(self, state, heads, bases):
        self.state, self.heads, self.bases = state, heads, bases

    def dense(self, states, name):
        return linear(states, self.state[f"{name}.weight"], self.state[f"{name}.bias"])

    def norm(self, states, name, eps):
        return layer_norm(states, states.shape[-1:], self.state[f"{name}.weight"], self.state[f"{name}.bias"], eps)

    def attend(self, query, key, value, heads, bias):
        batch, length, width = query.shape
        query, key, value = (one.unflatten(-1, (heads, -1)).transpose(1, 2) for one in (query, key, value))
        weights = (query @ key.transpose(2, 3) / math.sqrt(width // heads) + bias[:, None, None]).softmax(-1)
        return (weights @ value).transpose(1, 2).reshape(batch, length, width), weights

    def layer(self, states, memory, bias, heads, attention, rest):
        """A BERT layer whose keys and values may be others than its queries."""
        parts = [
            self.dense(one, f"{attention}.{n}") for one, n in ((states, "query"), (memory, "key"), (memory, "value"))
        ]
        context, weights = self.attend(*parts, heads, bias)
        output = f"{rest}.attention.output"
        attended = self.norm(self.dense(context, f"{output}.dense") + states, f"{output}.LayerNorm", 1e-12)
        inner = gelu(self.dense(attended, f"{rest}.intermediate.dense"))
        out = self.dense(inner, f"{rest}.output.dense") + attended
        return self.norm(out, f"{rest}.output.LayerNorm", 1e-12), weights

    def table(self, linker, rows):
        part = f"{linker}.entity_embeddings"
        if f"{part}.weight" in self.state:
            return self.state[f"{part}.weight"][rows]
        speech = self.state[f"{part}.pos_embeddings.weight"][self.state[f"{part}.entity_id_to_pos_index"][rows]]
        both = torch.cat([self.state[f"{part}.entity_embeddings.weight"][rows], speech], -1)
        return self.dense(both, f"{part}.proj_feed_forward")

    def knowledge(self, name, states, spans, rows, priors):
        """One knowledge base: new states and scores, a span and a candidate at a time."""
        _, loss, heads, _ = self.bases[name]
        whole, linker = f"{name}_soldered_kg", f"{name}_soldered_kg.entity_linker.disambiguator"
        scorer = f"{linker}.dot_attention_with_prior"
        projected = self.dense(states, f"{linker}.bert_to_kg_projector")
        width = projected.shape[-1]
        pooled = torch.zeros(*spans.shape[:2], width)
        for row in range(len(spans)):
            for number, (first, last) in enumerate(spans[row].tolist()):
                if first >= 0:
                    inside = projected[row, first : last + 1]
                    shares = self.dense(inside, f"{linker}.span_extractor._global_attention._module").softmax(0)
                    pooled[row, number] = (shares * inside).sum(0)
        bias = torch.where(spans[..., 0] >= 0, 0.0, -10000.0)
        encoded = self.norm(pooled, f"{linker}.projected_span_layer_norm", 1e-5)
        layer = 0
        while f"{linker}.span_encoder.layer.{layer}.output.dense.bias" in self.state:
            part = f"{linker}.span_encoder.layer.{layer}"
            encoded, _ = self.layer(encoded, encoded, bias, heads, f"{part}.attention.self", part)
            layer += 1
        entities = self.norm(self.table(linker, rows), f"{linker}.kg_layer_norm", 1e-5)
        near = (encoded[:, :, None] * entities).sum(-1) / math.sqrt(width)
        hidden = self.dense(torch.stack([near, priors], -1), f"{scorer}.out_layer_1").relu()
        scores = self.dense(hidden, f"{scorer}.out_layer_2")[..., 0].masked_fill(rows == 0, -10000.0)
        linked = torch.zeros_like(encoded)
        for place in torch.cartesian_prod(torch.arange(len(rows)), torch.arange(rows.shape[1])).tolist():
            own = scores[tuple(place)].clone()
            if loss == "margin":
                own[own < 0] = -10000.0
            linked[tuple(place)] = own.softmax(0) @ entities[tuple(place)]
            if loss == "margin" and bool((own == -10000.0).all()):
                linked[tuple(place)] = self.state[f"{scorer}.null_embedding"]
        memory = self.norm(encoded + linked, f"{whole}.weighted_entity_layer_norm", 1e-5)
        part = f"{whole}.span_attention_layer"
        mixed, weights = self.layer(projected, memory, bias, heads, f"{part}.attention.attention", part)
        added = self.dense(mixed, f"{whole}.kg_to_bert_projection")
        return self.norm(states + added, f"{whole}.output_layer_norm", 1e-5), scores, weights

    def forward(self, ids, types, candidates):
        """Last states, and by knowledge base scores and attention weights."""
        part = "pretrained_bert.bert"
        tables = [self.state[f"{part}.embeddings.{n}_embeddings.weight"] for n in ("word", "position", "token_type")]
        states = tables[0][ids] + tables[1][: ids.shape[1]] + tables[2][types]
        states = self.norm(states, f"{part}.embeddings.LayerNorm", 1e-12)
        bias, scores, weights = torch.where(ids > 0, 0.0, -10000.0), {}, {}
        layer = 0
        while f"{part}.encoder.layer.{layer}.output.dense.bias" in self.state:
            inside = f"{part}.encoder.layer.{layer}"
            states, _ = self.layer(states, states, bias, self.heads, f"{inside}.attention.self", inside)
            for name, (behind, *_) in self.bases.items():
                if behind == layer:
                    states, scores[name], weights[name] = self.knowledge(name, states, *candidates[name])
            layer += 1
        return states, scores, weights

    def linking_loss(self, name, scores, rows, gold):
        """Of one knowledge base."""
        if self.bases[name][1] == "margin":
            sign = torch.where(rows == gold[..., None], 1.0, -1.0)
            return (0.2 - sign * scores).relu()[rows > 0].mean()
        asked = (rows > 0).any(-1)
        return cross_entropy(scores[asked], (rows == gold[..., None])[asked].long().argmax(-1))
