"""Tokenizers of every family, tiny and without network."""

from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import BertTokenizerFast, PreTrainedTokenizerFast
from transformers.models.bert.tokenization_bert_legacy import BertTokenizerLegacy

FIXTURES = Path(__file__).parents[1] / "fixtures"
SPECIAL = {"cls_token": "<s>", "sep_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>", "mask_token": "<mask>"}
TEXT = [
    "the lighthouse keepers reappeared near the harbour",
    "keepers of lighthouses don't sleep, they say",
    "harbours and houses, lights and nights!",
] * 4


@pytest.fixture(scope="session")
def wordpiece():
    lines = (FIXTURES / "vocab.txt").read_text(encoding="utf-8").split("\n")
    return BertTokenizerFast(vocab={piece: i for i, piece in enumerate(lines) if piece}, do_lower_case=True)


@pytest.fixture(scope="session")
def slow_wordpiece():
    tokenizer = BertTokenizerLegacy(str(FIXTURES / "vocab.txt"), do_lower_case=True)
    assert not tokenizer.is_fast
    return tokenizer


@pytest.fixture(scope="session")
def byte_level():
    return PreTrainedTokenizerFast(tokenizer_file=str(FIXTURES / "byte_bpe.json"), **SPECIAL)


def _finish(tokenizer):
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **SPECIAL)


@pytest.fixture(scope="session")
def metaspace():
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    special = ["<s>", "</s>", "<pad>", "<unk>", "<mask>"]
    trainer = trainers.UnigramTrainer(vocab_size=60, special_tokens=special, unk_token="<unk>")
    tokenizer.train_from_iterator(TEXT, trainer)
    return _finish(tokenizer)


@pytest.fixture(scope="session")
def suffixed():
    """XLM and GPT style: "</w>" on the last piece of a word."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    special = ["<s>", "</s>", "<pad>", "<unk>", "<mask>"]
    trainer = trainers.BpeTrainer(vocab_size=80, special_tokens=special, end_of_word_suffix="</w>")
    tokenizer.train_from_iterator(TEXT, trainer)
    return _finish(tokenizer)


@pytest.fixture(scope="session")
def boundless():
    """BPE whose pieces say nothing about words."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    special = ["<s>", "</s>", "<pad>", "<unk>", "<mask>"]
    tokenizer.train_from_iterator(TEXT, trainers.BpeTrainer(vocab_size=60, special_tokens=special))
    return _finish(tokenizer)
