"""A Trainer for adapted models: the paper's parameter groups, checkpoints and repositories with the adapter alone."""

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from torch import nn
from transformers.utils import logging

from ..hub.adapter_card import ADAPTER_CONFIG, write_adapter_card
from ..trainers import PtmTrainer
from .trained import adapter_parameter_groups, new_parts

logger = logging.get_logger(__name__)

NO_RESULTS = ("runtime", "per_second", "epoch")


class AdapterTrainer(PtmTrainer):
    """`PtmTrainer` for a model of PEFT, whatever its method.

    * The optimiser's groups are adapters, LayerNorms and head, with weight decay on the matrices of adapters and head
      alone (`adapter_parameter_groups`).
    * Checkpoints and pushes hold the adapter, never the base model, and a card that says what it belongs on and what
      to import; resume is exact.
    * A head that is new and not trained is refused: what it predicts would stay noise.

    Args:
        model: from `peft.get_peft_model` or `PeftModel.from_pretrained(..., is_trainable=True)`.
        args: as `transformers.Trainer`; the paper uses learning rates around 1e-3 to 3e-4 and warm-up of a tenth.
        card: fields of `hf_ptm_ext.hub.write_adapter_card`, such as `language`, `license`, `data`; the results of the
            last evaluation are added.
        head_learning_rate: learning rate of the head (default: that of all).
        kwargs: as `transformers.Trainer`.

    Raises:
        TypeError: the model has no adapter.
        ValueError: nothing is trained, or a new head is not.
    """

    def __init__(
        self,
        model: PeftModel | None = None,
        args: Any = None,
        *,
        card: Mapping[str, Any] | None = None,
        head_learning_rate: float | None = None,
        **kwargs: Any,
    ):
        if not isinstance(model, PeftModel):
            raise TypeError(
                f"`model` must be adapted, got {type(model).__name__}: pass `peft.get_peft_model(model, "
                "HoulsbyConfig(task_type=...))`, or what `peft.AutoPeftModelFor...from_pretrained(folder, "
                "is_trainable=True)` gives."
            )
        _check_new_heads(model)
        adapter_parameter_groups(model)
        self.card = dict(card or {})
        self.head_learning_rate = head_learning_rate
        super().__init__(model=model, args=args, **kwargs)
        self._takes_target_counts = "target_counts" in inspect.signature(model.get_base_model().forward).parameters

    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:
        """As upstream, over the paper's groups."""
        if self.optimizer is None:
            model = self.model if model is None else model
            groups = adapter_parameter_groups(model, self.args.weight_decay, self.head_learning_rate)
            self.optimizer = self.optimizer_of(groups, model)
        return self.optimizer

    def _save(self, output_dir: str | None = None, state_dict: dict | None = None) -> None:
        """As upstream, with our card in the place of PEFT's form to be filled in."""
        super()._save(output_dir, state_dict)
        folder = Path(self.args.output_dir if output_dir is None else output_dir)
        if self.args.should_save and (folder / ADAPTER_CONFIG).is_file():
            self.write_card(folder)

    def write_card(self, folder: str | Path) -> Path:
        """Write the adapter's card."""
        model = self.accelerator.unwrap_model(self.model)
        config = model.get_base_model().config
        rows = self._train_batch_size * self.args.gradient_accumulation_steps * self.args.world_size
        fields: dict[str, Any] = {
            "family": config.model_type,
            "auto_class": _auto_class(model.get_base_model()),
            "metrics": self._last_metrics(),
            "base_parameters": sum(value.numel() for value in model.parameters()),
            "training": {
                "updates": self.state.global_step,
                "learning rate": self.args.learning_rate,
                "rows per update": rows,
                "seed": self.args.seed,
            },
            "repo_id": self.args.hub_model_id or f"your-name/{Path(self.args.output_dir).resolve().name}",
        }
        if getattr(config, "problem_type", None) == "single_label_classification" and config.id2label:
            fields["labels"] = [config.id2label[number] for number in range(config.num_labels)]
        return write_adapter_card(folder, **{**fields, **self.card})

    def _last_metrics(self) -> dict[str, float]:
        """What the last evaluation measured."""
        for entry in reversed(self.state.log_history):
            found = {name: value for name, value in entry.items() if name.startswith("eval_")}
            if found:
                return {
                    name.removeprefix("eval_"): value
                    for name, value in found.items()
                    if isinstance(value, int | float) and not any(part in name for part in NO_RESULTS)
                }
        return {}


def _check_new_heads(model: PeftModel) -> None:
    """Refuse a head whose weights are new and stay as they are."""
    base = model.get_base_model()
    saved = tuple(
        name for config in model.peft_config.values() for name in getattr(config, "modules_to_save", None) or ()
    )
    frozen = [name for name in new_parts(base) if not name.endswith(saved or ("\0",))]
    if frozen:
        names = ", ".join(f"`{name}`" for name in frozen)
        raise ValueError(
            f"{names} of the model {'is' if len(frozen) == 1 else 'are'} new and would not be trained, so its "
            "predictions would stay noise, and would differ wherever the adapter is loaded. Pass "
            f"`modules_to_save={frozen}` (or the `task_type` that stands for it) to the adapter's configuration."
        )


def _auto_class(model: nn.Module) -> str | None:
    """The auto class that loads a model again, told by the end of its class's name."""
    name = type(model).__name__
    head = name.partition("For")[2]
    known = {"ConditionalGeneration": "Seq2SeqLM", "PreTraining": "PreTraining", "LMHeadModel": "CausalLM"}
    return f"AutoModelFor{known.get(head, head)}" if head else "AutoModel"
