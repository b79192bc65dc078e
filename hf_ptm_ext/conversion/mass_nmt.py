"""MASS-NMT checkpoints of microsoft/MASS (MASS-unsupNMT): XLM's names <-> ours, its options and its dictionary.

The original's file is a dict of two state dicts (`encoder`, `decoder`), `params` and the dictionary (`dico_word2id`).
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ..files import read_json, write_whole
from ..models.configuration_mass_nmt import MassNmtConfig
from ..models.texts_core import text_lines
from .files import beside, name_some
from .layout import PREFIX, Conversion, Layout, functions_of
from .options import check_options, read_fields
from .tensors import File, Options, State, Tensors, TokenizerFiles, Words, layer_numbers, size_of
from .xlm_vocabulary import original_word, read_codes, read_dictionary, tokenizer_files

PARTS = ("encoder", "decoder")
# Options of the original -> our fields; the other options are about data and training.
FIELDS = {
    "n_words": "vocab_size",
    "emb_dim": "d_model",
    "n_layers": "encoder_layers",
    "n_dec_layers": "decoder_layers",
    "dropout": "dropout",
    "attention_dropout": "attention_dropout",
    "max_positions": "max_position_embeddings",
    "layer_norm_eps": "layer_norm_eps",
    "n_langs": "n_langs",
    "use_lang_emb": "use_lang_emb",
    "lang2id": "lang2id",
    "id2lang": "id2lang",
    "attention_setting": "attention_setting",
    "share_inout_emb": "tie_word_embeddings",
    "bos_index": "bos_token_id",
    "eos_index": "eos_token_id",
    "pad_index": "pad_token_id",
    "mask_index": "mask_token_id",
}
# XLM's names -> ours; the cross-attention's languages are behind (v1) or in front of (v2) the projection's name.
_LAYER = r"^(encoder|decoder)\.{0}\.(\d+)\."
NAMES = (
    (r"^(encoder|decoder)\.embeddings\.", r"model.\1.embed_tokens."),
    (r"^(encoder|decoder)\.position_embeddings\.", r"model.\1.embed_positions."),
    (r"^(encoder|decoder)\.lang_embeddings\.", r"model.\1.embed_languages."),
    (r"^(encoder|decoder)\.layer_norm_emb\.", r"model.\1.layernorm_embedding."),
    (_LAYER.format("layer_norm1"), r"model.\1.layers.\2.self_attn_layer_norm."),
    (_LAYER.format("layer_norm15"), r"model.\1.layers.\2.encoder_attn_layer_norm."),
    (_LAYER.format("layer_norm2"), r"model.\1.layers.\2.final_layer_norm."),
    (_LAYER.format("ffns") + r"lin([12])\.", r"model.\1.layers.\2.fc\3."),
    (_LAYER.format("attentions") + r"(q|k|v|out)_lin\.", r"model.\1.layers.\2.self_attn.\3_proj."),
    (_LAYER.format("encoder_attn") + r"(\d+)\.(q|k|v|out)_lin\.", r"model.\1.layers.\2.encoder_attn.\4_proj.\3."),
    (_LAYER.format("encoder_attn") + r"out_lin\.(?=\w+$)", r"model.\1.layers.\2.encoder_attn.out_proj.0."),
    (_LAYER.format("encoder_attn") + r"(q|k|v|out)_lin\.", r"model.\1.layers.\2.encoder_attn.\3_proj."),
    (r"^decoder\.pred_layer\.proj\.", "lm_head."),
    (r"^encoder\.pred_layer\.proj\.bias$", "encoder_lm_bias"),
)
# Ours -> XLM's.
_OURS = r"^model\.(encoder|decoder)\.layers\.(\d+)\."
ORIGINAL_NAMES = (
    (r"^model\.(encoder|decoder)\.embed_tokens\.", r"\1.embeddings."),
    (r"^model\.(encoder|decoder)\.embed_positions\.", r"\1.position_embeddings."),
    (r"^model\.(encoder|decoder)\.embed_languages\.", r"\1.lang_embeddings."),
    (r"^model\.(encoder|decoder)\.layernorm_embedding\.", r"\1.layer_norm_emb."),
    (rf"{_OURS}self_attn_layer_norm\.", r"\1.layer_norm1.\2."),
    (rf"{_OURS}encoder_attn_layer_norm\.", r"\1.layer_norm15.\2."),
    (rf"{_OURS}final_layer_norm\.", r"\1.layer_norm2.\2."),
    (rf"{_OURS}fc([12])\.", r"\1.ffns.\2.lin\3."),
    (rf"{_OURS}self_attn\.(\w+)_proj\.", r"\1.attentions.\2.\3_lin."),
    (rf"{_OURS}encoder_attn\.(\w+)_proj\.", r"\1.encoder_attn.\2.\3_lin."),
    (r"^lm_head\.", "decoder.pred_layer.proj."),
    (r"^encoder_lm_bias$", "encoder.pred_layer.proj.bias"),
)
ENCODER_PROJECTION = "encoder.pred_layer.proj.weight"


class MassNmtLayout(Layout):
    title, family, prefix = "MASS-NMT", "mass_nmt", "MassNmt"
    whole, classes = "ForConditionalGeneration", {"": "ForConditionalGeneration"}
    config_class = MassNmtConfig
    fields, theirs = (), FIELDS
    renames = (
        (r"^(?:module\.)?((?:encoder|decoder)\.)(?:module\.)?", r"\1", PREFIX[2]),
        *((theirs, ours, "XLM's name to ours") for theirs, ours in NAMES),
    )
    buffers = rf"^{re.escape(ENCODER_PROJECTION)}$"  # the encoder predicts nothing here
    foreign = "Names that no MASS-NMT model reads"
    hint = "The config has no place for them: check `n_langs` and `attention_setting`."
    stacks = (("model.encoder.layers", "encoder_layers"), ("model.decoder.layers", "decoder_layers"))
    dimensions = (
        (r".*(embed_tokens|lm_head)\.weight|lm_head\.bias|encoder_lm_bias", 0, "vocab_size"),
        (r".*embed_positions\.weight", 0, "max_position_embeddings"),
        (r".*embed_languages\.weight", 0, "n_langs"),
        (r".*fc1\.(weight|bias)", 0, "encoder_ffn_dim"),
        (r".*", -1, "d_model"),
    )
    heads, other_parts, needs = {}, (), {}
    tied = {"lm_head.weight": "model.decoder.embed_tokens.weight"}
    optional = "^encoder_lm_bias$"
    field_names = {ours: f"`{name}` (`{ours}`)" for name, ours in FIELDS.items()}
    example = "encoder.attentions.0.q_lin.weight"
    their_mark = ""
    wordpieces = False
    pipeline_tag = "translation"

    def their_name(self, name: str, config: Any) -> str:
        for pattern, replacement in ORIGINAL_NAMES:
            name = re.sub(pattern, replacement, name)
        return re.sub(r"(\w+_lin)\.(\d+)\.", r"\2.\1.", name) if config.attention_setting == "v2" else name

    def convert_config(self, original: Options) -> Any:
        """Read the original's options (`params` of its files)."""
        check_options(original)
        absent = [name for name in ("n_words", "emb_dim", "n_layers", "n_heads") if original.get(name) is None]
        if absent:
            raise ValueError(f"`params` must have the sizes of the model; it lacks {name_some(absent)}.")
        if original.get("asm"):
            raise ValueError(f"`asm` must be False, got {original['asm']!r}: XLM's softmax has no counterpart.")
        found = read_fields(original, tuple(FIELDS), ())
        fields = {FIELDS[name]: value for name, value in found.items()}
        fields["encoder_attention_heads"] = fields["decoder_attention_heads"] = original["n_heads"]
        fields["encoder_ffn_dim"] = fields["decoder_ffn_dim"] = original.get("ffn_dim") or 4 * original["emb_dim"]
        fields["activation_function"] = "gelu" if original.get("gelu_activation", True) else "relu"
        if "eos_token_id" in fields:
            fields["forced_eos_token_id"] = fields["eos_token_id"]
        if fields.get("id2lang") is not None and fields.get("lang2id") is not None:
            del fields["id2lang"]
        return self.made(fields)

    def convert_state_dict(self, original: Options, config: Any) -> Tensors:
        flat = flattened(original)
        tables = {self.describe_key(key)[0]: tensor for key, tensor in flat.items()}
        words, projection = tables.get("model.encoder.embed_tokens.weight"), tables.get(ENCODER_PROJECTION)
        tied = config.tie_word_embeddings and words is not None
        if tied and projection is not None and not torch.equal(words, projection):  # type: ignore[arg-type]
            raise ValueError(
                f"`{ENCODER_PROJECTION}` differs from `encoder.embeddings.weight`, to which `share_inout_emb` ties it."
            )
        for part, option, field in (
            ("encoder", "n_layers", "encoder_layers"),
            ("decoder", "n_dec_layers", "decoder_layers"),
        ):
            found = len(layer_numbers(tables, f"model.{part}.layers."))
            if found != getattr(config, field):
                raise ValueError(
                    f"`{option}` (`{field}`) is {getattr(config, field)} and the file has {found} layers in its "
                    f"{part}: correct the config."
                )
        return super().convert_state_dict(flat, config)

    def ours_of(self, name: str, key: str, tensor: torch.Tensor, config: Any) -> Tensors:
        """As it is; with one language the original has no list of projections."""
        if config.attention_setting == "v2":
            name = re.sub(r"(encoder_attn\.[qkv]_proj\.)(?=\w+$)", r"\g<1>0.", name)
        return {name: tensor}

    def revert_state_dict(self, ours: State, config: Any, tied_copies: bool | None = None) -> Tensors:
        return super().revert_state_dict(ours, config, tied_copies=not config.tie_word_embeddings)

    def convert_checkpoint(self, original: Options, options: Options) -> Conversion:
        return super().convert_checkpoint(flattened(original), options)

    def complete_options(self, options: dict[str, Any], tensors: State) -> dict[str, str]:
        seen = {
            "max_positions": size_of(tensors, "model.encoder.embed_positions.weight"),
            "n_dec_layers": len(layer_numbers(tensors, "model.decoder.layers.")) or None,
        }
        options |= {name: value for name, value in seen.items() if options.get(name) is None and value is not None}
        return {} if "encoder_lm_bias" in tensors else {"encoder_lm_bias": "zeros, which no model reads"}

    def reported(self, original: State, converted: Tensors, config: Any, assumed: dict[str, str]) -> Conversion:
        found = super().reported(original, converted, config, assumed)
        dropped = {key.replace("module.", ""): reason for key, reason in found.dropped.items()}
        if ENCODER_PROJECTION in dropped:
            tied = "tied to `encoder.embeddings.weight`"
            dropped[ENCODER_PROJECTION] = tied if config.tie_word_embeddings else "the encoder predicts nothing here"
        return replace(found, dropped=dropped)

    def revert_config(self, config: Any) -> dict[str, Any]:
        return {name: getattr(config, field) for name, field in FIELDS.items()} | {
            "n_heads": config.encoder_attention_heads,
            "ffn_dim": config.encoder_ffn_dim,
            "gelu_activation": config.activation_function == "gelu",
        }

    def revert_checkpoint(self, ours: State, config: Any) -> tuple[Tensors, dict[str, Any]]:
        for first, second in (
            ("encoder_attention_heads", "decoder_attention_heads"),
            ("encoder_ffn_dim", "decoder_ffn_dim"),
        ):
            if getattr(config, first) != getattr(config, second):
                raise ValueError(
                    f"`{first}` and `{second}` must be equal in the original, got {getattr(config, first)} and "
                    f"{getattr(config, second)}."
                )
        if "lm_head.bias" not in ours:
            raise ValueError(
                "`source` must hold a MassNmtForConditionalGeneration, and lacks `lm_head.bias`: the original has a "
                "vocabulary head."
            )
        if config.activation_function not in ("gelu", "relu"):
            raise ValueError(
                f"`activation_function` must be gelu or relu in the original, got {config.activation_function!r}."
            )
        # No model reads this bias, and a converted file may lack it; the original's has it.
        ours = {"encoder_lm_bias": torch.zeros_like(ours["lm_head.bias"]), **ours}
        tensors = self.revert_state_dict(ours, config)
        if config.tie_word_embeddings:
            for part in PARTS:
                tensors[f"{part}.pred_layer.proj.weight"] = tensors[f"{part}.embeddings.weight"]
        return tensors, self.revert_config(config)

    def tokenizer_from(
        self, words: Words, config: Any, vocab: File = None, codes: File = None, lower_case: bool = False
    ) -> TokenizerFiles:
        """The tokenizer's files, as far as the original's are there."""
        for option, path in (("vocab", vocab), ("codes", codes)):
            if path is not None and not path.is_file():
                raise FileNotFoundError(f"`--{option}` must be a file, got {path}, which does not exist.")
        if vocab is not None:
            words = read_dictionary(vocab)
        if not words or codes is None:
            lacking = "`--codes`, the BPE codes" if words else "a dictionary (`--vocab`)"
            return {}, [f"none: it needs {lacking}"]
        files = tokenizer_files(words, read_codes(codes), config, lower_case)
        return files, [f"XLMTokenizer (needs the package sacremoses), {len(words)} words, codes of {codes}"]

    def write_original(
        self, folder: Path, tensors: State, options: Options, source: Path, vocabulary: File = None
    ) -> None:
        """Write the original's file, and its codes if our folder has a tokenizer."""
        content: dict[str, Any] = {part: {} for part in PARTS}
        for name, value in tensors.items():
            part, _, rest = name.partition(".")
            content[part][rest] = value
        content["params"] = dict(options)
        if (file := beside(source, ("vocab.json",))) is not None:
            numbered = sorted(read_json(file).items(), key=lambda item: item[1])
            words = {original_word(word): number for word, number in numbered}
            content |= {
                "dico_id2word": {number: word for word, number in words.items()},
                "dico_word2id": words,
                "dico_counts": dict.fromkeys(words, 0),
            }
        torch.save(content, folder / "model.pth")
        if (file := beside(source, ("merges.txt",))) is not None:
            merges = [line for line in text_lines(file) if line.strip()]
            write_whole(folder / "codes", "".join(f"{merge} 0\n" for merge in merges))


def flattened(original: Options) -> Tensors:
    """The tensors of both halves, under `encoder.` and `decoder.`."""
    tensors: Tensors = {}
    for name, value in original.items():
        if not isinstance(value, Mapping):
            tensors[name] = value
        elif name in PARTS:
            tensors |= {f"{name}.{inner}": tensor for inner, tensor in value.items()}
    for part in PARTS:
        if not any(re.match(rf"(module\.)?{part}\.", name) for name in tensors):
            raise ValueError(
                f"The file must hold an `encoder` and a `decoder`, and has no `{part}`; it has "
                f"{name_some(list(original))}. Is it a language model of XLM, which upstream's XLMModel reads?"
            )
    return tensors


LAYOUT = MassNmtLayout()
globals().update(functions_of(LAYOUT))
