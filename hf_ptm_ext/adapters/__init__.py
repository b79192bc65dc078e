"""Bottleneck adapters (Houlsby, Pfeiffer) as methods of PEFT.

Importing `hf_ptm_ext` suffices for `PeftModel.from_pretrained` and all else: the methods are registered as soon as
`peft` is imported, before or after.
"""

# First: what is registered when `peft` is imported needs this package whole, not half imported.
import peft  # noqa: F401

from .configuration import HoulsbyConfig, PfeifferConfig
from .tuner import HoulsbyModel, PfeifferModel

__all__ = ["HoulsbyConfig", "HoulsbyModel", "PfeifferConfig", "PfeifferModel"]
