"""Tokenising documents, special tokens, and training a WordPiece tokenizer."""

import json
import subprocess
import sys

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoTokenizer, CanineTokenizer, PreTrainedTokenizerFast

from hf_ptm_ext.data import (
    BlockPacker,
    FileDocuments,
    embedded_corpus,
    encode_documents,
    special_tokens_of,
    train_wordpiece,
)
from hf_ptm_ext.data.tokenization import SPECIAL_TOKENS


def byte_level_tokenizer():
    """A RoBERTa-like tokenizer: <s> a </s>, and <s> a </s></s> b </s> for pairs."""
    vocab = {"<s>": 0, "<pad>": 1, "</s>": 2, **{c: n + 3 for n, c in enumerate(pre_tokenizers.ByteLevel.alphabet())}}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    return PreTrainedTokenizerFast(tokenizer_object=backend, cls_token="<s>", sep_token="</s>", pad_token="<pad>")


@pytest.mark.parametrize("language", ["english", "chinese"])
def test_special_tokens_around_ids_are_those_of_the_tokenizer(request, language):
    tokenizer = request.getfixturevalue(f"{language}_tokenizer")
    documents = request.getfixturevalue(f"{language}_documents")
    special_tokens = special_tokens_of(tokenizer)
    (first, second), *_ = encode_documents([documents[0][:2]], tokenizer)
    assert special_tokens.single(first)["input_ids"] == tokenizer(documents[0][0])["input_ids"]
    pair = tokenizer(documents[0][0], documents[0][1])
    assert special_tokens.pair(first, second) == {
        "input_ids": pair["input_ids"],
        "token_type_ids": pair["token_type_ids"],
    }
    assert (special_tokens.single_count, special_tokens.pair_count) == (2, 3)


def test_slow_tokenizers_work_too():
    tokenizer = CanineTokenizer()
    ((first, second),) = encode_documents([["One.", "中文"]], tokenizer)
    assert first == [ord(character) for character in "One."]
    assert special_tokens_of(tokenizer).pair(first, second)["input_ids"] == tokenizer("One.", "中文")["input_ids"]


def test_byte_level_tokenizers_have_two_separators_in_a_pair():
    special_tokens = special_tokens_of(byte_level_tokenizer())
    assert (special_tokens.pair_prefix, special_tokens.pair_middle, special_tokens.pair_suffix) == ([0], [2, 2], [2])


@pytest.mark.parametrize("batch_size", [1, 7, 1000])
def test_documents_keep_their_sentences_whatever_the_batch_size(english_documents, english_tokenizer, batch_size):
    encoded = list(encode_documents(iter(english_documents), english_tokenizer, batch_size))
    assert [len(document) for document in encoded] == [len(document) for document in english_documents]
    assert encoded[7][2] == english_tokenizer(english_documents[7][2], add_special_tokens=False)["input_ids"]


def test_documents_without_tokens_stay_as_empty_documents(english_tokenizer):
    assert list(encode_documents([[], ["\u200b"], ["a"]], english_tokenizer))[:2] == [[], []]


@pytest.mark.parametrize("text", ["word " * 200_000, "x" * 1_000_000, "中文。" * 300_000])
def test_a_line_of_a_million_characters_becomes_blocks(chinese_tokenizer, text):
    (document,) = encode_documents([[text]], chinese_tokenizer)
    blocks = BlockPacker(510).add(document)
    assert sum(map(len, blocks)) == len(document[0])
    assert max(map(len, blocks)) <= 510


@pytest.mark.parametrize(("language", "vocab_size"), [("en", 500), ("en", 3000), ("zh", 800), ("zh", 4500)])
def test_the_vocabulary_has_the_asked_size_and_standard_special_tokens(language, vocab_size):
    tokenizer = train_wordpiece(embedded_corpus(language)[:300], vocab_size)
    pieces = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().get)
    assert tuple(pieces[:5]) == SPECIAL_TOKENS
    assert vocab_size - 2 <= len(tokenizer) <= vocab_size
    assert (tokenizer.mask_token_id, tokenizer.pad_token_id) == (4, 0)


def test_chinese_characters_are_words_of_their_own_and_none_of_a_large_vocabulary_is_unknown():
    documents = embedded_corpus("zh")[:100]
    tokenizer = train_wordpiece(documents, 5000)
    assert tokenizer.tokenize("香港电影") == ["香", "港", "电", "影"]
    encoded = encode_documents(documents, tokenizer)
    assert not any(tokenizer.unk_token_id in sentence for document in encoded for sentence in document)


def test_case_is_kept_if_asked(english_documents):
    text = "We propose"
    cased = train_wordpiece(english_documents, 600, lowercase=False)
    uncased = train_wordpiece(english_documents, 600)
    assert cased.convert_tokens_to_string(cased.tokenize(text)) == text
    assert uncased.convert_tokens_to_string(uncased.tokenize(text)) == text.lower()


def test_the_saved_tokenizer_loads_as_an_auto_tokenizer(tmp_path, english_tokenizer, english_documents):
    english_tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert type(loaded) is type(english_tokenizer)
    assert loaded.model_max_length == 512
    assert loaded(english_documents[0])["input_ids"] == english_tokenizer(english_documents[0])["input_ids"]


def test_another_process_trains_the_same_ids(english_tokenizer):
    code = (
        "import json\n"
        "from hf_ptm_ext.data import embedded_corpus, train_wordpiece\n"
        "print(json.dumps(train_wordpiece(embedded_corpus('en')[:60], 600).get_vocab()))\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, encoding="utf-8", check=True)
    assert json.loads(run.stdout) == english_tokenizer.get_vocab()


def test_files_can_train_a_tokenizer_and_iterators_cannot(tmp_path, english_documents):
    (tmp_path / "a.txt").write_text("low lower lowest\n" * 9, encoding="utf-8")
    assert train_wordpiece(FileDocuments(tmp_path / "a.txt"), 40).tokenize("lowest") == ["lowest"]
    with pytest.raises(TypeError, match="`documents` are read twice, got an iterator"):
        train_wordpiece(iter(english_documents), 600)
    with pytest.raises(ValueError, match="no text"):
        train_wordpiece([], 600)
    with pytest.raises(ValueError, match="`vocab_size` must exceed the 5 special tokens, got 5"):
        train_wordpiece(english_documents, 5)
