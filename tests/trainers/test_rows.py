"""A run resumes on the very rows that it began with: one changed value among thousands is another training set."""

import random

import numpy as np
import pytest
import torch
from datasets import Dataset, Features, Sequence, Value

from hf_ptm_ext.trainers.rows import rows_digest
from tests.trainers.every_trainer import BUILDERS, rows


def lists(number=1000):
    generator = torch.Generator().manual_seed(0)
    return [{"input_ids": row} for row in torch.randint(5, 90, (number, 12), generator=generator).tolist()]


def changed(found, at):
    made = [dict(row) for row in found]
    made[at] = {"input_ids": [*made[at]["input_ids"][:-1], 99]}
    return made


FORMS = {
    "lists": lambda found: found,
    "tensors": lambda found: [{"input_ids": torch.tensor(row["input_ids"])} for row in found],
    "arrays": lambda found: [{"input_ids": np.array(row["input_ids"])} for row in found],
    "tuples": lambda found: [tuple(row["input_ids"]) for row in found],
    "dataset": Dataset.from_list,
    "selected": lambda found: Dataset.from_list(found).select(range(len(found))),
    "formatted": lambda found: Dataset.from_list(found).with_format("torch"),
    "strings": lambda found: Dataset.from_list([{"text": str(row["input_ids"]), "label": 1} for row in found]),
    "nested": lambda found: Dataset.from_list([{"parts": {"ids": [row["input_ids"]], "n": None}} for row in found]),
}


@pytest.mark.parametrize("form", FORMS)
def test_one_changed_row_in_a_thousand_is_seen(form):
    found = lists()
    digest = rows_digest(FORMS[form](found))
    assert digest == rows_digest(FORMS[form](lists())), "the same content, made again"
    for at in (0, 1, 500, 731, 999):
        assert rows_digest(FORMS[form](changed(found, at))) != digest, at


def test_order_number_and_gaps_count():
    found = lists(20)
    digest = rows_digest(found)
    assert rows_digest(found[::-1]) != digest
    assert rows_digest(found[:-1]) != digest
    cut = [{"input_ids": [1]}, {"input_ids": [2, 3]}]
    assert rows_digest(Dataset.from_list(cut)) != rows_digest(
        Dataset.from_list([{"input_ids": [1, 2]}, {"input_ids": [3]}])
    )
    assert rows_digest([[None, 1]]) != rows_digest([[1, None]])
    features = Features({"n": Value("int64"), "x": Sequence(Value("float32"))})
    gaps = [Dataset.from_dict({"n": [None, 0], "x": [[1.0], n]}, features=features) for n in ([], None)]
    assert rows_digest(gaps[0]) != rows_digest(gaps[1])


def test_where_and_how_a_table_lies_does_not_count(tmp_path):
    table = Dataset.from_list(lists(2500))
    table.save_to_disk(tmp_path / "table", num_shards=3)
    assert rows_digest(Dataset.load_from_disk(str(tmp_path / "table"))) == rows_digest(table)


def test_rows_that_are_drawn_take_no_draws_from_training():
    class Drawn(torch.utils.data.Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, number):
            return {"x": torch.rand(3), "y": random.random(), "z": np.random.rand()}

    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    assert rows_digest(Drawn()) == rows_digest(Drawn())
    assert torch.equal(torch.rand(1), expected)


@pytest.mark.parametrize("name", ["plain", "multi_task", "distillation"])
def test_a_trainer_refuses_to_go_on_with_one_row_changed(tmp_path, name):
    BUILDERS[name](tmp_path, max_steps=2).train()
    other = BUILDERS[name](tmp_path)
    row = rows()[7]
    row = {**row, "input_ids": [row["input_ids"][0], 9, *row["input_ids"][2:]]}
    dataset = other.train_dataset
    if name == "multi_task":
        dataset.rows["second"][7] = row
    else:
        other.train_dataset = [row if number == 7 else dict(one) for number, one in enumerate(dataset)]
        if name == "plain":
            other.train_dataset = Dataset.from_list(other.train_dataset)
    with pytest.raises(ValueError, match="other rows"):
        other.train(resume_from_checkpoint=True)
