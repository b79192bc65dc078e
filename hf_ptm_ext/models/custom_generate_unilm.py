"""What transformers runs in the place of `model.generate` when it finds this file as `custom_generate/generate.py`.

It stands alone: beside it in that folder is nothing. UniLM's own beam search is in `beam_search_unilm.py`.
"""

import os
from pathlib import Path
from typing import Any

import torch

CUSTOM_GENERATE = "custom_generate"  # the folder in which transformers looks for `generate.py`


def generate(*args: Any, model: Any, **kwargs: Any) -> Any:
    """The `generate` of the model's class, which knows the options of the reference's search."""
    if torch.is_tensor(kwargs.get("lm_mode")):  # `custom_generate=<folder>` comes from inside the model's `generate`
        kwargs["lm_mode"] = int(kwargs["lm_mode"][0])
        kwargs.pop("source_lengths", None)
    return type(model).generate(model, *args, **kwargs)


def write_custom_generate(folder: str | os.PathLike) -> None:
    """Write this file into a checkpoint's folder."""
    target = Path(folder) / CUSTOM_GENERATE / "generate.py"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(Path(__file__).read_bytes())
