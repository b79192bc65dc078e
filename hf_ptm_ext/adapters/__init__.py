"""Bottleneck adapters (Houlsby, Pfeiffer) as methods of PEFT, and a Trainer for adapted models.

Importing `hf_ptm_ext` suffices for `PeftModel.from_pretrained` and all else: the methods are registered as soon as
`peft` is imported, before or after.
"""

from typing import Any

# First: what is registered when `peft` is imported needs this package whole, not half imported.
import peft  # noqa: F401

from .configuration import HoulsbyConfig, PfeifferConfig
from .trained import adapter_parameter_groups
from .tuner import HoulsbyModel, PfeifferModel
from .whole import save_adapted

__all__ = [
    "AdapterTrainer",
    "HoulsbyConfig",
    "HoulsbyModel",
    "PfeifferConfig",
    "PfeifferModel",
    "adapter_parameter_groups",
    "save_adapted",
]


def __getattr__(name: str) -> Any:
    # Not above: transformers' Trainer may be what imports PEFT, and with it this package, while it is half made.
    if name == "AdapterTrainer":
        from .trainer import AdapterTrainer

        return AdapterTrainer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
