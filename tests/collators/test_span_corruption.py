"""T5 batches: sentinels, exact lengths, the text back from input and target; rows and tokenizers that cannot do."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import BertTokenizerFast, T5TokenizerFast

from hf_ptm_ext.collators import DataCollatorForSpanCorruption
from hf_ptm_ext.masking import span_corruption_lengths

PAD, EOS, UNK, FIRST = 0, 1, 2, 3
SENTINELS = [399 - i for i in range(100)]


@pytest.fixture(scope="module")
def t5():
    """T5's own class and layout: pad 0, eos 1, unk 2, sentinels on top from the highest id downwards."""
    vocab = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *((f"▁w{i}", -1.0) for i in range(297))]
    vocab += [(f"<extra_id_{i}>", 0.0) for i in range(99, -1, -1)]
    tokenizer = T5TokenizerFast(vocab=vocab, extra_ids=100)
    assert len(tokenizer) == 400
    assert tokenizer.convert_tokens_to_ids(["<extra_id_0>", "<extra_id_99>"]) == [399, 300]
    return tokenizer


def restored(source, target):
    """The text that input and target stand for, both with their eos."""
    assert source[-1] == target[-1] == EOS
    pieces, answers = {}, target[:-1]
    for token in answers:
        if token in SENTINELS:
            piece = pieces.setdefault(token, [])
        else:
            piece.append(token)
    text = []
    for token in source[:-1]:
        text += pieces[token] if token in SENTINELS else [token]
    return text


class TestBatch:
    def test_rows_of_the_right_length_have_fixed_shapes(self, t5):
        """568 tokens of text give 512 and 114, whatever is drawn."""
        tokens, target = span_corruption_lengths(512)
        rows = [np.arange(tokens) % 290 + FIRST] * 8
        batch = DataCollatorForSpanCorruption(t5, seed=0, return_tensors="np")(rows)
        assert batch["input_ids"].shape == (8, 512)
        assert batch["labels"].shape == batch["decoder_input_ids"].shape == (8, target) == (8, 114)
        assert (batch["labels"] >= 0).all()
        assert batch["attention_mask"].all()
        assert (np.isin(batch["input_ids"], SENTINELS).sum(axis=1) == 28).all()

    def test_sentinels_count_down_in_both(self, t5):
        batch = DataCollatorForSpanCorruption(t5, seed=0, return_tensors="np")([np.arange(60) + FIRST])
        for name in ("input_ids", "labels"):
            row = batch[name][0]
            assert row[np.isin(row, SENTINELS)].tolist() == [399, 398, 397]
        assert batch["labels"][0, 0] == 399
        assert batch["input_ids"][0, 0] == FIRST

    def test_the_decoder_starts_with_padding(self, t5):
        rows = [np.arange(60) + FIRST, np.arange(20) + FIRST]
        batch = DataCollatorForSpanCorruption(t5, seed=0, return_tensors="np")(rows)
        labels, fed = batch["labels"], batch["decoder_input_ids"]
        assert (fed[:, 0] == PAD).all()
        assert (fed[:, 1:] == np.where(labels[:, :-1] < 0, PAD, labels[:, :-1])).all()
        assert labels[1, -1] == -100
        other = DataCollatorForSpanCorruption(t5, decoder_start_token_id=7, seed=0, return_tensors="np")(rows)
        assert (other["decoder_input_ids"][:, 0] == 7).all()

    def test_ends_of_a_row_are_no_text(self, t5):
        """With or without eos, padded or not: the same batch."""
        collate = [DataCollatorForSpanCorruption(t5, seed=0, return_tensors="np") for _ in range(3)]
        text = list(range(FIRST, FIRST + 30))
        batches = [
            collate[0]([text]),
            collate[1]([[*text, EOS]]),
            collate[2]([{"input_ids": [*text, EOS, PAD, PAD], "attention_mask": [1] * 31 + [0] * 2}]),
        ]
        for batch in batches[1:]:
            for name, values in batch.items():
                assert (values == batches[0][name]).all(), name

    @settings(max_examples=100, deadline=None)
    @given(
        lengths=st.lists(st.integers(2, 150), min_size=1, max_size=6),
        density=st.floats(0.02, 0.9),
        mean=st.floats(1, 10),
        left=st.booleans(),
        seed=st.integers(0, 2**20),
    )
    def test_the_text_comes_back(self, t5, lengths, density, mean, left, seed):
        collator = DataCollatorForSpanCorruption(
            t5, noise_density=density, mean_noise_span_length=mean, seed=seed, return_tensors="np"
        )
        rng = np.random.default_rng(seed)
        rows = [rng.integers(FIRST, 290, n).tolist() for n in lengths]
        t5.padding_side = "left" if left else "right"
        try:
            batch = collator(rows)
        finally:
            t5.padding_side = "right"
        for row, ids, mask, labels in zip(
            rows, batch["input_ids"], batch["attention_mask"], batch["labels"], strict=True
        ):
            assert restored(ids[mask == 1].tolist(), labels[labels >= 0].tolist()) == row


class TestWhatCannotBe:
    def test_no_sentinels(self):
        tokenizer = BertTokenizerFast(vocab={"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "a": 5})
        with pytest.raises(ValueError, match=r"must have sentinel tokens.*add_tokens"):
            DataCollatorForSpanCorruption(tokenizer)
        with pytest.raises(ValueError, match=r"`sentinel_tokens` must be tokens of the vocabulary.*<s0>"):
            DataCollatorForSpanCorruption(tokenizer, sentinel_tokens=["<s0>"])
        tokenizer.add_tokens([f"<s{i}>" for i in range(3)], special_tokens=True)
        batch = DataCollatorForSpanCorruption(tokenizer, sentinel_tokens=["<s0>", "<s1>"], seed=0)([[5] * 20])
        assert batch["labels"][0, 0] == 6

    def test_more_spans_than_sentinels(self, t5):
        collator = DataCollatorForSpanCorruption(t5, mean_noise_span_length=1.0, noise_density=0.4)
        with pytest.raises(ValueError, match="got 100 for 120 spans"):
            collator([np.full(300, FIRST)])

    @pytest.mark.parametrize("row", [[], [EOS], [5, EOS], [5, PAD, PAD]])
    def test_short_rows(self, t5, row):
        with pytest.raises(ValueError, match=r"`input_ids` must have at least 2 tokens of text, got [01] in row 1"):
            DataCollatorForSpanCorruption(t5)([[5, 6, 7], row])

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"noise_density": 0.0}, "`noise_density`"),
            ({"noise_density": 1.0}, "`noise_density`"),
            ({"noise_density": -1.0}, "`noise_density`"),
            ({"mean_noise_span_length": 0.0}, "`mean_noise_span_length`"),
        ],
    )
    def test_options(self, t5, options, message):
        with pytest.raises(ValueError, match=message):
            DataCollatorForSpanCorruption(t5, **options)

    def test_no_end_token(self, t5):
        tokenizer = T5TokenizerFast(vocab=[("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)], extra_ids=2)
        tokenizer.eos_token = None
        with pytest.raises(ValueError, match="must have an end token"):
            DataCollatorForSpanCorruption(tokenizer)
