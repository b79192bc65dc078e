"""Rows in, tensors out for the sequence-to-sequence collators: ragged and padded rows, other columns (case G02),
randomness by seed, epoch and call."""

import pickle

import numpy as np
import pytest
import torch
from transformers import BatchEncoding, PreTrainedTokenizerFast

from hf_ptm_ext.collators import (
    DataCollatorForMassPreTraining,
    DataCollatorForSpanCorruption,
    DataCollatorForTextInfilling,
)

COLLATORS = [DataCollatorForMassPreTraining, DataCollatorForTextInfilling, DataCollatorForSpanCorruption]
PAD = 0


@pytest.fixture(scope="module")
def tokenizer(wordpiece):
    extended = pickle.loads(pickle.dumps(wordpiece))
    extended.add_tokens([f"<extra_id_{i}>" for i in range(20)], special_tokens=True)
    return extended


@pytest.fixture(params=COLLATORS, ids=lambda c: c.__name__[15:])
def collator_class(request):
    return request.param


@pytest.fixture
def features(tokenizer):
    """Row A padded by the tokenizer and without mask, row B a numpy array with all its columns."""
    b = tokenizer("the lighthouses in the night")
    return [
        {"input_ids": tokenizer("light mark the light", padding="max_length", max_length=12)["input_ids"]},
        {
            "input_ids": np.array(b["input_ids"]),
            "token_type_ids": np.array(b["token_type_ids"]),
            "attention_mask": np.array(b["attention_mask"]),
            "special_tokens_mask": [1] + [0] * (len(b["input_ids"]) - 2) + [1],
        },
    ]


class TestRows:
    def test_padding_is_no_text(self, collator_class, tokenizer, features):
        text = [[i for i in row["input_ids"] if i != PAD] for row in features]
        padded = [dict(features[0]), {"input_ids": [*text[1], PAD, PAD], "attention_mask": [1] * (len(text[1]) + 2)}]
        for _ in range(5):
            got = collator_class(tokenizer, seed=0, return_tensors="np")(padded)
            plain = collator_class(tokenizer, seed=0, return_tensors="np")(text)
            for name in set(plain) & {"labels", "decoder_input_ids", "decoder_position_ids"}:
                assert (got[name] == plain[name]).all(), name
            for a, b, mask_a, mask_b in zip(
                got["input_ids"], plain["input_ids"], got["attention_mask"], plain["attention_mask"], strict=True
            ):
                assert a[mask_a == 1].tolist() == b[mask_b == 1].tolist()
                assert set(a[mask_a == 0]) <= {PAD}

    def test_what_comes_out(self, collator_class, tokenizer, features):
        batch = collator_class(tokenizer, seed=0, pad_to_multiple_of=8)(features)
        assert isinstance(batch, BatchEncoding)
        positions = {"decoder_position_ids"} if collator_class is DataCollatorForMassPreTraining else set()
        assert set(batch) == {"input_ids", "attention_mask", "decoder_input_ids", "labels"} | positions
        assert all(values.dtype == torch.int64 for values in batch.values())
        assert all(values.shape[1] % 8 == 0 for values in batch.values())
        assert batch["labels"].shape == batch["decoder_input_ids"].shape

    def test_columns_of_a_row_are_kept(self, collator_class, tokenizer, features):
        rows = [row | {"sample_id": i, "vector": [0.5, i]} for i, row in enumerate(features)]
        batch = collator_class(tokenizer, seed=0)(rows)
        assert batch["sample_id"].tolist() == [0, 1]
        assert batch["vector"].tolist() == [[0.5, 0.0], [0.5, 1.0]]

    def test_columns_per_token(self, collator_class, tokenizer, features):
        rows = [row | {"entity_ids": list(range(1, len(row["input_ids"]) + 1))} for row in features]
        collator = collator_class(tokenizer, seed=0)
        if collator_class is DataCollatorForMassPreTraining:
            entities = collator(rows)["entity_ids"]
            sizes = [len(row["input_ids"]) for row in features]
            assert entities.tolist() == [[*range(1, n + 1)] + [0] * (max(sizes) - n) for n in sizes]
        else:
            with pytest.raises(
                ValueError, match=r"`entity_ids` has one entry per token.*remove_columns\('entity_ids'\)"
            ):
                collator(rows)

    def test_text_columns_and_packed_rows_are_named(self, collator_class, tokenizer):
        row = tokenizer("the light in the night")["input_ids"]
        with pytest.raises(ValueError, match="`text` must hold numbers"):
            collator_class(tokenizer)([{"input_ids": row, "text": "the light"}])
        with pytest.raises(ValueError, match=r"`sequence_ids`.*Do not pack the rows"):
            collator_class(tokenizer)([{"input_ids": row, "sequence_ids": [1] * len(row)}])
        with pytest.raises(ValueError, match="`features` must hold at least one row"):
            collator_class(tokenizer)([])
        with pytest.raises(ValueError, match=r"`input_ids` must be in \[0, "):
            collator_class(tokenizer)([[2, 10_000, 3]])

    def test_a_tokenizer_without_padding(self, collator_class, tokenizer):
        bare = pickle.loads(pickle.dumps(tokenizer))
        bare.pad_token = None
        with pytest.raises(ValueError, match="`tokenizer` must have a padding token"):
            collator_class(bare)

    def test_new_tokens_are_seen(self, collator_class, tokenizer):
        grown = pickle.loads(pickle.dumps(tokenizer))
        collator = collator_class(grown, seed=0)
        grown.add_tokens(["brandnew"])
        row = [2, *[len(grown) - 1] * 10, 3]
        assert collator([row])["labels"].max() == len(grown) - 1


class TestRandomness:
    @pytest.fixture
    def rows(self, tokenizer):
        return [tokenizer("the lighthouses in the night and the light " * 4)["input_ids"]] * 4

    def test_seed_epoch_and_call(self, collator_class, tokenizer, rows):
        def batches(collator, count=3):
            return [collator(rows)["input_ids"].tolist() for _ in range(count)]

        first = batches(collator_class(tokenizer, seed=1))
        assert batches(collator_class(tokenizer, seed=1)) == first
        assert batches(collator_class(tokenizer, seed=2)) != first
        assert first[0] != first[1]
        collator = collator_class(tokenizer, seed=1)
        collator.set_epoch(1)
        assert batches(collator) != first
        resumed = collator_class(tokenizer, seed=1)
        state = collator_class(tokenizer, seed=1)
        batches(state, 1)
        resumed.load_state_dict(state.state_dict())
        assert batches(resumed, 2) == first[1:]

    def test_the_global_state_is_left_alone(self, collator_class, tokenizer, rows):
        torch.manual_seed(0)
        np.random.seed(0)
        before = torch.get_rng_state(), np.random.get_state()[1].tolist()
        collator_class(tokenizer, seed=0)(rows)
        assert torch.equal(before[0], torch.get_rng_state())
        assert before[1] == np.random.get_state()[1].tolist()

    def test_pickled_and_in_a_worker(self, collator_class, tokenizer, rows):
        collator = pickle.loads(pickle.dumps(collator_class(tokenizer, seed=0)))
        loader = torch.utils.data.DataLoader(rows * 2, batch_size=4, collate_fn=collator, num_workers=1)
        assert len(list(loader)) == 2


def test_marks_of_unknown_style_need_a_choice(boundless):
    """A tokenizer whose pieces say nothing about words: an error, or tokens as units."""
    row = boundless("the lighthouse keepers reappeared")["input_ids"]
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=boundless.backend_tokenizer, **boundless.special_tokens_map)
    options = {"permute_sentence_ratio": 0.0, "seed": 0}
    with pytest.raises(ValueError, match="must mark word boundaries"):
        DataCollatorForTextInfilling(tokenizer, **options)([row])
    assert "labels" in DataCollatorForTextInfilling(tokenizer, **options, word_boundaries="token")([row])


@pytest.mark.parametrize("collator_class", COLLATORS, ids=lambda c: c.__name__[15:])
def test_columns_share_no_memory(collator_class, tokenizer):
    """Writing to one column of the batch, as some training loops do, changes no other and no row that came in."""
    options = {"mask_ratio": 0.0, "permute_sentence_ratio": 0.0} if "Infilling" in collator_class.__name__ else {}
    rows = [np.array(tokenizer("the light of the harbour")["input_ids"])] * 2
    batch = collator_class(tokenizer, seed=0, return_tensors="np", **options)(rows)
    names = sorted(batch)
    for place, name in enumerate(names):
        assert not any(np.shares_memory(batch[name], batch[other]) for other in names[place + 1 :]), name
        assert not np.shares_memory(batch[name], rows[0]), name
