"""What the conformance suite knows about a family: its tiny configuration, its heads, their inputs and labels.

A family subclasses `EncoderConformance` (see `tests/conformance/__init__.py`), sets the attributes of `FamilyCase`
and, where its inputs are special, overrides a hook. Every check then runs once per head.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from tests.tolerance import assert_agrees

LENGTHS = (9, 6, 4)  # real tokens of the rows of every batch
CHOICES = 3
# Checks of a head in which its encoder decides.
CHECKS_OF_THE_ENCODER = (
    "test_the_attention_implementation_can_be_changed",
    "test_gradients_of_hidden_states_and_attentions_can_be_kept",
    "test_models_can_be_pickled_and_copied",
)


@dataclass(frozen=True)
class Head:
    """One model class.

    Args:
        cls: the model class.
        auto_class: the auto class that serves it.
        labels: makes the labels of a padded batch from (config, inputs, generator); `None` for the bare encoder.
        outputs: fields of the output that carry what the head predicts, the one for metrics first.
        kind: "encoder", "vocabulary" (logits only at labels while training), "sequence", "token", "span" or "choice".
        task_type: PEFT's name of the task, if it has one.
        config: configuration that the head's checks need.
        also: further auto classes that it serves.
        variant: whether the auto class gives it for its own checkpoints alone, beside the class of all others.
    """

    cls: type
    auto_class: str
    labels: Callable[..., dict[str, torch.Tensor]] | None
    outputs: tuple[str, ...]
    kind: str
    task_type: str | None = None
    config: dict[str, Any] = field(default_factory=dict)
    also: tuple[str, ...] = ()
    variant: bool = False

    @property
    def packs(self) -> bool:
        """Whether rows of several sequences make sense for the head."""
        return self.kind not in ("span", "choice")

    @property
    def generates(self) -> bool:
        """Whether it has a `generate` of ours or upstream's, and so takes a `cache`."""
        return hasattr(self.cls, "generate")


def token_labels(config: Any, inputs: dict[str, torch.Tensor], generator: torch.Generator) -> dict[str, torch.Tensor]:
    """A class for every real token."""
    labels = torch.randint(config.num_labels, inputs["input_ids"].shape, generator=generator)
    return {"labels": labels.masked_fill(inputs["attention_mask"] == 0, -100)}


def masked_lm_labels(config: Any, inputs: dict[str, torch.Tensor], generator: torch.Generator) -> dict:
    """Original ids at about a third of the real tokens, at least one a row."""
    shape = inputs["input_ids"].shape
    chosen = (torch.rand(shape, generator=generator) < 0.35) & (inputs["attention_mask"] == 1)
    chosen[torch.arange(shape[0]), inputs["attention_mask"].argmax(1) + 1] = True
    ids = torch.randint(5, config.vocab_size, shape, generator=generator)
    return {"labels": torch.where(chosen, ids, -100)}


def sequence_labels(config: Any, inputs: dict[str, torch.Tensor], generator: torch.Generator) -> dict:
    """One class per row."""
    return {"labels": torch.randint(config.num_labels, (inputs["input_ids"].shape[0],), generator=generator)}


def choice_labels(config: Any, inputs: dict[str, torch.Tensor], generator: torch.Generator) -> dict:
    """The right choice per row."""
    return {"labels": torch.randint(CHOICES, (inputs["input_ids"].shape[0],), generator=generator)}


def answer_labels(config: Any, inputs: dict[str, torch.Tensor], generator: torch.Generator) -> dict:
    """First and last token of an answer, among the real tokens."""
    first = inputs["attention_mask"].argmax(1)
    return {"start_positions": first + 1, "end_positions": first + 2}


class FamilyCase:
    """What a family sets, and how the checks make configurations, models and inputs from it."""

    config_class: type
    base_class: type
    heads: tuple[Head, ...]
    # Small sizes under the family's field names; dropout is off unless a check turns it on.
    config_kwargs: dict[str, Any] = {}
    # Fields that no code has to read (they are data about the checkpoint).
    unread_fields: frozenset[str] = frozenset({"hf_ptm_ext_version"})
    # Padded inputs that make structured masks: name -> extra inputs, beside plain padding and packed rows. They are
    # of one sequence a row, so not for multiple choice.
    structured_inputs: dict[str, Callable[..., dict[str, torch.Tensor]]] = {}
    embeddings_name = "embeddings.word_embeddings"
    # Names that differ between blocks: dropouts of the configuration (hidden states first, then attention), a layer
    # and a weight of a layer, the projections that LoRA takes and how many of them an encoder layer has, the
    # classifier, parameters of the base model that a head's file may lack.
    dropout_fields: tuple[str, ...] = ("hidden_dropout_prob", "attention_probs_dropout_prob")
    one_layer = "encoder.layer.1."
    one_weight = "encoder.layer.0.attention.self.query.weight"
    lora_targets: tuple[str, ...] = ("query", "value")
    query_name = "attention.self.query"
    classifier_name = "classifier"
    fresh_in_base: tuple[str, ...] = ("pooler.",)
    # Heads whose checks of training, and of what the encoder alone decides, run in the second tier, for families whose
    # copies of them are another family's.
    second_tier_heads: tuple[type, ...] = ()
    # Whether the encoder is another family's too, so that compiling it with adapters is for the second tier.
    encoder_is_a_copy = False
    # Whether heads that families share are compiled of this one.
    compiles_shared_heads = False
    # What `generate` gets in the process without the package, one call each.
    remote_generation: tuple[dict[str, Any], ...] = ({"num_beams": 2},)
    # Parameters that a head freezes, since nothing that it predicts depends on them: names with `bert.` in front.
    frozen: frozenset[str] = frozenset()
    # What `attn_implementation` may be; the first is the default.
    attention_implementations: tuple[str, ...] = ("sdpa", "eager", "flex_attention")
    # Columns without which no head of the family makes a loss, labels aside.
    needed_inputs: tuple[str, ...] = ("input_ids", "attention_mask")

    # ---- parametrisation ----

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """`head` runs a check on every head; the others on those of the named kind."""
        choices = {
            "head": lambda head: True,
            "loss_head": lambda head: head.labels is not None,
            "later_head": lambda head: head.labels is not None and head is not self.heads[1] and self.compiles(head),
            "vocabulary_head": lambda head: head.kind == "vocabulary",
            "packed_head": lambda head: head.packs,
            "packed_loss_head": lambda head: head.packs and head.labels is not None,
            "row_head": lambda head: head.kind != "choice",
            "peft_head": lambda head: head.task_type is not None,
        }
        if "compiled" in metafunc.fixturenames:
            later = [pytest.mark.slow] if self.encoder_is_a_copy else []
            metafunc.parametrize("compiled", [False, pytest.param(True, marks=later)])
        for name, wanted in choices.items():
            if name in metafunc.fixturenames:
                heads = [head for head in self.heads if wanted(head)]
                owner = metafunc.function.__qualname__.split(".")[0]
                waits = owner in ("TrainingChecks", "TrainerChecks", "PeftChecks")
                waits = waits or metafunc.function.__name__ in CHECKS_OF_THE_ENCODER
                later = [waits and head.cls in self.second_tier_heads for head in heads]
                metafunc.parametrize(
                    name,
                    [
                        pytest.param(head, id=head.cls.__name__, marks=[pytest.mark.slow] if slow else [])
                        for head, slow in zip(heads, later, strict=True)
                    ],
                )

    def compiles(self, head: Head) -> bool:
        """Whether a head is compiled by itself: its code is its own, or is no other family's before."""
        return head.cls.forward.__qualname__.startswith(head.cls.__name__) or self.compiles_shared_heads

    # ---- objects ----

    def config(self, head: Head | None = None, **overrides: Any) -> Any:
        sizes = {**dict.fromkeys(self.dropout_fields, 0.0), "num_labels": 3}
        return self.config_class(**{**sizes, **self.config_kwargs, **(head.config if head else {}), **overrides})

    def model(self, head: Head, attention: str = "sdpa", seed: int = 0, **overrides: Any) -> Any:
        """The head in eval mode, with weights large enough for faults to show."""
        torch.manual_seed(seed)
        config = self.config(head, **overrides)
        config._attn_implementation = attention
        model = head.cls(config).eval()
        self.enlarge(model)
        return model

    def enlarge(self, model: Any) -> None:
        """Random values of visible size in every parameter, biases and LayerNorms included."""
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn(parameter.shape) * 0.1)

    def head(self, kind: str) -> Head:
        """The first head of a kind."""
        return next(head for head in self.heads if head.kind == kind)

    # ---- inputs ----

    def generator(self, seed: int = 0) -> torch.Generator:
        return torch.Generator().manual_seed(seed)

    def rows(self, lengths: tuple[int, ...] = LENGTHS, seed: int = 0, padding: str = "right") -> dict:
        """A padded batch: input_ids, attention_mask, token_type_ids, and the family's own inputs."""
        config, generator = self.config(), self.generator(seed)
        shape = (len(lengths), max(lengths))
        mask = (torch.arange(shape[1])[None] < torch.tensor(lengths)[:, None]).long()
        if padding == "left":
            mask = mask.flip(1)
        ids = torch.randint(5, config.vocab_size, shape, generator=generator).masked_fill(mask == 0, 0)
        types = torch.randint(2, shape, generator=generator).masked_fill(mask == 0, 0)
        return {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}

    def inputs(
        self, head: Head, padding: str = "right", seed: int = 0, lengths: tuple[int, ...] = LENGTHS
    ) -> dict[str, torch.Tensor]:
        """A padded batch of the head's shape, `(batch, choices, seq_len)` for multiple choice."""
        if head.kind != "choice":
            return self.rows(lengths, seed=seed, padding=padding)
        choices = [self.rows(lengths, seed=seed + number, padding=padding) for number in range(CHOICES)]
        return {name: torch.stack([choice[name] for choice in choices], dim=1) for name in choices[0]}

    def labels(self, head: Head, inputs: dict[str, torch.Tensor], seed: int = 1) -> dict[str, torch.Tensor]:
        """Labels of a padded batch."""
        rows = inputs if head.kind != "choice" else {name: value[:, 0] for name, value in inputs.items()}
        return head.labels(self.config(head), rows, self.generator(seed))

    def labelled(self, head: Head, padding: str = "right", seed: int = 0) -> dict[str, torch.Tensor]:
        """Inputs with labels."""
        inputs = self.inputs(head, padding, seed)
        return {**inputs, **(self.labels(head, inputs) if head.labels else {})}

    def packed(self, batch: dict[str, torch.Tensor], width: int | None = None) -> dict[str, torch.Tensor]:
        """The rows of a right-padded batch one after the other in ONE row with some padding behind.

        `(batch, seq_len)` columns follow their tokens, `(batch,)` columns become `(1, S)`; a family packs others in
        `pack_column`.
        """
        lengths = batch["attention_mask"].sum(1).tolist()
        offsets = torch.tensor([0, *lengths[:-1]]).cumsum(0)
        width = width or sum(lengths) + 3
        packed = {}
        for name, value in batch.items():
            if name == "attention_mask":
                continue
            if value.shape == batch["input_ids"].shape:
                fill = -100 if "label" in name else 0
                row = torch.cat([part[:length] for part, length in zip(value, lengths, strict=True)])
                packed[name] = torch.nn.functional.pad(row, (0, width - len(row)), value=fill)[None]
            elif value.dim() == 1:
                packed[name] = value[None]
            else:
                packed[name] = self.pack_column(name, value, offsets)
        ids = torch.cat([torch.full((length,), number + 1) for number, length in enumerate(lengths)])
        packed["sequence_ids"] = torch.nn.functional.pad(ids, (0, width - len(ids)))[None]
        return packed

    def pack_column(self, name: str, value: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError(f"say how `{name}` is packed")

    def unpacked(self, value: torch.Tensor, lengths: tuple[int, ...] = LENGTHS) -> list[torch.Tensor]:
        """The sequences of a packed `(1, width, ...)` tensor."""
        return list(value[0, : sum(lengths)].split(list(lengths)))

    @staticmethod
    def label_positions(labels: torch.Tensor, budget: int) -> torch.Tensor:
        """`(batch, budget)`: labelled positions first, then unlabelled ones."""
        return (labels == -100).to(torch.uint8).sort(dim=1, stable=True).indices[:, :budget]


def trained(model: Any) -> dict[str, torch.nn.Parameter]:
    """Parameters that are not frozen, by name."""
    return {name: value for name, value in model.named_parameters() if value.requires_grad}


def prediction(head: Head, outputs: Any) -> torch.Tensor:
    """What the head predicts."""
    return outputs[head.outputs[0]]


def assert_same_outputs(first: Any, second: Any, tolerance: float = 1e-6) -> None:
    """All tensors of two model outputs agree within a tolerance, and the fields are the same."""
    assert list(first.keys()) == list(second.keys())
    for name in first:
        assert_same(first[name], second[name], tolerance, name)


def assert_same(first: Any, second: Any, tolerance: float = 1e-6, name: str = "") -> None:
    """Two tensors, or tuples of tensors, agree within a tolerance."""
    if torch.is_tensor(first):
        assert_agrees(first.float(), second.float(), tolerance, name=name)
    else:
        assert len(first) == len(second), name
        for number, (left, right) in enumerate(zip(first, second, strict=True)):
            assert_same(left, right, tolerance, f"{name}[{number}]")


def at_real_tokens(value: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """`(tokens, ...)`: the entries of a `(batch, seq_len, ...)` tensor that are not padding."""
    return value[mask.bool()]
