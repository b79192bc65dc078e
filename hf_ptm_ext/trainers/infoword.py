"""InfoWord (Kong et al., ICLR 2020): a masked language model whose sentences tell their own n-grams from others.

    loss = mlm_loss + dim_loss          (see objectives/contrastive.py)

What is trained and saved is a plain masked language model; there are no further parameters.
"""

from typing import Any

import torch
from torch.nn.functional import pad
from transformers.utils import ModelOutput

from ..objectives import contrastive_scores, gather_keys, info_nce_loss
from .auxiliary import AuxiliaryObjective, AuxiliaryObjectiveTrainer, first_states
from .pretraining import sums_of_batch, target_sums

VIEWS = ("sentence_input_ids", "ngram_input_ids", "ngram_attention_mask", "ngram_labels")


class InfoWordModel(AuxiliaryObjective):
    """A masked language model with InfoWord's DIM term: InfoNCE between a sentence without an n-gram and that n-gram.

    Both are the state of the first token, from the same encoder. N-grams of the other rows of the batch are the
    negatives; n-grams of the same row and equal ones of others are not, so a large batch is a large choice.

    Relations: batches come from `DataCollatorForInfoWord`; train with `InfoWordTrainer`.

    Args:
        model: a masked language model, such as upstream's `BertForMaskedLM`, or the folder or repository of one.
        dim_loss_weight: weight of the DIM term (the paper tunes it; 1).
        temperature: of its scores (InfoWord: 1).
        normalize: whether states are brought to length 1 (InfoWord: not).
        gather_negatives: whether the n-grams of other processes are negatives too, while training.

    Raises:
        ValueError: `temperature` is not positive.

    Examples:
        >>> from transformers import BertConfig, BertForMaskedLM
        >>> config = BertConfig(
        ...     vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
        ... )
        >>> model = InfoWordModel(BertForMaskedLM(config))
        >>> output = model(
        ...     input_ids=torch.tensor([[2, 4, 6, 3], [2, 8, 9, 3]]),
        ...     labels=torch.tensor([[-100, 5, -100, -100], [-100, -100, 9, -100]]),
        ...     sentence_input_ids=torch.tensor([[2, 5, 4, 3], [2, 4, 9, 3]]),
        ...     ngram_input_ids=torch.tensor([[[2, 6, 3]], [[2, 8, 3]]]), ngram_labels=torch.tensor([0, 1]),
        ... )
        >>> torch.allclose(output.loss, output.mlm_loss + output.dim_loss), output.ngram_scores.shape
        (True, torch.Size([2, 2]))
    """

    def __init__(
        self,
        model: Any,
        dim_loss_weight: float = 1.0,
        temperature: float = 1.0,
        normalize: bool = False,
        gather_negatives: bool = False,
    ):
        super().__init__(model)
        if not temperature > 0:
            raise ValueError(f"`temperature` must be positive, got {temperature}. InfoWord has 1.")
        self.dim_loss_weight, self.temperature = float(dim_loss_weight), float(temperature)
        self.normalize, self.gather_negatives = normalize, gather_negatives

    @property
    def loss_weights(self) -> dict[str, float]:
        return {"dim": self.dim_loss_weight}

    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        sentence_input_ids: torch.Tensor | None = None,
        ngram_input_ids: torch.Tensor | None = None,
        ngram_attention_mask: torch.Tensor | None = None,
        ngram_labels: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        target_counts: dict[str, torch.Tensor] | None = None,
        **kwargs: Any,
    ) -> ModelOutput:
        """Compute both terms, or the one whose inputs are there.

        Args:
            input_ids: masked text, `(batch, seq_len)`.
            attention_mask: of it and of the sentences without an n-gram, `(batch, seq_len)`.
            labels: original ids at masked tokens, -100 elsewhere, `(batch, seq_len)`.
            sentence_input_ids: sentences without an n-gram, `(batch, seq_len)`.
            ngram_input_ids: n-grams, `(batch, ngrams, length)`.
            ngram_attention_mask: the same shape (default: all text).
            ngram_labels: which n-gram of the batch, row by row, is missing in each sentence, `(batch,)`; -100: none.
            num_items_in_batch: labels over all micro-batches of an update; the Trainer passes it.
            target_counts: sentences over all micro-batches under "ngram_labels"; the Trainer passes it.
            kwargs: further text columns, such as `token_type_ids`.

        Returns:
            `loss`, `mlm_loss`, `dim_loss` and `ngram_scores` `(batch, n-grams)`; what has no inputs is left out.

        Raises:
            ValueError: neither term has its inputs.
        """
        fields: dict[str, torch.Tensor] = {}
        loss: Any = 0.0
        if labels is not None:
            text = {"input_ids": input_ids, "attention_mask": attention_mask, **kwargs}
            loss = fields["mlm_loss"] = self.masked_lm_term(labels, num_items_in_batch, text)
        if ngram_labels is not None:
            kwargs.pop("label_positions", None)
            scores, own = self.scores(
                sentence_input_ids, attention_mask, ngram_input_ids, ngram_attention_mask, ngram_labels, **kwargs
            )
            sentences = None if target_counts is None else target_counts.get("ngram_labels")
            fields["dim_loss"] = info_nce_loss(scores, own, sentences)
            fields["ngram_scores"] = scores
            loss = loss + self.dim_loss_weight * fields["dim_loss"]
        if not fields:
            raise ValueError(
                f"`labels` or `ngram_labels` must be given, got {labels} and {ngram_labels}: nothing to train on."
            )
        return ModelOutput(loss=loss, **fields)

    def scores(
        self, sentences: Any, attention_mask: Any, ngrams: Any, ngram_mask: Any, labels: torch.Tensor, **more: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Scores of each sentence with each n-gram, `(batch, n-grams)`, and its own one's column, -100 for none."""
        queries = self._first_states(sentences, attention_mask, **more)
        flat = ngrams.reshape(-1, ngrams.shape[-1])
        keys = self._first_states(flat, None if ngram_mask is None else ngram_mask.reshape(flat.shape))
        known = labels != -100
        row = torch.arange(len(sentences), device=flat.device)
        of_row, first = row.repeat_interleave(ngrams.shape[1]), 0
        real = known.repeat_interleave(ngrams.shape[1])
        own_ids = flat[labels.clamp(min=0)]
        if self.gather_negatives and self.training:
            (keys, first), (flat, _), (real, _) = gather_keys(keys), gather_keys(flat), gather_keys(real.long())
            of_row = pad(of_row, (first, len(flat) - first - len(of_row)), value=-1)
        own = torch.where(known, labels + first, labels)
        column = torch.arange(len(flat), device=flat.device)
        same = (own_ids[:, None] == flat[None]).all(dim=-1) | (row[:, None] == of_row[None]) | ~real.bool()[None]
        excluded = same & (column[None] != own[:, None])
        return contrastive_scores(queries, keys, self.temperature, self.normalize, excluded), own

    def _first_states(self, input_ids: torch.Tensor, attention_mask: Any, **more: Any) -> torch.Tensor:
        """State of the first token of each text, `(texts, hidden)`."""
        found = self.model.base_model(input_ids=input_ids, attention_mask=attention_mask, **more)
        return first_states(found[0], attention_mask)

    def evaluation_sums(self, **batch: Any) -> dict[str, torch.Tensor]:
        """Sums of a batch for evaluation: term -> float64 `[sum of cross entropies, correct, targets]`."""
        sentences, ngrams, ngram_mask, labels = (batch.pop(name, None) for name in VIEWS)
        sums = sums_of_batch(self.model, dict(batch)) if batch.get("labels") is not None else {}
        if labels is not None:
            more = {name: batch[name] for name in batch if name not in ("input_ids", "labels", "label_positions")}
            scores, own = self.scores(sentences, more.pop("attention_mask", None), ngrams, ngram_mask, labels, **more)
            sums["dim"] = target_sums(scores[own != -100], own[own != -100])
        return sums


class InfoWordTrainer(AuxiliaryObjectiveTrainer):
    """`PreTrainingTrainer` of an `InfoWordModel`: both terms exact, logged, evaluated, resumed."""

    target_columns = ("ngram_labels",)

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        alone = not self.model.gather_negatives or self.args.world_size == 1
        if self.args.train_batch_size < 2 and alone and self.model.dim_loss_weight:
            raise ValueError(
                "`per_device_train_batch_size` must be at least 2 for negatives, which are n-grams of other rows, got "
                f"{self.args.train_batch_size}. `dim_loss_weight` = 0 leaves the term out."
            )
