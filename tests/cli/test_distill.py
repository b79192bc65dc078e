"""Distillation by seeds from the command line: teacher, student with and without it, stages, resume, recipes."""

import json
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification

from hf_ptm_ext.cli import main
from hf_ptm_ext.cli.distill import epochs_alone
from hf_ptm_ext.cli.distill_arguments import parse
from tests.cli.test_finetune import RUN, data, finetune, results_of, words_of  # noqa: F401  (data is a fixture)

CONFIGS = Path(__file__).parents[2] / "scripts" / "configs"
SHORT = {**{name: value for name, value in RUN.items() if name != "language"}, "seeds": [0], "language": "en"}


@pytest.fixture(scope="module")
def teacher(data, tmp_path_factory):  # noqa: F811
    folder = tmp_path_factory.mktemp("teacher") / "teacher"
    file = data / "texts.tsv"
    finetune(folder, data / "bert", file, file, task="classification", pair_column="mention")
    return folder


def distill(output, teacher, file, recipe=None, code=0, **values):
    given = {"teacher_name_or_path": teacher, "train_file": file, "test_file": file, "output_dir": output}
    given |= {"pair_column": "mention", "task": "classification"}
    words = words_of(**{**given, **SHORT, **values})
    assert main(["distill", *([recipe] if recipe else []), *words]) == code
    return results_of(output) if code == 0 else None


def test_teacher_student_and_the_student_alone_stand_side_by_side(data, teacher, tmp_path, capsys):  # noqa: F811
    stages = {"distil": {"preset": "soft-labels", "num_train_epochs": 2}}
    results = distill(tmp_path / "out", teacher, data / "texts.tsv", student_layers=1, stages=json.dumps(stages))
    printed = capsys.readouterr().out
    for name in ("teacher", "distilled", "without the teacher", "rows a second"):
        assert name in printed
    assert set(results["summary"]) == {"distilled", "without the teacher", "teacher"}
    sizes = {name: scores["parameters"]["mean"] for name, scores in results["summary"].items()}
    assert sizes["distilled"] == sizes["without the teacher"] < sizes["teacher"]
    student = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    assert student.config.num_hidden_layers == 1
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "distilled from" in card
    assert "of the teacher's rows a second" in card


def test_stages_follow_each_other_and_a_finished_one_is_not_run_again(data, teacher, tmp_path):  # noqa: F811
    stages = {
        "intermediate": {"preset": "tinybert-intermediate", "num_train_epochs": 1},
        "prediction": {"preset": "tinybert-prediction", "num_train_epochs": 2},
    }
    options = {"student_layers": 1, "stages": json.dumps(stages), "baseline": False, "save_strategy": "epoch"}
    whole = distill(tmp_path / "whole", teacher, data / "texts.tsv", **options)
    # Interrupted in the second stage: what the first left is read, what the second left is gone on with.
    output = tmp_path / "parts"
    distill(output, teacher, data / "texts.tsv", **options)
    record = output / "_runs" / "seed0_0.json"
    assert record.is_file()
    record.unlink()
    again = distill(output, teacher, data / "texts.tsv", **options, resume_from_checkpoint="auto")
    assert again["summary"]["distilled"]["accuracy"] == whole["summary"]["distilled"]["accuracy"]
    first, second = (load_file(str(path / "model.safetensors")) for path in (tmp_path / "whole", output))
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize(
    "recipe", sorted(path.name for path in CONFIGS.glob("distill_*.yaml") if "bilstm" not in path.name)
)
def test_every_recipe_is_understood(recipe):
    given = yaml.safe_load((CONFIGS / recipe).read_text(encoding="utf-8"))
    words = ["--teacher_name_or_path", "t", "--train_file", "a.txt", "--test_file", "b.txt"]
    _, data_args, training = parse([recipe, *words, "--use_cpu", "true"])
    assert training.stages == given["stages"]
    assert data_args.task == given["task"]
    assert epochs_alone(training) > 0


@pytest.mark.parametrize(
    "recipe",
    [
        "distill_pkd.yaml",
        "distill_theseus.yaml",
        pytest.param("distill_distilbert.yaml", marks=pytest.mark.slow),
        pytest.param("distill_minilm.yaml", marks=pytest.mark.slow),
        pytest.param("distill_minilm_v2.yaml", marks=pytest.mark.slow),
        pytest.param("distill_ensemble.yaml", marks=pytest.mark.slow),
        pytest.param("distill_tinybert.yaml", marks=pytest.mark.slow),
    ],
)
def test_recipes_run(data, teacher, tmp_path, recipe):  # noqa: F811
    stages = yaml.safe_load((CONFIGS / recipe).read_text(encoding="utf-8"))["stages"]
    short = {name: {**options, "num_train_epochs": 1} for name, options in stages.items()}
    if "pkd" in recipe:  # its own map leaves out the last layer, here the only one
        short["distil"]["preset_options"] |= {"layers": [[1, 1]]}
    results = distill(
        tmp_path / "out",
        teacher,
        data / "texts.tsv",
        recipe,
        student_layers=1,
        stages=json.dumps(short),
        baseline=False,
        max_train_rows=32,
    )
    assert results["summary"]["distilled"]["accuracy"]["mean"] > 0


@pytest.mark.slow
def test_a_student_learns_masked_words_from_plain_text(data, tmp_path):  # noqa: F811
    text = tmp_path / "text.txt"
    lines = (data / "texts.tsv").read_text(encoding="utf-8").splitlines()[1:]
    text.write_text("\n".join(line.split("\t")[0] for line in lines), encoding="utf-8")
    stages = {"distil": {"preset": "distilbert", "num_train_epochs": 1}}
    results = distill(
        tmp_path / "out",
        data / "bert",
        text,
        task="masked-lm",
        student_layers=1,
        stages=json.dumps(stages),
        baseline=False,
    )
    assert set(results["summary"]) == {"distilled", "teacher"}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"stages": "{}"}, "`stages` must name at least one stage"),
        ({"stages": '{"a": {"preset": "nothing"}}'}, "nothing"),
        ({"stages": '{"a": {"preset": "pkd", "epochs": 2}}'}, "unknown options: epochs"),
        ({"stages": "[1"}, "`stages` must be a mapping or JSON"),
        ({"task": "question-answering"}, "`task` must be one of classification, tagging, masked-lm"),
    ],
)
def test_mistakes_are_told_before_anything_is_read(tmp_path, capsys, values, message):
    given = {"stages": '{"a": {"preset": "pkd"}}', **values}
    distill(tmp_path / "out", "teacher", "nowhere.tsv", code=2, **given)
    assert message in capsys.readouterr().err


def test_a_teacher_that_is_not_fine_tuned_is_refused(data, tmp_path, capsys):  # noqa: F811
    stages = '{"a": {"preset": "pkd"}}'
    distill(tmp_path / "out", data / "bert", data / "texts.tsv", code=2, stages=stages)
    assert "has no trained head for text classification" in capsys.readouterr().err
