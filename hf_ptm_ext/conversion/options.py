"""Options of an original checkpoint and the configuration that is made of them, checked once for every family.

They are looked at before anything is computed with them: sizes that others wrote may be -1, 10**12, strings or lists.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from transformers.activations import ACT2FN

from .files import name_some

Config = TypeVar("Config")

# Least and most of an integer. Beyond 10**8 no width or table is a size, and no product of two overflows below it.
WIDTH, COUNT, LABELS, FROM_ZERO = (1, 10**8), (1, 10**3), (1, 10**6), (0, 10**8)


def _each(names: str, value: Any = None) -> dict[str, Any]:
    return dict.fromkeys(names.split(), value)


# Names of ours, BERT's, fairseq's, XLM's, UER's and K-Adapter's.
INTEGERS: dict[str, tuple[int, int]] = {
    **_each(
        "vocab_size n_words word_vocab_size word_size type_vocab_size segment_vocab hidden_size emb_size emb_dim "
        "d_model encoder_embed_dim decoder_embed_dim embedding_size intra_bottleneck_size intermediate_size "
        "feedforward_size ffn_dim encoder_ffn_dim decoder_ffn_dim encoder_ffn_embed_dim decoder_ffn_embed_dim "
        "ent_hidden_size entity_hidden_size max_position_embeddings max_position max_positions max_source_positions "
        "max_target_positions max_relative_position max_pair_targets pair_positional_embedding_size base_hidden_size "
        "adapter_hidden_size adapter_intermediate_size max_seq_length max_head_positions cell_size projection_dim "
        "char_embedding_dim max_characters_per_token n_characters lstm_size gru_size bi_gru_size target_size "
        "target_vocab_size input_dim hidden_dim word_vec_size rnn_size unit hidden_units target_units "
        "n_words dim_word dim",
        WIDTH,
    ),
    **_each("n_token d_head d_inner", WIDTH),
    **_each("n_layer n_head div_val", COUNT),
    **_each(
        "num_hidden_layers layers_num n_layers n_dec_layers base_layers encoder_layers decoder_layers "
        "adapter_transformer_layers adapter_num_hidden_layers num_attention_heads heads_num n_heads "
        "encoder_attention_heads decoder_attention_heads ent_num_heads entity_num_attention_heads adapter_heads "
        "adapter_num_attention_heads n_langs num_layers layers",
        COUNT,
    ),
    **_each("num_labels labels_num num_relations", LABELS),
    **_each(
        "num_hidden_word_layers adapter_skip_layers first_token_type_id entity_vocab_size pad_token_id pad_id pad "
        "pad_index bos eos eos_and_decoder_start bos_token_id bos_index eos_index mask_index mask_token_id "
        "decoder_start_token_id source_type_id target_type_id n_highway n_negative_samples_batch",
        FROM_ZERO,
    ),
    "mem_len": FROM_ZERO,
}
# Numbers of at least 0 -> the most that they may be.
NUMBERS: dict[str, float] = {
    **_each(
        "initializer_range init_std layer_norm_eps layer_norm_epsilon sbo_loss_weight pair_loss_weight "
        "entity_loss_weight cell_clip proj_clip",
        math.inf,
    ),
    **_each("init_range proj_init_std", math.inf),
    "dropatt": 1.0,
    **_each(
        "hidden_dropout_prob attention_probs_dropout_prob classifier_dropout dropout attention_dropout "
        "activation_dropout relu_dropout label_smoothing",
        1.0,
    ),
}
FACTORS = _each("scaling reduction_factor")
FLAGS = _each(
    "untie_r same_length pre_lnorm tie_weight "
    "no_nsp next_sentence_prediction add_pooling_layer no_vm tie_weights tie_word_embeddings share_all_embeddings "
    "share_decoder_input_output_embed no_scale_embedding encoder_normalize_before decoder_normalize_before asm "
    "gelu_activation share_inout_emb use_lang_emb use_relative_position mh_adapter output_adapter original_ln_before "
    "original_ln_after ln_before ln_after use_skip_connections bidirectional brnn input_feed fix_embed deep"
)
WORDS = _each(
    "model_type model_name base_model_name_or_path arch hidden_act activation_fn activation_function "
    "attention_setting non_linearity activation"
)
LISTS = _each("layer_types fusion_layer_types adapter_list adapters architectures leave_out")
TABLES = _each("lang2id id2lang id2label label2id")
# Number of heads -> the width that it divides.
HEADS = (
    ("num_attention_heads", "hidden_size"),
    ("encoder_attention_heads", "d_model"),
    ("decoder_attention_heads", "d_model"),
    ("entity_num_attention_heads", "entity_hidden_size"),
    ("adapter_num_attention_heads", "adapter_hidden_size"),
)


def check_options(options: Any, names: Iterable[str] | None = None) -> None:
    """Refuse options whose values are none that they can have; only those under `names`, if given, are looked at."""
    if not isinstance(options, Mapping):
        raise TypeError(f"`original` must be a mapping of options, got a {type(options).__name__}.")
    for name in options if names is None else names:
        value = options.get(name)
        rule = None if value is None else _broken_rule(name, value)
        if rule is not None:
            raise ValueError(f"`{name}` must be {rule}, got {_shown(value)}: correct the config.")


def made_config(config_class: Callable[..., Config], fields: Mapping[str, Any], title: str) -> Config:
    """A configuration of fields that were read from an original: whatever its class refuses is one line."""
    check_options(fields)
    try:
        config = config_class(**fields)
    except Exception as error:  # configurations raise what they like: ValueErrors, StrictDataclassErrors, KeyErrors
        if isinstance(error, ValueError) and "\n" not in str(error):
            raise
        raise ValueError(f"The options are none of a {title} model: {' '.join(str(error).split())}") from error
    act = getattr(config, "hidden_act", None)
    if isinstance(act, str) and act not in ACT2FN:
        raise ValueError(f"`hidden_act` must be one of {', '.join(sorted(ACT2FN))}, got {act!r}.")
    for heads, width in HEADS:
        number, size = getattr(config, heads, None), getattr(config, width, None)
        free = hasattr(config, "intra_bottleneck_size") or hasattr(config, "d_head")
        if number and size and size % number and not free:
            raise ValueError(f"`{width}` must be a multiple of `{heads}`, got {size} and {number}.")
    return config


def read_fields(original: Mapping[str, Any], fields: tuple[str, ...], sizes: tuple[str, ...]) -> dict[str, Any]:
    """The fields of an original config that a family reads."""
    check_options(original, fields)
    missing = [name for name in sizes if original.get(name) is None]
    if missing:
        raise ValueError(
            f"The original config must give the sizes of the model; {name_some(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} missing. Pass the config file that belongs to the weights."
        )
    found = {name: original[name] for name in fields if original.get(name) is not None}
    return {name: bool(value) if name in FLAGS else value for name, value in found.items()}


def _broken_rule(name: str, value: Any) -> str | None:
    """What the value of an option must be and is not."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    if name in INTEGERS:
        least, most = INTEGERS[name]
        return None if whole and least <= value <= most else f"an integer from {least} to {most}"
    if name in NUMBERS:
        limit = NUMBERS[name]
        small = value < 10**18 if whole else isinstance(value, float) and math.isfinite(value)
        fits = small and 0 <= value <= limit
        return None if fits else f"a finite number of at least 0{' and at most 1' if limit == 1 else ''}"
    if name in FACTORS:
        items = value.values() if isinstance(value, Mapping) else [value]
        fits = all(isinstance(item, str) or _broken_rule("initializer_range", item) is None for item in items)
        return None if fits else "finite and at least 0, or a word"
    if name in FLAGS:
        return None if isinstance(value, int) and value in (0, 1) else "true or false"
    if name in WORDS:
        return None if isinstance(value, str) else "a word"
    if name in LISTS:
        fits = isinstance(value, list | tuple) and len(value) <= COUNT[1]
        return None if fits and all(isinstance(item, str | int) for item in value) else "a list of words or numbers"
    if name in TABLES:
        fits = isinstance(value, Mapping) and len(value) <= LABELS[1] and _numbers(name, value)
        return None if fits else "a table of names and their numbers"
    return None


def _numbers(name: str, table: Mapping[Any, Any]) -> bool:
    """Whether a table has words on one side and small numbers on the other; JSON's keys are strings."""
    words, numbers = (table.keys(), table.values()) if name.endswith("2id") else (table.values(), table.keys())
    if not all(isinstance(word, str) for word in words):
        return False
    return all(re.fullmatch(r"[0-9]{1,8}", _shown(number).strip("'")) for number in numbers)


def _shown(value: Any) -> str:
    """A value in a message: an integer of thousands of digits, or a long list, is cut."""
    try:
        shown = repr(value)
    except (ValueError, RecursionError):  # thousands of digits, thousands of brackets
        return f"a {type(value).__name__} too long to be shown"
    return shown if len(shown) <= 80 else f"{shown[:80]}..."
