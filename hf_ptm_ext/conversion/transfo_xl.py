"""Transformer-XL checkpoints of transformers 4 and of the authors' code (kimiyoung/transformer-xl), and back.

The names of the authors' PyTorch code lack `transformer.`; its first softmax numbers the other clusters from the last,
where ours, transformers 4 and the authors' TensorFlow code do from the first; all layers share their biases, and a
text begins without a memory. TensorFlow's names have slashes; matrices are transposed, biases of all layers are one
variable, those of a single table's clusters one each.
"""

import copy
import json
import re
from collections.abc import Iterable
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch

from ..files import write_whole
from ..models.configuration_transfo_xl import TransfoXLConfig
from .files import beside
from .layout import PREFIX, TENSORFLOW, Conversion, Layout, functions_of
from .tensors import File, Options, State, Tensors, TokenizerFiles, Words, size_of

CLUSTERS = ("crit.cluster_weight", "crit.cluster_bias")
SIZES = ("vocab_size", "n_layer", "n_head", "d_model")
_TABLES = "transformer.word_emb.emb_layers."
_EMBED, _SOFTMAX = "transformer/adaptive_embed/", "transformer/adaptive_softmax/"
_OF_TENSORFLOW = {
    r"^transformer\.adaptive_embed\.cutoff_(\d+)\.lookup_table$": r"transformer.word_emb.emb_layers.\1.weight",
    r"^transformer\.adaptive_embed\.cutoff_(\d+)\.proj_W$": r"transformer.word_emb.emb_projs.\1",
    r"^transformer\.adaptive_softmax\.cutoff_(\d+)\.b$": r"crit.out_layers.\1.bias",
    r"^transformer\.adaptive_softmax\.cutoff_(\d+)\.proj$": r"crit.out_projs.\1",
    r"^transformer\.adaptive_softmax\.cutoff_0\.cluster_W$": CLUSTERS[0],
    r"^transformer\.adaptive_softmax\.cutoff_0\.cluster_b$": CLUSTERS[1],
    r"^transformer\.layer\.(\d+)\.rel_attn\.": r"transformer.layers.\1.dec_attn.",
    r"^transformer\.layer\.(\d+)\.ff\.": r"transformer.layers.\1.pos_ff.",
    r"\.dec_attn\.(qkv|o|r)\.weight$": r".dec_attn.\1_net.weight",
    r"\.pos_ff\.layer\.1\.": ".pos_ff.CoreNet.0.",
    r"\.pos_ff\.layer\.2\.": ".pos_ff.CoreNet.3.",
    r"\.LayerNorm\.": ".layer_norm.",
}


class TransfoXLLayout(Layout):
    title, family, prefix = "Transformer-XL", "transfo_xl", "TransfoXL"
    config_class = TransfoXLConfig
    fields = (
        *("vocab_size", "cutoffs", "d_model", "d_embed", "n_layer", "n_head", "d_head", "d_inner", "div_val"),
        *("pre_lnorm", "mem_len", "same_length", "clamp_len", "initial_memory", "untie_r", "attn_type"),
        *("tie_word_embeddings", "tie_projs", "proj_share_all_but_first", "adaptive", "sample_softmax"),
        *("dropout", "dropatt", "init", "init_range", "init_std", "proj_init_std", "layer_norm_epsilon"),
        *("bos_token_id", "eos_token_id", "pad_token_id"),
    )
    sizes = ()
    theirs = {"n_token": "vocab_size", "tie_weight": "tie_word_embeddings"}
    renames = (
        PREFIX,
        (r"^(word_emb|pos_emb|layers|r_w_bias|r_r_bias)\b", r"transformer.\1", "prefix `transformer.` put in front"),
        *TENSORFLOW,
        *((theirs, ours, "TensorFlow's names") for theirs, ours in _OF_TENSORFLOW.items()),
    )
    transposed = r"/(kernel|proj_W|proj)$"
    buffers = r"pos_emb\.inv_freq$"
    stacks = (("transformer.layers", "n_layer"),)
    dimensions = (
        (r"(crit\.out_layers|transformer\.word_emb\.emb_layers)\..*", 0, "vocab_size"),
        (r".*CoreNet\.(0\.weight|0\.bias|3\.weight)", 0, "d_inner"),
        (r".*", -1, "d_model"),
    )
    field_names = {"vocab_size": "a cluster's share of `vocab_size` (`cutoffs`)"}
    heads = {"crit.": "adaptive softmax"}
    whole, classes = "LMHeadModel", {"crit.": "LMHeadModel"}
    other_parts, needs = (), {}
    example = "layers.0.dec_attn.qkv_net.weight"
    their_mark = r"^(word_emb|layers)\."
    wordpieces = False
    word_files = ("vocab.txt", "vocab.pkl", "vocab.bin")
    pipeline_tag = "text-generation"

    # ---- options ----

    def complete_options(self, options: dict[str, Any], tensors: State) -> dict[str, str]:
        """The clusters and whether biases are shared are seen in the weights."""
        sizes = [size_of(tensors, name) or 0 for name in sorted(tensors) if name.startswith(_TABLES)]
        if options.get("cutoffs") is None and len(sizes) > 1:
            options["cutoffs"] = list(accumulate(sizes[:-1]))
        if options.get("untie_r") is None:
            options["untie_r"] = not any(name == "transformer.r_w_bias" for name in tensors)
        return {}

    def adjusted(self, fields: dict[str, Any], original: Options) -> dict[str, Any]:
        if original.get("not_tied"):
            fields["tie_word_embeddings"] = False
        if isinstance(width := fields.get("d_embed"), int) and width < 0:
            del fields["d_embed"]
        return fields

    def convert_config(self, original: Options) -> Any:
        """Our configuration, from that of transformers 4 or from the arguments of the authors' `train.py`."""
        fields = {self.theirs.get(name, name) for name, value in original.items() if value is not None}
        if lacking := [name for name in SIZES if name not in fields]:
            raise ValueError(f"The options must give the sizes of the model; they lack {', '.join(lacking)}.")
        return super().convert_config(original)

    # ---- weights ----

    def with_ties(self, config: Any) -> "TransfoXLLayout":
        """The layout of files of this config, whose shared weights depend on it."""
        with torch.device("meta"):
            model: Any = self.model(config)
        layout = copy.copy(self)
        layout.tied = model._tied_weights_keys
        return layout

    def tied_names(self, config: Any) -> set[str]:
        words = config.tie_word_embeddings
        return {name for name in self.tied if words or ".out_layers." not in name}

    def convert_state_dict(self, original: State, config: Any) -> Tensors:
        """Our state dict; shared weights may be there under one of their names."""
        layout, original = self.with_ties(config), _one_by_one(original)
        names = {self.describe_key(key)[0]: key for key in original}
        tensors = dict(original)
        if not any(re.search(r"transformer[./]", key) for key in original):
            tensors |= {key: original[key].flip(0) for name, key in names.items() if name in CLUSTERS}
        for name in layout.tied_names(config):
            if layout.tied[name] not in names and name in names:
                tensors.setdefault(layout.tied[name], original[names[name]])
        return super(TransfoXLLayout, layout).convert_state_dict(tensors, config)

    def convert_checkpoint(self, original: State, options: Options) -> Conversion:
        if not any(re.search(r"transformer[./]", key) for key in original):
            return super().convert_checkpoint(original, {"initial_memory": "empty", **options})
        if not any("transformer/" in key for key in original):
            return super().convert_checkpoint(original, options)
        theirs: dict[str, Any] = {"layer_norm_epsilon": 1e-12}
        if f"{_EMBED}lookup_table" in original:
            theirs["cutoffs"] = [*accumulate(len(original[key]) for key in _biases(original))][:-1]
            theirs |= {} if theirs["cutoffs"] else {"tie_projs": [True]}
        converted = super().convert_checkpoint(_one_by_one(original), {**theirs, **options})
        if options.get("layer_norm_epsilon") is None:
            converted.assumed["layer_norm_epsilon"] = "1e-12, that of TensorFlow's LayerNorms"
        return converted

    def reported(self, original: State, converted: Tensors, config: Any, assumed: dict[str, str]) -> Conversion:
        return super(TransfoXLLayout, self.with_ties(config)).reported(original, converted, config, assumed)

    def revert_state_dict(self, ours: State, config: Any, tied_copies: bool | None = None) -> Tensors:
        """The authors' state dict from ours."""
        layout = self.with_ties(config)
        reverted = super(TransfoXLLayout, layout).revert_state_dict(ours, config, tied_copies)
        shared = {self.their_name(name, config) for name in layout.tied if name.endswith(("r_w_bias", "r_r_bias"))}
        return {
            name: tensor.flip(0) if name in CLUSTERS else tensor
            for name, tensor in reverted.items()
            if name not in shared
        }

    def their_name(self, name: str, config: Any) -> str:
        return name.removeprefix("transformer.")

    # ---- files ----

    def tokenizer_from(
        self, words: Words, config: Any, vocab: File = None, codes: File = None, lower_case: bool = False
    ) -> TokenizerFiles:
        """The tokenizer's files of a vocabulary of words."""
        from ..models.tokenization_transfo_xl import TransfoXLTokenizer, read_vocabulary

        if vocab is None:
            return {}, [f"none: there is no {' or '.join(self.word_files)} (`--vocab`)"]
        options = read_vocabulary(vocab)
        options |= {"lower_case": True} if lower_case else {}
        if len(options["vocab"]) > config.vocab_size:
            raise ValueError(
                f"{vocab} has {len(options['vocab'])} words, more than `vocab_size` = {config.vocab_size} of "
                "the weights."
            )
        tokenizer = TransfoXLTokenizer(**options)
        own = ("lower_case", "delimiter", "moses", "language", "unk_token", "eos_token")
        name = TransfoXLTokenizer.__name__
        settings = {"tokenizer_class": name, "auto_map": {"AutoTokenizer": [f"tokenization_transfo_xl.{name}", None]}}
        settings |= {option: getattr(tokenizer, option) for option in own}
        files = {
            "tokenizer.json": tokenizer.backend_tokenizer.to_str(),
            "tokenizer_config.json": json.dumps(settings, indent=2),
        }
        return files, [f"{vocab}, {len(options['vocab'])} words"]

    def write_original(
        self, folder: Path, tensors: State, options: Options, source: Path, vocabulary: File = None
    ) -> None:
        from ..models.tokenization_transfo_xl import TransfoXLTokenizer

        super().write_original(folder, tensors, options, source)
        if beside(source, ("tokenizer.json",)) is not None:
            vocab = TransfoXLTokenizer.from_pretrained(source).get_vocab()
            write_whole(folder / "vocab.txt", "".join(f"{word}\n" for word in sorted(vocab, key=vocab.__getitem__)))


def _one_by_one(original: State) -> Tensors:
    """TensorFlow's biases of all layers apart, those of a single table's clusters together; others as they are."""
    found: Tensors = {}
    for key, tensor in original.items():
        if re.fullmatch(r"transformer/r_[wr]_bias", key) and tensor.ndim == 3:
            name = key.removeprefix("transformer/")
            found |= {f"transformer/layer_{layer}/rel_attn/{name}": part for layer, part in enumerate(tensor)}
        else:
            found[re.sub(r"(/adaptive_\w+)/(lookup_table|proj_W|b)(ias)?$", r"\1/cutoff_0/\2", key)] = tensor
    if f"{_EMBED}lookup_table" in original and (biases := _biases(found)):
        found[biases[0]] = torch.cat([found.pop(key) for key in biases])
    if f"{_EMBED}cutoff_1/lookup_table" in found and f"{_EMBED}cutoff_0/proj_W" not in found:  # between equal widths
        table = found[f"{_EMBED}cutoff_0/lookup_table"]
        for name in (f"{_EMBED}cutoff_0/proj_W", f"{_SOFTMAX}cutoff_0/proj"):
            found[name] = torch.eye(table.shape[-1], dtype=table.dtype)
    return found


def _biases(original: Iterable[str]) -> list[str]:
    """TensorFlow's biases of the words of each cluster."""
    return sorted(key for key in original if re.fullmatch(rf"{_SOFTMAX}cutoff_\d/b", key))


LAYOUT = TransfoXLLayout()
globals().update(functions_of(LAYOUT))
