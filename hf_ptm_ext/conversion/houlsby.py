"""Houlsby adapters of the `adapters` library (DoubleSeqBn) to PEFT's and back, see `adapter_library`."""

from functools import partial

from . import adapter_library
from .adapter_library import base_state_dict as base_state_dict
from .adapter_library import convert_state_dict as convert_state_dict
from .adapter_library import revert_config as revert_config
from .adapter_library import revert_state_dict as revert_state_dict

METHOD = "houlsby"
convert_config = partial(adapter_library.convert_config, method=METHOD)
