"""UniLM fine-tuning batches: assembly, truncation, masking of the target, against the reference's own loader."""

import dataclasses
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertTokenizerFast,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
)

from hf_ptm_ext.collators import DataCollatorForUniLMSeq2Seq, MaskingCollator, truncate_source_target
from hf_ptm_ext.trainers import PtmTrainer

GOLDENS = Path(__file__).parents[1] / "goldens"
CLS, SEP, PAD, MASK = 2, 3, 0, 4


def row(source, target):
    return {"source_ids": list(source), "target_ids": list(target)}


def restored(batch):
    """The ids before masking."""
    return torch.where(batch["labels"] == -100, batch["input_ids"], batch["labels"])


@pytest.fixture
def make(wordpiece):
    def build(padding_side="right", **options):
        tokenizer = pickle.loads(pickle.dumps(wordpiece))
        tokenizer.padding_side = padding_side
        return DataCollatorForUniLMSeq2Seq(tokenizer, **({"seed": 0} | options))

    return build


class TestGolden:
    """tests/goldens/unilm-a: inputs of the reference's loader, mask_prob 0.7, max_pred 8, max_len 28."""

    @pytest.fixture
    def golden(self):
        described = json.loads((GOLDENS / "unilm-a.json").read_text(encoding="utf-8"))
        return described, load_file(GOLDENS / "unilm-a.safetensors")

    @pytest.mark.parametrize("seed", range(3))
    def test_assembly_truncation_types_and_counts(self, golden, seed):
        described, tensors = golden
        vocabulary = {f"w{index}": index for index in range(described["config"]["vocab_size"])}
        for token, index in described["special_ids"].items():
            del vocabulary[f"w{index}"]
            vocabulary[token] = index
        collator = DataCollatorForUniLMSeq2Seq(
            BertTokenizerFast(vocab=vocabulary),
            mlm_probability=0.7,
            max_predictions=8,
            max_len=described["finetune_max_len"],
            seed=seed,
            **described["finetune_truncation"],
        )
        batch = collator([row(*pair) for pair in described["finetune_raw_pairs"]])
        theirs = tensors["finetune.input_ids"].copy()
        weights = tensors["finetune.masked_weights"].astype(bool)
        for index, kept in enumerate(weights):
            theirs[index, tensors["finetune.masked_pos"][index, kept]] = tensors["finetune.masked_ids"][index, kept]
        assert restored(batch).tolist() == theirs.tolist()
        assert batch["token_type_ids"].tolist() == tensors["finetune.token_type_ids"].tolist()
        assert (batch["labels"] != -100).sum(dim=1).tolist() == weights.sum(axis=1).tolist()
        assert batch["lm_mode"].tolist() == [3, 3, 3]
        assert batch["source_lengths"].tolist() == (batch["token_type_ids"] == 4).sum(dim=1).tolist()
        targets = batch["token_type_ids"] == 5
        assert not (~targets & (batch["labels"] != -100)).any()
        # A source token sees the source, a target token also the target up to itself: lengths say it all.
        mask = tensors["finetune.attention_mask"].astype(bool)
        width, real = mask.shape[1], batch["attention_mask"].numpy().astype(bool)
        keys = np.arange(width)
        in_source = keys < batch["source_lengths"].numpy()[:, None]
        ours = (in_source[:, None, :] | (keys[None, None, :] <= keys[None, :, None])) & real[:, None, :]
        assert (ours == mask)[real].all()


class TestStatistics:
    """tests/goldens/unilm-mask-stats.json: proportions within 0.015, counts exact."""

    STATS = json.loads((GOLDENS / "unilm-mask-stats.json").read_text(encoding="utf-8"))["stats"]
    RUNS = (
        ("finetune_p0.7_max_pred48", {"mlm_probability": 0.7, "max_predictions": 48}),
        ("finetune_p0.7_max_pred5", {"mlm_probability": 0.7, "max_predictions": 5}),
        ("finetune_p0.15_len4", {"mlm_probability": 0.15}),
        ("finetune_mask_source_words_p0.3", {"mlm_probability": 0.3, "mask_source": True}),
        ("finetune_ngram_p0.2_size3_maskprob0.15", {"mlm_probability": 0.15, "ngram_probability": 0.2}),
        ("finetune_whole_word", {"mlm_probability": 0.3, "whole_words": True}),
    )

    @pytest.mark.parametrize(("name", "options"), RUNS, ids=[name for name, _ in RUNS])
    def test_as_the_reference(self, make, wordpiece, name, options):
        golden = self.STATS[name]
        vocabulary = wordpiece.get_vocab()
        piece = vocabulary["##s"]
        target = [5 + i % 20 for i in range(golden["len_target_without_sep"])]
        if "whole_words" in options:
            target[1::3] = [piece] * len(target[1::3])
        source = [30] * golden["len_source"]
        collator = make(return_tensors="np", **options)
        batch = collator([row(source, target)] * 10_000)
        chosen = batch["labels"] != -100
        assert set(chosen.sum(axis=1).tolist()) == {int(count) for count in golden["num_masked"]}
        first = len(source) + 2
        rates = chosen[:, first:].mean(axis=0)
        assert rates[-1] == pytest.approx(golden["final_sep_masked_share"], abs=0.015)
        bounds = golden["per_position_mask_rate_min_max_over_target_incl_sep"]
        assert (rates.min(), rates.max()) == pytest.approx(bounds, abs=0.015)
        assert chosen[:, :first].sum(axis=1).mean() == pytest.approx(golden["mean_source_positions_masked"], abs=0.06)
        assert not chosen[:, [0, first - 1]].any()
        before, after = batch["labels"][chosen], batch["input_ids"][chosen]
        drawn_alike = golden["random"] / len(vocabulary)  # a random word may be [MASK] or the word itself
        assert (after == MASK).mean() == pytest.approx(golden["mask"] + drawn_alike, abs=0.015)
        assert (after == before).mean() == pytest.approx(golden["keep"] + drawn_alike, abs=0.015)


class TestTruncation:
    @staticmethod
    def loop(a, b, most, max_len_a, max_len_b, trunc_seg, coin=None):
        """The reference, one token at a time; the other segment where the configured one is empty."""
        a, b = list(a), list(b)
        while len(a) + len(b) > most:
            if max_len_a > 0 and len(a) > max_len_a:
                cut = a
            elif max_len_b > 0 and len(b) > max_len_b:
                cut = b
            elif trunc_seg in ("a", "b"):
                cut = a if trunc_seg == "a" else b
            else:
                cut = a if len(a) > len(b) else b
            if not cut:
                cut = b if cut is a else a
            if coin is not None and coin.random() < 0.5:
                del cut[0]
            else:
                cut.pop()
        return a, b

    lengths = st.integers(0, 30)

    @settings(max_examples=300, deadline=None)
    @given(lengths, lengths, lengths, st.integers(0, 20), st.integers(0, 20), st.sampled_from(["a", "b", "longer"]))
    def test_the_tail_goes_as_in_the_reference(self, a, b, most, max_len_a, max_len_b, trunc_seg):
        source, target = list(range(a)), list(range(100, 100 + b))
        options = {"max_len_a": max_len_a, "max_len_b": max_len_b, "trunc_seg": trunc_seg}
        expected = self.loop(source, target, most, max_len_a, max_len_b, trunc_seg)
        assert truncate_source_target(source, target, most, **options) == expected
        coins = np.random.default_rng(0)
        parts = truncate_source_target(source, target, most, **options, generator=coins)
        for part, whole, cut in zip(parts, (source, target), expected, strict=True):
            assert len(part) == len(cut)
            assert not part or part == list(range(part[0], part[0] + len(part)))
            assert set(part) <= set(whole)

    def test_ends_are_drawn_as_in_the_reference(self):
        rng = np.random.default_rng(0)
        ours = [truncate_source_target(range(9), [], 5, generator=rng)[0][0] for _ in range(4000)]
        theirs = [self.loop(range(9), [], 5, 0, 0, "a", rng)[0][0] for _ in range(4000)]
        for front in range(5):
            assert ours.count(front) / 4000 == pytest.approx(theirs.count(front) / 4000, abs=0.05)

    def test_a_pair_that_fits_is_never_cut(self, make):
        batch = make(max_len=13, max_len_a=2, max_len_b=2)([row([9] * 5, [8] * 5)])
        assert batch["input_ids"].shape == (1, 13)
        longer = make(max_len=12, max_len_a=2, max_len_b=2)([row([9] * 5, [8] * 5)])
        assert longer["source_lengths"].tolist() == [6]

    def test_drawn_ends_repeat_with_the_seed_and_a_call_counts_once(self, make):
        rows = [row(range(5, 65), range(70, 90))] * 8
        first, second = (make(max_len=43, always_truncate_tail=False) for _ in range(2))
        a, b = restored(first(rows)), restored(first(rows))
        assert torch.equal(a, restored(second(rows)))
        assert not torch.equal(a, b)
        assert len({tuple(ids.tolist()) for ids in a}) > 1
        assert first.state_dict()["calls"] == 2

    def test_options_out_of_range(self, make):
        for wrong in ({"max_len": 2}, {"max_len_a": -1}, {"max_len_b": -1}, {"trunc_seg": "c"}):
            with pytest.raises(ValueError, match=f"`{next(iter(wrong))}`"):
                make(**wrong)


class TestColumns:
    def test_both_namings_and_all_paddings_give_one_row(self, make):
        source, target = [9, 10, SEP, 11], [12, 13]
        plain = row(source, target)
        variants = [
            {"input_ids": source, "labels": target},
            {"input_ids": [CLS, *source, SEP], "labels": [CLS, *target, SEP]},
            {"input_ids": [CLS, *source, SEP, PAD, PAD], "labels": [CLS, *target, SEP, -100, -100]},
            {"input_ids": [PAD, CLS, *source, SEP], "labels": [*target, SEP, PAD], "attention_mask": [0] + [1] * 6},
            {"input_ids": np.array(source), "labels": torch.tensor(target)},
            plain | {"labels": [99], "attention_mask": [1] * 7, "token_type_ids": [0] * 7},
        ]
        expected = make()([plain])
        for variant in variants:
            got = make()([variant])
            assert all(torch.equal(got[name], expected[name]) for name in expected)
        assert make()([plain, *variants])["source_lengths"].tolist() == [6] * 7

    def test_tokenizer_output_of_a_script(self, make, wordpiece):
        encoded = wordpiece(["the light", "mark"], text_target=["book", "the new book"])
        rows = [dict(zip(encoded, values, strict=True)) for values in zip(*encoded.values(), strict=True)]
        batch = make()(rows)
        for ids, item in zip(restored(batch), rows, strict=True):
            whole = item["input_ids"] + item["labels"][1:]
            assert ids.tolist()[: len(whole)] == whole

    def test_left_padding(self, make):
        rows = [row([9] * 5, [8] * 4), row([7], [6])]
        right, left = make()(rows), make(padding_side="left")(rows)
        for index, length in enumerate((12, 5)):
            for name in ("attention_mask", "token_type_ids"):
                assert left[name][index].tolist()[12 - length :] == right[name][index].tolist()[:length]
                assert not left[name][index][: 12 - length].any()
        assert torch.equal(left["source_lengths"], right["source_lengths"])
        assert torch.equal(restored(left)[1, 7:], restored(right)[1, :5])

    def test_further_columns_and_shapes_g02(self, make):
        rows = [row([9] * 5, [8] * 4) | {"sample_id": 7}, row([7], [6]) | {"sample_id": 8}]
        batch = make(pad_to_multiple_of=8, label_budget=6)(rows)
        shapes = {name: tuple(values.shape) for name, values in batch.items()}
        assert shapes == dict.fromkeys(("input_ids", "attention_mask", "token_type_ids", "labels"), (2, 16)) | {
            "lm_mode": (2,),
            "source_lengths": (2,),
            "sample_id": (2,),
            "label_positions": (2, 6),
        }
        at = batch["labels"].gather(1, batch["label_positions"])
        assert ((at != -100).sum(dim=1) == (batch["labels"] != -100).sum(dim=1)).all()
        with pytest.raises(ValueError, match="`summary`"):
            make()([row([9], [8]) | {"summary": "text"}])

    @pytest.mark.parametrize(
        ("feature", "name"),
        [
            ({"source_ids": [9]}, "target_ids"),
            ({"input_ids": [9]}, "labels"),
            ({"labels": [9]}, "input_ids"),
            ({"attention_mask": [1]}, "input_ids"),
            ([9, 8], "input_ids"),
        ],
    )
    def test_a_missing_column_is_named_with_what_to_do_g08(self, make, feature, name):
        with pytest.raises(ValueError, match=rf"`{name}` must be in every feature.*remove_unused_columns=False"):
            make()([feature])

    def test_special_tokens_at_the_ends_of_plain_ids(self, make):
        for feature, name in ((row([CLS, 9], [8]), "source_ids"), (row([9], [8, SEP]), "target_ids")):
            with pytest.raises(ValueError, match=f"`{name}`.*add_special_tokens=False"):
                make()([feature])

    def test_ids_that_are_none(self, make):
        for wrong in (["a"], [[1]], [0.5]):
            with pytest.raises(TypeError, match="`source_ids`"):
                make()([{"source_ids": wrong, "target_ids": [8]}])
        with pytest.raises(ValueError, match="`attention_mask`"):
            make()([{"input_ids": [9, 9], "labels": [8], "attention_mask": [1]}])
        with pytest.raises(ValueError, match="`features`"):
            make()([])

    def test_trainers_g08(self, make, tmp_path):
        config = BertConfig(
            vocab_size=149, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8
        )
        arguments = TrainingArguments(tmp_path, per_device_train_batch_size=2, report_to=[], use_cpu=True)
        data = Dataset.from_list([row([9] * 3, [8]) | {"labels": [7]}] * 2)
        options = {"data_collator": make(), "train_dataset": data}
        kept = PtmTrainer(BertForMaskedLM(config), arguments, **options)
        assert next(iter(kept.get_train_dataloader()))["source_lengths"].tolist() == [5, 5]
        dropped = Trainer(BertForMaskedLM(config), arguments, **options)
        with pytest.raises(ValueError, match="remove_unused_columns=False"):
            next(iter(dropped.get_train_dataloader()))


class TestMasking:
    @settings(max_examples=60, deadline=None)
    @given(
        st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=4),
        st.sampled_from([0.0, 0.15, 0.5, 0.7, 1.0]),
        st.sampled_from([None, 1, 5]),
        st.booleans(),
        st.sampled_from([{}, {"ngram_probability": 0.5}, {"whole_words": True}]),
    )
    def test_the_number_of_predictions(self, wordpiece, lengths, probability, most, mask_source, units):
        collator = DataCollatorForUniLMSeq2Seq(
            wordpiece, mlm_probability=probability, max_predictions=most, mask_source=mask_source, **units
        )
        batch = collator([row([30 + i for i in range(a)], [60 + i for i in range(b)]) for a, b in lengths])
        for (a, b), labels in zip(lengths, batch["labels"], strict=True):
            counted = a + b if mask_source else b
            expected = min(most or counted + 1, max(1, round(probability * counted)))
            chosen = (labels != -100).nonzero().flatten()
            assert len(chosen) == expected
            assert chosen.min() > 0
            assert a + 1 not in chosen  # the [SEP] of the source
            assert mask_source or chosen.min() >= a + 2
        assert batch["source_lengths"].tolist() == [a + 2 for a, _ in lengths]

    def test_special_tokens_inside(self, make):
        """The target's own [SEP] and [UNK] can be chosen as in the reference, its [CLS] and a source's [SEP] not."""
        batch = make(mlm_probability=1.0, max_predictions=None, mask_source=True)([row([9, SEP, 9], [1, SEP, CLS, 8])])
        assert (batch["labels"][0] != -100).nonzero().flatten().tolist() == [1, 3, 5, 6, 8, 9]

    def test_an_empty_target_still_teaches_to_end(self, make):
        batch = make()([row([9, 9], []), row([], [8]), row([], [])])
        assert batch["labels"][0].tolist() == [-100] * 4 + [SEP]
        assert batch["source_lengths"].tolist() == [4, 2, 2]

    def test_type_ids_of_other_checkpoints(self, make):
        batch = make(source_type_id=0, target_type_id=1)([row([9, 9], [8])])
        assert batch["token_type_ids"].tolist() == [[0, 0, 0, 0, 1, 1]]


class TestOptions:
    OWN = (
        "max_predictions max_len max_len_a max_len_b trunc_seg always_truncate_tail source_type_id target_type_id "
        "mask_source ngram_probability max_ngram_size whole_words max_source_length max_target_length pseudo_masked "
        "target_mask_prob source_mask_prob"
    )

    def test_own_fields(self):
        inherited, fields = (
            {field.name for field in dataclasses.fields(cls)} for cls in (MaskingCollator, DataCollatorForUniLMSeq2Seq)
        )
        assert fields - inherited == set(self.OWN.split())

    def test_a_tokenizer_without_special_tokens(self, byte_level):
        names = {"mask_token": "<mask>", "cls_token": "<s>", "sep_token": "</s>"}
        for name in names:
            given = {key: token for key, token in names.items() if key != name}
            tokenizer = PreTrainedTokenizerFast(
                tokenizer_object=byte_level.backend_tokenizer, pad_token="<pad>", **given
            )
            with pytest.raises(ValueError, match=f"`tokenizer` must have a `?{name.replace('_', '[_ ]')}"):
                DataCollatorForUniLMSeq2Seq(tokenizer)

    def test_options_out_of_range(self, make):
        for wrong in (
            {"max_predictions": 0},
            {"source_type_id": -1},
            {"target_type_id": -1},
            {"ngram_probability": -0.1},
            {"max_ngram_size": 0},
            {"word_boundaries": "column"},
            {"max_source_length": 0},
            {"max_source_length": 1},
            {"max_target_length": 0},
            {"target_mask_prob": 1.5},
            {"source_mask_prob": -0.1},
            {"source_mask_prob": 0.1},
            {"mask_source": True, "pseudo_masked": True},
            {"whole_words": True, "pseudo_masked": True},
            {"ngram_probability": 0.1, "pseudo_masked": True},
            {"replacement_unit": "word", "pseudo_masked": True},
        ):
            with pytest.raises(ValueError, match=f"`{next(iter(wrong))}`"):
                make(**wrong)

    def test_pickled_copies_draw_the_same(self, make):
        rows = [row(range(5, 25), range(30, 50))] * 4
        collator = make(ngram_probability=0.2)
        copied = pickle.loads(pickle.dumps(collator))
        a, b = collator(rows), copied(rows)
        assert all(torch.equal(a[name], b[name]) for name in a)
        assert isinstance(make(return_tensors="np")(rows)["labels"], np.ndarray)
