"""UniLM pre-training batches: the mixture, token types by mode, source lengths, next sentence labels, packed rows."""

import dataclasses
import pickle

import numpy as np
import pytest
import torch
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast, TrainingArguments

from hf_ptm_ext.collators import DataCollatorForUniLMPreTraining
from hf_ptm_ext.data import SentencePair, pack_row, special_tokens_of
from hf_ptm_ext.trainers import PtmTrainer

CLS, SEP, PAD, MASK = 2, 3, 0, 4
TYPES = {0: (0, 1), 1: (2, 2), 2: (3, 3), 3: (4, 5)}
MODES = ["bidirectional", "left-to-right", "right-to-left", "seq2seq"]


def pair(first, second, label=None, typed=True):
    row = {"input_ids": [CLS, *first, SEP, *second, SEP]}
    if typed:
        row["token_type_ids"] = [0] * (len(first) + 2) + [1] * (len(second) + 1)
    if label is not None:
        row["next_sentence_label"] = label
    return row


def words(count):
    return [5 + i % 100 for i in range(count)]


@pytest.fixture
def make(wordpiece):
    def build(padding_side="right", **options):
        tokenizer = pickle.loads(pickle.dumps(wordpiece))
        tokenizer.padding_side = padding_side
        return DataCollatorForUniLMPreTraining(tokenizer, **({"seed": 0} | options))

    return build


class TestModes:
    def test_the_default_mixture_is_the_papers(self, make):
        batch = make()([pair(words(1), words(1))] * 6000)
        share = np.bincount(batch["lm_mode"].numpy(), minlength=4) / 6000
        for got, expected in zip(share, (1 / 3, 1 / 6, 1 / 6, 1 / 3), strict=True):
            assert got == pytest.approx(expected, abs=5 * np.sqrt(expected * (1 - expected) / 6000))

    @pytest.mark.parametrize("mode", range(4))
    def test_token_types_and_source_lengths(self, make, mode):
        collator = make(mode_probabilities={MODES[mode]: 1.0}, pad_to_multiple_of=8)
        batch = collator([pair(words(3), words(2)), pair(words(1), words(1))])
        first, second = TYPES[mode]
        assert batch["lm_mode"].tolist() == [mode, mode]
        assert batch["source_lengths"].tolist() == [5, 3]
        assert batch["token_type_ids"].tolist() == [[first] * 5 + [second] * 3, [first] * 3 + [second] * 2 + [0] * 3]

    def test_one_batch_mixes_modes_and_no_column_is_quadratic(self, make):
        rows, width = 64, 23
        batch = make(label_budget=8)([pair(words(10), words(10), 0)] * rows)
        assert set(batch["lm_mode"].tolist()) == {0, 1, 2, 3}
        per_token = {"input_ids", "attention_mask", "token_type_ids", "labels"}
        assert {name: tuple(values.shape) for name, values in batch.items()} == (
            dict.fromkeys(per_token, (rows, width))
            | dict.fromkeys(("lm_mode", "source_lengths", "next_sentence_label"), (rows,))
            | {"label_positions": (rows, 8)}
        )
        assert all(values.dtype == torch.int64 for values in batch.values())
        for row in range(rows):
            first, second = TYPES[int(batch["lm_mode"][row])]
            assert batch["token_type_ids"][row].tolist() == [first] * 12 + [second] * 11

    def test_a_single_sequence_takes_one_of_the_other_modes(self, make):
        batch = make()([{"input_ids": [CLS, *words(4), SEP]}] * 4000)
        share = np.bincount(batch["lm_mode"].numpy(), minlength=4) / 4000
        assert share[3] == 0
        for got, expected in zip(share, (1 / 2, 1 / 4, 1 / 4), strict=False):
            assert got == pytest.approx(expected, abs=0.04)
        assert (batch["source_lengths"] == 6).all()

    def test_a_single_sequence_cannot_be_seq2seq_alone(self, make):
        collator = make(mode_probabilities={"seq2seq": 1.0})
        with pytest.raises(ValueError, match=r"`mode_probabilities`.*second segment.*row, 1"):
            collator([pair(words(2), words(2)), {"input_ids": [CLS, 7, SEP]}])

    @pytest.mark.parametrize(
        "wrong", [{"seq2seq": 0.5}, {"both": 1.0}, {"seq2seq": 2.0, "bidirectional": -1.0}, [1 / 4] * 4, {}]
    )
    def test_a_mixture_that_is_none(self, make, wrong):
        with pytest.raises(ValueError, match="`mode_probabilities`"):
            make(mode_probabilities=wrong)


class TestSegments:
    def test_without_token_types_the_first_separator_ends_the_source(self, make):
        rows = [pair(words(3), [9, SEP, 8], typed=False), pair(words(1), words(6)), {"input_ids": [CLS, 9, SEP]}]
        batch = make(mode_probabilities={"bidirectional": 1.0})(rows)
        assert batch["source_lengths"].tolist() == [5, 3, 3]
        assert batch["token_type_ids"].tolist() == [
            [0] * 5 + [1] * 4 + [0],
            [0] * 3 + [1] * 7,
            [0] * 10,
        ]

    def test_types_that_are_no_pair(self, make):
        for types in ([0, 1, 0, 1], [4, 4, 5, 5], [1, 0, 0, 0]):
            with pytest.raises(ValueError, match=r"`token_type_ids` must be 0 .* row 0"):
                make()([{"input_ids": [CLS, 7, 8, SEP], "token_type_ids": types}])

    def test_tokens_of_both_segments_are_selected_and_special_ones_never(self, make):
        collator = make()
        batch = collator([pair(words(40), words(40))] * 300)
        chosen = batch["labels"] != -100
        assert (chosen.sum(dim=1) == 12).all()  # round(0.15 * 83) = 12
        assert not chosen[:, [0, 41, 82]].any()
        rates = chosen[:, 1:41].float().mean().item(), chosen[:, 42:82].float().mean().item()
        assert rates == pytest.approx((0.15, 0.15), abs=0.01)


class TestNextSentence:
    def test_kept_in_the_bidirectional_mode_only(self, make):
        batch = make()([pair(words(2), words(2), index % 2) for index in range(200)])
        expected = torch.where(batch["lm_mode"] == 0, torch.arange(200) % 2, -100)
        assert torch.equal(batch["next_sentence_label"], expected)

    def test_rows_without_a_label_are_ignored(self, make):
        collator = make(mode_probabilities={"bidirectional": 1.0})
        rows = [pair(words(2), words(2), 1), pair(words(2), words(2)), {"input_ids": [CLS, 7, SEP]}]
        assert collator(rows)["next_sentence_label"].tolist() == [1, -100, -100]
        assert collator(rows[1:])["next_sentence_label"].tolist() == [-100, -100]

    def test_left_out_for_heads_without_it(self, make):
        assert "next_sentence_label" not in make(next_sentence=False)([pair(words(2), words(2), 1)])

    @pytest.mark.parametrize("wrong", [2, [0, 1], "yes", 0.5])
    def test_a_label_that_is_none(self, make, wrong):
        with pytest.raises(ValueError, match=r"`next_sentence_label`.*row 0"):
            make()([pair(words(2), words(2), wrong)])


class TestPacked:
    def rows(self, wordpiece, max_sequences=3):
        special = special_tokens_of(wordpiece)
        a, b, c = (SentencePair(words(i + 1), words(3), i % 2).features(special) for i in range(3))
        return [pack_row([a, b], 20, max_sequences, PAD), pack_row([c], 20, max_sequences, PAD)]

    def test_one_mode_and_length_for_each_sequence(self, make, wordpiece):
        collator, seen = make(), set()
        for _ in range(40):
            batch = collator(self.rows(wordpiece))
            assert batch["source_lengths"].tolist() == [[3, 4, 0], [5, 0, 0]]
            mode = batch["lm_mode"]
            assert mode.shape == (2, 3)
            assert (mode[0, 2], mode[1, 1], mode[1, 2]) == (0, 0, 0)
            spans = {(0, 0): (0, 3, 7), (0, 1): (7, 11, 15), (1, 0): (0, 5, 9)}
            types = torch.zeros(2, 20, dtype=torch.int64)
            label = torch.full((2, 3), -100)
            for index, ((row, slot), (begin, middle, stop)) in enumerate(spans.items()):
                first, second = TYPES[int(mode[row, slot])]
                types[row, begin:middle], types[row, middle:stop] = first, second
                if mode[row, slot] == 0:
                    label[row, slot] = index % 2
                seen.add((row, slot, int(mode[row, slot])))
            assert torch.equal(batch["token_type_ids"], types)
            assert torch.equal(batch["next_sentence_label"], label)
            assert (batch["labels"] != -100).sum(dim=1).tolist() == [2, 1]
        assert len(seen) == 12

    def test_the_number_of_slots(self, make, wordpiece):
        bare = [{k: v for k, v in row.items() if k != "next_sentence_label"} for row in self.rows(wordpiece)]
        assert make()(bare)["lm_mode"].shape == (2, 2)
        batch = make(max_sequences=5)(bare)
        assert {batch[n].shape for n in ("lm_mode", "source_lengths", "next_sentence_label")} == {(2, 5)}
        assert make(max_sequences=5)(self.rows(wordpiece))["next_sentence_label"].shape == (2, 5)
        with pytest.raises(ValueError, match="`max_sequences`"):
            make(max_sequences=1)(bare)


class TestPaddingG02:
    def test_left_padding_moves_the_row_and_nothing_else(self, make):
        rows = [pair(words(5), words(4), 1), pair(words(2), words(1), 0), {"input_ids": [CLS, 7, SEP]}]
        right, left = make()(rows), make(padding_side="left")(rows)
        for row, length in enumerate((12, 6, 3)):
            for name in ("attention_mask", "token_type_ids"):
                assert left[name][row].tolist()[12 - length :] == right[name][row].tolist()[:length]
                assert not left[name][row][: 12 - length].any()
        for name in ("lm_mode", "source_lengths", "next_sentence_label"):
            assert torch.equal(left[name], right[name])

    @pytest.mark.parametrize("multiple", [None, 8])
    def test_ragged_padded_and_extra_columns(self, make, wordpiece, multiple):
        padded = wordpiece("light mark", padding="max_length", max_length=12)["input_ids"]
        b = np.array(wordpiece("the lighthouses")["input_ids"])
        features = [
            {"input_ids": padded, "entity_ids": list(range(1, 13)), "sample_id": 7},
            {
                "input_ids": b,
                "token_type_ids": np.array([0, 0, 0, 1, 1, 1]),
                "attention_mask": np.ones(6, dtype=int),
                "entity_ids": np.arange(1, 7),
                "sample_id": 8,
            },
        ]
        width = 16 if multiple else 12
        collator = make(mlm_probability=1.0, pad_to_multiple_of=multiple, mode_probabilities={"left-to-right": 1.0})
        batch = collator(features)
        real = [[1] * 4 + [0] * (width - 4), [1] * 6 + [0] * (width - 6)]
        assert batch["attention_mask"].tolist() == real
        assert batch["token_type_ids"].tolist() == [[2 * x for x in row] for row in real]
        assert batch["source_lengths"].tolist() == [4, 3]
        assert not ((batch["labels"] != -100) & (torch.tensor(real) == 0)).any()
        assert batch["entity_ids"][1].tolist() == [*range(1, 7)] + [0] * (width - 6)
        assert batch["sample_id"].tolist() == [7, 8]

    def test_a_mask_of_ones_over_padding_does_not_move_the_segments(self, make):
        row = pair(words(2), words(1))
        row = {name: values + [0] * 3 for name, values in row.items()} | {"attention_mask": [1] * 9}
        batch = make(mode_probabilities={"seq2seq": 1.0})([row])
        assert batch["attention_mask"].tolist() == [[1] * 6 + [0] * 3]
        assert batch["token_type_ids"].tolist() == [[4] * 4 + [5] * 2 + [0] * 3]

    @settings(max_examples=40, deadline=None)
    @given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=5), st.booleans())
    def test_any_lengths(self, wordpiece, lengths, typed):
        batch = DataCollatorForUniLMPreTraining(wordpiece)([pair(words(a), words(b), 0, typed) for a, b in lengths])
        assert batch["source_lengths"].tolist() == [a + 2 for a, _ in lengths]
        assert batch["attention_mask"].sum(dim=1).tolist() == [a + b + 3 for a, b in lengths]
        for (a, b), labels in zip(lengths, batch["labels"], strict=True):
            assert (labels != -100).sum() == min(max(1, round(0.15 * (a + b + 3))), a + b)


def test_the_trainer_keeps_what_the_collator_reads_g08(make, tmp_path):
    """The columns of `SentencePair.features` reach the collator although the model does not name all of them."""
    rows = [pair(words(3), words(3), index % 2) for index in range(4)]
    config = BertConfig(vocab_size=149, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8)
    arguments = TrainingArguments(
        tmp_path, per_device_train_batch_size=4, report_to=[], use_cpu=True, dataloader_num_workers=0
    )
    collator = make(mode_probabilities={"bidirectional": 1.0})
    trainer = PtmTrainer(
        BertForMaskedLM(config), arguments, data_collator=collator, train_dataset=Dataset.from_list(rows)
    )
    batch = next(iter(trainer.get_train_dataloader()))
    assert sorted(batch["next_sentence_label"].tolist()) == [0, 0, 1, 1]
    assert (batch["source_lengths"] == 5).all()


class TestOptionsAndRandomness:
    OWN = {
        "mode_probabilities": [{"seq2seq": 0.5, "bidirectional": 0.5}],
        "ngram_probability": [0.0, 1.0],
        "max_ngram_size": [2, 6],
        "max_predictions": [None, 1],
        "max_sequences": [None, 4],
        "next_sentence": [False],
    }

    @pytest.mark.parametrize(("name", "value"), [(n, v) for n, values in OWN.items() for v in values])
    def test_every_option_runs(self, make, name, value):
        batch = make(**{name: value})([pair(words(30), words(20))])
        most = 1 if name == "max_predictions" and value else 8
        assert (batch["labels"] != -100).sum() == most

    def test_every_field_is_covered(self):
        inherited = {field.name for field in dataclasses.fields(DataCollatorForUniLMPreTraining.__mro__[1])}
        assert {field.name for field in dataclasses.fields(DataCollatorForUniLMPreTraining)} - inherited == set(
            self.OWN
        )

    def test_seeded_calls_repeat_and_copies_go_on(self, make):
        rows = [pair(words(30), words(20))] * 8
        first, second = make(seed=3), make(seed=3)
        a, b = first(rows), first(rows)
        assert not torch.equal(a["lm_mode"], b["lm_mode"])
        copied = pickle.loads(pickle.dumps(second))
        for collator in (second, copied):
            again = collator(rows)
            assert all(torch.equal(a[name], again[name]) for name in a)

    def test_numpy_and_words(self, make):
        batch = make(replacement_unit="word")([pair(words(9), words(9))], return_tensors="np")
        assert isinstance(batch["lm_mode"], np.ndarray)

    def test_missing_special_tokens(self, byte_level):
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=byte_level.backend_tokenizer, pad_token="<pad>")
        with pytest.raises(ValueError, match="`tokenizer` must have a mask token"):
            DataCollatorForUniLMPreTraining(tokenizer)
        tokenizer.mask_token = "<mask>"
        collator = DataCollatorForUniLMPreTraining(tokenizer)
        with pytest.raises(ValueError, match="`tokenizer` must have a separator"):
            collator([{"input_ids": [9, 10]}])
        assert "lm_mode" in collator([{"input_ids": [9, 10], "token_type_ids": [0, 1]}])

    def test_options_out_of_range(self, make):
        for wrong in ({"ngram_probability": 2.0}, {"max_ngram_size": 1}, {"max_predictions": 0}, {"max_sequences": 0}):
            with pytest.raises(ValueError, match=f"`{next(iter(wrong))}`"):
                make(**wrong)
