"""The span boundary objective: its head, its loss term, its targets, and the prediction of masked spans with it."""

from typing import Any

import torch
from torch import nn
from transformers.activations import ACT2FN
from transformers.utils import logging

from .configuration_spanbert import SpanBertConfig
from .losses_core import check_budget, check_positions, count_targets, summed_cross_entropy
from .pretraining_core import PreTrainingTerms

logger = logging.get_logger(__name__)


class SpanBertBoundaryMLP(nn.Module):
    """Two dense, activation, LayerNorm steps from the boundary states to the width of the word embeddings."""

    def __init__(self, config: SpanBertConfig):
        super().__init__()
        self.linear1 = nn.Linear(2 * config.hidden_size + config.pair_positional_embedding_size, config.hidden_size)
        self.layer_norm1 = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.linear2 = nn.Linear(config.hidden_size, config.embedding_width)
        self.layer_norm2 = nn.LayerNorm(config.embedding_width, eps=config.layer_norm_eps)
        self.act_fn = ACT2FN[config.hidden_act]

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """`(..., 2 * hidden + position width)` to `(..., embedding width)`."""
        hidden_states = self.layer_norm1(self.act_fn(self.linear1(hidden_states)))
        return self.layer_norm2(self.act_fn(self.linear2(hidden_states)))


class SpanBertBoundaryHead(nn.Module):
    """The head (`cls.pair_target_predictions`); row 0 of its position table is the first token of the span."""

    def __init__(self, config: SpanBertConfig):
        super().__init__()
        self.position_embeddings = nn.Embedding(config.max_pair_targets, config.pair_positional_embedding_size)
        self.mlp_layer_norm = SpanBertBoundaryMLP(config)
        self.decoder = nn.Linear(config.embedding_width, config.vocab_size)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def features(
        self, hidden_states: torch.Tensor, span_boundaries: torch.Tensor, slots: torch.Tensor
    ) -> torch.Tensor:
        """Input of the head for `slots`, indices into the flattened `(batch, pairs, max_pair_targets)`."""
        batch, seq_len, width = hidden_states.shape
        flat_states = hidden_states.reshape(batch * seq_len, width)
        rows = torch.arange(batch, device=span_boundaries.device)[:, None, None]
        boundaries = (rows * seq_len + span_boundaries).reshape(-1, 2)
        width = self.position_embeddings.num_embeddings
        pairs, offsets = slots // width, slots % width
        left, right = boundaries.index_select(0, pairs).unbind(-1)
        ends = [flat_states.index_select(0, end) for end in (left, right)]
        return torch.cat([*ends, self.position_embeddings(offsets)], dim=-1)

    def all_logits(self, hidden_states: torch.Tensor, span_boundaries: torch.Tensor) -> torch.Tensor:
        """Logits of every slot of every pair."""
        shape = (*span_boundaries.shape[:2], self.position_embeddings.num_embeddings)
        slots = torch.arange(shape[0] * shape[1] * shape[2], device=hidden_states.device)
        return self(self.features(hidden_states, span_boundaries, slots)).reshape(*shape, -1)

    def of_no_pairs(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """`(0, vocab_size)`: the head run on nothing."""
        slots = torch.zeros(0, dtype=torch.long, device=hidden_states.device)
        return self(self.features(hidden_states, slots.new_zeros(hidden_states.shape[0], 1, 2), slots))

    def labelled(
        self,
        hidden_states: torch.Tensor,
        span_boundaries: torch.Tensor,
        span_labels: torch.Tensor,
        row_budget: int | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs of `forward` and labels of the slots that have a label.

        With `row_budget`, the most targets that a row can have, the number of slots is fixed, labelled ones first;
        without it labelled slots are looked up, or all are kept while compiling.
        """
        targets = span_labels.reshape(-1)
        if row_budget is not None:
            row_labels = span_labels.flatten(1)
            chosen = (row_labels == -100).to(torch.uint8).sort(dim=1, stable=True).indices[:, :row_budget]
            rows = torch.arange(row_labels.shape[0], device=targets.device)[:, None]
            slots = (rows * row_labels.shape[1] + chosen).reshape(-1)
        elif torch.compiler.is_compiling():
            slots = torch.arange(targets.shape[0], device=targets.device)
        else:
            slots = (targets != -100).nonzero().squeeze(-1)
        if row_budget is not None:
            check_budget(targets, slots, "label_positions")
        return self.features(hidden_states, span_boundaries, slots), targets.index_select(0, slots)

    def add_term(
        self,
        terms: PreTrainingTerms,
        hidden_states: torch.Tensor,
        targets: dict[str, torch.Tensor | None],
        logits: torch.Tensor | None,
    ) -> None:
        """Add sum CE(sbo) / (N_sbo + 1) to a pre-training loss, from full logits if they are there anyway."""
        terms.terms["sbo_loss"] = None
        terms.idle["sbo_loss"] = lambda: self.of_no_pairs(hidden_states)
        boundaries, labels, budget = (targets[name] for name in ("span_boundaries", "span_labels", "label_positions"))
        if boundaries is None or labels is None:
            return
        if logits is not None:
            flat = labels.reshape(-1)
            loss_sum = summed_cross_entropy(logits.reshape(-1, logits.shape[-1]), flat)
        else:
            # Every span token is also a labelled token, so the budget of labels bounds a row's span targets too.
            row_budget = None if budget is None else budget.shape[1]
            features, flat = self.labelled(hidden_states, boundaries, labels, row_budget)
            loss_sum = summed_cross_entropy(self(features), flat)
        number = count_targets(flat)
        estimated = number if terms.share is None else number / terms.share.clamp(min=1e-12)
        terms.terms["sbo_loss"] = loss_sum / (terms.counts.get("span_labels", estimated) + 1)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """`(targets, 2 * hidden + position width)` to `(targets, vocab_size)`."""
        return self.decoder(self.mlp_layer_norm(features))


def check_targets(model: Any, seq_len: int | None, targets: dict[str, torch.Tensor | None]) -> None:
    """Refuse targets that the model cannot use."""
    boundaries, labels = targets["span_boundaries"], targets["span_labels"]
    if boundaries is not None and seq_len is not None:
        check_positions(boundaries, seq_len, "span_boundaries")
    if labels is not None:
        if boundaries is None:
            raise ValueError("`span_labels` needs `span_boundaries`, the positions around each span, got None.")
        width = model.config.max_pair_targets
        if labels.shape != (*boundaries.shape[:2], width):
            raise ValueError(
                f"`span_labels` must be (batch, pairs, max_pair_targets) = {(*boundaries.shape[:2], width)}, got "
                f"{tuple(labels.shape)}. Give the collator `max_pair_targets={width}`."
            )
    if targets["next_sentence_label"] is not None and model.cls.seq_relationship is None:
        raise ValueError(
            "`next_sentence_label` needs the next-sentence head: set `config.next_sentence_prediction=True`, got "
            f"{model.config.next_sentence_prediction}."
        )


def _mask_runs(is_mask: torch.Tensor) -> list[tuple[int, int]]:
    """Start and exclusive end of every run of true values in a `(seq_len,)` tensor."""
    padded = nn.functional.pad(is_mask.to(torch.int8), (1, 1))
    steps = padded[1:] - padded[:-1]
    starts, ends = (steps == 1).nonzero().flatten(), (steps == -1).nonzero().flatten()
    return list(zip(starts.tolist(), ends.tolist(), strict=True))


def _describe_span(tokenizer: Any, start: int, end: int, probabilities: torch.Tensor, top_k: int) -> dict[str, Any]:
    """The readable form of a span's `(length, vocab_size)` probabilities."""
    values, ids = probabilities.topk(min(top_k, probabilities.shape[-1]), dim=-1)
    candidates = [
        list(zip(tokenizer.convert_ids_to_tokens(row_ids), row_values, strict=True))
        for row_ids, row_values in zip(ids.tolist(), values.tolist(), strict=True)
    ]
    best = [row[0][0] for row in candidates]
    return {
        "start": start,
        "end": end,
        "text": tokenizer.convert_tokens_to_string(best),
        "tokens": best,
        "candidates": candidates,
    }


@torch.no_grad()
def fill_masked_spans(model: Any, text: str, tokenizer: Any, top_k: int) -> list[dict[str, Any]]:
    """The body of `SpanBertForPreTraining.fill_span`, which see."""
    if "cls.pair_target_predictions" in getattr(model, "_fresh_heads", ()):
        logger.warning(
            "The span boundary head was not in the checkpoint: `fill_span` returns noise until it is trained."
        )
    encoding = tokenizer(text, return_tensors="pt").to(model.device)
    input_ids = encoding["input_ids"][0]
    spans = _mask_runs(input_ids == tokenizer.mask_token_id)
    if not spans:
        raise ValueError(f"`text` must contain the mask token {tokenizer.mask_token!r} at least once, got {text!r}.")
    width = model.config.max_pair_targets
    for start, end in spans:
        if end - start > width:
            raise ValueError(
                f"A span of {end - start} mask tokens is longer than `max_pair_targets` = {width}, the positions "
                "that the boundary head knows."
            )
        if start < 2 or end > len(input_ids) - 2:
            logger.warning(
                "A span at the edge of the text has [CLS] or [SEP] for a boundary, which the objective never "
                "trains: the prediction is unreliable."
            )
    boundaries = torch.tensor([[[start - 1, end] for start, end in spans]], device=model.device)
    was_training = model.training
    model.eval()
    try:
        logits = model(**encoding, span_boundaries=boundaries, return_dict=True).boundary_logits[0]
    finally:
        model.train(was_training)
    return [
        _describe_span(tokenizer, start, end, span_logits[: end - start].softmax(-1), top_k)
        for (start, end), span_logits in zip(spans, logits, strict=True)
    ]
