"""LIBERT (Lauscher et al., COLING 2020): masked text, and whether two words are related, in turn.

    updates 0, 2, ...    mlm_loss (+ nsp_loss)
    updates 1, 3, ...    relation_loss = cross entropy of softmax( W dropout(pooled state of `[CLS] a [SEP] b [SEP]`) )

What is trained and saved is a plain model, the classifier beside it.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from transformers.utils import ModelOutput

from ..objectives import label_smoothed_loss, masked_lm_loss
from .auxiliary import AuxiliaryObjective, AuxiliaryObjectiveTrainer, encode_text, first_states, label_places
from .multi_task.mixing import Mixing
from .multi_task.trainer import MixedBatches, TaskRows
from .pretraining import target_sums

TEXT, RELATIONS = "text", "relations"
PREFIX = "relation_"
NSP = "next_sentence_label"


class LexicalRelationModel(AuxiliaryObjective):
    """A masked language model that also tells related words from others.

    The classifier reads the encoder's pooled state, of a pooler of its own where the model's class has none.

    Relations: batches come from `DataCollatorForLexicalRelations`; train with `LexicalRelationTrainer`.

    Args:
        model: a masked language model, such as upstream's `BertForPreTraining` (LIBERT: with next sentences) or
            `RobertaForMaskedLM`, or the folder or repository of one.
        dropout: on the pooled state (LIBERT: 0.1).
        relation_loss_weight: weight of the term (LIBERT: 1).

    Raises:
        ValueError: the model has no vocabulary projection.

    Examples:
        >>> from transformers import BertConfig, BertForMaskedLM
        >>> config = BertConfig(
        ...     vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
        ... )
        >>> model = LexicalRelationModel(BertForMaskedLM(config))
        >>> output = model(
        ...     relation_input_ids=torch.tensor([[2, 5, 3, 6, 3]]), relation_labels=torch.tensor([1]),
        ... )
        >>> torch.equal(output.loss, output.relation_loss), output.relation_logits.shape
        (True, torch.Size([1, 2]))
    """

    def __init__(self, model: Any, dropout: float = 0.1, relation_loss_weight: float = 1.0):
        super().__init__(model)
        model = self.model
        if model.get_output_embeddings() is None:
            raise ValueError(
                f"`model` must be a masked language model, got {type(model).__name__} without a vocabulary projection."
            )
        self.relation_loss_weight = float(relation_loss_weight)
        hidden = int(model.config.hidden_size)
        pools = getattr(model.base_model, "pooler", None) is not None
        self.pooler = None if pools else nn.Linear(hidden, hidden)
        self.dropout, self.classifier = nn.Dropout(dropout), nn.Linear(hidden, 2)
        for layer in (self.pooler, self.classifier):
            if layer is not None:
                nn.init.normal_(layer.weight, std=float(getattr(model.config, "initializer_range", 0.02)))
                nn.init.zeros_(layer.bias)

    @property
    def loss_weights(self) -> dict[str, float]:
        return {"relation": self.relation_loss_weight}

    def count_targets(self, batch: dict[str, Any]) -> dict[str, torch.Tensor | int]:
        """Next sentences and pairs."""
        return {name: (batch[name] != -100).sum() if name in batch else 0 for name in (NSP, f"{PREFIX}labels")}

    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        next_sentence_label: torch.Tensor | None = None,
        relation_input_ids: torch.Tensor | None = None,
        relation_attention_mask: torch.Tensor | None = None,
        relation_token_type_ids: torch.Tensor | None = None,
        relation_labels: torch.Tensor | None = None,
        label_positions: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        target_counts: dict[str, torch.Tensor] | None = None,
        **kwargs: Any,
    ) -> ModelOutput:
        """Compute the terms whose inputs are there.

        Args:
            input_ids: masked text, `(batch, seq_len)`.
            attention_mask: `(batch, seq_len)`.
            token_type_ids: `(batch, seq_len)`.
            labels: original ids at masked tokens, -100 elsewhere, `(batch, seq_len)`.
            next_sentence_label: of a model with such a head, `(batch,)`.
            relation_input_ids: pairs of words, `(pairs, length)`.
            relation_attention_mask: the same shape.
            relation_token_type_ids: the same shape.
            relation_labels: 1 = related, `(pairs,)`.
            label_positions: `(batch, slots)`, where the labels are.
            num_items_in_batch: labels over all micro-batches of an update; the Trainer passes it.
            target_counts: next sentences and pairs over an update with text; the Trainer passes it. In an update of
                pairs alone the mean over micro-batches is one over pairs, as all have the same number.
            kwargs: further text columns.

        Returns:
            `loss`, `mlm_loss`, `nsp_loss`, `relation_loss` and `relation_logits`, what has no inputs left out.

        Raises:
            ValueError: there is neither text with labels nor a pair.
        """
        counts = target_counts if target_counts is not None and num_items_in_batch is not None else {}
        terms: dict[str, torch.Tensor] = {}
        fields: dict[str, torch.Tensor] = {}
        if input_ids is not None and labels is not None:
            given = {"attention_mask": attention_mask, "token_type_ids": token_type_ids, **kwargs}
            inputs = {name: value for name, value in given.items() if value is not None}
            places, targets = label_places(labels, label_positions)
            read = encode_text(self.model, {"input_ids": input_ids, **inputs}, places)
            terms["mlm_loss"] = masked_lm_loss(read.logits, targets, num_items_in_batch)
            if next_sentence_label is not None:
                logits = self._next_sentences(read.output)
                terms["nsp_loss"] = label_smoothed_loss(logits, next_sentence_label, counts.get(NSP))
        if relation_input_ids is not None:
            pair = {"attention_mask": relation_attention_mask, "token_type_ids": relation_token_type_ids}
            fields["relation_logits"] = logits = self.relations(relation_input_ids, pair)
            if relation_labels is not None:
                terms["relation_loss"] = label_smoothed_loss(logits, relation_labels, counts.get(f"{PREFIX}labels"))
        if not terms and not fields:
            raise ValueError(
                f"`labels` or `relation_input_ids` must be given, got {labels} and {relation_input_ids}: nothing to"
                " do."
            )
        weights = {"relation_loss": self.relation_loss_weight}
        loss = {"loss": sum(weights.get(name, 1.0) * value for name, value in terms.items())} if terms else {}
        return ModelOutput(**loss, **terms, **fields)

    def relations(self, input_ids: torch.Tensor, more: dict[str, Any]) -> torch.Tensor:
        """Logits of pairs, column 1 for related, `(pairs, 2)`."""
        given = {name: value for name, value in more.items() if value is not None}
        output = self.model.base_model(input_ids=input_ids, **given)
        first = first_states(output[0], more.get("attention_mask"))
        pooled = output.pooler_output if self.pooler is None else self.pooler(first).tanh()
        return self.classifier(self.dropout(pooled))

    def _next_sentences(self, output: Any) -> torch.Tensor:
        logits = output.get("seq_relationship_logits")
        if logits is None:
            raise ValueError(
                f"`next_sentence_label` needs a head of next sentences, got a {type(self.model).__name__}. Use "
                "`BertForPreTraining`, or drop the column."
            )
        return logits

    def evaluation_sums(self, **batch: Any) -> dict[str, torch.Tensor]:
        """Sums of a batch for evaluation: term -> float64 `[sum of cross entropies, correct, targets]`."""
        sums: dict[str, torch.Tensor] = {}
        pair = {name[len(PREFIX) :]: batch.pop(name) for name in list(batch) if name.startswith(PREFIX)}
        sentences = batch.pop(NSP, None)
        batch.pop("label_positions", None)
        if "labels" in batch:
            places, targets = label_places(batch.pop("labels"))
            read = encode_text(self.model, batch, places)
            sums["mlm"] = target_sums(read.logits, targets)
            if sentences is not None:
                sums["nsp"] = target_sums(self._next_sentences(read.output), sentences)
        if pair:
            labels = pair.pop("labels")
            sums["relation"] = target_sums(self.relations(pair.pop("input_ids"), pair), labels)
        return sums


class LexicalRelationTrainer(MixedBatches, AuxiliaryObjectiveTrainer):
    """`PreTrainingTrainer` of a `LexicalRelationModel`: updates of text and of word pairs in turn.

    Which an update is of is a function of its number: `pattern[number % len(pattern)]`, whatever the number of
    processes and of accumulated batches. An epoch sees all text once; pairs begin again when they are through.

    Args:
        model: as `PreTrainingTrainer`; so all arguments that are not named.
        args: as `PreTrainingTrainer`.
        train_dataset: rows of text; no stream.
        eval_dataset: rows of text.
        relation_rows: rows of pairs (`data.lexical_relation_rows`).
        relation_eval_rows: those for evaluation.
        pattern: which updates are of what (LIBERT: in strict turn); ("text", "text", "relations") has two of text for
            one of pairs.
        kwargs: as `PreTrainingTrainer`.

    Raises:
        ValueError: there are no pairs, or the pattern lacks one of the two.
    """

    def __init__(
        self,
        model: Any = None,
        args: Any = None,
        *,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        relation_rows: Sequence[Any] | None = None,
        relation_eval_rows: Sequence[Any] | None = None,
        pattern: Sequence[str] = (TEXT, RELATIONS),
        **kwargs: Any,
    ):
        self.mixing = Mixing("alternating", main_task=TEXT, pattern=tuple(pattern))
        if train_dataset is not None:
            if not relation_rows or not hasattr(train_dataset, "__len__"):
                raise ValueError(
                    f"`relation_rows` must have pairs and `train_dataset` a length, got {relation_rows} and "
                    f"{type(train_dataset).__name__}."
                )
            train_dataset = TaskRows({TEXT: train_dataset, RELATIONS: relation_rows})
        if eval_dataset is not None or relation_eval_rows:
            parts = {TEXT: eval_dataset, RELATIONS: relation_eval_rows}
            eval_dataset = TaskRows({name: rows for name, rows in parts.items() if rows is not None})
        super().__init__(model, args, train_dataset=train_dataset, eval_dataset=eval_dataset, **kwargs)

    def _term_means(self) -> dict[str, float]:
        """The mean of each term over the updates that had it since the last log."""
        whole = self._terms.updates * self.args.gradient_accumulation_steps
        means = super()._term_means()
        return {name: float(f"{mean * whole / self._terms.counts[name]:.6g}") for name, mean in means.items()}
