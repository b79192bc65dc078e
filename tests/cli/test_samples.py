"""`--train_sample`, `--linear_baseline` and paired differences: what a fair table of few rows needs."""

import json
from collections import Counter

import numpy as np
import pytest
from sklearn.metrics import accuracy_score

from hf_ptm_ext.cli import main
from hf_ptm_ext.cli.results import paired_differences, student_t, told_differences
from hf_ptm_ext.metrics import linear_tagger, ngram_classifier
from tests.cli.test_finetune import RUN, results_of, save_bert, words_of

WORDS = {"good": "fine great lovely warm", "bad": "awful poor dull cold", "none": "blue round thing box"}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("samples")
    draw, rows = np.random.default_rng(0), []
    for number in range(300):  # 5 : 3 : 1
        label = "good" if number % 9 < 5 else "bad" if number % 9 < 8 else "none"
        text = " ".join([*draw.choice(WORDS[label].split(), 1), *draw.choice([*"xyzuvw"], 4), str(number)])
        rows.append({"text": text, "label": label})
    for name, part in (("train", rows[:240]), ("test", rows[240:])):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part), encoding="utf-8")
    save_bert(folder / "bert", [row["text"] for row in rows])
    return folder


def job(name, data, output, **values):
    model = "teacher_name_or_path" if name == "distill" else "model_name_or_path"
    given = {model: data / "bert", "train_file": data / "train.jsonl", "test_file": data / "test.jsonl"}
    given |= {"output_dir": output, "task": "classification", **RUN, "num_train_epochs": 1, "max_seq_length": 24}
    return main([name, *words_of(**{**given, "save_strategy": "no", **values})])


def finetune(data, **values):
    """The job before training."""
    from hf_ptm_ext.cli import finetune as module

    given = {"model_name_or_path": data / "bert", "train_file": data / "train.jsonl", "task": "classification"}
    given |= {"test_file": data / "test.jsonl", **RUN, **values}
    made = module.Finetune(*module.parse(words_of(**given)))
    made.prepare()
    return made


def test_a_sample_is_drawn_by_the_seed_in_the_proportion_of_the_classes(data, tmp_path):
    splits = finetune(data, train_sample=45, output_dir=tmp_path).splits
    drawn = {seed: splits.sample(seed) for seed in (0, 1)}
    assert drawn[0] == finetune(data, train_sample=45, output_dir=tmp_path).splits.sample(0)
    assert drawn[0] != drawn[1]
    for places in drawn.values():
        assert len(set(places)) == 45
        counts = Counter(splits.examples["train"][place].label for place in places)
        assert counts == {"good": 25, "bad": 15, "none": 5}
    assert splits.train_inputs(0) == [splits.rows("train").inputs[place] for place in drawn[0]]
    few = finetune(data, train_sample=4, output_dir=tmp_path).splits
    assert Counter(few.examples["train"][place].label for place in few.sample(3)) == {"good": 2, "bad": 1, "none": 1}
    assert finetune(data, output_dir=tmp_path).splits.sample(0) is None


def test_all_windows_of_a_drawn_question_are_trained_on(data, tmp_path):
    rows = [
        {"question": f"what is {number} ?", "context": "the box " * (5 + number * 3) + f"is {number}", "answers": []}
        for number in range(12)
    ]
    for row in rows:
        row["answers"] = {"text": [row["context"].split()[-1]], "answer_start": [row["context"].rindex(" ") + 1]}
    file = tmp_path / "questions.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    values = {"task": "question-answering", "train_file": file, "test_file": file, "doc_stride": 4}
    splits = finetune(data, output_dir=tmp_path / "out", max_seq_length=24, train_sample=5, **values).splits
    every, chosen = splits.rows("train"), {str(place) for place in splits.sample(1)}
    windows = [row for row, place in zip(every.inputs, every.windows, strict=True) if place["example_id"] in chosen]
    assert len(chosen) == 5 < len(windows) < len(every.inputs)
    assert splits.train_inputs(1) == windows


def test_ngrams_stand_in_the_table_and_differences_are_paired(data, tmp_path, capsys):
    assert job("finetune", data, tmp_path, train_sample=60, linear_baseline=True) == 0
    printed, results = capsys.readouterr().out, results_of(tmp_path)
    assert "n-grams, linear" in printed
    assert "fine-tuned less n-grams, linear: accuracy" in printed
    assert results["summary"]["n-grams, linear"]["accuracy"]["std"] >= 0
    for run, linear in zip(results["runs"], results["linear_baseline"], strict=True):
        assert run["seed"] == linear["seed"]
        splits = finetune(data, train_sample=60, output_dir=tmp_path / "other").splits
        train = [splits.examples["train"][place] for place in splits.sample(run["seed"])]
        model = ngram_classifier([f"{row.text}\n" for row in train], [row.label for row in train])
        test = splits.examples["test"]
        found = accuracy_score([row.label for row in test], model.predict([f"{row.text}\n" for row in test]))
        assert linear["test"]["accuracy"] == pytest.approx(found)
    values = [
        run["test"]["accuracy"] - linear["test"]["accuracy"]
        for run, linear in zip(results["runs"], results["linear_baseline"], strict=True)
    ]
    told = results["differences"]["n-grams, linear"]["accuracy"]
    assert told["mean"] == pytest.approx(np.mean(values))
    assert told["high"] - told["mean"] == pytest.approx(12.706 * np.std(values, ddof=1) / 2**0.5, rel=1e-3, abs=1e-9)
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "* fine-tuned less n-grams, linear: accuracy" in card
    assert "training rows of each seed" in card


def test_a_linear_tagger_stands_beside_taggers(data, tmp_path):
    words = [("in Paris today", "O B-LOC O"), ("for Jane now", "O B-PER O"), ("near Rome today", "O B-LOC O")] * 4
    file = tmp_path / "tags.jsonl"
    rows = [{"tokens": text.split(), "tags": tags.split()} for text, tags in words]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    given = {"task": "tagging", "train_file": file, "test_file": file, "linear_baseline": True, "seeds": 0}
    assert job("finetune", data, tmp_path / "out", **given) == 0
    assert results_of(tmp_path / "out")["summary"]["words, linear"]["f1"]["mean"] == 1.0
    assert linear_tagger([["a", "b"]], [["O", "O"]]).predict([["b"], []]) == [["O"], []]  # a sample of one tag


@pytest.mark.parametrize("name", ["adapt", "distill", "multitask"])
def test_the_other_jobs_have_them_too(data, tmp_path, name, capsys):
    if name == "multitask":
        task = {"task": "classification", "train_sample": 30, "linear_baseline": True}
        task |= {"train_file": data / "train.jsonl", "test_file": data / "test.jsonl", "max_seq_length": 24}
        words = words_of(**{f"tasks.{one}.{key}": value for one in "ab" for key, value in task.items()})
        run = {key: value for key, value in RUN.items() if key not in ("language", "max_seq_length")}
        words += words_of(model_name_or_path=data / "bert", output_dir=tmp_path, **{**run, "num_train_epochs": 1})
        assert main(["multitask", *words, "--save_strategy", "no"]) == 0
        results = results_of(tmp_path)["tasks"]["a"]
    else:
        more = {"methods": ["houlsby", "lora"]} if name == "adapt" else {"student_layers": 1}
        if name == "distill":
            assert job("finetune", data, tmp_path / "teacher", seeds=0) == 0
            more |= {"teacher_name_or_path": tmp_path / "teacher", "stages": '{"all": {"preset": "soft-labels"}}'}
        assert job(name, data, tmp_path / "out", train_sample=30, linear_baseline=True, **more) == 0
        results = results_of(tmp_path / "out")
    assert "n-grams, linear" in capsys.readouterr().out
    assert len(results["linear_baseline"]) == 2
    assert "n-grams, linear" in results["differences"]
    assert len(results["differences"]) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train_sample": 241}, "`train_sample` must be at most the 240 training rows, got 241"),
        ({"train_sample": 2}, "`train_sample` must be at least the 3 classes, got 2"),
        ({"task": "regression", "linear_baseline": True}, "`linear_baseline` is none of `task` = regression"),
    ],
)
def test_mistakes_are_one_line(data, tmp_path, capsys, change, message):
    assert job("finetune", data, tmp_path, **change) == 2
    assert message in capsys.readouterr().err


def test_intervals_are_students():
    for freedom, value in ((1, 12.7062), (2, 4.3027), (4, 2.7764), (9, 2.2622), (30, 2.0423), (200, 1.9719)):
        assert student_t(freedom) == pytest.approx(value, abs=2e-4)
    runs = [
        {"seed": seed, "variant": variant, "test": {"f1": value}}
        for variant, values in (("a", [0.5, 0.7, 0.6]), ("b", [0.4, 0.5, 0.6]))
        for seed, value in enumerate(values)
    ]
    runs.append({"seed": 0, "variant": "c", "test": {"f1": 0.1}})
    found = paired_differences(runs, "test", ("f1",))
    assert found["b"]["f1"]["mean"] == pytest.approx(0.1)
    assert found["b"]["f1"]["high"] == pytest.approx(0.1 + 4.3027 * 0.1 / 3**0.5, abs=1e-5)
    assert found["c"]["f1"]["mean"] == pytest.approx(0.5)
    lines = told_differences({"summary": {"a": {}}, "differences": found}, ("f1",))
    assert lines[0] == "a less b: f1 +10.0 (-14.8 .. +34.8; 95 %, paired over 3 seeds)"
