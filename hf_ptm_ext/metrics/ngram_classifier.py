"""A bag of n-grams: what a classifier of texts without any pre-training reaches on the same rows."""

from collections.abc import Sequence
from typing import Any


def ngram_classifier(texts: Sequence[str], labels: Sequence[str], language: str = "en", strength: float = 10.0) -> Any:
    """Fit TF-IDF of words (1 to 2) and characters (1 to 4) under a logistic regression, of scikit-learn.

    Args:
        texts: Of the training rows.
        labels: Their classes, at least two.
        language: Characters are taken within words only, in Chinese (`zh...`) across them.
        strength: Inverse of the L2 penalty.

    Returns:
        A fitted classifier; its `predict(texts)` gives classes.

    Examples:
        >>> model = ngram_classifier(["a good film", "a bad film"] * 3, ["1", "0"] * 3)
        >>> model.predict(["so good"]).tolist()
        ['1']
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline, make_union

    characters = "char" if language.startswith("zh") else "char_wb"
    rare = 2 if len(texts) >= 20 else 1  # of so few rows every n-gram is rare
    features = make_union(
        TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True),
        TfidfVectorizer(analyzer=characters, ngram_range=(1, 4), sublinear_tf=True, min_df=rare),
    )
    model = make_pipeline(features, LogisticRegression(C=strength, max_iter=1000))
    return model.fit(list(texts), list(labels))
