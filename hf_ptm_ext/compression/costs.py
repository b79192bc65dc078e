"""What a model costs: bytes of its file, and seconds of a batch beside other models."""

import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ..models.int8_core import Int8Module
from .int8 import save_int8


def file_bytes(model: Any) -> int:
    """Size of the weights that are written of a model."""
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "model"
        if any(isinstance(one, Int8Module) for one in model.modules()):
            save_int8(model, folder)
        else:
            model.save_pretrained(folder)
        return sum(path.stat().st_size for path in folder.glob("*.safetensors"))


@torch.inference_mode()
def alternated(models: Mapping[str, Any], batch: dict[str, Any], repeats: int) -> dict[str, float]:
    """Median seconds of each model on a batch, timed in turns, so that a busy machine is busy for all."""
    times: dict[str, list[float]] = {name: [] for name in models}
    for number in range(repeats + 1):
        for name, model in models.items():
            start = time.perf_counter()
            model(**batch)
            if number:  # the first round warms up
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(seconds) for name, seconds in times.items()}
