"""Multi-task training: each task's loss and metrics, exact accumulation and resume, the best checkpoint."""

import json

import pytest
import torch
from safetensors.torch import load_file

from hf_ptm_ext.trainers import Mixing, TaskCollator, TaskRows
from tests.trainers.multi_task.small_tasks import one_update, rows, summary, tasks, trainer
from tests.trainers.runs import StopAfter
from tests.trainers.test_distributed import launch


def test_each_task_learns_and_is_logged_and_scored(tmp_path):
    run = trainer(tmp_path, tasks(16), max_steps=120, logging_steps=12)
    before = run.evaluate()
    run.train()
    after = run.evaluate()
    for name in ("tags", "topic", "score"):
        losses = [entry[f"{name}_loss"] for entry in run.state.log_history if f"{name}_loss" in entry]
        assert losses[-1] < 0.7 * losses[0], name
    assert after["eval_tags_accuracy"] > before["eval_tags_accuracy"]
    expected = (after["eval_tags_accuracy"] + after["eval_topic_accuracy"] + after["eval_score_negative_error"]) / 3
    assert after["eval_score"] == pytest.approx(expected)
    assert set(run.evaluate({"topic": rows("topic")})) >= {"eval_topic_loss", "eval_topic_accuracy", "eval_score"}


def test_the_logged_losses_are_means_over_a_tasks_own_batches(tmp_path):
    run = trainer(tmp_path, max_steps=3, logging_steps=3, learning_rate=0.0)
    seen = {}
    forward = run.model.forward

    def keep(task, **inputs):
        output = forward(task, **inputs)
        seen.setdefault(task, []).append(output[f"{task}_loss"].item())
        return output

    run.model.forward = keep
    run.train()
    entry = run.state.log_history[0]
    for name, losses in seen.items():
        assert entry[f"{name}_loss"] == pytest.approx(sum(losses) / len(losses), abs=1e-5)
    assert sum(map(len, seen.values())) == 3


def test_accumulated_batches_of_different_tasks_are_one_update(tmp_path):
    run = one_update(tmp_path, accumulation=4)
    model = run.model
    fresh = trainer(tmp_path, mixing=Mixing(shuffle_rows=False))
    batches = list(fresh.get_train_dataloader())[:4]
    assert len({batch["task"] for batch in batches}) > 1
    loss = sum(fresh.model(**batch).loss for batch in batches) / 4
    loss.backward()
    for name, parameter in fresh.model.named_parameters():
        step = 0 if parameter.grad is None else 0.1 * parameter.grad
        torch.testing.assert_close(model.get_parameter(name), parameter.detach() - step, atol=1e-6, rtol=1e-5)


@pytest.mark.slow
def test_two_processes_make_the_update_of_one(tmp_path):
    whole = json.loads(json.dumps(summary(one_update(tmp_path / "one", 4))))
    output = launch(29641, "-m", "tests.trainers.multi_task.small_tasks", str(tmp_path / "two"), "2")
    result = json.loads(output.partition("RESULT")[2].splitlines()[0])
    for name, values in whole["weights"].items():
        assert result["weights"][name] == pytest.approx(values, rel=1e-4, abs=2e-6), name
    for name, value in whole["logged"].items():
        assert result["logged"][name] == pytest.approx(value, rel=1e-4), name


@pytest.mark.parametrize("stop", [1, 6, 7])
def test_a_resumed_run_is_the_whole_run(tmp_path, stop):
    """Six batches an epoch: within one, at its end, and in the next."""
    options = {"max_steps": 10, "save_strategy": "steps", "save_steps": 1, "mixing": Mixing("equal")}
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


def test_the_checkpoint_with_the_best_score_is_kept(tmp_path):
    run = trainer(
        tmp_path,
        max_steps=4,
        learning_rate=0.3,
        save_strategy="steps",
        eval_strategy="steps",
        save_steps=1,
        eval_steps=1,
        load_best_model_at_end=True,
        metric_for_best_model="score",
        greater_is_better=True,
    )
    run.train()
    scores = [entry["eval_score"] for entry in run.state.log_history if "eval_score" in entry]
    assert run.state.best_metric == max(scores)
    assert run.evaluate()["eval_score"] == pytest.approx(max(scores))
    saved = load_file(f"{run.state.best_model_checkpoint}/model.safetensors")
    assert sum(name.endswith("word_embeddings.weight") for name in saved) == 1, "the encoder is saved once"
    described = json.loads((tmp_path / "checkpoint-1" / "multi_task.json").read_text(encoding="utf-8"))
    assert described["tags"]["class"] == "BertForTokenClassification"


def test_predictions_are_of_one_task(tmp_path):
    run = trainer(tmp_path)
    predicted = run.predict(TaskRows({"tags": rows("tags", 3)}))
    assert predicted.predictions.shape == (3, 6, 3)
    assert "test_accuracy" in predicted.metrics
    with pytest.raises(ValueError, match="must be the rows of one task"):
        run.predict(rows("tags"))


def test_what_does_not_fit_is_refused(tmp_path):
    run = trainer(tmp_path)
    with pytest.raises(ValueError, match="rows of one task, got those of"):
        TaskCollator({})([{"task": "a"}, {"task": "b"}])
    with pytest.raises(ValueError, match=r"got those of \['other'\]"):
        run.evaluate({"other": rows("tags")})
    (tmp_path / "checkpoint-9").mkdir()
    with pytest.raises(ValueError, match="was not written by a `MultiTaskTrainer`"):
        run._load_from_checkpoint(str(tmp_path / "checkpoint-9"))
    evaluated_only = tasks()
    for task in evaluated_only.values():
        task.train_rows = None
    with pytest.raises(ValueError, match="one with `train_rows`"):
        trainer(tmp_path, evaluated_only).get_train_dataloader()
