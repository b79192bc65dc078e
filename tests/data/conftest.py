"""One small English and one small Chinese tokenizer for all tests of the data."""

import pytest

from hf_ptm_ext.data import embedded_corpus, train_wordpiece


@pytest.fixture(scope="session")
def english_documents():
    return embedded_corpus("en")[:60]


@pytest.fixture(scope="session")
def chinese_documents():
    return embedded_corpus("zh")[:30]


@pytest.fixture(scope="session")
def english_tokenizer(english_documents):
    return train_wordpiece(english_documents, 600)


@pytest.fixture(scope="session")
def chinese_tokenizer(chinese_documents):
    return train_wordpiece(chinese_documents, 2000)
