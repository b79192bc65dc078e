"""`hf-ptm-ext convert houlsby|pfeiffer SOURCE TARGET`: the `adapters` library's files to PEFT's, and back."""

import argparse
import dataclasses
from pathlib import Path
from typing import Any

from .tables import print_report

METHODS = ("houlsby", "pfeiffer")
CONFIG = "adapter_config.json"
THEIR_WEIGHTS = "pytorch_adapter.bin"
THEIR_HEAD = "pytorch_model_head.bin"
OUR_WEIGHTS = "adapter_model.safetensors"


def run(arguments: argparse.Namespace) -> int:
    """Convert one adapter and report."""
    from ..conversion.files import beside, read_checkpoint
    from ..files import read_json
    from ..hub.folders import written_whole

    checkpoint = read_checkpoint(_weights(arguments))
    config_file = arguments.config or beside(arguments.source, (CONFIG,))
    if config_file is None or not config_file.is_file():
        raise ValueError(
            f"`--config` must name the adapter's options: there is no {CONFIG} beside {arguments.source}."
        )
    convert = _to_library if arguments.to_original else _from_library
    config, tensors, write, dropped = convert(checkpoint.tensors, read_json(config_file, strict=True), arguments)
    with written_whole(arguments.target, arguments.overwrite) as folder:
        write(folder)
        written = sorted(path.name for path in folder.iterdir())
    weights = sum(value.numel() for value in tensors.values())
    print_report(
        [
            ("read", [", ".join(str(path) for path in checkpoint.files)]),
            ("mapped", [f"{len(tensors)} tensors, {weights} weights, {arguments.family}"]),
            ("options", [f"reduction {config.reduction_factor}, {config.non_linearity}, scaling {config.scaling}"]),
            ("wrote", [f"{arguments.target}: {', '.join(written)}"]),
            ("dropped", dropped),
        ]
    )
    return 0


def _weights(arguments: argparse.Namespace) -> Path:
    """The file with the adapter's weights; a folder of the library may have a head's beside it."""
    from ..conversion.files import beside
    from ..files import path_inside

    source: Path = arguments.source
    if not source.is_dir():
        return source
    wanted = OUR_WEIGHTS if arguments.to_original else THEIR_WEIGHTS
    usual = beside(source, (wanted,))
    if usual is not None:
        return usual
    found = [path for path in sorted(source.glob("*.safetensors")) if "head" not in path.name]
    if len(found) != 1:
        raise ValueError(f"`source` must hold {wanted} or one .safetensors file, got {source}. Name the file.")
    return path_inside(source, found[0].name, f"The folder {source}")


def _from_library(original: dict[str, Any], options: dict[str, Any], arguments: argparse.Namespace) -> tuple[Any, ...]:
    """Configuration, tensors, what writes them, and what is left out."""
    from safetensors.torch import save_file

    from ..conversion import adapter_library
    from ..conversion.files import name_some
    from ..conversion.tensors import unshared
    from ..hub.adapter_card import write_adapter_card

    config = adapter_library.convert_config(options, arguments.family)
    config.inference_mode = True  # as PEFT saves
    config.base_model_name_or_path = options.get("model_name")
    names = adapter_library.adapter_names(original)
    name = options.get("name") if options.get("name") in names else None
    tensors = adapter_library.convert_state_dict(original, config, name)
    adapter_library.check_adapter(tensors, config, options.get("hidden_size"), name or names[0])

    def write(folder: Path) -> None:
        config.save_pretrained(str(folder))
        save_file(unshared(tensors), folder / OUR_WEIGHTS)
        write_adapter_card(
            folder,
            family=options.get("model_type") or "unknown-family",
            language=arguments.language or "und",
            license=arguments.license,
            repo_id=arguments.repo_id or f"your-name/{arguments.target.resolve().name}",
            description=f"Converted from `{arguments.source.name}` by `hf-ptm-ext convert {arguments.family}`: the "
            "same weights under the names of PEFT.",
        )

    others = sorted(key for key, value in original.items() if not adapter_library.adapter_names({key: value}))
    dropped = [f"{name_some(others)}: weights beside the adapter"] if others else []
    head = arguments.source / THEIR_HEAD
    if head.is_file():
        dropped.append(f"{head}: a head of the library's own kind; train a new one, or copy its weights by hand")
    return config, tensors, write, dropped


def _to_library(ours: dict[str, Any], options: dict[str, Any], arguments: argparse.Namespace) -> tuple[Any, ...]:
    """Configuration, tensors, what writes them, and what is left out."""
    import torch

    from ..conversion import adapter_library
    from ..conversion.options import made_config
    from ..files import read_json, write_json

    method = arguments.family
    if options.get("peft_type") != method.upper():
        raise ValueError(f"`source` must be a {method} adapter, got `peft_type` {options.get('peft_type')!r}.")
    config_class = adapter_library.CONFIGS[method]
    fields = {field.name for field in dataclasses.fields(config_class)} - {"peft_type"}
    config: Any = made_config(config_class, {name: options[name] for name in fields & options.keys()}, method)
    kept = {key: value for key, value in ours.items() if f".{method}_" in key}
    name = arguments.target.resolve().name.replace(".", "_")
    adapter_library.check_adapter(kept, config)
    tensors = adapter_library.revert_state_dict(kept, config, name)
    base = Path(config.base_model_name_or_path or "") / "config.json"
    known = read_json(base) if config.base_model_name_or_path and base.is_file() else {}
    description = {
        "config": adapter_library.revert_config(config),
        "hidden_size": next(value.shape[0] for key, value in kept.items() if key.endswith("_up.weight")),
        "model_name": config.base_model_name_or_path,
        "model_type": known.get("model_type"),
        "name": name,
        "version": "hf_ptm_ext",
    }

    def write(folder: Path) -> None:
        torch.save(tensors, folder / THEIR_WEIGHTS)
        write_json(folder / CONFIG, description, sort_keys=True)

    left = sorted({key.removeprefix("base_model.model.").partition(".")[0] for key in ours.keys() - kept})
    dropped = [f"{', '.join(left)}: trained beside the adapter, no part of the library's file"] if left else []
    return config, tensors, write, dropped
