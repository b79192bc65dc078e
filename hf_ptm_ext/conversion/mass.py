"""MASS checkpoints of the fairseq variant (microsoft/MASS, MASS-summarization) to ours and back.

The original's names are BART's up to a few:

    encoder.layers.0.self_attn.in_proj_weight   model.encoder.layers.0.self_attn.{q,k,v}_proj.weight   (thirds)
    encoder.emb_layer_norm.weight               model.encoder.layernorm_embedding.weight
    encoder.embed_tokens.weight, decoder.embed_tokens.weight   model.shared.weight and its tied copies
    decoder.embed_out                           lm_head.weight   (untied models)
    encoder.version, decoder.version            dropped

The published pre-trained files are bare state dicts, fine-tuned ones are fairseq checkpoints (`args`, `model`, ...).
What a file does not say is inferred from its tensors; the number of heads cannot be, except for the published sizes.
"""

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..models.canonical.texts_canonical import text_lines
from ..models.mass.configuration_mass import MassConfig
from ..models.mass.inputs_mass import source_limit, target_limit
from .files import name_some
from .layout import Layout, by_our_names, check_weights, layer_numbers
from .options import check_options, made_config
from .report import Conversion

__all__ = [
    "convert_checkpoint",
    "convert_config",
    "convert_state_dict",
    "read_vocabulary",
    "revert_checkpoint",
    "revert_state_dict",
    "vocabulary_options",
    "wordpiece_tokenizer",
]

Tensors = dict[str, torch.Tensor]

# What the command finds by these names: a checkpoint may come without options, the vocabulary is fairseq's or BERT's.
INFERS_SIZES = True
VOCABULARY_FILES = ("dict.txt", "vocab.txt")
PIPELINE_TAG = "summarization"

# fairseq's option -> our field
OPTIONS = {
    "encoder_embed_dim": "d_model",
    "encoder_layers": "encoder_layers",
    "encoder_attention_heads": "encoder_attention_heads",
    "encoder_ffn_embed_dim": "encoder_ffn_dim",
    "decoder_layers": "decoder_layers",
    "decoder_attention_heads": "decoder_attention_heads",
    "decoder_ffn_embed_dim": "decoder_ffn_dim",
    "activation_fn": "activation_function",
    "dropout": "dropout",
    "attention_dropout": "attention_dropout",
    "activation_dropout": "activation_dropout",
    "max_source_positions": "max_source_positions",
    "max_target_positions": "max_target_positions",
    "vocab_size": "vocab_size",
    "label_smoothing": "label_smoothing",
    "pad": "pad_token_id",
    "bos": "bos_token_id",
    "eos": "eos_token_id",
}
# Fields that are read under our own (BART's) names, as in the Hub's configurations.
OWN_FIELDS = (
    "d_model",
    "encoder_ffn_dim",
    "decoder_ffn_dim",
    "activation_function",
    "max_position_embeddings",
    "init_std",
    "layer_norm_eps",
    "scale_embedding",
    "share_encoder_decoder_embeddings",
    "tie_word_embeddings",
    "pad_token_id",
    "bos_token_id",
    "eos_token_id",
    "decoder_start_token_id",
    "classifier_dropout",
    "normalize_before",
    "normalize_embedding",
    "add_final_layer_norm",
)
_BASE = {
    "encoder_embed_dim": 768,
    "encoder_layers": 6,
    "encoder_attention_heads": 12,
    "encoder_ffn_embed_dim": 3072,
    "decoder_layers": 6,
    "decoder_attention_heads": 12,
    "decoder_ffn_embed_dim": 3072,
    "activation_fn": "gelu",
    "dropout": 0.1,
    "attention_dropout": 0.1,
    "activation_dropout": 0.1,
    "share_all_embeddings": True,
}
_MIDDLE = {
    **_BASE,
    "encoder_embed_dim": 1024,
    "encoder_attention_heads": 16,
    "encoder_ffn_embed_dim": 4096,
    "decoder_attention_heads": 16,
    "decoder_ffn_embed_dim": 4096,
}
# The reference's architectures: what an option that a file does not name stands at.
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "transformer_mass_base": _BASE,
    "transformer_mass_middle": _MIDDLE,
    "transformer_mass_big": {**_MIDDLE, "encoder_layers": 12, "decoder_layers": 12},
    "transformer_mass": {
        **_BASE,
        "encoder_embed_dim": 512,
        "encoder_attention_heads": 8,
        "encoder_ffn_embed_dim": 2048,
        "decoder_attention_heads": 8,
        "decoder_ffn_embed_dim": 2048,
        "activation_fn": "relu",
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
        "share_all_embeddings": False,
    },
}
# Width and inner width of the published models -> their number of heads.
PUBLISHED_HEADS = {(768, 3072): 12, (1024, 4096): 16}
# Config field -> token of the dictionary.
SPECIAL_FIELDS = {"pad_token_id": "[PAD]", "bos_token_id": "[CLS]", "eos_token_id": "[SEP]"}
# In the order in which the reference's dictionary appends those that its file lacks.
SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
VERSION = 3.0  # of fairseq's encoder and decoder
PARTS = ("q", "k", "v")
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


def _model(config: MassConfig) -> nn.Module:
    from ..models.mass.modeling_mass import MassForConditionalGeneration

    return MassForConditionalGeneration(config)


LAYOUT = Layout(
    title="MASS",
    model=_model,
    foreign="These keys fit nowhere in MASS",
    blame="correct {0}, or use the vocabulary and the options that belong to the weights",
    stacks=(("model.encoder.layers", "encoder_layers"), ("model.decoder.layers", "decoder_layers")),
    dimensions=(
        (r".*(shared|embed_tokens|lm_head)\.weight", 0, "vocab_size"),
        (r".*(shared|embed_tokens|lm_head)\.weight", 1, "d_model"),
        (r"model\.encoder\.embed_positions\.weight", 0, "max_source_positions"),
        (r"model\.decoder\.embed_positions\.weight", 0, "max_target_positions"),
        (r"model\.encoder\..*fc1\.(weight|bias)", 0, "encoder_ffn_dim"),
        (r"model\.decoder\..*fc1\.(weight|bias)", 0, "decoder_ffn_dim"),
    ),
    parts=(),
    needs={},
    tied={"lm_head.weight": "model.decoder.embed_tokens.weight"},
    example="encoder.layers.0.self_attn.in_proj_weight",
    original_name=lambda name, config, names: _original_name(name),
)


def convert_config(original: Mapping[str, Any]) -> MassConfig:
    """Read the original's options.

    Args:
        original: fairseq's command line (`args`), a golden's `config`, or a configuration under BART's names; special
            ids as `pad`, `bos`, `eos` (or `eos_and_decoder_start`). Options that an `arch` stands for may be left out;
            others are the base model's. What no model reads (seeds, lengths, optimiser) is ignored.

    Returns:
        The configuration.

    Raises:
        ValueError: options that MASS is not made of: sides of different width, layers with LayerNorm in front.

    Example:
        >>> options = {"arch": "transformer_mass_middle", "encoder_layers": 3, "max_source_positions": 64}
        >>> config = convert_config(options)
        >>> config.d_model, config.encoder_layers, config.decoder_layers, config.max_source_positions
        (1024, 3, 6, 64)
    """
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
            f"`encoder_embed_dim` and `decoder_embed_dim` must be equal, got {width} and {other}: MASS has one width."
        )
    for name in ("encoder_normalize_before", "decoder_normalize_before"):
        if options.get(name):
            raise ValueError(f"`{name}` must be false: MASS's layers have LayerNorm behind their blocks.")
    fields = {field: options[name] for name, field in OPTIONS.items() if name in options}
    if "relu_dropout" in options:  # its name before fairseq 0.7
        fields.setdefault("activation_dropout", options["relu_dropout"])
    if "eos_and_decoder_start" in options:
        fields.setdefault("eos_token_id", options["eos_and_decoder_start"])
    if "share_all_embeddings" in options:
        fields["share_encoder_decoder_embeddings"] = bool(options["share_all_embeddings"])
        fields["tie_word_embeddings"] = bool(
            options["share_all_embeddings"] or options.get("share_decoder_input_output_embed")
        )
    elif "share_decoder_input_output_embed" in options:
        fields["share_encoder_decoder_embeddings"] = False
        fields["tie_word_embeddings"] = bool(options["share_decoder_input_output_embed"])
    if "no_scale_embedding" in options:
        fields["scale_embedding"] = not options["no_scale_embedding"]
    fields |= {name: options[name] for name in OWN_FIELDS if name in options}
    if "eos_token_id" in fields:
        fields.setdefault("decoder_start_token_id", fields["eos_token_id"])
    return made_config(MassConfig, _joined_positions(fields), "MASS")


def _joined_positions(fields: dict[str, Any]) -> dict[str, Any]:
    """One field for both sides where they have as many positions."""
    source, target = fields.get("max_source_positions"), fields.get("max_target_positions")
    if source is not None and source == target:
        fields = {**fields, "max_position_embeddings": source}
        del fields["max_source_positions"], fields["max_target_positions"]
    return fields


def convert_state_dict(original: Mapping[str, torch.Tensor], config: MassConfig) -> Tensors:
    """Rename and split the original's tensors.

    Args:
        original: keys as in its file, with or without `module.` in front.
        config: decides sizes and tying.

    Returns:
        The state dict of `MassForConditionalGeneration`, tied copies included.

    Raises:
        ValueError: names that nothing reads, weights that are missing, or sizes that do not fit the config; the
            message names them and the field to blame.

    Example:
        >>> from hf_ptm_ext.models.mass.modeling_mass import MassForConditionalGeneration
        >>> sizes = dict(encoder_layers=1, encoder_ffn_dim=8, decoder_layers=1, decoder_ffn_dim=8, vocab_size=9)
        >>> config = MassConfig(d_model=4, encoder_attention_heads=2, decoder_attention_heads=2, **sizes)
        >>> original = revert_state_dict(MassForConditionalGeneration(config).state_dict(), config)
        >>> original["encoder.layers.0.self_attn.in_proj_weight"].shape
        torch.Size([12, 4])
        >>> convert_state_dict(original, config)["model.encoder.layers.0.self_attn.q_proj.weight"].shape
        torch.Size([4, 4])
    """
    _check_family(original)
    weights = {key: value for key, value in original.items() if not is_no_weight(key)}
    check_weights(weights)
    renamed = ((key, _renamed(key.removeprefix("module."), value)) for key, value in weights.items())
    converted, sources = by_our_names((ours, key, value) for key, parts in renamed for ours, value in parts)
    _join_tables(converted, config)
    return LAYOUT.check(converted, {name: sources.get(name, name) for name in converted}, config)


def revert_state_dict(ours: Mapping[str, torch.Tensor], config: MassConfig) -> Tensors:
    """Give back the original's names.

    Args:
        ours: a state dict of `MassForConditionalGeneration` or of `MassModel`, tied copies included or not.
        config: decides tying.

    Returns:
        The original's state dict, with fairseq's versions.

    Raises:
        ValueError: weights are missing, or are none of a MASS model with this config.
    """
    named = {
        name if name.startswith(("model.", "lm_head.")) else f"model.{name}": value for name, value in ours.items()
    }
    check_weights(named)
    _join_tables(named, config, written=True)
    LAYOUT.check_ours(named, config)
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


def is_no_weight(name: str) -> bool:
    """Whether a key of the file is no weight: a version, or the bias of zeros that other implementations add."""
    return name.endswith((".version", "final_logits_bias"))


def convert_checkpoint(original: Mapping[str, torch.Tensor], options: Mapping[str, Any]) -> Conversion:
    """Convert a checkpoint as it was found.

    Args:
        original: tensors under the file's names.
        options: as for `convert_config`; sizes that they lack are read off the tensors, which also go before what an
            `arch` would stand for.

    Returns:
        Configuration, tensors without tied copies, and report.

    Raises:
        ValueError: a size is neither in the options nor in the tensors (the message names its field), or as
            `convert_state_dict`.
    """
    check_options(options)
    named = {name.removeprefix("module."): value for name, value in original.items()}
    _check_family(named)
    check_weights({name: value for name, value in original.items() if not is_no_weight(name)})
    defaults = ARCHITECTURES.get(options.get("arch") or "", {})
    sizes = _sizes(named, options)
    settings = {**defaults, **sizes, **{name: value for name, value in options.items() if value is not None}}
    settings.pop("arch", None)
    assumed = {}
    for side in ("encoder", "decoder"):
        name = f"{side}_attention_heads"
        if name in options or (settings.get(name) and not sizes["encoder_embed_dim"] % settings[name]):
            continue
        heads = PUBLISHED_HEADS.get((sizes["encoder_embed_dim"], sizes[f"{side}_ffn_embed_dim"]))
        if heads is None:
            raise ValueError(
                f"`{name}` cannot be read off the weights, and neither checkpoint nor configuration has it: write "
                'a JSON file with `{"encoder_attention_heads": ..., "decoder_attention_heads": ...}` and name it by '
                "`--config`."
            )
        settings[name] = heads
        assumed[name] = f"{heads}, as in the published models of this width"
    config = convert_config(settings)
    for field, names in KNOWN_BY_OPTION.items():
        if not any(name in settings for name in names):
            assumed[field] = f"{getattr(config, field)}, as in the published models"
    tensors = convert_state_dict(original, config)
    tied = _tied_copies(config)
    return Conversion(
        config=config,
        tensors={name: value for name, value in tensors.items() if name not in tied},
        architecture="MassForConditionalGeneration",
        renamed=_changes(original),
        dropped={
            name: "no weight: fairseq's version or a bias of zeros"
            for name in original
            if is_no_weight(name.removeprefix("module."))
        },
        assumed=assumed,
    )


def revert_checkpoint(ours: Mapping[str, torch.Tensor], config: MassConfig) -> tuple[Tensors, dict[str, Any]]:
    """A checkpoint of ours as the reference code reads it: a bare state dict, as the published files are.

    Args:
        ours: tensors as one of our classes saved them.
        config: their configuration.

    Returns:
        The state dict and fairseq's options.
    """
    options = {name: getattr(config, field) for name, field in OPTIONS.items()}
    options["max_source_positions"], options["max_target_positions"] = source_limit(config), target_limit(config)
    options["decoder_embed_dim"] = config.d_model
    options["share_all_embeddings"] = config.share_encoder_decoder_embeddings and config.tie_word_embeddings
    options["share_decoder_input_output_embed"] = config.tie_word_embeddings
    for name in ("share_encoder_decoder_embeddings", "tie_word_embeddings"):  # fairseq has no word for each alone
        options[name] = getattr(config, name)
    return revert_state_dict(ours, config), options


def read_vocabulary(path: str | Path) -> dict[str, int]:
    """Read a fairseq `dict.txt`, one `token count` a line, or a `vocab.txt`, one token a line.

    Args:
        path: the file.

    Returns:
        Token -> id, which is its line; special tokens that the file lacks stand behind, as in the reference.

    Raises:
        ValueError: the file is no UTF-8 text, a line has more than a token and a count, or a token is there twice.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "dict.txt"
        ...     _ = path.write_text("[PAD] 1\\n[UNK] 1\\nlight 7\\n", encoding="utf-8")
        ...     vocab = read_vocabulary(path)
        >>> vocab["light"], vocab["[CLS]"], vocab["[MASK]"]
        (2, 3, 5)
    """
    path = Path(path)
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


def vocabulary_options(vocab: Mapping[str, int], options: Mapping[str, Any]) -> dict[str, int]:
    """The options that a vocabulary decides.

    Args:
        vocab: token -> id.
        options: what is known otherwise.

    Returns:
        Special ids for `convert_config`.

    Raises:
        ValueError: `options` have other ids.

    Example:
        >>> vocab = {"[PAD]": 0, "[UNK]": 2, "[CLS]": 3, "[SEP]": 4, "[MASK]": 5}
        >>> vocabulary_options(vocab, {})["eos_token_id"]
        4
    """
    ids = {field: vocab[token] for field, token in SPECIAL_FIELDS.items()}
    for field, value in ids.items():
        other = options.get(field)
        if other is not None and other != value:
            raise ValueError(
                f"`{field}` is {other} in the options and {value} in the vocabulary: use those that belong together."
            )
    return ids


def wordpiece_tokenizer(vocab: Mapping[str, int], config: MassConfig, do_lower_case: bool) -> Any:
    """The tokenizer of the reference: BERT's pieces and one [SEP] behind each text, no [CLS].

    Args:
        vocab: token -> id.
        config: has the number of positions of a source.
        do_lower_case: whether texts are lower-cased and accents taken off.

    Returns:
        A fast tokenizer.

    Example:
        >>> pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "light", "##house"]
        >>> vocab = {piece: number for number, piece in enumerate(pieces)}
        >>> tokenizer = wordpiece_tokenizer(vocab, MassConfig(), do_lower_case=True)
        >>> ids = tokenizer("Lighthouse")["input_ids"]
        >>> ids, tokenizer.decode(ids, skip_special_tokens=True)
        ([5, 6, 3], 'lighthouse')
    """
    from tokenizers.processors import TemplateProcessing
    from transformers import BertTokenizer, PreTrainedTokenizerFast

    backend = BertTokenizer(vocab=dict(vocab), do_lower_case=do_lower_case).backend_tokenizer
    backend.post_processor = TemplateProcessing(
        single="$A [SEP]", pair="$A [SEP] $B [SEP]", special_tokens=[("[SEP]", vocab["[SEP]"])]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_max_length=source_limit(config),
        model_input_names=["input_ids", "attention_mask"],
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        bos_token="[CLS]",
        eos_token="[SEP]",
    )


def _check_family(original: Mapping[str, torch.Tensor]) -> None:
    """Say whose a checkpoint is that is none of this variant."""
    names = [name.removeprefix("module.") for name in original]
    if any(name.startswith(("encoders.", "decoders.")) for name in names):
        raise ValueError(
            "The file is of the supervised translation code (names like `encoders.LANGUAGE.layers...`), whose layers "
            "and embeddings are others: it cannot be converted."
        )
    if any(".layer_norm15." in name or name.startswith(("layer_norm15.", "lang_embeddings.")) for name in names):
        raise ValueError(
            "The file is of the unsupervised translation code (XLM's names): use `hf-ptm-ext convert mass_nmt`."
        )
    if not any(name.startswith("encoder.layers.") for name in names):
        raise ValueError(
            "The file has no encoder layer: expected names like `encoder.layers.0.self_attn.in_proj_weight`, got "
            f"{name_some(sorted(original))}."
        )


def _sizes(named: Mapping[str, torch.Tensor], options: Mapping[str, Any]) -> dict[str, Any]:
    """What the tensors say, under fairseq's names."""
    missing = [name for name in NEEDED if name not in named]
    if missing:
        raise ValueError(f"The file lacks weights: {name_some(missing)}. It must hold the whole model.")
    flat = [f"{name} {tuple(named[name].shape)}" for name in NEEDED if named[name].ndim != 2]
    if flat:
        raise ValueError(f"These weights must be matrices: {name_some(flat)}.")
    sizes: dict[str, Any] = {}
    table, other = (named[f"{side}.embed_tokens.weight"] for side in ("encoder", "decoder"))
    sizes["vocab_size"], sizes["encoder_embed_dim"] = table.shape
    untied = "decoder.embed_out" in named
    sizes["share_encoder_decoder_embeddings"] = table.shape == other.shape and torch.equal(table, other)
    sizes["tie_word_embeddings"] = not untied
    pad = next((options[name] for name in ("pad_token_id", "pad") if options.get(name) is not None), 0)
    for side, kind in (("encoder", "source"), ("decoder", "target")):
        sizes[f"max_{kind}_positions"] = named[f"{side}.embed_positions.weight"].shape[0] - 1 - pad
        sizes[f"{side}_layers"] = max(layer_numbers(named, f"{side}.layers."), default=-1) + 1
        sizes[f"{side}_ffn_embed_dim"] = named[f"{side}.layers.0.fc1.weight"].shape[0]
    return sizes


def _renamed(name: str, value: torch.Tensor) -> list[tuple[str, torch.Tensor]]:
    """Our name, or names, of one tensor of the original."""
    if name == "decoder.embed_out":
        return [("lm_head.weight", value)]
    packed = re.fullmatch(r"(.+_attn)\.in_proj_(weight|bias)", name)
    if packed is not None and value.ndim and value.shape[0] % 3 == 0:
        thirds = zip(PARTS, value.chunk(3), strict=True)
        return [(f"model.{packed[1]}.{part}_proj.{packed[2]}", third) for part, third in thirds]
    return [("model." + name.replace(".emb_layer_norm.", ".layernorm_embedding."), value)]


def _original_name(name: str) -> str:
    """The original's name of one of our weights."""
    name = re.sub(r"_attn\.[qkv]_proj\.", "_attn.in_proj_", name.removeprefix("model."))
    return name.replace(".layernorm_embedding.", ".emb_layer_norm.").replace("lm_head.weight", "decoder.embed_out")


def _join_tables(converted: Tensors, config: MassConfig, written: bool = False) -> None:
    """Add the tied copies, and refuse tables that differ; `written`: a checkpoint of ours, which has one of each."""
    shared = "model.shared.weight"
    encoder, decoder = (f"model.{side}.embed_tokens.weight" for side in ("encoder", "decoder"))
    tables = [converted[name] for name in (encoder, decoder, shared) if name in converted]
    if config.share_encoder_decoder_embeddings and tables and (written or len(tables) > 1):
        if not all(table.shape == tables[0].shape and torch.equal(table, tables[0]) for table in tables):
            raise ValueError(
                "`share_encoder_decoder_embeddings` (fairseq's `share_all_embeddings`) must be false: the file's "
                "`encoder.embed_tokens.weight` and `decoder.embed_tokens.weight` differ."
            )
        converted |= dict.fromkeys((shared, encoder, decoder), tables[0])
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
    elif decoder in converted:
        converted.setdefault("lm_head.weight", converted[decoder])


def _tied_copies(config: MassConfig) -> set[str]:
    """Names that are not written: their tensor is there under another one."""
    tied = {"lm_head.weight"} if config.tie_word_embeddings else set()
    if config.share_encoder_decoder_embeddings:
        tied |= {"model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"}
    return tied


def _changes(original: Mapping[str, torch.Tensor]) -> dict[str, int]:
    """Kinds of change of a name, with the number of keys."""
    counts: Counter[str] = Counter()
    for key in original:
        name = key.removeprefix("module.")
        if is_no_weight(name):
            continue
        counts["prefix `module.` taken off"] += key != name
        counts["packed projections split in three"] += ".in_proj_" in name
        counts["`emb_layer_norm` to `layernorm_embedding`"] += ".emb_layer_norm." in name
    return {kind: number for kind, number in counts.items() if number}
