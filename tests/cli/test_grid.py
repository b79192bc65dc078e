"""`--grid`: each variant at its own best values, chosen by the validation data."""

import json

import pytest
from safetensors.torch import load_file

from hf_ptm_ext.cli import main, seeded
from tests.cli.test_finetune import results_of, words_of
from tests.cli.test_samples import data as rows_and_model
from tests.cli.test_samples import job

data = rows_and_model
GRID = ["learning_rate=1e-7,1e-2", "num_train_epochs=1,2"]


def test_the_best_point_is_what_a_run_without_a_grid_gives(data, tmp_path):
    given = {"validation_file": data / "test.jsonl", "seeds": [0, 1, 2]}
    assert job("finetune", data, tmp_path / "grid", grid=GRID, num_train_epochs=5, **given) == 0
    found = results_of(tmp_path / "grid")
    chosen = found["grid"]["fine-tuned"]
    assert len(chosen["tried"]) == 4
    best = max(chosen["tried"], key=lambda point: point["merit"])
    assert chosen["point"] == {name: best[name] for name in ("learning_rate", "num_train_epochs")}
    assert chosen["point"]["learning_rate"] == 1e-2
    assert job("finetune", data, tmp_path / "plain", **given, **chosen["point"]) == 0
    plain = results_of(tmp_path / "plain")
    assert found["runs"] == plain["runs"]
    assert best["merit"] == sum(run["validation"]["accuracy"] for run in plain["runs"][:2]) / 2
    weights = [load_file(tmp_path / name / "model.safetensors") for name in ("grid", "plain")]
    assert all((weights[0][name] == weights[1][name]).all() for name in weights[1])
    card = (tmp_path / "grid" / "README.md").read_text(encoding="utf-8")
    assert "learning rate | 0.01" in card
    assert "chosen by the validation data" in card


def test_what_was_run_is_not_run_again(data, tmp_path, monkeypatch):
    given = {"validation_file": data / "test.jsonl", "grid": ["learning_rate=1e-4,1e-2"], "num_train_epochs": 1}
    assert job("finetune", data, tmp_path, seeds=[0, 1], **given) == 0
    before = results_of(tmp_path)

    def no_training(*args, **kwargs):
        raise AssertionError("a run was repeated")

    monkeypatch.setattr("hf_ptm_ext.trainers.ResumableTrainer.train", no_training)
    assert job("finetune", data, tmp_path, seeds=[0, 1], resume_from_checkpoint="auto", **given) == 0
    assert results_of(tmp_path)["runs"] == before["runs"]


def test_another_seed_may_change_what_is_chosen_and_kept(data, tmp_path, monkeypatch):
    values = {0: 0.0, 1: 1.0}
    merit = seeded.TaskJob.merit
    monkeypatch.setattr(
        seeded.TaskJob, "merit", lambda job, run, variant: values[run["seed"]] * merit(job, run, variant)
    )
    points = ["learning_rate=1e-7,1e-2"]
    given = {"validation_file": data / "test.jsonl", "grid": points, "num_train_epochs": 1}
    assert job("finetune", data, tmp_path / "more", seeds=[0], **given) == 0
    assert results_of(tmp_path / "more")["grid"]["fine-tuned"]["point"] == {"learning_rate": 1e-7}
    assert job("finetune", data, tmp_path / "more", seeds=[0, 1], resume_from_checkpoint="auto", **given) == 0
    assert job("finetune", data, tmp_path / "both", seeds=[0, 1], **given) == 0
    more, both = (tmp_path / name for name in ("more", "both"))
    assert results_of(more)["grid"]["fine-tuned"]["point"] == {"learning_rate": 1e-2}
    assert results_of(more)["runs"] == results_of(both)["runs"]
    weights = [load_file(one / "model.safetensors") for one in (more, both)]
    assert all((weights[0][name] == weights[1][name]).all() for name in weights[1])


def test_a_point_that_gives_no_number_is_not_chosen(data, tmp_path, monkeypatch):
    merits = iter([float("nan"), 0.0])
    monkeypatch.setattr(seeded.TaskJob, "merit", lambda *given: next(merits))
    given = {"validation_file": data / "test.jsonl", "grid": ["learning_rate=1e-4,1e-3"], "max_steps": 1}
    assert job("finetune", data, tmp_path, seeds=[0], **given) == 0
    assert results_of(tmp_path)["grid"]["fine-tuned"]["point"] == {"learning_rate": 1e-3}


def test_each_variant_chooses_for_itself(data, tmp_path):
    assert job("finetune", data, tmp_path / "teacher", seeds=0, learning_rate=1e-2, num_train_epochs=3) == 0
    more = {"student_layers": 1, "teacher_name_or_path": tmp_path / "teacher", "validation_file": data / "test.jsonl"}
    more |= {"stages": '{"all": {"preset": "soft-labels"}}', "grid": ["learning_rate=1e-8,1e-2"], "seeds": [0, 1]}
    assert job("distill", data, tmp_path / "out", **more) == 0
    assert {one["point"]["learning_rate"] for one in results_of(tmp_path / "out")["grid"].values()} == {1e-2}
    more["stages"] = '{"all": {"preset": "soft-labels", "learning_rate": 1e-3}}'
    assert job("distill", data, tmp_path / "other", **more) == 2
    assert not (tmp_path / "other").exists()


def test_tasks_together_and_alone(data, tmp_path):
    task = {"task": "classification", "train_file": data / "train.jsonl", "max_seq_length": 24}
    task |= {"validation_file": data / "test.jsonl", "train_sample": 30}
    words = words_of(**{f"tasks.{one}.{key}": value for one in "ab" for key, value in task.items()})
    words += words_of(model_name_or_path=data / "bert", output_dir=tmp_path, grid=["num_train_epochs=1,2"])
    assert main(["multitask", *words, "--save_strategy", "no", "--seeds", "0", "--use_cpu", "true"]) == 0
    found = results_of(tmp_path)
    assert set(found["grid"]) == {"multi-task", "a alone", "b alone"}
    alone = {run["variant"]: run["updates"] for one in found["tasks"].values() for run in one["trained"][1:]}
    assert set(found["updates_alone"].values()) == set(alone.values())


def test_a_text_job(data, tmp_path):
    text = tmp_path / "text.txt"
    rows = [json.loads(line)["text"] for line in (data / "train.jsonl").read_text(encoding="utf-8").splitlines()]
    text.write_text("\n".join(rows), encoding="utf-8")
    words = ["pretrain", "--objective", "mlm", "--model_name_or_path", data / "bert", "--train_file", text]
    words += ["--validation_file", text, "--seeds", 0, 1, "--grid", "learning_rate=1e-8,1e-3", "--max_steps", 4]
    words += ["--max_seq_length", 24, "--output_dir", tmp_path / "out", "--use_cpu", "true"]
    assert main([*map(str, words)]) == 0
    assert results_of(tmp_path / "out")["grid"]["model"]["point"] == {"learning_rate": 1e-3}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"grid": ["learning_rat=1"]}, "Did you mean 'learning_rate'?"),
        ({"grid": ["learning_rate"]}, "`grid` must give numbers, as learning_rate=VALUE,VALUE"),
        ({"grid": ["learning_rate=1e-5,-1"]}, "learning_rate"),
        ({"grid": ["max_steps=3", "max_steps=4"]}, "`grid` names max_steps twice"),
        ({"grid": ["max_steps=3", "num_train_epochs=1,2"]}, "which `max_steps` overrides"),
        ({"grid": ["max_steps=3"]}, "chooses by labelled validation data"),
    ],
)
def test_mistakes_are_told(data, tmp_path, given, told, capsys):
    assert job("finetune", data, tmp_path, **given) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1


def test_a_point_that_diverges_is_not_chosen(data, tmp_path):
    given = {"validation_file": data / "test.jsonl", "grid": ["learning_rate=1e30,1e-2"], "seeds": 0}
    assert job("finetune", data, tmp_path, **given) == 0
    assert results_of(tmp_path)["grid"]["fine-tuned"]["point"] == {"learning_rate": 1e-2}


def test_full_fine_tuning_tries_the_rates_too(data, tmp_path):
    given = {
        "validation_file": data / "test.jsonl",
        "methods": ["houlsby", "full"],
        "grid": ["learning_rate=1e-8,1e-2"],
    }
    assert job("adapt", data, tmp_path, seeds=0, **given) == 0
    assert results_of(tmp_path)["grid"]["full"]["point"] == {"learning_rate": 1e-2}
    assert "learning rate 0.01" in (tmp_path / "README.md").read_text(encoding="utf-8")
