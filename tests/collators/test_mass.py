"""MASS batches: what encoder and decoder get, for each row its own; padding, short rows, options."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import BertTokenizerFast

from hf_ptm_ext.collators import MASS_VARIANTS, DataCollatorForMassPreTraining

PAD, UNK, CLS, SEP, MASK = range(5)
VOCAB = {"[PAD]": PAD, "[UNK]": UNK, "[CLS]": CLS, "[SEP]": SEP, "[MASK]": MASK}
VOCAB |= {f"[unused{i}]": 5 + i for i in range(5)} | {f"w{i}": i for i in range(10, 300)}
ALWAYS = {"mask_replace_prob": 1.0, "random_replace_prob": 0.0}


@pytest.fixture
def make():
    def build(padding_side="right", variant="summarization", **options):
        tokenizer = BertTokenizerFast(vocab=VOCAB, padding_side=padding_side)
        options = {**MASS_VARIANTS[variant], "seed": 0, "return_tensors": "np", **options}
        return DataCollatorForMassPreTraining(tokenizer, **options)

    return build


def row(length, first=10):
    return [first + i for i in range(length)]


class TestOneFragment:
    def test_encoder_and_decoder_complement_each_other(self, make):
        batch = make(variant="paper", **ALWAYS)([row(9)] * 50)
        for ids, fed, positions, labels in zip(
            *(batch[name] for name in ("input_ids", "decoder_input_ids", "decoder_position_ids", "labels")),
            strict=True,
        ):
            hidden = np.flatnonzero(ids == MASK)
            assert len(hidden) == 4  # floor(8 / 2)
            assert (np.diff(hidden) == 1).all()
            assert labels.tolist() == (hidden + 10).tolist()
            assert fed.tolist() == (hidden + 9).tolist()
            assert positions.tolist() == (hidden - 1).tolist()

    def test_length_and_place_are_each_rows_own(self, make):
        """The reference takes both from the longest or first sentence of the batch."""
        lengths = [4, 9, 30, 61]
        batch = make(variant="unsupervised_nmt")([row(n) for n in lengths] * 500)
        counts = (batch["labels"] >= 0).sum(axis=1).reshape(-1, 4)
        assert set(map(tuple, counts.tolist())) == {(2, 4, 15, 30)}
        ends = np.array([(labels[labels >= 0] - 10).max() for labels in batch["labels"]]).reshape(-1, 4)
        for column, n in enumerate(lengths):
            share = (ends[:, column] == n - 1).mean()
            expected = 0.2 + 0.6 / (n - counts[0, column])
            assert share == pytest.approx(expected, abs=4.5 * np.sqrt(expected * (1 - expected) / 500))

    def test_the_papers_first_decoder_token_is_a_mask(self, make):
        batch = make(variant="paper", first_decoder_token="mask")([row(9)] * 8)
        assert (batch["decoder_input_ids"][:, 0] == MASK).all()
        assert (batch["decoder_input_ids"][:, 1:] == batch["labels"][:, :-1]).all()

    @pytest.mark.parametrize(("start_prob", "end_prob"), [(1.0, 0.0), (0.0, 1.0)])
    def test_forced_edges(self, make, start_prob, end_prob):
        labels = make(variant="paper", start_prob=start_prob, end_prob=end_prob)([row(9)] * 20)["labels"]
        assert (labels == (row(9)[1:5] if start_prob else row(9)[5:])).all()


class TestWindows:
    def test_every_window_loses_its_share(self, make):
        batch = make(mask_prob=0.3, block_size=10, **ALWAYS)([row(26)] * 40)
        hidden = batch["input_ids"] == MASK
        assert (hidden[:, 1:11].sum(axis=1) == 3).all()
        assert (hidden[:, 11:21].sum(axis=1) == 3).all()
        assert (hidden[:, 21:].sum(axis=1) == 1).all()

    def test_first_decoder_tokens_are_masks_at_every_fragment(self, make):
        options = {"mask_prob": 0.4, "block_size": 5, "first_decoder_token": "mask"}
        batch = make(**options)([row(16), row(11)] * 40)
        for fed, labels in zip(batch["decoder_input_ids"], batch["labels"], strict=True):
            labels = labels[labels >= 0]
            opens = np.append(True, np.diff(labels) > 1)
            assert (fed[: len(labels)] == np.where(opens, MASK, labels - 1)).all()

    @pytest.mark.parametrize("piece_length", [1, 2, 3])
    def test_pieces(self, make, piece_length):
        """`lambda_span`: pieces of that length and a remainder, the first or last one forced to its edge."""
        options = {"variant": "unsupervised_nmt", "piece_length": piece_length, **ALWAYS}
        hidden = make(**options)([row(21)] * 4000)["input_ids"] == MASK
        assert (hidden.sum(axis=1) == 10).all()  # round half to even
        assert not hidden[:, 0].any()
        # A forced edge, or chance: (all shuffled, first shuffled without the last piece).
        pieces = -(-10 // piece_length)
        items = pieces + 10
        rest = (pieces - 1) / (items - 1)
        expected = 0.2 + 0.2 * rest + 0.6 * pieces / items
        bound = 5 * np.sqrt(expected * (1 - expected) / 4000)
        assert hidden[:, 1].mean() == pytest.approx(expected, abs=bound)
        assert hidden[:, -1].mean() == pytest.approx(expected, abs=bound)


class TestRows:
    def test_left_and_right_padding_give_the_decoder_the_same(self, make):
        rows = [row(30), row(12, 50), row(7, 90)]
        right, left = make("right")(rows), make("left")(rows)
        for name in ("decoder_input_ids", "decoder_position_ids", "labels"):
            assert (right[name] == left[name]).all(), name
        for a, b, text in zip(right["input_ids"], left["input_ids"], rows, strict=True):
            assert a[: len(text)].tolist() == b[-len(text) :].tolist()
        assert left["attention_mask"][1].tolist() == [0] * 18 + [1] * 12

    def test_padding_of_the_columns(self, make):
        batch = make(pad_to_multiple_of=8)([row(40), row(10)])
        assert batch["input_ids"].shape == (2, 40)
        assert batch["labels"].shape == batch["decoder_position_ids"].shape == (2, 8)
        few = batch["labels"][1] >= 0
        assert few.tolist() == [True] + [False] * 7
        assert set(batch["labels"][1][~few]) == {-100}
        assert set(batch["decoder_input_ids"][1][~few]) == {PAD}
        assert set(batch["decoder_position_ids"][1][~few]) == {0}

    def test_a_row_that_the_rule_gives_nothing_loses_one_token(self, make):
        """floor(5 * 0.15) = 0; the reference fails there."""
        labels = make(**ALWAYS)([row(6)] * 6000)["labels"]
        assert labels.shape == (6000, 1)
        shares = np.bincount(labels[:, 0] - 11) / 6000
        assert shares == pytest.approx([0.2] * 5, abs=5 * np.sqrt(0.2 * 0.8 / 6000))

    def test_one_token_of_the_windows_is_drawn_in_proportion(self, make):
        """Two windows, of 6 and 3 tokens, both below 1 / p."""
        labels = make(mask_prob=0.1, block_size=6)([row(10)] * 9000)["labels"]
        assert labels.shape == (9000, 1)
        shares = np.bincount(labels[:, 0] - 11) / 9000
        assert shares == pytest.approx([1 / 9] * 9, abs=5 * np.sqrt(8 / 81 / 9000))

    @pytest.mark.parametrize("text", [[], [10], [10, PAD, PAD]])
    def test_rows_without_a_token_to_predict_are_refused(self, make, text):
        with pytest.raises(ValueError, match=r"`input_ids` must have at least 2 tokens, got [01] in row 1"):
            make()([row(8), text])

    def test_one_token_suffices_behind_an_end_token(self, make):
        batch = make(variant="supervised_nmt", decoder_mask_prob=0.0, decoder_random_prob=0.0)([[10]])
        assert batch["labels"].tolist() == [[10]]
        assert batch["decoder_input_ids"].tolist() == [[SEP]]

    def test_random_ids_are_neither_special_nor_unused(self, make):
        options = {"mask_replace_prob": 0.0, "random_replace_prob": 1.0, "variant": "paper"}
        batch = make(**options)([row(200)] * 40)
        assert batch["input_ids"].min() >= 10
        low = make(**options, first_random_id=0)([row(200)] * 40)["input_ids"].min()
        assert low == 0
        high = make(**options, first_random_id=290)([[11] * 200] * 40)["input_ids"]
        assert set(np.unique(high)) == {11, *range(290, 300)}

    @settings(max_examples=60, deadline=None)
    @given(
        lengths=st.lists(st.integers(2, 70), min_size=1, max_size=6),
        probability=st.floats(0, 1),
        block=st.one_of(st.none(), st.integers(1, 80)),
        left=st.booleans(),
        seed=st.integers(0, 2**20),
    )
    def test_the_text_can_be_put_together_again(self, lengths, probability, block, left, seed):
        tokenizer = BertTokenizerFast(vocab=VOCAB, padding_side="left" if left else "right")
        collator = DataCollatorForMassPreTraining(
            tokenizer, mask_prob=probability, block_size=block, **ALWAYS, seed=seed, return_tensors="np"
        )
        texts = [row(n, 10 + i) for i, n in enumerate(lengths)]
        batch = collator(texts)
        for number, text in enumerate(texts):
            ids = batch["input_ids"][number][batch["attention_mask"][number] == 1]
            labelled = batch["labels"][number] >= 0
            places = batch["decoder_position_ids"][number][labelled] + 1
            assert (ids[places] == MASK).all()
            assert (np.diff(places) > 0).all()
            ids[places] = batch["labels"][number][labelled]
            assert ids.tolist() == text
            assert batch["decoder_input_ids"][number][labelled].tolist() == [text[place - 1] for place in places]


class TestOptions:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"mask_prob": 1.5}, "`mask_prob`"),
            ({"block_size": 0}, "`block_size`"),
            ({"length_rule": "ceil"}, "`length_rule`"),
            ({"length_rule": "round"}, "`block_size` must be None with `length_rule`='round'"),
            ({"start_prob": 0.7, "end_prob": 0.7}, "`start_prob` \\+ `end_prob`"),
            ({"mask_replace_prob": 0.9, "random_replace_prob": 0.2}, "`mask_replace_prob`"),
            ({"first_random_id": 10_000}, "`first_random_id`"),
            ({"first_decoder_token": "bos"}, "`first_decoder_token`"),
            ({"piece_length": 2, "exclude_last_start": True}, "`piece_length` must be None"),
            ({"encoder_window": "left"}, "`encoder_window`"),
        ],
    )
    def test_wrong_values_are_named(self, make, options, message):
        with pytest.raises(ValueError, match=message):
            make(**options)

    def test_a_tokenizer_without_mask_is_refused(self):
        tokenizer = BertTokenizerFast(vocab=VOCAB)
        tokenizer.mask_token = None
        with pytest.raises(ValueError, match="must have a mask token"):
            DataCollatorForMassPreTraining(tokenizer)

    def test_every_variant_is_accepted(self, make):
        for variant in MASS_VARIANTS:
            batch = make(variant=variant, return_tensors="pt")([row(20)])
            assert all(isinstance(values, torch.Tensor) for values in batch.values())
