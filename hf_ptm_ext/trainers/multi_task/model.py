"""MT-DNN (Liu et al., ACL 2019): one encoder under a head for each task.

    loss of a batch = weight of its task * (task loss + distillation loss + smoothness loss)

Task models are upstream's or ours as they are; what they share is one module. Distillation from ensembles (Liu et al.,
2019, "Improving multi-task deep neural networks via knowledge distillation") adds the divergence from a teacher's
answers, which rows bring along; smoothness is SMART's (see objectives/smart.py).
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.utils import ModelOutput

from ...objectives import mean_squares, smoothness_loss, soft_label_loss, symmetric_kl
from ..auxiliary import unlike, written

TEACHER_COLUMNS = ("teacher_logits", "teacher_probabilities")
# Smallest probability of a teacher whose logarithm is taken.
SMALLEST = 1e-12
# Options of `Smart` that `smoothness_loss` takes as they are.
ASCENT = ("rule", "steps", "step_size", "noise_std", "radius", "norm")


@dataclass(frozen=True)
class Smart:
    """SMART's options.

    Args:
        weight: of the smoothness term (MT-DNN: 1).
        step_size: of the ascent (paper: 1e-3; MT-DNN's command line: 1e-5).
        noise_std: of the first noise (MT-DNN: 1e-5).
        steps: of ascent (MT-DNN: 1).
        norm: of the steps (MT-DNN: `"inf"`).
        stable: MT-DNN's clamped log-odds form in the ascent (its code) instead of the symmetric divergence (paper).
        rule: of a step, the `"paper"`'s or that of `"mt-dnn"`'s newest release, see `smoothness_loss`.
        radius: `"paper"`: of the ball that the ascent stays in (paper: 1e-5).
    """

    weight: float = 1.0
    step_size: float = 1e-3
    noise_std: float = 1e-5
    steps: int = 1
    norm: str = "inf"
    stable: bool = True
    rule: str = "paper"
    radius: float = 1e-5


class MultiTaskModel(nn.Module):
    """Models of several tasks on one encoder.

    The encoder is that of the first model that has all parts any of them has (a pooler, say); the other models get it
    in place of their own. Each model keeps its head, loss and dropout.

    Relations: train with `MultiTaskTrainer`; `save_tasks` gives plain checkpoints, and `models[name]` is a plain
    model, a teacher for distillation too.

    Args:
        models: task -> a model with a head, of upstream's or ours; all of one `model_type` and size.
        loss_weights: task -> weight of its loss (default: 1).
        smart: options of the smoothness term (default: none).

    Raises:
        ValueError: there are no models, or their encoders differ.

    Examples:
        >>> from transformers import BertConfig, BertForSequenceClassification, BertForTokenClassification
        >>> config = BertConfig(
        ...     vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
        ... )
        >>> model = MultiTaskModel(
        ...     {"topic": BertForSequenceClassification(config), "tags": BertForTokenClassification(config)}
        ... )
        >>> ids = torch.tensor([[2, 5, 3]])
        >>> model(task="topic", input_ids=ids, labels=torch.tensor([1])).logits.shape
        torch.Size([1, 2])
        >>> model(task="tags", input_ids=ids).logits.shape
        torch.Size([1, 3, 2])
    """

    def __init__(
        self,
        models: Mapping[str, nn.Module],
        loss_weights: Mapping[str, float] | None = None,
        smart: Smart | None = None,
    ):
        super().__init__()
        if not models:
            raise ValueError(f"`models` must have at least one task, got {models}.")
        bad = [name for name in models if not name or "." in name]
        if bad:
            raise ValueError(f"`models` must be named without dots, got {bad}.")
        self.own_names = {name: list(model.state_dict()) for name, model in models.items()}
        encoders: dict[str, Any] = {name: model.base_model for name, model in models.items()}
        shared = max(encoders.values(), key=lambda encoder: len(list(encoder.parameters())))
        for name, model in models.items():
            _check_alike(name, encoders[name], shared)
            setattr(model, str(model.base_model_prefix), shared)
            if isinstance(model, PreTrainedModel):
                model.tie_weights()  # an output matrix that is the encoder's embeddings
        self.models = nn.ModuleDict(models)
        self.loss_weights = {name: float((loss_weights or {}).get(name, 1.0)) for name in models}
        self.smart = smart

    @property
    def encoder(self) -> Any:
        """The encoder that all tasks share."""
        return next(iter(self.models.values())).base_model

    @property
    def config(self) -> Any:
        """The shared encoder's configuration."""
        return self.encoder.config

    def activation_checkpointing_enable(self, activation_checkpointing_kwargs: Any = None, **kwargs: Any) -> None:
        """As the encoder's own."""
        self.encoder.activation_checkpointing_enable(activation_checkpointing_kwargs, **kwargs)

    def forward(self, task: str, **inputs: Any) -> ModelOutput:
        """Run one task.

        Args:
            task: its name.
            inputs: what its model takes; `teacher_logits` or `teacher_probabilities`, of the logits' shape, add the
                distillation loss.

        Returns:
            `loss` if there are labels or a teacher's answers, `logits` and whatever the task's model gives besides,
            `<task>_loss` before its weight, and in training `distillation_loss` and `smoothness_loss` where they are
            part of it.

        Raises:
            ValueError: the task is unknown, or its outputs have no logits to smooth or compare.
        """
        if task not in self.models:
            raise ValueError(f"`task` must be one of {sorted(self.models)}, got {task!r}.")
        teacher = {name: inputs.pop(name) for name in TEACHER_COLUMNS if name in inputs}
        smooth = self.training and self.smart is not None
        watched: Any = _embedded(self.models[task]) if smooth else nullcontext([])
        with watched as embedded:
            output = self.models[task](**inputs)
        terms: dict[str, torch.Tensor] = {}
        if output.get("loss") is not None:
            terms[f"{task}_loss"] = _finite_mean(output["loss"], inputs.get("labels"))
        if teacher:
            terms["distillation_loss"] = self._distillation(task, output, inputs.get("labels"), **teacher)
        if smooth:
            terms["smoothness_loss"] = self._smoothness(task, output, embedded[0], inputs)
        if terms:
            weights = {"smoothness_loss": self.smart.weight} if self.smart is not None else {}
            total: Any = sum(weights.get(name, 1.0) * term for name, term in terms.items())
            output["loss"] = self.loss_weights[task] * total
        # A class of outputs of its own fields could not be put together again by DistributedDataParallel.
        return ModelOutput(**output, **{name: term.detach() for name, term in terms.items()})

    def _distillation(
        self,
        task: str,
        output: ModelOutput,
        labels: torch.Tensor | None,
        teacher_logits: torch.Tensor | None = None,
        teacher_probabilities: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """MT-DNN's divergence from a teacher: KL(teacher || student) in single precision, mean over rows."""
        logits = _logits(task, output)
        if teacher_logits is None:
            teacher_logits = teacher_probabilities.clamp(min=SMALLEST).log()  # type: ignore[union-attr]
        if teacher_logits.shape != logits.shape:
            raise ValueError(
                f"A teacher's answers for `{task}` must have the shape of the logits {tuple(logits.shape)}, got "
                f"{tuple(teacher_logits.shape)}."
            )
        kind = "logit_mse" if logits.shape[-1] == 1 else "mtdnn_kl"
        return soft_label_loss(_rows(task, logits, labels), _rows(task, teacher_logits, labels), kind=kind)

    def _smoothness(
        self, task: str, output: ModelOutput, embeddings: torch.Tensor, inputs: dict[str, Any]
    ) -> torch.Tensor:
        """SMART's term of one batch."""
        smart: Any = self.smart
        model, labels = self.models[task], inputs.get("labels")
        plain = {name: value for name, value in inputs.items() if name != "labels"}

        def logits_of(embeddings: torch.Tensor) -> torch.Tensor:
            with _embedded(model, embeddings):
                return _rows(task, _logits(task, model(**plain)), labels)

        logits = _rows(task, _logits(task, output), labels)
        divergence = mean_squares if logits.shape[-1] == 1 else symmetric_kl
        return smoothness_loss(
            logits_of,
            embeddings,
            logits,
            divergence=divergence,
            ascent=None if smart.stable else divergence,
            **{name: getattr(smart, name) for name in ASCENT},
        )

    def unique_state_dict(self) -> dict[str, torch.Tensor]:
        """Every tensor once, the encoder under the first task's name."""
        found: dict[int, tuple[str, torch.Tensor]] = {}
        for name, value in self.state_dict(keep_vars=True).items():
            found.setdefault(id(value), (name, value))
        return written(dict(found.values()))

    def load_unique_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Load what `unique_state_dict` gave."""
        wrong = unlike(self.unique_state_dict(), state)
        if wrong:
            raise ValueError(
                f"`state` must have the tensors of the tasks {sorted(self.models)}; wrong are {wrong[:5]} "
                f"({len(wrong)} in all). Build the tasks as in the run that saved them, in the same order."
            )
        self.load_state_dict(dict(state), strict=False)

    def save_tasks(self, folder: str | Path) -> list[Path]:
        """Write each task's model as a plain checkpoint of its own class, to `folder/<task>`."""
        folders = {name: Path(folder) / name for name in self.models}
        for name, place in folders.items():
            self.save_task(name, place)
        return list(folders.values())

    def save_task(self, name: str, folder: str | Path) -> None:
        """Write one task's model as a plain checkpoint of its own class."""
        if name not in self.models:
            raise ValueError(f"`name` must be one of {sorted(self.models)}, got {name!r}.")
        # A part of the shared encoder that this class does not have is left out.
        state = self.models[name].state_dict()
        model: Any = self.models[name]
        model.save_pretrained(folder, state_dict={key: state[key] for key in self.own_names[name]})


@contextmanager
def _embedded(model: Any, replacement: torch.Tensor | None = None) -> Iterator[list[torch.Tensor]]:
    """What the embedding module gives (words, positions, segments, normalised) in a pass, or has given in its place.

    A model that adds its positions elsewhere has its word embeddings taken.
    """
    words = model.get_input_embeddings()
    whole = [
        module
        for name, module in model.named_modules()
        if name.rpartition(".")[2] == "embeddings" and words in list(module.modules())
    ]
    # Encoder and decoder may have a module each around the same weight.
    tied = [module for module in model.modules() if type(module) is type(words) and module.weight is words.weight]
    found: list[torch.Tensor] = []

    def hook(module: nn.Module, args: Any, output: Any) -> Any:
        if found:  # a decoder's, behind the encoder's
            return output
        found.append(output if isinstance(output, torch.Tensor) else output[0])
        if replacement is None:
            return output
        return replacement if isinstance(output, torch.Tensor) else (replacement, *output[1:])

    handles = [module.register_forward_hook(hook) for module in whole[:1] or tied]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def _finite_mean(loss: torch.Tensor, labels: torch.Tensor | None) -> torch.Tensor:
    """Upstream's mean over the labels of a batch; 0 where all are -100, of which upstream's is nan."""
    if labels is None or labels.is_floating_point():
        return loss
    return torch.where((labels != -100).any(), loss, torch.zeros_like(loss))


def _logits(task: str, output: ModelOutput) -> torch.Tensor:
    """The logits of an output."""
    if output.get("logits") is None:
        raise ValueError(
            f"The model of `{task}` gives no `logits`: distillation and smoothness are for classification, "
            "regression and tagging."
        )
    return output["logits"]


def _rows(task: str, logits: torch.Tensor, labels: torch.Tensor | None) -> torch.Tensor:
    """Logits as `(rows, classes)`: a text each, or a labelled token each."""
    if logits.dim() == 2:
        return logits
    flat = logits.flatten(0, -2)
    if labels is None or labels.shape != logits.shape[:-1]:
        raise ValueError(f"`labels` of `{task}` must tell which tokens count, of shape {tuple(logits.shape[:-1])}.")
    return flat[labels.flatten() != -100]


def _check_alike(name: str, encoder: Any, shared: Any) -> None:
    """Refuse an encoder that is not the shared one's like."""
    if encoder.config.model_type != shared.config.model_type:
        raise ValueError(
            f"All tasks must have one encoder, got a {encoder.config.model_type} for `{name}` and a "
            f"{shared.config.model_type}. Load every task's model from the same checkpoint."
        )
    have = {key: value.shape for key, value in shared.state_dict().items()}
    other = [key for key, value in encoder.state_dict().items() if have.get(key) != value.shape]
    if other:
        raise ValueError(
            f"All tasks must have encoders of one size; that of `{name}` differs in {other[:3]}. Load every task's "
            "model from the same checkpoint."
        )
