"""More rows for a teacher to tell something of: variants of the training texts, for `hf-ptm-ext distill`."""

import random
from collections.abc import Sequence
from typing import Any

from transformers import AutoModelForMaskedLM

from ..data.augmentation import DistilledBiLstmAugmentation, TinyBertAugmentation
from ..data.word_vectors import load_word_vectors
from .checkpoint_names import tokenizer_of
from .loading import load_model

AT_ONCE = 256


def variants_of(examples: Sequence[Any], data: Any, tokenizer: Any, seed: int, device: Any) -> list[Any]:
    """Variants of classified texts or pairs, each once, by the options of a job; their labels are not told."""
    rows = [(one.text,) if one.pair is None else (one.text, one.pair) for one in examples]
    augmentation: Any
    if data.augment_model is None:
        texts = (text for row in rows for text in row)
        augmentation = DistilledBiLstmAugmentation(tokenizer.mask_token or "[MASK]", variants=data.augment).fit(texts)
    else:
        words = tokenizer_of(data.augment_model, "augment_model")
        model = load_model(AutoModelForMaskedLM, data.augment_model, argument="augment_model", new_head=False)
        vectors = data.augment_vectors_file and load_word_vectors(data.augment_vectors_file)
        augmentation = TinyBertAugmentation(model.to(device), words, vectors, variants=data.augment)
    made: dict[tuple[str, ...], Any] = {}
    for start in range(0, len(rows), AT_ONCE):
        part = rows[start : start + AT_ONCE]
        draws = [random.Random(f"{seed} {start + place}") for place in range(len(part))]
        for one, variants in zip(examples[start:], augmentation.rows(part, draws), strict=False):
            for texts in variants:
                pair = texts[1] if len(texts) > 1 else None
                made.setdefault(texts, one._replace(text=texts[0], pair=pair, label=None))
    return list(made.values())
