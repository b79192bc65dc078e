"""`hf-ptm-ext convert houlsby|pfeiffer SOURCE TARGET`: the `adapters` library's files to PEFT's, and back."""

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

METHODS = ("houlsby", "pfeiffer")
CONFIG = "adapter_config.json"
THEIR_WEIGHTS = "pytorch_adapter.bin"
OUR_WEIGHTS = "adapter_model.safetensors"
BASE_CONFIG = "config.json"


def run(arguments: argparse.Namespace) -> int:
    """Convert one adapter and report.

    Args:
        arguments: the parsed command line of `convert`.

    Returns:
        The exit code, 0.

    Raises:
        ValueError: the files are no adapter of this method.
        OSError: a file cannot be read or written.
    """
    from ..conversion.files import read_checkpoint
    from ..hub.folders import check_target

    check_target(arguments.target, arguments.overwrite)
    checkpoint = read_checkpoint(_weights(arguments))
    if arguments.to_original:
        return _to_library(checkpoint, arguments)
    return _from_library(checkpoint, arguments)


def _weights(arguments: argparse.Namespace) -> Path:
    """The file with the adapter's weights; a folder of the library may have a head's beside it."""
    from ..conversion.files import beside
    from ..files import path_inside

    source: Path = arguments.source
    if not source.is_dir():
        return source
    usual = beside(source, (OUR_WEIGHTS if arguments.to_original else THEIR_WEIGHTS,))
    if usual is not None:
        return usual
    found = [path for path in sorted(source.glob("*.safetensors")) if "head" not in path.name]
    if len(found) != 1:
        wanted = OUR_WEIGHTS if arguments.to_original else THEIR_WEIGHTS
        raise ValueError(f"`source` must hold {wanted} or one .safetensors file, got {source}. Name the file.")
    return path_inside(source, found[0].name, f"The folder {source}")


def _config_file(arguments: argparse.Namespace) -> Path:
    from ..conversion.files import beside

    path = arguments.config or beside(arguments.source, (CONFIG,))
    if path is None or not path.is_file():
        raise ValueError(
            f"`--config` must name the adapter's options: there is no {CONFIG} beside {arguments.source}."
        )
    return path


def _from_library(checkpoint: Any, arguments: argparse.Namespace) -> int:
    from safetensors.torch import save_file

    from ..conversion import adapter_library
    from ..conversion.files import name_some
    from ..conversion.layout import unshared
    from ..files import read_json
    from ..hub.adapter_card import write_adapter_card
    from ..hub.folders import written_whole

    original = read_json(_config_file(arguments), strict=True)
    config = adapter_library.convert_config(original, arguments.family)
    config.inference_mode = True  # as PEFT saves
    config.base_model_name_or_path = original.get("model_name")
    names = adapter_library.adapter_names(checkpoint.tensors)
    name = original.get("name") if original.get("name") in names else None
    tensors = adapter_library.convert_state_dict(checkpoint.tensors, config, name)
    adapter_library.check_adapter(tensors, config, original.get("hidden_size"), name or names[0])
    with written_whole(arguments.target, arguments.overwrite) as folder:
        config.save_pretrained(str(folder))
        save_file(unshared(tensors), folder / OUR_WEIGHTS)
        write_adapter_card(
            folder,
            family=original.get("model_type") or "unknown-family",
            language=arguments.language or "und",
            license=arguments.license,
            repo_id=arguments.repo_id or f"your-name/{arguments.target.resolve().name}",
            description=f"Converted from `{arguments.source.name}` by `hf-ptm-ext convert {arguments.family}`: the "
            "same weights under the names of PEFT.",
        )
        written = sorted(path.name for path in folder.iterdir())
    _report(checkpoint, tensors, config, arguments, written)
    beside = sorted(
        key for key in checkpoint.tensors if not adapter_library.adapter_names({key: checkpoint.tensors[key]})
    )
    if beside:
        print(f"{'dropped':<12} {name_some(beside)}: weights beside the adapter")
    head = arguments.source / "pytorch_model_head.bin"
    if head.is_file():
        print(
            f"{'dropped':<12} {head}: a head of the library's own kind; train a new one, or copy its weights by hand"
        )
    return 0


def _to_library(checkpoint: Any, arguments: argparse.Namespace) -> int:
    import torch

    from ..conversion import adapter_library
    from ..conversion.options import made_config
    from ..files import read_json
    from ..hub.folders import written_whole

    options, method = read_json(_config_file(arguments), strict=True), arguments.family
    if options.get("peft_type") != method.upper():
        raise ValueError(f"`source` must be a {method} adapter, got `peft_type` {options.get('peft_type')!r}.")
    config_class = adapter_library.CONFIGS[method]
    known_fields = {field.name for field in dataclasses.fields(config_class)} - {"peft_type"}
    config: Any = made_config(config_class, {k: v for k, v in options.items() if k in known_fields}, method)
    fields = adapter_library.revert_config(config)
    ours = {key: value for key, value in checkpoint.tensors.items() if f".{method}_" in key}
    name = arguments.target.resolve().name.replace(".", "_")
    adapter_library.check_adapter(ours, config)
    tensors = adapter_library.revert_state_dict(ours, config, name)
    base = Path(config.base_model_name_or_path or "") / BASE_CONFIG
    known = read_json(base) if config.base_model_name_or_path and base.is_file() else {}
    description = {
        "config": fields,
        "hidden_size": next(value.shape[0] for key, value in ours.items() if key.endswith("_up.weight")),
        "model_name": config.base_model_name_or_path,
        "model_type": known.get("model_type"),
        "name": name,
        "version": "hf_ptm_ext",
    }
    with written_whole(arguments.target, arguments.overwrite) as folder:
        torch.save(tensors, folder / THEIR_WEIGHTS)
        with open(folder / CONFIG, "w", encoding="utf-8", newline="\n") as file:
            file.write(json.dumps(description, indent=2, sort_keys=True) + "\n")
        written = sorted(path.name for path in folder.iterdir())
    _report(checkpoint, tensors, config, arguments, written)
    left = sorted(
        {key.removeprefix("base_model.model.").partition(".")[0] for key in checkpoint.tensors.keys() - ours}
    )
    if left:
        print(f"{'dropped':<12} {', '.join(left)}: trained beside the adapter, no part of the library's file")
    return 0


def _report(checkpoint: Any, tensors: dict, config: Any, arguments: argparse.Namespace, written: list[str]) -> None:
    weights = sum(value.numel() for value in tensors.values())
    print(f"{'read':<12} {', '.join(str(path) for path in checkpoint.files)}")
    print(f"{'mapped':<12} {len(tensors)} tensors, {weights} weights, {arguments.family}")
    print(f"{'options':<12} reduction {config.reduction_factor}, {config.non_linearity}, scaling {config.scaling}")
    print(f"{'wrote':<12} {arguments.target}: {', '.join(written)}")


__all__ = ["METHODS", "run"]
