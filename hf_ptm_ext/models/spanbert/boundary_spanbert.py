"""The span boundary objective's head, its logits and targets, and the prediction of masked spans with it."""

from typing import Any

import torch
from torch import nn
from transformers.activations import ACT2FN
from transformers.utils import logging

from .configuration_spanbert import SpanBertConfig
from .heads_spanbert import check_budget, count_targets, summed_cross_entropy

logger = logging.get_logger(__name__)


class SpanBertBoundaryMLP(nn.Module):
    """Two dense, activation, LayerNorm steps from the boundary states to the width of the word embeddings."""

    def __init__(self, config: SpanBertConfig):
        super().__init__()
        self.linear1 = nn.Linear(2 * config.hidden_size + config.pair_positional_embedding_size, config.hidden_size)
        self.layer_norm1 = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.linear2 = nn.Linear(config.hidden_size, config.hidden_size)
        self.layer_norm2 = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.act_fn = ACT2FN[config.hidden_act]

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """`(..., 2 * hidden + position width)` to `(..., hidden)`."""
        hidden_states = self.layer_norm1(self.act_fn(self.linear1(hidden_states)))
        return self.layer_norm2(self.act_fn(self.linear2(hidden_states)))


class SpanBertBoundaryHead(nn.Module):
    """The span boundary objective's head (`cls.pair_target_predictions` in the state dict).

    The position table is relative to the left boundary: row 0 is the first token of the span.
    """

    def __init__(self, config: SpanBertConfig):
        super().__init__()
        self.position_embeddings = nn.Embedding(config.max_pair_targets, config.pair_positional_embedding_size)
        self.mlp_layer_norm = SpanBertBoundaryMLP(config)
        self.decoder = nn.Linear(config.hidden_size, config.vocab_size)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def features(
        self, hidden_states: torch.Tensor, span_boundaries: torch.Tensor, slots: torch.Tensor
    ) -> torch.Tensor:
        """Input of the head for chosen targets.

        Args:
            hidden_states: `(batch, seq_len, hidden)`.
            span_boundaries: `(batch, pairs, 2)` positions in the row.
            slots: `(targets,)` indices into the flattened `(batch, pairs, max_pair_targets)`.

        Returns:
            `(targets, 2 * hidden + position width)`.
        """
        batch, seq_len, width = hidden_states.shape
        flat_states = hidden_states.reshape(batch * seq_len, width)
        rows = torch.arange(batch, device=span_boundaries.device)[:, None, None]
        boundaries = (rows * seq_len + span_boundaries).reshape(-1, 2)
        pairs, offsets = (
            slots // self.position_embeddings.num_embeddings,
            slots % self.position_embeddings.num_embeddings,
        )
        left, right = boundaries.index_select(0, pairs).unbind(-1)
        return torch.cat(
            [
                flat_states.index_select(0, left),
                flat_states.index_select(0, right),
                self.position_embeddings(offsets),
            ],
            dim=-1,
        )

    def all_logits(self, hidden_states: torch.Tensor, span_boundaries: torch.Tensor) -> torch.Tensor:
        """Logits of every slot of every pair.

        Args:
            hidden_states: `(batch, seq_len, hidden)`.
            span_boundaries: `(batch, pairs, 2)` positions in the row.

        Returns:
            `(batch, pairs, max_pair_targets, vocab_size)`.
        """
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

        Args:
            hidden_states: `(batch, seq_len, hidden)`.
            span_boundaries: `(batch, pairs, 2)`.
            span_labels: `(batch, pairs, max_pair_targets)`.
            row_budget: the most targets that a row can have. With it the number of slots is fixed, labelled ones
                first; without it labelled slots are looked up, or all are kept while compiling.

        Returns:
            `(slots, 2 * hidden + position width)` and `(slots,)`.

        Raises:
            ValueError: a row has more span targets than `row_budget`.
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

    def loss_sum(
        self,
        hidden_states: torch.Tensor,
        span_boundaries: torch.Tensor,
        span_labels: torch.Tensor,
        logits: torch.Tensor | None = None,
        row_budget: int | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Summed loss over span targets, from full logits if they are there anyway.

        Args:
            hidden_states: `(batch, seq_len, hidden)`.
            span_boundaries: `(batch, pairs, 2)`.
            span_labels: `(batch, pairs, max_pair_targets)`.
            logits: `(batch, pairs, max_pair_targets, vocab_size)`, or `None`.
            row_budget: as in `labelled`.

        Returns:
            The sum and the number of targets, both scalars.
        """
        if logits is not None:
            targets = span_labels.reshape(-1)
            return summed_cross_entropy(logits.reshape(-1, logits.shape[-1]), targets), count_targets(targets)
        features, targets = self.labelled(hidden_states, span_boundaries, span_labels, row_budget)
        return summed_cross_entropy(self(features), targets), count_targets(targets)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """`(targets, 2 * hidden + position width)` to `(targets, vocab_size)`."""
        return self.decoder(self.mlp_layer_norm(features))


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
    """The body of `SpanBertForPreTraining.fill_span`, which see.

    Args:
        model: the `SpanBertForPreTraining`.
        text: as there, like all that follow.
        tokenizer: the checkpoint's tokenizer.
        top_k: number of candidates per token.

    Returns:
        One dict per span.

    Raises:
        ValueError: no mask token in the text, or a span longer than `max_pair_targets`.
    """
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
