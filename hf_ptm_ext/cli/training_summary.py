"""What is trained, on what and by what, told before it begins."""

import logging
from typing import Any

import torch
from transformers import TrainerCallback

from ..trainers.master_weights import BF16, PRECISION

logger = logging.getLogger(__name__)


class TrainingSummary(TrainerCallback):
    """Tells model, parameters, rows, updates, devices, attention and precision when a training begins."""

    def __init__(self, trainer: Any, why_attention: str):
        self.trainer, self.why_attention = trainer, why_attention

    def on_train_begin(self, args: Any, state: Any, control: Any, train_dataloader: Any = None, **kwargs: Any) -> None:
        """Tell them; a short training logs about twenty times, so that its curve is one."""
        usual = type(args).__dataclass_fields__["logging_steps"].default
        if args.logging_steps == usual and usual >= 1 and args.logging_strategy == "steps":
            state.logging_steps = max(1, min(int(usual), state.max_steps // 20))
        if not state.is_world_process_zero:
            return
        for line in (self._model(), self._updates(args, state, train_dataloader), self._devices(args)):
            logger.info(line, extra={"once": True})

    def _model(self) -> str:
        model = getattr(self.trainer, "saved_model", self.trainer.model)
        sizes = [(value.numel(), value.requires_grad) for value in model.parameters()]
        total, trained = sum(size for size, _ in sizes), sum(size for size, trains in sizes if trains)
        inner = model.get_base_model() if hasattr(model, "get_base_model") else model
        share = "all" if trained == total else f"{100 * trained / total:.2f} %"
        name = type(inner).__name__.removeprefix("FSDP")
        beside = sum(value.numel() for value in self.trainer.model.parameters()) - total
        more = f", {beside:,} more beside it" if beside and hasattr(self.trainer, "auxiliary_file") else ""
        return f"model    {name}, {total:,} parameters, {share} of them trained{more}"

    @staticmethod
    def _updates(args: Any, state: Any, loader: Any) -> str:
        dataset: Any = getattr(loader, "dataset", None)
        rows = f"{len(dataset):,} rows" if hasattr(dataset, "__len__") else "a stream of rows"
        batch = args.train_batch_size * args.gradient_accumulation_steps * args.world_size
        going_on = f", from {state.global_step:,} on" if state.global_step else ""
        return f"data     {rows}, {state.max_steps:,} updates of {batch} rows each{going_on}"

    def _devices(self, args: Any) -> str:
        model = getattr(self.trainer, "saved_model", self.trainer.model)
        count = max(args.world_size, args.n_gpu, 1)
        name = f" ({torch.cuda.get_device_name(args.device)})" if args.device.type == "cuda" else ""
        half = "bfloat16" if args.bf16 else "float16" if args.fp16 else None
        weights = str(next(model.parameters()).dtype).removeprefix("torch.")
        precision = weights if half is None else f"{half} over {weights} weights"
        if getattr(args, "weights", None) == BF16:
            precision = PRECISION
        attention = f"{getattr(model.config, '_attn_implementation', None) or 'its own'} ({self.why_attention})"
        compiled = ", compiled" if args.torch_compile else ""
        return f"device   {count} x {args.device.type}{name}, {precision}, attention {attention}{compiled}"
