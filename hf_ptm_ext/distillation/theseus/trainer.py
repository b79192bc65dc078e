"""The Trainer of BERT-of-Theseus: draws by step, exact accumulation and resume, plain checkpoints of the successor."""

import logging
from collections.abc import Iterable
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ...files import read_json, write_json
from ..base import CompressionTrainer
from ..checks import chance_warning
from ..teachers import weights_digest
from .arguments import TheseusArguments, draw_replacements, generator_of_step
from .layers import find_layers
from .model import REENTRANT, TheseusModel

logger = logging.getLogger(__name__)

THESEUS_FILE = "theseus.json"


class TheseusTrainer(CompressionTrainer):
    """Compresses a fine-tuned encoder by replacing its modules with the layers of a smaller one.

    No distillation loss: the task's own is used. In every update each layer of the successor is used with the rate's
    probability, in place of a module of the predecessor, for all micro-batches and processes alike; from
    `steps_for_replacing` on the successor is fine-tuned alone, with the same optimiser. Evaluation is always of the
    successor. Draws depend on `seed` and the update's number only, so a resumed run makes those of an uninterrupted
    one.

    Checkpoints hold the successor under the predecessor's class, which loads with its Auto class, and `theseus.json`,
    by which a run that resumes knows its predecessor. The norm that is clipped is that of the trained parameters (in
    the reference the predecessor's gradients count too).

    Args:
        model: the predecessor, fine-tuned on the task, or its folder or repository of the Hub.
        args: `TheseusArguments`.
        successor: a model of its class to start from (default: made of its first `successor_layers` layers).
        kwargs: as `transformers.Trainer`.

    Raises:
        TypeError: `args` are no `TheseusArguments`, or the models are not of one class.
        ValueError: layers that do not divide or are not found, FSDP, DeepSpeed or DataParallel.

    Examples:
        >>> import tempfile
        >>> from transformers import BertConfig, BertForSequenceClassification
        >>> tiny = BertConfig(vocab_size=9, hidden_size=8, num_hidden_layers=4, num_attention_heads=2)
        >>> args = TheseusArguments(tempfile.mkdtemp(), successor_layers=2, use_cpu=True, report_to="none")
        >>> trainer = TheseusTrainer(BertForSequenceClassification(tiny), args)
        >>> trainer.successor.config.num_hidden_layers
        2
    """

    arguments_class = TheseusArguments
    reentrant_reason = REENTRANT

    def __init__(
        self,
        model: nn.Module | str | PathLike[str] | None = None,
        args: TheseusArguments | None = None,
        *,
        successor: nn.Module | None = None,
        **kwargs: Any,
    ):
        self._given_successor = successor
        super().__init__(model, args, **kwargs)
        if self.is_fsdp_enabled or self.is_deepspeed_enabled:
            raise ValueError(
                f"`fsdp` and `deepspeed` must be off, got {self.args.fsdp!r} and {self.args.deepspeed!r}: the "
                "predecessor's layers are outside what they shard. Use DDP."
            )
        self._predecessor_digest: str | None = None

    def _wrapped(self, predecessor: nn.Module) -> TheseusModel:
        successor: Any = self._given_successor
        if successor is None:
            number = self.args.successor_layers
            successor = len(find_layers(predecessor)) // 2 if number is None else number
        return TheseusModel(predecessor, successor, train_head=self.args.train_head)

    @property
    def successor(self) -> nn.Module:
        """The successor, a plain model of the predecessor's class."""
        return self.wrapper.model

    @property
    def replacing_rate(self) -> float:
        """The rate of replacement of the update that comes next."""
        return self.args.rate_at(self.state.global_step, self.state.max_steps)

    # ---- training ----

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """As upstream; before it the predecessor is compared with chance."""
        rows = self._rows_to_check(self.args.predecessor_check_rows)
        warning = predecessor_warning(self.wrapper.eval(), rows)
        if warning is not None:
            logger.warning(warning)
        return super().train(*args, **kwargs)

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> Any:
        """As upstream, in training with this update's replacements."""
        if model.training:
            generator = generator_of_step(self.args.seed, self.state.global_step)
            drawn = draw_replacements(self.replacing_rate, len(self.wrapper.blocks), generator)
            inputs = {**inputs, "replacements": drawn}
        return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """As upstream, with the last update's rate of replacement beside the loss."""
        if "loss" in logs:
            last = max(self.state.global_step - 1, 0)
            logs["replacing_rate"] = self.args.rate_at(last, self.state.max_steps)
        super().log(logs, *args, **kwargs)

    # ---- checkpoints ----

    def _predecessor(self) -> dict[str, Any]:
        """By what a checkpoint knows its predecessor."""
        wrapper = self.wrapper
        if self._predecessor_digest is None:
            self._predecessor_digest = weights_digest(nn.ModuleList(wrapper.predecessor_layers))
        return {
            "predecessor": self._predecessor_digest,
            "predecessor_layers": len(wrapper.predecessor_layers),
            "successor_layers": len(wrapper.blocks),
        }

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        super()._save(output_dir, state_dict)
        if self.args.should_save:
            write_json(Path(output_dir or self.args.output_dir) / THESEUS_FILE, self._predecessor())

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        path = Path(resume_from_checkpoint) / THESEUS_FILE
        if not path.is_file():
            raise ValueError(
                f"`resume_from_checkpoint` = {resume_from_checkpoint} has no {THESEUS_FILE}: another Trainer "
                "wrote it. Load it as a plain model."
            )
        written, own = read_json(path), self._predecessor()
        if written != own:
            different = [name for name in own if written.get(name) != own[name]]
            raise ValueError(
                f"`resume_from_checkpoint` = {resume_from_checkpoint} belongs to another predecessor or division: "
                f"{', '.join(f'`{name}` is {written.get(name)} there and {own[name]} here' for name in different)}. "
                "Give the model that the run began with, and its `successor_layers`."
            )
        super()._load_from_checkpoint(resume_from_checkpoint, model)


def predecessor_warning(model: TheseusModel, batches: Iterable[dict[str, Any]]) -> str | None:
    """Say if the predecessor does no better on the labels than chance: a successor of it is good for nothing."""
    replacements = [False] * len(model.blocks)
    advice = (
        "Was it fine-tuned on this task, with these label numbers? Its head stays as it is. "
        "(`predecessor_check_rows=0` switches this check off.)"
    )
    forward = partial(model, replacements=replacements)
    return chance_warning("The predecessor", ((forward(**batch), batch) for batch in batches), advice)
