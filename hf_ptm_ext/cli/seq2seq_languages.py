"""The languages of a translation, for tokenizers that mark them (mBART, mBART-50, M2M100, NLLB, PLBart) and for models
that are given their numbers (MASS-NMT)."""

from typing import Any

from .seq2seq_arguments import Seq2SeqDataArguments


def language_inputs(config: Any, data: Seq2SeqDataArguments) -> dict[str, int]:
    """What a model with numbered languages is fed beside the text.

    Args:
        config: the model's; `lang2id` names its `n_langs` languages, their numbers do where there are no names.
        data: has `source_lang` and `target_lang`.

    Returns:
        `langs` and `decoder_langs`; nothing for other models.

    Raises:
        ValueError: a language is missing or unknown.
    """
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
    """Tell a multilingual tokenizer source and target language; with its default texts would be marked wrongly.

    Args:
        tokenizer: any.
        data: has `source_lang` and `target_lang`.
        inputs: of `language_inputs`.

    Raises:
        ValueError: it needs languages and has none, or the other way round, or it does not know one.
    """
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
    """Let a model write the target language, in training, here and once it is saved.

    Args:
        model: an encoder-decoder; begins its texts with the mark of the language, or is given its number.
        tokenizer: after `set_languages`.
        inputs: of `language_inputs`.
    """
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
