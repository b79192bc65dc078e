"""ZenTokenizer finds n-grams as the reference's scripts do, pads them, travels with its lexicon."""

import json
import pickle
import random
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer, BertTokenizerFast, DataCollatorWithPadding

from hf_ptm_ext import DataCollatorForMaskedLanguageModeling, DataCollatorWithNgrams, ZenTokenizer
from hf_ptm_ext.models.lexicon_zen import NgramIndex, proportional_limit, read_lexicon

CHARACTERS = "提高速公路的人口数量增长很快"
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *dict.fromkeys(CHARACTERS), "new", "york", "##er"]
VOCAB = {word: number for number, word in enumerate(WORDS)}
LEXICON = {
    "提高": 9,
    "高速": 8,
    "高速公路": 7,
    "公路": 6,
    "速公": 5,
    "公路的人口数": 4,  # six characters
    "高速公路的人口": 3,  # seven, the longest that is found
    "提高速公路的人口": 2,  # eight: never found
    "人": 2,  # one: never found
    "new york": 2,
    "New Yorker": 1,
    "高速公": 1,
}
TEXT = "提高速公路的人口数量"


@pytest.fixture(scope="module")
def tokenizer():
    return ZenTokenizer(VOCAB, ngrams=LEXICON)


def windows(tokens, lexicon):
    """The reference's search: all windows of 2 to 7 tokens, shorter ones first."""
    return [
        (lexicon[tuple(tokens[start : start + length])], start, length)
        for length in range(2, 8)
        for start in range(len(tokens) - length + 1)
        if tuple(tokens[start : start + length]) in lexicon
    ]


def matches(inputs, row=None):
    columns = [inputs[name] for name in ("ngram_ids", "ngram_positions", "ngram_lengths")]
    columns = columns if row is None else [column[row] for column in columns]
    return [entry for entry in zip(*(list(map(int, column)) for column in columns), strict=True) if entry[0]]


def test_every_window_of_two_to_seven_tokens_is_found(tokenizer):
    inputs = tokenizer(TEXT)
    lexicon = {tuple(tokenizer.tokenize(text)): number for number, text in enumerate(LEXICON, 1)}
    expected = windows(inputs.tokens(), lexicon)
    assert matches(inputs) == expected
    found = {list(LEXICON)[number - 1] for number, _, _ in expected}
    assert found == {"提高", "高速", "高速公路", "公路", "速公", "公路的人口数", "高速公路的人口", "高速公"}
    for number, start, length in expected:
        assert "".join(inputs.tokens()[start : start + length]) == list(LEXICON)[number - 1]


def test_words_are_matched_as_pieces_and_in_lower_case(tokenizer):
    inputs = tokenizer("a new York, New yorker")
    tokens = inputs.tokens()
    assert [tokens[start : start + length] for _, start, length in matches(inputs)] == [
        ["new", "york"],
        ["new", "york"],
        ["new", "york", "##er"],
    ]


@given(
    st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=9), max_size=20),
    st.lists(st.integers(0, 3), max_size=25),
)
def test_the_index_finds_what_looking_up_all_windows_finds(entries, row):
    """Of equal n-grams the last counts, as in the reference."""
    lexicon = {tuple(entry): number for number, entry in enumerate(entries, 1)}
    assert [tuple(match) for match in NgramIndex(entries).find(row)] == windows(row, lexicon)


def test_pairs_give_ngrams_the_type_of_their_text(tokenizer):
    inputs = tokenizer("提高", "高速公路")
    kinds = [int(start > 3) for start in inputs["ngram_positions"]]  # [CLS] 提 高 [SEP] ...
    assert inputs["ngram_token_type_ids"] == kinds
    assert set(kinds) == {0, 1}


# ---- how many ----


def test_too_many_are_cut_to_the_first_or_drawn(tokenizer):
    everything = matches(tokenizer(TEXT))
    few = ZenTokenizer(VOCAB, ngrams=LEXICON, max_ngrams=3)
    assert matches(few(TEXT)) == everything[:3]
    kept = Counter()
    for seed in range(400):
        drawn = ZenTokenizer(VOCAB, ngrams=LEXICON, max_ngrams=3, ngram_seed=seed)
        first, second = matches(drawn(TEXT)), matches(drawn(["人口", TEXT]), 1)
        assert first == second  # the same text, the same draw
        assert len(set(first)) == 3
        assert set(first) <= set(everything)
        kept.update(first)
    share = 3 / len(everything)
    bound = 5 * (400 * share * (1 - share)) ** 0.5  # five standard deviations of a binomial
    assert all(abs(kept[entry] - 400 * share) < bound for entry in everything)


def test_the_proportional_limit_is_the_fine_tuning_scripts(tokenizer):
    """ceil(tokens / max_length * max_ngrams), [CLS] and [SEP] counted."""
    proportional = ZenTokenizer(VOCAB, ngrams=LEXICON, max_ngrams=8, ngram_limit="proportional")
    everything = matches(tokenizer(TEXT))
    tokens = len(tokenizer(TEXT)["input_ids"])
    for length in (12, 20, 40, 128):
        inputs = proportional(TEXT, max_length=length, truncation=True, padding="max_length")
        assert matches(inputs) == everything[: proportional_limit(tokens, length, 8)]
    with pytest.raises(ValueError, match="`max_length` must be given"):
        proportional(TEXT)


def test_the_tagging_script_counts_places_without_cls(tokenizer):
    tagging = ZenTokenizer(VOCAB, ngrams=LEXICON, ngram_alignment="reference_tagging")
    shifted = [(number, start - 1, length) for number, start, length in matches(tokenizer(TEXT))]
    assert matches(tagging(TEXT)) == shifted
    assert set(tagging("提高", "公路")["ngram_token_type_ids"]) == {0}


# ---- shapes ----


def test_without_ngrams_it_is_a_bert_tokenizer(tokenizer):
    bert, plain = BertTokenizerFast(vocab=VOCAB), ZenTokenizer(VOCAB, ngrams=[])
    for arguments in ((TEXT,), (["提高", "人口 增长"],), ("提高", "公路")):
        expected, got = bert(*arguments), plain(*arguments)
        assert {name: got[name] for name in expected} == dict(expected)
    tensors = plain(["提高", "人"], padding=True, return_tensors="pt")
    assert tensors["ngram_ids"].tolist() == [[0], [0]]


@pytest.mark.parametrize("side", ["right", "left"])
def test_padding_in_the_call_and_afterwards_agree(tokenizer, side):
    texts = [TEXT, "提高", "很快"]
    at_once = tokenizer(texts, padding=True, return_tensors="pt", padding_side=side)
    rows = [tokenizer(text) for text in texts]
    later = tokenizer.pad(rows, return_tensors="pt", padding_side=side)
    assert at_once.keys() == later.keys()
    for name in at_once:
        assert torch.equal(at_once[name], later[name]), name
    assert at_once["ngram_ids"].shape == (3, 8)
    tokens = [tokenizer.convert_ids_to_tokens(row) for row in later["input_ids"]]
    for row, _ in enumerate(texts):
        for number, start, length in matches(later, row):
            assert "".join(tokens[row][start : start + length]) == list(LEXICON)[number - 1]
    collated = DataCollatorWithPadding(tokenizer)(rows)
    assert collated["ngram_ids"].shape == (3, 8)


def test_one_text_as_tensors_has_a_batch_dimension(tokenizer):
    for text in (TEXT, "", "人"):
        inputs = tokenizer(text, return_tensors="pt")
        assert all(value.shape[0] == 1 for value in inputs.values())
        assert inputs["ngram_ids"].dim() == 2


def test_truncation_and_windows_have_the_ngrams_that_are_whole(tokenizer):
    inputs = tokenizer(TEXT, truncation=True, max_length=6)  # 提高速公
    assert {list(LEXICON)[number - 1] for number, _, _ in matches(inputs)} == {"提高", "高速", "速公", "高速公"}
    windows_of_text = tokenizer(TEXT, truncation=True, max_length=6, stride=1, return_overflowing_tokens=True)
    for row in range(len(windows_of_text["input_ids"])):
        tokens = windows_of_text.tokens(row)
        for number, start, length in matches(windows_of_text, row):
            assert "".join(tokens[start : start + length]) == list(LEXICON)[number - 1]


def test_words_and_offsets_stay_available(tokenizer):
    inputs = tokenizer([["提高", "公路"], ["人口"]], is_split_into_words=True, return_offsets_mapping=True)
    assert inputs.word_ids(0) == [None, 0, 0, 1, 1, None]
    assert len(inputs["offset_mapping"][0]) == 6


# ---- after masking ----


def test_masked_ngrams_are_not_found(tokenizer):
    masked = DataCollatorForMaskedLanguageModeling(tokenizer, mlm_probability=0.5, seed=3)
    collator = DataCollatorWithNgrams(masked, tokenizer)
    rows = [tokenizer(text) for text in (TEXT, "提高", "人口数量增长")]
    state = collator.state_dict()
    for _ in range(5):
        batch = collator(rows)
        for row in range(3):
            tokens = tokenizer.convert_ids_to_tokens(batch["input_ids"][row])
            lexicon = {tuple(tokenizer.tokenize(text)): number for number, text in enumerate(LEXICON, 1)}
            assert matches(batch, row) == windows(tokens, lexicon)
    collator.load_state_dict(state)
    again = collator(rows)
    collator.load_state_dict(state)
    assert torch.equal(collator(rows)["input_ids"], again["input_ids"])
    assert "ngram_ids" in rows[0], "the rows of the caller are left alone"
    with pytest.raises(TypeError, match="`tokenizer` must be a ZenTokenizer, got BertTokenizer"):
        DataCollatorWithNgrams(masked, BertTokenizerFast(vocab=VOCAB))


# ---- files ----


def test_it_is_saved_with_its_lexicon_and_options(tokenizer, tmp_path):
    drawn = ZenTokenizer(VOCAB, ngrams=LEXICON, max_ngrams=3, ngram_seed=5, ngram_limit="proportional")
    drawn.save_pretrained(tmp_path)
    assert read_lexicon(tmp_path / "ngram.txt") == [(text, str(count)) for text, count in LEXICON.items()]
    for loaded in (ZenTokenizer.from_pretrained(tmp_path), AutoTokenizer.from_pretrained(tmp_path)):
        assert loaded.lexicon == drawn.lexicon
        assert loaded(TEXT, max_length=12) == drawn(TEXT, max_length=12)
    assert {"tokenization_zen.py", "lexicon_zen.py"} <= {path.name for path in tmp_path.iterdir()}
    copy = pickle.loads(pickle.dumps(tokenizer))
    assert copy(TEXT) == tokenizer(TEXT)


def test_a_missing_or_another_lexicon_is_refused(tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path)
    lines = (tmp_path / "ngram.txt").read_text(encoding="utf-8").splitlines()
    random.Random(0).shuffle(lines)
    (tmp_path / "ngram.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match="is not the lexicon that was saved"):
        AutoTokenizer.from_pretrained(tmp_path)
    (tmp_path / "ngram.txt").unlink()
    with pytest.raises(ValueError, match=r"`ngram\.txt` must be beside the vocabulary, and is missing"):
        AutoTokenizer.from_pretrained(tmp_path)
    assert not matches(AutoTokenizer.from_pretrained(tmp_path, ngrams=[])(TEXT))


def test_without_a_lexicon_on_purpose_it_loads_again(tmp_path):
    ZenTokenizer(VOCAB, ngrams=[]).save_pretrained(tmp_path)
    assert not (tmp_path / "ngram.txt").exists()
    assert ZenTokenizer.from_pretrained(tmp_path).lexicon == []
    assert json.loads((tmp_path / "tokenizer_config.json").read_text(encoding="utf-8"))["ngram_sha256"] is None


def test_the_original_projects_files_load(tmp_path):
    """vocab.txt and ngram.txt; duplicates and n-grams with a comma keep their lines."""
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    (tmp_path / "ngram.txt").write_text("提高,3\n1,000,2\n提高,1\n公路,5\n", encoding="utf-8")
    tokenizer = ZenTokenizer.from_pretrained(tmp_path)
    assert tokenizer.lexicon[1] == ("1,000", "2")
    assert matches(tokenizer("提高公路")) == [(3, 1, 2), (4, 3, 2)]
    tokenizer.save_pretrained(tmp_path / "again")
    text = (tmp_path / "again" / "ngram.txt").read_text(encoding="utf-8")
    assert text == (tmp_path / "ngram.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("提高,3\n公路\n".encode(), "line 2: expected `n-gram,frequency`, got '公路'"),
        ("提高,3\n\n公路,1\n".encode(), "line 2"),
        (b"", "empty file"),
        ("提高,3\n".encode("gb18030"), "must be UTF-8"),
    ],
)
def test_malformed_lexicons_are_refused_by_line(content, message, tmp_path):
    (tmp_path / "ngram.txt").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        ZenTokenizer(VOCAB, ngrams=tmp_path / "ngram.txt")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"max_ngrams": 0}, ValueError, "`max_ngrams` must be at least 1"),
        ({"ngram_limit": "some"}, ValueError, "`ngram_limit` must be one of fixed, proportional, got 'some'"),
        ({"ngram_alignment": "left"}, ValueError, "`ngram_alignment`"),
        ({"ngrams": 3}, TypeError, "`ngrams` must be n-grams"),
        ({"ngrams": [3]}, TypeError, "`ngrams` must be texts"),
        ({"ngrams": [" "]}, ValueError, "`ngrams` must be texts of one line"),
        ({}, ValueError, r"`ngram\.txt` must be beside the vocabulary"),
    ],
)
def test_options_are_checked_by_name(options, error, message):
    with pytest.raises(error, match=message):
        ZenTokenizer(VOCAB, **({"ngrams": LEXICON, **options} if options else {}))


def test_a_missing_lexicon_is_called_by_its_name(tmp_path):
    ZenTokenizer(VOCAB, ngrams=[]).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"`ngrams` .* no file .*other\.txt"):
        ZenTokenizer.from_pretrained(tmp_path, ngrams=tmp_path / "other.txt")


def test_tokens_added_later_count(tokenizer):
    """The lexicon is looked up in the tokens that the vocabulary makes of it now."""
    vocab, ngrams = tokenizer.get_vocab(), [ngram for ngram, _ in tokenizer.lexicon]
    early, late = (ZenTokenizer(vocab, ngrams=ngrams) for _ in range(2))
    text = "提高速公路"
    assert early(text)["ngram_ids"]
    for one in (early, late):
        one.add_tokens(["高速"])
    assert early(text)["ngram_ids"] == late(text)["ngram_ids"]


def test_a_folder_without_a_vocabulary_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="has no vocabulary"):
        ZenTokenizer.from_pretrained(tmp_path, ngrams=["提高"])
