"""Whole numbers instead of floating-point ones: Q8BERT's integer model, and torchao's quantisation of any family."""

import copy
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..files import read_json, write_json
from ..hub.adapted import INT8, adapted_auto_map
from ..hub.export import finish_folder
from ..hub.folders import written_whole
from ..models.int8_core import (
    FIELD,
    Int8Embedding,
    Int8Linear,
    PackedModule,
    packed,
    put_int8,
    scale_of,
    to_whole,
)
from .fake_quant import DYNAMIC, EMA, NONE, FakeQuant, FakeQuantLinear, grid_codes

TORCHAO = ("int8", "int8-weights")


def to_int8(model: Any) -> Any:
    """A copy of a quantised model that computes with whole numbers.

    Weights are stored in 8 bits; on the CPU projections are products of int8. Outputs are those of the model in
    evaluation mode.

    Args:
        model: as `prepare_fake_quant` gave it, and trained or calibrated. With `groups` (Q-BERT) weights are stored as
            codes of their few bits with a grid for each group, and computed with in floating point.

    Returns:
        The copy, in evaluation mode; `save_int8` writes such a one.

    Raises:
        ValueError: the model is not prepared, has other than 8 bits and no groups, or thresholds that were not learnt.

    Examples:
        >>> from transformers import BertConfig, BertModel
        >>> from hf_ptm_ext.compression import calibrate, prepare_fake_quant
        >>> tiny = BertConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
        >>> model = prepare_fake_quant(BertModel(tiny), ema_decay=0.9)
        >>> whole = to_int8(calibrate(model, [{"input_ids": torch.tensor([[1, 2, 3]])}]))
        >>> whole.encoder.layer[0].output.dense.qweight.dtype
        torch.int8
    """
    places = _places(model)
    sources = {name: model.get_submodule(name) for name in places}
    kept = {id(source): nn.Identity() for source in sources.values()}  # not copied: they are made anew
    whole = copy.deepcopy(model, {**kept, **{id(one.weight): one.weight for one in sources.values()}})
    for name, source in sources.items():
        owner, _, child = name.rpartition(".")
        setattr(whole.get_submodule(owner), child, source)
    put_int8(whole, places)
    made: dict[Any, nn.Parameter] = {}
    with torch.no_grad():
        for name, source in sources.items():
            target: Any = whole.get_submodule(name)
            for kind in ("input_threshold", "output_threshold"):
                if getattr(target, kind, None) is not None:
                    getattr(target, kind).fill_(getattr(source, kind))
            if isinstance(target, PackedModule):
                codes, target.low, target.step = grid_codes(source.weight.detach().float(), target.bits, target.groups)
                key = (id(source.weight), target.bits)
                made.setdefault(key, nn.Parameter(packed(codes, target.bits), requires_grad=False))
                target.qweight = made[key]
                continue
            threshold = source.weight.detach().abs().max()
            if id(source.weight) not in made:  # a tie stays one
                levels = to_whole(source.weight.detach().float(), scale_of(threshold)).to(torch.int8)
                made[id(source.weight)] = nn.Parameter(levels, requires_grad=False)
            target.qweight = made[id(source.weight)]
            target.weight_threshold.fill_(threshold)
    return whole.eval()


def _places(model: Any) -> dict[str, dict[str, Any]]:
    """Name of a quantised module -> what `put_int8` is told of it."""
    places: dict[str, dict[str, Any]] = {}
    for name, module in model.named_modules():
        if not isinstance(module, FakeQuant) or module.quant["mode"] == NONE:
            continue
        quant = module.quant
        grouped = {} if quant["groups"] is None else {"bits": quant["bits"], "groups": quant["groups"]}
        if not grouped and (quant["bits"] != 8 or quant["activation_bits"] != 8):
            raise ValueError(
                f"`{name}` must have 8 bits or groups to compute with whole numbers, got {quant['bits']} and "
                f"{quant['groups']}: `remove_fake_quant(model, bake=True)` gives a plain checkpoint of it."
            )
        if not isinstance(module, FakeQuantLinear):
            places[name] = grouped
            continue
        grouped |= {"activation_bits": quant["activation_bits"]} if grouped else {}
        static = quant["mode"] != DYNAMIC
        if static and module.get_buffer("quant_step") <= quant["start_step"]:
            raise ValueError(
                f"`{name}` has no threshold of its inputs (`mode` = {EMA}): train the model, or `calibrate` it."
            )
        places[name] = {"static": static, "requantize": quant["requantize_output"], **grouped}
    if not places:
        raise ValueError(f"{type(model).__name__} has no quantised module: `prepare_fake_quant` first.")
    return places


def save_int8(model: Any, folder: str | Path, *, overwrite: bool = False) -> Path:
    """Write a quantised model as a checkpoint of whole numbers, with its code.

    It loads by the Auto classes with `trust_remote_code=True`, with or without this package.

    Args:
        model: as `to_int8` takes or gives it.
        folder: a new or empty one.
        overwrite: whether a checkpoint that is there may be replaced.

    Returns:
        The folder.

    Raises:
        ValueError: as `to_int8`; or no auto class gives the model's class.
        FileExistsError: the folder has files and `overwrite` is not set.

    Examples:
        >>> from hf_ptm_ext.compression import calibrate, prepare_fake_quant
        >>> from transformers import AutoModelForSequenceClassification, BertConfig, BertForSequenceClassification
        >>> tiny = BertConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
        >>> model = prepare_fake_quant(BertForSequenceClassification(tiny), mode="dynamic")
        >>> with tempfile.TemporaryDirectory() as parent:
        ...     folder = save_int8(model, f"{parent}/int8")
        ...     loaded = AutoModelForSequenceClassification.from_pretrained(folder, trust_remote_code=True)
        >>> type(loaded).__name__
        'Int8BertForSequenceClassification'
    """
    whole, folder = model if _whole_places(model) else to_int8(model), Path(folder)
    base_class = type(whole.base_model) if whole.base_model is not whole else None
    fields = {
        "model_type": f"{INT8.prefix}{whole.config.model_type}",
        "architectures": [f"{INT8.named}{type(whole).__name__}"],
        "auto_map": adapted_auto_map(type(whole.config), type(whole), base_class, INT8),
        FIELD: _whole_places(whole),
    }
    with written_whole(folder, overwrite) as partial:
        whole.save_pretrained(partial)
        write_json(partial / "config.json", {**read_json(partial / "config.json"), **fields}, sort_keys=True)
        finish_folder(partial)
    return folder


def _whole_places(model: nn.Module) -> dict[str, dict[str, Any]]:
    places: dict[str, dict[str, Any]] = {}
    for name, module in model.named_modules():
        if isinstance(module, Int8Linear):
            places[name] = {"static": module.input_threshold is not None, "requantize": module.requantize}
        elif isinstance(module, PackedModule):
            places[name] = dict(module.options)
        elif isinstance(module, Int8Embedding):
            places[name] = {}
    return places


def to_torchao(model: Any, kind: str = "int8", exclude: Sequence[str] = ()) -> Any:
    """A copy of any model with its projections quantised by torchao, after training.

    What `save_pretrained` writes of it loads by `from_pretrained` where torchao is. It is made for `torch.compile` and
    GPUs: uncompiled on a CPU it is smaller but not faster, which `save_int8` is.

    Args:
        model: any model of upstream's or ours. Output layers that are tied to embeddings stay as they are.
        kind: `int8`, weights by row and activations by token, as they come; `int8-weights`, weights alone.
        exclude: regular expressions; a module whose name one of them finds stays as it is.

    Returns:
        The copy, in evaluation mode.

    Raises:
        ValueError: an unknown kind, or nothing to quantise.
        ImportError: torchao is not installed (`pip install hf-ptm-ext[torchao]`).

    Examples:
        >>> # to_torchao(model).save_pretrained("int8")  # AutoModel.from_pretrained("int8")
        >>> to_torchao(None, "int9")
        Traceback (most recent call last):
            ...
        ValueError: `kind` must be one of int8, int8-weights, got 'int9'.
    """
    if kind not in TORCHAO:
        raise ValueError(f"`kind` must be one of {', '.join(TORCHAO)}, got {kind!r}.")
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig, Int8WeightOnlyConfig
    from transformers import TorchAoConfig

    quant = (Int8DynamicActivationInt8WeightConfig if kind == "int8" else Int8WeightOnlyConfig)(
        set_inductor_config=False
    )
    config = TorchAoConfig(quant, modules_to_not_convert=_left_out(model, exclude) or None)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return type(model).from_pretrained(folder, quantization_config=config, dtype=torch.float32).eval()


def _left_out(model: nn.Module, exclude: Sequence[str]) -> list[str]:
    """Projections that stay: those named, tied ones, and those without the two rows or columns that kernels need."""
    owners: dict[int, int] = {}
    for _, value in model.named_parameters(remove_duplicate=False):
        owners[id(value)] = owners.get(id(value), 0) + 1
    found = {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    left = [
        name
        for name, module in found.items()
        if any(re.search(one, name) for one in exclude)
        or owners[id(module.weight)] > 1
        or min(module.weight.shape) < 2
    ]
    if len(left) == len(found):
        raise ValueError(f"{type(model).__name__} has no projection to quantise; left out are {left}.")
    return left
