"""Batches of ERNIE 2.0's tasks: padding, labels, task ids, knowledge masking inside."""

import pickle

import numpy as np
import pytest

from hf_ptm_ext.collators import DataCollatorForErnieMasking, DataCollatorForErnieTask

ROWS = [
    {"input_ids": [2, 7, 8, 9, 3], "token_type_ids": [0] * 5, "labels": [-100, 1, 0, 1, -100]},
    {"input_ids": [2, 3], "token_type_ids": [0] * 2, "labels": [-100, -100]},
    {"input_ids": [2, 7, 3], "token_type_ids": [0] * 3, "labels": [-100, 1, -100]},
]


@pytest.mark.parametrize("side", ["left", "right"])
def test_rows_are_padded_and_can_be_rebuilt(wordpiece, side):
    tokenizer = pickle.loads(pickle.dumps(wordpiece))
    tokenizer.padding_side = side
    collator = pickle.loads(pickle.dumps(DataCollatorForErnieTask(tokenizer, 4, pad_to_multiple_of=8)))
    batch = collator(ROWS, return_tensors="np")
    assert set(batch) == {"input_ids", "token_type_ids", "attention_mask", "labels", "task_type_ids"}
    assert {values.shape for values in batch.values()} == {(3, 8)}
    assert (batch["task_type_ids"] == 4).all()
    for number, row in enumerate(ROWS):
        kept = batch["attention_mask"][number] == 1
        for name in ("input_ids", "labels", "token_type_ids"):
            assert batch[name][number][kept].tolist() == row[name]
        assert (batch["labels"][number][~kept] == -100).all()


def test_classes_of_texts_are_one_for_each_row(wordpiece):
    batch = DataCollatorForErnieTask(wordpiece)(
        [{"input_ids": [2, 7, 3], "labels": 8}, {"input_ids": [2], "labels": 0}]
    )
    assert batch["labels"].tolist() == [8, 0]
    assert "task_type_ids" not in batch
    with pytest.raises(ValueError, match="must not be negative, got -1"):
        DataCollatorForErnieTask(wordpiece, -1)


def test_knowledge_masking_is_done_inside_by_its_seed(wordpiece):
    rows = [{"input_ids": [2, *range(5, 45), 3], "phrase_ids": [-1, *np.arange(40) // 3, -1]}] * 4

    def make(seed):
        masking = DataCollatorForErnieMasking(wordpiece, levels={"phrase": "phrase_ids"}, seed=seed)
        return DataCollatorForErnieTask(wordpiece, 0, masking)

    first, again, other = make(1)(rows), make(1)(rows), make(2)(rows)
    assert make(1).input_columns == ("special_tokens_mask", "phrase_ids")
    assert first["labels"].equal(again["labels"])
    assert not first["labels"].equal(other["labels"])
    original = first["labels"].where(first["labels"] != -100, first["input_ids"])
    assert original.tolist() == [row["input_ids"] for row in rows]
    assert (first["task_type_ids"] == 0).all()
