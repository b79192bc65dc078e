"""The pre-training Trainer: resumable data and masks, evaluation in running sums."""

import inspect
import time
from typing import Any

import torch
from accelerate.utils import gather_object
from torch.utils.data import DataLoader, Subset
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES
from transformers.trainer_utils import speed_metrics

from ..objectives.token_losses import update_loss
from .base import OwnEvaluationCollator
from .collator_state import restart

# Labelled positions whose logits are alive at once in the evaluation of any masked language model.
LABELS_AT_ONCE = 128
# Classes of upstream with logits at every label.
ENCODERS = {*MODEL_FOR_MASKED_LM_MAPPING_NAMES.values(), "XLNetLMHeadModel"}


def metrics_from_sums(sums: dict[str, torch.Tensor], weights: dict[str, float], prefix: str) -> dict[str, float]:
    """Turn `[cross entropy, correct, targets]` sums per term into metrics."""
    metrics: dict[str, float] = {}
    total = 0.0
    for term, (loss_sum, correct, targets) in sums.items():
        if not targets:
            continue
        loss = float(loss_sum / targets)
        metrics[f"{prefix}_{term}_loss"] = loss
        metrics[f"{prefix}_{term}_accuracy"] = float(correct / targets)
        metrics[f"{prefix}_{term}_targets"] = int(targets)
        total += weights.get(term, 1.0) * loss
    metrics[f"{prefix}_loss"] = total
    return metrics


def sums_of_batch(model: Any, batch: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Evaluation sums of one batch: the model's own, or those of any masked language model."""
    if hasattr(model, "evaluation_sums"):
        return model.evaluation_sums(**batch)
    batch.pop("label_positions", None)
    most = max(int((batch["labels"] != -100).sum(dim=1).max()), 1)
    rows = max(LABELS_AT_ONCE // most, 1)
    sums = torch.zeros(3, dtype=torch.float64)
    for start in range(0, len(batch["labels"]), rows):
        part = {name: values[start : start + rows] for name, values in batch.items()}
        sums += masked_lm_sums(model, **part).cpu()
    # What a decoder predicts is a text, not the masked positions of its input.
    return {"denoising" if "decoder_input_ids" in batch else "mlm": sums}


def masked_lm_sums(model: Any, labels: torch.Tensor, **inputs: Any) -> torch.Tensor:
    """Sums of a few rows, with the vocabulary projection at labelled positions only."""
    index = (labels.reshape(-1) != -100).nonzero().squeeze(-1)
    return target_sums(logits_at(model, index, inputs), labels.reshape(-1).index_select(0, index))


def logits_at(model: Any, index: torch.Tensor, inputs: dict[str, Any]) -> torch.Tensor:
    """Logits `(len(index), vocab_size)` at positions of the flattened batch, the only ones that are computed."""
    projection = model.get_output_embeddings()

    def labelled_only(module: torch.nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        states, *rest = arguments
        return (states.reshape(-1, states.shape[-1]).index_select(0, index), *rest)

    hook = projection.register_forward_pre_hook(labelled_only) if projection is not None else None
    try:
        output = model(**inputs)
    finally:
        if hook is not None:
            hook.remove()
    logits = output["logits" if "logits" in output else "prediction_logits"]
    return logits if hook is not None else logits.reshape(-1, logits.shape[-1]).index_select(0, index)


def target_sums(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Float64 `[sum of cross entropies, correct, targets]`, on the CPU where their device has no float64."""
    loss = torch.nn.functional.cross_entropy(logits.float(), targets, reduction="sum")
    sums = torch.stack([loss, (logits.argmax(-1) == targets).sum(), torch.ones_like(targets).sum()])
    return (sums if sums.device.type in ("cpu", "cuda") else sums.cpu()).double()


class PreTrainingTrainer(OwnEvaluationCollator):
    """Trainer of the pre-training job: `PtmTrainer`, evaluated in running sums.

    A model with `evaluation_sums` is evaluated without gathering logits: memory does not grow with the evaluation set.
    The loss of upstream's masked language models, a mean of each micro-batch, is one over the labels of an update.

    Args:
        args: as `transformers.Trainer`.
        eval_collator: makes evaluation batches (default: a copy of `data_collator`); reset before each evaluation.
        kwargs: as `transformers.Trainer`.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        model = self.accelerator.unwrap_model(self.model)
        encodes = type(model).__name__ in ENCODERS and not model.config.is_encoder_decoder
        counts = "num_items_in_batch" in inspect.signature(model.forward).parameters
        if encodes and not counts and self.compute_loss_func is None and self.label_smoother is None:
            self.compute_loss_func = update_loss

    def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader:
        """Batches of this process's share of the rows, each row in exactly one process."""
        dataset = self.eval_dataset if eval_dataset is None else eval_dataset
        share = Subset(dataset, range(self.args.process_index, len(dataset), self.args.world_size))
        restart(self.eval_collator)
        return DataLoader(share, batch_size=self.args.per_device_eval_batch_size, collate_fn=self.eval_collator)

    def batch_sums(self, model: Any, batch: dict[str, Any]) -> dict[str, torch.Tensor]:
        """Float64 `[cross entropy, correct, targets]` of each term of a batch."""
        return sums_of_batch(model, batch)

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: list[str] | None = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Evaluate in running sums: no logits are gathered, memory does not grow with the data."""
        dataset = self.eval_dataset if eval_dataset is None else eval_dataset
        if dataset is None:
            raise ValueError(f"`eval_dataset` must be given: the Trainer has none, got {dataset}.")
        start = time.time()
        model = self.accelerator.unwrap_model(self.model)
        was_training = model.training
        model.eval()
        sums: dict[str, torch.Tensor] = {}
        with self.whole_model():
            for batch in self.get_eval_dataloader(dataset):
                batch = self._prepare_inputs(batch)
                with torch.no_grad(), self.compute_loss_context_manager():
                    batch_sums = self.batch_sums(model, batch)
                for term, values in batch_sums.items():
                    sums[term] = sums[term] + values if term in sums else values
        model.train(was_training)
        # As objects: a process without rows knows no term, and must take part all the same.
        parts = gather_object([{term: values.tolist() for term, values in sums.items()}])
        sums = {}
        for part in parts:
            for term, values in part.items():
                sums[term] = sums.get(term, 0) + torch.tensor(values, dtype=torch.float64)
        weights = getattr(model, "loss_weights", None)
        if weights is None:
            weights = {"sbo": float(getattr(model.config, "sbo_loss_weight", 1.0))}
        metrics = metrics_from_sums(sums, weights, metric_key_prefix)
        metrics.update(speed_metrics(metric_key_prefix, start, num_samples=len(dataset)))
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics
