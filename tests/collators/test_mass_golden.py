"""MASS batches against the reference's own statistics (tests/goldens/mass-mask-stats.json, 10,000 samples each)."""

import json
from pathlib import Path

import numpy as np
import pytest
from transformers import BertTokenizerFast

from hf_ptm_ext.collators import MASS_VARIANTS, DataCollatorForMassPreTraining

STATS = json.loads((Path(__file__).parents[1] / "goldens" / "mass-mask-stats.json").read_text(encoding="utf-8"))[
    "stats"
]
# More samples than the golden has: its own noise alone takes a good part of the tolerance.
SAMPLES, TOLERANCE = 40_000, 0.015
PAD, END, MASK, FIRST = 0, 3, 4, 20
VOCAB = {"[PAD]": PAD, "[UNK]": 1, "[CLS]": 2, "[SEP]": END, "[MASK]": MASK} | {f"w{i}": i for i in range(5, 8000)}


def draw(length, variant, **options):
    """One batch of `SAMPLES` rows whose tokens tell their places: token j has id 5000 + j."""
    tokenizer = BertTokenizerFast(vocab=VOCAB)
    text = np.arange(length) + 5000
    collator = DataCollatorForMassPreTraining(
        tokenizer, **{**MASS_VARIANTS[variant], **options}, return_tensors="np", seed=0
    )
    return collator([text] * SAMPLES), text


def predicted_places(batch):
    """Places of the predicted tokens, (samples, T), -1 on padding."""
    return np.where(batch["labels"] >= 0, batch["labels"] - 5000, -1)


def assert_shares(values, golden, tolerance=TOLERANCE):
    ours = np.bincount(values) / len(values)
    for value, share in golden.items():
        assert ours[int(value)] == pytest.approx(share, abs=tolerance), value
    assert set(np.flatnonzero(ours)) == {int(value) for value in golden}


def assert_fates(batch, text, golden):
    """Masked, kept and random shares of the predicted tokens on the encoder side."""
    places = predicted_places(batch)
    rows = np.nonzero(places >= 0)[0]
    encoder = batch["input_ids"][rows, places[places >= 0]]
    kept = encoder == text[places[places >= 0]]
    assert (encoder == MASK).mean() == pytest.approx(golden["mask"], abs=TOLERANCE)
    assert kept.mean() == pytest.approx(golden["keep"], abs=TOLERANCE)
    assert ((encoder != MASK) & ~kept).mean() == pytest.approx(golden["random"], abs=TOLERANCE)
    untouched = np.ones(batch["input_ids"].shape, dtype=bool)
    untouched[rows, places[places >= 0]] = False
    assert (batch["input_ids"] == text)[untouched].all()
    return encoder[(encoder != MASK) & ~kept]


@pytest.fixture(scope="module", params=[name for name in STATS if name.startswith("fairseq")])
def summarization(request):
    golden = STATS[request.param]
    options = {"mask_prob": golden["mask_prob"], "block_size": golden["block_size"], "first_random_id": FIRST}
    return (golden, *draw(golden["sequence_length"], "summarization", **options))


class TestSummarization:
    def test_lengths_and_starts_of_each_window(self, summarization):
        golden, batch, _ = summarization
        places = predicted_places(batch)
        assert set((places >= 0).sum(axis=1)) == {int(count) for count in golden["masked_count_distribution"]}
        assert (places >= 0).sum() / SAMPLES / golden["sequence_length"] == pytest.approx(golden["masked_ratio_mean"])
        begin = 0
        for window, length in enumerate(golden["fragment_length_per_block"]):
            fragment = places[:, begin : begin + length]
            assert (np.diff(fragment, axis=1) == 1).all()
            if length:
                offsets = fragment[:, 0] - 1 - window * golden["block_size"]
                assert_shares(offsets, golden["start_offset_in_block_distribution"][window])
            begin += length
        assert places.shape[1] == begin
        assert places.min() >= 1

    def test_fates(self, summarization):
        golden, batch, text = summarization
        randoms = assert_fates(batch, text, golden)
        assert randoms.min() >= golden["first_allowed_random_id"]

    def test_the_decoder_gets_the_original_token_before(self, summarization):
        _, batch, text = summarization
        places = predicted_places(batch)
        assert (batch["decoder_input_ids"] == text[places - 1]).all()
        assert (batch["decoder_position_ids"] == places - 1).all()


@pytest.fixture(scope="module", params=[name for name in STATS if name.startswith("xlm")])
def unsupervised(request):
    golden = STATS[request.param]
    return (
        golden,
        *draw(golden["sentence_length_incl_both_eos"], "unsupervised_nmt", mask_prob=golden["word_mass"]),
    )


class TestUnsupervisedTranslation:
    def test_length_and_start(self, unsupervised):
        golden, batch, text = unsupervised
        places = predicted_places(batch)
        assert [str(places.shape[1])] == list(golden["fragment_length"])
        assert (np.diff(places, axis=1) == 1).all()
        assert_shares(places[:, 0], golden["start_index_distribution"])
        share = (places[:, -1] == len(text) - 1).mean()
        assert share == pytest.approx(golden["share_of_samples_masking_the_final_eos"], abs=TOLERANCE)

    def test_fates_and_random_ids_of_the_whole_vocabulary(self, unsupervised):
        golden, batch, text = unsupervised
        randoms = assert_fates(batch, text, golden)
        assert randoms.min() < 50


@pytest.fixture(scope="module", params=[name for name in STATS if name.startswith("supnmt")])
def supervised(request):
    golden = STATS[request.param]
    return (
        golden,
        *draw(golden["length_incl_final_eos"], "supervised_nmt", mask_prob=golden["ratio"], first_random_id=FIRST),
    )


class TestSupervisedTranslation:
    def test_length_and_start(self, supervised):
        golden, batch, _ = supervised
        places = predicted_places(batch)
        assert [str(places.shape[1])] == list(golden["fragment_length"])
        # The golden counts the end token that is put in front as place 0.
        assert_shares(places[:, 0] + 1, golden["start_index_in_eos_prefixed_list_distribution"])

    def test_the_encoder_window_is_one_longer_and_one_further(self, supervised):
        golden, batch, text = supervised
        places = predicted_places(batch)
        columns = np.arange(len(text))
        window = (columns > places[:, :1]) & (columns <= places[:, -1:] + 2)
        assert (batch["input_ids"] == text)[~window].all()
        encoder = batch["input_ids"][window]
        kept = (batch["input_ids"] == text)[window]
        shares = golden["encoder_span_replacement"]
        assert (encoder == MASK).mean() == pytest.approx(shares["mask"], abs=TOLERANCE)
        assert kept.mean() == pytest.approx(shares["keep"], abs=TOLERANCE)
        assert ((encoder != MASK) & ~kept).mean() == pytest.approx(shares["random"], abs=TOLERANCE)

    def test_decoder_inputs_are_corrupted_and_have_no_positions(self, supervised):
        golden, batch, text = supervised
        assert "decoder_position_ids" not in batch
        places = predicted_places(batch)
        before = np.where(places == 0, END, text[places - 1])
        fed = batch["decoder_input_ids"]
        shares = golden["decoder_input_replacement"]
        assert (fed == MASK).mean() == pytest.approx(shares["mask"], abs=TOLERANCE)
        assert (fed == before).mean() == pytest.approx(shares["keep"], abs=TOLERANCE)
