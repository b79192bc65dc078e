"""Rows in, tensors out: ragged and padded rows, extra columns, packed rows, degenerate rows (case G02)."""

import numpy as np
import pytest
import torch
from transformers import BatchEncoding

from hf_ptm_ext.collators import (
    DataCollatorForMaskedLanguageModeling,
    DataCollatorForNgramMasking,
    DataCollatorForSpanMasking,
    DataCollatorForWholeWordMasking,
)

COLLATORS = [
    DataCollatorForMaskedLanguageModeling,
    DataCollatorForWholeWordMasking,
    DataCollatorForSpanMasking,
    DataCollatorForNgramMasking,
]
pytestmark = pytest.mark.filterwarnings("ignore:Whole-word masking equals")
CLS, SEP, PAD, MASK = 2, 3, 0, 4


@pytest.fixture(params=COLLATORS, ids=lambda c: c.__name__[15:])
def collator_class(request):
    return request.param


class TestRaggedAndPaddedG02:
    @pytest.fixture
    def features(self, wordpiece):
        padded = wordpiece("light mark", padding="max_length", max_length=12)["input_ids"]
        b = wordpiece("the lighthouses")
        return [
            {"input_ids": padded},
            {
                "input_ids": np.array(b["input_ids"]),
                "token_type_ids": np.array([0, 0, 0, 1, 1, 1]),
                "attention_mask": np.array(b["attention_mask"]),
            },
        ]

    @pytest.mark.parametrize("multiple", [None, 8])
    @pytest.mark.parametrize("extra", [False, True])
    def test_padding_never_counts(self, collator_class, wordpiece, features, multiple, extra):
        if extra:
            features[0] |= {"entity_ids": list(range(1, 13)), "branch_id": [0] * 12, "sample_id": 7}
            features[1] |= {"entity_ids": np.arange(1, 7), "branch_id": [0] * 6, "sample_id": 8}
        collator = collator_class(wordpiece, mlm_probability=1.0, pad_to_multiple_of=multiple, seed=0)
        for _ in range(20):
            batch = collator(features)
            width = 16 if multiple else 12
            assert batch["input_ids"].shape == (2, width)
            original = np.full((2, width), PAD)
            original[0, :12] = features[0]["input_ids"]
            original[1, :6] = features[1]["input_ids"]
            real = np.zeros((2, width), dtype=int)
            real[0, :4] = real[1, :6] = 1
            assert batch["attention_mask"].numpy().tolist() == real.tolist()
            ids, labels = batch["input_ids"].numpy(), batch["labels"].numpy()
            special = np.isin(original, [PAD, CLS, SEP])
            assert (labels[special] == -100).all()
            assert (ids[special] == original[special]).all()
            assert batch["token_type_ids"][1].tolist() == [0, 0, 0, 1, 1, 1] + [0] * (width - 6)
            if extra:
                assert batch["entity_ids"][1].tolist() == [*range(1, 7)] + [0] * (width - 6)
                assert batch["entity_ids"].shape == (2, width)
                # 0 is the text in this one, which K-BERT's tokenizer pads with -1.
                assert batch["branch_id"][1].tolist() == [0] * 6 + [-1] * (width - 6)
                assert batch["sample_id"].tolist() == [7, 8]

    def test_a_column_that_cannot_be_padded_is_named(self, collator_class, wordpiece, features):
        collator = collator_class(wordpiece)
        for bad in ([[1, 2], [3, 4, 5]], [[1] * 12, [2] * 5], [["a"], ["b"]], ["x", "y"], [None, 1]):
            rows = [feature | {"entity_ids": value} for feature, value in zip(features, bad, strict=True)]
            with pytest.raises(ValueError, match="`entity_ids`"):
                collator(rows)
        with pytest.raises(ValueError, match="`entity_ids`"):
            collator([features[0], features[1] | {"entity_ids": [1] * 6}])


def test_lists_arrays_tensors_and_encodings_are_the_same(collator_class, wordpiece):
    encoded = wordpiece(["the lighthouses", "marketing, the new book"])
    rows = [{name: encoded[name][i] for name in encoded} for i in range(2)]
    forms = [
        rows,
        [{name: np.array(v) for name, v in row.items()} for row in rows],
        [{name: torch.tensor(v) for name, v in row.items()} for row in rows],
        [BatchEncoding(row) for row in rows],
        [wordpiece("the lighthouses"), wordpiece("marketing, the new book")],
        [{name: tuple(v) for name, v in row.items()} for row in rows],
    ]
    batches = [collator_class(wordpiece, seed=3)(form) for form in forms]
    for batch in batches[1:]:
        assert set(batch) == set(batches[0])
        for name in batch:
            assert torch.equal(batch[name], batches[0][name]), name
    plain = [rows[0]["input_ids"], torch.tensor(rows[1]["input_ids"])]
    assert torch.equal(collator_class(wordpiece, seed=3)(plain)["labels"], batches[0]["labels"])


def test_slow_and_fast_tokenizers_agree(collator_class, wordpiece, slow_wordpiece):
    rows = [wordpiece("the lighthouses don't")["input_ids"]]
    fast, slow = (collator_class(tokenizer, seed=3)(rows) for tokenizer in (wordpiece, slow_wordpiece))
    assert torch.equal(fast["labels"], slow["labels"])
    assert torch.equal(fast["input_ids"], slow["input_ids"])


def test_numpy_output_equals_tensors(collator_class, wordpiece):
    rows = [wordpiece("the lighthouses")]
    tensors = collator_class(wordpiece, seed=3)(rows)
    arrays = collator_class(wordpiece, seed=3, return_tensors="np")(rows)
    called = collator_class(wordpiece, seed=3)(rows, return_tensors="np")
    for name, value in arrays.items():
        assert isinstance(value, np.ndarray)
        assert (value == tensors[name].numpy()).all()
        assert (value == called[name]).all()
        assert value.dtype == tensors[name].numpy().dtype


def test_left_padding(collator_class, wordpiece, tmp_path):
    wordpiece.save_pretrained(tmp_path)
    tokenizer = type(wordpiece).from_pretrained(tmp_path, padding_side="left")
    rows = [[CLS, 5, 6, 7, 8, SEP], [CLS, 9, SEP]]
    batch = collator_class(tokenizer, mlm_probability=0.0, pad_values={"entity_ids": -1})(
        [{"input_ids": row, "entity_ids": list(range(len(row)))} for row in rows]
    )
    assert batch["attention_mask"].tolist() == [[1] * 6, [0, 0, 0, 1, 1, 1]]
    assert batch["entity_ids"].tolist() == [[0, 1, 2, 3, 4, 5], [-1, -1, -1, 0, 1, 2]]


def test_an_attention_mask_of_ones_over_padding_changes_no_budget(wordpiece):
    row = [CLS, *[5] * 18, SEP]
    for collator in (
        DataCollatorForMaskedLanguageModeling(wordpiece, budget="exact"),
        DataCollatorForWholeWordMasking(wordpiece),
        DataCollatorForSpanMasking(wordpiece),
    ):
        batch = collator([{"input_ids": row + [PAD] * 20, "attention_mask": [1] * 40}])
        assert (batch["labels"] != -100).sum() == 3
        assert (batch["labels"][0, 20:] == -100).all()


def test_rows_padded_on_the_left_without_a_mask(collator_class, wordpiece):
    batch = collator_class(wordpiece)([[PAD, PAD, CLS, 5, 6, SEP]])
    assert batch["attention_mask"].tolist() == [[0, 0, 1, 1, 1, 1]]


def test_a_padding_id_with_another_role_is_not_guessed_to_be_padding(byte_level, tmp_path):
    byte_level.save_pretrained(tmp_path)
    tokenizer = type(byte_level).from_pretrained(tmp_path, pad_token="</s>")
    row = [0, 50, 51, 2]
    batch = DataCollatorForMaskedLanguageModeling(tokenizer)([row, [*row, 60, 61]])
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 1, 0, 0], [1] * 6]


def test_special_tokens_mask_is_honoured_and_consumed(collator_class, wordpiece):
    row = {"input_ids": [CLS, 5, 6, 7, SEP], "special_tokens_mask": [1, 0, 1, 0, 1]}
    batch = collator_class(wordpiece, mlm_probability=1.0)([row])
    assert (batch["labels"][0] != -100).tolist() == [False, True, False, True, False]
    assert "special_tokens_mask" not in batch


def test_masks_already_in_the_text_stay_and_unknown_tokens_are_candidates(collator_class, wordpiece):
    batch = collator_class(wordpiece, mlm_probability=1.0)([[CLS, 5, MASK, 1, SEP]])
    assert batch["labels"].tolist() == [[-100, 5, -100, 1, -100]]


def test_ids_of_another_tokenizer_are_named(collator_class, wordpiece):
    with pytest.raises(ValueError, match="`input_ids` must be in"):
        collator_class(wordpiece)([[CLS, 5000, SEP]])
    with pytest.raises(TypeError, match="`input_ids`"):
        collator_class(wordpiece)([["the"]])
    with pytest.raises(ValueError, match="`input_ids` must be in every feature"):
        collator_class(wordpiece)([{"text": "the"}])
    with pytest.raises(ValueError, match="`features`"):
        collator_class(wordpiece)([])


@pytest.mark.parametrize("row", [[2, 45.7, 3], [2.0, 3.0], [True, False], [2, "a"], [2, None], [2, 2**70]])
def test_what_is_no_id_is_refused_and_never_rounded(collator_class, wordpiece, row):
    for form in (row, np.array(row)):
        with pytest.raises(TypeError, match="`input_ids` must be rows of integers"):
            collator_class(wordpiece)([[CLS, 5, SEP], form])


def test_degenerate_rows(collator_class, wordpiece):
    rows = [[], [CLS], [CLS, SEP], [CLS, 5, SEP], [PAD, PAD]]
    for _ in range(10):
        batch = collator_class(wordpiece, seed=None)(rows)
        assert batch["input_ids"].shape == (5, 3)
        assert batch["attention_mask"].tolist() == [[0, 0, 0], [1, 0, 0], [1, 1, 0], [1, 1, 1], [0, 0, 0]]
        assert (batch["labels"][[0, 1, 2, 4]] == -100).all()
    alone = collator_class(wordpiece)([[]])
    assert alone["input_ids"].tolist() == [[PAD]]
    assert (alone["labels"] == -100).all()


def test_tokens_added_later_are_known(collator_class, wordpiece, tmp_path):
    wordpiece.save_pretrained(tmp_path)
    tokenizer = type(wordpiece).from_pretrained(tmp_path)
    collator = collator_class(tokenizer, mlm_probability=1.0)
    tokenizer.add_tokens(["[E1]"], special_tokens=True)
    batch = collator([[CLS, 5, len(tokenizer) - 1, 6, SEP]])
    assert (batch["labels"][0] != -100).tolist() == [False, True, False, True, False]


class TestPackedRows:
    ROW = {
        "input_ids": [CLS, 5, 6, 7, SEP, CLS, 8, 9, SEP, PAD],
        "sequence_ids": [1, 1, 1, 1, 1, 2, 2, 2, 2, 0],
        "position_ids": [0, 1, 2, 3, 4, 0, 1, 2, 3, 0],
    }

    def test_columns_pass_and_no_attention_mask_is_made(self, collator_class, wordpiece):
        short = {name: values[:5] for name, values in self.ROW.items()}
        batch = collator_class(wordpiece)([self.ROW, short])
        assert "attention_mask" not in batch
        assert batch["sequence_ids"].tolist() == [self.ROW["sequence_ids"], [1] * 5 + [0] * 5]
        assert batch["position_ids"][1].tolist() == [0, 1, 2, 3, 4] + [0] * 5

    def test_budget_is_per_packed_sequence(self, wordpiece):
        collator = DataCollatorForWholeWordMasking(wordpiece, mlm_probability=0.4, seed=0)
        for _ in range(30):
            selected = collator([self.ROW])["labels"][0] != -100
            assert selected[:5].sum() == 2  # round(5 * 0.4)
            assert selected[5:].sum() == 2  # round(4 * 0.4)

    @pytest.mark.parametrize("torn", [[1, 1, 2, 2, 1, 1], [1, 1, 0, 0, 1, 1], [2, 1, 1, 2, 0, 0], [0, 3, 1, 2, 3, 0]])
    def test_a_sequence_in_two_places_is_refused_and_its_row_named(self, collator_class, wordpiece, torn):
        rows = [{"input_ids": [5, 6, 7, 8, 9, 5], "sequence_ids": ids} for ids in ([1, 1, 1, 2, 2, 0], torn)]
        with pytest.raises(ValueError, match=r"`sequence_ids` must number .* in two places in row 1"):
            collator_class(wordpiece)(rows)

    @pytest.mark.parametrize("whole", [[0, 0, 1, 1, 2, 2], [2, 2, 1, 1, 0, 0], [1, 1, 0, 2, 2, 0], [0] * 6, [5] * 6])
    def test_padding_and_numbers_may_be_anywhere(self, collator_class, wordpiece, whole):
        row = {"input_ids": [5, 6, 7, 8, 9, 5], "sequence_ids": whole}
        assert collator_class(wordpiece)([row, row])["sequence_ids"].tolist() == [whole, whole]

    @pytest.mark.parametrize("wrong", [[1, 1, -1, 0], [1.0, 1.0, 2.0, 0.0], 1])
    def test_what_is_no_number_of_a_sequence(self, collator_class, wordpiece, wrong):
        with pytest.raises(ValueError, match="`sequence_ids`"):
            collator_class(wordpiece)([{"input_ids": [5, 6, 7, 0], "sequence_ids": wrong}])

    def test_spans_stay_in_their_sequence(self, wordpiece):
        row = {"input_ids": [5, 6, 7, 8] * 5, "sequence_ids": [1] * 10 + [2] * 10}
        collator = DataCollatorForSpanMasking(wordpiece, mlm_probability=0.3, seed=0)
        for _ in range(50):
            batch = collator([row])
            selected = batch["labels"][0] != -100
            assert selected[:10].sum() == selected[10:].sum() == 3
            for left, right in batch["span_boundaries"][0].tolist():
                assert (left, right) == (0, 0) or left // 10 == right // 10


def test_pair_rows_have_a_budget_per_segment(wordpiece):
    row = [CLS, *[5] * 20, SEP, *[6] * 7, SEP]
    collator = DataCollatorForSpanMasking(wordpiece, seed=0)
    for _ in range(30):
        selected = collator([row])["labels"][0] != -100
        assert selected[1:21].sum() == 3
        assert selected[22:29].sum() == 2
        assert selected.sum() == 5


def test_labels_that_came_in_are_replaced(collator_class, wordpiece):
    batch = collator_class(wordpiece)([{"input_ids": [CLS, 5, SEP], "labels": [CLS, 5, SEP], "offset_mapping": [0]}])
    assert set(batch["labels"][0, [0, 2]].tolist()) == {-100}
    assert "offset_mapping" not in batch


def test_vectors_per_token_and_floats(collator_class, wordpiece):
    rows = [
        {"input_ids": [CLS, 5, SEP], "embeds": [[0.5, 1.0]] * 3, "score": 0.5},
        {"input_ids": [CLS, SEP], "embeds": [[2.0, 3.0]] * 2, "score": 1.5},
    ]
    batch = collator_class(wordpiece)(rows)
    assert batch["embeds"].shape == (2, 3, 2)
    assert batch["embeds"].dtype == batch["score"].dtype == torch.float32
    assert batch["embeds"][1, 2].tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("second", "third"),
    [([], [1, 2, 3]), ([], [0.5, 1.5, 2.5]), ([1.0], [2, 3, 4])],
    ids=["empty", "empty among floats", "whole numbers"],
)
def test_a_column_of_floats_is_of_one_type(collator_class, wordpiece, second, third):
    """Whatever its other rows look like: float32, as models take it."""
    rows = [[CLS, 5, SEP], [CLS][: len(second)], [CLS, 6, SEP]]
    scores = [[0.5, 0.25, 1.0], second, third]
    batch = collator_class(wordpiece)(
        [{"input_ids": ids, "score": score} for ids, score in zip(rows, scores, strict=True)]
    )
    assert batch["score"].dtype == torch.float32
    assert batch["score"].tolist() == [[0.5, 0.25, 1.0], second + [0.0] * (3 - len(second)), third]


def test_vectors_beside_an_empty_row(collator_class, wordpiece):
    rows = [{"input_ids": [], "embeds": []}, {"input_ids": [CLS, SEP], "embeds": [[0.5, 1.0]] * 2}]
    batch = collator_class(wordpiece)(rows)
    assert batch["embeds"].tolist() == [[[0.0, 0.0]] * 2, [[0.5, 1.0]] * 2]
