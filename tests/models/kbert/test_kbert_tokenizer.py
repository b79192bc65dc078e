"""The tokenizer as its users meet it: BERT's tokens with knowledge, rows that fit, padding, labels, and back again."""

import gc
import json
import pickle
import sys
import weakref

import datasets
import numpy as np
import pytest
import torch
from datasets.fingerprint import Hasher
from hypothesis import example, given, settings
from hypothesis import strategies as st
from transformers import (
    BertTokenizer,
    DataCollatorForTokenClassification,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
)

from hf_ptm_ext import KBertConfig, KBertForSequenceClassification, KBertTokenizer, KnowledgeGraph
from hf_ptm_ext.models.encoding_kbert import RestoredEntity, RestoredToken, tag_spans

WORDS = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *"高血压病人不宜使用厄贝沙坦疾药物类别在北京首都古城,.()'use",
    *("new", "york", "is", "a", "big", "city", "the", "times", "party", "art", "##s", "##er", "of", "capital"),
]
VOCAB = {word: number for number, word in enumerate(WORDS)}
TRIPLES = [
    ("高血压", "类别", "疾病"),
    ("厄贝沙坦", "类别", "药物"),
    ("北京", "类别", "首都"),
    ("北京", "", "古城"),
    ("北京", "", "big city"),
    ("New York", "is", "a big city"),
    ("New York", "is", "New York"),
    ("New York Times", "is", "a NEWspaper"),
    ("art", "of", "the city"),
    ("US", "capital", "city"),
]
NER_WORDS = list("高血压病人不宜使用厄贝沙坦")
NER_TAGS = ["B-DIS", "I-DIS", "I-DIS", *["O"] * 6, "B-DRU", "I-DRU", "I-DRU", "I-DRU"]
LABELS = ["O", "B-DIS", "I-DIS", "B-DRU", "I-DRU"]
ID2LABEL = dict(enumerate(LABELS))
NER_LABELS = [LABELS.index(tag) for tag in NER_TAGS]


@pytest.fixture(scope="module")
def graph():
    return KnowledgeGraph(TRIPLES)


@pytest.fixture(scope="module")
def bert():
    return BertTokenizer(VOCAB, model_max_length=64)


@pytest.fixture(scope="module")
def tokenizer(graph):
    return KBertTokenizer(VOCAB, kg=graph, model_max_length=64)


def tokens(tokenizer, *texts, **options):
    return " ".join(tokenizer(*texts, **options).tokens())


# ---- what is injected ----


def test_chinese_by_characters(tokenizer):
    got = tokenizer("在北京，人", return_knowledge_mask=True, return_offsets_mapping=True)
    assert " ".join(got.tokens()) == "[CLS] 在 北 京 首 都 古 城 [UNK] 人 [SEP]"
    assert got["position_ids"] == [0, 1, 2, 3, 4, 5, 4, 5, 4, 5, 6]
    assert got["word_index"] == [0, 1, 2, 2, 2, 2, 2, 2, 3, 4, 5]
    assert got["branch_id"] == [0, 0, 0, 0, 1, 1, 2, 2, 0, 0, 0]
    assert got["knowledge_mask"] == [0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0]
    assert got["token_type_ids"] == [0] * 11
    assert got["offset_mapping"] == [(0, 0), (0, 1), (1, 2), (2, 3), *[(0, 0)] * 4, (3, 4), (4, 5), (0, 0)]


def test_english_by_words_without_unknown_capitals(tokenizer):
    got = tokens(tokenizer, "A party in the New York Times, New York's art.", use_predicate=True)
    assert got.split().count("[UNK]") == 2, "in, and NEWspaper; no capital by itself"
    assert "new york times is a [UNK] ," in got
    assert "new york is a big city is new york ' s" in got
    assert got.endswith("art of the city . [SEP]")
    assert "party of" not in got, "art is found as a word, not in another one"


def test_options_of_a_call(tokenizer, graph):
    assert tokens(tokenizer, "北京", max_entities=1) == "[CLS] 北 京 首 都 [SEP]"
    assert tokens(tokenizer, "北京", max_entities=3) == "[CLS] 北 京 首 都 古 城 big city [SEP]"
    assert tokens(tokenizer, "北京", max_entities=0) == "[CLS] 北 京 [SEP]"
    assert tokens(tokenizer, "北京", use_predicate=True) == "[CLS] 北 京 类 别 首 都 古 城 [SEP]"
    assert tokens(tokenizer, "北京", predicates=[""]) == "[CLS] 北 京 古 城 big city [SEP]"
    assert tokens(tokenizer, "北京 New York", predicates=["is"], use_predicate=["is"]).startswith("[CLS] 北 京 new")
    assert tokens(tokenizer, "北京", kg=None) == "[CLS] 北 京 [SEP]"
    other = KnowledgeGraph.from_dict({"人": "病"})
    assert tokens(tokenizer, "北京人", kg=other) == "[CLS] 北 京 人 病 [SEP]"
    assert tokens(tokenizer, "北京人") == "[CLS] 北 京 首 都 古 城 人 [SEP]", "the next call is as before"
    with pytest.raises(ValueError, match=r"`predicates` must name predicates of the graph, got \['x'\]"):
        tokenizer("北京", predicates=["x"])
    with pytest.raises(TypeError, match="lists of predicates"):
        tokenizer("北京", use_predicate="is")
    with pytest.raises(TypeError, match="`max_entity` is no argument"):
        tokenizer("北京", max_entity=3)
    with pytest.raises(TypeError, match="`kg` must be"):
        tokenizer("北京", kg=3)


def test_case_and_parts_of_words(graph):
    folding = KBertTokenizer(VOCAB, kg=KnowledgeGraph([*TRIPLES, ("NEW YORK", "", "u s")]), ignore_case=True)
    assert tokens(folding, "new york", max_entities=3) == "[CLS] new york a big city new york u s [SEP]"
    anywhere = KBertTokenizer(VOCAB, kg=KnowledgeGraph([("art", "", "city")]), whole_words=False, granularity="char")
    assert "[UNK]" in tokens(anywhere, "party")
    assert sum(anywhere("party", return_knowledge_mask=True)["knowledge_mask"]) == 4


def test_characters_keep_the_better_habits(graph):
    """Every character a token, but lower case, [SEP], and names with blanks."""
    tokenizer = KBertTokenizer(VOCAB, kg=graph, granularity="char")
    got = tokenizer("US 在北京", "人", max_entities=1, return_offsets_mapping=True)
    assert " ".join(got.tokens()) == "[CLS] u s [UNK] [UNK] [UNK] [UNK] 在 北 京 首 都 [SEP] 人 [SEP]"
    assert got["offset_mapping"][1:3] == [(0, 1), (1, 2)]
    assert got["offset_mapping"][-2] == (0, 1)
    assert got["token_type_ids"] == [0] * 13 + [1] * 2
    assert got.sequence_ids() == [None, 0, 0, *[None] * 4, 0, 0, 0, None, None, None, 1, None]
    assert tokens(tokenizer, "人[SEP]人", kg=None) == "[CLS] 人 [SEP] 人 [SEP]"
    assert tokens(tokenizer, "New York", max_entities=1).startswith("[CLS] [UNK] e [UNK] [UNK] [UNK] [UNK] [UNK] a")


def test_an_object_without_tokens_is_no_branch():
    tokenizer = KBertTokenizer(VOCAB, kg=KnowledgeGraph([("人", "", "\u200b\u0000"), ("人", "", "病")]))
    assert tokenizer("人")["branch_id"] == [0, 0, 1, 0]


def test_no_knowledge_inside_a_piece_or_a_tag():
    tokenizer = KBertTokenizer(VOCAB, kg=KnowledgeGraph([("SEP", "", "病"), ("カ", "", "病")]))
    assert tokens(tokenizer, "人 [SEP] カナ") == "[CLS] 人 [SEP] [UNK] [SEP]"


def test_a_text_is_explained(tokenizer):
    assert tokenizer.explain("人在北京US, 人").split("\n") == [
        "0-2    [CLS] 人 在",
        "3-4    北 京",
        "5-6    ├── 首 都",
        "5-6    └── 古 城",
        "5-6    u ##s",
        "  7    └── city",
        "7-9    , 人 [SEP]",
    ]
    assert tokenizer.explain("人", padding="max_length", max_length=9, truncation=True) == "0-2    [CLS] 人 [SEP]"


# ---- exactly BERT without knowledge ----

TEXTS = st.text("高血压病 NYneworkst,'ér[SEP]\n", max_size=24)
LIMITS = st.sampled_from([None, 4, 7, 12, 64])


@settings(max_examples=300, deadline=None)
@given(
    texts=st.lists(TEXTS, min_size=1, max_size=4),
    pairs=st.none() | st.lists(TEXTS, min_size=4, max_size=4),
    max_length=LIMITS,
    truncation=st.sampled_from([False, True, "longest_first"]),
    padding=st.sampled_from([False, True, "max_length"]),
    sides=st.tuples(st.sampled_from(["left", "right"]), st.sampled_from(["left", "right"])),
    special=st.booleans(),
    with_graph=st.booleans(),
)
@example(["ab"], None, 7, True, "max_length", ("left", "left"), True, True)
def test_without_knowledge_it_is_bert(texts, pairs, max_length, truncation, padding, sides, special, with_graph):
    padding = padding if max_length or padding != "max_length" else True
    graph = KnowledgeGraph([("nothing of this", "", "x")]) if with_graph else None
    ours, bert = KBertTokenizer(VOCAB, kg=graph), BertTokenizer(VOCAB)
    for one in (ours, bert):
        one.padding_side, one.truncation_side = sides
    options = {
        "max_length": max_length,
        "truncation": truncation,
        "padding": padding,
        "add_special_tokens": special,
        "return_special_tokens_mask": True,
        "return_offsets_mapping": True,
        "return_length": True,
        "verbose": False,
    }
    pairs = pairs[: len(texts)] if pairs else None
    if max_length == 4 and special:
        options["max_length"] = 5
    expected, got = bert(texts, pairs, **options), ours(texts, pairs, **options)
    for name, values in expected.items():
        assert got[name] == values, name
    for row, mask in enumerate(expected["attention_mask"]):
        assert got.tokens(row) == expected.tokens(row)
        assert got.word_ids(row) == expected.word_ids(row)
        assert got.sequence_ids(row) == expected.sequence_ids(row)
        real = [place for place, one in enumerate(mask) if one]
        assert [got["position_ids"][row][place] for place in real] == list(range(len(real)))
        assert [got["branch_id"][row][place] for place in real] == [0] * len(real)
        assert {got["word_index"][row][place] for place, one in enumerate(mask) if not one} <= {-1}


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("strategy", ["only_first", "only_second"])
def test_windows_without_knowledge_are_berts(bert, strategy, side):
    ours = KBertTokenizer(VOCAB, kg=None, truncation_side=side)
    theirs = BertTokenizer(VOCAB, truncation_side=side)
    first, second = "the new york times is a party", "big city of new york , the capital"
    options = {
        "truncation": strategy,
        "max_length": 15,
        "stride": 2,
        "return_overflowing_tokens": True,
        "padding": True,
    }
    expected, got = theirs(first, second, **options), ours(first, second, **options)
    assert {name: got[name] for name in expected} == dict(expected)
    expected, got = (
        theirs(first * 2, **{**options, "truncation": True}),
        ours(first * 2, **{**options, "truncation": True}),
    )
    assert {name: got[name] for name in expected} == dict(expected)
    with pytest.raises(ValueError, match="`return_overflowing_tokens`"):
        ours(first, second, **{**options, "truncation": True})


@given(texts=st.lists(st.lists(st.sampled_from(["北京", "New York", "US", "人", "art", " ", ","]), max_size=6)))
@settings(max_examples=100, deadline=None)
def test_the_trunk_is_bert_and_its_positions_count_on(tokenizer, bert, texts):
    texts = ["".join(pieces) for pieces in texts]
    if not texts:
        return
    got, expected = tokenizer(texts, max_entities=3), bert(texts)
    for row in range(len(texts)):
        trunk = [place for place, branch in enumerate(got["branch_id"][row]) if branch == 0]
        assert [got["input_ids"][row][place] for place in trunk] == expected["input_ids"][row]
        assert [got["position_ids"][row][place] for place in trunk] == list(range(len(trunk)))


def test_forms_of_texts(tokenizer, bert):
    pair = tokenizer("人", "病")
    assert tokenizer([("人", "病")])["input_ids"] == [pair["input_ids"]]
    assert tokenizer([["人", "病"]])["token_type_ids"] == [pair["token_type_ids"]]
    assert tokenizer(["人"], ["病"])["input_ids"] == [pair["input_ids"]]
    assert tokenizer([["人"]], [["病"]], is_split_into_words=True)["input_ids"] == [pair["input_ids"]]
    assert tokenizer([(["人"], ["病"])], is_split_into_words=True)["input_ids"] == [pair["input_ids"]]
    assert tokenizer([["人", "病"]], is_split_into_words=True)["input_ids"] == [bert("人病")["input_ids"]]
    assert tokenizer("")["input_ids"] == bert("")["input_ids"]
    assert tokenizer([])["input_ids"] == []
    assert tokenizer("人", return_tensors="pt")["word_index"].tolist() == [[0, 1, 2]]
    assert tokenizer(["人", "人病"], padding=True, return_tensors="np")["branch_id"].tolist() == [
        [0, 0, 0, -1],
        [0] * 4,
    ]
    assert tokenizer.tokenize("在北京") == ["在", "北", "京", "首", "都", "古", "城"]
    assert tokenizer.encode("人") == bert.encode("人")
    # Of words, an empty list is one text: a row of a data set may have none.
    assert tokenizer([], is_split_into_words=True)["input_ids"] == bert([], is_split_into_words=True)["input_ids"]
    for wrong in (3, [3], ["人", 3], [None], ["人", None]):
        with pytest.raises(TypeError, match="`text` must be a text"):
            tokenizer(wrong)
    with pytest.raises(TypeError, match="a list of words"):
        tokenizer("人", is_split_into_words=True)
    with pytest.raises(ValueError, match="`text_pair` must have a text for each of the 2"):
        tokenizer(["人", "病"], ["人"])
    with pytest.raises(ValueError, match="`text_pair`"):
        tokenizer(["人", "病"], "人")


# ---- rows that fit ----


def test_knowledge_gives_way_to_text(tokenizer):
    text = "北京人在北京"
    whole = "[CLS] 北 京 首 都 古 城 人 在 北 京 首 都 古 城 [SEP]"
    assert tokens(tokenizer, text, max_length=16, truncation=True) == whole
    assert tokens(tokenizer, text, max_length=15, truncation=True) == whole.replace("古 城 [SEP]", "[SEP]")
    assert tokens(tokenizer, text, max_length=12, truncation=True) == "[CLS] 北 京 首 都 古 城 人 在 北 京 [SEP]"
    assert tokens(tokenizer, text, max_length=9, truncation=True) == "[CLS] 北 京 人 在 北 京 [SEP]"
    assert tokens(tokenizer, text, max_length=6, truncation=True) == "[CLS] 北 京 人 在 [SEP]"
    got = tokenizer(text, max_length=15, truncation=True)
    assert got["branch_id"] == [0, 0, 0, 1, 1, 2, 2, 0, 0, 0, 0, 3, 3, 0]
    # A word that is cut has no knowledge.
    assert tokens(tokenizer, "人在北京", max_length=5, truncation=True) == "[CLS] 人 在 北 [SEP]"


def test_text_gives_way_to_knowledge_if_asked_to(tokenizer):
    options = {"truncation": True, "knowledge_truncation": "keep_knowledge"}
    text = "北京人在北京"
    assert tokens(tokenizer, text, max_length=10, **options) == "[CLS] 北 京 首 都 古 城 人 在 [SEP]"
    assert tokens(tokenizer, text, max_length=7, **options) == "[CLS] 北 京 首 都 [SEP]"
    assert tokens(tokenizer, text, max_length=64, **options) == tokens(tokenizer, text)
    left = KBertTokenizer(VOCAB, kg=tokenizer.kg, truncation_side="left")
    assert tokens(left, text, max_length=10, **options) == "[CLS] 人 在 北 京 首 都 古 城 [SEP]"
    pair = tokens(tokenizer, text, "人", max_length=11, **{**options, "truncation": "only_first"})
    assert pair == "[CLS] 北 京 首 都 古 城 人 [SEP] 人 [SEP]"


def test_text_is_never_cut_if_asked_to(tokenizer):
    options = {"truncation": True, "knowledge_truncation": "only_knowledge"}
    assert tokens(tokenizer, "北京人", max_length=5, **options) == "[CLS] 北 京 人 [SEP]"
    with pytest.raises(ValueError, match=r"`max_length` must be at least .* got 4 and text 1 with 5"):
        tokenizer(["人", "北京人"], max_length=4, **options)
    with pytest.raises(ValueError, match="`knowledge_truncation` must be one of keep_text"):
        tokenizer("人", knowledge_truncation="keep")


def test_there_must_be_room(tokenizer):
    with pytest.raises(ValueError, match="`max_length` must leave room for text beside 2 special tokens, got 2"):
        tokenizer("人", max_length=2, truncation=True)
    with pytest.raises(ValueError, match="beside 3 special"):
        tokenizer("人", "人", max_length=3, truncation=True)
    with pytest.raises(ValueError, match="`truncation='only_first'` must leave a part"):
        tokenizer("人", "人" * 9, max_length=6, truncation="only_first")
    bare = KBertTokenizer(VOCAB, kg=None)
    bare.sep_token = None
    with pytest.raises(ValueError, match="`sep_token` must be set"):
        bare("人")


BRANCHES = st.lists(st.sampled_from(["北京", "US", "高血压", "New York Times", "人", "art "]), max_size=8)


@settings(max_examples=200, deadline=None)
@given(
    first=BRANCHES, second=BRANCHES, size=st.integers(4, 40),
    policy=st.sampled_from(["keep_text", "keep_knowledge"]), side=st.sampled_from(["left", "right"]),
)  # fmt: skip
def test_rows_fit_and_branches_are_whole(graph, bert, first, second, size, policy, side):
    tokenizer = KBertTokenizer(VOCAB, kg=graph, truncation_side=side, knowledge_truncation=policy, max_entities=3)
    first, second = "".join(first), "".join(second) or "人"
    got = tokenizer(first, second, max_length=size, truncation=True)
    assert len(got["input_ids"]) <= size
    trunk = [token for token, branch in zip(got["input_ids"], got["branch_id"], strict=True) if branch == 0]
    assert trunk.count(VOCAB["[SEP]"]) == 2
    assert trunk[-1] == VOCAB["[SEP]"]
    whole = tokenizer(first, second)
    known = set(branches_of(whole))
    for branch in branches_of(got):
        assert branch in known, "a branch is there as a whole or not at all"
    if policy == "keep_text":
        bert.truncation_side = side
        assert trunk == bert(first, second, max_length=size, truncation=True)["input_ids"]
    assert sorted(set(got["branch_id"])) == list(range(max(got["branch_id"]) + 1))


def branches_of(encoding):
    numbers = sorted(set(encoding["branch_id"]) - {0})
    return [
        tuple(t for t, b in zip(encoding["input_ids"], encoding["branch_id"], strict=True) if b == number)
        for number in numbers
    ]


def test_windows_have_their_own_knowledge(tokenizer):
    got = tokenizer(
        "人",
        "北京在北京人病在北京",
        truncation="only_second",
        max_length=13,
        stride=1,
        max_entities=1,
        knowledge_truncation="keep_knowledge",
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    assert got["overflow_to_sample_mapping"] == [0] * len(got["input_ids"])
    assert " ".join(got.tokens(0)) == "[CLS] 人 [SEP] 北 京 首 都 在 北 京 首 都 [SEP]"
    seen = {
        span
        for row, ids in enumerate(got["offset_mapping"])
        for span, sequence in zip(ids, got.sequence_ids(row), strict=True)
        if sequence == 1
    }
    assert seen == {(place, place + 1) for place in range(10)}
    assert all(len(ids) <= 13 for ids in got["input_ids"])


def test_a_row_may_have_more_tokens_than_positions(tokenizer):
    got = tokenizer("北京" * 30, truncation=False)
    assert len(got["input_ids"]) == 182 > 64
    assert max(got["position_ids"]) == 62 < 64


# ---- padding ----


@pytest.mark.parametrize("side", ["left", "right"])
def test_columns_are_padded_in_the_call_and_in_pad_alike(graph, side):
    tokenizer = KBertTokenizer(VOCAB, kg=graph, padding_side=side)
    extra = {"return_knowledge_mask": True, "return_source_index": True, "return_special_tokens_mask": True}
    texts = ["北京", "人在New York"]
    in_call = tokenizer(texts, padding=True, pad_to_multiple_of=8, return_offsets_mapping=True, **extra)
    afterwards = tokenizer.pad(
        tokenizer(texts, return_offsets_mapping=True, **extra), padding=True, pad_to_multiple_of=8
    )
    assert in_call == afterwards
    pads = [place for place, real in enumerate(in_call["attention_mask"][0]) if not real]
    assert len(pads) == 8
    for name, filler in {
        "word_index": -1,
        "branch_id": -1,
        "position_ids": 0,
        "knowledge_mask": 0,
        "source_index": -1,
    }.items():
        assert [in_call[name][0][place] for place in pads] == [filler] * 8, name
    assert [in_call["special_tokens_mask"][0][place] for place in pads] == [1] * 8
    sources = tokenizer(texts, **extra)["source_index"]
    for row, own in zip(in_call["source_index"], sources, strict=True):
        more = [-1] * (16 - len(own))
        assert row == ([*more, *own] if side == "left" else [*own, *more])


def test_upstreams_collators_serve(tokenizer):
    features = [dict(tokenizer(text)) for text in ("北京", "在人")]
    batch = DataCollatorWithPadding(tokenizer)([{**one, "labels": 1} for one in features])
    assert batch["branch_id"].tolist() == [[0, 0, 0, 1, 1, 2, 2, 0], [0, 0, 0, 0, -1, -1, -1, -1]]
    assert batch["labels"].tolist() == [1, 1]
    tagged = [
        dict(tokenizer(list(text), is_split_into_words=True, word_labels=[2] * len(text))) for text in ("北京", "在人")
    ]
    batch = DataCollatorForTokenClassification(tokenizer)(tagged)
    assert batch["labels"].tolist() == [[-100, 2, 2, *[-100] * 5], [-100, 2, 2, *[-100] * 5]]
    assert batch["word_index"].shape == batch["input_ids"].shape
    # Also as tensors and arrays, and rows whose own labels are padded with them.
    batch = tokenizer.pad([{name: np.array(values) for name, values in one.items()} for one in tagged])
    assert batch["labels"].tolist()[1] == [-100, 2, 2, *[-100] * 5]
    many_labels = DataCollatorWithPadding(tokenizer)([{**one, "labels": [1.0, 0.0]} for one in features])
    assert many_labels["labels"].shape == (2, 2)
    with pytest.raises(ValueError, match="`word_index` must have a value for each token, got 1 for 4"):
        tokenizer.pad([features[0], {**features[1], "word_index": [0]}])


def test_the_reference_pads_with_its_last_position(graph):
    tokenizer = KBertTokenizer(VOCAB, kg=graph, reference="classification")
    assert tokenizer("人", padding="max_length", max_length=5, truncation=True)["position_ids"] == [0, 1, 4, 4, 4]
    padded = tokenizer.pad([tokenizer("人"), tokenizer("人人人")])
    assert padded["position_ids"][0] == [0, 1, 3, 3]
    assert padded["token_type_ids"][0] == [1, 1, 0, 0]


def test_a_plain_trainer_hands_every_column_to_the_model(tokenizer, tmp_path):
    """Trainer drops columns that no `forward` names: without `branch_id` knowledge would be read as text."""
    torch.manual_seed(0)
    config = KBertConfig(
        vocab_size=len(VOCAB), hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        max_position_embeddings=64, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, initializer_range=0.3,
    )  # fmt: skip
    model = KBertForSequenceClassification(config)
    texts = ["北京人", "在New York", "人", "US", "高血压病人", "art", "the New York Times", "北京在人"]
    rows = datasets.Dataset.from_dict({**tokenizer(texts), "labels": [0, 1] * 4})
    seen = []

    def spy(features):
        seen.append(set(features[0]))
        return DataCollatorWithPadding(tokenizer)(features)

    arguments = TrainingArguments(
        str(tmp_path), max_steps=1, per_device_train_batch_size=8, learning_rate=0.0, report_to=[], save_strategy="no",
        logging_steps=1, use_cpu=True, train_sampling_strategy="sequential",
    )  # fmt: skip
    trainer = Trainer(model, arguments, train_dataset=rows, data_collator=spy, processing_class=tokenizer)
    loss = trainer.train().training_loss
    columns = {"input_ids", "attention_mask", "token_type_ids", "position_ids", "word_index", "branch_id", "labels"}
    assert seen[0] == columns
    batch = DataCollatorWithPadding(tokenizer)([rows[row] for row in range(8)])
    with torch.no_grad():
        expected = model(**batch).loss.item()
        batch.pop("branch_id"), batch.pop("word_index")
        as_text = model(**batch).loss.item()
    assert loss == pytest.approx(expected, abs=1e-6)
    assert loss != pytest.approx(as_text, abs=1e-4)


# ---- words with labels, and back ----


@pytest.mark.parametrize("options", [{}, {"kg": None}, {"granularity": "char"}, {"reference": "ner"}])
def test_every_word_has_its_label_and_knowledge_has_none(graph, options):
    tokenizer = KBertTokenizer(VOCAB, **{"kg": graph, **options})
    got = tokenizer(NER_WORDS, is_split_into_words=True, word_labels=NER_LABELS)
    assert [label for label in got["labels"] if label != -100] == NER_LABELS
    injected = [branch > 0 for branch in got["branch_id"]]
    assert sum(injected) == (0 if "kg" in options else 4)
    assert all(label == -100 for label, knowledge in zip(got["labels"], injected, strict=True) if knowledge)


def test_knowledge_may_have_a_label_of_its_own(tokenizer):
    got = tokenizer(["北", "京"], is_split_into_words=True, word_labels=[3, 4], knowledge_label=1, max_entities=1)
    assert got["labels"] == [-100, 3, 4, 1, 1, -100]


def test_pieces_of_words(graph):
    words = ["the", "parties", "New", "York"]
    vocab = {**VOCAB, "part": len(VOCAB), "##ies": len(VOCAB) + 1}
    tokenizer = KBertTokenizer(vocab, kg=graph)
    got = tokenizer(words, is_split_into_words=True, word_labels=[5, 6, 7, 8], max_entities=1)
    assert " ".join(got.tokens()) == "[CLS] the part ##ies new york a big city [SEP]"
    assert got["labels"] == [-100, 5, 6, -100, 7, 8, -100, -100, -100, -100]
    assert got.word_ids() == [None, 0, 1, 1, 2, 3, None, None, None, None]
    all_pieces = KBertTokenizer(vocab, kg=graph, only_label_first_subword=False)
    assert all_pieces(words, is_split_into_words=True, word_labels=[5, 6, 7, 8])["labels"][1:6] == [5, 6, 6, 7, 8]
    windows = tokenizer(
        words, is_split_into_words=True, word_labels=[5, 6, 7, 8], truncation=True, max_length=4,
        return_overflowing_tokens=True,
    )  # fmt: skip
    assert windows["labels"][:2] == [[-100, 5, 6, -100], [-100, -100, 7, -100]]


def test_labels_that_do_not_fit(tokenizer):
    for words, labels, message in (
        (["北", "京"], [1], "a label for each word, got 1 for the 2 words of text 0"),
        ([["北"], ["京"]], [[1]], "a list for each of 2 texts, got 1"),
    ):
        with pytest.raises(ValueError, match=message):
            tokenizer(words, is_split_into_words=True, word_labels=labels)
    with pytest.raises(ValueError, match="is_split_into_words=True"):
        tokenizer("北京", word_labels=[1, 2])


def predictions_of(encoding, labels, noise=0):
    """Token classes with `noise` on knowledge and special tokens."""
    return [noise if word is None else labels[word] for word in encoding.word_ids()]


@pytest.mark.parametrize("noise", range(5))
def test_entities_come_back_whatever_knowledge_says(tokenizer, noise):
    got = tokenizer(NER_WORDS, is_split_into_words=True)
    predictions = predictions_of(got, NER_LABELS, noise)
    assert tokenizer.restore(predictions, got) == NER_LABELS
    expected = [RestoredEntity("高血压", "DIS", 0, 3), RestoredEntity("厄贝沙坦", "DRU", 9, 13)]
    assert tokenizer.restore_entities(predictions, got, ID2LABEL) == expected
    assert tokenizer.restore_entities([ID2LABEL[one] for one in predictions], got) == expected
    # The same from a text, from logits, in a padded batch and after pickling; places are characters then.
    text = tokenizer(["人", "".join(NER_WORDS)], padding=True, return_tensors="pt")
    classes = torch.full(text["input_ids"].shape, noise)
    for row in range(2):
        for place, span in enumerate(text[row].offsets):
            if text[row].sequence_ids[place] is not None:
                classes[row, place] = NER_LABELS[span[0]] if row else 0
    logits = torch.nn.functional.one_hot(classes, len(LABELS)).float()
    assert tokenizer.restore_entities(logits, text, ID2LABEL) == [[], expected]
    assert tokenizer.restore_entities(classes, pickle.loads(pickle.dumps(text)), ID2LABEL) == [[], expected]
    assert tokenizer.restore(classes, text)[0] == [RestoredToken(0, 1, 0)]


def test_english_entities_have_the_texts_own_letters(tokenizer):
    text = "the New York Times, New York"
    got = tokenizer(text)
    tags = ["O"] * len(got["input_ids"])
    for place, token in enumerate(got.tokens()):
        if got.word_ids()[place] is not None and token in ("new", "york", "times"):
            tags[place] = "B-LOC" if token == "new" else "I-LOC"
    assert tokenizer.restore_entities(tags, got) == [("New York Times", "LOC", 4, 18), ("New York", "LOC", 20, 28)]


def test_words_without_tokens_are_filled(tokenizer):
    words = ["北", "\u3000", "京", "人"]
    got = tokenizer(words, is_split_into_words=True, truncation=True, max_length=4)
    assert tokenizer.restore(["", "a", "b", ""], got, missing="O") == ["a", "O", "b", "O"]


def test_restoring_needs_the_same_batch(tokenizer):
    got = tokenizer("北京")
    with pytest.raises(
        ValueError, match="`predictions` must have one for each token, padding included, got 2 for the 8"
    ):
        tokenizer.restore([0, 0], got)
    batch = tokenizer(["北京"], return_tensors="pt")
    for single in ([0] * 8, ["O"] * 8):
        with pytest.raises(ValueError, match=r"got a single row for a batch of 1 .*Pass a list of rows"):
            tokenizer.restore(single, batch)
    with pytest.raises(ValueError, match="`encoding` must be what this tokenizer returned"):
        tokenizer.restore([0], {"input_ids": [1]})
    with pytest.raises(ValueError, match="`id2label` must name the class 7"):
        tokenizer.restore_entities([7] * 8, got, ID2LABEL)


@pytest.mark.parametrize(
    ("tags", "spans"),
    [
        ("B-A I-A O", [("A", 0, 2)]),
        ("B-A I-B", [("A", 0, 1), ("B", 1, 2)]),
        ("O I-A I-A B-A", [("A", 1, 3), ("A", 3, 4)]),
        ("S-A E-A B-B I-B E-B I-B", [("A", 0, 1), ("A", 1, 2), ("B", 2, 5), ("B", 5, 6)]),
        ("B-A-b I-A-b", [("A-b", 0, 2)]),
    ],
)
def test_spans_of_tags(tags, spans):
    assert tag_spans(tags.split()) == spans
    assert tag_spans([None, *tags.split()]) == [(kind, begin + 1, end + 1) for kind, begin, end in spans]


def test_where_tokens_come_from(tokenizer):
    got = tokenizer("在北京", "New York", padding="max_length", max_length=20, truncation=True, max_entities=1)
    assert got.tokens()[4:6] == ["首", "都"]
    assert got.char_to_token(2) == 3
    assert got.char_to_token(4, sequence_index=1) == got.tokens().index("york")
    assert got.token_to_chars(3) == (2, 3)
    assert got.token_to_chars(4) is None
    assert got.token_to_word(3) == 2
    assert got.token_to_sequence(got.tokens().index("york")) == 1
    assert got.word_to_tokens(1) == (2, 3)
    assert got.word_to_chars(0, 1, 1) == (4, 8)
    assert got.char_to_word(1) == 1
    assert len(got[0]) == 20
    assert got[0].attention_mask == got["attention_mask"]
    assert got[0].type_ids == got["token_type_ids"]
    assert got[0].ids == got["input_ids"]


# ---- options, files ----


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"granularity": "word"}, "`granularity` must be one of wordpiece, char"),
        ({"reference": True}, "`reference` must be one of classification, ner"),
        ({"max_entities": -1}, "`max_entities` must be 0 or more"),
        ({"max_entities": "2"}, "`max_entities` must be 0 or more, a whole number, got '2'"),
        ({"pkuseg_compat": True}, "`pkuseg_compat` must come with granularity='char'"),
        ({"knowledge_truncation": "x"}, "`knowledge_truncation`"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        KBertTokenizer(VOCAB, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_entities": -1}, "`max_entities` must be 0 or more"),
        ({"max_entities": 1.5}, "`max_entities` must be 0 or more"),
        ({"knowledge_truncation": "x"}, "`knowledge_truncation`"),
        ({"predicates": ["类型"]}, "`predicates` must name predicates of the graph, got \\['类型'\\]"),
        ({"use_predicate": ["类型"]}, "`use_predicate` must name predicates of the graph, got \\['类型'\\]"),
    ],
)
def test_options_of_a_call_are_checked(tokenizer, options, message):
    with pytest.raises(ValueError, match=message):
        tokenizer("在北京", **options)


@pytest.mark.parametrize("options", [{}, {"granularity": "char"}, {"reference": "ner"}])
def test_tokens_added_later_count(graph, options):
    """Ids of characters, tags and branches are kept between calls, but not beyond a change of the vocabulary."""
    early, late = (KBertTokenizer(VOCAB, kg=graph, **options) for _ in range(2))
    text = "在北京[ENT]米new"
    unknown = early(text)["input_ids"].count(VOCAB["[UNK]"])
    for one in (early, late):
        one.add_tokens(["米"])
        one.add_special_tokens({"additional_special_tokens": ["[ENT]"]})
    assert early(text)["input_ids"] == late(text)["input_ids"]
    assert early(text)["input_ids"].count(VOCAB["[UNK]"]) < unknown
    assert len(VOCAB) + 1 in early(text)["input_ids"]


def test_a_graph_for_each_call_does_not_fill_the_memory(tokenizer):
    def graph_is_kept():
        graph = KnowledgeGraph([("在", "", "京")])
        assert tokens(tokenizer, "在", kg=graph) == "[CLS] 在 京 [SEP]"
        return weakref.ref(graph)

    kept = [graph_is_kept() for _ in range(20)]
    gc.collect()
    assert sum(one() is not None for one in kept) < 10
    assert tokens(tokenizer, "在北京") == "[CLS] 在 北 京 首 都 古 城 [SEP]"


def test_a_tokenizer_travels_with_its_graph_and_options(tokenizer, tmp_path, graph):
    saved = KBertTokenizer(
        VOCAB, do_lower_case=False, kg=graph, max_entities=3, use_predicate=["is"], predicates=["is", ""],
        ignore_case=True, knowledge_label=1,
    )  # fmt: skip
    files = saved.save_pretrained(tmp_path)
    assert str(tmp_path / "knowledge_graph.safetensors") in files
    loaded = KBertTokenizer.from_pretrained(tmp_path)
    assert loaded.kg == graph
    texts = ["在北京", "NEW york is"]
    assert loaded(texts) == saved(texts)
    assert (loaded.use_predicate, loaded.predicates, loaded.knowledge_label) == (["is"], ["", "is"], 1)
    again = tmp_path / "again"
    loaded.save_pretrained(again)
    for name in ("knowledge_graph.safetensors", "tokenizer.json"):
        assert (again / name).read_bytes() == (tmp_path / name).read_bytes(), name
    configs = [json.loads((folder / "tokenizer_config.json").read_text("utf-8")) for folder in (tmp_path, again)]
    assert configs[0].items() <= configs[1].items(), "upstream adds how it was loaded"
    assert configs[0]["knowledge_graph_sha256"] == graph.sha256
    assert str(tmp_path) not in json.dumps(configs), "no path of this machine"
    assert pickle.loads(pickle.dumps(loaded))(texts) == saved(texts)


def test_the_graph_may_be_given_as_files(bert, tmp_path):
    bert.save_pretrained(tmp_path)
    (tmp_path / "a.spo").write_text("北京\t是\t首都\n", encoding="utf-8")
    (tmp_path / "b.jsonl").write_text('["人", "有", "病"]\n', encoding="utf-8")
    one = KBertTokenizer.from_pretrained(tmp_path, kg=tmp_path / "a.spo")
    assert tokens(one, "北京人") == "[CLS] 北 京 首 都 人 [SEP]"
    both = KBertTokenizer.from_pretrained(tmp_path, kg=[str(tmp_path / "a.spo"), tmp_path / "b.jsonl"])
    assert tokens(both, "北京人") == "[CLS] 北 京 首 都 人 病 [SEP]"
    none = KBertTokenizer.from_pretrained(tmp_path)
    assert none.kg is None
    assert none("北京")["input_ids"] == bert("北京")["input_ids"]


def test_missing_files_are_called_by_their_names(bert, tmp_path):
    """Upstream takes an error of the graph's for one of the vocabulary, and no vocabulary for an empty one."""
    bert.save_pretrained(tmp_path)
    (tmp_path / "empty").mkdir()
    for name in (tmp_path / "empty", "no/such"):
        with pytest.raises(ValueError, match=f"{name} has no vocabulary"):
            KBertTokenizer.from_pretrained(name)
    with pytest.raises(FileNotFoundError, match=r"no triple file .*graph\.spo"):
        KBertTokenizer.from_pretrained(tmp_path, kg=tmp_path / "graph.spo")


def test_a_missing_or_different_graph_is_an_error_and_never_plain_bert(tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path)
    file = tmp_path / "knowledge_graph.safetensors"
    KnowledgeGraph([("a", "b", "c")]).save(file)
    with pytest.raises(ValueError, match=r"must have the sha256 .* that the tokenizer was saved with"):
        KBertTokenizer.from_pretrained(tmp_path)
    file.unlink()
    with pytest.raises(ValueError, match=r"`knowledge_graph.safetensors` must be beside .* missing"):
        KBertTokenizer.from_pretrained(tmp_path)
    plain = KBertTokenizer.from_pretrained(tmp_path, kg=None)
    assert plain.kg is None
    # Saved without a graph, it stays without, even beside a graph that was left there.
    plain.save_pretrained(tmp_path)
    tokenizer.kg.save(file)
    assert KBertTokenizer.from_pretrained(tmp_path).kg is None


def test_a_graph_that_was_put_beside_a_bert_is_read(bert, graph, tmp_path):
    bert.save_pretrained(tmp_path)
    graph.save(tmp_path)
    assert KBertTokenizer.from_pretrained(tmp_path).kg == graph


def test_datasets_knows_it_again_after_use(tokenizer):
    """`datasets.map` goes by a fingerprint of the tokenizer: one that changed with use would never find its cache."""
    twin = pickle.loads(pickle.dumps(tokenizer))
    before = Hasher.hash(twin)
    assert twin("在北京", padding="max_length", max_length=20)["branch_id"][3] == 0
    assert Hasher.hash(twin) == before


def test_the_package_is_not_needed_for_the_search(tokenizer, monkeypatch):
    monkeypatch.setattr(sys.modules["hf_ptm_ext.models.matcher_core"], "ahocorasick_rs", None)
    without = KBertTokenizer(VOCAB, kg=tokenizer.kg)
    texts = ["在北京", "the New York Times of New York", "party"]
    assert without(texts) == tokenizer(texts)
