"""Basic and unit masking against ERNIE 1.0's own statistics (tests/goldens/ernie1-mask-stats.json)."""

import json
from pathlib import Path

import numpy as np
import pytest
from transformers import BertTokenizerFast

from hf_ptm_ext.collators import DataCollatorForErnieMasking
from hf_ptm_ext.masking import find_segments

GOLDEN = json.loads((Path(__file__).parents[1] / "goldens" / "ernie1-mask-stats.json").read_text(encoding="utf-8"))
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{number}" for number in range(4000))]
TOKENIZER = BertTokenizerFast(vocab={piece: number for number, piece in enumerate(PIECES)})
TEXT = 5


@pytest.mark.parametrize("number", range(len(GOLDEN["runs"])))
def test_units_and_fates_are_those_of_the_reference(number):
    run, rng = GOLDEN["runs"][number], np.random.default_rng(number)
    later, width = "variant" in run, 126
    level = "phrase" if later or run["mode"] == "mask_word" else "basic"
    collator = DataCollatorForErnieMasking(
        TOKENIZER,
        levels={"phrase": "phrase_ids"},
        level_weights={level: 1},
        budget="batch" if later else "bernoulli",
        return_tensors="np",
        seed=number,
    )
    share = run.get("p_continuation(seg_label 1)", 0.4)
    starts = rng.random((6000, width)) >= share
    starts[:, 0] = True
    units = np.cumsum(starts, axis=1)
    rows = [{"input_ids": [2, *[TEXT] * width, 3], "phrase_ids": [-1, *row, -1]} for row in units.tolist()]
    batches = [collator(rows[begin : begin + 64]) for begin in range(0, len(rows), 64)]
    ids, labels = (np.concatenate([batch[name] for batch in batches]) for name in ("input_ids", "labels"))
    assert "phrase_ids" not in batches[0]
    selected = (labels != -100)[:, 1:-1]
    assert not (labels[:, [0, -1]] != -100).any()
    assert selected.mean() == pytest.approx(run["masked_over_non_special"], abs=0.0025)
    assert selected.mean(axis=1).std() == pytest.approx(run["std_of_ratio_over_sequences"], abs=0.004)
    seen = ids[:, 1:-1][selected]
    fates = {"mask": (seen == 4).mean(), "keep": (seen == TEXT).mean()}
    fates["random"] = 1 - sum(fates.values())
    for name, share in run["fate"].items():
        assert fates[name] == pytest.approx(share, abs=0.006), name
    assert 0 not in seen, "the padding is never drawn"
    found = find_segments(np.ones_like(starts), starts)
    before = np.concatenate([[0], np.cumsum(selected.ravel())])
    hits = before[found.row * width + found.stop] - before[found.row * width + found.start]
    if level == "basic":
        assert ((hits > 0) & (hits < found.lengths)).any()
        return
    assert ((hits == 0) | (hits == found.lengths)).all(), "units are selected whole"
    for length, share in run.get("select_prob_given_unit_length", {}).items():
        these = hits[found.lengths == int(length)] > 0
        if len(these) > 5000:
            assert these.mean() == pytest.approx(share, abs=0.01), length


def make(**options):
    return DataCollatorForErnieMasking(TOKENIZER, seed=0, **options)


ROW = {"input_ids": [2, *range(5, 17), 3], "phrase_ids": [-1, *[0] * 6, *[1] * 6, -1]}
ROW["entity_unit_ids"] = [-1, *[-1] * 4, *[7] * 4, *[-1] * 4, -1]


def lengths_of(collator, draws=200):
    labels = np.concatenate([collator([ROW] * 4)["labels"].numpy() for _ in range(draws // 4)])
    return set(find_segments(labels[:, 1:-1] != -100).lengths)


def test_levels_come_by_their_weights_or_by_a_schedule():
    assert lengths_of(make(level_weights={"phrase": 1}, mlm_probability=0.3)) == {6, 12}
    assert 4 in lengths_of(make(level_weights={"entity": 1}, mlm_probability=0.02))
    staged = make(schedule=[(0, {"basic": 1}), (25, {"phrase": 1})], mlm_probability=0.1)
    early, late = lengths_of(staged, 100), lengths_of(staged, 100)
    assert max(early) < 6
    assert late <= {6, 12}
    again = make(schedule=[(0, {"basic": 1}), (25, {"phrase": 1})], mlm_probability=0.1)
    again.load_state_dict(staged.state_dict())
    assert lengths_of(again, 40) <= {6, 12}, "a resumed run is in its stage"


def test_budgets():
    exact = make(budget="exact", level_weights={"basic": 1})([ROW] * 3)["labels"]
    assert (exact != -100).sum(1).tolist() == [2, 2, 2]
    one = make(at_least_one=True, mlm_probability=0.0)([ROW] * 5)["labels"]
    assert ((one != -100).sum(1) > 0).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: make(level_weights={"word": 1}),
            "`level_weights` and `schedule` must give levels among basic, phrase",
        ),
        (lambda: make(level_weights={"basic": 0}), "not all 0"),
        (lambda: make(budget="some"), "`budget` must be one of"),
        (lambda: make()([{"input_ids": [2, 5, 3]}]), r"`levels` name the columns \['phrase_ids', 'entity_unit_ids'\]"),
    ],
)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
