"""A small original checkpoint of every family, as the command and the functions of `hf_ptm_ext.conversion` take it."""

import importlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

GOLDENS = Path(__file__).parents[1] / "goldens"
# family -> golden, prefix of the original's tensors, entry of its config
GOLDEN_FAMILIES = {
    "ernie_thu": ("ernie-thu-a", "sd.", "original_config"),
    "k_adapter": ("k-adapter-a", "lin_adapter/", "config"),
    "kbert": ("kbert-a", "model/", "config"),
    "knowbert": ("knowbert-a", "param.", "kar_config"),
    "mass": ("mass-a", "state.", "config"),
    "mass_nmt": ("mass-xlm-a", "state.", "config"),
    "nezha": ("nezha-a", "model/", "config"),
    "spanbert": ("spanbert-a", "sd.", "config"),
    "tinybert": ("tinybert-model-a", "student.", "config"),
    "transfo_xl": ("transfo-xl-a", "sd.", "config"),
    "unilm": ("unilm-a", "state.", "config"),
    "zen": ("zen-a", "model/", "config"),
    "houlsby": ("houlsby-a", "state_dict.", "adapter_config"),
    "pfeiffer": ("pfeiffer-a", "state_dict.", "adapter_config"),
}
ADAPTERS = ("houlsby", "pfeiffer")
FAMILIES = (*GOLDEN_FAMILIES, "ib_bert")


@dataclass(frozen=True)
class Source:
    """An original checkpoint.

    Args:
        family: its name for the command.
        tensors: its state dict.
        options: its config.
    """

    family: str
    tensors: dict[str, torch.Tensor]
    options: dict[str, Any]

    @property
    def is_adapter(self) -> bool:
        return self.family in ADAPTERS

    @property
    def module(self) -> Any:
        return importlib.import_module(f"hf_ptm_ext.conversion.{self.family}")

    def config(self, options: Mapping[str, Any] | None = None) -> Any:
        """Our configuration, as the command makes it of the golden's."""
        return self.module.convert_config(self.options if options is None else options)

    def write(self, folder: Path, tensors: Mapping[str, Any] | None = None, options: Any = None) -> Path:
        """The folder as the original project leaves it, its config as text where it is no JSON."""
        folder.mkdir(parents=True)
        weights, config = ("pytorch_adapter.bin", "adapter_config.json") if self.is_adapter else FILES
        torch.save(self.tensors if tensors is None else dict(tensors), folder / weights)
        options = self.options if options is None else options
        text = options if isinstance(options, str) else json.dumps(options)
        (folder / config).write_text(text, encoding="utf-8")
        if self.family == "zen":
            (folder / "ngram.txt").write_text("a b,3\n", encoding="utf-8")
        return folder


FILES = ("pytorch_model.bin", "config.json")


def source_of(family: str) -> Source:
    """The family's source, with tensors of its own."""
    if family == "ib_bert":
        return _ib_bert()
    name, prefix, entry = GOLDEN_FAMILIES[family]
    facts = json.loads((GOLDENS / f"{name}.json").read_text(encoding="utf-8"))
    stored = load_file(GOLDENS / f"{name}.safetensors")
    tensors = {key.removeprefix(prefix): value for key, value in stored.items() if key.startswith(prefix)}
    options = facts[entry]
    if family in ADAPTERS:
        tensors = {key: value for key, value in tensors.items() if ".adapters." in key}
        options = {"config": options, "hidden_size": 32, "model_type": "bert", "name": "task", "version": "1"}
    if family == "transfo_xl":  # under the names of its authors, whose clusters are the other way round
        tensors = {key.removeprefix("transformer."): value for key, value in tensors.items() if "inv_freq" not in key}
        tensors |= {key: value.flip(0) for key, value in tensors.items() if ".cluster_" in key}
    if family == "knowbert":
        wiki = {"entity_vocab_size": 30, "entity_size": 16, "intermediate_size": 24, "insert_after_layer": 1}
        options = {**facts["bert_config"], "vocab_size": 90, "knowledge_bases": {"wiki": wiki}}
    if family == "tinybert":
        options = {**options, **options["student"]}
    return Source(family, tensors, options)


def _ib_bert() -> Source:
    from hf_ptm_ext.conversion import ib_bert
    from hf_ptm_ext.models.modeling_ib_bert import IBBertForPreTraining

    options = {"vocab_size": 30, "hidden_size": 24, "intra_bottleneck_size": 32, "num_hidden_layers": 2}
    options |= {"num_attention_heads": 4, "intermediate_size": 24, "embedding_size": 8}
    config = ib_bert.convert_config(options)
    torch.manual_seed(0)
    return Source("ib_bert", ib_bert.revert_state_dict(IBBertForPreTraining(config).state_dict(), config), options)
