"""What a conversion did, for the command that prints it."""

from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass(frozen=True)
class Conversion:
    """A converted checkpoint, ready to be written.

    Args:
        config: our configuration.
        tensors: what `model.safetensors` will hold, under our names.
        architecture: the class that holds all of it.
        renamed: kind of change of a name -> number of keys, such as `{"prefix `decoder.` taken off": 40}`.
        dropped: keys of the file that are not written, each with the reason.
        initialised: heads that the file lacks, each with what it predicts: loading them gives fresh weights.
        assumed: fields of the config that nothing in the checkpoint says, each with the value taken and why.
        filled: parts of the encoder that the file lacks, each with what it is: fresh weights are among the tensors.
    """

    config: Any
    tensors: dict[str, torch.Tensor]
    architecture: str
    renamed: dict[str, int] = field(default_factory=dict)
    dropped: dict[str, str] = field(default_factory=dict)
    initialised: dict[str, str] = field(default_factory=dict)
    assumed: dict[str, str] = field(default_factory=dict)
    filled: dict[str, str] = field(default_factory=dict)
