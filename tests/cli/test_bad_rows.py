"""`--on_bad_rows` in every job that reads labelled rows: all bad rows in one line, or left out with a count."""

import json

import pytest

from hf_ptm_ext.cli import main
from tests.cli.test_evaluation import GOOD, RUN, SIDES, model, relations, run, table, words_of  # noqa: F401
from tests.cli.test_finetune import results_of


def classes(path, bad):
    rows = [(f"{name}-{n}", texts[n], name) for name, texts in SIDES.items() for n in range(6)]
    return table(path, [*rows[:3], *([("b", "", "pos"), ("c", "good", "")] if bad else []), *rows[3:]])


def tagged(path, bad):
    text = "good B-X\n0 O\n\n" * 3
    path.write_text(text + "good\n\nbad B-X\n0 O extra\n\n" * bad + text, encoding="utf-8")
    return path


def spans(path, bad):
    row = {"text": "good fine", "label": [[0, 4, "X"]]}
    wrong = [{**row, "label": [[0, 99, "X"]]}, {**row, "label": [[0, 4, "X"], [0, 9, "Y"]]}]
    path.write_text("\n".join(map(json.dumps, [row, row, row, *wrong * bad, row])), encoding="utf-8")
    return path


def questions(path, bad):
    rows = [
        {"id": text, "question": "good?", "context": text, "answers": {"text": [text[:4]], "answer_start": [0]}}
        for text in GOOD[:6]
    ]
    wrong = [
        {**rows[0], "answers": {"text": ["good"], "answer_start": []}},
        {**rows[1], "answers": {"text": ["fine"], "answer_start": [0]}},
    ]
    path.write_text("\n".join(map(json.dumps, [*rows[:3], *wrong * bad, *rows[3:]])), encoding="utf-8")
    return path


def related(path, bad):
    relations(path, ["A", "B"] * 3)
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    wrong = [{**rows[0], "tokens": "good and bad"}, {**rows[1], "tail": {"pos": [0, 2]}, "pos": [0, "1"]}]
    path.write_text("\n".join(map(json.dumps, [*rows[:3], *wrong * bad, *rows[3:]])), encoding="utf-8")
    return path


def translated(path, bad):
    rows = [{"source": text, "target": text[::-1]} for text in GOOD[:4]]
    wrong = [{"source": 7, "target": "a"}, {"source": "a", "target": None}]
    path.write_text("\n".join(map(json.dumps, [*rows[:3], *wrong * bad, *rows[3:]])), encoding="utf-8")
    return path


def numbers(path, bad):
    rows = [(n, f"{GOOD[n]} x", n / 2) for n in range(6)]
    return table(path, [*rows[:3], *[("b", "good", "n/a"), ("c", "bad", "high")] * bad, *rows[3:]])


PKD = json.dumps({"distil": {"preset": "pkd"}})
# job -> its data, the name of their file, options, and the places of the bad rows
JOBS = {
    "finetune": (
        classes,
        "a.tsv",
        {"task": "classification"},
        ("a.tsv, line 5: column 'text'", "line 6: column 'label'"),
    ),
    "adapt": (classes, "a.tsv", {"task": "classification"}, ("a.tsv, line 5", "line 6")),
    "distill": (classes, "a.tsv", {"task": "classification", "stages": PKD}, ("a.tsv, line 5", "line 6")),
    "tagging": (
        tagged,
        "a.conll",
        {"task": "tagging"},
        ("a.conll, line 10: must have a word", "line 13: must have 2 col"),
    ),
    "spans": (spans, "a.jsonl", {"task": "tagging"}, ("a.jsonl, line 4: the span (0, 99", "line 5: the spans")),
    "questions": (
        questions,
        "a.jsonl",
        {"task": "question-answering", "doc_stride": 2},
        ("a.jsonl, line 4: column 'answers'", "line 5: the passage has"),
    ),
    "scores": (numbers, "a.tsv", {"task": "regression"}, ("a.tsv, line 5: column 'label' must be a number", "line 6")),
    "finetune-relations": (related, "a.jsonl", {}, ("a.jsonl, record 4: `tokens`", "record 5: the mentions")),
    "finetune-typing": (related, "a.jsonl", {}, ("a.jsonl, record 4: `tokens`", "record 5: `pos`")),
}
COMMAND = dict.fromkeys(("tagging", "spans", "questions", "scores"), "finetune")


@pytest.mark.parametrize("job", JOBS)
def test_all_bad_rows_are_told_before_training_and_can_be_left_out(model, tmp_path, capsys, job):  # noqa: F811
    written, name, options, places = JOBS[job]
    (tmp_path / "test").mkdir()
    files = {"train_file": written(tmp_path / name, 1), "test_file": written(tmp_path / "test" / name, 0)}
    assert run(COMMAND.get(job, job), tmp_path / "out", model, **files, **options) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert "2 of " in line
    for place in places:
        assert place in line
    assert "`on_bad_rows` = skip" in line
    assert not (tmp_path / "out").exists()
    if job in ("finetune", "spans", "questions", "scores", "finetune-relations"):
        more = {**options, "on_bad_rows": "skip"}
        assert run(COMMAND.get(job, job), tmp_path / "out", model, **files, **more) == 0
        assert results_of(tmp_path / "out")["data"]["rows_left_out"] == {name: 2}
        assert f"| unusable rows, left out | {name}: 2 |" in (tmp_path / "out" / "README.md").read_text("utf-8")


def test_multitask_tells_the_task_and_takes_the_option_for_all(model, tmp_path, capsys):  # noqa: F811
    (tmp_path / "test").mkdir()
    tasks = {
        name: {
            "task": task,
            "train_file": [str(written(tmp_path / file, 1))],
            "test_file": [str(written(tmp_path / "test" / file, 0))],
        }
        for name, task, file, written in (
            ("one", "classification", "a.tsv", classes),
            ("two", "tagging", "b.conll", tagged),
        )
    }
    words = ["multitask", f"--tasks={json.dumps(tasks)}", *words_of(model_name_or_path=model, **RUN)]
    words += ["--baseline", "false", "--output_dir", str(tmp_path / "out")]
    assert main(words) == 2
    assert "Task one: 2 of 26 rows cannot be used: " in capsys.readouterr().err
    assert main([*words, "--on_bad_rows", "skip"]) == 0
    found = {name: results_of(tmp_path / "out" / name)["data"]["rows_left_out"] for name in tasks}
    assert found == {"one": {"a.tsv": 2}, "two": {"b.conll": 2}}


def test_finetune_seq2seq_keeps_the_count_in_its_results(tmp_path, capsys):
    file = translated(tmp_path / "a.jsonl", 1)
    words = ["finetune-seq2seq", *words_of(train_file=file, test_file=file, output_dir=tmp_path / "out")]
    words += words_of(family="unilm", config_overrides="hidden_size=16,num_hidden_layers=1,num_attention_heads=2")
    words += words_of(vocab_size=120, max_source_length=16, max_target_length=8, max_steps=1, use_cpu=True)
    words += words_of(disable_tqdm=True, report_to="none", save_strategy="no", num_beams=1)
    assert main(words) == 2
    # Of the test file, a row without a target is one whose target is not told.
    assert "3 of 12 rows cannot be used: " in capsys.readouterr().err
    assert main([*words, "--on_bad_rows", "skip"]) == 0
    found = json.loads((tmp_path / "out" / "all_results.json").read_text(encoding="utf-8"))
    assert found["rows_left_out"] == {"a.jsonl": 3}
    assert "| unusable rows, left out | a.jsonl: 3 |" in (tmp_path / "out" / "README.md").read_text("utf-8")
    lines = (tmp_path / "out" / "predictions_test.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["id"] for line in lines] == [0, 1, 2, 5]


def test_pretraining_on_parallel_text_leaves_bad_pairs_out(tmp_path, capsys):
    file = tmp_path / "a.jsonl"
    rows = [{"en": f"good {text}", "de": text} for text in GOOD]
    file.write_text("\n".join(map(json.dumps, [*rows, {"en": 7, "de": "a"}, {"en": "a"}])), encoding="utf-8")
    words = ["pretrain", *words_of(train_file=file, objective="tlm", languages=["en", "de"], vocab_size=80)]
    words += words_of(config_overrides="emb_dim=16,n_layers=1,n_heads=2", max_seq_length=32, max_steps=1)
    words += words_of(use_cpu=True, disable_tqdm=True, report_to="none", output_dir=tmp_path / "out")
    assert main(words) == 2
    assert "2 of 14 rows cannot be used: " in capsys.readouterr().err
    assert main([*words, "--on_bad_rows", "skip"]) == 0
    found = json.loads((tmp_path / "out" / "all_results.json").read_text(encoding="utf-8"))
    assert found["rows_left_out"] == {"a.jsonl": 2}
    assert "| unusable rows, left out | a.jsonl: 2 |" in (tmp_path / "out" / "README.md").read_text("utf-8")
