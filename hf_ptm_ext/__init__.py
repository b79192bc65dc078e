"""hf_ptm_ext: the pre-trained-model systems that transformers never shipped, as plugins of its Auto classes."""

from .version import __version__

__all__ = ["__version__"]
