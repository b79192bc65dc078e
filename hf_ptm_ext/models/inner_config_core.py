"""Configurations with that of an encoder of another kind inside, whose code goes where theirs goes.

Upstream copies the files that a class's file names in its imports. Which encoder is inside is known when a checkpoint
is saved: its `encoder_family_core.py` is written then, and names the encoder's files.
"""

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers.configuration_utils import PreTrainedConfig
from transformers.dynamic_module_utils import get_relative_import_files

from .encoder_family_core import config_class, model_class

if TYPE_CHECKING:
    Base = PreTrainedConfig
else:
    Base = object

# Sizes that are the encoder's, under the names by which generic code reads and sets them.
SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
FAMILY_FILE = "encoder_family_core.py"
FAMILY_FILE_BEGINS = (
    '"""The classes of the encoder inside, where its code is in this folder; saving writes this file for each '
    'checkpoint."""\n\nfrom typing import Any\n'
)


def encoder_config_of(value: Any) -> PreTrainedConfig:
    """The configuration of the encoder inside, from what a config.json or a caller has."""
    from transformers import CONFIG_MAPPING  # importing it registers this family's class: not while its module is

    if isinstance(value, PreTrainedConfig):
        if getattr(value, "inner_group_num", 1) != 1:
            raise ValueError(
                f"`inner_group_num` of an encoder inside must be 1, got {value.inner_group_num}: it would have more "
                "hidden states than `num_hidden_layers` says."
            )
        return value
    if not isinstance(value, dict) or "model_type" not in value:
        raise ValueError(
            "`encoder_config` must be the configuration of an encoder or its dictionary with a `model_type`, got "
            f"{value!r}. `from_encoder` takes it from a checkpoint."
        )
    fields = dict(value)
    model_type = fields.pop("model_type")
    found = config_class(model_type)
    if found is None and model_type not in CONFIG_MAPPING:
        raise ValueError(
            f"`encoder_config` is a {model_type}, which transformers does not know and whose code is not beside the "
            "checkpoint. If it is a family of hf_ptm_ext, `pip install hf-ptm-ext` and `import hf_ptm_ext` first; "
            "saving the model again takes the code along."
        )
    return encoder_config_of((found or CONFIG_MAPPING[model_type])(**fields))


def encoder_classes(config: Any) -> dict[str, tuple[type, type]]:
    """Model type -> configuration and model class of each encoder inside, encoders in encoders too, that travel."""
    found, inner = {}, getattr(config, "encoder_config", None)
    while inner is not None:
        cls = type(inner)
        own = model_class(inner.model_type)
        if own is None and cls._auto_class is not None and not cls.__module__.startswith("transformers."):
            from transformers import AutoModel

            own = AutoModel._model_mapping.get(cls, None)
        if own is not None:
            found[inner.model_type] = (cls, own)
        inner = getattr(inner, "encoder_config", None)
    return found


def carry_encoder(folder: str | Path, classes: Mapping[str, tuple[type, type]]) -> None:
    """Write the code of encoders, and the file that names it, beside that of the model around them."""
    for cls in (one for pair in classes.values() for one in pair):
        file = str(sys.modules[cls.__module__].__file__)
        for path in map(Path, (file, *get_relative_import_files(file))):
            if path.name != FAMILY_FILE:
                shutil.copyfile(path, Path(folder, path.name))
    names = {
        model_type: tuple(f"{cls.__module__.rpartition('.')[2]}.{cls.__name__}" for cls in pair)
        for model_type, pair in classes.items()
    }
    Path(folder, FAMILY_FILE).write_text(family_file(names), encoding="utf-8")


def family_file(names: Mapping[str, tuple[str, ...]]) -> str:
    """Text of `encoder_family_core.py`, from model type -> `file.Class` of configuration and model."""
    text = FAMILY_FILE_BEGINS
    for number, (kind, what) in enumerate((("config", "configuration"), ("model", "model"))):
        text += f"\n\ndef {kind}_class(model_type: str) -> Any:\n"
        text += f'    """The {what}\'s class of an encoder; none of one that transformers\' Auto classes know."""\n'
        for model_type, pair in names.items():
            file, _, name = pair[number].rpartition(".")
            text += f'    if model_type == "{model_type}":\n        from .{file} import {name}\n\n'
            text += f"        return {name}\n"
        text += "    return None\n"
    return text


def _of_encoder(name: str) -> property:
    """A field of the encoder's configuration, read and set through the outer one."""

    def read(config: Any) -> Any:
        return getattr(config.encoder_config, name)

    def write(config: Any, value: Any) -> None:
        setattr(config.encoder_config, name, value)

    return property(read, write, doc=f"The encoder's `{name}`.")


class EncoderInside(Base):
    """Mixin in front of a configuration with an `encoder_config`: its sizes are the encoder's, also to set.

    `resize_token_embeddings` sets `vocab_size`, PEFT reads the sizes from `to_dict()`; a config.json has them once.
    """

    hidden_size = _of_encoder("hidden_size")
    num_hidden_layers = _of_encoder("num_hidden_layers")
    num_attention_heads = _of_encoder("num_attention_heads")
    vocab_size = _of_encoder("vocab_size")

    @classmethod
    def get_config_dict(cls: Any, *args: Any, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """As upstream; the configuration of an encoder alone is refused, whose weights have other names."""
        source = [*args, kwargs.get("pretrained_model_name_or_path")][0]
        fields, kwargs = super().get_config_dict(*args, **kwargs)
        if fields.get("model_type", cls.model_type) != cls.model_type and "encoder_config" not in fields:
            raise ValueError(
                f"{source} is a {fields['model_type']}, an encoder alone: a {cls.model_type} model begins with it by "
                "its class' `from_encoder`, and `from_pretrained` reads what was saved then."
            )
        return fields, kwargs

    def to_dict(self: Any) -> dict[str, Any]:
        """As upstream, with the encoder's configuration as a dictionary and the sizes that it has."""
        found = super().to_dict()
        if hasattr(found.get("encoder_config"), "to_dict"):
            found["encoder_config"] = found["encoder_config"].to_dict()
        return {**found, **{name: getattr(self, name) for name in SIZES if hasattr(self, name)}}

    def to_diff_dict(self: Any) -> dict[str, Any]:
        """As upstream, for the file: without the sizes."""
        return {name: value for name, value in super().to_diff_dict().items() if name not in SIZES}

    def save_pretrained(self: Any, save_directory: Any, *args: Any, **kwargs: Any) -> None:
        """As upstream; the code of the encoder inside goes along."""
        super().save_pretrained(save_directory, *args, **kwargs)
        if self._auto_class is not None:
            carry_encoder(save_directory, encoder_classes(self))
