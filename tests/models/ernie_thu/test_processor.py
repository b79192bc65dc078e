"""The processor: the tokenizer's own tokens, entities where their words are, nothing lost without a word."""

import re
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import DataCollatorForTokenClassification, DataCollatorWithPadding

from hf_ptm_ext import DictionaryLinker, EntityTable, EntityVocabulary, ErnieThuProcessor
from hf_ptm_ext.models.annotations_ernie_thu import thin

from .conftest import SPAN_PIECES, SPECIAL, tokenizer_of

TEXT = "marketing in new york times"
SPANS = [(3, 9, "Q1"), (13, 21, "Q2"), (13, 27, "Q3"), (17, 21, "Q4")]
# [CLS] mark ##et ##ing i ##n new york times [SEP]


# ---- spans inside pieces, overlapping spans ----


@pytest.mark.parametrize(
    ("alignment", "expected"),
    [
        ("first", [0, 1, 0, 0, 0, 0, 3, 0, 0, 0]),
        ("all", [0, 1, 1, 1, 0, 0, 3, 3, 3, 0]),
        ("alternate", [0, 1, 0, 1, 0, 0, 3, 0, 3, 0]),
    ],
)
@pytest.mark.parametrize(
    "form", [tuple, list, lambda one: dict(zip(("start", "end", "id"), one, strict=True)), lambda one: [*one, 0.9]]
)
def test_spans_inside_pieces_and_overlaps(spans_processor, caplog, alignment, expected, form):
    for spans in (SPANS, SPANS[::-1]):
        caplog.clear()
        inputs = spans_processor(TEXT, entities=[form(one) for one in spans], alignment=alignment)
        assert inputs["input_ids"] == spans_processor.tokenizer(TEXT)["input_ids"]
        assert inputs["entity_ids"] == expected
        assert inputs["entity_mask"] == [1, *(int(entity != 0) for entity in expected[1:])]
        (message,) = [record.getMessage() for record in caplog.records]
        for name, reason in (("Q1", "starts inside a token"), ("Q2", "overlaps"), ("Q4", "overlaps")):
            assert f"'{name}'" in message
            assert reason in message
        assert "'Q3'" not in message


def test_the_report_says_what_became_of_every_annotation(spans_processor):
    entities = [*SPANS, (10, 12, "Q999"), (10, 12, "Q1", 0.1)]
    inputs = spans_processor([TEXT, TEXT], entities=[entities, []], return_entity_report=True)
    first, second = inputs["entity_report"]
    assert second == []
    assert {(one.annotation.id, one.reason) for one in first} == {
        ("Q1", "inside_token"),
        ("Q2", "overlap"),
        ("Q4", "overlap"),
        ("Q999", "unknown"),
        ("Q1", "score"),
    }
    assert spans_processor.entity_counts == {
        "given": 6,
        "placed": 2,
        "inside_token": 1,
        "overlap": 2,
        "unknown": 1,
        "score": 1,
    }


def test_of_equally_long_overlaps_the_surer_one_counts(spans_processor):
    entities = [(0, 9, "Q1", 0.5), (0, 9, "Q2", 0.8), (0, 9, "Q3", 0.8)]
    inputs = spans_processor(TEXT, entities=entities, on_dropped_entity="ignore")
    assert inputs["entity_ids"][1] == 2


@pytest.mark.parametrize("span", [(5, 5), (6, 5), (-1, 4), (20, 28), (28, 30)])
def test_spans_outside_the_text_are_refused(spans_processor, span):
    with pytest.raises(ValueError, match=rf"`entities` must have spans .* got \[{span[0]}, {span[1]}\)"):
        spans_processor(TEXT, entities=[(*span, "Q1")])
    with pytest.raises(ValueError, match="`span`"):
        spans_processor(TEXT, task="typing", span=span)
    with pytest.raises(ValueError, match="`entities`"):
        spans_processor("i", TEXT, entities_pair=[(*span, "Q1")])


@pytest.mark.parametrize("value", ["Q1", (0, 1), (0.0, 1, "Q1"), (0, 1, None), {"start": 0, "end": 1}, 7])
def test_what_is_no_annotation_is_refused(spans_processor, value):
    with pytest.raises(TypeError, match="`entities`"):
        spans_processor(TEXT, entities=[value])


def test_policies_are_warn_ignore_error(spans_processor, caplog):
    unknown = {"text": TEXT, "entities": [(0, 9, "Q77")]}
    spans_processor(**unknown)
    assert "'Q77'" in caplog.text
    caplog.clear()
    spans_processor(**unknown, on_unknown_entity="ignore")
    spans_processor(TEXT, entities=SPANS, on_dropped_entity="ignore")
    assert not caplog.records
    with pytest.raises(ValueError, match="1 of 1 entities are not in the entity vocabulary: 'Q77'"):
        spans_processor(**unknown, on_unknown_entity="error")
    with pytest.raises(ValueError, match=r"'Q2' .* overlaps"):
        spans_processor(TEXT, entities=SPANS, on_dropped_entity="error")


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"alignment": "last"}, "alignment"),
        ({"on_unknown_entity": "drop"}, "on_unknown_entity"),
        ({"on_dropped_entity": "drop"}, "on_dropped_entity"),
        ({"task": "tagging"}, "task"),
        ({"task": "relation", "head": (0, 9)}, "tail"),
        ({"task": "typing", "span": (0, 9), "head": (0, 9)}, "head"),
        ({"span": (0, 9)}, "task"),
        ({"entities_pair": []}, "entities_pair"),
        ({"text": [TEXT], "entities": [[], []]}, "entities"),
        ({"text": [TEXT], "task": "typing", "span": (0, 9)}, "span"),
    ],
)
def test_wrong_options_are_named(spans_processor, options, field):
    with pytest.raises(ValueError, match=f"`{field}"):
        spans_processor(**{"text": TEXT, **options})


def test_without_a_vocabulary_ids_are_entity_ids():
    processor = ErnieThuProcessor(tokenizer_of(SPAN_PIECES))
    assert processor(TEXT, entities=[(0, 9, 7)])["entity_ids"][1] == 7
    with pytest.raises(ValueError, match="`entity_vocab`"):
        processor(TEXT, entities=[(0, 9, "Q7")])


def test_an_entity_table_serves_as_vocabulary():
    table = EntityTable.from_arrays(np.eye(2), ids=["Q1", "Q2"])
    processor = ErnieThuProcessor(tokenizer_of(SPAN_PIECES), table)
    assert processor(TEXT, entities=[(0, 9, "Q2")])["entity_ids"][1] == 2


def test_what_makes_no_processor_is_refused():
    tokenizer = tokenizer_of(SPAN_PIECES)
    with pytest.raises(TypeError, match=r"`entity_vocab`.*from_entity2id"):
        ErnieThuProcessor(tokenizer, {"Q1": 0})
    with pytest.raises(TypeError, match="`linker`"):
        ErnieThuProcessor(tokenizer, linker="tagme")
    with pytest.raises(ValueError, match="`markers`"):
        ErnieThuProcessor(tokenizer, markers=("#", "$"))
    with pytest.raises(ValueError, match="`alignment`"):
        ErnieThuProcessor(tokenizer, alignment="second")


# ---- the tokenizer's own tokens ----

WORDS = [
    "marketing",
    "market",
    "in",
    "new",
    "york",
    "times",
    "new-york",
    "(new",
    "york)",
    "\u200bnew",
    "é",
    "i\u0301n",
]
TEXTS = st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join)


@st.composite
def annotated(draw):
    text = draw(TEXTS)
    entities = []
    if text:
        for _ in range(draw(st.integers(0, 3))):
            start = draw(st.integers(0, len(text) - 1))
            end = draw(st.integers(start + 1, len(text)))
            entities.append((start, end, f"Q{draw(st.integers(1, 5))}"))
    return text, entities


OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "padding": st.sampled_from([False, "max_length"]),
        "return_offsets_mapping": st.just(True),
        "return_special_tokens_mask": st.just(True),
        "add_special_tokens": st.booleans(),
        "return_length": st.just(True),
    },
)


@settings(deadline=None, max_examples=60)
@given(rows=st.lists(annotated(), min_size=1, max_size=4), options=OPTIONS, data=st.data())
def test_tokens_are_those_of_the_tokenizer(rows, options, data):
    processor = ErnieThuProcessor(
        tokenizer_of(SPAN_PIECES),
        EntityVocabulary.from_ids(["Q1", "Q2", "Q3", "Q4"]),
        on_unknown_entity="ignore",
        on_dropped_entity="ignore",
    )
    options = {"max_length": 12, "truncation": data.draw(st.booleans()), **options}
    alignment = data.draw(st.sampled_from(["first", "all", "alternate", "reference"]))
    texts, entities = [text for text, _ in rows], [one for _, one in rows]
    inputs = processor(texts, entities=entities, alignment=alignment, **options)
    plain = processor.tokenizer(texts, **options)
    for name, values in plain.items():
        assert inputs[name] == values
    for ids, entity_ids, mask in zip(
        *(inputs[name] for name in ("input_ids", "entity_ids", "entity_mask")), strict=True
    ):
        assert len(ids) == len(entity_ids) == len(mask)
        assert mask[1:] == [int(entity != 0) for entity in entity_ids[1:]]


@settings(deadline=None, max_examples=40)
@given(row=annotated(), pair=annotated(), alignment=st.sampled_from(["first", "all", "alternate"]), data=st.data())
def test_a_row_is_the_same_alone_in_a_batch_and_as_tensors(row, pair, alignment, data):
    processor = ErnieThuProcessor(
        tokenizer_of(SPAN_PIECES),
        EntityVocabulary.from_ids(["Q1", "Q2", "Q3", "Q4"]),
        alignment=alignment,
        on_unknown_entity="ignore",
        on_dropped_entity="ignore",
    )
    alone = processor(row[0], entities=row[1])
    batch = processor([pair[0], row[0]], entities=[pair[1], row[1]], padding=True, return_tensors="pt")
    size = len(alone["input_ids"])
    assert batch["entity_ids"].dtype == torch.int64
    for name in ("input_ids", "entity_ids", "entity_mask"):
        assert batch[name][1, :size].tolist() == alone[name]
        assert not batch[name][1, size:].any()
    left = ErnieThuProcessor(
        tokenizer_of(SPAN_PIECES, padding_side="left"), processor.entity_vocab, alignment=alignment
    )(
        [pair[0], row[0]],
        entities=[pair[1], row[1]],
        padding=True,
        on_unknown_entity="ignore",
        on_dropped_entity="ignore",
    )
    assert left["entity_ids"][1][-size:] == alone["entity_ids"]
    assert left["entity_mask"][1][-size:] == alone["entity_mask"]


@settings(deadline=None, max_examples=60)
@given(
    row=annotated(),
    alignment=st.sampled_from(["first", "all", "alternate", "reference"]),
    side=st.sampled_from(["left", "right"]),
    length=st.integers(4, 9),
    stride=st.integers(0, 1),
)
def test_windows_are_slices_of_the_whole_row(row, alignment, side, length, stride):
    processor = ErnieThuProcessor(
        tokenizer_of(SPAN_PIECES, truncation_side=side),
        EntityVocabulary.from_ids(["Q1", "Q2", "Q3", "Q4"]),
        alignment=alignment,
        on_unknown_entity="ignore",
        on_dropped_entity="ignore",
    )
    text, entities = row
    whole = processor(text, entities=entities, add_special_tokens=False)
    options = {"truncation": True, "max_length": length, "stride": stride, "return_overflowing_tokens": True}
    inputs = processor(text, entities=entities, **options)
    plain = processor.tokenizer(text, **options)
    assert inputs["input_ids"] == plain["input_ids"]
    assert inputs["overflow_to_sample_mapping"] == plain["overflow_to_sample_mapping"]
    for ids, found in zip(inputs["input_ids"], inputs["entity_ids"], strict=True):
        assert found[0] == found[-1] == 0
        size = len(ids) - 2
        assert any(
            whole["input_ids"][begin : begin + size] == ids[1:-1]
            and whole["entity_ids"][begin : begin + size] == found[1:-1]
            for begin in range(len(whole["input_ids"]) + 1)
        )
    shown = {entity for found in inputs["entity_ids"] for entity in found if entity}
    assert shown == {entity for entity in whole["entity_ids"] if entity}


def test_the_second_window_of_a_mention_has_only_its_own_tokens(spans_processor):
    options = {"truncation": True, "max_length": 5, "return_overflowing_tokens": True}
    inputs = spans_processor(TEXT, entities=[(0, 9, "Q1"), (13, 27, "Q3")], **options)
    assert inputs["entity_ids"] == [[0, 1, 0, 0, 0], [0, 0, 0, 3, 0], [0, 0, 0, 0]]
    every = spans_processor(TEXT, entities=[(13, 27, "Q3")], alignment="all", **options)
    assert every["entity_ids"] == [[0, 0, 0, 0, 0], [0, 0, 0, 3, 0], [0, 3, 3, 0]]
    cut = spans_processor(TEXT, entities=[(13, 27, "Q3")], truncation=True, max_length=5, return_entity_report=True)
    assert [one.reason for one in cut["entity_report"]] == ["truncated"]
    assert not any(cut["entity_ids"])


def test_pairs_have_entities_in_both_texts(spans_processor):
    inputs = spans_processor("new york", "in new york", entities=[(0, 8, "Q2")], entities_pair=[(3, 6, "Q3")])
    assert inputs["token_type_ids"] == [0, 0, 0, 0, 1, 1, 1, 1, 1]
    assert inputs["entity_ids"] == [0, 2, 0, 0, 0, 0, 3, 0, 0]
    batch = spans_processor(
        ["new", "york"], ["york", "new"], entities=[[], [(0, 4, "Q4")]], entities_pair=[[(0, 4, "Q4")], []]
    )
    assert batch["entity_ids"] == [[0, 0, 0, 4, 0], [0, 4, 0, 0, 0]]
    windows = spans_processor(
        "new york",
        TEXT,
        entities=[(4, 8, "Q4")],
        entities_pair=[(13, 27, "Q3")],
        truncation="only_second",
        max_length=8,
        stride=1,
        return_overflowing_tokens=True,
    )
    assert [row[2] for row in windows["entity_ids"]] == [4] * len(windows["entity_ids"])
    assert [row[4:] for row in windows["entity_ids"]] == [[0, 0, 0, 0], [0, 0, 0, 0], [0, 3, 0, 0], [0, 0, 0]][
        : len(windows["entity_ids"])
    ]


def test_words_are_units_when_the_text_comes_as_words(spans_processor):
    words = TEXT.split()
    inputs = spans_processor(words, entities=[(2, 5, "Q3"), (0, 1, "Q1")], is_split_into_words=True)
    assert inputs["entity_ids"] == [0, 1, 0, 0, 0, 0, 3, 0, 0, 0]
    batch = spans_processor(
        [words, words[:1]], entities=[[(1, 2, "Q2")], []], is_split_into_words=True, alignment="all"
    )
    assert batch["entity_ids"] == [[0, 0, 0, 0, 2, 2, 0, 0, 0, 0], [0, 0, 0, 0, 0]]
    with pytest.raises(ValueError, match="5, the number of words"):
        spans_processor(words, entities=[(4, 6, "Q1")], is_split_into_words=True)
    with_markers = spans_processor(
        words, entities=[(0, 1, "Q1")], is_split_into_words=True, task="typing", span=(1, 2)
    )
    tokens = spans_processor.tokenizer.convert_ids_to_tokens(with_markers["input_ids"])
    assert tokens[:8] == ["[CLS]", "mark", "##et", "##ing", "。", "i", "##n", "。"]
    assert with_markers["entity_ids"][1] == 1


def test_chinese_characters_are_tokens_and_offsets_are_characters():
    pieces = [*SPECIAL, *"他在巴黎圣母院工作，。#$", "ibm"]
    linker = DictionaryLinker({"巴黎": "Q90", "巴黎圣母院": "Q2981", "IBM": "Q37156"})
    processor = ErnieThuProcessor(
        tokenizer_of(pieces), EntityVocabulary.from_ids(["Q90", "Q2981", "Q37156"]), linker=linker
    )
    inputs = processor("他在巴黎圣母院，IBM 工作")
    assert inputs["entity_ids"] == [0, 0, 0, 2, 0, 0, 0, 0, 0, 3, 0, 0, 0]
    marked = processor("他在巴黎工作", task="relation", head=(0, 1), tail=(2, 4), alignment="all")
    tokens = processor.tokenizer.convert_ids_to_tokens(marked["input_ids"])
    assert tokens == ["[CLS]", "#", "他", "#", "在", "$", "巴", "黎", "$", "工", "作", "[SEP]"]
    assert marked["entity_ids"] == [0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0]


# ---- markers ----


def without_markers(processor, inputs, markers):
    ids = processor.tokenizer.convert_tokens_to_ids(list(markers))
    kept = [index for index, token in enumerate(inputs["input_ids"]) if token not in ids]
    return [inputs["input_ids"][index] for index in kept], [inputs["entity_ids"][index] for index in kept]


@settings(deadline=None, max_examples=60)
@given(row=annotated(), alignment=st.sampled_from(["first", "all"]), data=st.data())
def test_markers_come_between_the_tokens_of_an_unchanged_text(row, alignment, data):
    text, entities = row
    processor = ErnieThuProcessor(
        tokenizer_of(SPAN_PIECES),
        EntityVocabulary.from_ids(["Q1", "Q2", "Q3", "Q4"]),
        alignment=alignment,
        on_unknown_entity="ignore",
        on_dropped_entity="ignore",
    )
    words = [(match.start(), match.end()) for match in re.finditer(r"\w+", text)]
    if not words:
        return
    span = data.draw(st.sampled_from(words))
    plain = processor(text, entities=entities)
    inputs = processor(text, entities=entities, task="typing", span=span)
    assert without_markers(processor, inputs, "。") == (plain["input_ids"], plain["entity_ids"])
    tokens = processor.tokenizer.convert_ids_to_tokens(inputs["input_ids"])
    assert tokens.count("。") == 2


def test_relation_markers_follow_head_and_tail_wherever_they_are(spans_processor):
    def tokens(head, tail):
        inputs = spans_processor(TEXT, task="relation", head=head, tail=tail, entities=[(13, 21, "Q2")])
        assert inputs["entity_ids"].count(2) == 1
        return " ".join(spans_processor.tokenizer.convert_ids_to_tokens(inputs["input_ids"])[1:-1])

    assert tokens((0, 9), (13, 21)) == "# mark ##et ##ing # i ##n $ new york $ times"
    assert tokens((13, 21), (0, 9)) == "$ mark ##et ##ing $ i ##n # new york # times"
    assert tokens({"start": 13, "end": 16}, ["Q2", 17, 21, 0.9]) == "mark ##et ##ing i ##n # new # $ york $ times"
    with pytest.raises(ValueError, match="`head` and `tail` must not overlap"):
        tokens((13, 21), (17, 27))
    with pytest.raises(ValueError, match="share a token"):
        spans_processor("newyork", task="relation", head=(0, 3), tail=(3, 7))


def test_a_batch_has_markers_row_by_row(spans_processor):
    inputs = spans_processor(
        [TEXT, "new york"],
        entities=[[], [(0, 8, "Q2")]],
        task="typing",
        span=[(0, 9), (4, 8)],
        padding=True,
        return_tensors="pt",
        return_offsets_mapping=True,
    )
    assert inputs["input_ids"].shape == (2, 12)
    assert inputs["entity_ids"][1].tolist()[:6] == [0, 2, 0, 0, 0, 0]
    assert inputs["entity_mask"][:, 0].tolist() == [1, 1]
    assert inputs["offset_mapping"][1, :6].tolist() == [[0, 0], [0, 3], [4, 4], [4, 8], [8, 8], [0, 0]]


def test_a_marker_must_be_in_the_vocabulary():
    tokenizer = tokenizer_of([piece for piece in SPAN_PIECES if piece != "$"])
    processor = ErnieThuProcessor(tokenizer)
    with pytest.raises(ValueError, match=r"`markers` must be in the vocabulary, got '\$'"):
        processor(TEXT, task="relation", head=(0, 9), tail=(13, 21))
    tokenizer.add_tokens(["[HD]", "[TL]"], special_tokens=True)
    new = ErnieThuProcessor(tokenizer, markers=("[HD]", "[TL]", "。"))
    for alignment in ("first", "reference"):
        inputs = new(TEXT, task="relation", head=(0, 9), tail=(13, 21), alignment=alignment)
        tokens = " ".join(tokenizer.convert_ids_to_tokens(inputs["input_ids"]))
        assert tokens == "[CLS] [HD] mark ##et ##ing [HD] i ##n [TL] new york [TL] times [SEP]"


@settings(deadline=None, max_examples=80)
@given(
    first=st.integers(1, 9),
    second=st.one_of(st.none(), st.integers(1, 9)),
    length=st.integers(6, 14),
    strategy=st.sampled_from(["longest_first", "only_first", "only_second"]),
    side=st.sampled_from(["left", "right"]),
    overflow=st.booleans(),
    stride=st.integers(0, 2),
)
def test_rows_with_markers_are_cut_as_the_tokenizer_cuts(first, second, length, strategy, side, overflow, stride):
    """Two more words in the text stand for the markers: what is cut away is the same."""
    tokenizer = tokenizer_of(SPAN_PIECES, truncation_side=side)
    processor = ErnieThuProcessor(tokenizer)
    if (second is None and strategy == "only_second") or (second and overflow and strategy == "longest_first"):
        return
    words = ["new", "york", "times", "i"] * 3
    pair = None if second is None else " ".join(words[:second])
    options = {"truncation": strategy, "max_length": length}
    if overflow:
        options |= {"return_overflowing_tokens": True, "stride": stride}
    marked = " ".join(["。", words[0], "。", *words[1:first]])

    def outcome(call, *arguments, **more):
        try:
            return dict(call(*arguments, **options, **more))
        except BaseException as error:  # the tokenizers library panics where windows do not move on
            return type(error).__name__

    expected = outcome(tokenizer, marked, pair)
    found = outcome(processor, " ".join(words[:first]), pair, task="typing", span=(0, 3))
    if isinstance(expected, str) or isinstance(found, str):
        assert isinstance(found, str) or len(found["input_ids"])
        return
    for name in ("input_ids", "token_type_ids", "attention_mask"):
        assert found[name] == expected[name]


# ---- padding ----


def test_rows_are_padded_by_the_collators_of_tokenizers(spans_processor):
    rows = [
        dict(spans_processor(TEXT, entities=[(13, 27, "Q3")])),
        dict(spans_processor("new york", entities=[(0, 8, "Q2")])),
    ]
    batch = DataCollatorWithPadding(spans_processor)([dict(row) for row in rows])
    assert batch["entity_ids"].tolist() == [[0, 0, 0, 0, 0, 0, 3, 0, 0, 0], [0, 2, 0, 0, 0, 0, 0, 0, 0, 0]]
    assert batch["entity_mask"].tolist()[1] == [1, 1, 0, 0, 0, 0, 0, 0, 0, 0]
    labelled = [{**row, "labels": [1] * len(row["input_ids"])} for row in rows]
    tagged = DataCollatorForTokenClassification(spans_processor, pad_to_multiple_of=8)(labelled)
    assert tagged["entity_ids"].shape == tagged["labels"].shape == (2, 16)
    arrays = spans_processor.pad({"input_ids": [np.array([2, 3]), np.array([2])], "entity_ids": [np.ones(2), [1]]})
    assert arrays["entity_ids"].tolist() == [[1, 1], [1, 0]]
    with pytest.raises(ValueError, match="`entity_ids` must have one entry per token, got 1 for 2"):
        spans_processor.pad({"input_ids": [[2, 3]], "entity_ids": [[1]]})
    assert spans_processor.model_input_names[-2:] == ["entity_ids", "entity_mask"]


# ---- linkers ----


def test_a_linker_is_asked_where_no_entities_are_given(spans_processor):
    calls = []

    def linker(texts):
        calls.append(list(texts))
        return [[{"start": 0, "end": 3, "id": "Q4", "score": 0.9}] for _ in texts]

    spans_processor.linker = linker
    inputs = spans_processor(["new york", "new"])
    assert calls == [["new york", "new"]]
    assert [row[1] for row in inputs["entity_ids"]] == [4, 4]
    assert not any(spans_processor("new york", entities=[])["entity_ids"])
    assert not any(spans_processor("new york", link=False)["entity_ids"])
    assert len(calls) == 1
    with pytest.raises(ValueError, match="`entities` must be given"):
        spans_processor(["new"], is_split_into_words=True)
    spans_processor.linker = lambda texts: []
    with pytest.raises(ValueError, match="`linker` must return one list per text, got 0 for 1"):
        spans_processor("new")


def test_titles_of_a_table_make_a_linker():
    table = EntityTable.from_arrays(np.eye(2), ids=["Q60", "Q9684"], titles={"New York": "Q60", "Times": "Q9684"})
    linker = DictionaryLinker.from_vocabulary(table.vocabulary, ignore_case=True)
    processor = ErnieThuProcessor(tokenizer_of(SPAN_PIECES), table, linker=linker)
    assert processor(TEXT)["entity_ids"] == [0, 0, 0, 0, 0, 0, 1, 0, 2, 0]
    with pytest.raises(ValueError, match="titles"):
        DictionaryLinker.from_vocabulary(EntityVocabulary.from_ids(["Q1"]))


def test_a_dictionary_is_saved_compactly_and_reads_back(tmp_path):
    pairs = [("Paris", "Q90"), ("Paris", "Q167646"), ("X", 7), ("巴黎", "Q90")]
    linker = DictionaryLinker(pairs, ignore_case=True, min_length=2)
    path = linker.save(tmp_path / "linker.safetensors")
    again = DictionaryLinker.from_file(path)
    texts = ["PARIS x 巴黎", "party"]
    assert again(texts) == linker(texts)
    assert [one.id for one in again(texts)[0]] == ["Q90", "Q90"]
    assert path.read_bytes() == again.save(tmp_path / "again.safetensors").read_bytes()
    with pytest.raises(ValueError, match="not a file of `DictionaryLinker"):
        DictionaryLinker.from_file(EntityVocabulary.from_ids(["Q1"]).save(tmp_path / "other.safetensors"))


# ---- thinning ----


@given(entities=st.lists(st.integers(0, 2), max_size=20))
def test_thinned_rows_have_no_equal_neighbours_and_keep_every_run(entities):
    thinned = thin(entities)
    assert all(not one or one != other for one, other in pairwise(thinned))
    for index, entity in enumerate(entities):
        assert thinned[index] in (0, entity)
        if entity and not thinned[index]:
            assert thinned[index - 1] == entity
