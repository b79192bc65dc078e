"""BERT's pre-training: the heads, their losses (mean CE of masked tokens + mean CE of next sentences), and the output.

The means are over the targets of one update: those of the batch, or of all micro-batches (`num_items_in_batch` for the
tokens, `target_counts` for the others). A term without any target is 0, never NaN. Families add terms of their own.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers.utils import ModelOutput

from .losses_core import (
    count_targets,
    mean_over_targets,
    select_labelled,
    share_of_update,
    sum_of_terms,
    summed_cross_entropy,
    target_sums,
    vocabulary_loss_sum,
)
from .task_heads_core import VocabularyHead, VocabularyModel

Targets = dict[str, torch.Tensor | None]


class PreTrainingHeads(VocabularyHead):
    """The heads of pre-training: vocabulary and, unless left out, next sentence."""

    def __init__(self, config: Any, predictions: nn.Module, next_sentence: bool = True):
        super().__init__(predictions)
        self.seq_relationship = nn.Linear(config.hidden_size, 2) if next_sentence else None


@dataclass
class PreTrainingOutput(ModelOutput):
    """Base of the outputs of `ForPreTraining`; `logits`, no field, is another name of `prediction_logits`, as
    upstream's code (label smoothing, losses of one's own) looks for it.
    """

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__("prediction_logits" if key == "logits" else key)

    @property
    def logits(self) -> torch.Tensor | None:
        """`prediction_logits`, under the name that upstream's code reads."""
        return self.prediction_logits  # type: ignore[attr-defined]


@dataclass
class MlmAndNspOutput(PreTrainingOutput):
    """Output of `ForPreTraining`; `logits` is another name of `prediction_logits`.

    Args:
        loss: sum of the terms.
        mlm_loss: masked-language-model term, mean over labelled tokens.
        nsp_loss: next-sentence term, mean over labelled sequences.
        prediction_logits: `(batch, seq_len, vocab_size)`; `None` in training unless asked for.
        seq_relationship_logits: `(batch, 2)` or, packed, `(batch, S, 2)`.
        hidden_states: embeddings and the output of each layer, `(batch, seq_len, hidden)` each.
        attentions: weights of each layer, `(batch, heads, seq_len, seq_len)` each.
    """

    loss: torch.Tensor | None = None
    mlm_loss: torch.Tensor | None = None
    nsp_loss: torch.Tensor | None = None
    prediction_logits: torch.Tensor | None = None
    seq_relationship_logits: torch.Tensor | None = None
    hidden_states: tuple[torch.Tensor, ...] | None = None
    attentions: tuple[torch.Tensor, ...] | None = None


class PreTrainingTerms:
    """The terms of one pre-training loss: means over the targets of an update, and what to run where one has none.

    `logits` and `targets` have the names of the output and of `forward`. Without the number of its targets in
    `target_counts` a term is a mean over the micro-batch, weighted by its share of the update's labels.
    """

    def __init__(
        self,
        model: Any,
        states: torch.Tensor,
        logits: dict[str, torch.Tensor | None],
        targets: Targets,
        num_items_in_batch: torch.Tensor | int | None = None,
        target_counts: dict[str, torch.Tensor] | None = None,
    ):
        self.model = model
        self.counts = target_counts or {}
        self.share: torch.Tensor | None = None
        self.terms: dict[str, torch.Tensor | None] = {"mlm_loss": None, "nsp_loss": None}
        self.idle: dict[str, Callable[[], torch.Tensor]] = {"mlm_loss": lambda: model.cls.predictions(states[:0])}
        if targets["labels"] is not None:
            labels, positions = targets["labels"], targets["label_positions"]
            mlm_sum, flat = vocabulary_loss_sum(
                model.cls.predictions, states, labels, positions, logits["prediction_logits"]
            )
            self.terms["mlm_loss"] = mean_over_targets(mlm_sum, flat, num_items_in_batch)
            if num_items_in_batch is not None:
                self.share = share_of_update(count_targets(flat), num_items_in_batch)
        sentence_logits = logits["seq_relationship_logits"]
        if sentence_logits is not None:
            self.idle["nsp_loss"] = lambda: sentence_logits[:0]
            if targets["next_sentence_label"] is not None:
                flat = targets["next_sentence_label"].reshape(-1)
                nsp_sum = summed_cross_entropy(sentence_logits.reshape(-1, 2), flat)
                self.terms["nsp_loss"] = self.mean("next_sentence_label", nsp_sum, flat)

    def mean(self, target: str, loss_sum: torch.Tensor, flat: torch.Tensor) -> torch.Tensor:
        """A further term: the sum over its targets, divided by their number in the update."""
        loss = mean_over_targets(loss_sum, flat, self.counts.get(target))
        return loss if self.share is None or target in self.counts else loss * self.share

    def losses(self, weights: dict[str, float] | None = None) -> dict[str, torch.Tensor | None]:
        """The terms that have targets, and their weighted sum."""
        return {"loss": sum_of_terms(self.model, self.terms, self.idle, weights), **self.terms}


def pretraining_sums(
    model: Any, states: torch.Tensor, pooled: torch.Tensor | None, targets: Targets
) -> dict[str, torch.Tensor]:
    """The body of `ForPreTraining.evaluation_sums`, which see: the two terms of BERT."""
    sums = {}
    if targets["labels"] is not None:
        selected = select_labelled(states, targets["labels"], targets["label_positions"])
        sums["mlm"] = target_sums(model.cls.predictions, *selected)
    if targets["next_sentence_label"] is not None and pooled is not None:
        flat = targets["next_sentence_label"].reshape(-1)
        sums["nsp"] = target_sums(model.cls.seq_relationship, pooled.reshape(-1, pooled.shape[-1]), flat)
    return sums


class MlmAndNspHead(VocabularyModel):
    """BERT's pre-training heads: masked tokens and, unless the config leaves it out, next sentence."""

    _example = """
        >>> output = model(
        ...     torch.tensor([[2, 7, 4, 3, 9, 3]]),
        ...     labels=torch.tensor([[-100, -100, 8, -100, -100, -100]]),
        ...     next_sentence_label=torch.tensor([0]),
        ... )
        >>> bool(torch.isclose(output.loss, output.mlm_loss + output.nsp_loss))
        True
    """

    _optional_labels = ("next_sentence_label", "label_positions")
    _prediction_heads = {"cls.predictions": "masked-language-model head", "cls.seq_relationship": "next-sentence head"}

    def __init__(self: Any, config: Any):
        super().__init__(config)
        next_sentence = getattr(config, "next_sentence_prediction", True)
        self.add_encoder(pooled=next_sentence)
        self.cls = PreTrainingHeads(config, self._vocabulary_head(config), next_sentence)
        self.post_init()

    def forward(
        self: Any,
        labels: torch.Tensor | None = None,
        next_sentence_label: torch.Tensor | None = None,
        label_positions: torch.Tensor | None = None,
        return_logits: bool | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        target_counts: dict[str, torch.Tensor] | None = None,
        **inputs: Any,
    ) -> MlmAndNspOutput:
        """Encode and, for the labels given, compute the terms of the loss.

        Args:
            labels: `(batch, seq_len)` original ids at selected tokens, -100 elsewhere.
            next_sentence_label: `(batch,)` or, packed, `(batch, S)`: 0 continuation, 1 random, -100 ignored.
            label_positions: `(batch, budget)` positions that cover `labels`; keeps all shapes fixed.
            return_logits: whether to compute full token logits; `None` (default) means yes, except in training with
                labels.
            num_items_in_batch: number of labels over all micro-batches of one update; the token term is divided by it.
            target_counts: the same number for the other term, under `"next_sentence_label"`. Without it that term is
                the mean over the micro-batch, weighted by its share of the update's labels.
            inputs: the encoder's inputs, and `output_hidden_states`, `output_attentions`, `return_dict` as upstream.

        Returns:
            `MlmAndNspOutput`.
        """
        next_sentence = self.cls.seq_relationship
        if next_sentence_label is not None and next_sentence is None:
            raise ValueError(
                "`next_sentence_label` needs the next-sentence head, got `config.next_sentence_prediction` = "
                f"{self.config.next_sentence_prediction}: set it to True."
            )
        outputs = self.encode_sequences(next_sentence_label, inputs)
        states = outputs.last_hidden_state
        logits = {
            "prediction_logits": self.cls.predictions(states) if self.wants_logits(return_logits, labels) else None,
            "seq_relationship_logits": None if next_sentence is None else next_sentence(outputs.pooler_output),
        }
        targets = {"labels": labels, "label_positions": label_positions, "next_sentence_label": next_sentence_label}
        terms = PreTrainingTerms(self, states, logits, targets, num_items_in_batch, target_counts)
        return self.head_output(MlmAndNspOutput, outputs, **terms.losses(), **logits)

    @torch.no_grad()
    def evaluation_sums(
        self: Any,
        labels: torch.Tensor | None = None,
        next_sentence_label: torch.Tensor | None = None,
        label_positions: torch.Tensor | None = None,
        **inputs: Any,
    ) -> dict[str, torch.Tensor]:
        """Sums from which evaluation metrics are made, without ever holding full logits; arguments as in `forward`.

        Returns:
            Per term with labels (`mlm`, `nsp`) `[sum of cross entropies, correct, number of targets]`, float64.
        """
        outputs = self.encode_sequences(next_sentence_label, inputs)
        targets = {"labels": labels, "label_positions": label_positions, "next_sentence_label": next_sentence_label}
        return pretraining_sums(self, outputs.last_hidden_state, outputs.pooler_output, targets)
