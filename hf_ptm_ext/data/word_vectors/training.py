"""Word vectors of a text: word2vec's and fastText's by gensim, GloVe's by this package."""

import inspect
from collections.abc import Iterable, Sequence
from typing import Any

from .glove import GloVe, glove_cooccurrences
from .table import WordVectors

ALGORITHMS = ("skipgram", "cbow", "fasttext", "glove")


def train_word_vectors(
    texts: Iterable[str | Sequence[str]], algorithm: str = "skipgram", **options: Any
) -> WordVectors:
    """Train word vectors.

    Args:
        texts: Lines split at blanks, or lists of words, such as `dataset["words"]`; gone through more than once.
        algorithm: "skipgram", "cbow" and "fasttext" (with n-grams, skip-gram unless `sg=0`) are gensim's
            (`pip install hf-ptm-ext[embeddings]`), "glove" is `GloVe`.
        **options: Of gensim's `Word2Vec` or `FastText` (`vector_size`, `window`, `min_count`, `negative`, `hs`,
            `epochs`, `workers`, `seed`, ...; repeatable with `workers=1` and PYTHONHASHSEED set), or of
            `glove_cooccurrences` and `GloVe`.

    Raises:
        ImportError: gensim is needed and not there.
        TypeError: an option is not the algorithm's.

    Examples:
        >>> vectors = train_word_vectors(["the cat sat", "the dog sat"] * 5, "glove", dim=4, iterations=2, min_count=1)
        >>> vectors.words[:2], vectors.table.shape
        (['sat', 'the'], (4, 4))
    """
    if algorithm not in ALGORITHMS:
        raise ValueError(f"`algorithm` must be one of {', '.join(ALGORITHMS)}, got {algorithm!r}.")
    if isinstance(texts, str):
        raise TypeError(f"`texts` must be lines or lists of words, got one text, {texts[:40]!r}. Give [text].")
    if algorithm == "glove":
        counting = inspect.signature(glove_cooccurrences).parameters
        counted = {name: value for name, value in options.items() if name in counting}
        trainer = GloVe(**{name: value for name, value in options.items() if name not in counting})
        return trainer.fit(glove_cooccurrences(texts, **counted))
    try:
        from gensim.models import FastText, Word2Vec
    except ImportError as error:
        raise ImportError(
            f"Training {algorithm} vectors needs the package `gensim`: `pip install hf-ptm-ext[embeddings]`."
        ) from error
    sentences = [text.split() if isinstance(text, str) else list(text) for text in texts]
    method = FastText if algorithm == "fasttext" else Word2Vec
    try:
        model = method(sentences, **{"sg": int(algorithm != "cbow"), **options})
    except RuntimeError as error:
        raise ValueError(
            f"`texts` have too few words to train on: {len(sentences)} lines, `min_count` = "
            f"{options.get('min_count', 5)} ({error})."
        ) from error
    return WordVectors.of(model.wv)
