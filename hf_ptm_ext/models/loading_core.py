"""Loading and saving shared by a family's models: older key names, refusal of foreign files, complete checkpoints."""

import logging
import os
import pickle
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError
from transformers.utils import logging as transformers_logging
from transformers.utils.generic import is_flash_attention_requested

from .files_core import check_shard_index

if TYPE_CHECKING:
    from transformers.modeling_utils import PreTrainedModel
else:
    PreTrainedModel = object

logger = transformers_logging.get_logger(__name__)


@contextmanager
def naming_damaged_weights(source: Any) -> Iterator[None]:
    """Context: the readers' errors about a damaged weights file become a ValueError that names the checkpoint."""
    try:
        yield
    except (SafetensorError, pickle.UnpicklingError, EOFError, RuntimeError) as error:
        if type(error) is RuntimeError and "ignore_mismatched_sizes" in str(error):
            raise RuntimeError(
                f"{source} has weights of other shapes than this class and config (the report above names them), as a "
                "head for another task or number of classes has: `ignore_mismatched_sizes=True` makes those anew."
            ) from error
        if type(error) is RuntimeError and "PytorchStreamReader" not in str(error):
            raise
        reason = str(error).strip().split("\n")[0]
        raise ValueError(
            f"The weights of {source} cannot be read: the file is truncated or does not hold tensors ({reason}). "
            "Download or copy it again. Files with other Python objects are refused, since loading them runs their "
            "code."
        ) from error


@contextmanager
def without_tying_complaints(heads: Iterable[str]) -> Iterator[None]:
    """Context: upstream does not call a file corrupted for a tied pair of a head that the file simply lacks."""

    def is_other(record: logging.LogRecord) -> bool:
        message = record.getMessage()
        return not (message.startswith("This checkpoint seem corrupted") and any(head in message for head in heads))

    upstream = logging.getLogger("transformers.modeling_utils")
    upstream.addFilter(is_other)
    try:
        yield
    finally:
        upstream.removeFilter(is_other)


class CheckedLoading(PreTrainedModel):
    """Mixin in front of `PreTrainedModel`; the family's base class sets the attributes below."""

    _auto_map: dict[str, str] = {}
    _code_version: str | None = None
    _legacy_keys: dict[str, str] = {}
    _prediction_heads: dict[str, str] = {}
    _layer_stacks: tuple[str, ...] = ("encoder.layer",)
    _input_parts: tuple[str, ...] = ("embeddings.", "encoder.embedding_hidden_mapping_in.")
    _added_parts: dict[str, str] = {}
    _fresh_heads: tuple[str, ...] = ()
    _has_converter: bool = True

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Load as upstream does; also reads older key names and says aloud which prediction heads are new."""
        if isinstance(pretrained_model_name_or_path, str | os.PathLike):
            check_shard_index(Path(pretrained_model_name_or_path, kwargs.get("subfolder") or ""))
        wants_info = kwargs.pop("output_loading_info", False)
        key_mapping = {**cls._legacy_keys, **(kwargs.pop("key_mapping", None) or {})}
        with naming_damaged_weights(pretrained_model_name_or_path), without_tying_complaints(cls._prediction_heads):
            loaded: Any = super().from_pretrained(
                pretrained_model_name_or_path, *args, key_mapping=key_mapping, output_loading_info=True, **kwargs
            )
        model, info = loaded
        # Saving writes today's names, whatever the file had.
        model._weight_conversions = []
        source = pretrained_model_name_or_path or "the state dict"
        model._check_loading(set(info["missing_keys"]), set(info["unexpected_keys"]), source)
        return (model, info) if wants_info else model

    def _check_and_adjust_attn_implementation(self: Any, attn_implementation: Any, *args: Any, **kwargs: Any) -> Any:
        """As upstream; says in one line which implementations a model has whose mask flash kernels do not know."""
        flash = is_flash_attention_requested(requested_attention_implementation=attn_implementation)
        if flash and not self._supports_flash_attn:
            flex = ", 'flex_attention'" * self._supports_flex_attn
            raise ValueError(
                f"{type(self).__name__} has no flash attention, whose kernels know padding and packed rows but no "
                f"other mask: `attn_implementation` must be one of 'sdpa', 'eager'{flex}, got {attn_implementation!r}."
            )
        return super()._check_and_adjust_attn_implementation(attn_implementation, *args, **kwargs)

    def _check_loading(self: Any, missing: set[str], unexpected: set[str], source: Any) -> None:
        """Refuse a file of foreign names; warn about encoder weights and prediction heads that it lacks."""
        prefix = "" if self.base_model is self else f"{self.base_model_prefix}."
        whole = sorted(name for name in unexpected if name.endswith(".qweight"))
        if whole and not any(name.endswith(".qweight") for name, _ in self.named_parameters()):
            raise ValueError(
                f"{source} holds whole numbers (`{whole[0]}`), which {type(self).__name__} does not compute with: "
                "load it by an Auto class with `trust_remote_code=True`."
            )
        encoder = [name for name, _ in self.named_parameters() if name.startswith(f"{prefix}encoder.")]
        if encoder and missing.issuperset(encoder) and len(unexpected) > 1:
            foreign = min(unexpected, key=lambda name: (".layer" not in name, name))
            raise ValueError(
                f"No encoder weight of {type(self).__name__} was found in {source}: it has names like "
                f"`{foreign}` instead of `{self.base_model_prefix}.{encoder[0].removeprefix(prefix)}`. "
                f"Convert it ({self._conversion()}) or pass `key_mapping={{pattern: "
                "replacement}` for its prefix."
            )
        for pattern, what in self._added_parts.items():
            part = {name for name, _ in self.named_parameters() if re.search(pattern, name)}
            if part and part <= missing:
                missing = missing - part
                logger.warning(
                    f"{type(self).__name__}: {source} has no {what} ({len(part)} weights, `{min(part)}`, ...), so it "
                    "was initialised at random: that is where pre-training or fine-tuning begins, not a trained "
                    f"{self.config.model_type} model."
                )
        self._warn_of_missing_encoder_weights(missing, prefix, source)
        self._fresh_heads = tuple(
            head for head in self._prediction_heads if any(name.startswith(f"{head}.") for name in missing)
        )
        for head in self._fresh_heads:
            logger.warning(
                f"{type(self).__name__}: {source} has no {self._prediction_heads[head]} (`{head}.*`), so it was "
                "initialised at random. Its predictions are noise until it is trained: encoder-only files cannot "
                "fill masks."
            )

    def _conversion(self: Any) -> str:
        """The command that converts an original checkpoint of the family, or lists those that have one."""
        family = f" {self.config.model_type}`" if self._has_converter else " --help` lists the families"
        return f"`hf-ptm-ext convert{family}"

    def _warn_of_missing_encoder_weights(self: Any, missing: set[str], prefix: str, source: Any) -> None:
        """Say aloud which layers of the encoder, or single weights of it, are not in the file."""
        parts = tuple(f"{prefix}{part}" for part in self._input_parts)
        others = [name for name, _ in self.named_parameters() if name.startswith(parts)]
        lacking = []
        for stack in self._layer_stacks:
            layers: dict[int, list[str]] = {}
            for name, _ in self.named_parameters():
                if name.startswith(f"{prefix}{stack}."):
                    number = int(name.removeprefix(f"{prefix}{stack}.").split(".")[0])
                    layers.setdefault(number, []).append(name)
            whole = [number for number, names in layers.items() if missing.issuperset(names)]
            for number, names in layers.items():
                others += [] if number in whole else names
            if whole:
                numbers = ", ".join(str(number) for number in whole)
                lacking.append(f"{stack.split('.')[0]} layers {numbers} (of {len(layers)}, from 0)")
        single = sorted(missing.intersection(others))
        if single:
            lacking.append(
                f"{len(single)} weights of the encoder (`{'`, `'.join(single[:3])}`{', ...' * (len(single) > 3)})"
            )
        if lacking:
            logger.warning(
                f"{type(self).__name__}: {source} lacks {' and '.join(lacking)}, so they were initialised at random "
                "and every output is noise until they are trained. Check `num_hidden_layers` and the names in the "
                f"file, or convert it ({self._conversion()})."
            )

    def get_expanded_tied_weights_keys(self: Any, all_submodels: bool = False) -> dict[str, str]:
        """As upstream; a decoder's bias and its head's bias are one parameter even if the weights are not tied."""
        tied = super().get_expanded_tied_weights_keys(all_submodels)
        if not all_submodels:
            own = (self._tied_weights_keys or {}).items()
            tied.update({target: source for target, source in own if target.endswith(".bias")})
        return tied

    def save_pretrained(self: Any, save_directory: Any, *args: Any, **kwargs: Any) -> None:
        """Save as upstream does, with every head of the family in the config's auto_map."""
        self.config.hf_ptm_ext_version = self._code_version
        if self._auto_class is not None:
            self.config.auto_map = {**(getattr(self.config, "auto_map", None) or {}), **self._auto_map}
        super().save_pretrained(save_directory, *args, **kwargs)
