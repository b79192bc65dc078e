"""Pre-training with a lexicon: SentiLARE's words of sentiment, SenseBERT's supersenses, on any masked LM.

    SentiLARE    loss = mlm_loss + pos_tag_loss + word_polarity_loss + sentence_polarity_loss
    SenseBERT    loss = mlm_loss + supersense_loss

Both read what they predict, where it is not hidden (`trainers.lexical_inputs`), and their heads are tied to what they
read it with. What is saved is the plain encoder, the tables and heads beside it.
"""

from typing import Any, ClassVar

import torch
from torch import nn
from transformers.utils import ModelOutput

from ..objectives import allowed_senses, label_smoothed_loss, masked_lm_loss, supersense_loss
from .auxiliary import Reading, encode_text, first_states, label_places
from .base import from_checkpoint
from .lexical_inputs import LexicalEmbeddings, LexicalInputs, SentimentEmbeddings, SupersenseEmbeddings
from .pretraining import target_sums


class LexicalObjective(LexicalInputs):
    """What both have: text with labels is read, its terms weighted, its targets counted."""

    target_columns: ClassVar[tuple[str, ...]] = ()

    def __init__(self, model: Any, lexical: LexicalEmbeddings):
        super().__init__(model, lexical)
        if self.model.get_output_embeddings() is None:
            raise ValueError(
                f"`model` must be a masked language model, got {type(self.model).__name__} without a vocabulary "
                "projection."
            )

    def count_targets(self, batch: dict[str, Any]) -> dict[str, torch.Tensor]:
        """Targets of each further term."""
        return {name: (batch[name] != -100).sum() for name in self.target_columns if name in batch}

    def _read(self, batch: dict[str, Any], places: torch.Tensor | None) -> Reading:
        """Read a text with what the lexicon says of it; the columns are taken out of the batch."""
        columns = {name: batch.pop(name, None) for name in self.lexical.columns}
        inputs = {name: value for name, value in batch.items() if value is not None}
        with self.adding(inputs["input_ids"], **columns):
            return encode_text(self.model, inputs, places)

    def _whole(self, terms: dict[str, torch.Tensor], **fields: Any) -> ModelOutput:
        """All terms and their weighted sum."""
        weights = self.loss_weights
        loss = sum(weights.get(name.removesuffix("_loss"), 1.0) * value for name, value in terms.items())
        return ModelOutput(loss=loss, **terms, **fields) if terms else ModelOutput(**fields)


class TiedHead(nn.Module):
    """A dense layer, GELU and LayerNorm in front of classes that are tied to an embedding table; own bias."""

    def __init__(self, hidden: int, width: int, classes: int):
        super().__init__()
        self.dense, self.norm = nn.Linear(hidden, width), nn.LayerNorm(width)
        self.bias = nn.Parameter(torch.zeros(classes))

    def forward(self, states: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(self.norm(nn.functional.gelu(self.dense(states))), table, self.bias)


class SentiLareModel(LexicalObjective):
    """A masked language model that also reads and predicts parts of speech, polarities and ratings (SentiLARE).

    Heads: the model's own for tokens; `pos_head`, `senti_head` (polarity of a word) and `pola_head` (rating of the
    text, at its first token), tied to the tables. A batch without targets of a term has 0 there.

    Relations: batches come from `DataCollatorForSentimentMasking`; train with `AuxiliaryObjectiveTrainer`; fine-tune
    the checkpoint plain, or with what its words are by `LexicalInputModel`.

    Args:
        model: a masked language model whose vocabulary projection is a module that reads every position, such as
            upstream's `RobertaForMaskedLM` (SentiLARE) or `BertForMaskedLM` (SentiLR), or the folder or repository
            of one.
        pos_tag_loss_weight: weight of parts of speech (SentiLARE: 1).
        word_polarity_loss_weight: weight of the polarity of words (SentiLARE: 1).
        sentence_polarity_loss_weight: weight of the rating (SentiLARE: 1).

    Raises:
        ValueError: the model has no vocabulary projection.

    Examples:
        >>> from transformers import BertConfig, BertForMaskedLM
        >>> config = BertConfig(
        ...     vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
        ... )
        >>> output = SentiLareModel(BertForMaskedLM(config))(
        ...     input_ids=torch.tensor([[2, 4, 6, 3]]), labels=torch.tensor([[-100, 5, -100, -100]]),
        ...     pos_tag_ids=torch.tensor([[4, 4, 3, 4]]), word_polarity_ids=torch.tensor([[2, 2, 2, 2]]),
        ...     pos_tag_labels=torch.tensor([[-100, 1, -100, -100]]),
        ...     word_polarity_labels=torch.tensor([[-100, 0, -100, -100]]),
        ...     sentence_polarity_labels=torch.tensor([-100]),
        ... )
        >>> output.sentence_polarity_loss.item()
        0.0
        >>> torch.allclose(output.loss, output.mlm_loss + output.pos_tag_loss + output.word_polarity_loss)
        True
    """

    target_columns = ("pos_tag_labels", "word_polarity_labels", "sentence_polarity_labels")

    def __init__(
        self,
        model: Any,
        pos_tag_loss_weight: float = 1.0,
        word_polarity_loss_weight: float = 1.0,
        sentence_polarity_loss_weight: float = 1.0,
    ):
        model = from_checkpoint(model)
        super().__init__(model, SentimentEmbeddings(model.get_input_embeddings().weight.shape[1]))
        self._weights = {
            "pos_tag": float(pos_tag_loss_weight),
            "word_polarity": float(word_polarity_loss_weight),
            "sentence_polarity": float(sentence_polarity_loss_weight),
        }
        hidden, width = int(self.config.hidden_size), self.lexical.width
        self.pos_head, self.senti_head, self.pola_head = (TiedHead(hidden, width, rows) for rows in (5, 3, 6))

    @property
    def loss_weights(self) -> dict[str, float]:
        return self._weights

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        pos_tag_ids: torch.Tensor | None = None,
        word_polarity_ids: torch.Tensor | None = None,
        sentence_polarity_ids: torch.Tensor | None = None,
        pos_tag_labels: torch.Tensor | None = None,
        word_polarity_labels: torch.Tensor | None = None,
        sentence_polarity_labels: torch.Tensor | None = None,
        label_positions: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        target_counts: dict[str, torch.Tensor] | None = None,
        **kwargs: Any,
    ) -> ModelOutput:
        """Compute the terms whose labels are there.

        Args:
            input_ids: text with masked words, `(batch, seq_len)`.
            attention_mask: `(batch, seq_len)`.
            token_type_ids: `(batch, seq_len)`.
            labels: original ids at selected tokens, -100 elsewhere, `(batch, seq_len)`.
            pos_tag_ids: see `LexicalInputModel`; so the next two.
            word_polarity_ids: `(batch, seq_len)`.
            sentence_polarity_ids: `(batch, seq_len)`.
            pos_tag_labels: at selected tokens only, -100 elsewhere, `(batch, seq_len)`; so the next one.
            word_polarity_labels: `(batch, seq_len)`.
            sentence_polarity_labels: -100 where the rating is read or unknown, `(batch,)`.
            label_positions: `(batch, slots)`, where the labels are.
            num_items_in_batch: labels over all micro-batches of an update; the Trainer passes it.
            target_counts: those of the other labels; the Trainer passes it.
            kwargs: further text columns.

        Returns:
            `loss` and a field for each term; without labels the `logits` `(batch, seq_len, vocab_size)`.
        """
        batch = {"input_ids": input_ids, "attention_mask": attention_mask, "token_type_ids": token_type_ids, **kwargs}
        batch |= dict(zip(self.lexical.columns, (pos_tag_ids, word_polarity_ids, sentence_polarity_ids), strict=True))
        if labels is None:
            return ModelOutput(logits=self._read(batch, None).logits)
        further = dict(
            zip(self.target_columns, (pos_tag_labels, word_polarity_labels, sentence_polarity_labels), strict=True)
        )
        places, targets = label_places(labels, label_positions)
        logits, found = self._logits(batch, places, further)
        terms = {"mlm_loss": masked_lm_loss(logits, targets, num_items_in_batch)}
        for name, (logits, targets) in found.items():
            count = None if target_counts is None else target_counts.get(f"{name}_labels")
            terms[f"{name}_loss"] = label_smoothed_loss(logits, targets, count)
        return self._whole(terms)

    def _logits(
        self, batch: dict[str, Any], places: torch.Tensor, further: dict[str, torch.Tensor | None]
    ) -> tuple[torch.Tensor, dict[str, tuple[torch.Tensor, torch.Tensor]]]:
        """Logits of the tokens, and term -> logits and labels of the others, at the places or of each text."""
        read = self._read(batch, places)
        at_places = read.states.flatten(0, 1).index_select(0, places)
        first, found = first_states(read.states, batch.get("attention_mask")), {}
        heads = (self.pos_head, self.senti_head, self.pola_head)
        for (name, labels), head, table in zip(further.items(), heads, self.lexical.tables, strict=True):
            if labels is None:
                continue
            whole = labels.dim() == 1
            logits = head(first if whole else at_places, table.weight)
            found[name.removesuffix("_labels")] = (
                logits,
                labels if whole else labels.reshape(-1).index_select(0, places),
            )
        return read.logits, found

    def evaluation_sums(self, **batch: Any) -> dict[str, torch.Tensor]:
        """Sums of a batch for evaluation: term -> float64 `[sum of cross entropies, correct, targets]`."""
        further = {name: batch.pop(name, None) for name in self.target_columns}
        places, targets = label_places(batch.pop("labels"))
        batch.pop("label_positions", None)
        logits, found = self._logits(batch, places, further)
        sums = {"mlm": target_sums(logits, targets)}
        for name, (logits, labels) in found.items():
            sums[name] = target_sums(logits[labels != -100], labels[labels != -100])
        return sums


class SupersenseModel(LexicalObjective):
    """A masked language model that also reads and predicts supersenses (SenseBERT).

    Senses are scored by the table that they are read with, on what the vocabulary projection reads; a word of several
    pieces has the mean of its pieces' scores, which is the score of their mean.

    Relations: batches come from `DataCollatorForSupersenseMasking`; train with `AuxiliaryObjectiveTrainer`; fine-tune
    the checkpoint with `LexicalInputModel(model, SupersenseEmbeddings.from_pretrained(folder))`: it has been trained
    with its tokens' senses as input. The released SenseBERT is a TensorFlow graph without public names of its weights:
    it cannot be read.

    Args:
        model: a masked language model whose projection reads vectors as wide as the word embeddings at every position,
            such as upstream's `BertForMaskedLM`, or the folder or repository of one.
        token_senses: `collators.token_supersenses(tokenizer, table)`.
        num_senses: number of supersenses (WordNet: 45).
        supersense_loss_weight: weight of the term (SenseBERT: 1).

    Raises:
        ValueError: the model has no such projection, or `token_senses` are not its vocabulary's.

    Examples:
        >>> from transformers import BertConfig, BertForMaskedLM
        >>> config = BertConfig(
        ...     vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
        ... )
        >>> model = SupersenseModel(BertForMaskedLM(config), torch.zeros(20).long())
        >>> output = model(
        ...     input_ids=torch.tensor([[2, 4, 6, 3]]), labels=torch.tensor([[-100, 5, -100, -100]]),
        ...     supersense_labels=torch.tensor([[-100, 3, -100, -100]]),
        ... )
        >>> torch.allclose(output.loss, output.mlm_loss + output.supersense_loss)
        True
    """

    target_columns = ("supersense_labels",)

    def __init__(self, model: Any, token_senses: Any, num_senses: int = 45, supersense_loss_weight: float = 1.0):
        model = from_checkpoint(model)
        width = model.get_input_embeddings().weight.shape[1]
        super().__init__(model, SupersenseEmbeddings(width, token_senses, num_senses))
        if self.model.get_output_embeddings().in_features != width:
            raise ValueError(
                f"`model` must project vectors as wide as its word embeddings, {width}, got "
                f"{self.model.get_output_embeddings().in_features}: the senses' table is tied to both."
            )
        self.supersense_loss_weight = float(supersense_loss_weight)

    @property
    def loss_weights(self) -> dict[str, float]:
        return {"supersense": self.supersense_loss_weight}

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        supersense_labels: torch.Tensor | None = None,
        supersense_lengths: torch.Tensor | None = None,
        label_positions: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        target_counts: dict[str, torch.Tensor] | None = None,
        **kwargs: Any,
    ) -> ModelOutput:
        """Compute the terms whose labels are there.

        Args:
            input_ids: text with masked words, `(batch, seq_len)`.
            attention_mask: `(batch, seq_len)`.
            token_type_ids: `(batch, seq_len)`.
            labels: original ids at selected tokens, -100 elsewhere, `(batch, seq_len)`.
            supersense_labels: at the first pieces of hidden words the senses that they may have as bits, -100
                elsewhere, `(batch, seq_len)`.
            supersense_lengths: pieces of the word that begins there, `(batch, seq_len)` (default: 1).
            label_positions: `(batch, slots)`, where the labels are.
            num_items_in_batch: labels over all micro-batches of an update; the Trainer passes it.
            target_counts: words over all micro-batches under "supersense_labels"; the Trainer passes it.
            kwargs: further text columns.

        Returns:
            `loss` and a field for each term; without labels `logits` `(batch, seq_len, vocab_size)` and
            `supersense_logits` `(batch, seq_len, senses)`.
        """
        batch = {"input_ids": input_ids, "attention_mask": attention_mask, "token_type_ids": token_type_ids, **kwargs}
        if labels is None:
            read = self._read(batch, None)
            return ModelOutput(logits=read.logits, supersense_logits=self._senses(read, supersense_lengths))
        places, targets = label_places(labels, label_positions)
        read = self._read(batch, places)
        terms = {"mlm_loss": masked_lm_loss(read.logits, targets, num_items_in_batch)}
        if supersense_labels is not None:
            count = None if target_counts is None else target_counts.get("supersense_labels")
            terms["supersense_loss"] = supersense_loss(
                self._senses(read, supersense_lengths), supersense_labels, count
            )
        return self._whole(terms)

    def _senses(self, read: Reading, lengths: torch.Tensor | None) -> torch.Tensor:
        """Logits of senses, the mean over the pieces of the word that begins at each position."""
        logits = nn.functional.linear(read.projected, self.lexical.senses.weight).float()
        if lengths is None:
            return logits
        sums = nn.functional.pad(logits.cumsum(dim=1), (0, 0, 1, 0))
        start = torch.arange(logits.shape[1], device=logits.device).expand(lengths.shape)
        stop = (start + lengths.clamp(min=1)).clamp(max=logits.shape[1])
        ends = sums.gather(1, stop.unsqueeze(-1).expand_as(logits))
        return (ends - sums[:, :-1]) / (stop - start).unsqueeze(-1)

    def evaluation_sums(self, **batch: Any) -> dict[str, torch.Tensor]:
        """Sums of a batch for evaluation: term -> float64 `[sum of losses, correct, targets]`.

        A word is right when its best sense is one that it may have.
        """
        senses, lengths = (batch.pop(f"supersense_{name}", None) for name in ("labels", "lengths"))
        places, targets = label_places(batch.pop("labels"))
        batch.pop("label_positions", None)
        read = self._read(batch, places)
        sums = {"mlm": target_sums(read.logits, targets)}
        if senses is not None:
            logits, real = self._senses(read, lengths), senses != -100
            best = allowed_senses(senses, logits.shape[-1]).gather(-1, logits.argmax(-1, keepdim=True)).squeeze(-1)
            values = [supersense_loss(logits, senses, 1).item(), (best & real).sum().item(), real.sum().item()]
            sums["supersense"] = torch.tensor(values, dtype=torch.float64)
        return sums
