"""KEPLER (Wang et al., TACL 2021): a masked language model that also embeds a knowledge graph's descriptions.

    loss = mlm_loss + ke_loss          (see objectives/knowledge_embedding.py)

What is trained and saved is a plain masked language model, RoBERTa in the paper; the relation vectors lie beside it.
"""

from typing import Any

import torch
from torch import nn
from transformers.utils import ModelOutput

from ..objectives import knowledge_embedding_loss, knowledge_embedding_scores
from .auxiliary import AuxiliaryObjective, AuxiliaryObjectiveTrainer
from .pretraining import sums_of_batch

VARIANTS = ("plain", "cond", "rel")


class KnowledgeEmbeddingModel(AuxiliaryObjective):
    """A masked language model that reads descriptions of entities as well as masked text.

    Relations: batches come from `DataCollatorForKnowledgeEmbedding`; train with `KnowledgeEmbeddingTrainer`.

    Args:
        model: a masked language model, such as upstream's `RobertaForMaskedLM`, or the folder or repository of one.
        num_relations: rows of the relation table; unused with `variant` "rel".
        gamma: margin of the score (KEPLER's published command: 4).
        norm: 1 or 2 (code: 2, paper: 1).
        variant: "plain", "cond" or "rel", as the collator's.
        ke_loss_weight: weight of the knowledge-embedding term (KEPLER: 1).

    Raises:
        ValueError: `variant` is unknown, or relation vectors are needed and `num_relations` is not positive.

    Examples:
        >>> from transformers import RobertaConfig, RobertaForMaskedLM
        >>> config = RobertaConfig(
        ...     vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
        ... )
        >>> model = KnowledgeEmbeddingModel(RobertaForMaskedLM(config), num_relations=3)
        >>> ids = torch.tensor([[0, 5, 6, 2]])
        >>> output = model(
        ...     input_ids=ids, attention_mask=torch.ones_like(ids), labels=torch.tensor([[-100, 5, -100, -100]]),
        ...     description_input_ids=ids.repeat(4, 1)[None], description_attention_mask=torch.ones(1, 4, 4).long(),
        ...     relation_ids=torch.tensor([1]),
        ... )
        >>> torch.allclose(output.loss, output.mlm_loss + output.ke_loss)
        True
    """

    def __init__(
        self,
        model: Any,
        num_relations: int,
        gamma: float = 4.0,
        norm: int = 2,
        variant: str = "plain",
        ke_loss_weight: float = 1.0,
    ):
        super().__init__(model)
        model = self.model
        if variant not in VARIANTS:
            raise ValueError(f"`variant` must be one of {', '.join(VARIANTS)}, got {variant!r}.")
        self.gamma, self.norm, self.variant, self.ke_loss_weight = float(gamma), norm, variant, float(ke_loss_weight)
        if variant != "rel":
            if num_relations < 1:
                raise ValueError(f"`num_relations` must be positive, got {num_relations}.")
            hidden = model.config.hidden_size
            reach = (self.gamma + 2.0) / hidden
            self.relation_embeddings = nn.Embedding(num_relations, hidden)
            nn.init.uniform_(self.relation_embeddings.weight, -reach, reach)

    @property
    def loss_weights(self) -> dict[str, float]:
        return {"ke": self.ke_loss_weight}

    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        description_input_ids: torch.Tensor | None = None,
        description_attention_mask: torch.Tensor | None = None,
        relation_ids: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        target_counts: dict[str, torch.Tensor] | None = None,
        **kwargs: Any,
    ) -> ModelOutput:
        """Compute both terms, or the one whose inputs are there.

        Args:
            input_ids: masked text, `(batch, seq_len)`.
            attention_mask: `(batch, seq_len)`.
            labels: original ids at masked tokens, -100 elsewhere, `(batch, seq_len)`.
            description_input_ids: `(triples, roles, length)`, see `DataCollatorForKnowledgeEmbedding`.
            description_attention_mask: the same shape.
            relation_ids: `(triples,)`.
            num_items_in_batch: labels over all micro-batches of an update; the Trainer passes it.
            target_counts: triples over all micro-batches under "relation_ids"; the Trainer passes it.
            kwargs: further text columns, such as `token_type_ids`.

        Returns:
            `loss`, `mlm_loss`, `ke_loss`; a term without inputs is left out.

        Raises:
            ValueError: neither term has its inputs.
        """
        terms: dict[str, torch.Tensor] = {}
        if labels is not None:
            text = {"input_ids": input_ids, "attention_mask": attention_mask, **kwargs}
            terms["mlm_loss"] = self.masked_lm_term(labels, num_items_in_batch, text)
        if relation_ids is not None:
            descriptions: Any = (description_input_ids, description_attention_mask, relation_ids)
            positive, negative = self.scores(*descriptions)
            triples = None if target_counts is None else target_counts.get("relation_ids")
            terms["ke_loss"] = knowledge_embedding_loss(positive, negative, triples)
        if not terms:
            raise ValueError(
                f"`labels` or `relation_ids` must be given, got {labels} and {relation_ids}: nothing to train on."
            )
        weights = {"ke_loss": self.ke_loss_weight}
        return ModelOutput(loss=sum(weights.get(name, 1.0) * value for name, value in terms.items()), **terms)

    def scores(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, relation_ids: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Scores of triples, `(triples, 1)`, and of their corruptions, `(triples, 2 * negatives)`."""
        triples, roles, length = input_ids.shape
        own = {"plain": 2, "cond": 4, "rel": 3}[self.variant]
        negatives, odd = divmod(roles - own, 2)
        if negatives < 1 or odd:
            raise ValueError(
                f"`description_input_ids` must have {own} descriptions of a triple and an even number of corrupted "
                f"ones with `variant` {self.variant!r}, got {roles}. Give collator and model the same variant."
            )
        states = self.model.base_model(
            input_ids=input_ids.reshape(-1, length), attention_mask=attention_mask.reshape(-1, length)
        )[0]
        vectors = states[:, 0].reshape(triples, roles, -1)
        head, tail = vectors[:, 0], vectors[:, 1]
        false_heads, false_tails = vectors[:, 2 : 2 + negatives], vectors[:, 2 + negatives : 2 + 2 * negatives]
        more = vectors[:, 2 + 2 * negatives :]
        relation = more[:, 0] if self.variant == "rel" else self.relation_embeddings(relation_ids)
        together: Any = (more[:, 0], more[:, 1]) if self.variant == "cond" else (None, None)
        return knowledge_embedding_scores(
            head, relation, tail, false_heads, false_tails, together[0], together[1], self.gamma, self.norm
        )

    def evaluation_sums(self, **batch: Any) -> dict[str, torch.Tensor]:
        """Sums of a batch for evaluation: term -> float64 `[sum of losses, correct, targets]`.

        A triple is correct when its score is above those of all its corruptions.
        """
        names = ("description_input_ids", "description_attention_mask", "relation_ids")
        triples = [batch.pop(name, None) for name in names]
        sums = sums_of_batch(self.model, batch) if batch.get("labels") is not None else {}
        if triples[2] is not None:
            positive, negative = self.scores(*triples)
            loss = knowledge_embedding_loss(positive, negative, 1)
            correct = (positive > negative).all(dim=1).sum()
            sums["ke"] = torch.tensor([loss.item(), correct.item(), len(positive)], dtype=torch.float64)
        return sums


class KnowledgeEmbeddingTrainer(AuxiliaryObjectiveTrainer):
    """`PreTrainingTrainer` of a `KnowledgeEmbeddingModel`: both terms exact, logged, evaluated, resumed."""

    target_columns = ("relation_ids",)
