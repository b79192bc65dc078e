"""Adapters of the `adapters` library, and back: its DoubleSeqBn is Houlsby's, its SeqBn Pfeiffer's.

In the library an adapter lies beside the block that calls it, here in the wrapper of the module behind which it acts.
"""

import itertools
import re
from collections.abc import Mapping
from typing import Any

import torch

from ..adapters.configuration import BottleneckConfig, HoulsbyConfig, PfeifferConfig
from ..adapters.placements import PLACEMENTS
from .files import name_some
from .options import check_options, made_config
from .tensors import check_weights

PEFT_PREFIX = "base_model.model."
HOULSBY, PFEIFFER = "houlsby", "pfeiffer"
CONFIGS: dict[str, type[BottleneckConfig]] = {HOULSBY: HoulsbyConfig, PFEIFFER: PfeifferConfig}
LEGACY_NAMES = re.compile(r"\b(attention|layer)_text_(task|lang)_adapters\b")
OTHER_METHODS = re.compile(r"\b(loras|refts|prefix_tunings|prefix_gates|invertible_adapters|adapter_fusion_layer)\.")
# Names of non-linearities in files of adapter-transformers that say no version.
LEGACY_ACTIVATIONS = {"gelu": "gelu_new", "gelu_orig": "gelu"}
# Fields of the library -> values that say that the part is absent; other values have no counterpart here.
ABSENT: dict[str, tuple[Any, ...]] = {
    "cross_adapter": (False,),
    "is_parallel": (False,),
    "use_gating": (False,),
    "phm_layer": (False,),
    "inv_adapter": (None,),
    "stochastic_depth": (0.0,),
}
# (name of a layer, the library's place below it, Houlsby's place here, Pfeiffer's places here)
_LAYER = r".*\b(?:layer|word_layers)\.\d+"
PLACES = (
    (_LAYER, "attention.output.adapters", "attention.output.dropout", ()),
    (_LAYER, "output.adapters", "output.dropout", ("output.LayerNorm",)),
    (_LAYER, "attention_adapters.adapters", "attention.out_lin", ()),
    (_LAYER, "output_adapters.adapters", "ffn.dropout", ("output_layer_norm",)),
    (r".*\bblock\.\d+\.layer\.\d+", "adapters", "dropout", ("",)),
    (r".*\balbert_layers\.\d+", "attention.attention_adapters.adapters", "attention.output_dropout", ()),
    (r".*\balbert_layers\.\d+", "output_adapters.adapters", "ffn_output", ("full_layer_layer_norm",)),
    (r".*\blayers\.\d+", "attention_adapters.adapters", "self_attn.out_proj", ()),
    # LayerNorms behind (BART) or in front (mBART): which, the targets of the configuration tell.
    (r".*\blayers\.\d+", "output_adapters.adapters", "fc2", ("final_layer_norm", "")),
)


def adapter_fields(original: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the adapter itself, wherever the library or a golden keeps them."""
    if not isinstance(original, Mapping):
        raise TypeError(f"`original` must be a mapping of options, got a {type(original).__name__}.")
    if "adapter_config" in original:
        return adapter_fields(original["adapter_config"])
    if "config" not in original:
        return dict(original)
    fields = original["config"]
    if not isinstance(fields, Mapping):
        raise TypeError(f"`config` must hold the options of the adapter, got {fields!r}.")
    fields = dict(fields)
    if "version" not in original:
        name = str(fields.get("non_linearity"))
        fields["non_linearity"] = LEGACY_ACTIVATIONS.get(name, name)
    return fields


def method_of(original: Mapping[str, Any]) -> str:
    """Which method the library's options describe."""
    fields = adapter_fields(original)
    wanted = {
        HOULSBY: {"mh_adapter": True, "output_adapter": True, "original_ln_before": False, "original_ln_after": True},
        PFEIFFER: {"mh_adapter": False, "output_adapter": True, "original_ln_before": True, "original_ln_after": True},
    }
    for method, values in wanted.items():
        if all(fields.get(name, value) == value for name, value in values.items()):
            return method
    got = {name: fields.get(name) for name in wanted[HOULSBY]}
    raise ValueError(f"The adapter must be a DoubleSeqBn (houlsby) or a SeqBn (pfeiffer), got {got}.")


def convert_config(original: Mapping[str, Any], method: str | None = None) -> BottleneckConfig:
    """Our configuration from the library's."""
    check_options(original, ("hidden_size", "model_type", "model_name"))
    fields = adapter_fields(original)
    check_options(fields)
    found = method_of(fields)
    if method is not None and found != method:
        raise ValueError(f"The adapter must be {method}'s, got {found}'s: convert it as that.")
    foreign = {name: fields[name] for name, values in ABSENT.items() if name in fields and fields[name] not in values}
    if found == PFEIFFER and fields.get("residual_before_ln", True) is not True:
        foreign["residual_before_ln"] = fields["residual_before_ln"]
    if fields.get("ln_after") and fields.get("adapter_residual_before_ln"):
        foreign["adapter_residual_before_ln"] = True
    if foreign:
        shown = ", ".join(f"`{name}` = {value!r}" for name, value in foreign.items())
        raise ValueError(f"The adapter has parts that {found} adapters have not: {shown}.")
    names = ("reduction_factor", "non_linearity", "scaling", "dropout", "ln_before", "ln_after", "leave_out")
    options = {name: fields[name] for name in names if fields.get(name) is not None}
    init = "bert" if fields.get("init_weights", "bert") == "bert" else "truncated_normal"
    if fields.get("init_weights") == "mam_adapter":
        init = "identity"
    options |= {"init_weights": init, "init_std": 1e-2, "train_layer_norms": False}
    config: BottleneckConfig = made_config(CONFIGS[found], options, found)
    placement = PLACEMENTS.get(original.get("model_type", ""))
    if placement is not None:
        config.target_modules = rf"(.*\.)?{getattr(placement, found)}"
    return config


def adapter_names(original: Mapping[str, torch.Tensor]) -> list[str]:
    """Names of the adapters in a state dict of the library."""
    names = (re.search(r"\.adapters\.([^.]+)\.", LEGACY_NAMES.sub("adapters", key)) for key in original)
    return sorted({match[1] for match in names if match is not None})


def convert_state_dict(
    original: Mapping[str, torch.Tensor], config: BottleneckConfig, adapter_name: str | None = None
) -> dict[str, torch.Tensor]:
    """One adapter under the names of PEFT's adapter files."""
    named = {LEGACY_NAMES.sub("adapters", key): value for key, value in original.items()}
    names = adapter_names(named)
    if adapter_name is None and len(names) != 1:
        raise ValueError(f"`adapter_name` must say which adapter is meant, one of {', '.join(names) or 'none'}.")
    name = names[0] if adapter_name is None else adapter_name
    if name not in names:
        raise ValueError(f"`adapter_name` must be one of {', '.join(names)}, got {name!r}.")
    check_weights({key: value for key, value in original.items() if f".{name}." in LEGACY_NAMES.sub("adapters", key)})
    converted: dict[str, torch.Tensor] = {}
    foreign = []
    for key, value in named.items():
        place, found, part = key.partition(f".adapters.{name}.")
        if not found:
            if OTHER_METHODS.search(key):
                foreign.append(key)
            continue
        ours, inner = _our_place(f"{place}.adapters", config), _our_part(part, config.ln_before)
        if ours is None or inner is None:
            foreign.append(key)
            continue
        target = f"{PEFT_PREFIX}{ours}.{_method(config)}_{inner}"
        if target in converted and not torch.equal(converted[target], value):
            raise ValueError(f"`{key}` must be the same as its other name's tensor, which has other values.")
        converted[target] = value
    if foreign:
        raise ValueError(f"These weights have no place in a {_method(config)} adapter: {name_some(sorted(foreign))}.")
    return converted


def base_state_dict(original: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The model's own weights in a state dict of the library, under the names of transformers."""
    named = {LEGACY_NAMES.sub("adapters", key): value for key, value in original.items()}
    # An alias of the word embeddings.
    alias = "prompt_tuning.base_model_embeddings."
    return {key: value for key, value in named.items() if ".adapters." not in key and alias not in key}


def revert_config(config: BottleneckConfig) -> dict[str, Any]:
    """The library's configuration of an adapter of ours."""
    if config.train_layer_norms:
        raise ValueError(
            f"`train_layer_norms` must be False, got {config.train_layer_norms}: the library's file of an adapter has "
            "no place for trained LayerNorms."
        )
    if config.bottleneck_size is not None:
        raise ValueError(
            f"`bottleneck_size` must be None, got {config.bottleneck_size}: the library knows reduction factors alone."
        )
    houlsby = _method(config) == HOULSBY
    return {
        "mh_adapter": houlsby,
        "output_adapter": True,
        "reduction_factor": config.reduction_factor,
        "non_linearity": config.non_linearity,
        "original_ln_before": not houlsby,
        "original_ln_after": True,
        "ln_before": config.ln_before,
        "ln_after": config.ln_after,
        "init_weights": {"bert": "bert", "identity": "mam_adapter"}.get(config.init_weights, "houlsby"),
        "scaling": float(config.scaling) if not isinstance(config.scaling, str) else config.scaling,
        "dropout": config.dropout,
        "leave_out": list(config.leave_out),
        "residual_before_ln": True,
        "adapter_residual_before_ln": False,
        "is_parallel": False,
        "use_gating": False,
        "cross_adapter": False,
        "inv_adapter": None,
        "inv_adapter_reduction_factor": None,
        "phm_layer": False,
        "stochastic_depth": 0.0,
    }


def revert_state_dict(
    ours: Mapping[str, torch.Tensor], config: BottleneckConfig, adapter_name: str = "task"
) -> dict[str, torch.Tensor]:
    """One adapter under the library's names."""
    check_weights(ours)
    reverted: dict[str, torch.Tensor] = {}
    foreign = []
    for key, value in ours.items():
        place, found, inner = key.removeprefix(PEFT_PREFIX).partition(f".{_method(config)}_")
        library = _library_place(place, config) if found else None
        if library is None:
            foreign.append(key)
            continue
        for part in _library_parts(inner, config.ln_before):
            reverted[f"{library}.{adapter_name}.{part}"] = value
    if foreign:
        raise ValueError(f"These weights have no place in the library's adapter: {name_some(sorted(foreign))}.")
    return reverted


def check_adapter(
    ours: Mapping[str, torch.Tensor],
    config: BottleneckConfig,
    hidden_size: int | None = None,
    adapter_name: str | None = None,
) -> None:
    """Compare an adapter, under the names of PEFT's files, with its options: every part, every shape, every layer."""
    mark = f".{_method(config)}_"
    places: dict[str, dict[str, tuple[int, ...]]] = {}
    for key, value in ours.items():
        place, _, part = key.partition(mark)
        places.setdefault(place, {})[part] = tuple(value.shape)

    def shown(place: str, part: str) -> str:
        library = _library_place(place.removeprefix(PEFT_PREFIX), config)
        if adapter_name is None or library is None:
            return f"{place}{mark}{part}"
        return f"{library}.{adapter_name}.{_library_parts(part, config.ln_before)[0]}"

    lacking, wrong = [], []
    stacks: dict[str, dict[str, set[int]]] = {}
    for place, parts in places.items():
        number = re.search(r"\.([0-9]{1,9})\.", f"{place}.")
        layer = int(number[1]) if number else 0
        if number:
            kinds = stacks.setdefault(place[: number.start()], {})
            kinds.setdefault(place[number.end() :], set()).add(layer)
        width = hidden_size or (parts.get("up.weight") or (1,))[0]
        wanted = _shapes(config, width, layer)
        lacking += [shown(place, part) for part in wanted if part not in parts]
        for part, shape in parts.items():
            if wanted.get(part, shape) != shape:
                wrong.append(f"{shown(place, part)} {shape} instead of {wanted[part]}")
            elif part not in wanted:
                wrong.append(shown(place, part))
    for stack, kinds in stacks.items():
        layers = set().union(*kinds.values())
        between = (number for number in range(max(layers)) if number not in layers and number not in config.leave_out)
        if len(stacks) == 1 or not config.leave_out:  # a decoder's layers are counted on from the encoder's
            lacking += [f"{stack}.{layer}.*" for layer in itertools.islice(between, 8)]
        for kind, numbers in kinds.items():
            lacking += [shown(f"{stack}.{layer}.{kind}", "down.weight") for layer in sorted(layers - numbers)]
        if _method(config) == HOULSBY and len(kinds) < 2:
            lacking.append(f"{stack}.* at the second of two places in each layer")
    if not places or lacking:
        raise ValueError(f"The adapter lacks weights: {name_some(lacking) or 'there are none'}. It must be complete.")
    if wrong:
        raise ValueError(
            f"These weights do not fit the adapter's options, `reduction_factor` {config.reduction_factor} and width "
            f"{hidden_size or 'of the model'}: {name_some(wrong)}."
        )


def _shapes(config: BottleneckConfig, width: int, layer: int) -> dict[str, tuple[int, ...]]:
    """Parts of one adapter and their shapes."""
    small = config.size_in_layer(width, layer)
    shapes: dict[str, tuple[int, ...]] = {"down.weight": (small, width), "down.bias": (small,)}
    shapes |= {"up.weight": (width, small), "up.bias": (width,)}
    for name, there in (("norm_before", config.ln_before), ("norm_after", config.ln_after)):
        shapes |= {f"{name}.weight": (width,), f"{name}.bias": (width,)} if there else {}
    if isinstance(config.scaling, str):
        shapes["scaling"] = (1,) if config.scaling == "learned" else (width,)
    return shapes


def _method(config: BottleneckConfig) -> str:
    return HOULSBY if isinstance(config, HoulsbyConfig) else PFEIFFER


def _our_places(houlsby: str, pfeiffer: tuple[str, ...], config: BottleneckConfig) -> tuple[str, ...]:
    return (houlsby,) if _method(config) == HOULSBY else pfeiffer


def _our_place(library: str, config: BottleneckConfig) -> str | None:
    for layer, place, houlsby, pfeiffer in PLACES:
        match = re.fullmatch(rf"({layer})\.{re.escape(place)}", library)
        if match is None:
            continue
        names = [f"{match[1]}.{ours}".rstrip(".") for ours in _our_places(houlsby, pfeiffer, config)]
        if isinstance(config.target_modules, str):
            names = [name for name in names if re.fullmatch(config.target_modules, name)] or names
        return names[0] if names else None
    return None


def _library_place(ours: str, config: BottleneckConfig) -> str | None:
    for layer, place, houlsby, pfeiffer in PLACES:
        for suffix in _our_places(houlsby, pfeiffer, config):
            match = re.fullmatch(rf"({layer})" + (rf"\.{re.escape(suffix)}" if suffix else ""), ours)
            if match is not None:
                return f"{match[1]}.{place}"
    return None


def _our_part(part: str, ln_before: bool) -> str | None:
    """Name inside our module of a part of the library's; a LayerNorm in front is there under two names."""
    linear = 1 if ln_before else 0
    names = {f"adapter_down.{linear}.": "down.", "adapter_up.": "up.", "adapter_norm_after.": "norm_after."}
    if ln_before:
        names |= {"adapter_norm_before.": "norm_before.", "adapter_down.0.": "norm_before."}
    if part == "scaling":
        return part
    for theirs, ours in names.items():
        if part.startswith(theirs):
            return ours + part.removeprefix(theirs)
    return None


def _library_parts(inner: str, ln_before: bool) -> list[str]:
    module, _, parameter = inner.rpartition(".")
    names = {
        "": [""],  # the scaling
        "down": [f"adapter_down.{1 if ln_before else 0}."],
        "up": ["adapter_up."],
        "norm_before": ["adapter_norm_before.", "adapter_down.0."],
        "norm_after": ["adapter_norm_after."],
    }
    return [f"{name}{parameter}" for name in names[module]]
