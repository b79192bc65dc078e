"""ERNIE 2.0's continual multi-task learning: the schedule, exact resume, what is saved, and tasks that come later."""

import json

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoModelForMaskedLM, BertConfig, ErnieConfig, ErnieModel

from hf_ptm_ext.trainers import ContinualBatchSampler, ContinualSchedule, Mixing, Task, load_task_models
from tests.trainers.multi_task.small_continual import (
    HEADS,
    SCHEDULE,
    config,
    rows,
    summary,
    tasks,
    three_updates,
    trainer,
)
from tests.trainers.runs import StopAfter
from tests.trainers.test_distributed import launch


def test_four_tasks_of_50000_updates_are_allotted_as_in_the_paper():
    schedule = ContinualSchedule.automatic(["1", "2", "3", "4"], 50_000)
    assert schedule.allotments == {
        "1": [20_000, 10_000, 10_000, 10_000],
        "2": [0, 30_000, 10_000, 10_000],
        "3": [0, 0, 40_000, 10_000],
        "4": [0, 0, 0, 50_000],
    }
    assert schedule.stages == [20_000, 40_000, 60_000, 80_000]


@pytest.mark.parametrize("number", [1, 2, 5, 7])
@pytest.mark.parametrize("updates", [8, 101, 1000])
def test_any_number_of_tasks_gets_its_updates_and_is_never_forgotten(number, updates):
    names = [f"task {place}" for place in range(number)]
    schedule = ContinualSchedule.automatic(names, updates)
    assert all(sum(counts) == updates for counts in schedule.allotments.values())
    for place, counts in enumerate(schedule.allotments.values()):
        assert [count > 0 for count in counts] == [stage >= place for stage in range(number)]
        assert counts[place] == max(counts)
    later = ContinualSchedule.automatic(names, updates, learnt=number - 1)
    assert later.stages == schedule.stages[-1:]


def test_the_task_of_an_update_is_a_function_of_its_number_and_the_seed():
    order = SCHEDULE.order(3)
    assert [SCHEDULE.tasks[number] for number in order] == [SCHEDULE.task(step, 3) for step in range(SCHEDULE.updates)]
    assert order.tolist() == ContinualSchedule(dict(SCHEDULE.allotments)).order(3).tolist()
    assert order.tolist() != SCHEDULE.order(4).tolist()
    edges = np.cumsum([0, *SCHEDULE.stages])
    for stage, counts in enumerate(zip(*SCHEDULE.allotments.values(), strict=True)):
        part = order[edges[stage] : edges[stage + 1]]
        assert np.bincount(part, minlength=3).tolist() == list(counts)
        assert {SCHEDULE.stage(int(step)) for step in range(edges[stage], edges[stage + 1])} == {stage}
    with pytest.raises(ValueError, match=r"must be in \[0, 14\), got 14"):
        SCHEDULE.task(14)


def test_batches_are_of_one_task_through_an_update_and_no_two_processes_see_the_same_row():
    lengths = {"masking": 16, "odd": 40, "order": 9}

    def sampler(rank, **options):
        return ContinualBatchSampler(lengths, 2, SCHEDULE, 5, 2, rank, 2, **options)

    ranks = [list(sampler(rank)) for rank in range(2)]
    assert ranks == [list(sampler(rank)) for rank in range(2)]
    assert [len(found) for found in ranks] == [len(sampler(0))] * 2 == [28] * 2
    starts = np.cumsum([0, *lengths.values()])
    seen = {name: [] for name in lengths}
    for step in range(SCHEDULE.updates):
        name = SCHEDULE.task(step, 5)
        place = list(lengths).index(name)
        for micro in range(2):
            for found in ranks:
                batch = found[2 * step + micro]
                assert len(batch) == 2
                assert all(starts[place] <= row < starts[place + 1] for row in batch)
                seen[name] += batch
    for name, found in seen.items():  # passes one behind the other
        for begin in range(0, len(found) - lengths[name], lengths[name]):
            assert len(set(found[begin : begin + lengths[name]])) == lengths[name]


def test_each_task_learns_and_is_logged(tmp_path):
    schedule = ContinualSchedule.automatic(list(HEADS), 60)
    run = trainer(tmp_path, tasks(number=16), schedule=schedule, logging_steps=9)
    before = run.evaluate()
    run.train()
    assert run.state.global_step == run.args.max_steps == 180
    first = {}
    for entry in run.state.log_history:
        for name in HEADS:
            if f"{name}_loss" in entry:
                first.setdefault(name, (entry["step"], []))[1].append(entry[f"{name}_loss"])
    assert [step for step, _ in first.values()] == sorted(step for step, _ in first.values())
    assert first["order"][0] > schedule.stages[0] + schedule.stages[1]
    for name, (_, losses) in first.items():
        assert losses[-1] < 0.7 * losses[0], name
    after = run.evaluate()
    assert {f"eval_{name}_loss" for name in HEADS} | {"eval_odd_accuracy", "eval_score"} <= before.keys()
    assert after["eval_odd_accuracy"] > before["eval_odd_accuracy"]


@pytest.mark.parametrize("stop", [1, 5, 9])
def test_a_resumed_run_is_the_whole_run(tmp_path, stop):
    options = {"save_strategy": "steps", "save_steps": 1}
    whole = trainer(tmp_path / "whole", **options)
    whole.train()
    trainer(tmp_path / "parts", callbacks=[StopAfter(stop)], **options).train()
    again = trainer(tmp_path / "parts", **options)
    again.train(resume_from_checkpoint=str(tmp_path / "parts" / f"checkpoint-{stop}"))
    for name, value in whole.model.state_dict().items():
        torch.testing.assert_close(again.model.state_dict()[name], value, rtol=0, atol=0)
    assert [entry.get("loss") for entry in again.state.log_history] == [
        entry.get("loss") for entry in whole.state.log_history
    ]


def test_a_plain_encoder_is_saved_and_a_task_can_be_added(tmp_path):
    run = trainer(tmp_path, tasks(("masking", "odd")), schedule=ContinualSchedule({"masking": [3, 1], "odd": [0, 3]}))
    run.train()
    run.save_model(tmp_path / "saved")
    plain, info = AutoModel.from_pretrained(tmp_path / "saved", output_loading_info=True)
    assert type(plain) is ErnieModel
    assert all(name.startswith("pooler.") for name in info["missing_keys"]), "no task of texts has trained one"
    assert not info["unexpected_keys"]
    assert (plain.config.use_task_id, plain.config.task_type_vocab_size, plain.config.num_labels) == (True, 2, 2)
    assert plain.config.id2label == ErnieConfig().id2label
    batch = {name: torch.stack([row[name] for row in rows("odd", 3)]) for name in ("input_ids", "task_type_ids")}
    run.model.eval()
    states = run.model.encoder(**batch).last_hidden_state
    torch.testing.assert_close(plain(**batch).last_hidden_state, states, rtol=0, atol=0)

    added = tasks(tuple(HEADS), tmp_path / "saved")
    table = added["order"].model.base_model.embeddings.task_type_embeddings.weight
    torch.testing.assert_close(table[2], table[:2].mean(0))
    again = trainer(tmp_path / "more", added, schedule=ContinualSchedule.automatic(list(HEADS), 8, learnt=2))
    for name in ("masking", "odd"):
        model, before = again.model.models[name].eval(), run.model.models[name]
        torch.testing.assert_close(model(**batch).logits, before(**batch).logits, rtol=0, atol=0)
    again.train()
    assert again.state.global_step == again.args.max_steps == 2 + 2 + 8
    again.save_model(tmp_path / "saved again")
    described = json.loads((tmp_path / "saved again" / "multi_task.json").read_text(encoding="utf-8"))
    assert described["order"]["labels"] == {"0": "first", "1": "second", "2": "even"}
    with pytest.raises(ValueError, match="must give `order` the class and the labels"):
        load_task_models(tmp_path / "saved again", {"order": (HEADS["order"][0], ("one", "other"))})


def test_the_head_and_the_task_embedding_of_a_checkpoint_are_kept(tmp_path):
    torch.manual_seed(1)
    plain = AutoModelForMaskedLM.from_config(config()).eval()
    plain.save_pretrained(tmp_path)
    ids = torch.tensor([[2, 7, 4, 3]])
    models = load_task_models(tmp_path, HEADS, task_type_ids=7)
    assert models["masking"].config.task_type_vocab_size == 7
    run = trainer(tmp_path, {name: Task(model, rows(name)) for name, model in models.items()})
    logits = run.model.models["masking"].eval()(ids, task_type_ids=torch.full_like(ids, 5)).logits
    torch.testing.assert_close(logits, plain(ids).logits)
    decoder = run.model.models["masking"].cls.predictions.decoder
    assert decoder.weight is run.model.encoder.embeddings.word_embeddings.weight
    assert run.model.models["order"].base_model is run.model.models["odd"].base_model


def test_an_update_is_of_one_task_and_a_mean_over_its_batches(tmp_path):
    run, fresh = three_updates(tmp_path, 4), three_updates(tmp_path, 2)
    names = [sorted(name for name in entry if name.endswith("_loss")) for entry in run.state.log_history[:3]]
    assert names == [["order_loss"], ["odd_loss"], ["masking_loss"]]
    assert fresh.model is not run.model


@pytest.mark.slow
def test_two_processes_make_the_updates_of_one(tmp_path):
    whole = json.loads(json.dumps(summary(three_updates(tmp_path / "one", 4))))
    output = launch(29643, "-m", "tests.trainers.multi_task.small_continual", str(tmp_path / "two"), "2")
    result = json.loads(output.partition("RESULT")[2].splitlines()[0])
    for name, values in whole["weights"].items():
        assert result["weights"][name] == pytest.approx(values, rel=1e-4, abs=2e-6), name
    for name, value in whole["logged"].items():
        assert result["logged"][name] == pytest.approx(value, rel=1e-4), name


def test_what_does_not_fit_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"must have the tasks with training rows, \['masking', 'odd', 'order'\]"):
        trainer(tmp_path, schedule=ContinualSchedule({"masking": [1]}))
    with pytest.raises(ValueError, match="must be at most the schedule's 14, got 15"):
        trainer(tmp_path, max_steps=15)
    for table in ({}, {"a": [1], "b": [1, 2]}, {"a": [1, 0]}, {"a": [1], "b": [0]}, {"a": [2, -1], "b": [0, 2]}):
        with pytest.raises(ValueError, match="must give every task its updates in each stage"):
            ContinualSchedule(table)
    with pytest.raises(ValueError, match="`updates` at least one more than their number"):
        ContinualSchedule.automatic(["a", "b"], 2)
    with pytest.raises(ValueError, match="got none for"):
        ContinualBatchSampler({"masking": 3, "odd": 0}, 2, SCHEDULE)
    with pytest.raises(ValueError, match="needs an encoder with task embeddings"):
        load_task_models(BertConfig(vocab_size=9, hidden_size=8, num_attention_heads=2), HEADS, 3)
    with pytest.raises(ValueError, match="`mixing` must not be given"):
        type(trainer(tmp_path))(tasks(), None, schedule=SCHEDULE, mixing=Mixing())
