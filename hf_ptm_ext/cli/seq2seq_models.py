"""The model, its languages and the collators of sequence-to-sequence fine-tuning, chosen by the architecture."""

import math
from typing import Any

from transformers import AutoConfig, AutoModelForSeq2SeqLM, DataCollatorForSeq2Seq, PreTrainedConfig

from ..collators import DataCollatorForUniLMGeneration, DataCollatorForUniLMSeq2Seq
from .families import architecture_config, attention, family_class, load_checkpoint, new_config, overrides
from .seq2seq_arguments import (
    DecodingArguments,
    Seq2SeqDataArguments,
    Seq2SeqModelArguments,
    Seq2SeqObjectiveArguments,
)
from .shapes import settle_shapes

UNILM = "unilm"
# Token types 4 and 5 tell source and target.
UNILM_TYPES = 6


def check_model(
    model: Seq2SeqModelArguments, data: Seq2SeqDataArguments, decoding: DecodingArguments
) -> dict[str, int]:
    """Refuse what the model cannot do, before anything is read; what it is fed beside the text."""
    try:
        config = config_of(model)
    except OSError:  # there is none, which loading says; mistakes in the data come first
        return {}
    for field, value in overrides(model, config.to_dict(), type(config).__name__).items():
        setattr(config, field, value)
    if decoding.search not in ("stock", config.model_type):
        raise ValueError(
            f"`search` = {decoding.search} is the beam search of that family, and this is a {config.model_type} "
            "model. Use stock, or the model's own."
        )
    if (model.model_name_or_path or model.config_name) and (config.is_encoder_decoder or config.model_type == UNILM):
        check_lengths(config, data)
    return language_inputs(config, data)


def config_of(model: Seq2SeqModelArguments) -> Any:
    """The config of the checkpoint, of the new model that is named, or of the architecture."""
    name = model.model_name_or_path or model.config_name
    if name is None:
        return architecture_config(model, "unilm or an encoder-decoder of transformers (bart, t5...)")
    if "model_type" not in PreTrainedConfig.get_config_dict(name, revision=model.model_revision)[0]:
        # The original's file.
        cls = family_class(UNILM, "AutoModelForSeq2SeqLM").config_class
        return cls.from_pretrained(name, revision=model.model_revision)
    return AutoConfig.from_pretrained(name, revision=model.model_revision, trust_remote_code=model.trust_remote_code)


def build_model(model: Seq2SeqModelArguments, data: Seq2SeqDataArguments, tokenizer: Any) -> Any:
    """Load or make the model."""
    config, name = config_of(model), model.model_name_or_path
    if name is not None and config.model_type == "bert":
        raise ValueError(
            f"`model_name_or_path` = {name} is a BERT, which has 2 token types and no attention modes: convert it "
            f"with `hf-ptm-ext convert unilm {name} FOLDER`."
        )
    if not config.is_encoder_decoder and config.model_type != UNILM:
        raise ValueError(
            f"`model_type` = {config.model_type} is neither UniLM nor an encoder-decoder, which is what this job "
            "fine-tunes."
        )
    if name is not None and config.model_type == UNILM and config.type_vocab_size < UNILM_TYPES:
        raise ValueError(
            f"`type_vocab_size` of {name} must be at least {UNILM_TYPES} for source and target, got "
            f"{config.type_vocab_size}: extend it with `hf-ptm-ext convert unilm`."
        )
    special = special_tokens(config.model_type, tokenizer)
    if name is not None:
        unilm = config.model_type == UNILM
        cls = family_class(UNILM, "AutoModelForSeq2SeqLM") if unilm else AutoModelForSeq2SeqLM
        built = load_checkpoint(model, cls, tokenizer, **special)
    else:
        fitted = new_config(model, config, tokenizer, data.max_source_length + data.max_target_length, **special)
        built = AutoModelForSeq2SeqLM.from_config(fitted, **attention(model))
    check_lengths(built.config, data)
    return built


def special_tokens(model_type: str, tokenizer: Any) -> dict[str, Any]:
    """What UniLM generates with: the tokenizer's [MASK] and [SEP]."""
    if model_type != UNILM or tokenizer.mask_token_id is None or tokenizer.sep_token_id is None:
        return {}
    return {"mask_token_id": tokenizer.mask_token_id, "eos_token_id": tokenizer.sep_token_id}


def check_lengths(config: Any, data: Seq2SeqDataArguments) -> None:
    """Refuse lengths that the position table does not have, before anything is trained."""
    positions = getattr(config, "max_position_embeddings", None)
    # MASS may have tables of two lengths.
    tables = {
        "max_source_length": getattr(config, "max_source_positions", None) or positions,
        "max_target_length": getattr(config, "max_target_positions", None) or positions,
    }
    needed = {"max_source_length": data.max_source_length, "max_target_length": data.max_target_length}
    if not config.is_encoder_decoder:
        needed = {"max_source_length + max_target_length": sum(needed.values())}
    for names, tokens in needed.items():
        limit = tables.get(names, positions)
        if limit is not None and tokens > limit:
            raise ValueError(
                f"`{names}` = {tokens} must not exceed the model's `max_position_embeddings` = {limit}. Lower it, or "
                "give the model more positions (`hf-ptm-ext convert unilm` extends a table by copying)."
            )


# ---- languages: marked by tokenizers (mBART, M2M100, NLLB, PLBart), or fed to the model by number (MASS-NMT) ----


def language_inputs(config: Any, data: Seq2SeqDataArguments) -> dict[str, int]:
    """What a model with numbered languages is fed beside the text."""
    number = getattr(config, "n_langs", 1)
    if number == 1 or not config.is_encoder_decoder:
        return {}
    known = getattr(config, "lang2id", None) or {str(each): each for each in range(number)}
    for name in ("source_lang", "target_lang"):
        if getattr(data, name) not in known:
            raise ValueError(
                f"`{name}` must be a language of the model ({', '.join(known)}), got {getattr(data, name)}: name both "
                "languages."
            )
    return {"langs": known[data.source_lang], "decoder_langs": known[data.target_lang]}


def set_languages(tokenizer: Any, data: Seq2SeqDataArguments, inputs: dict[str, int]) -> None:
    """Tell a multilingual tokenizer source and target language; with its default texts would be marked wrongly."""
    named = {"source_lang": data.source_lang, "target_lang": data.target_lang}
    if not hasattr(tokenizer, "src_lang"):
        if not inputs and (given := [name for name, code in named.items() if code is not None]):
            raise ValueError(
                f"`{given[0]}` = {named[given[0]]} is for multilingual models, and {type(tokenizer).__name__} marks "
                "no language. Leave it out."
            )
        return
    for name, code in named.items():
        if code is None or language_id(tokenizer, code) is None:
            raise ValueError(
                f"`{name}` must be a language that {type(tokenizer).__name__} marks, got {code}. Name both languages: "
                f"{', '.join(languages(tokenizer)[:12])}, ..."
            )
    tokenizer.src_lang, tokenizer.tgt_lang = data.source_lang, data.target_lang
    tokenizer.init_kwargs |= {"src_lang": data.source_lang, "tgt_lang": data.target_lang}  # what is saved


def set_target_language(model: Any, tokenizer: Any, inputs: dict[str, int]) -> None:
    """Let a model write the target language, in training, here and once it is saved."""
    for name, number in zip(("source_lang", "target_lang"), inputs.values(), strict=False):
        setattr(model.generation_config, name, (model.config.id2lang or {}).get(number, number))
        model.generation_config._from_model_config = False  # of one that is, upstream loads its own fields alone
    if not hasattr(tokenizer, "src_lang"):
        return
    target = language_id(tokenizer, tokenizer.tgt_lang)
    if model.config.model_type == "mbart" and type(tokenizer).__name__.startswith("MBartTokenizer"):
        # The mark is what its decoder is fed first; the others are fed the end token and write the mark.
        model.config.decoder_start_token_id = model.generation_config.decoder_start_token_id = target
        target = None
    model.generation_config.forced_bos_token_id = target


def languages(tokenizer: Any) -> list[str]:
    """Codes that a tokenizer knows."""
    known = getattr(tokenizer, "lang_code_to_id", None)
    special = [token for token in tokenizer.all_special_tokens if len(token) > 3 and "_" in token.strip("_")]
    return sorted(known or special)


def language_id(tokenizer: Any, code: str) -> int | None:
    """The token that marks a language, `None` where there is none of its own."""
    if code not in languages(tokenizer):
        return None
    token = tokenizer.get_lang_token(code) if hasattr(tokenizer, "get_lang_token") else code
    return tokenizer.convert_tokens_to_ids(token)


# ---- collators ----


class DecoderInputCollator(DataCollatorForSeq2Seq):
    """Upstream's, also for models that make the decoder's input in `forward` alone (M2M100, NLLB).

    The Trainer takes the labels out of the batch for a smoothed loss, and these would be fed nothing then. Upstream
    pads labels to the multiple of the inputs; behind `longest_target` all is padding.
    """

    longest_target: int | None = None

    def __call__(self, features: Any, return_tensors: str | None = None) -> Any:
        batch = super().__call__(features, return_tensors)
        for name in {"labels", "decoder_input_ids"} & set(batch):
            batch[name] = batch[name][:, : self.longest_target]
        if "decoder_input_ids" not in batch:
            model: Any = self.model
            config = model.config
            fed = batch["labels"].roll(1, dims=1)
            fed[:, 0] = config.decoder_start_token_id
            batch["decoder_input_ids"] = fed.masked_fill(fed == -100, config.pad_token_id)
        return batch


def build_collators(
    data: Seq2SeqDataArguments, objective: Seq2SeqObjectiveArguments, tokenizer: Any, model: Any, args: Any
) -> tuple[Any, Any]:
    """The collators of training and of evaluation."""
    if model.config.is_encoder_decoder:
        longest = max(data.max_source_length, data.max_target_length)
        collator = settle_shapes(DecoderInputCollator(tokenizer, model=model), args, longest)
        collator.longest_target = data.max_target_length
        return collator, collator
    options: dict[str, Any] = {
        "mlm_probability": objective.mlm_probability,
        "max_predictions": objective.max_predictions or None,
        "pseudo_masked": objective.pseudo_masked,
        "target_mask_prob": objective.target_mask_prob,
        "max_len": data.max_source_length + data.max_target_length,
        "source_type_id": model.config.source_type_id,
        "target_type_id": model.config.target_type_id,
    }
    longest = options["max_len"] + (data.max_target_length if objective.pseudo_masked else 0)
    training, evaluation = (
        settle_shapes(DataCollatorForUniLMSeq2Seq(tokenizer, seed=seed, **options), args, longest)
        for seed in (args.seed, args.seed + 1)
    )
    if training.pad_to_multiple_of is not None:  # nor does a shape depend on how much is masked
        most = None if objective.pseudo_masked else options["max_predictions"]
        training.label_budget = 8 * math.ceil(min(most or longest, data.max_target_length) / 8)
    return training, DataCollatorForUniLMGeneration(evaluation)
