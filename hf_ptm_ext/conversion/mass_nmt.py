"""MASS-NMT checkpoints of microsoft/MASS (MASS-unsupNMT): XLM's names <-> ours, its options and its dictionary.

The original's file is a dict of two state dicts (`encoder`, `decoder`), `params` and the dictionary (`dico_word2id`).
What has to be done: `module.` prefixes, older files without `attention_setting`, XLM's names, the cross-attention that
has parts per language, and projections tied to the embeddings.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..files import read_json
from ..models.canonical.texts_canonical import text_lines
from ..models.mass_nmt.configuration_mass_nmt import MassNmtConfig
from .files import beside, name_some
from .layout import Layout, by_our_names, check_weights, layer_numbers, size_of
from .options import check_options, made_config, read_fields
from .report import Conversion
from .xlm_vocabulary import original_word, read_codes, read_dictionary, tokenizer_files

Tensors = dict[str, torch.Tensor]

PARTS = ("encoder", "decoder")
PIPELINE_TAG = "translation"
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
PROJECTIONS = {"q_lin": "q_proj", "k_lin": "k_proj", "v_lin": "v_proj", "out_lin": "out_proj"}
EMBEDDINGS = {
    "embeddings": "embed_tokens",
    "position_embeddings": "embed_positions",
    "lang_embeddings": "embed_languages",
    "layer_norm_emb": "layernorm_embedding",
}
LAYER_PARTS = {
    "layer_norm1": "self_attn_layer_norm",
    "layer_norm15": "encoder_attn_layer_norm",
    "layer_norm2": "final_layer_norm",
}
# Our name -> the original's, for what is not in encoder or decoder here.
HEADS = {
    "lm_head.weight": "decoder.pred_layer.proj.weight",
    "lm_head.bias": "decoder.pred_layer.proj.bias",
    "encoder_lm_bias": "encoder.pred_layer.proj.bias",
}
ENCODER_PROJECTION = "encoder.pred_layer.proj.weight"


def _model(config: MassNmtConfig) -> nn.Module:
    from ..models.mass_nmt.modeling_mass_nmt import MassNmtForConditionalGeneration

    return MassNmtForConditionalGeneration(config)


LAYOUT = Layout(
    title="MASS-NMT",
    model=_model,
    foreign="Names that no MASS-NMT model reads",
    hint="The config has no place for them: check `n_langs` and `attention_setting`.",
    stacks=(("model.encoder.layers", "encoder_layers"), ("model.decoder.layers", "decoder_layers")),
    dimensions=(
        (r".*(embed_tokens|lm_head)\.weight|lm_head\.bias|encoder_lm_bias", 0, "vocab_size"),
        (r".*embed_positions\.weight", 0, "max_position_embeddings"),
        (r".*embed_languages\.weight", 0, "n_langs"),
        (r".*fc1\.(weight|bias)", 0, "encoder_ffn_dim"),
        (r".*", -1, "d_model"),
    ),
    parts=(),
    needs={},
    tied={"lm_head.weight": "model.decoder.embed_tokens.weight"},
    optional="^encoder_lm_bias$",
    field_names={ours: f"`{name}` (`{ours}`)" for name, ours in FIELDS.items()},
    example="encoder.attentions.0.q_lin.weight",
    original_name=lambda name, config, names: original_name(name, config),
)


def convert_config(original: Mapping[str, Any]) -> MassNmtConfig:
    """Read the original's options (`params` of its files).

    Args:
        original: the options; those that are not about the model are ignored. Where they lack one the original's
            default holds: 6 decoder layers (an option of its own, not `n_layers`), feed-forward layers of 4 `emb_dim`,
            512 positions, `attention_setting` v1.

    Returns:
        The configuration.

    Raises:
        ValueError: the options name what this family is not (adaptive softmax), or lack a size.

    Example:
        >>> config = convert_config({"n_words": 60, "emb_dim": 32, "n_layers": 3, "n_heads": 4, "n_langs": 2})
        >>> config.encoder_layers, config.decoder_layers, config.encoder_ffn_dim
        (3, 6, 128)
    """
    check_options(original)
    absent = [name for name in ("n_words", "emb_dim", "n_layers", "n_heads") if original.get(name) is None]
    if absent:
        raise ValueError(f"`params` must have the sizes of the model; it lacks {name_some(absent)}.")
    if original.get("asm"):
        raise ValueError("`asm` must be False: the adaptive softmax of XLM has no counterpart here.")
    found = read_fields(original, tuple(FIELDS), ())
    fields = {FIELDS[name]: value for name, value in found.items()}
    fields["encoder_attention_heads"] = fields["decoder_attention_heads"] = original["n_heads"]
    fields["encoder_ffn_dim"] = fields["decoder_ffn_dim"] = original.get("ffn_dim") or 4 * original["emb_dim"]
    fields["activation_function"] = "gelu" if original.get("gelu_activation", True) else "relu"
    if "eos_token_id" in fields:
        fields["forced_eos_token_id"] = fields["eos_token_id"]
    if fields.get("id2lang") is not None and fields.get("lang2id") is not None:
        del fields["id2lang"]
    return made_config(MassNmtConfig, fields, "MASS-NMT")


def convert_state_dict(original: Mapping[str, Any], config: MassNmtConfig) -> Tensors:
    """Rename the original's tensors.

    Args:
        original: `encoder.` and `decoder.` keys, or the two state dicts under `encoder` and `decoder`; with or without
            `module.`.
        config: decides the sizes.

    Returns:
        The state dict of `MassNmtForConditionalGeneration`, the tied projection included.

    Raises:
        ValueError: layers, languages or sizes that do not fit the config, a missing tensor, or names that nothing
            reads; the message names them.
    """
    flat = flattened(original)
    check_weights(flat)
    renamed = {name: our_name(name, config) for name in flat if name != ENCODER_PROJECTION}
    unknown = sorted(name for name, ours in renamed.items() if ours is None)
    if unknown:
        raise ValueError(f"{LAYOUT.foreign}: {name_some(unknown)}. {LAYOUT.hint}")
    words, projection = flat.get("encoder.embeddings.weight"), flat.get(ENCODER_PROJECTION)
    tied = config.tie_word_embeddings and words is not None
    if tied and projection is not None and not torch.equal(words, projection):  # type: ignore[arg-type]
        raise ValueError(
            f"`{ENCODER_PROJECTION}` differs from `encoder.embeddings.weight`, to which `share_inout_emb` ties it."
        )
    tensors, sources = by_our_names((ours, name, flat[name]) for name, ours in renamed.items() if ours is not None)
    for part, option, field in (
        ("encoder", "n_layers", "encoder_layers"),
        ("decoder", "n_dec_layers", "decoder_layers"),
    ):
        found = len(layer_numbers(tensors, f"model.{part}.layers."))
        if found != getattr(config, field):
            raise ValueError(
                f"`{option}` (`{field}`) is {getattr(config, field)} and the file has {found} layers in its {part}: "
                "correct the config."
            )
    return LAYOUT.check(tensors, sources, config)


def revert_state_dict(ours: Mapping[str, torch.Tensor], config: MassNmtConfig) -> Tensors:
    """Give back the original's names.

    Args:
        ours: a state dict of `MassNmtForConditionalGeneration`.
        config: its configuration.

    Returns:
        `encoder.` and `decoder.` keys; projections tied to the embeddings are left out.

    Raises:
        ValueError: weights are missing, or are none of a MASS-NMT model with this config.
    """
    LAYOUT.check_ours(ours, config)
    tensors: Tensors = {}
    for name, value in ours.items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        tensors[original_name(name, config)] = value
    return tensors


def convert_checkpoint(original: Mapping[str, Any], options: Mapping[str, Any]) -> Conversion:
    """Convert a checkpoint as it was found.

    Args:
        original: as for `convert_state_dict`.
        options: as for `convert_config`; the number of positions and an absent `n_dec_layers` are seen from the file.

    Returns:
        Configuration, tensors without tied copies, and report.

    Raises:
        ValueError: as `convert_config` and `convert_state_dict`.
    """
    flat = flattened(original)
    seen = {}
    positions = size_of(flat, "encoder.position_embeddings.weight")
    if positions is not None:
        seen["max_positions"] = positions
    layers = layer_numbers(flat, "decoder.attentions.")
    if layers:
        seen["n_dec_layers"] = len(layers)
    config = convert_config({**seen, **{name: value for name, value in options.items() if value is not None}})
    tensors = convert_state_dict(flat, config)
    dropped = {}
    if ENCODER_PROJECTION in flat:
        dropped[ENCODER_PROJECTION] = (
            "tied to `encoder.embeddings.weight`"
            if config.tie_word_embeddings
            else "the encoder predicts nothing here"
        )
    tied = HEADS["lm_head.weight"]
    if config.tie_word_embeddings and tied in flat:
        dropped[tied] = "tied to `decoder.embeddings.weight`"
    prefixed = sum("module." in name for name in flat_names(original))
    return Conversion(
        config=config,
        tensors={
            name: value
            for name, value in tensors.items()
            if name != "lm_head.weight" or not config.tie_word_embeddings
        },
        architecture="MassNmtForConditionalGeneration",
        renamed={"XLM's names": len(tensors)} | ({"prefix `module.` taken off": prefixed} if prefixed else {}),
        dropped=dropped,
        assumed={} if HEADS["encoder_lm_bias"] in flat else {"encoder_lm_bias": "zeros, which no model reads"},
    )


def revert_checkpoint(
    ours: Mapping[str, torch.Tensor], config: MassNmtConfig
) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """A checkpoint of ours as the reference code reads it.

    Args:
        ours: tensors as `MassNmtForConditionalGeneration` saved them.
        config: their configuration.

    Returns:
        The state dict with `encoder.` and `decoder.` keys, projections tied to the embeddings included, and the
        options.

    Raises:
        ValueError: the checkpoint has no vocabulary projection, or sizes that the original cannot have.
    """
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
    tensors = revert_state_dict(ours, config)
    if config.tie_word_embeddings:
        for part in PARTS:
            tensors[f"{part}.pred_layer.proj.weight"] = tensors[f"{part}.embeddings.weight"]
    options = {name: getattr(config, field) for name, field in FIELDS.items()}
    options |= {
        "n_heads": config.encoder_attention_heads,
        "ffn_dim": config.encoder_ffn_dim,
        "gelu_activation": config.activation_function == "gelu",
    }
    return tensors, options


def tokenizer_from(
    words: Mapping[str, int],
    config: MassNmtConfig,
    vocab: Path | None = None,
    codes: Path | None = None,
    lower_case: bool = False,
) -> tuple[dict[str, str], list[str]]:
    """The tokenizer's files, as far as the original's are there.

    Args:
        words: the dictionary inside the checkpoint, empty if it has none.
        config: the converted configuration.
        vocab: file of the dictionary, used instead of the checkpoint's.
        codes: file of the BPE codes.
        lower_case: whether the text was lower-cased and lost its accents.

    Returns:
        File name -> text, none without dictionary or codes, and a line for the report.

    Raises:
        ValueError: a file is not what it should be, or dictionary and model differ in size.
        FileNotFoundError: a file does not exist.
    """
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
    folder: Path, tensors: Mapping[str, torch.Tensor], options: Mapping[str, Any], source: Path
) -> None:
    """Write the original's file, and its codes if our folder has a tokenizer.

    Args:
        folder: where to write `model.pth` and `codes`.
        tensors: as `revert_checkpoint` gives them.
        options: likewise.
        source: our folder. Counts of words are not in it: those of the dictionary are 0.
    """
    halves = {
        part: {name.removeprefix(f"{part}."): value for name, value in tensors.items() if name.startswith(f"{part}.")}
        for part in PARTS
    }
    content: dict[str, Any] = {**halves, "params": dict(options)}
    if (file := beside(source, ("vocab.json",))) is not None:
        vocabulary = read_json(file)
        words = {original_word(word): number for word, number in sorted(vocabulary.items(), key=lambda item: item[1])}
        content |= {
            "dico_id2word": {number: word for word, number in words.items()},
            "dico_word2id": words,
            "dico_counts": dict.fromkeys(words, 0),
        }
    torch.save(content, folder / "model.pth")
    if (file := beside(source, ("merges.txt",))) is not None:
        merges = [line for line in text_lines(file) if line.strip()]
        with open(folder / "codes", "w", encoding="utf-8", newline="\n") as codes:
            codes.write("".join(f"{merge} 0\n" for merge in merges))


def flat_names(original: Mapping[str, Any]) -> list[str]:
    """Names of the tensors as the file has them, those of the two state dicts under `encoder.` and `decoder.`."""
    names = []
    for name, value in original.items():
        names += [f"{name}.{inner}" for inner in value] if isinstance(value, Mapping) else [name]
    return names


def flattened(original: Mapping[str, Any]) -> Tensors:
    """The tensors under `encoder.` and `decoder.`, without `module.`.

    Args:
        original: flat, or with the two state dicts inside.

    Returns:
        One state dict.

    Raises:
        ValueError: there is no encoder or no decoder.
    """
    tensors: Tensors = {}
    for name, value in original.items():
        if isinstance(value, Mapping):
            if name in PARTS:
                tensors |= {f"{name}.{inner.removeprefix('module.')}": tensor for inner, tensor in value.items()}
        else:
            part, _, rest = name.removeprefix("module.").partition(".")
            tensors[f"{part}.{rest.removeprefix('module.')}"] = value
    for part in PARTS:
        if not any(name.startswith(f"{part}.") for name in tensors):
            raise ValueError(
                f"The file must hold an `encoder` and a `decoder`, and has no `{part}`; it has "
                f"{name_some(list(original))}. Is it a language model of XLM, which upstream's XLMModel reads?"
            )
    return tensors


def our_name(name: str, config: MassNmtConfig) -> str | None:
    """Our name of a tensor of the original, `None` if it has none."""
    for ours, original in HEADS.items():
        if name == original:
            return ours
    part, _, rest = name.partition(".")
    stem, _, last = rest.rpartition(".")
    base = f"model.{part}"
    if stem in EMBEDDINGS:
        return f"{base}.{EMBEDDINGS[stem]}.{last}"
    match = re.fullmatch(r"(\w+)\.(\d+)(?:\.(.+))?", stem)
    if match is None:
        return None
    kind, number, inner = match.groups()
    layer = f"{base}.layers.{number}"
    if kind in LAYER_PARTS and inner is None:
        return f"{layer}.{LAYER_PARTS[kind]}.{last}"
    if kind == "ffns" and inner in ("lin1", "lin2"):
        return f"{layer}.fc{inner[-1]}.{last}"
    if kind == "attentions" and inner in PROJECTIONS:
        return f"{layer}.self_attn.{PROJECTIONS[inner]}.{last}"
    if kind == "encoder_attn" and inner is not None:
        projection, language = _projection_and_language(inner)
        if projection in PROJECTIONS:
            if language is None and (projection == "out_lin" or config.attention_setting == "v2"):
                language = "0"  # one language: the original has no list
            tail = PROJECTIONS[projection] if language is None else f"{PROJECTIONS[projection]}.{language}"
            return f"{layer}.encoder_attn.{tail}.{last}"
    return None


def _projection_and_language(inner: str) -> tuple[str, str | None]:
    """`out_lin.1` (v1) and `1.out_lin` (v2) to the projection and the language."""
    parts = inner.split(".")
    if len(parts) == 1:
        return inner, None
    first, second = parts[0], ".".join(parts[1:])
    return (second, first) if first.isdigit() else (first, second)


def original_name(name: str, config: MassNmtConfig) -> str:
    """The original's name of a tensor of ours."""
    if name in HEADS:
        return HEADS[name]
    part, _, rest = name.removeprefix("model.").partition(".")
    stem, _, last = rest.rpartition(".")
    for original, ours in EMBEDDINGS.items():
        if stem == ours:
            return f"{part}.{original}.{last}"
    _, number, inner = stem.split(".", 2)
    for original, ours in LAYER_PARTS.items():
        if inner == ours:
            return f"{part}.{original}.{number}.{last}"
    if inner in ("fc1", "fc2"):
        return f"{part}.ffns.{number}.lin{inner[-1]}.{last}"
    attention, projection, *language = inner.split(".")
    original = next(key for key, value in PROJECTIONS.items() if value == projection)
    if attention == "self_attn":
        return f"{part}.attentions.{number}.{original}.{last}"
    if not language:
        tail = original
    elif config.attention_setting == "v1":
        tail = f"{original}.{language[0]}"
    else:
        tail = f"{language[0]}.{original}"
    return f"{part}.encoder_attn.{number}.{tail}.{last}"
