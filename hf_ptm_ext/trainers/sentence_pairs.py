"""Masked tokens and how two segments stand to each other, on upstream's classes: BERT, ALBERT and StructBERT's terms.

    loss = mlm_loss + sentence term: `nsp_loss` (Devlin et al. 2019), `sop_loss` (Lan et al. 2020, ALBERT) or
           `structure_loss`, follows / precedes / from another document (Wang et al. 2020, StructBERT)

Upstream's classes add two means of a micro-batch; here each is a mean over its targets of the whole update.
"""

from typing import Any

import torch
from torch import nn
from transformers.utils import ModelOutput

from ..objectives import masked_lm_loss
from .auxiliary import AuxiliaryObjective, AuxiliaryObjectiveTrainer
from .pretraining import target_sums

# Kind of pairs, as of `data.PairRule` -> the name of the term.
TERM_OF = {"next": "nsp", "order": "sop", "structure": "structure"}


class SentencePairModel(AuxiliaryObjective):
    """A model of masked tokens and sentence pairs; of three classes one is beside the plain model's own two.

    The model's own two logits stand for what they are named for: BERT's for "B follows A" and "B is from another
    document", ALBERT's for "in order" and "exchanged"; the third class of "structure" is the one that remains.

    Relations: rows come from `data.PretrainingStream(pairs=PairRule(...))` or `data.SentencePair.features`, masks from
    any masking collator; train with `SentencePairTrainer`.

    Args:
        model: an `AlbertForPreTraining`, a `BertForPreTraining` or another of upstream with such heads, or the folder
            or repository of one.
        kind: "next", "order" or "structure", as of `data.PairRule`.

    Raises:
        ValueError: the model has no heads for both, or there is no such kind.

    Examples:
        >>> from transformers import BertConfig, BertForPreTraining
        >>> config = BertConfig(
        ...     vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
        ... )
        >>> model = SentencePairModel(BertForPreTraining(config), kind="structure")
        >>> output = model(
        ...     input_ids=torch.tensor([[2, 5, 3, 6, 3]]), token_type_ids=torch.tensor([[0, 0, 0, 1, 1]]),
        ...     labels=torch.tensor([[-100, 5, -100, -100, -100]]), next_sentence_label=torch.tensor([2]),
        ... )
        >>> output.sentence_logits.shape, torch.allclose(output.loss, output.mlm_loss + output.structure_loss)
        (torch.Size([1, 3]), True)
    """

    def __init__(self, model: Any, kind: str = "next"):
        super().__init__(model)
        if kind not in TERM_OF:
            raise ValueError(f"`kind` must be one of {', '.join(TERM_OF)}, got {kind!r}.")
        heads = getattr(self.model, "cls", self.model)
        self._of_order = hasattr(heads, "sop_classifier")
        if not hasattr(heads, "predictions") or not (self._of_order or hasattr(heads, "seq_relationship")):
            raise ValueError(
                f"`model` must have heads for masked tokens and for sentence pairs, got {type(self.model).__name__}. "
                "Use AlbertForPreTraining, BertForPreTraining or another of upstream's with both."
            )
        self.term = TERM_OF[kind]
        self.third = nn.Linear(self.model.config.hidden_size, 1) if kind == "structure" else None
        if self.third is not None:
            nn.init.normal_(self.third.weight, std=float(getattr(self.model.config, "initializer_range", 0.02)))
            nn.init.zeros_(self.third.bias)

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        next_sentence_label: torch.Tensor | None = None,
        label_positions: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        target_counts: dict[str, torch.Tensor] | None = None,
    ) -> ModelOutput:
        """Compute the terms whose labels are there.

        Args:
            input_ids: masked text, `(batch, seq_len)`.
            attention_mask: 1 = text, 0 = padding, `(batch, seq_len)`.
            labels: original ids at selected tokens, -100 elsewhere, `(batch, seq_len)`.
            token_type_ids: the segment of each token, `(batch, seq_len)`.
            next_sentence_label: the class of each pair, -100 for none, `(batch,)`.
            label_positions: where the labels are, `(batch, slots)`.
            num_items_in_batch: labels over all micro-batches of an update; the Trainer passes it.
            target_counts: pairs over all micro-batches under "next_sentence_label"; the Trainer passes it.

        Returns:
            `loss`, `mlm_loss` and the sentence term, as far as there are labels, and `sentence_logits` `(batch, 2)` or
            `(batch, 3)`.
        """
        states, sentence_logits = self._read(input_ids, attention_mask, token_type_ids)
        fields: dict[str, torch.Tensor] = {}
        if labels is not None:
            logits, targets = self._labelled(states, labels, label_positions)
            fields["mlm_loss"] = masked_lm_loss(logits, targets, num_items_in_batch)
        if next_sentence_label is not None:
            pairs = None if target_counts is None else target_counts.get("next_sentence_label")
            fields[f"{self.term}_loss"] = masked_lm_loss(sentence_logits, next_sentence_label, pairs)
        loss = {"loss": sum(fields.values())} if fields else {}
        return ModelOutput(**loss, **fields, sentence_logits=sentence_logits)

    def _read(self, input_ids: Any, attention_mask: Any, token_type_ids: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """States of the tokens, and logits of how the segments stand to each other."""
        given = {"attention_mask": attention_mask, "token_type_ids": token_type_ids}
        outputs = self.model.base_model(
            input_ids=input_ids, **{name: value for name, value in given.items() if value is not None}
        )
        pooled = outputs.pooler_output
        heads = getattr(self.model, "cls", self.model)
        logits = heads.sop_classifier(pooled) if self._of_order else heads.seq_relationship(pooled)
        if self.third is not None:
            more = self.third(pooled)
            parts = [logits, more] if self._of_order else [logits[:, :1], more, logits[:, 1:]]
            logits = torch.cat(parts, dim=-1)
        return outputs.last_hidden_state, logits

    def _labelled(
        self, states: torch.Tensor, labels: torch.Tensor, label_positions: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits of the vocabulary and labels, `(labels, ...)`: of the given places, or where there is a label."""
        if label_positions is None:
            selected = labels != -100
            states, targets = states[selected], labels[selected]
        else:
            places = label_positions[:, :, None].expand(-1, -1, states.shape[-1])
            states, targets = states.gather(1, places), labels.gather(1, label_positions)
        return getattr(self.model, "cls", self.model).predictions(states), targets

    def evaluation_sums(self, **batch: Any) -> dict[str, torch.Tensor]:
        """Sums of a batch for evaluation: term -> float64 `[sum of cross entropies, correct, targets]`."""
        read = (batch.get(name) for name in ("input_ids", "attention_mask", "token_type_ids"))
        states, sentence_logits = self._read(*read)
        sums = {"mlm": target_sums(*self._labelled(states, batch["labels"], None))} if "labels" in batch else {}
        if "next_sentence_label" in batch:
            real = batch["next_sentence_label"] != -100
            sums[self.term] = target_sums(sentence_logits[real], batch["next_sentence_label"][real])
        return sums


class SentencePairTrainer(AuxiliaryObjectiveTrainer):
    """`PreTrainingTrainer` of a `SentencePairModel`: both terms exact, logged, evaluated, resumed."""

    target_columns = ("next_sentence_label",)
