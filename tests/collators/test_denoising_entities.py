"""Entity corruption: the reference's shares and labels, and nothing but entities touched."""

import json
from math import sqrt
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import BertTokenizerFast

from hf_ptm_ext import (
    DataCollatorForDenoisingEntities,
    DataCollatorForMaskedLanguageModeling,
    DataCollatorForSpanMasking,
    DataCollatorForWholeWordMasking,
    EntityTable,
    ErnieThuConfig,
    ErnieThuForPreTraining,
)

GOLDEN = Path(__file__).resolve().parents[1] / "goldens" / "ernie-thu-mask-stats.json"
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(40))]
TOKENIZER = BertTokenizerFast(vocab={piece: index for index, piece in enumerate(PIECES)})
MLM = (DataCollatorForMaskedLanguageModeling, DataCollatorForWholeWordMasking, DataCollatorForSpanMasking)


def features(rng, rows, entities=300, share=0.12, length=60):
    """Rows in which some tokens carry one of many entities."""
    result = []
    for _ in range(rows):
        size = int(rng.integers(5, length))
        ids = [2, *rng.integers(5, len(PIECES), size).tolist(), 3]
        carried = np.where(rng.random(size) < share, rng.integers(1, entities, size), 0)
        result.append({"input_ids": ids, "token_type_ids": [0] * len(ids), "entity_ids": [0, *carried.tolist(), 0]})
    return result


@pytest.mark.parametrize(("golden", "batch_size"), [("created_batch32", 32), ("created_batch2", 2)])
def test_shares_are_those_of_the_reference(golden, batch_size):
    measured = json.loads(GOLDEN.read_text(encoding="utf-8"))["dea_corruption"][golden]
    rng = np.random.default_rng(0)
    collator = DataCollatorForDenoisingEntities(TOKENIZER, seed=1)
    masked = kept = other = expected_other = total = 0
    while total < 40_000:
        rows = features(rng, batch_size)
        clean = torch.nn.utils.rnn.pad_sequence([torch.tensor(row["entity_ids"]) for row in rows], batch_first=True)
        batch = collator(rows)
        seen, labels, candidates = (batch[name] for name in ("entity_ids", "entity_labels", "entity_candidates"))
        present = clean > 0
        assert torch.equal(candidates, candidates[:1].expand(batch_size, -1))
        assert torch.equal(candidates[0], torch.cat([torch.zeros(1, dtype=torch.long), clean[present].unique()]))
        assert torch.equal(labels != -100, present)
        assert torch.equal(candidates[0][labels[present]], clean[present])
        assert not seen[~present].any()
        assert torch.isin(seen, candidates[0]).all()
        assert torch.equal(batch["entity_mask"][:, 1:], (seen[:, 1:] > 0).long())
        assert batch["entity_mask"][:, 0].all()
        total += int(present.sum())
        masked += int((seen[present] == 0).sum())
        kept += int((seen[present] == clean[present]).sum())
        other += int(((seen != clean) & (seen > 0)).sum())
        expected_other += float(present.sum()) * 0.05 * (1 - 1 / max(len(candidates[0]) - 1, 1))

    def within(count, share):
        return abs(count / total - share) < 4 * sqrt(share * (1 - share) / total)

    assert within(masked, 0.15)
    assert within(other, expected_other / total)
    assert masked + kept + other == total
    assert abs(masked / total - measured["fraction_masked"]) < 0.01
    assert abs(other / total - measured["fraction_seen_as_other_entity"]) < 0.01


@pytest.mark.parametrize("mlm", MLM)
def test_any_masking_collator_masks_the_tokens(mlm):
    rows = features(np.random.default_rng(0), 16)
    alone = mlm(TOKENIZER, seed=3)([{**row} for row in rows])
    both = DataCollatorForDenoisingEntities(TOKENIZER, mlm=mlm(TOKENIZER, seed=3), seed=4)(rows)
    for name in ("input_ids", "labels", "attention_mask", "token_type_ids"):
        assert torch.equal(alone[name], both[name])
    assert set(alone) < set(both)
    assert {"entity_ids", "entity_mask", "entity_labels", "entity_candidates"} <= set(both)


def test_tokens_are_untouched_without_one_and_labels_kept():
    row = {"input_ids": [2, 5, 6, 3], "entity_ids": [0, 7, 0, 0], "labels": [-100, 9, -100, -100], "sample_id": 4}
    other = {"input_ids": [2, 5, 3], "labels": [-100] * 3, "sample_id": 5}
    batch = DataCollatorForDenoisingEntities(TOKENIZER)([row, other])
    assert batch["input_ids"].tolist() == [[2, 5, 6, 3], [2, 5, 3, 0]]
    assert batch["labels"].tolist() == [[-100, 9, -100, -100], [-100] * 4]
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 1], [1, 1, 1, 0]]
    assert batch["sample_id"].tolist() == [4, 5]
    assert batch["entity_labels"].tolist() == [[-100, 1, -100, -100], [-100] * 4]


def test_a_batch_without_entities_has_the_candidate_none_and_no_label():
    for include in (True, False):
        collator = DataCollatorForDenoisingEntities(TOKENIZER, include_none_candidate=include)
        batch = collator([{"input_ids": [2, 5, 3]}, [2, 3]])
        assert batch["entity_candidates"].tolist() == [[0], [0]]
        assert (batch["entity_labels"] == -100).all()
        assert batch["entity_mask"].tolist() == [[1, 0, 0], [1, 0, 0]]


def test_without_the_none_candidate_labels_count_from_zero():
    collator = DataCollatorForDenoisingEntities(TOKENIZER, include_none_candidate=False)
    batch = collator([{"input_ids": [2, 5, 6, 3], "entity_ids": [0, 9, 7, 0]}])
    assert batch["entity_candidates"].tolist() == [[7, 9]]
    assert batch["entity_labels"].tolist() == [[-100, 1, 0, -100]]


def test_draws_may_be_kept_within_the_row():
    own = [[10 * row + token % 5 for token in range(50)] for row in (1, 2)]
    rows = [{"input_ids": [2, *[5] * 50, 3], "entity_ids": [0, *entities, 0]} for entities in own]
    options = {"replace_prob": 1.0, "mask_prob": 0.0, "seed": 0}
    collator = DataCollatorForDenoisingEntities(TOKENIZER, replace_scope="row", **options)
    seen = collator(rows)["entity_ids"][:, 1:-1]
    assert (seen // 10 == torch.tensor([[1], [2]])).all()
    assert all(len(row.unique()) == 5 for row in seen)


def test_packed_sequences_attend_to_their_own_first_tokens():
    row = {"input_ids": [2, 5, 3, 2, 6, 3], "sequence_ids": [1, 1, 1, 2, 2, 2], "entity_ids": [0, 4, 0, 0, 0, 0]}
    batch = DataCollatorForDenoisingEntities(TOKENIZER, mask_prob=1.0, replace_prob=0.0)([row])
    assert batch["entity_mask"].tolist() == [[1, 0, 0, 1, 0, 0]]


def test_padding_on_the_left_moves_the_first_token():
    tokenizer = BertTokenizerFast(vocab={piece: i for i, piece in enumerate(PIECES)}, padding_side="left")
    batch = DataCollatorForDenoisingEntities(tokenizer)([[2, 5, 6, 3], [2, 3]])
    assert batch["entity_mask"].tolist() == [[1, 0, 0, 0], [0, 0, 1, 0]]


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**31), replace=st.floats(0, 1), mask=st.floats(0, 1))
def test_draws_repeat_under_a_seed_and_never_move_the_global_state(seed, replace, mask):
    if replace + mask > 1:
        return
    rows = features(np.random.default_rng(seed), 4)
    torch.manual_seed(0)
    state = torch.get_rng_state()

    def make():
        mlm = DataCollatorForMaskedLanguageModeling(TOKENIZER, seed=seed)
        return DataCollatorForDenoisingEntities(TOKENIZER, replace_prob=replace, mask_prob=mask, mlm=mlm, seed=seed)

    first, second = make(), make()
    one = [first(rows), first(rows)]
    second(rows)
    resumed = make()
    resumed.load_state_dict(json.loads(json.dumps(second.state_dict())))
    again = resumed(rows)
    for name, values in one[1].items():
        assert torch.equal(values, again[name])
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("options", "error", "field"),
    [
        ({"replace_prob": 0.9}, ValueError, "replace_prob"),
        ({"mask_prob": -0.1}, ValueError, "mask_prob"),
        ({"mask_prob": "0.1"}, TypeError, "mask_prob"),
        ({"replace_scope": "table"}, ValueError, "replace_scope"),
        ({"mlm": True}, TypeError, "mlm"),
        ({"return_tensors": "tf"}, ValueError, "return_tensors"),
        ({"mlm": MLM[0](TOKENIZER), "pad_to_multiple_of": 8}, ValueError, "pad_to_multiple_of"),
    ],
)
def test_wrong_options_are_named(options, error, field):
    with pytest.raises(error, match=f"`{field}`"):
        DataCollatorForDenoisingEntities(TOKENIZER, **options)


@pytest.mark.parametrize("entities", [[-1, 3, -1], [0, 3]])
def test_wrong_entities_are_named(entities):
    with pytest.raises(ValueError, match="`entity_ids`"):
        DataCollatorForDenoisingEntities(TOKENIZER)([{"input_ids": [2, 5, 3], "entity_ids": entities}])


# ---- with the model ----


@pytest.fixture
def model():
    torch.manual_seed(0)
    config = ErnieThuConfig(
        vocab_size=len(PIECES),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        entity_hidden_size=8,
        entity_num_attention_heads=2,
        fusion_layer_types=["mix", "norm"],
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = ErnieThuForPreTraining(config)
    model.set_entity_table(EntityTable.from_arrays(np.random.default_rng(0).normal(size=(400, 8))))
    return model.eval()


def test_ids_and_vectors_give_the_model_the_same(model):
    rows = features(np.random.default_rng(2), 6)
    mlm = DataCollatorForMaskedLanguageModeling(TOKENIZER, seed=1)
    by_ids = DataCollatorForDenoisingEntities(TOKENIZER, mlm=mlm, seed=5)
    losses = []
    for table in (None, model.entity_table):
        mlm.start_randomness(1)
        collator = DataCollatorForDenoisingEntities(TOKENIZER, mlm=mlm, seed=5, table=table)
        with torch.no_grad():
            losses.append(model(**collator(rows)))
    assert by_ids.table is None
    assert losses[0].entity_loss > 0
    torch.testing.assert_close(losses[0].loss, losses[1].loss)
    torch.testing.assert_close(losses[0].entity_loss, losses[1].entity_loss)


def test_half_of_a_batch_still_has_all_candidates(model):
    batch = dict(DataCollatorForDenoisingEntities(TOKENIZER, seed=5)(features(np.random.default_rng(2), 6)))
    halves = [{name: values[part] for name, values in batch.items()} for part in (slice(0, 3), slice(3, 6))]
    with torch.no_grad():
        whole = model(**batch, return_logits=True).entity_logits
        parts = [model(**half, return_logits=True).entity_logits for half in halves]
    torch.testing.assert_close(torch.cat(parts), whole)


def test_trainer_evaluates_batches_with_different_numbers_of_candidates(model, tmp_path):
    from transformers import Trainer, TrainingArguments

    arguments = TrainingArguments(
        tmp_path, per_device_eval_batch_size=4, remove_unused_columns=False, report_to=[], use_cpu=True
    )
    mlm = DataCollatorForMaskedLanguageModeling(TOKENIZER, seed=0)
    collator = DataCollatorForDenoisingEntities(TOKENIZER, mlm=mlm, seed=0)
    metrics = Trainer(
        model, arguments, data_collator=collator, eval_dataset=features(np.random.default_rng(1), 10)
    ).evaluate()
    assert np.isfinite(metrics["eval_loss"])
