"""The Trainer of BERT-of-Theseus: draws by step, exact accumulation and resume, plain checkpoints of the successor."""

import copy
import json
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers.utils import find_labels

from ...trainers.auxiliary import PlainModelCheckpoints
from ...trainers.rows import is_resumable
from ..checks import against_chance
from ..layouts import ModelShape
from ..outputs import joint_logits, logits_fields
from ..teachers import weights_digest
from .arguments import TheseusArguments
from .layers import find_layers
from .model import TheseusModel, refuse_reentrant
from .schedules import draw_replacements, generator_of_step

logger = logging.getLogger(__name__)

THESEUS_FILE = "theseus.json"


class TheseusTrainer(PlainModelCheckpoints):
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
        model: the predecessor, fine-tuned on the task.
        args: `TheseusArguments`.
        successor: a model of its class to start from (default: made of its first `successor_layers` layers).
        kwargs: as `transformers.Trainer`.

    Raises:
        TypeError: `args` are no `TheseusArguments`, or the models are not of one class.
        ValueError: layers that do not divide or are not found, FSDP, DeepSpeed or DataParallel.

    Example:
        >>> import tempfile
        >>> from transformers import BertConfig, BertForSequenceClassification
        >>> tiny = BertConfig(vocab_size=9, hidden_size=8, num_hidden_layers=4, num_attention_heads=2)
        >>> args = TheseusArguments(tempfile.mkdtemp(), successor_layers=2, use_cpu=True, report_to="none")
        >>> trainer = TheseusTrainer(BertForSequenceClassification(tiny), args)
        >>> trainer.successor.config.num_hidden_layers
        2
    """

    def __init__(
        self,
        model: nn.Module | None = None,
        args: TheseusArguments | None = None,
        *,
        successor: nn.Module | None = None,
        **kwargs: Any,
    ):
        if not isinstance(args, TheseusArguments):
            raise TypeError(f"`args` must be TheseusArguments, got {type(args).__name__}.")
        if args.n_gpu > 1:
            raise ValueError(
                f"`n_gpu` is {args.n_gpu}: one process on several GPUs (DataParallel) would leave the predecessor on "
                "the first. Start one process per GPU: `accelerate launch`."
            )
        if args.activation_checkpointing:
            refuse_reentrant(args.activation_checkpointing_kwargs)
        self.args = args
        self._given_successor = successor
        super().__init__(model=None if model is None else self._wrapped(model), args=args, **kwargs)
        if self.is_fsdp_enabled or self.is_deepspeed_enabled:
            raise ValueError(
                "`fsdp` and `deepspeed` must be off: the predecessor's layers are outside what they shard. Use DDP."
            )
        if args.label_names is None:
            self.label_names = find_labels(type(self.successor))
        self._predecessor_digest: str | None = None

    def _wrapped(self, predecessor: nn.Module) -> TheseusModel:
        successor = self._given_successor
        if successor is None:
            number = self.args.successor_layers
            successor = len(find_layers(predecessor)) // 2 if number is None else number
        return TheseusModel(predecessor, successor, train_head=self.args.train_head)

    def call_model_init(self, trial: Any = None) -> TheseusModel:
        """As upstream; what `model_init` makes is the predecessor.

        Args:
            trial: as upstream.
        """
        return self._wrapped(super().call_model_init(trial))

    @property
    def wrapper(self) -> TheseusModel:
        """The module that is trained."""
        return self.accelerator.unwrap_model(self.model, keep_torch_compile=False)

    @property
    def successor(self) -> nn.Module:
        """The successor, a plain model of the predecessor's class."""
        return self.wrapper.model

    @property
    def replacing_rate(self) -> float:
        """The rate of replacement of the update that comes next."""
        return self.args.rate_at(self.state.global_step, self.state.max_steps)

    def _set_signature_columns_if_needed(self) -> None:
        """The successor's columns are kept, not the wrapper's."""
        if self._signature_columns is None:
            names = [*ModelShape.of(self.successor).inputs, *self.label_names, "label", "label_ids"]
            self._signature_columns = list(dict.fromkeys(names))
        super()._set_signature_columns_if_needed()

    # ---- training ----

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """As upstream; before it the predecessor is compared with chance.

        Args:
            args: as upstream.
            kwargs: as upstream.
        """
        self._check_predecessor()
        return super().train(*args, **kwargs)

    def _check_predecessor(self) -> None:
        dataset = self.train_dataset if self.eval_dataset is None else self.eval_dataset
        number = self.args.predecessor_check_rows
        if not number or isinstance(dataset, dict) or is_resumable(dataset) or not hasattr(dataset, "__len__"):
            return
        if not self.is_world_process_zero():
            return
        if hasattr(dataset, "column_names"):
            dataset = self._remove_unused_columns(dataset)
        picked = range(0, len(dataset), max(len(dataset) // number, 1))
        collate = self._get_collator_with_removed_columns(copy.deepcopy(self.data_collator))
        size = self.args.per_device_eval_batch_size
        batches = (collate([dataset[row] for row in picked[at : at + size]]) for at in range(0, len(picked), size))
        self.wrapper.eval()
        warning = predecessor_warning(self.wrapper, (self._prepare_inputs(batch) for batch in batches))
        if warning is not None:
            logger.warning(warning)

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> Any:
        """As upstream, in training with this update's replacements.

        Args:
            model: the wrapped module.
            inputs: the batch.
            return_outputs: as upstream.
            num_items_in_batch: as upstream.
        """
        if model.training:
            generator = generator_of_step(self.args.seed, self.state.global_step)
            drawn = draw_replacements(self.replacing_rate, len(self.wrapper.blocks), generator)
            inputs = {**inputs, "replacements": drawn}
        return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """As upstream, with the last update's rate of replacement beside the loss.

        Args:
            logs: as upstream.
            args: as upstream.
            kwargs: as upstream.
        """
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
            path = Path(self.args.output_dir if output_dir is None else output_dir) / THESEUS_FILE
            partial = path.with_suffix(".partial")
            partial.write_text(json.dumps(self._predecessor(), indent=2), encoding="utf-8")
            partial.replace(path)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        path = Path(resume_from_checkpoint) / THESEUS_FILE
        if not path.is_file():
            raise ValueError(
                f"`resume_from_checkpoint` = {resume_from_checkpoint} has no {THESEUS_FILE}: another Trainer "
                "wrote it. Load it as a plain model."
            )
        written, own = json.loads(path.read_text(encoding="utf-8")), self._predecessor()
        if written != own:
            different = [name for name in own if written.get(name) != own[name]]
            raise ValueError(
                f"`resume_from_checkpoint` = {resume_from_checkpoint} belongs to another predecessor or division: "
                f"{', '.join(f'`{name}` is {written.get(name)} there and {own[name]} here' for name in different)}. "
                "Give the model that the run began with, and its `successor_layers`."
            )
        super()._load_from_checkpoint(resume_from_checkpoint, model)


@torch.no_grad()
def predecessor_warning(model: TheseusModel, batches: Iterable[dict[str, Any]]) -> str | None:
    """Say if the predecessor does no better on the labels than chance: a successor of it is good for nothing.

    Args:
        model: the predecessor and its successor, in evaluation mode.
        batches: some labelled rows.

    Returns:
        The warning, or `None`, also where labels are not classes.
    """
    predicted, wanted, classes = [], [], 0
    for batch in batches:
        logits = joint_logits(logits_fields(model(replacements=[False] * len(model.blocks), **batch)))
        labels = batch.get("labels")
        if logits is None or not torch.is_tensor(labels) or labels.is_floating_point():
            return None
        if logits.shape[:-1] != labels.shape:
            return None
        classes = logits.shape[-1]
        predicted.append(logits.argmax(-1).flatten().cpu())
        wanted.append(labels.flatten().cpu())
    found = against_chance(torch.cat(predicted), torch.cat(wanted), classes) if predicted else None
    if found is None or found[0] > min(found[1] + found[2], 1.0) or found[0] >= 0.999:
        return None
    count = int((torch.cat(wanted) != -100).sum())
    return (
        f"The predecessor is near chance: its accuracy on {count} labels is {found[0]:.3f}, "
        f"the most frequent one has {found[1]:.3f} of them. Was it fine-tuned on this task, with these label numbers? "
        "Its head stays as it is. (`predecessor_check_rows=0` switches this check off.)"
    )


__all__ = ["THESEUS_FILE", "TheseusTrainer"]
