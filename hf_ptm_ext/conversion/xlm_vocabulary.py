"""XLM's dictionary and BPE codes <-> the files of upstream's `XLMTokenizer`, which needs the package `sacremoses`.

XLM marks a piece that goes on in the same word (`wo@@ rd`), upstream one that ends it (`wo rd</w>`).
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..models.configuration_mass_nmt import MassNmtConfig
from ..models.texts_core import text_lines

SPECIAL = ("<s>", "</s>", "<pad>", "<unk>", *(f"<special{number}>" for number in range(10)))
TOKENIZER_CONFIG = {
    "tokenizer_class": "XLMTokenizer",
    "bos_token": "</s>",
    "eos_token": "</s>",
    "cls_token": "</s>",
    "sep_token": "</s>",
    "pad_token": "<pad>",
    "unk_token": "<unk>",
    "mask_token": "<special1>",
    "additional_special_tokens": list(SPECIAL[4:]),
}


def read_dictionary(path: Path) -> dict[str, int]:
    """Read the dictionary that fastBPE counted: "piece count" lines, behind 4 + 10 special words."""
    words = {word: number for number, word in enumerate(SPECIAL)}
    for number, line in enumerate(_lines(path), start=1):
        parts = line.split(" ")
        if len(parts) != 2 or not parts[1].isdigit():
            raise ValueError(f'{path}, line {number} must be "piece count", got {line!r}.')
        if parts[0] in words:
            raise ValueError(f"{path}, line {number}: {parts[0]!r} is there twice.")
        words[parts[0]] = len(words)
    return words


def read_codes(path: Path) -> list[str]:
    """Read fastBPE's codes: "left right count" lines."""
    merges = []
    for number, line in enumerate(_lines(path), start=1):
        parts = line.split(" ")
        if number == 1 and line.startswith("#version"):
            continue
        if len(parts) not in (2, 3) or not all(parts):
            raise ValueError(f'{path}, line {number} must be "left right count", got {line!r}.')
        merges.append(" ".join(parts[:2]))
    return merges


def tokenizer_files(
    words: Mapping[str, int], merges: list[str], config: MassNmtConfig, lower_case: bool = False
) -> dict[str, str]:
    """The files of an `XLMTokenizer`."""
    if len(words) != config.vocab_size or sorted(words.values()) != list(range(len(words))):
        raise ValueError(
            f"The dictionary has {len(words)} words and the model `vocab_size` = {config.vocab_size}: they belong to "
            "different models, or the dictionary was cut by other options (`max_vocab`)."
        )
    vocabulary = {upstream_word(word): number for word, number in words.items()}
    if len(vocabulary) != len(words):
        raise ValueError(
            f"Of the {len(words)} words of the dictionary {len(vocabulary)} are left for XLMTokenizer, which marks "
            "ends of words by `</w>`: two are one."
        )
    options: dict[str, Any] = {**TOKENIZER_CONFIG, "do_lowercase_and_remove_accent": lower_case}
    options["model_max_length"] = config.max_position_embeddings
    if config.lang2id is not None and config.id2lang is not None:
        options["lang2id"] = config.lang2id
        options["id2lang"] = {str(number): code for number, code in config.id2lang.items()}
    return {
        "vocab.json": json.dumps(vocabulary, ensure_ascii=False, indent=2) + "\n",
        "merges.txt": "".join(f"{merge}\n" for merge in merges),
        "tokenizer_config.json": json.dumps(options, ensure_ascii=False, indent=2) + "\n",
    }


def upstream_word(word: str) -> str:
    """`wo@@` to `wo`, `rd` to `rd</w>`; special words as they are."""
    if word in SPECIAL:
        return word
    return word[:-2] if word.endswith("@@") else f"{word}</w>"


def original_word(word: str) -> str:
    """The other way."""
    if word in SPECIAL:
        return word
    return re.sub(r"</w>$", "", word) if word.endswith("</w>") else f"{word}@@"


def _lines(path: Path) -> list[str]:
    return [line for line in text_lines(path) if line.strip()]
