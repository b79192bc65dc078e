"""New pieces behind the old ones, for each kind of tokenizer: nothing else changes."""

import json
import os
import re
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, trainers
from transformers import (
    AutoTokenizer,
    CamembertTokenizer,
    PreTrainedTokenizerFast,
    RobertaTokenizer,
    T5Tokenizer,
    XLMRobertaTokenizer,
)

from hf_ptm_ext.data import embedded_corpus, train_wordpiece
from hf_ptm_ext.data.vocabulary_extension import extend_vocabulary

GENERAL = embedded_corpus("en")[:60]
DOMAIN = [
    ["Immunoglobulins and lymphocytes mediate immunity.", "The immunoglobulin of a lymphocyte binds an antigen."],
    ["Lymphocytes, antigens and antibodies.", "Antibody-mediated immunity (immunoglobulin G)."],
] * 3


def sentences(documents):
    return [sentence for document in documents for sentence in document]


def wordpiece():
    return train_wordpiece(GENERAL, 400)


def byte_bpe():
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=special, initial_alphabet=alphabet)
    backend.train_from_iterator(sentences(GENERAL), trainer)
    model = json.loads(backend.to_str())["model"]
    return RobertaTokenizer(vocab=model["vocab"], merges=[tuple(pair) for pair in model["merges"]])


def unigram(cls, special):
    backend = Tokenizer(models.Unigram())
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=300, special_tokens=special, unk_token="<unk>")
    backend.train_from_iterator(sentences(GENERAL), trainer)
    vocab = [tuple(entry) for entry in json.loads(backend.to_str())["model"]["vocab"]]
    return cls(vocab=vocab)


KINDS = {
    "WordPiece": wordpiece,
    "byte BPE": byte_bpe,
    "CamemBERT": lambda: unigram(CamembertTokenizer, ["<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED"]),
    "XLM-RoBERTa": lambda: unigram(XLMRobertaTokenizer, ["<s>", "<pad>", "</s>", "<unk>"]),
    "T5": lambda: unigram(T5Tokenizer, ["<pad>", "</s>", "<unk>"]),
}


@pytest.fixture(scope="module", params=sorted(KINDS))
def both(request):
    """A tokenizer and its extension."""
    tokenizer = KINDS[request.param]()
    return tokenizer, extend_vocabulary(tokenizer, DOMAIN, 25)


def test_old_pieces_keep_their_ids_and_new_ones_follow(both):
    old, extension = both
    known, vocabulary = old.get_vocab(), extension.tokenizer.get_vocab()
    new = {piece: extension.first_id + number for number, piece in enumerate(extension.pieces)}
    assert 0 < len(new) <= 25
    assert extension.first_id == max(known.values()) + 1
    assert vocabulary == known | new
    assert type(extension.tokenizer) is type(old)
    for name in ("unk", "cls", "sep", "pad", "mask", "eos"):
        assert getattr(extension.tokenizer, f"{name}_token_id") == getattr(old, f"{name}_token_id")


def test_a_new_piece_is_what_its_old_ones_spell(both):
    old, extension = both
    for piece, parts in zip(extension.pieces, extension.sources, strict=True):
        assert len(parts) > 1
        first, *rest = old.convert_ids_to_tokens(list(parts))
        assert first + "".join(part.removeprefix("##") for part in rest) == piece


def test_the_domain_takes_fewer_tokens(both):
    old, extension = both
    counts = [
        sum(len(tokenizer.tokenize(one)) for one in sentences(DOMAIN)) for tokenizer in (old, extension.tokenizer)
    ]
    assert counts[1] < 0.75 * counts[0]


@settings(max_examples=150, deadline=None)
@given(
    text=st.one_of(
        st.lists(st.sampled_from([*sentences(DOMAIN), *sentences(GENERAL)[:40]]), min_size=1, max_size=3).map(
            " ".join
        ),
        st.text(alphabet="abcdeghilmnortuy I-.(中é", max_size=40),
    )
)
def test_text_without_a_new_piece_is_cut_as_before(both, text):
    old, extension = both
    before, after = old(text)["input_ids"], extension.tokenizer(text)["input_ids"]
    if max(after, default=0) < extension.first_id:
        assert after == before
    parts = [extension.sources[one - extension.first_id] if one >= extension.first_id else (one,) for one in after]
    assert len(after) <= len([part for of_one in parts for part in of_one])
    assert extension.tokenizer.decode(after) == old.decode(before)


def test_what_is_saved_cuts_alike(both, tmp_path):
    old, extension = both
    extension.tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert type(loaded) is type(old)
    assert loaded.get_vocab() == extension.tokenizer.get_vocab()
    texts = [*sentences(DOMAIN), *sentences(GENERAL)[:20]]
    assert loaded(texts)["input_ids"] == extension.tokenizer(texts)["input_ids"]
    assert loaded.name_or_path != extension.tokenizer.name_or_path == old.name_or_path


def test_added_tokens_keep_their_ids():
    tokenizer = wordpiece()
    tokenizer.add_tokens([AddedToken("[ENT]", special=True), AddedToken("covid-19")])
    extended = extend_vocabulary(tokenizer, DOMAIN, 10).tokenizer
    text = "an [ENT] of covid-19 and immunoglobulin"
    assert tokenizer.tokenize(text)[:5] == extended.tokenize(text)[:5]
    assert extended.convert_tokens_to_ids(["[ENT]", "covid-19"]) == tokenizer.convert_tokens_to_ids(
        ["[ENT]", "covid-19"]
    )


def test_an_extension_can_be_extended():
    once = extend_vocabulary(wordpiece(), DOMAIN, 5)
    twice = extend_vocabulary(once.tokenizer, DOMAIN, 30)
    assert twice.first_id == once.first_id + len(once.sources)
    assert not set(once.pieces) & set(twice.pieces)


def test_chinese_characters_are_words_and_stay():
    """BERT makes each a word of its own, in which nothing can be joined."""
    tokenizer = train_wordpiece(embedded_corpus("zh")[:20], 600)
    with pytest.raises(ValueError, match="must have words of several pieces"):
        extend_vocabulary(tokenizer, [["汉字 中文"]] * 5, 10)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: extend_vocabulary(wordpiece(), DOMAIN, 0), "`size` must be at least 1, got 0"),
        (lambda: extend_vocabulary(wordpiece(), [], 5), "must have words of several pieces"),
        (lambda: extend_vocabulary(wordpiece(), DOMAIN, 5, min_frequency=10**6), "that occur 1000000 times"),
        (lambda: extend_vocabulary(object(), DOMAIN, 5), "must be a fast one of WordPiece, BPE, Unigram, got object"),
        (
            lambda: extend_vocabulary(PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE())), DOMAIN, 5),
            "must cut texts into words before pieces",
        ),
        (
            lambda: extend_vocabulary(PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel())), [], 5),
            "got TokenizersBackend (WordLevel)",
        ),
    ],
)
def test_what_cannot_be_extended_is_refused(make, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        make()


def test_the_same_pieces_in_every_process():
    """The order of Python's sets changes from process to process."""
    code = (
        "from tests.data.test_vocabulary_extension import wordpiece, GENERAL, extend_vocabulary;"
        "print(extend_vocabulary(wordpiece(), GENERAL, 200).pieces)"
    )
    found = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert found[0] == found[1]
