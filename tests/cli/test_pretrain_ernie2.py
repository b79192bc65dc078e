"""`hf-ptm-ext pretrain --objective ernie2`: tasks trained, measured, resumed exactly, and tasks that come later."""

import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from datasets import Dataset
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer

from hf_ptm_ext.cli import main
from hf_ptm_ext.cli.pretraining.continual import TASKS, accuracy, of_task, schedule_of
from hf_ptm_ext.hub import validate_model_card
from hf_ptm_ext.trainers.auxiliary import AUXILIARY_FILE
from tests.cli.jobs import flags, read_metrics

ERNIE = {"objective": "ernie2", "max_train_rows": 3000, "max_eval_rows": 400}
FIRST = {**ERNIE, "ernie_tasks": ["capitalization", "mlm"], "max_steps": 9, "save_steps": 4, "save_total_limit": 5}
OFFERED = [name for name in TASKS if name != "relevance"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("job") / "ernie2"
    assert main(["pretrain", *flags(output_dir=folder, **FIRST)]) == 0
    return folder


def heads_of(folder):
    return {name.partition(".")[0] for name in load_file(folder / AUXILIARY_FILE)}


def test_the_folder_is_the_plain_encoder_with_the_heads_beside_it(finished, capsys):
    model = AutoModel.from_pretrained(finished)
    assert (type(model).__name__, model.config.task_type_vocab_size) == ("ErnieModel", 7)
    assert heads_of(finished) == {"mlm", "capitalization"}
    assert {"multi_task.json", "tokenizer.json", "loss_curve.png"} <= {path.name for path in finished.iterdir()}
    assert main(["verify", str(finished)]) == 0
    assert "OK" in capsys.readouterr().out
    validate_model_card(finished)


def test_every_task_is_measured_before_and_after_beside_a_simple_guess(finished):
    metrics = read_metrics(finished)
    for name in ("mlm", "capitalization"):
        for when in ("before", "eval", "baseline"):
            assert metrics[f"{when}_{name}_loss"] > 0
            assert 0 <= metrics[f"{when}_{name}_accuracy"] <= 1
    assert metrics["eval_capitalization_loss"] < metrics["before_capitalization_loss"]


def test_a_resumed_run_is_the_uninterrupted_one(finished, tmp_path):
    folder = tmp_path / "ernie2"
    shutil.copytree(finished / "checkpoint-4", folder / "checkpoint-4")
    asked = {"output_dir": folder, "resume_from_checkpoint": folder / "checkpoint-4", "overwrite": True, **FIRST}
    assert main(["pretrain", *flags(**asked)]) == 0
    for name in ("model.safetensors", AUXILIARY_FILE):
        ours, theirs = load_file(folder / name), load_file(finished / name)
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[key], theirs[key]) for key in ours)


def test_the_other_tasks_come_later_and_the_first_go_on(finished, tmp_path, caplog):
    titles = tmp_path / "titles.jsonl"
    rows = [{"query": f"how to learn {n}", "title": f"learning in {n} steps", "label": n % 2} for n in range(60)]
    titles.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    marked = tmp_path / "marked.tsv"
    lines = [f"It rained {n} days.\tWe went out.\t{('so', 'but')[n % 2]}" for n in range(60)]
    marked.write_text("\n".join(["first\tsecond\tlabel", *lines]), encoding="utf-8")
    asked = {**ERNIE, "max_steps": 80, "relevance_file": titles, "discourse_file": marked, "vocab_size": None}
    asked |= {"config_overrides": None, "model_name_or_path": finished, "output_dir": tmp_path / "more"}
    assert main(["pretrain", *flags(**asked)]) == 0
    assert heads_of(tmp_path / "more") == set(TASKS)
    told = next(record.message for record in caplog.records if record.message.startswith("Updates of each task"))
    allotments = json.loads(told.partition(": ")[2].rstrip(".").replace("'", '"'))
    assert list(allotments)[:2] == ["mlm", "capitalization"], "what is learnt already"
    assert {len(stages) for stages in allotments.values()} == {5}
    before = read_metrics(tmp_path / "more")
    assert before["before_mlm_loss"] == pytest.approx(read_metrics(finished)["eval_mlm_loss"], rel=0.05)
    described = json.loads((tmp_path / "more" / "multi_task.json").read_text(encoding="utf-8"))
    assert described["discourse"]["labels"] == {"0": "but", "1": "so"}
    assert described["reordering"]["labels"]["4"] == "0 2 1"
    assert before["eval_relevance_loss"] > 0


def test_chinese_text_has_all_tasks_that_need_no_files(tmp_path):
    folder = tmp_path / "zh"
    asked = {**ERNIE, "corpus": "zh", "vocab_size": 900, "max_steps": 42, "segmenter": "jieba"}
    assert main(["pretrain", *flags(output_dir=folder, **asked)]) == 0
    assert heads_of(folder) == set(OFFERED)
    assert AutoTokenizer.from_pretrained(folder).tokenize("北京")


def test_the_schedule_has_about_the_updates_that_are_asked_for():
    for learnt in range(4):
        schedule = schedule_of(["a", "b", "c"], learnt, 1000)
        assert 985 <= schedule.updates <= 1000
        assert len(schedule.stages) == max(3 - learnt, 1)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"max_steps": 5}, "must be at least"),
        ({"ernie_tasks": ["relevance"]}, "needs `relevance_file`"),
        ({"ernie_tasks": ["mlm"], "discourse_file": __file__}, "is for the task discourse"),
        ({"ernie_tasks": ["discourse"], "discourse_file": __file__}, "read no text, only their files: name mlm"),
        ({"discourse_file": "x.tsv"}, "`discourse_file` = x.tsv is no file here"),
        ({"streaming": True, "max_steps": 60}, "set streaming off"),
        ({"family": "bert"}, "trains encoders with task embeddings"),
        ({"ernie_tasks": ["capitalization"], "lowercase": False}, "must be a fast one that lower-cases"),
        ({"max_segments": 1}, "`max_segments` must be 2 to 7, of 5,913 orders, got 1"),
        ({"pack_rows": True}, "does not take `sequence_ids`"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(tmp_path, capsys, asked, told):
    assert main(["pretrain", *flags(output_dir=tmp_path / "no", **{**ERNIE, **asked})]) != 0
    assert told in capsys.readouterr().err


def test_relations_of_one_kind_are_refused(tmp_path, capsys):
    rows = "".join(f"a light {number}\ta ship\tbecause\n" for number in range(40))
    (tmp_path / "pairs.tsv").write_text(f"first\tsecond\tlabel\n{rows}")
    asked = {**ERNIE, "ernie_tasks": ["mlm", "discourse"], "discourse_file": tmp_path / "pairs.tsv"}
    assert main(["pretrain", *flags(output_dir=tmp_path / "no", **asked)]) != 0
    assert "must have at least two labels, got ['because']" in capsys.readouterr().err


def test_pieces_of_a_folder_of_the_job_are_not_extended(finished, tmp_path, capsys):
    asked = {**ERNIE, "model_name_or_path": finished, "config_overrides": None, "vocab_size": None, "max_steps": 60}
    assert main(["pretrain", *flags(output_dir=tmp_path / "no", **asked, extend_vocabulary=5)]) != 0
    assert "`extend_vocabulary` = 5: the head of task mlm beside" in capsys.readouterr().err


def test_few_short_documents_that_hide_nothing_are_trained_on(tmp_path):
    lines = [f"The keeper {number} saw a good ship and a bad storm.\n\n" for number in range(60)]
    (tmp_path / "text.txt").write_text("".join(lines))
    asked = {"objective": "ernie2", "corpus": None, "train_file": tmp_path / "text.txt", "max_eval_rows": 8}
    asked |= {"vocab_size": 300, "max_seq_length": 32, "max_steps": 60}
    assert main(["pretrain", *flags(output_dir=tmp_path / "out", **asked)]) == 0
    assert accuracy(SimpleNamespace(label_ids=np.array([-100]), predictions=np.array([1]))) == {}


def test_held_out_text_without_a_row_of_any_task_is_no_table():
    assert len(of_task(Dataset.from_list([]), "mlm")) == 0
    rows = [{"task": "capitalization", "labels": labels, "label": None} for labels in ([-100, -100], [-100, 1])]
    assert len(of_task(Dataset.from_list(rows[:1]), "capitalization")) == 0
    assert len(of_task(Dataset.from_list(rows), "capitalization")) == 2
