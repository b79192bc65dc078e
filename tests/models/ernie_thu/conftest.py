"""Small vocabularies for the processor's tests."""

import json
from pathlib import Path

import pytest
from transformers import BertTokenizerFast

from hf_ptm_ext import EntityVocabulary, ErnieThuProcessor

TESTS = Path(__file__).resolve().parents[2]


def tokenizer_of(pieces, **options):
    return BertTokenizerFast(vocab={piece: index for index, piece in enumerate(pieces)}, **options)


@pytest.fixture(scope="session")
def golden():
    return json.loads((TESTS / "goldens" / "ernie-thu-align-a.json").read_text(encoding="utf-8"))


@pytest.fixture
def reference(golden):
    """The golden's vocabulary and entities, under the reference's alignment."""
    vocabulary = EntityVocabulary.from_entity2id(golden["entity2id"])
    return ErnieThuProcessor(
        tokenizer_of(golden["vocab"]), vocabulary, alignment="reference", on_dropped_entity="ignore"
    )


@pytest.fixture
def processor(golden):
    """The same with our alignment."""
    return ErnieThuProcessor(
        tokenizer_of(golden["vocab"]), EntityVocabulary.from_entity2id(golden["entity2id"]), on_dropped_entity="ignore"
    )


SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
SPAN_PIECES = [*SPECIAL, "mark", "##et", "##ing", "i", "##n", "new", "york", "times", "#", "$", "。"]


@pytest.fixture
def spans_processor():
    """Words of several pieces, and four entities."""
    return ErnieThuProcessor(tokenizer_of(SPAN_PIECES), EntityVocabulary.from_ids(["Q1", "Q2", "Q3", "Q4"]))
