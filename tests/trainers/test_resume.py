"""A resumed run is the uninterrupted run: the same rows, the same masks, the same weights."""

import json
from types import SimpleNamespace

import pytest
import torch
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import DataCollatorForLanguageModeling

from hf_ptm_ext.collators.randomness import CallRandomness
from hf_ptm_ext.data import PretrainingStream, pretraining_dataset
from hf_ptm_ext.trainers import checkpoints, last_complete_checkpoint
from hf_ptm_ext.trainers.base import OwnEvaluationCollator
from hf_ptm_ext.trainers.collator_state import RecordedCollator, state_of, stateful_parts
from tests.trainers.runs import trainer


def weights(run):
    return {name: value.clone() for name, value in run.model.state_dict().items()}


def logged(run):
    return [
        {name: entry[name] for name in ("step", "loss", "mlm_loss", "sbo_loss")}
        for entry in run.state.log_history
        if "loss" in entry
    ]


def assert_continues(folder, build, whole, stops, tokenizer, **arguments):
    """Run in pieces, a new Trainer and new data each time, and compare with the run in one piece."""
    whole.train()
    seen, losses, last = [], [], None
    for stop in (*stops, None):
        resume = str(last_complete_checkpoint(folder)) if seen else None
        last = trainer(folder, build(), tokenizer, stop=stop, **arguments)
        last.train(resume_from_checkpoint=resume)
        seen += last.seen
        losses += logged(last)[len(losses) :]
    assert seen == whole.seen
    assert losses == logged(whole)
    for name, value in weights(whole).items():
        torch.testing.assert_close(last.model.state_dict()[name], value, rtol=0, atol=0)


@pytest.mark.parametrize(("packed", "workers"), [(False, 0), (True, 0), (True, 2)])
def test_a_stream_with_a_shuffle_buffer_resumes_twice(tmp_path, documents, tokenizer, packed, workers, monkeypatch):
    """With a worker that reads ahead too, which sends the stream's state before every third batch here."""
    monkeypatch.setattr("hf_ptm_ext.trainers.stream_loader.EVERY", 3)

    def build():
        return PretrainingStream(
            documents, tokenizer, max_seq_length=32, packed=packed, shuffle_buffer_size=7, num_epochs=None
        )

    whole = trainer(tmp_path / "whole", build(), tokenizer)
    pieces = tmp_path / "pieces"
    assert_continues(pieces, build, whole, stops=(2, 4), tokenizer=tokenizer, dataloader_num_workers=workers)


def test_a_stream_with_an_end_is_read_again(tmp_path, documents, tokenizer):
    """By a worker too, and after a resume from the checkpoint that lies at its end."""

    def build():
        return PretrainingStream(documents[:1], tokenizer, max_seq_length=32, shuffle_buffer_size=7, num_epochs=1)

    whole = trainer(tmp_path / "whole", build(), tokenizer, max_steps=12)
    whole.train()
    batches = [batch for _, batch, _ in whole.seen]
    assert len(batches) == 12
    assert batches[0] in batches[1:], "it was read to its end"
    worker = trainer(tmp_path / "worker", build(), tokenizer, max_steps=12, dataloader_num_workers=1)
    worker.train()
    assert worker.seen == whole.seen


def test_one_line_documents_in_shards_resume_exactly(tmp_path, tokenizer):
    """Case G14: 24 rows in 3 shards, a shuffle buffer of 6, 4 rows a step, checkpoints at steps 2 and 4."""
    shards = []
    for shard in range(3):
        file = tmp_path / f"{shard}.jsonl"
        lines = [json.dumps({"text": f"number {8 * shard + row} of the rows"}) for row in range(8)]
        file.write_text("\n".join(lines), encoding="utf-8")
        shards.append(str(file))

    def build():
        source = load_dataset("json", data_files=shards, split="train", streaming=True)
        return PretrainingStream(source, tokenizer, max_seq_length=32, shuffle_buffer_size=6, num_epochs=None)

    whole = trainer(tmp_path / "whole", build(), tokenizer)
    assert_continues(tmp_path / "pieces", build, whole, stops=(2, 4), tokenizer=tokenizer)
    rows = [tuple(token for token in row if token != tokenizer.pad_token_id) for step in whole.seen for row in step[1]]
    assert len(rows) == 24
    assert len(set(rows)) == 24, "each row comes exactly once in an epoch"


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_prepared_rows_resume_with_the_same_masks_across_epochs(tmp_path, documents, tokenizer, workers):
    """Whatever the number of workers, the run is that of one process."""
    rows = pretraining_dataset(documents[:3], tokenizer, max_seq_length=32).select(range(14))
    whole = trainer(tmp_path / "whole", rows, tokenizer, max_steps=6)
    pieces = {"folder": tmp_path / "pieces", "build": lambda: rows, "stops": (2, 4), "tokenizer": tokenizer}
    assert_continues(**pieces, whole=whole, dataloader_num_workers=workers)


def test_an_interrupted_checkpoint_is_passed_over(tmp_path, documents, tokenizer):
    rows = pretraining_dataset(documents[:3], tokenizer, max_seq_length=32)
    trainer(tmp_path, rows, tokenizer, max_steps=4).train()
    (tmp_path / "checkpoint-4" / "trainer_state.json").write_text('{"epoch": 1', encoding="utf-8")
    assert last_complete_checkpoint(tmp_path).name == "checkpoint-2"
    (tmp_path / "checkpoint-2" / "trainer_state.json").unlink()
    assert last_complete_checkpoint(tmp_path) is None


def test_a_checkpoint_of_another_job_is_refused(tmp_path, documents, tokenizer):
    rows = pretraining_dataset(documents[:3], tokenizer, max_seq_length=32)
    trainer(tmp_path, rows, tokenizer, max_steps=2).train()
    (tmp_path / "checkpoint-2" / "data_state_0.json").unlink()
    with pytest.raises(ValueError, match=r"data_state_0\.json"):
        trainer(tmp_path, rows, tokenizer, max_steps=4).train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))


def test_a_finished_run_is_not_trained_further(tmp_path, documents, tokenizer):
    rows = pretraining_dataset(documents[:3], tokenizer, max_seq_length=32)
    finished = trainer(tmp_path, rows, tokenizer, max_steps=4)
    finished.train()
    again = trainer(tmp_path, rows, tokenizer, max_steps=4)
    again.train(resume_from_checkpoint=True)
    assert again.state.global_step == 4
    assert [path.name for path in checkpoints(tmp_path)] == ["checkpoint-2", "checkpoint-4"]
    for name, value in weights(finished).items():
        torch.testing.assert_close(again.model.state_dict()[name], value, rtol=0, atol=0)


def test_weights_that_are_tied_are_not_told_as_missing(tmp_path, documents, tokenizer, monkeypatch):
    said = []
    monkeypatch.setattr("transformers.trainer.logger.warning", said.append)
    rows = pretraining_dataset(documents[:3], tokenizer, max_seq_length=32)
    trainer(tmp_path, rows, tokenizer, max_steps=2).train()
    again = trainer(tmp_path, rows, tokenizer, max_steps=4)
    again.train(resume_from_checkpoint=True)
    assert not [line for line in said if "keys" in line]
    (tied, source), *_ = again.model.all_tied_weights_keys.items()
    again._issue_warnings_after_load(SimpleNamespace(missing_keys=[tied, "other.bias"], unexpected_keys=[]))
    again._issue_warnings_after_load(SimpleNamespace(missing_keys=[tied, source], unexpected_keys=[]))
    assert [line.rpartition(": ")[2] for line in said[-2:]] == ["['other.bias'].", f"{[tied, source]}."]


def test_other_rows_are_refused_on_resume(tmp_path, documents, tokenizer):
    rows = pretraining_dataset(documents[:6], tokenizer, max_seq_length=32)
    trainer(tmp_path, rows.select(range(40)), tokenizer, max_steps=2).train()
    other = trainer(tmp_path, rows.select(range(1, 41)), tokenizer, max_steps=4)
    with pytest.raises(ValueError, match="other rows"):
        other.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))


def test_another_number_of_processes_is_refused(tmp_path, documents, tokenizer):
    rows = pretraining_dataset(documents[:3], tokenizer, max_seq_length=32)
    trainer(tmp_path, rows, tokenizer, max_steps=2).train()
    state = tmp_path / "checkpoint-2" / "data_state_0.json"
    state.write_text(state.read_text(encoding="utf-8").replace('"world_size": 1', '"world_size": 2'), encoding="utf-8")
    with pytest.raises(ValueError, match="2 processes"):
        trainer(tmp_path, rows, tokenizer, max_steps=4).train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))


class Draws(CallRandomness):
    """Draws as often as it is told for each batch, as a part of other collators may."""

    def __init__(self, times):
        self.times = times
        self.start_randomness(0)

    def __call__(self, rows):
        number = int(rows[0]["number"])
        drawn = [int(self.next_generator().integers(1 << 30)) for _ in range(self.times(number))]
        return {"number": number, "drawn": drawn}


@pytest.mark.parametrize("times", [lambda number: 2, lambda number: number % 2], ids=["twice", "now and then"])
def test_a_part_that_is_not_called_once_a_batch_draws_the_same_in_workers(times):
    rows = [{"number": number} for number in range(7)]
    found = {}
    for workers in (0, 2):
        collator = Draws(times)
        recorded = RecordedCollator(collator, 0, state_of(stateful_parts(collator)), 0, workers)
        found[workers] = list(DataLoader(rows, batch_size=1, collate_fn=recorded, num_workers=workers))
    assert found[2] == found[0]
    drawn = [one for batch in found[0] for one in batch["drawn"]]
    assert len(set(drawn)) == len(drawn)


@pytest.mark.parametrize("seed", [0, 5])
def test_upstreams_seeded_collator_draws_the_same_in_workers(tokenizer, seed):
    rows = [{"input_ids": list(range(5, 25))} for _ in range(6)]
    found = {}
    for workers in (0, 2):
        collator = DataCollatorForLanguageModeling(tokenizer, seed=seed)
        recorded = RecordedCollator(collator, 0, {}, 0, workers)
        batches = DataLoader(rows, batch_size=1, collate_fn=recorded, num_workers=workers)
        found[workers] = [batch["input_ids"].tolist() for batch in batches]
    assert found[2] == found[0]


def test_every_evaluation_of_workers_sees_the_same_masks(tmp_path, documents, tokenizer):
    rows = pretraining_dataset(documents[:3], tokenizer, max_seq_length=32).select(range(14))
    losses = set()
    for workers in (0, 2):
        run = trainer(tmp_path / str(workers), rows, tokenizer, max_steps=2, dataloader_num_workers=workers)
        losses |= {OwnEvaluationCollator.evaluate(run, rows)["eval_loss"] for _ in range(2)}
    assert len(losses) == 1


@pytest.mark.parametrize("workers", [0, 1])
def test_rows_that_training_leaves_out_are_evaluated(tmp_path, documents, tokenizer, workers):
    rows = pretraining_dataset(documents[:3], tokenizer, max_seq_length=32).select(range(5))
    options = {"dataloader_drop_last": True, "per_device_eval_batch_size": 4, "dataloader_num_workers": workers}
    run = trainer(tmp_path, rows, tokenizer, max_steps=2, **options)
    assert len(run.get_test_dataloader(rows)) == 2
    assert sum(len(batch["input_ids"]) for batch in OwnEvaluationCollator.get_eval_dataloader(run, rows)) == 5
    assert run.args.dataloader_drop_last
