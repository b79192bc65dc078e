"""Which tokens are one word: every tokenizer family, Chinese through a segmenter, and what is refused."""

import datasets
import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForMaskedLM, PhobertTokenizer, Trainer, TrainingArguments

from hf_ptm_ext.collators import (
    DataCollatorForMaskedLanguageModeling,
    DataCollatorForSpanMasking,
    DataCollatorForWholeWordMasking,
    describe_words,
    vocabulary_tables,
    word_boundary_style,
)
from hf_ptm_ext.collators.vocabulary import _piece_shape
from hf_ptm_ext.data.segmentation import WordIds, jieba_segmenter, word_ids_from_offsets

CHINESE = "武汉长江大桥建成于今年"
WORDS = ["武汉", "长江大桥", "建成", "于", "今年"]


def together(labels, groups):
    """Rows of draws: whether each group of positions is always selected as one."""
    selected = labels != -100
    return all((selected[:, group].all(1) | ~selected[:, group].any(1)).all() for group in groups)


def draws(collator, row, count=300):
    return collator([row] * count)["labels"].numpy()


class TestByteLevelG01:
    """Case G01: whole words of byte-level BPE."""

    TEXT = "reappeared lighthouses, don't!"

    def test_words_stay_together(self, byte_level):
        row = byte_level(self.TEXT)["input_ids"]
        collator = DataCollatorForWholeWordMasking(byte_level, mlm_probability=0.4, seed=0)
        labels = draws(collator, row)
        groups = [list(range(1, 7)), [7, 8], list(range(10, 14))]
        assert together(labels, groups)
        selected = labels != -100
        assert not selected[:, [0, 17]].any()
        assert (sum(selected[:, group[0]].astype(int) for group in groups) == 1).any()

    def test_rows_of_plain_lists_and_encodings_agree(self, byte_level):
        encoding = byte_level(self.TEXT)
        collators = [DataCollatorForWholeWordMasking(byte_level, seed=1) for _ in range(3)]
        rows = [encoding, {"input_ids": encoding["input_ids"]}, encoding["input_ids"]]
        results = [collator([row])["labels"] for collator, row in zip(collators, rows, strict=True)]
        assert torch.equal(results[0], results[1])
        assert torch.equal(results[0], results[2])

    def test_punctuation_is_a_unit_of_its_own_in_every_family(self, byte_level, wordpiece):
        pieces = ["".join(unit).replace("Ġ", "") for unit in describe_words(byte_level, self.TEXT)]
        assert pieces == ["reappeared", "lighthouses", ",", "don", "'", "t", "!"]
        pieces = ["".join(unit).replace("##", "") for unit in describe_words(wordpiece, self.TEXT)]
        assert pieces == ["reappeared", "lighthouses", ",", "don", "'", "t", "!"]


@pytest.mark.parametrize(
    ("name", "style"),
    [
        ("wordpiece", "wordpiece"),
        ("slow_wordpiece", "wordpiece"),
        ("byte_level", "byte_level"),
        ("metaspace", "metaspace"),
        ("suffixed", "word_end"),
        ("boundless", None),
    ],
)
def test_family_is_recognised(name, style, request):
    assert word_boundary_style(request.getfixturevalue(name)) == style


@pytest.mark.parametrize("name", ["wordpiece", "slow_wordpiece", "byte_level", "metaspace", "suffixed"])
def test_units_are_the_words_of_the_text(name, request):
    tokenizer = request.getfixturevalue(name)
    units = describe_words(tokenizer, "keepers reappeared near lighthouses, harbours!")
    text = ["".join(unit).replace("##", "").replace("Ġ", "").replace("▁", "").replace("</w>", "") for unit in units]
    expected = ["keepers", "reappeared", "near", "lighthouses", ",", "harbours", "!"]
    unknown = tokenizer.unk_token
    assert len(text) == len(expected)
    assert all(unit == word or unknown in unit for unit, word in zip(text, expected, strict=True))
    assert any(len(unit) > 1 for unit in units)
    row = tokenizer("keepers reappeared near lighthouses, harbours!")["input_ids"]
    ends = np.cumsum([len(unit) for unit in units]) + 1
    groups = [list(range(end - len(unit), end)) for unit, end in zip(units, ends, strict=True)]
    labels = draws(DataCollatorForWholeWordMasking(tokenizer, mlm_probability=0.3, seed=0), row, 100)
    assert together(labels, groups)
    assert (labels != -100).any()


def test_byte_level_pieces_of_chinese_are_not_one_giant_word(byte_level):
    units = describe_words(byte_level, "武汉 café")
    assert len(units) >= 3  # one unit a character, although no piece has a space mark
    assert any(len(unit) > 3 for unit in units)  # "café" stays whole through its two-byte letter


@pytest.mark.parametrize(
    ("style", "piece", "shape"),
    [
        ("wordpiece", "##ing", (True, False, False)),
        ("wordpiece", "##", (False, False, False)),
        ("wordpiece", "##汉", (True, False, True)),
        ("metaspace", "▁light", (False, False, False)),
        ("metaspace", "house", (True, False, False)),
        ("metaspace", "▁", (False, False, False)),
        ("metaspace", "▁(", (False, True, False)),
        ("metaspace", "...", (False, True, False)),
        ("metaspace", "大桥", (False, False, True)),
        ("metaspace", "ไทย", (False, False, True)),
        ("metaspace", "<0xE4>", (False, False, True)),
        ("metaspace", "<0xB8>", (True, False, False)),
        ("byte_level", "Ġlight", (False, False, False)),
        ("byte_level", "house", (True, False, False)),
        ("byte_level", "Ġ", (False, False, False)),
        ("byte_level", "Ċ", (False, True, False)),
        ("byte_level", "Ġ(", (False, True, False)),
        ("byte_level", "'t", (False, False, False)),
        ("byte_level", "æŃ¦", (False, False, True)),  # the three bytes of 武
        ("byte_level", "æ", (False, False, True)),  # its first byte only
        ("byte_level", "Ń¦", (True, False, False)),  # the other two
        ("byte_level", "Ã©", (True, False, False)),  # é
        ("word_end", "ing</w>", (True, True, False)),
        ("word_end", "light", (True, False, False)),
        ("word_end", ",</w>", (False, True, False)),
        ("word_inside", "light@@", (True, False, False)),
        ("word_inside", "house", (True, True, False)),
        ("word_level", "light", (False, False, False)),
        (None, "light", (False, False, False)),
    ],
)
def test_pieces_of_every_style(style, piece, shape):
    """(continues the word before, ends its word, begins with a script without spaces)."""
    assert _piece_shape(piece, style, "##") == shape


def test_suffixed_continuations_of_a_slow_tokenizer(tmp_path):
    (tmp_path / "vocab.txt").write_text("light@@ 9\nhouse 8\nmark 7\n", encoding="utf-8")
    (tmp_path / "merges.txt").write_text("h o 1\nho u 1\nhou s 1\nhous e</w> 1\n", encoding="utf-8")
    tokenizer = PhobertTokenizer(str(tmp_path / "vocab.txt"), str(tmp_path / "merges.txt"))
    assert not tokenizer.is_fast
    assert word_boundary_style(tokenizer) == "word_inside"
    row = [0, *tokenizer.convert_tokens_to_ids(["light@@", "house", "mark", "light@@", "house"]), 2]
    labels = draws(DataCollatorForWholeWordMasking(tokenizer, mlm_probability=0.3, seed=0), row)
    assert together(labels, [[1, 2], [4, 5]])
    assert not together(labels, [[2, 3]])


def test_added_tokens_are_words_of_their_own(byte_level, tmp_path):
    byte_level.save_pretrained(tmp_path)
    tokenizer = type(byte_level).from_pretrained(tmp_path)
    tokenizer.add_tokens(["NEW"])
    assert ["NEW"] in describe_words(tokenizer, "donNEWdon")


def test_unknown_tokens_are_ordinary_and_other_specials_never_masked(wordpiece):
    tables = vocabulary_tables(wordpiece)
    assert tables.never_masked[[0, 2, 3, 4]].all()
    assert not tables.never_masked[wordpiece.unk_token_id]


@pytest.mark.parametrize("collator", [DataCollatorForWholeWordMasking, DataCollatorForSpanMasking])
def test_a_tokenizer_without_boundaries_is_refused_unless_there_is_a_column(boundless, collator):
    row = boundless("the lighthouse keepers")["input_ids"]
    with pytest.raises(ValueError, match=r"word boundaries.*word_ids.*remove_unused_columns=False"):
        collator(boundless)([row])
    ids = [-1] + [0] * (len(row) - 2) + [-1]
    assert collator(boundless)([{"input_ids": row, "word_ids": ids}])["input_ids"].shape == (1, len(row))
    with pytest.raises(ValueError, match="`tokenizer`"):
        describe_words(boundless, "light")


def test_spans_of_tokens_need_no_boundaries(boundless):
    row = boundless("the lighthouse keepers")["input_ids"]
    batch = DataCollatorForSpanMasking(boundless, word_boundaries="token", seed=0)([row])
    assert (batch["labels"] != -100).any()


class TestColumn:
    def test_column_wins_over_the_tokenizer(self, wordpiece):
        row = wordpiece("the light mark")["input_ids"]
        collator = DataCollatorForWholeWordMasking(wordpiece, mlm_probability=0.4, seed=0)
        labels = draws(collator, {"input_ids": row, "word_ids": [-1, 0, 0, 1, -1]})
        assert together(labels, [[1, 2]])

    def test_none_and_negative_ids_are_never_masked(self, wordpiece):
        row = {"input_ids": wordpiece("the light mark")["input_ids"], "word_ids": [None, 0, -1, 1, None]}
        collator = DataCollatorForWholeWordMasking(wordpiece, mlm_probability=1.0, seed=0)
        with pytest.warns(UserWarning, match="equals token masking"):
            labels = draws(collator, row, 5)
        assert (labels[:, [1, 3]] != -100).all()
        assert (labels[:, [0, 2, 4]] == -100).all()

    def test_column_is_consumed(self, wordpiece):
        row = {"input_ids": wordpiece("lighthouse")["input_ids"], "word_ids": [-1, 0, 0, -1]}
        assert "word_ids" not in DataCollatorForWholeWordMasking(wordpiece)([row])

    def test_a_row_without_it_is_named(self, wordpiece):
        rows = [{"input_ids": [2, 5, 3], "word_ids": [-1, 0, -1]}, {"input_ids": [2, 5, 3]}]
        with pytest.raises(ValueError, match=r"`word_ids`.*remove_unused_columns=False"):
            DataCollatorForWholeWordMasking(wordpiece)(rows)


class TestTrainerG08:
    """Case G08: the Trainer drops a column that only the collator needs."""

    def trainer(self, wordpiece, collator, tmp_path, **arguments):
        rows = [{"text": CHINESE}] * 8
        add = WordIds(wordpiece, segmenter=lambda text: WORDS)
        data = datasets.Dataset.from_list(rows).map(add, remove_columns=["text"])
        config = BertConfig(
            vocab_size=len(wordpiece), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
        )
        arguments = TrainingArguments(
            tmp_path, max_steps=1, per_device_train_batch_size=8, report_to=[], use_cpu=True, **arguments
        )
        return Trainer(BertForMaskedLM(config), arguments, data_collator=collator, train_dataset=data)

    @pytest.mark.parametrize("boundaries", ["column", "auto"])
    def test_a_dropped_column_is_an_error_that_names_it(self, wordpiece, tmp_path, boundaries):
        collator = DataCollatorForWholeWordMasking(wordpiece, word_boundaries=boundaries)
        with pytest.raises(ValueError, match=r"`word_ids`.*remove_unused_columns=False"):
            self.trainer(wordpiece, collator, tmp_path).train()

    def test_the_column_survives_with_the_flag(self, wordpiece, tmp_path):
        collator = DataCollatorForWholeWordMasking(wordpiece, word_boundaries="column")
        self.trainer(wordpiece, collator, tmp_path, remove_unused_columns=False).train()

    def test_it_does_not_vanish_between_batches(self, wordpiece):
        row = {"input_ids": wordpiece("lighthouse")["input_ids"], "word_ids": [-1, 0, 0, -1]}
        collator = DataCollatorForWholeWordMasking(wordpiece)
        collator([row])
        with pytest.raises(ValueError, match=r"earlier batches had it.*remove_unused_columns=False"):
            collator([{"input_ids": row["input_ids"]}])


class TestChinese:
    def test_words_of_a_segmenter(self, wordpiece):
        add = WordIds(wordpiece, segmenter=lambda text: WORDS)
        row = add({"text": CHINESE})
        assert row["word_ids"] == [-1, 0, 0, 1, 1, 1, 1, 2, 2, 3, 4, 4, -1]
        collator = DataCollatorForWholeWordMasking(wordpiece, mlm_probability=0.4, seed=0)
        assert together(draws(collator, row), [[1, 2], [3, 4, 5, 6], [7, 8], [10, 11]])

    def test_jieba_when_installed(self, wordpiece):
        pytest.importorskip("jieba")
        units = describe_words(wordpiece, CHINESE, jieba_segmenter())
        assert "".join("".join(unit) for unit in units) == CHINESE
        assert any(len(unit) > 1 for unit in units)

    def test_missing_jieba_names_the_extra(self, monkeypatch):
        monkeypatch.setitem(__import__("sys").modules, "jieba", None)
        with pytest.raises(ImportError, match=r"pip install hf-ptm-ext\[zh\]"):
            jieba_segmenter()

    def test_text_without_words_is_refused_not_masked_by_character(self, wordpiece):
        with pytest.raises(ValueError, match=r"`word_ids`.*WordIds"):
            DataCollatorForWholeWordMasking(wordpiece)([wordpiece(CHINESE)])

    def test_characters_on_request_warn_once(self, wordpiece, recwarn):
        collator = DataCollatorForWholeWordMasking(wordpiece, word_boundaries="tokenizer")
        for _ in range(3):
            collator([wordpiece(CHINESE)])
        assert sum("equals token masking" in str(w.message) for w in recwarn.list) == 1

    def test_lower_casing_unknown_tokens_accents_and_truncation_do_not_move_words(self, wordpiece):
        text = "LIGHT武汉龘龘 Éa是"
        words = ["LIGHT", "武汉", "龘龘", "Éa", "是"]
        row = WordIds(wordpiece, segmenter=lambda _: words)({"text": text})
        tokens = wordpiece.convert_ids_to_tokens(row["input_ids"])
        assert tokens == ["[CLS]", "light", "武", "汉", "[UNK]", "[UNK]", "e", "##a", "是", "[SEP]"]
        assert row["word_ids"] == [-1, 0, 1, 1, 2, 2, 3, 3, 4, -1]
        short = WordIds(wordpiece, segmenter=lambda _: words, truncation=True, max_length=5)({"text": text})
        assert short["word_ids"] == [-1, 0, 1, 1, -1]

    def test_latin_pieces_keep_their_word_and_space_may_be_missing(self, wordpiece):
        row = WordIds(wordpiece, segmenter=lambda _: ["light", "house", "武汉"])({"text": "lighthouse  武汉"})
        assert row["word_ids"] == [-1, 0, 0, 1, 1, -1]

    def test_a_token_across_two_words_joins_them(self):
        assert word_ids_from_offsets("武汉是的", [(0, 1), (1, 3), (3, 4)], ["武汉", "是的"]) == [0, 0, 0]

    def test_metaspace_offsets_that_include_the_space(self, metaspace):
        row = WordIds(metaspace, segmenter=str.split)({"text": "the lighthouse keepers"})
        pieces = metaspace.convert_ids_to_tokens(row["input_ids"])
        starts = [i for i in range(1, len(pieces) - 1) if row["word_ids"][i] != row["word_ids"][i - 1]]
        assert [pieces[i].startswith("▁") for i in starts] == [True] * 3

    def test_a_segmenter_that_changes_the_text_is_named(self, wordpiece):
        with pytest.raises(ValueError, match="`segmenter`"):
            WordIds(wordpiece, segmenter=lambda _: ["武漢"])({"text": CHINESE})

    def test_pairs_count_on_and_batches_work(self, wordpiece):
        add = WordIds(wordpiece, segmenter=list, text_pair_column="b")
        batch = add({"text": ["武汉", "是"], "b": ["的", "大桥"]})
        assert batch["word_ids"] == [[-1, 0, 1, -1, 2, -1], [-1, 0, -1, 1, 2, -1]]
        single = add({"text": "武汉", "b": "的"})
        assert single["word_ids"] == batch["word_ids"][0]

    def test_without_a_segmenter_the_pre_tokenizer_decides(self, wordpiece, slow_wordpiece):
        row = WordIds(wordpiece)({"text": "lighthouses, mark"})
        assert row["word_ids"] == [-1, 0, 0, 0, 1, 2, -1]
        with pytest.raises(ValueError, match="`tokenizer` must be a fast tokenizer"):
            WordIds(slow_wordpiece)

    def test_empty_text(self, wordpiece):
        assert WordIds(wordpiece, segmenter=lambda text: [])({"text": ""})["word_ids"] == [-1, -1]

    def test_random_tokens_are_never_continuations_of_characters(self, wordpiece, tmp_path):
        vocab = dict(wordpiece.get_vocab())
        vocab |= {f"##{char}": len(vocab) + i for i, char in enumerate("武汉长江大桥建成")}
        tokenizer = type(wordpiece)(vocab=vocab)
        row = {"input_ids": [2] + [tokenizer.convert_tokens_to_ids("the")] * 400 + [3]}
        options = {"mlm_probability": 1.0, "mask_replace_prob": 0.0, "random_replace_prob": 1.0, "seed": 0}
        bad = tokenizer.convert_tokens_to_ids([f"##{char}" for char in "武汉长江大桥建成"])
        with pytest.warns(UserWarning, match="equals token masking"):
            ids = DataCollatorForWholeWordMasking(tokenizer, **options)([row] * 5)["input_ids"]
        assert not torch.isin(ids, torch.tensor(bad)).any()
        assert torch.isin(ids, torch.tensor(tokenizer.all_special_ids)).sum() > 10  # parity: specials can be drawn
        ids = DataCollatorForMaskedLanguageModeling(tokenizer, **options)([row] * 5)["input_ids"]
        assert torch.isin(ids, torch.tensor(bad)).any()


def test_words_equal_to_tokens_warn_once(wordpiece, recwarn):
    collator = DataCollatorForWholeWordMasking(wordpiece)
    for _ in range(2):
        collator([wordpiece("the light mark")])
    assert sum("describe_words" in str(w.message) for w in recwarn.list) == 1
