"""ELECTRA (Clark et al., ICLR 2020): a generator fills masked tokens, a discriminator tells which tokens it replaced.

    loss = mlm_loss + 50 * rtd_loss

The mean of `mlm_loss` is over the masked tokens, that of `rtd_loss` over all that is no padding. Both models are
upstream's; what is saved is the plain discriminator, with the generator's own parameters beside it.
"""

import copy
from typing import Any

import torch
from transformers import ElectraForMaskedLM, ElectraForPreTraining
from transformers.utils import ModelOutput

from ..objectives import masked_lm_loss
from ..objectives.replaced_tokens import replaced_token_loss, sample_tokens
from .auxiliary import AuxiliaryObjective, AuxiliaryObjectiveTrainer, label_places
from .base import from_checkpoint
from .pretraining import target_sums

# What the generator shares with the discriminator.
TIED = ("word_embeddings", "position_embeddings", "token_type_embeddings")
HEAD_SIZE = 64


def make_electra_generator(discriminator: Any, size: float = 0.25, layers: float = 1.0) -> ElectraForMaskedLM:
    """Make a new generator for a discriminator, smaller than it.

    Args:
        discriminator: an `ElectraForPreTraining`.
        size: width of its layers as a share of the discriminator's (ELECTRA: 1/4 for small and large, 1/3 for base).
        layers: number of its layers as a share of the discriminator's (ELECTRA: 1).

    Examples:
        >>> from transformers import ElectraConfig
        >>> config = ElectraConfig(vocab_size=20, embedding_size=8, hidden_size=256, num_hidden_layers=1)
        >>> make_electra_generator(ElectraForPreTraining(config)).config.hidden_size
        64
    """
    if not 0 < size <= 1 or not 0 < layers <= 1:
        raise ValueError(f"`size` and `layers` must be in (0, 1], got {size} and {layers}. ELECTRA has 0.25 and 1.")
    config = copy.deepcopy(discriminator.config)
    width = round(discriminator.config.hidden_size * size)
    config.num_attention_heads = max(1, width // HEAD_SIZE)
    config.hidden_size = max(1, width // config.num_attention_heads) * config.num_attention_heads
    config.intermediate_size = 4 * config.hidden_size
    config.num_hidden_layers = max(1, round(discriminator.config.num_hidden_layers * layers))
    return ElectraForMaskedLM(config)


class ElectraForReplacedTokenDetection(AuxiliaryObjective):
    """Upstream's discriminator with a generator that corrupts its input.

    Word, position and type embeddings are one for both, and the generator's output matrix. Sampled tokens have no
    gradient. A sampled token that equals the original counts as original.

    Relations: batches come from `DataCollatorForMaskedLanguageModeling(budget="exact", mask_replace_prob=0.85,
    random_replace_prob=0)`, ELECTRA's masking, which draws positions without replacement; with `budget="electra"` some
    are drawn twice and count twice, as in the released code (which then puts the mean of two ids there; here the first
    one stays); train with `ReplacedTokenDetectionTrainer`.

    Args:
        discriminator: an `ElectraForPreTraining`, or the folder or repository of one.
        generator: an `ElectraForMaskedLM`, its name, or None for a new one (`make_electra_generator`).
        generator_loss_weight: weight of the generator's term (ELECTRA: 1).
        discriminator_loss_weight: weight of the discriminator's (ELECTRA: 50).
        temperature: of sampling (ELECTRA: 1).

    Raises:
        TypeError: a model is of another class.
        ValueError: the generator has another vocabulary or embedding size.

    Examples:
        >>> from transformers import ElectraConfig
        >>> config = ElectraConfig(
        ...     vocab_size=20, embedding_size=8, hidden_size=8, num_hidden_layers=1, num_attention_heads=2
        ... )
        >>> model = ElectraForReplacedTokenDetection(ElectraForPreTraining(config))
        >>> output = model(
        ...     input_ids=torch.tensor([[2, 4, 6, 3]]), attention_mask=torch.ones(1, 4, dtype=torch.long),
        ...     labels=torch.tensor([[-100, 5, -100, -100]]),
        ... )
        >>> torch.allclose(output.loss, output.mlm_loss + 50 * output.rtd_loss), output.logits.shape
        (True, torch.Size([1, 4]))
    """

    models_beside = ("generator",)

    def __init__(
        self,
        discriminator: Any,
        generator: Any = None,
        generator_loss_weight: float = 1.0,
        discriminator_loss_weight: float = 50.0,
        temperature: float = 1.0,
    ):
        super().__init__(discriminator)
        _check_class("discriminator", self.model, ElectraForPreTraining)
        given = make_electra_generator(self.model) if generator is None else from_checkpoint(generator, "generator")
        _check_class("generator", given, ElectraForMaskedLM)
        self.generator: ElectraForMaskedLM = given
        ours, theirs = given.config, self.model.config
        for name in ("vocab_size", "embedding_size", "max_position_embeddings", "type_vocab_size"):
            if getattr(ours, name) != getattr(theirs, name):
                raise ValueError(
                    f"`generator` must have the discriminator's `{name}`, {getattr(theirs, name)}, got "
                    f"{getattr(ours, name)}: they share embeddings. `make_electra_generator` makes one that fits."
                )
        if not temperature > 0:
            raise ValueError(f"`temperature` must be positive, got {temperature}. ELECTRA has 1.")
        self.generator_loss_weight = float(generator_loss_weight)
        self.discriminator_loss_weight = float(discriminator_loss_weight)
        self.temperature = float(temperature)
        self.tie_weights()

    def tie_weights(self) -> None:
        """Let the generator read the discriminator's embeddings."""
        theirs, ours = self.model.electra.embeddings, self.generator.electra.embeddings
        for name in TIED:
            getattr(ours, name).weight = getattr(theirs, name).weight
        self.generator.generator_lm_head.weight = theirs.word_embeddings.weight

    @property
    def loss_weights(self) -> dict[str, float]:
        return {"mlm": self.generator_loss_weight, "rtd": self.discriminator_loss_weight, "replaced": 0, "flagged": 0}

    def count_targets(self, batch: dict[str, Any]) -> dict[str, torch.Tensor]:
        """Tokens that are no padding, over which the discriminator's term is a mean, and labels, one for each slot."""
        labels, slots = batch["labels"], batch.get("label_positions")
        drawn = labels if slots is None else labels.gather(1, slots)
        return {
            "labels": (drawn != -100).sum(),
            "tokens": self._text(batch["input_ids"], batch.get("attention_mask"), batch.get("sequence_ids")).sum(),
        }

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        sequence_ids: torch.Tensor | None = None,
        label_positions: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        target_counts: dict[str, torch.Tensor] | None = None,
    ) -> ModelOutput:
        """Fill the masked tokens, and tell the replaced ones.

        Args:
            input_ids: masked text, `(batch, seq_len)`.
            attention_mask: 1 = text, 0 = padding, `(batch, seq_len)`.
            labels: original ids at selected tokens, -100 elsewhere, `(batch, seq_len)`.
            token_type_ids: `(batch, seq_len)`.
            position_ids: `(batch, seq_len)`, of packed rows.
            sequence_ids: `(batch, seq_len)`, the sequence of each token of a packed row, 0 = padding.
            label_positions: `(batch, slots)`, where the labels are.
            num_items_in_batch: labels over all micro-batches of an update; the Trainer passes it.
            target_counts: over all micro-batches tokens under "tokens", labels under "labels" with those that have
                several slots; the Trainer passes it.

        Returns:
            `loss`, `mlm_loss`, `rtd_loss`, and the discriminator's `logits` `(batch, seq_len)`, above 0 where it takes
            a token for a replaced one. Without labels the logits of the text as it is.
        """
        more = self._more(token_type_ids, position_ids, attention_mask, sequence_ids)
        if labels is None:
            return ModelOutput(logits=self.model(input_ids=input_ids, **more).logits)
        logits, targets, corrupted, replaced = self._corrupt(input_ids, labels, label_positions, more)
        counts = target_counts or {}
        mlm_loss = masked_lm_loss(logits, targets, counts.get("labels", num_items_in_batch))
        found = self.model(input_ids=corrupted, **more).logits
        text = self._text(input_ids, attention_mask, sequence_ids)
        rtd_loss = replaced_token_loss(found, replaced, text, counts.get("tokens"))
        loss = self.generator_loss_weight * mlm_loss + self.discriminator_loss_weight * rtd_loss
        return ModelOutput(loss=loss, mlm_loss=mlm_loss, rtd_loss=rtd_loss, logits=found)

    def _corrupt(
        self,
        input_ids: torch.Tensor,
        labels: torch.Tensor,
        label_positions: torch.Tensor | None,
        more: dict[str, Any],
        generator: torch.Generator | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Logits and labels of the generator, the text with sampled tokens, and where these are not the original."""
        states = self.generator.electra(input_ids=input_ids, **more)[0]
        places, targets = label_places(labels, label_positions)
        selected = states.reshape(-1, states.shape[-1]).index_select(0, places)
        logits = self.generator.generator_lm_head(self.generator.generator_predictions(selected))
        original = torch.where(labels != -100, labels, input_ids)
        kept = original.reshape(-1).index_select(0, places)  # in slots without a label
        drawn = sample_tokens(logits, self.temperature, generator)
        if label_positions is not None:  # of a token that has two slots the first one's counts
            first = (label_positions[:, :, None] == label_positions[:, None, :]).int().argmax(-1)
            drawn = drawn.view(label_positions.shape).gather(1, first).reshape(-1)
        sampled = torch.where(targets != -100, drawn, kept)
        corrupted = original.reshape(-1).scatter(0, places, sampled).view(labels.shape)
        return logits, targets, corrupted, corrupted != original

    def _more(self, token_type_ids: Any, position_ids: Any, attention_mask: Any, sequence_ids: Any) -> dict[str, Any]:
        """What both models read beside the tokens; the sequences of packed rows see themselves alone."""
        if sequence_ids is not None:
            same = sequence_ids[:, :, None] == sequence_ids[:, None, :]
            attention_mask = (same & (sequence_ids > 0)[:, None, :])[:, None]
        found = {"token_type_ids": token_type_ids, "position_ids": position_ids, "attention_mask": attention_mask}
        return {name: value for name, value in found.items() if value is not None}

    def _text(self, input_ids: Any, attention_mask: Any, sequence_ids: Any) -> torch.Tensor:
        """Positions that are no padding."""
        if sequence_ids is not None:
            return sequence_ids > 0
        return torch.ones_like(input_ids, dtype=torch.bool) if attention_mask is None else attention_mask.bool()

    def evaluation_sums(self, **batch: Any) -> dict[str, torch.Tensor]:
        """Sums of a batch: `mlm`, `rtd`, and of it what was replaced (recall) and what was so called (precision).

        The same tokens are sampled in every evaluation.
        """
        labels = batch.pop("labels")
        masks = batch.pop("attention_mask", None), batch.pop("sequence_ids", None)
        more = self._more(batch.get("token_type_ids"), batch.get("position_ids"), *masks)
        ids = batch["input_ids"]
        draws = torch.Generator(ids.device).manual_seed(0)
        logits, targets, corrupted, replaced = self._corrupt(ids, labels, None, more, draws)
        text = self._text(ids, *masks)
        found, wanted = self.model(input_ids=corrupted, **more).logits[text], replaced[text].long()
        both = torch.stack([torch.zeros_like(found), found], dim=-1)
        parts = {"rtd": wanted >= 0, "replaced": wanted == 1, "flagged": found > 0}
        return {"mlm": target_sums(logits, targets)} | {
            name: target_sums(both[part], wanted[part]) for name, part in parts.items()
        }


def _check_class(argument: str, model: Any, cls: type) -> None:
    if not isinstance(model, cls):
        raise TypeError(f"`{argument}` must be an {cls.__name__}, got {type(model).__name__}.")


class ReplacedTokenDetectionTrainer(AuxiliaryObjectiveTrainer):
    """`PreTrainingTrainer` of an `ElectraForReplacedTokenDetection`: both terms exact, logged, evaluated, resumed.

    `save_model` writes the plain discriminator, `model.generator.save_pretrained(folder)` the plain generator.
    """

    target_columns = ()
