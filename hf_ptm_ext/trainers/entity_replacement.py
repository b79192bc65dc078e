"""WKLM (Xiong et al., ICLR 2020): a masked language model that also tells original entity mentions from replaced ones.

    loss = mlm_loss + entity_loss      (see objectives/entity_replacement.py)

What is trained and saved is a plain masked language model, BERT in the paper; the classifier lies beside it.
"""

from typing import Any

import torch
from torch import nn
from transformers.utils import ModelOutput

from ..objectives import boundary_states, entity_replacement_loss, masked_lm_loss
from .auxiliary import AuxiliaryObjective, AuxiliaryObjectiveTrainer, encode_text
from .pretraining import target_sums


class EntityReplacementModel(AuxiliaryObjective):
    """A masked language model with WKLM's classifier on the tokens around each mention.

    Relations: batches come from `DataCollatorForEntityReplacement`; train with `EntityReplacementTrainer`.

    Args:
        model: a masked language model whose vocabulary projection is a module that reads every position, such as
            upstream's `BertForMaskedLM`, or the folder or repository of one.
        dropout: on the concatenated states (reference: 0.05).
        entity_loss_weight: weight of the replacement term (reference: 1).

    Raises:
        ValueError: the model has no vocabulary projection.

    Examples:
        >>> from transformers import BertConfig, BertForMaskedLM
        >>> config = BertConfig(
        ...     vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
        ... )
        >>> model = EntityReplacementModel(BertForMaskedLM(config))
        >>> output = model(
        ...     input_ids=torch.tensor([[2, 5, 6, 3]]), labels=torch.tensor([[-100, 5, -100, -100]]),
        ...     entity_start=torch.tensor([[2]]), entity_end=torch.tensor([[3]]), entity_labels=torch.tensor([[1]]),
        ... )
        >>> output.entity_logits.shape, torch.allclose(output.loss, output.mlm_loss + output.entity_loss)
        (torch.Size([1, 1, 2]), True)
    """

    def __init__(self, model: Any, dropout: float = 0.05, entity_loss_weight: float = 1.0):
        super().__init__(model)
        model = self.model
        projection = model.get_output_embeddings()
        if projection is None:
            raise ValueError(
                f"`model` must be a masked language model, got {type(model).__name__} without a vocabulary projection."
            )
        self.entity_loss_weight = float(entity_loss_weight)
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(2 * projection.in_features, 2)
        nn.init.normal_(self.classifier.weight, std=float(getattr(model.config, "initializer_range", 0.02)))
        nn.init.zeros_(self.classifier.bias)

    @property
    def loss_weights(self) -> dict[str, float]:
        return {"entity": self.entity_loss_weight}

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        entity_start: torch.Tensor | None = None,
        entity_end: torch.Tensor | None = None,
        entity_labels: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        target_counts: dict[str, torch.Tensor] | None = None,
        **kwargs: Any,
    ) -> ModelOutput:
        """Compute the terms whose inputs are there.

        Args:
            input_ids: text with replaced mentions and masked tokens, `(batch, seq_len)`.
            attention_mask: `(batch, seq_len)`.
            labels: original ids at masked tokens, -100 elsewhere, `(batch, seq_len)`.
            entity_start: first token of each mention, `(batch, mentions)`.
            entity_end: the token behind its last one, `(batch, mentions)`.
            entity_labels: 1 = original, 0 = replaced, -100 = padding, `(batch, mentions)`.
            num_items_in_batch: labels over all micro-batches of an update; the Trainer passes it.
            target_counts: mentions over all micro-batches under "entity_labels"; the Trainer passes it.
            kwargs: further text columns, such as `token_type_ids`.

        Returns:
            `loss`, `mlm_loss`, `entity_loss` and `entity_logits` `(batch, mentions, 2)`, column 1 for original;
            what has no inputs is left out.

        Raises:
            ValueError: the model's projection does not read every position, or there are labels of mentions without
                their places.
        """
        kwargs.pop("label_positions", None)
        _, states, logits, _ = encode_text(
            self.model, {"input_ids": input_ids, "attention_mask": attention_mask, **kwargs}
        )
        fields: dict[str, torch.Tensor] = {}
        loss: Any = None
        if labels is not None:
            loss = fields["mlm_loss"] = masked_lm_loss(logits, labels, num_items_in_batch)
        if entity_start is not None and entity_end is not None:
            entity_logits = self.classifier(self.dropout(boundary_states(states, entity_start, entity_end)))
            if entity_labels is not None:
                mentions = None if target_counts is None else target_counts.get("entity_labels")
                fields["entity_loss"] = entity_replacement_loss(entity_logits, entity_labels, mentions)
                term = self.entity_loss_weight * fields["entity_loss"]
                loss = term if loss is None else loss + term
            fields["entity_logits"] = entity_logits
        elif entity_labels is not None:
            raise ValueError(
                f"`entity_labels` need `entity_start` and `entity_end`, got {entity_start} and {entity_end}."
            )
        return ModelOutput(loss=loss, **fields) if loss is not None else ModelOutput(**fields)

    def evaluation_sums(self, **batch: Any) -> dict[str, torch.Tensor]:
        """Sums of a batch for evaluation: term -> float64 `[sum of cross entropies, correct, targets]`."""
        labels, entity_labels = batch.pop("labels", None), batch.pop("entity_labels", None)
        batch.pop("label_positions", None)
        places = {name: batch.pop(name, None) for name in ("entity_start", "entity_end")}
        _, states, logits, _ = encode_text(self.model, batch)
        sums = {}
        if labels is not None:
            sums["mlm"] = target_sums(logits[labels != -100], labels[labels != -100])
        if entity_labels is not None:
            real = entity_labels != -100
            entity_logits = self.classifier(boundary_states(states, places["entity_start"], places["entity_end"]))
            sums["entity"] = target_sums(entity_logits[real], entity_labels[real])
        return sums


class EntityReplacementTrainer(AuxiliaryObjectiveTrainer):
    """`PreTrainingTrainer` of an `EntityReplacementModel`: both terms exact, logged, evaluated, resumed."""

    target_columns = ("entity_labels",)
