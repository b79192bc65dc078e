"""KnowBERT's layer between two layers of an encoder: link mentions, and put what they are back into the text.

With text states H of width h and one knowledge base of width d (Peters et al. 2019, section 3):

    P = W1 H + b1                            S_s = LayerNorm(sum_t a_st P_t), a: softmax over the tokens of span s
    S' = BERT layer over the spans           E_sk = LayerNorm(table[candidate k of span s])
    score_sk = MLP(S'_s . E_sk / sqrt d, prior_sk)       E~_s = sum_k softmax(score_s)_k E_sk
    V = LayerNorm(S' + E~)                   P' = BERT layer: queries P, keys and values V
    H' = LayerNorm(H + W2 P' + b2)

With the margin loss, candidates below the threshold do not count, and a span without any other takes the null entity.
A sequence without spans attends to the padding spans: the layer still changes its tokens.
"""

from typing import Any, NamedTuple

import torch
from torch import nn

from .encoder_core import Encoder, Intermediate, SelfAttention, SelfOutput, eager_attention_forward

NOT_A_CANDIDATE = -10000.0
PARTS_OF_SPEECH = 9  # padding, noun, verb, adjective, adverb, satellite, mask, null, unknown


class Candidates(NamedTuple):
    """The mentions of a batch in one knowledge base."""

    spans: torch.Tensor  # (batch, spans, 2), first and last token, -1 = padding
    entities: torch.Tensor  # (batch, spans, candidates), rows of the entity table, 0 = padding
    priors: torch.Tensor  # (batch, spans, candidates)
    groups: torch.Tensor  # (batch, spans), number of the sequence that a span is in, 0 = padding


class KnowledgeSizes:
    """Sizes of one knowledge base's layers under the names that the encoder's layers read."""

    num_hidden_groups, inner_group_num, embedding_size = None, 1, None

    def __init__(self, config: Any, base: dict[str, Any]):
        self.hidden_size = base["entity_size"]
        self.num_attention_heads = base["num_attention_heads"]
        self.intermediate_size = base["intermediate_size"]
        self.num_hidden_layers = base["num_hidden_layers"]
        self.hidden_act = "gelu"
        self.hidden_dropout_prob = config.hidden_dropout_prob
        self.attention_probs_dropout_prob = config.attention_probs_dropout_prob
        self.layer_norm_eps = config.layer_norm_eps
        self._attn_implementation = "eager"  # a few spans, whose weights are worth a look


class PartOfSpeechEntityEmbeddings(nn.Module):
    """WordNet's table: fixed vectors of synsets beside trained ones of their parts of speech, projected together.

    The part-of-speech table has as many rows as there are entities, of which nine are used, as in the released files.
    """

    def __init__(self, config: Any, base: dict[str, Any]):
        super().__init__()
        rows, raw, speech = base["entity_vocab_size"], base["raw_entity_size"], base["part_of_speech_size"]
        self.entity_embeddings = nn.Embedding(rows, raw, padding_idx=0)
        self.pos_embeddings = nn.Embedding(max(rows, PARTS_OF_SPEECH), speech)
        self.proj_feed_forward = nn.Linear(raw + speech, base["entity_size"])
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.register_buffer("entity_id_to_pos_index", torch.zeros(rows, dtype=torch.long))

    def forward(self, entities: torch.Tensor) -> torch.Tensor:
        """`(...)` rows to `(..., entity_size)`."""
        speech = self.pos_embeddings(self.get_buffer("entity_id_to_pos_index")[entities])
        return self.dropout(self.proj_feed_forward(torch.cat([self.entity_embeddings(entities), speech], dim=-1)))


class SpanToTextAttention(SelfAttention):
    """Attention of tokens to spans."""

    def forward(  # type: ignore[override]
        self, hidden_states: torch.Tensor, spans: torch.Tensor, mask: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """`(batch, seq_len, d)` tokens and `(batch, spans, d)` to what each token takes, and the weights."""
        query, key, value = (
            part(states).unflatten(-1, (self.num_attention_heads, -1)).transpose(1, 2)
            for part, states in ((self.query, hidden_states), (self.key, spans), (self.value, spans))
        )
        dropout = self.dropout.p if self.training else 0.0
        context, weights = eager_attention_forward(self, query, key, value, mask, self.scaling, dropout)
        return context.flatten(2), weights


class SpanToText(nn.Module):
    """Attention and its output block."""

    def __init__(self, sizes: KnowledgeSizes):
        super().__init__()
        self.attention = SpanToTextAttention(sizes, 0)
        self.output = SelfOutput(sizes, sizes.hidden_size)


class Recontextualization(nn.Module):
    """A BERT layer in which tokens ask and spans answer."""

    def __init__(self, sizes: KnowledgeSizes):
        super().__init__()
        self.attention = SpanToText(sizes)
        self.intermediate = Intermediate(sizes)
        self.output = SelfOutput(sizes, sizes.intermediate_size)

    def forward(
        self, hidden_states: torch.Tensor, spans: torch.Tensor, mask: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Tokens with what they take of the spans, and the weights `(batch, heads, seq_len, spans)`."""
        context, weights = self.attention.attention(hidden_states, spans, mask)
        attended = self.attention.output(context, hidden_states)
        return self.output(self.intermediate(attended), attended), weights


class PriorScorer(nn.Module):
    """Scores of candidates from how near they are and how usual they are, and what stands for a mention of none."""

    def __init__(self, base: dict[str, Any]):
        super().__init__()
        self.out_layer_1 = nn.Linear(2, base["linker_hidden_size"])
        self.out_layer_2 = nn.Linear(base["linker_hidden_size"], 1)
        null = torch.zeros(base["entity_size"]) if base["linking_loss"] == "margin" else None
        self.register_buffer("null_embedding", null)
        self.threshold = float(base["threshold"])

    def forward(
        self, spans: torch.Tensor, entities: torch.Tensor, candidates: Candidates
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """`(batch, spans, d)` and `(batch, spans, candidates, d)` to scores and the entity of each span."""
        near = torch.einsum("bsd,bscd->bsc", spans, entities) / entities.shape[-1] ** 0.5
        pair = torch.stack([near, candidates.priors.to(near.dtype)], dim=-1)
        scores = self.out_layer_2(self.out_layer_1(pair).relu()).squeeze(-1)
        scores = scores.masked_fill(candidates.entities == 0, NOT_A_CANDIDATE)
        counted = scores
        null: Any = self.null_embedding
        if null is not None:
            counted = scores.masked_fill(scores < self.threshold, NOT_A_CANDIDATE)
        weighted = torch.einsum("bsc,bscd->bsd", counted.softmax(-1), entities)
        if null is not None:
            none = (scores < self.threshold).all(dim=-1, keepdim=True)
            weighted = torch.where(none, null.to(weighted.dtype), weighted)
        return scores, weighted


class KnowledgeAttention(nn.Module):
    """The knowledge attention and recontextualisation of one knowledge base (KAR).

    Args:
        config: of an encoder, with `hidden_size`, both dropouts, `layer_norm_eps` and `knowledge_layer_norm_eps`.
        base: the values of one knowledge base, as `KnowBertConfig.knowledge_bases` has them.
    """

    def __init__(self, config: Any, base: dict[str, Any]):
        super().__init__()
        sizes, width, eps = KnowledgeSizes(config, base), base["entity_size"], config.knowledge_layer_norm_eps
        self.base = base
        self.bert_to_kg_projector = nn.Linear(config.hidden_size, width)
        self.span_extractor = nn.Linear(width, 1)
        self.projected_span_layer_norm = nn.LayerNorm(width, eps=eps)
        self.entity_embeddings: nn.Module = (
            PartOfSpeechEntityEmbeddings(config, base)
            if base["part_of_speech_size"]
            else nn.Embedding(base["entity_vocab_size"], width, padding_idx=0)
        )
        self.kg_layer_norm = nn.LayerNorm(width, eps=eps)
        self.span_encoder = Encoder(sizes)
        self.dot_attention_with_prior = PriorScorer(base)
        self.weighted_entity_layer_norm = nn.LayerNorm(width, eps=eps)
        self.span_attention_layer = Recontextualization(sizes)
        self.kg_to_bert_projection = nn.Linear(width, config.hidden_size)
        self.output_layer_norm = nn.LayerNorm(config.hidden_size, eps=eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    @property
    def table(self) -> nn.Embedding:
        """The entity vectors."""
        outer: Any = self.entity_embeddings
        table: nn.Embedding = getattr(outer, "entity_embeddings", outer)
        return table

    def pool(self, projected: torch.Tensor, spans: torch.Tensor) -> torch.Tensor:
        """Vectors of spans, `(batch, spans, d)`; zeros for padding."""
        places = torch.arange(projected.shape[1], device=projected.device)
        inside = (places >= spans[..., :1]) & (places <= spans[..., 1:])
        logits = self.span_extractor(projected).squeeze(-1)[:, None].expand(inside.shape)
        weights = logits.masked_fill(~inside, torch.finfo(logits.dtype).min).softmax(-1) * inside
        return weights @ projected

    def forward(
        self, hidden_states: torch.Tensor, candidates: Candidates, sequence_ids: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Link, and put back.

        Args:
            hidden_states: `(batch, seq_len, hidden)`.
            candidates: the mentions and who they may be.
            sequence_ids: `(batch, seq_len)` of packed rows.

        Returns:
            The new states; scores of the candidates, `(batch, spans, candidates)`; how much each token took of each
            span, `(batch, heads, seq_len, spans)`.
        """
        groups = candidates.groups
        projected = self.bert_to_kg_projector(hidden_states)
        spans = self.projected_span_layer_norm(self.pool(projected, candidates.spans))
        spans, _ = self.span_encoder(
            spans, visible(groups[:, :, None] == groups[:, None], spans.dtype), plain_attention=True
        )
        entities = self.kg_layer_norm(self.entity_embeddings(candidates.entities))
        scores, linked = self.dot_attention_with_prior(spans, entities, candidates)
        spans = self.weighted_entity_layer_norm(spans + self.dropout(linked))
        # Tokens ask the spans of their own sequence; without any, the padding.
        wanted = torch.ones_like(hidden_states[..., 0], dtype=torch.long) if sequence_ids is None else sequence_ids
        seen = wanted[:, :, None] == groups[:, None]
        seen = torch.where(seen.any(-1, keepdim=True), seen, (groups == 0)[:, None])
        knowledge, weights = self.span_attention_layer(projected, spans, visible(seen, spans.dtype))
        added = self.dropout(self.kg_to_bert_projection(knowledge))
        if sequence_ids is not None:  # without the span of padding that packed rows got
            scores = scores[:, :-1]
        return self.output_layer_norm(hidden_states + added), scores, weights


def visible(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """What is added to scores where a query does not see a key, `(batch, 1, queries, keys)`."""
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, NOT_A_CANDIDATE)[:, None]
