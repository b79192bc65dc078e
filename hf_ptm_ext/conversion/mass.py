"""MASS checkpoints of the fairseq variant (microsoft/MASS, MASS-summarization) to ours and back; names are BART's.

What a file does not say is read off its tensors; the number of heads cannot be, except for the published sizes.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ..models.configuration_mass import MassConfig
from ..models.seq2seq_core import position_limit
from ..models.texts_core import text_lines
from .files import name_some
from .layout import PREFIX, Layout, functions_of
from .options import check_options
from .tensors import Options, State, Tensors, check_weights, layer_numbers
from .vocabulary import SPECIAL_TOKENS

# fairseq's option -> our field, where the names differ
THEIRS = {
    "encoder_embed_dim": "d_model",
    "encoder_ffn_embed_dim": "encoder_ffn_dim",
    "decoder_ffn_embed_dim": "decoder_ffn_dim",
    "activation_fn": "activation_function",
    "pad": "pad_token_id",
    "bos": "bos_token_id",
    "eos": "eos_token_id",
}
SAME = (
    *("encoder_layers", "encoder_attention_heads", "decoder_layers", "decoder_attention_heads"),
    *("dropout", "attention_dropout", "activation_dropout", "label_smoothing"),
    *("max_source_positions", "max_target_positions", "vocab_size"),
)
OPTIONS = {**THEIRS, **{name: name for name in SAME}}
# Fields that are read under our own (BART's) names, as in the Hub's configurations.
OWN_FIELDS = (
    *THEIRS.values(),
    *("max_position_embeddings", "init_std", "layer_norm_eps", "scale_embedding", "classifier_dropout"),
    *("share_encoder_decoder_embeddings", "tie_word_embeddings", "decoder_start_token_id"),
    *("normalize_before", "normalize_embedding", "add_final_layer_norm"),
)


def _architecture(width: int, heads: int, inner: int, layers: int = 6, **options: Any) -> dict[str, Any]:
    """An architecture of the reference, whose sides have the same sizes."""
    sizes: dict[str, Any] = {"encoder_embed_dim": width}
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_attention_heads": heads, f"{side}_ffn_embed_dim": inner, f"{side}_layers": layers}
    rates = dict.fromkeys(("dropout", "attention_dropout", "activation_dropout"), 0.1)
    return {**sizes, **rates, "activation_fn": "gelu", "share_all_embeddings": True, **options}


# The reference's architectures: what an option that a file does not name stands at.
_FAIRSEQ: dict[str, Any] = {"activation_fn": "relu", "share_all_embeddings": False}
_FAIRSEQ |= {"attention_dropout": 0.0, "activation_dropout": 0.0}
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "transformer_mass_base": _architecture(768, 12, 3072),
    "transformer_mass_middle": _architecture(1024, 16, 4096),
    "transformer_mass_big": _architecture(1024, 16, 4096, layers=12),
    "transformer_mass": _architecture(512, 8, 2048, **_FAIRSEQ),
}
# Width and inner width of the published models -> their number of heads.
PUBLISHED_HEADS = {(768, 3072): 12, (1024, 4096): 16}
# Config field -> token of the dictionary.
SPECIAL_FIELDS = {"pad_token_id": "[PAD]", "bos_token_id": "[CLS]", "eos_token_id": "[SEP]"}
VERSION = 3.0  # of fairseq's encoder and decoder
PARTS = ("q", "k", "v")
SHARED_TABLE = "model.shared.weight"
ENCODER_TABLE, DECODER_TABLE = (f"model.{side}.embed_tokens.weight" for side in ("encoder", "decoder"))
# Weights whose shapes say the sizes.
NEEDED = tuple(
    f"{side}.{name}.weight"
    for side in ("encoder", "decoder")
    for name in ("embed_tokens", "embed_positions", "layers.0.fc1")
)
# Fields that no tensor tells -> the options that do.
KNOWN_BY_OPTION = {
    "activation_function": ("activation_fn", "activation_function"),
    "pad_token_id": ("pad", "pad_token_id"),
    "eos_token_id": ("eos", "eos_token_id", "eos_and_decoder_start"),
}


class MassLayout(Layout):
    title, family, prefix = "MASS", "mass", "Mass"
    whole, classes = "ForConditionalGeneration", {"": "ForConditionalGeneration"}
    config_class = MassConfig
    fields, theirs = OWN_FIELDS, OPTIONS
    infers_sizes = True
    renames = (
        PREFIX,
        (r"^decoder\.embed_out$", "lm_head.weight", "`decoder.embed_out` to `lm_head.weight`"),
        (r"^(?=(encoder|decoder|shared)\.)", "model.", "prefix `model.` put in front"),
        (r"\.emb_layer_norm\.", ".layernorm_embedding.", "`emb_layer_norm` to `layernorm_embedding`"),
    )
    buffers = r"\.version$|final_logits_bias$"  # fairseq's versions, and a bias of zeros that other code adds
    foreign = "These keys fit nowhere in {title}"
    blame = "correct {0}, or use the vocabulary and the options that belong to the weights"
    stacks = (("model.encoder.layers", "encoder_layers"), ("model.decoder.layers", "decoder_layers"))
    dimensions = (
        (r".*(shared|embed_tokens|lm_head)\.weight", 0, "vocab_size"),
        (r".*(shared|embed_tokens|lm_head)\.weight", 1, "d_model"),
        (r"model\.encoder\.embed_positions\.weight", 0, "max_source_positions"),
        (r"model\.decoder\.embed_positions\.weight", 0, "max_target_positions"),
        (r"model\.encoder\..*fc1\.(weight|bias)", 0, "encoder_ffn_dim"),
        (r"model\.decoder\..*fc1\.(weight|bias)", 0, "decoder_ffn_dim"),
    )
    heads, other_parts, needs = {}, (), {}
    tied = dict.fromkeys((ENCODER_TABLE, DECODER_TABLE), SHARED_TABLE) | {"lm_head.weight": DECODER_TABLE}
    example = "encoder.layers.0.self_attn.in_proj_weight"
    their_mark = ""
    vocabulary_files = ("dict.txt", "vocab.txt")
    pipeline_tag = "summarization"

    def describe_key(self, key: str) -> tuple[str, tuple[str, ...]]:
        name, changes = super().describe_key(key)
        return name, (*changes, "packed projections split in three") if ".in_proj_" in name else changes

    def their_name(self, name: str, config: Any) -> str:
        name = re.sub(r"_attn\.[qkv]_proj\.", "_attn.in_proj_", name.removeprefix("model."))
        return name.replace(".layernorm_embedding.", ".emb_layer_norm.").replace("lm_head.weight", "decoder.embed_out")

    def convert_config(self, original: Options) -> Any:
        check_options(original)
        arch = original.get("arch")
        if arch is not None and arch not in ARCHITECTURES:
            raise ValueError(
                f"`arch` must be one of {', '.join(ARCHITECTURES)}, got {arch!r}. Checkpoints of the unsupervised "
                "translation code are converted by `hf-ptm-ext convert mass_nmt`."
            )
        given = {name: value for name, value in original.items() if value is not None}
        options = {**(ARCHITECTURES[arch] if arch is not None else {}), **given}
        width, other = (options.get(f"{side}_embed_dim") for side in ("encoder", "decoder"))
        if width is not None and other is not None and width != other:
            raise ValueError(
                f"`encoder_embed_dim` and `decoder_embed_dim` must be equal, got {width} and {other}: MASS has one "
                "width."
            )
        for name in ("encoder_normalize_before", "decoder_normalize_before"):
            if options.get(name):
                raise ValueError(f"`{name}` must be false: MASS's layers have LayerNorm behind their blocks.")
        fields = {field: options[name] for name, field in OPTIONS.items() if name in options}
        if "relu_dropout" in options:  # its name before fairseq 0.7
            fields.setdefault("activation_dropout", options["relu_dropout"])
        if "eos_and_decoder_start" in options:
            fields.setdefault("eos_token_id", options["eos_and_decoder_start"])
        shares = [options.get(name) for name in ("share_all_embeddings", "share_decoder_input_output_embed")]
        if shares != [None, None]:
            fields |= {"share_encoder_decoder_embeddings": bool(shares[0]), "tie_word_embeddings": any(shares)}
        if "no_scale_embedding" in options:
            fields["scale_embedding"] = not options["no_scale_embedding"]
        fields |= {name: options[name] for name in OWN_FIELDS if name in options}
        if "eos_token_id" in fields:
            fields.setdefault("decoder_start_token_id", fields["eos_token_id"])
        source, target = (fields.get(f"max_{side}_positions") for side in ("source", "target"))
        if source is not None and source == target:
            fields["max_position_embeddings"] = source
            del fields["max_source_positions"], fields["max_target_positions"]
        return self.made(fields)

    def convert_state_dict(self, original: State, config: Any) -> Tensors:
        _check_family(original)
        return super().convert_state_dict(original, config)

    def ours_of(self, name: str, key: str, tensor: torch.Tensor, config: Any) -> Tensors:
        """Packed projections are split in three."""
        packed = re.fullmatch(r"(.+_attn)\.in_proj_(weight|bias)", name)
        if packed is None or not tensor.ndim or len(tensor) % 3:
            return {name: tensor}
        thirds = zip(PARTS, tensor.chunk(3), strict=True)
        return {f"{packed[1]}.{part}_proj.{packed[2]}": third for part, third in thirds}

    def check(self, converted: Tensors, sources: Mapping[str, str], config: Any) -> Tensors:
        joined = dict(converted)
        _join_tables(joined, config)
        return super().check(joined, {name: sources.get(name, name) for name in joined}, config)

    def tied_names(self, config: Any) -> set[str]:
        tied = {"lm_head.weight"} if config.tie_word_embeddings else set()
        return tied | ({ENCODER_TABLE, DECODER_TABLE} if config.share_encoder_decoder_embeddings else set())

    def revert_state_dict(self, ours: State, config: Any, tied_copies: bool | None = None) -> Tensors:
        """The original's names, with fairseq's versions, and one table for both sides where they share it."""
        named = {self.describe_key(name)[0]: value for name, value in ours.items()}
        check_weights(named)
        _join_tables(named, config, written=True)
        self.check_ours(named, config)
        base = {name.removeprefix("model."): value for name, value in named.items()}
        shared, output = base.pop("shared.weight", None), base.pop("lm_head.weight", None)
        result: Tensors = {}
        for side in ("encoder", "decoder"):
            result[f"{side}.version"] = torch.tensor([VERSION])
            if shared is not None:
                base[f"{side}.embed_tokens.weight"] = shared
        if output is not None and not config.tie_word_embeddings:
            result["decoder.embed_out"] = output
        for name, value in base.items():
            match = re.fullmatch(r"(.+_attn)\.([qkv])_proj\.(weight|bias)", name)
            if match is None:
                result[name.replace(".layernorm_embedding.", ".emb_layer_norm.")] = value
            elif match[2] == "q":
                parts = [base[f"{match[1]}.{part}_proj.{match[3]}"] for part in PARTS]
                result[f"{match[1]}.in_proj_{match[3]}"] = torch.cat(parts)
        return result

    def complete_options(self, options: dict[str, Any], tensors: State) -> dict[str, str]:
        """The sizes, and the heads of the published models; the architecture's options where they are not given."""
        check_options(options)
        _check_family(tensors)
        sizes = _sizes(tensors, options)
        given = {name: value for name, value in options.items() if value is not None}
        options |= {**ARCHITECTURES.get(given.pop("arch", ""), {}), **sizes, **given, "arch": None}
        assumed = {}
        for side in ("encoder", "decoder"):
            name = f"{side}_attention_heads"
            if name in given or (options.get(name) and not sizes["encoder_embed_dim"] % options[name]):
                continue
            heads = PUBLISHED_HEADS.get((sizes["encoder_embed_dim"], sizes[f"{side}_ffn_embed_dim"]))
            if heads is None:
                raise ValueError(
                    f"`{name}` cannot be read off the weights, and neither checkpoint nor configuration has it: "
                    'write a JSON file with `{"encoder_attention_heads": ..., "decoder_attention_heads": ...}` and '
                    "name it by `--config`."
                )
            options[name] = heads
            assumed[name] = f"{heads}, as in the published models of this width"
        for field, names in KNOWN_BY_OPTION.items():
            if all(options.get(name) is None for name in names):
                assumed[field] = f"{getattr(MassConfig(), field)}, as in the published models"
        return assumed

    def revert_config(self, config: Any) -> dict[str, Any]:
        """fairseq's options, and what it has no words for under our names."""
        options = {name: getattr(config, field) for name, field in OPTIONS.items()}
        for side in ("source", "target"):
            options[f"max_{side}_positions"] = position_limit(config, side)
        options["decoder_embed_dim"] = config.d_model
        options["share_all_embeddings"] = config.share_encoder_decoder_embeddings and config.tie_word_embeddings
        options["share_decoder_input_output_embed"] = config.tie_word_embeddings
        for name in ("share_encoder_decoder_embeddings", "tie_word_embeddings"):  # fairseq has no word for each alone
            options[name] = getattr(config, name)
        return options

    def read_vocabulary(self, path: Path) -> dict[str, int]:
        """Read a fairseq `dict.txt`, one `token count` a line, or a `vocab.txt`, one token a line."""
        counted = path.name.startswith("dict")
        vocab: dict[str, int] = {}
        for number, line in enumerate(text_lines(path), start=1):
            token, _, count = line.rpartition(" ") if counted else (line, "", "0")
            if not token or not count.isdigit():
                raise ValueError(f"{path}, line {number}: a line must be `token count`, got {line!r}.")
            if token in vocab:
                raise ValueError(f"{path}, line {number}: {token!r} is there twice, first in line {vocab[token] + 1}.")
            vocab[token] = number - 1
        for token in SPECIAL_TOKENS:
            vocab.setdefault(token, len(vocab))
        return vocab

    def vocabulary_options(self, vocab: Mapping[str, int], options: Options) -> dict[str, Any]:
        """The options that a vocabulary decides."""
        ids = {field: vocab[token] for field, token in SPECIAL_FIELDS.items()}
        for field, value in ids.items():
            other = options.get(field)
            if other is not None and other != value:
                raise ValueError(
                    f"`{field}` is {other} in the options and {value} in the vocabulary: use those that belong "
                    "together."
                )
        return ids

    def wordpiece_tokenizer(self, vocab: Mapping[str, int], config: Any, do_lower_case: bool, **files: Path) -> Any:
        """The tokenizer of the reference: BERT's pieces and one [SEP] behind each text, no [CLS]."""
        from tokenizers.processors import TemplateProcessing
        from transformers import BertTokenizer, PreTrainedTokenizerFast

        backend = BertTokenizer(vocab=dict(vocab), do_lower_case=do_lower_case).backend_tokenizer
        backend.post_processor = TemplateProcessing(
            single="$A [SEP]", pair="$A [SEP] $B [SEP]", special_tokens=[("[SEP]", vocab["[SEP]"])]
        )
        return PreTrainedTokenizerFast(
            tokenizer_object=backend,
            model_max_length=position_limit(config, "source"),
            model_input_names=["input_ids", "attention_mask"],
            pad_token="[PAD]",
            unk_token="[UNK]",
            cls_token="[CLS]",
            sep_token="[SEP]",
            mask_token="[MASK]",
            bos_token="[CLS]",
            eos_token="[SEP]",
        )


def _check_family(original: State) -> None:
    """Say whose a checkpoint is that is none of this variant."""
    names = [re.sub(r"^(module\.)?(model\.)?", "", name) for name in original]
    if any(name.startswith(("encoders.", "decoders.")) for name in names):
        raise ValueError(
            f"The file is of the supervised translation code (it has `{names[0]}`), whose layers and embeddings are "
            "others: it cannot be converted."
        )
    if any(".layer_norm15." in name or name.startswith(("layer_norm15.", "lang_embeddings.")) for name in names):
        raise ValueError(
            f"The file is of the unsupervised translation code (XLM's names, {len(names)} of them): use `hf-ptm-ext "
            "convert mass_nmt`."
        )
    if not any(name.startswith("encoder.layers.") for name in names):
        raise ValueError(
            "The file has no encoder layer: expected names like `encoder.layers.0.self_attn.in_proj_weight`, got "
            f"{name_some(sorted(original))}."
        )


def _sizes(named: State, options: Options) -> dict[str, Any]:
    """What the tensors say, under fairseq's names."""
    named = {name.removeprefix("model."): value for name, value in named.items()}
    missing = [name for name in NEEDED if name not in named]
    if missing:
        raise ValueError(f"The file lacks weights: {name_some(missing)}. It must hold the whole model.")
    check_weights({name: named[name] for name in NEEDED})
    flat = [f"{name} {tuple(named[name].shape)}" for name in NEEDED if named[name].ndim != 2]
    if flat:
        raise ValueError(f"These weights must be matrices: {name_some(flat)}.")
    sizes: dict[str, Any] = {}
    table, other = (named[f"{side}.embed_tokens.weight"] for side in ("encoder", "decoder"))
    sizes["vocab_size"], sizes["encoder_embed_dim"] = table.shape
    sizes["share_encoder_decoder_embeddings"] = table.shape == other.shape and torch.equal(table, other)
    sizes["tie_word_embeddings"] = "lm_head.weight" not in named
    pad = next((options[name] for name in ("pad_token_id", "pad") if options.get(name) is not None), 0)
    for side, kind in (("encoder", "source"), ("decoder", "target")):
        sizes[f"max_{kind}_positions"] = named[f"{side}.embed_positions.weight"].shape[0] - 1 - pad
        sizes[f"{side}_layers"] = max(layer_numbers(named, f"{side}.layers."), default=-1) + 1
        sizes[f"{side}_ffn_embed_dim"] = named[f"{side}.layers.0.fc1.weight"].shape[0]
    return sizes


def _join_tables(converted: Tensors, config: Any, written: bool = False) -> None:
    """Add the tied copies, and refuse tables that differ; `written`: a checkpoint of ours, which has one of each."""
    names = (ENCODER_TABLE, DECODER_TABLE, SHARED_TABLE)
    tables = [converted[name] for name in names if name in converted]
    if config.share_encoder_decoder_embeddings and tables and (written or len(tables) > 1):
        if not all(table.shape == tables[0].shape and torch.equal(table, tables[0]) for table in tables):
            raise ValueError(
                "`share_encoder_decoder_embeddings` (fairseq's `share_all_embeddings`) must be false: the file's "
                "`encoder.embed_tokens.weight` and `decoder.embed_tokens.weight` differ."
            )
        converted |= dict.fromkeys(names, tables[0])
    if not config.tie_word_embeddings:
        if "lm_head.weight" not in converted:
            raise ValueError(
                "`tie_word_embeddings` (fairseq's `share_decoder_input_output_embed`) must be true: the file has no "
                "output matrix `decoder.embed_out`."
            )
    elif "lm_head.weight" in converted and not written:
        raise ValueError(
            "`tie_word_embeddings` (fairseq's `share_decoder_input_output_embed`) must be false: the file has an "
            "output matrix of its own, `decoder.embed_out`."
        )
    elif DECODER_TABLE in converted:
        converted.setdefault("lm_head.weight", converted[DECODER_TABLE])


LAYOUT = MassLayout()
globals().update(functions_of(LAYOUT))
