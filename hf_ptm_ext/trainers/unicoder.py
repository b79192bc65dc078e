"""Unicoder (Huang et al., EMNLP 2019): translation language modelling with three more cross-lingual tasks.

    loss = mlm_loss + recovery_loss + paraphrase_loss + mixed_loss

What is trained and saved is a plain masked language model, XLM in the paper; the attention over the translation's
words and the classifier lie beside it.
"""

import inspect
from typing import Any

import torch
from torch import nn
from transformers.utils import ModelOutput

from ..objectives import label_smoothed_loss, masked_lm_loss
from .auxiliary import AuxiliaryObjective, AuxiliaryObjectiveTrainer, first_states
from .pretraining import sums_of_batch, target_sums

TERMS = ("recovery", "paraphrase", "mixed")


class UnicoderModel(AuxiliaryObjective):
    """A masked language model with Unicoder's three tasks.

    | term | input | predicts |
    | --- | --- | --- |
    | `mlm` | a sentence and its translation, masked | the masked tokens |
    | `recovery` | for each word the mean of the other sentence's word embeddings, weighted by attention | the words |
    | `paraphrase` | a sentence and its translation, or one that is like it | which of both, from the first state |
    | `mixed` | a document in two languages by turns, masked | the masked tokens |

    The attention is `softmax_j(w . [x_i; y_j; x_i * y_j])` with word embeddings x and y: the words' own embeddings
    weigh, they are not fed. Languages and restarting positions are for XLM; XLM-R and mBERT count positions on.

    Relations: batches come from `DataCollatorForUnicoder`; train with `UnicoderTrainer`.

    Args:
        model: a masked language model: upstream's `XLMWithLMHeadModel`, `XLMRobertaForMaskedLM`, `BertForMaskedLM` or
            another that takes `inputs_embeds`, or the folder or repository of one.
        recovery_loss_weight: weight of word recovery (1; the paper names no weights).
        paraphrase_loss_weight: weight of paraphrase classification (1).
        mixed_loss_weight: weight of masked tokens in documents of two languages (1).

    Raises:
        ValueError: the model does not take `inputs_embeds`.

    Examples:
        >>> from transformers import XLMConfig, XLMWithLMHeadModel
        >>> config = XLMConfig(vocab_size=20, emb_dim=8, n_layers=1, n_heads=2, n_langs=2)
        >>> model = UnicoderModel(XLMWithLMHeadModel(config))
        >>> output = model(
        ...     recovery_input_ids=torch.tensor([[0, 5, 6, 1]]), recovery_langs=torch.tensor([[1, 1, 1, 1]]),
        ...     recovery_labels=torch.tensor([[-100, 5, 6, -100]]), recovery_source_ids=torch.tensor([[8, 9]]),
        ... )
        >>> torch.allclose(output.loss, output.recovery_loss)
        True
    """

    def __init__(
        self,
        model: Any,
        recovery_loss_weight: float = 1.0,
        paraphrase_loss_weight: float = 1.0,
        mixed_loss_weight: float = 1.0,
    ):
        super().__init__(model)
        self._taken = set(inspect.signature(self.model.forward).parameters)
        if "inputs_embeds" not in self._taken:
            raise ValueError(
                f"`model` must take `inputs_embeds`, {type(self.model).__name__} does not: words are recovered from "
                "such. Use XLMWithLMHeadModel or XLMRobertaForMaskedLM."
            )
        self.weights = {
            "recovery": float(recovery_loss_weight),
            "paraphrase": float(paraphrase_loss_weight),
            "mixed": float(mixed_loss_weight),
        }
        config = self.model.config
        self.word_attention = nn.Linear(3 * self.model.get_input_embeddings().embedding_dim, 1, bias=False)
        self.classifier = nn.Linear(config.hidden_size, 2)
        std = float(getattr(config, "initializer_range", 0.02))
        nn.init.normal_(self.word_attention.weight, std=std)
        nn.init.normal_(self.classifier.weight, std=std)
        nn.init.zeros_(self.classifier.bias)

    @property
    def loss_weights(self) -> dict[str, float]:
        return dict(self.weights)

    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        target_counts: dict[str, torch.Tensor] | None = None,
        **columns: Any,
    ) -> ModelOutput:
        """Compute the terms whose labels are there.

        Args:
            input_ids: a masked sentence and its masked translation, `(batch, seq_len)`.
            labels: original ids at masked tokens, -100 elsewhere, `(batch, seq_len)`.
            num_items_in_batch: labels over all micro-batches of an update; the Trainer passes it.
            target_counts: the same of `<task>_labels`; the Trainer passes it.
            columns: the further columns of `DataCollatorForUnicoder`: `attention_mask`, `langs`, `position_ids` of the
                pair, and `<task>_labels`, `<task>_input_ids` and so on of each task.

        Returns:
            `loss`, `mlm_loss`, `recovery_loss`, `paraphrase_loss`, `mixed_loss`; what has no labels is left out.

        Raises:
            ValueError: there are no labels at all.
        """
        counts = target_counts or {}
        terms: dict[str, torch.Tensor] = {}
        if labels is not None:
            pair = self._inputs({"input_ids": input_ids, **columns}, "")
            terms["mlm_loss"] = self.masked_lm_term(labels, num_items_in_batch, pair)
        for task in TERMS:
            wanted = columns.get(f"{task}_labels")
            if wanted is None:
                continue
            count = counts.get(f"{task}_labels")
            if task == "mixed":
                terms["mixed_loss"] = self.masked_lm_term(wanted, count, self._inputs(columns, "mixed_"))
            elif task == "recovery":
                terms["recovery_loss"] = masked_lm_loss(self.recovery_logits(columns), wanted, count)
            else:
                terms["paraphrase_loss"] = label_smoothed_loss(self.paraphrase_logits(columns), wanted, count)
        if not terms:
            raise ValueError(f"`labels` or those of a task must be given, got the columns {sorted(columns)}.")
        loss = sum(self.weights.get(name.removesuffix("_loss"), 1.0) * value for name, value in terms.items())
        return ModelOutput(loss=loss, **terms)

    def _inputs(self, columns: dict[str, Any], prefix: str) -> dict[str, Any]:
        """Of the columns with a prefix those that the plain model reads."""
        names = ["input_ids", "attention_mask", "langs", "token_type_ids"]
        names += ["position_ids"] * ("langs" in self._taken)  # others have their own way of counting
        found = {name: columns.get(f"{prefix}{name}") for name in names if name in self._taken}
        return {name: value for name, value in found.items() if value is not None}

    def word_weights(self, words: torch.Tensor, others: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """How much each word attends to each of the other sentence's.

        Args:
            words: embeddings, `(batch, T, hidden)`.
            others: those of the other sentence, `(batch, S, hidden)`.
            mask: its words, `(batch, S)`.

        Returns:
            `(batch, T, S)`, 1 in sum over the other sentence.
        """
        own, other, both = self.word_attention.weight[0].chunk(3)
        scores = (words @ own)[..., None] + (others @ other)[:, None] + (words * both) @ others.transpose(1, 2)
        if mask is not None:
            scores = scores.masked_fill(mask[:, None] == 0, torch.finfo(scores.dtype).min)
        return scores.softmax(dim=-1)

    def recovery_logits(self, columns: dict[str, Any]) -> torch.Tensor:
        """Logits of each word, `(batch, T, vocab_size)`, read from what was found in the other sentence."""
        inputs = self._inputs(columns, "recovery_")
        embed = self.model.get_input_embeddings()
        words, others = embed(inputs.pop("input_ids")), embed(columns["recovery_source_ids"])
        found = self.word_weights(words, others, columns.get("recovery_source_mask")) @ others
        fed = torch.where((columns["recovery_labels"] != -100)[..., None], found.to(words.dtype), words)
        return self.model(inputs_embeds=fed, **inputs).logits

    def paraphrase_logits(self, columns: dict[str, Any]) -> torch.Tensor:
        """Logits of no translation and translation, `(batch, 2)`."""
        inputs = self._inputs(columns, "paraphrase_")
        states = self.model.base_model(**inputs)[0]
        return self.classifier(first_states(states, inputs.get("attention_mask")))

    def evaluation_sums(self, **batch: Any) -> dict[str, torch.Tensor]:
        """Sums of a batch for evaluation: term -> float64 `[sum of cross entropies, correct, targets]`."""
        sums: dict[str, torch.Tensor] = {}
        for term, prefix in (("mlm", ""), ("mixed", "mixed_")):
            labels = batch.get(f"{prefix}labels")
            if labels is not None:
                sums[term] = sums_of_batch(self.model, {"labels": labels, **self._inputs(batch, prefix)})["mlm"]
        if batch.get("recovery_labels") is not None:
            known = batch["recovery_labels"] != -100
            sums["recovery"] = target_sums(self.recovery_logits(batch)[known], batch["recovery_labels"][known])
        if batch.get("paraphrase_labels") is not None:
            sums["paraphrase"] = target_sums(self.paraphrase_logits(batch), batch["paraphrase_labels"])
        return sums


class UnicoderTrainer(AuxiliaryObjectiveTrainer):
    """`PreTrainingTrainer` of a `UnicoderModel`: all terms exact, logged, evaluated, resumed."""

    target_columns = tuple(f"{task}_labels" for task in TERMS)
