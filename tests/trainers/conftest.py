"""A tokenizer and documents for small runs."""

import pytest
from datasets.utils.logging import disable_progress_bar

from hf_ptm_ext.data import embedded_corpus, train_wordpiece

disable_progress_bar()


@pytest.fixture(scope="session")
def documents():
    return embedded_corpus("en")[:60]


@pytest.fixture(scope="session")
def tokenizer(documents):
    return train_wordpiece(documents, 300, model_max_length=64)
