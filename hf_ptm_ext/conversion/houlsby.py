"""Houlsby adapters of the `adapters` library (DoubleSeqBn) to PEFT's and back, see `adapter_library`."""

from collections.abc import Mapping
from typing import Any

from ..adapters.configuration import BottleneckConfig
from . import adapter_library
from .adapter_library import base_state_dict, convert_state_dict, revert_config, revert_state_dict

METHOD = "houlsby"


def convert_config(original: Mapping[str, Any]) -> BottleneckConfig:
    """Our configuration from the library's, see `adapter_library.convert_config`.

    Args:
        original: the library's `adapter_config.json`, or the dictionary of its configuration object.

    Returns:
        A `HoulsbyConfig`.

    Raises:
        TypeError: it is no mapping of options.
        ValueError: it describes another method, or has parts that our adapters have not.

    Example:
        >>> options = {"mh_adapter": True, "output_adapter": True, "original_ln_before": False}
        >>> type(convert_config(options)).__name__
        'HoulsbyConfig'
    """
    return adapter_library.convert_config(original, METHOD)


__all__ = ["METHOD", "base_state_dict", "convert_config", "convert_state_dict", "revert_config", "revert_state_dict"]
