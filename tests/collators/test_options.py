"""Every option constructs, does what it says, and refuses what it cannot mean."""

import dataclasses

import numpy as np
import pytest
import torch
from transformers import PreTrainedTokenizerFast

from hf_ptm_ext import collators
from hf_ptm_ext.collators import (
    DataCollatorForMaskedLanguageModeling,
    DataCollatorForNgramMasking,
    DataCollatorForSpanMasking,
    DataCollatorForWholeWordMasking,
)

MLM, WWM, SPAN = (
    DataCollatorForMaskedLanguageModeling,
    DataCollatorForWholeWordMasking,
    DataCollatorForSpanMasking,
)
pytestmark = pytest.mark.filterwarnings("ignore:Whole-word masking equals")
SHARED = {
    "mlm_probability": [0.15, 0.0, 1.0],
    "mask_replace_prob": [0.8, 0.9],
    "random_replace_prob": [0.1, 0.0],
    "replacement_unit": ["token", "word", "span"],
    "random_token_counts": [None, [1] * 149, np.arange(149)],
    "exclude_special_from_random": [False, True],
    "exclude_cjk_continuations_from_random": [False, True],
    "word_boundaries": ["auto", "tokenizer"],
    "label_budget": [None, 64],
    "pad_to_multiple_of": [None, 8],
    "pad_values": [{}, {"x": 3}],
    "return_tensors": ["pt", "np"],
    "seed": [None, 0, 12345],
}
OWN = {
    MLM: {
        "budget": ["bernoulli", "exact", "roberta", "electra"],
        "at_least_one": [False, True],
        "max_predictions": [None],
        "sample_alpha": [0.0],
        "token_counts": [None, [1] * 149],
    },
    WWM: {"budget": ["bernoulli", "exact"], "at_least_one": [False, True], "max_predictions": [None, 20]},
    DataCollatorForNgramMasking: {
        "budget": ["exact"],
        "at_least_one": [True],
        "max_ngram_size": [1, 5],
        "favor_shorter_ngrams": [False],
        "ngram_probabilities": [(0.5, 0.5)],
        "max_predictions": [None, 20],
    },
    SPAN: {
        "geometric_p": [0.2, 1.0],
        "max_span_length": [10, 1],
        "max_pair_targets": [15, 1],
        "endpoints": ["external", "internal"],
        "pair_budget": [None, 70],
    },
}
CASES = [(cls, name, value) for cls in OWN for name, values in (SHARED | OWN[cls]).items() for value in values]
ROW = [2] + [5, 80, 9, 60, 81] * 12 + [3]


@pytest.mark.parametrize(("cls", "name", "value"), CASES, ids=lambda x: getattr(x, "__name__", str(x))[:20])
def test_every_option_constructs_and_runs(cls, name, value, wordpiece):
    batch = cls(wordpiece, **{name: value})([ROW, ROW[:20]])
    assert batch["input_ids"].shape == batch["labels"].shape


@pytest.mark.parametrize("name", [name for name in collators.__all__ if name.startswith("DataCollatorFor")])
def test_the_name_of_a_tokenizer_is_none(name):
    cls = getattr(collators, name)
    others = {"num_relations": 1, "descriptions": [], "known_triples": []} if "Knowledge" in name else {}
    others |= {"concepts": {}} if "Concepts" in name else {}
    fields = [one.name for one in dataclasses.fields(cls) if "tokenizer" in one.name or one.name == "processor"]
    if fields:  # others are made of collators
        with pytest.raises(TypeError, match=r"`tokenizer` must be a tokenizer, got 'some/folder'\. Load it with"):
            cls(**dict.fromkeys(fields, "some/folder"), **others)


def test_every_field_is_covered():
    for cls, own in OWN.items():
        assert {field.name for field in dataclasses.fields(cls)} == {"tokenizer", *SHARED, *own}


@pytest.mark.parametrize(
    ("cls", "options", "name"),
    [
        (MLM, {"mlm_probability": 1.5}, "mlm_probability"),
        (MLM, {"mlm_probability": -0.1}, "mlm_probability"),
        (MLM, {"mask_replace_prob": 0.95, "random_replace_prob": 0.1}, "mask_replace_prob"),
        (MLM, {"random_replace_prob": 2}, "random_replace_prob"),
        (MLM, {"replacement_unit": "sentence"}, "replacement_unit"),
        (MLM, {"word_boundaries": "spaces"}, "word_boundaries"),
        (MLM, {"budget": "fixed"}, "budget"),
        (MLM, {"max_predictions": 5}, "max_predictions"),
        (MLM, {"label_budget": 0}, "label_budget"),
        (MLM, {"pad_to_multiple_of": -8}, "pad_to_multiple_of"),
        (MLM, {"return_tensors": "tf"}, "return_tensors"),
        (MLM, {"seed": -1}, "seed"),
        (MLM, {"random_token_counts": [1, 2]}, "random_token_counts"),
        (WWM, {"word_boundaries": "token"}, "word_boundaries"),
        (WWM, {"budget": "bernoulli", "max_predictions": 5}, "max_predictions"),
        (SPAN, {"geometric_p": 0}, "geometric_p"),
        (SPAN, {"max_span_length": 0}, "max_span_length"),
        (SPAN, {"max_pair_targets": 0}, "max_pair_targets"),
        (SPAN, {"endpoints": "both"}, "endpoints"),
        (SPAN, {"pair_budget": 0}, "pair_budget"),
    ],
)
def test_impossible_options_are_named(cls, options, name, wordpiece):
    with pytest.raises(ValueError, match=f"`{name}`"):
        cls(wordpiece, **options)


def test_options_of_a_wrong_type_are_named(wordpiece):
    for name, value in (("mlm_probability", None), ("seed", 1.5), ("label_budget", "8")):
        with pytest.raises(TypeError, match=f"`{name}`"):
            MLM(wordpiece, **{name: value})


@pytest.mark.parametrize("cls", [MLM, WWM, SPAN])
def test_a_tokenizer_without_a_mask_token_is_refused(cls, byte_level):
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=byte_level.backend_tokenizer, pad_token="<pad>")
    with pytest.raises(ValueError, match="`tokenizer` must have a mask token"):
        cls(tokenizer)


@pytest.mark.parametrize("cls", [MLM, WWM, SPAN])
def test_ragged_rows_need_a_padding_token(cls, byte_level):
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=byte_level.backend_tokenizer, mask_token="<mask>", cls_token="<s>", sep_token="</s>"
    )
    cls(tokenizer)([[0, 50, 2], [0, 51, 2]])
    with pytest.raises(ValueError, match="padding token"):
        cls(tokenizer)([[0, 50, 2], [0, 2]])


def test_rates_of_plain_masking(wordpiece):
    row = [2] + [69] * 510 + [3]
    batch = MLM(wordpiece, seed=0, random_token_counts=np.eye(149)[80])([row] * 60)
    selected = batch["labels"] != -100
    count = 60 * 510
    assert selected.sum().item() / count == pytest.approx(0.15, abs=4 * np.sqrt(0.15 * 0.85 / count))
    ids = batch["input_ids"][selected]
    for value, share in ((4, 0.8), (80, 0.1), (69, 0.1)):
        bound = 4 * np.sqrt(share * (1 - share) / len(ids))
        assert (ids == value).float().mean().item() == pytest.approx(share, abs=bound)


def test_empty_rows_and_at_least_one(wordpiece):
    rows = [[2, *[69] * 10, 3]] * 400
    empty = (MLM(wordpiece, seed=0)(rows)["labels"] == -100).all(dim=1).float().mean().item()
    expected = 0.85**10
    assert empty == pytest.approx(expected, abs=4 * np.sqrt(expected * (1 - expected) / 400))
    filled = MLM(wordpiece, seed=0, at_least_one=True)(rows)["labels"]
    assert ((filled != -100).sum(dim=1) >= 1).all()


def test_exact_budget_of_the_whole_row(wordpiece):
    batch = MLM(wordpiece, budget="exact", max_predictions=20, seed=0)([[2, *[69] * 126, 3], [2, *[69] * 300, 3]])
    assert (batch["labels"] != -100).sum(dim=1).tolist() == [19, 20]


def test_specials_can_be_kept_out_of_random_tokens(wordpiece):
    options = {"mlm_probability": 1.0, "mask_replace_prob": 0.0, "random_replace_prob": 1.0, "seed": 0}
    special = torch.tensor(wordpiece.all_special_ids)
    inner = slice(1, 400)
    row = [2, *[69] * 400, 3]
    assert torch.isin(MLM(wordpiece, **options)([row] * 5)["input_ids"][:, inner], special).any()
    batch = MLM(wordpiece, exclude_special_from_random=True, **options)([row] * 5)
    assert not torch.isin(batch["input_ids"][:, inner], special).any()


class TestFixedShapes:
    def test_label_positions_hold_all_labels_first(self, wordpiece):
        batch = MLM(wordpiece, label_budget=40, seed=0)([ROW, ROW[:30]])
        labels, positions = batch["labels"], batch["label_positions"]
        assert positions.shape == (2, 40)
        gathered = labels.gather(1, positions)
        assert (gathered != -100).sum() == (labels != -100).sum()
        for row in range(2):
            count = (labels[row] != -100).sum()
            assert (gathered[row, :count] != -100).all()
            assert len(set(positions[row].tolist())) == 40

    def test_too_many_labels_are_an_error(self, wordpiece):
        with pytest.raises(ValueError, match="`label_budget`"):
            MLM(wordpiece, mlm_probability=1.0, label_budget=8)([ROW])

    def test_pair_slots_are_fixed(self, wordpiece):
        collator = SPAN(wordpiece, pair_budget=12, label_budget=16, pad_to_multiple_of=64, seed=0)
        shapes = {
            tuple((name, value.shape) for name, value in collator([ROW, ROW[:n]]).items()) for n in range(3, 50, 5)
        }
        assert len(shapes) == 1
        with pytest.raises(ValueError, match="`pair_budget`"):
            SPAN(wordpiece, mlm_probability=0.4, max_span_length=1, pair_budget=1, seed=0)([ROW])


class TestSpanColumns:
    def test_targets_and_boundaries_of_every_span(self, wordpiece):
        collator = SPAN(wordpiece, max_pair_targets=3, seed=0)
        for _ in range(30):
            batch = collator([ROW, ROW[:25]])
            assert batch["span_boundaries"].dtype == batch["span_labels"].dtype == torch.int64
            assert batch["span_labels"].shape == (*batch["span_boundaries"].shape[:2], 3)
            for row, source in enumerate((ROW, ROW[:25])):
                for (left, right), target in zip(
                    batch["span_boundaries"][row].tolist(), batch["span_labels"][row].tolist(), strict=True
                ):
                    if (left, right) == (0, 0):
                        assert target == [-100] * 3
                        continue
                    expected = source[left + 1 : right][:3]
                    assert target == expected + [-100] * (3 - len(expected))
                    assert batch["labels"][row, left] == batch["labels"][row, right] == -100
                    assert source[left] not in (2, 3)
                    assert source[right] not in (2, 3)

    def test_a_batch_without_pairs_has_one_filler(self, wordpiece):
        batch = SPAN(wordpiece)([[2, 5, 3]])
        assert batch["span_boundaries"].tolist() == [[[0, 0]]]
        assert (batch["span_labels"] == -100).all()
        assert batch["labels"].tolist() == [[-100, 5, -100]]

    def test_internal_endpoints(self, wordpiece):
        batch = SPAN(wordpiece, endpoints="internal")([[2, 5, 3]])
        assert batch["span_boundaries"].tolist() == [[[1, 1]]]
        assert batch["span_labels"][0, 0, 0] == 5


@pytest.mark.parametrize("cls", [MLM, WWM, SPAN])
def test_words_can_share_their_fate(cls, wordpiece):
    piece = wordpiece("lighthouses")["input_ids"][1:-1]
    row = [2, *piece * 30, 3]
    counts = np.eye(149)[9]
    batch = cls(wordpiece, mlm_probability=1.0, replacement_unit="word", random_token_counts=counts, seed=0)([row])
    words = batch["input_ids"][0, 1:-1].reshape(30, -1)
    for word in words.tolist():
        assert word in ([4] * len(piece), [9] * len(piece), piece)
