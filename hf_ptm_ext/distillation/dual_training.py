"""Dual training with shared projections (Zhao et al. 2019, arXiv 1909.11687): a small vocabulary and a small width.

    loss = projection_loss + eps * (teacher_label_loss + label_loss)

The teacher, which is trained too, reads words in its own pieces or in the student's, whose embeddings are brought to
its width by V, and predicts each over its own vocabulary. This follows the paper; no code of the authors' was found.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from transformers.utils import ModelOutput

from ..objectives import shared_projection_loss
from ..trainers.auxiliary import AuxiliaryObjective
from .capture import logits_fields
from .layouts import ModelShape
from .teachers import TEACHER_PREFIX, Teachers
from .terms import Term

LABEL = "label_loss"
TEACHER_LABEL = "teacher_label_loss"
PROJECTION = "projection_loss"
TEACHER_COLUMNS = tuple(
    f"{TEACHER_PREFIX}{name}" for name in ("input_ids", "attention_mask", "token_type_ids", "labels", "vocabulary_ids")
)


class DualTrainModel(AuxiliaryObjective):
    """A student and the teacher that is trained with it.

    Args:
        model: the student, a masked language model.
        teacher: the teacher, a masked language model of the same architecture and number of layers; it is trained.
        direction: of the projection loss: up (the paper's better one), down or both.
        projection_weight: weight of the projection loss.
        mlm_weight: weight of both masked language models (paper: eps = 1).

    Raises:
        ValueError: a model has no vocabulary projection, or their weights do not match.

    Examples:
        >>> from transformers import BertConfig, BertForMaskedLM
        >>> sizes = dict(num_hidden_layers=1, num_attention_heads=2)
        >>> student = BertForMaskedLM(BertConfig(vocab_size=7, hidden_size=4, intermediate_size=8, **sizes))
        >>> teacher = BertForMaskedLM(BertConfig(vocab_size=9, hidden_size=8, intermediate_size=16, **sizes))
        >>> model = DualTrainModel(student, teacher)
        >>> output = model(
        ...     input_ids=torch.tensor([[1, 4, 2]]), labels=torch.tensor([[-100, 6, -100]]),
        ...     teacher_input_ids=torch.tensor([[1, 4, 2]]), teacher_labels=torch.tensor([[-100, 6, -100]]),
        ...     teacher_vocabulary_ids=torch.tensor([[0, 1, 0]]),
        ... )
        >>> sorted(output)
        ['label_loss', 'logits', 'loss', 'projection_loss', 'teacher_label_loss']
    """

    accepts_loss_kwargs = False
    term_fields = (PROJECTION, LABEL, TEACHER_LABEL)

    def __init__(
        self,
        model: Any,
        teacher: Any,
        *,
        direction: str = "up",
        projection_weight: float = 1.0,
        mlm_weight: float = 1.0,
    ):
        super().__init__(model)
        self.teacher = teacher
        for name, each in (("student", model), ("teacher", teacher)):
            head = each.get_output_embeddings() if hasattr(each, "get_output_embeddings") else None
            if head is None:
                raise ValueError(
                    f"`{name}` must be a masked language model in preset dualtrain, got {type(each).__name__} without "
                    "a vocabulary projection."
                )
            if each.get_input_embeddings().weight.shape[1] != each.config.hidden_size:
                raise ValueError(f"`{name}` must have embeddings of its own width for preset dualtrain.")
        self.direction = direction
        self.weights = {
            PROJECTION: float(projection_weight),
            LABEL: float(mlm_weight),
            TEACHER_LABEL: float(mlm_weight),
        }
        narrow, wide = model.config.hidden_size, teacher.config.hidden_size
        self.up = nn.Parameter(nn.init.orthogonal_(torch.empty(wide, narrow)))
        self.down = nn.Parameter(nn.init.orthogonal_(torch.empty(narrow, wide))) if direction != "up" else None
        self._matched = self._matching()
        with torch.no_grad():
            self._projection_loss()  # raises if a variable does not fit
        self.teachers = Teachers([])
        self.phase: int | None = None
        self._inputs = ModelShape.of(model).inputs
        # What the teacher's vocabulary projection reads; the hook stays, so that the forward can be compiled.
        self._head_inputs: list[torch.Tensor] = []
        teacher.get_output_embeddings().register_forward_pre_hook(self._keep_head_input)

    def _keep_head_input(self, _: nn.Module, arguments: tuple[Any, ...]) -> None:
        if self.training:
            self._head_inputs.append(arguments[0])

    def _matching(self) -> list[str]:
        """Names of variables that both models have, embeddings and vocabulary projections aside."""
        own, other = dict(self.model.named_parameters()), dict(self.teacher.named_parameters())
        heads = {id(p) for each in (self.model, self.teacher) for p in each.get_output_embeddings().parameters()}
        inside = [
            name
            for name in own
            if "embeddings" not in name and not {id(own[name]), id(other.get(name, own[name]))} & heads
        ]
        missing = [name for name in inside if name not in other]
        if missing or len(other) != len(own):
            raise ValueError(
                "`student` and `teacher` must be of one architecture with as many layers in preset dualtrain, but "
                f"{len(own)} and {len(other)} variables do not match{f': {missing[0]}' if missing else ''}."
            )
        return inside

    def _projection_loss(self) -> torch.Tensor:
        own, other = dict(self.model.named_parameters()), dict(self.teacher.named_parameters())
        pairs = [(other[name], own[name]) for name in self._matched]
        return shared_projection_loss(pairs, down=self.down, up=self.up, direction=self.direction)

    # ---- what the Trainer asks of the wrapper ----

    def activation_checkpointing_enable(self, activation_checkpointing_kwargs: Any = None, **kwargs: Any) -> None:
        """Checkpoint the activations of both models."""
        for each in (self.model, self.teacher):
            each.activation_checkpointing_enable(activation_checkpointing_kwargs, **kwargs)

    @property
    def columns(self) -> list[str]:
        """Names of the columns that both models read."""
        return sorted({*self._inputs, *TEACHER_COLUMNS})

    def described(self) -> str:
        """The terms with their weights, for the log."""
        return f"dual training with {type(self.teacher).__name__}: {self.weights}, direction {self.direction!r}"

    def active_terms(self) -> list[Term]:
        """None: no frozen teacher is run."""
        return []

    @staticmethod
    def count_targets(batch: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        """Count what the terms are means over."""
        ids = batch["input_ids"]
        rows = torch.tensor(ids.shape[0], device=ids.device)
        counts = {"rows": rows}
        for unit, column in (("labels", "labels"), ("teacher_labels", f"{TEACHER_PREFIX}labels")):
            labels = batch.get(column)
            counts[unit] = rows if labels is None else (labels != -100).sum()
        return counts

    # ---- the loss ----

    def forward(self, term_scales: dict[str, torch.Tensor] | None = None, **inputs: Any) -> ModelOutput:
        """Run both models."""
        output = self.model(**{name: value for name, value in inputs.items() if name in self._inputs})
        logits = logits_fields(output)
        if not self.training:
            loss = output.get("loss")
            return ModelOutput(**({} if loss is None else {"loss": loss}), **logits)
        needed = ("labels", f"{TEACHER_PREFIX}input_ids", f"{TEACHER_PREFIX}labels", f"{TEACHER_PREFIX}vocabulary_ids")
        missing = [name for name in needed if inputs.get(name) is None]
        if missing:
            raise ValueError(
                f"Preset dualtrain needs {', '.join(f'`{name}`' for name in missing)} in the batch. "
                "DataCollatorForMixedVocabulary makes them of texts."
            )
        label = torch.where((inputs["labels"] != -100).any(), output["loss"], torch.zeros_like(output["loss"]))
        terms = {PROJECTION: self._projection_loss(), LABEL: label, TEACHER_LABEL: self._teacher_loss(inputs)}
        if term_scales is not None:
            units = {PROJECTION: "rows", LABEL: "labels", TEACHER_LABEL: "teacher_labels"}
            terms = {name: value * term_scales[units[name]] for name, value in terms.items()}
        loss = torch.stack([self.weights[name] * value for name, value in terms.items()]).sum()
        return ModelOutput(loss=loss, **logits, **terms)

    def _teacher_loss(self, inputs: Mapping[str, Any]) -> torch.Tensor:
        ids, labels = inputs[f"{TEACHER_PREFIX}input_ids"], inputs[f"{TEACHER_PREFIX}labels"]
        of_student = inputs[f"{TEACHER_PREFIX}vocabulary_ids"] == 1
        own_table = self.teacher.get_input_embeddings()
        projected = self.model.get_input_embeddings().weight @ self.up.T
        embeddings = torch.where(
            of_student[..., None],
            functional.embedding(ids.where(of_student, torch.zeros_like(ids)), projected),
            own_table(ids.where(~of_student, torch.zeros_like(ids))),
        )
        more = {
            name: inputs[f"{TEACHER_PREFIX}{name}"]
            for name in ("attention_mask", "token_type_ids")
            if f"{TEACHER_PREFIX}{name}" in inputs
        }
        self._head_inputs.clear()
        logits = self.teacher(inputs_embeds=embeddings, **more).logits
        bias = self.model.get_output_embeddings().bias
        in_student = functional.linear(self._head_inputs.pop(), projected, bias)
        # Each position's loss is over the vocabulary of its piece; the other one ignores it.
        parts = [
            functional.cross_entropy(
                scores.flatten(0, 1).float(), labels.where(chosen, -100).flatten(), reduction="sum", ignore_index=-100
            )
            for scores, chosen in ((logits, ~of_student), (in_student, of_student))
        ]
        return (parts[0] + parts[1]) / (labels != -100).sum().clamp_min(1)
