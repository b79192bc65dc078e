"""What jobs by seeds do with evaluation data that are not like the training data."""

import json

import pytest
import torch
from transformers import AutoModelForSequenceClassification, BertConfig, BertModel, TrainingArguments

from hf_ptm_ext.cli import main
from hf_ptm_ext.data import train_wordpiece
from hf_ptm_ext.hub import validate_model_card
from hf_ptm_ext.trainers import PtmTrainer
from tests.cli.test_finetune import results_of, words_of

RUN = {
    **{"seeds": 0, "num_train_epochs": 1, "learning_rate": 5e-3, "max_seq_length": 16, "use_cpu": True},
    **{"per_device_train_batch_size": 8, "disable_tqdm": True, "report_to": "none", "save_strategy": "no"},
}
GOOD = [f"good fine nice {number}" for number in range(12)]
BAD = [f"bad ugly poor {number}" for number in range(12)]
SIDES = {"pos": GOOD, "neg": BAD}
STEPS = {"eval_strategy": "steps", "eval_steps": 2, "save_strategy": "steps", "save_steps": 2}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    tokenizer = train_wordpiece([[*GOOD, *BAD, "neither nor # $"]], 300, model_max_length=32)
    torch.manual_seed(0)
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    BertModel(BertConfig(vocab_size=len(tokenizer), max_position_embeddings=32, **shape)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def table(path, rows, columns=("id", "text", "label")):
    lines = ["\t".join(columns), *("\t".join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def classes(path, first=0, last=8, more=()):
    rows = [(f"{name}-{n}", texts[n], name) for name, texts in SIDES.items() for n in range(first, last)]
    return table(path, [*rows, *more])


def tags(path, names=("X",), tagged=True):
    lines = [
        f"{word}{f' {tag}' if tagged else ''}" for name in names for word, tag in (("good", f"B-{name}"), ("0", "O"))
    ]
    path.write_text("\n".join(lines) + "\n\n", encoding="utf-8")
    return path


def relations(path, labels, **more):
    base = {"tokens": ["good", "and", "bad"], "head": {"pos": [0, 1]}, "tail": {"pos": [2, 3]}, "pos": [0, 1]}
    rows = [
        {**base, "tokens": [f"good{n}", "and", "bad"], **more}
        | ({"relation": label, "labels": [label]} if label else {})
        for n, label in enumerate(labels)
    ]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    return path


def card_of(folder):
    return (folder / "README.md").read_text(encoding="utf-8")


def run(job, output, model, **values):
    name = "teacher_name_or_path" if job == "distill" else "model_name_or_path"
    return main([job, *words_of(**{name: model, "output_dir": output, **RUN, **values})])


def data_of(job, folder, kind):
    """Training data of a job and a test file: with a class more, with foreign ones alone, or without labels."""
    own, other = {"new": (["A", "B"], ["A", "C"]), "foreign": (["A", "B"], ["C"]), "none": (["A", "B"], [None])}[kind]
    if job in ("finetune-relations", "finetune-typing"):
        return {
            "train_file": relations(folder / "train.jsonl", own * 4),
            "test_file": relations(folder / "test.jsonl", other),
        }
    if job == "tagging":
        test = tags(folder / "test.conll", [one or "A" for one in other], kind != "none")
        return {"task": "tagging", "train_file": tags(folder / "train.conll", own * 3), "test_file": test}
    rows = {"new": [("n", "neither nor", "new"), ("p", GOOD[9], "pos")], "foreign": [("n", "neither nor", "new")]}
    columns = ("id", "text", "label") if kind != "none" else ("id", "text")
    test = table(folder / "test.tsv", rows.get(kind, [("n", "neither nor"), ("p", GOOD[9])]), columns)
    return {"task": "classification", "train_file": classes(folder / "train.tsv"), "test_file": test}


JOBS = ("finetune", "tagging", "adapt", "finetune-relations", "finetune-typing")


@pytest.mark.parametrize("job", JOBS)
def test_a_class_that_training_lacks_is_said_and_counts_as_wrong(model, tmp_path, caplog, job):
    values = data_of(job, tmp_path, "new")
    assert run("finetune" if job == "tagging" else job, tmp_path / "out", model, **values) == 0
    assert "rows have classes that the training data lack" in caplog.text
    results = results_of(tmp_path / "out")
    (unseen,) = results["data"]["unseen_classes"].values()
    assert unseen["rows"] == 1
    first = next(iter(results["runs"][0]["test"].values()))
    assert first <= 0.75
    assert "| test rows of classes that the training data lack | 1 |" in card_of(tmp_path / "out")


@pytest.mark.parametrize("job", JOBS)
def test_data_of_foreign_classes_alone_are_refused(model, tmp_path, capsys, job):
    values = data_of(job, tmp_path, "foreign")
    assert run("finetune" if job == "tagging" else job, tmp_path / "out", model, **values) == 2
    assert "has none of the training data's classes" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("job", JOBS)
def test_a_test_file_without_labels_is_predicted_and_not_scored(model, tmp_path, capsys, job):
    values = data_of(job, tmp_path, "none")
    assert run("finetune" if job == "tagging" else job, tmp_path / "out", model, **values) == 0
    assert "Nothing was scored" in capsys.readouterr().out
    results = results_of(tmp_path / "out")
    assert results["split"] is None
    assert "majority" not in results
    lines = (tmp_path / "out" / "predictions_test.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    assert [row["id"] for row in rows] == (["n", "p"] if job in ("finetune", "adapt") else [0])
    assert all("prediction" in row and not {"label", "labels", "tags"} & set(row) for row in rows)
    validate_model_card(tmp_path / "out")
    assert "model-index" not in card_of(tmp_path / "out")
    assert f"| rows without labels, not scored | test: {len(rows)} |" in card_of(tmp_path / "out")


def test_the_loss_is_that_of_the_rows_with_a_known_class(model, tmp_path):
    """Evaluated in mid-training, whatever batch the unknown rows are in."""
    train = classes(tmp_path / "train.tsv")
    more = [("n", "neither nor", "new"), ("m", "nor neither", "new")]
    values = {
        "task": "classification",
        "train_file": train,
        **STEPS,
        "load_best_model_at_end": True,
        "save_total_limit": 9,
    }
    losses = []
    for number, rows in enumerate(([], more)):
        file = classes(tmp_path / f"dev{number}.tsv", 8, 10, rows)
        out = tmp_path / f"out{number}"
        assert run("finetune", out, model, validation_file=file, per_device_eval_batch_size=1, **values) == 0
        losses.append(results_of(out)["trained"][0]["best_update"])
        assert results_of(out)["runs"][0]["validation"]["accuracy"] <= (1, 4 / 6)[number]
    assert losses[0] == losses[1]


def test_rows_with_and_without_labels_are_not_mixed(model, tmp_path, capsys):
    train = classes(tmp_path / "train.tsv")
    test = classes(tmp_path / "test.tsv", 8, 10, [("x", "neither", "-1")])
    values = {"task": "classification", "train_file": train}
    assert run("finetune", tmp_path / "out", model, test_file=test, **values) == 2
    assert "1 of 5 rows have no label, the first of which is row 4" in capsys.readouterr().err
    assert run("finetune", tmp_path / "kept", model, test_file=test, on_bad_rows="skip", **values) == 0
    assert results_of(tmp_path / "kept")["data"]["without_labels"] == {"test": 1}
    assert "| rows without labels, not scored | test: 1 |" in card_of(tmp_path / "kept")
    hidden = table(tmp_path / "hidden.tsv", [("x", "neither", "-1")])
    assert run("finetune", tmp_path / "out", model, validation_file=hidden, **values) == 2
    assert "as `test_file`" in capsys.readouterr().err


def test_rows_keep_their_numbers_where_others_are_left_out(model, tmp_path):
    train = classes(tmp_path / "train.tsv")
    rows = [(GOOD[0], "pos"), ("other", "neg"), ("", "neg"), ("nor", ""), ("more", "pos")]
    test = table(tmp_path / "test.tsv", rows, ("text", "label"))
    values = {"task": "classification", "train_file": train, "test_file": test, "drop_overlap": "evaluation"}
    values["on_bad_rows"] = "skip"
    assert run("finetune", tmp_path / "out", model, **values) == 0
    rows = map(json.loads, (tmp_path / "out" / "predictions_test.jsonl").read_text(encoding="utf-8").splitlines())
    assert [(row["id"], row["text"]) for row in rows] == [(1, "other"), (4, "more")]


@pytest.mark.parametrize("drop", [None, "train", "evaluation"])
def test_rows_of_the_training_data_are_counted_and_left_out(model, tmp_path, caplog, drop):
    train = classes(tmp_path / "train.tsv")
    test = classes(tmp_path / "test.tsv", 8, 10, [("x", f" {GOOD[0].upper()}\u3000", "pos")])
    values = {"task": "classification", "train_file": train, "test_file": test, "drop_overlap": drop}
    values = {name: value for name, value in values.items() if value is not None}
    assert run("finetune", tmp_path / "out", model, **values) == 0
    assert "1 of 5 test rows are in the training data too" in caplog.text
    note = results_of(tmp_path / "out")["data"]["in_training_data"]["test"]
    left_out = {"train": {"left_out_of": "train"}, "evaluation": {"left_out_of": "test"}, None: {}}[drop]
    assert note == {"rows": 1, "of": 5, **left_out, **({"left_out": 1} if drop else {})}
    card = card_of(tmp_path / "out")
    assert "| test rows that are in the training data | 1 of 5" in card
    rows = (tmp_path / "out" / "predictions_test.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(rows) == (4 if drop == "evaluation" else 5)


def test_rows_that_are_only_predicted_are_never_left_out(model, tmp_path):
    train = classes(tmp_path / "train.tsv")
    (tmp_path / "test.tsv").write_text(f"text\n{GOOD[0]}\n{GOOD[1]} again\n", encoding="utf-8")
    values = {"task": "classification", "train_file": train, "test_file": tmp_path / "test.tsv"}
    assert run("finetune", tmp_path / "out", model, **values, drop_overlap="evaluation") == 0
    assert len((tmp_path / "out" / "predictions_test.jsonl").read_text(encoding="utf-8").splitlines()) == 2


@pytest.mark.parametrize("job", ["finetune-relations", "finetune-typing"])
def test_mentions_behind_the_cut_are_counted(model, tmp_path, caplog, job):
    long = ["x"] * 30
    rows = {"pos": [0, 1], "head": {"pos": [0, 1]}, "tail": {"pos": [2, 3]}, "tokens": ["good", "and", "bad", *long]}
    cut = {**rows, "pos": [20, 21], "tail": {"pos": [20, 21]}}
    for name, one in (("train", cut), ("test", rows)):
        lines = [{**one, "relation": label, "labels": [label]} for label in "AB"]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    values = {"train_file": tmp_path / "train.jsonl", "test_file": tmp_path / "test.jsonl", "max_train_rows": 2}
    assert run(job, tmp_path / "out", model, **values) == 0
    assert "2 of 2 train rows have a mention behind the cut at 16 tokens" in caplog.text
    assert results_of(tmp_path / "out")["data"]["mentions_behind_the_cut"] == {"train": 2}
    assert "| rows with a mention behind the cut | train: 2 |" in card_of(tmp_path / "out")


@pytest.mark.parametrize("kind", [pytest.param("new", marks=pytest.mark.slow), "foreign", "none"])
def test_students_and_stages_follow_the_same_rules(model, tmp_path, capsys, kind):
    values = data_of("finetune", tmp_path, kind)
    train = {"task": "classification", "train_file": values["train_file"], "test_file": values["train_file"]}
    assert run("finetune", tmp_path / "teacher", model, **train) == 0
    stages = json.dumps({"distil": {"objectives": {"soft_labels": 1.0}}})
    more = {"stages": stages, "student_layers": 1, "baseline": False}
    code = run("distill", tmp_path / "student", tmp_path / "teacher", **values, **more)
    assert code == (2 if kind == "foreign" else 0)
    if kind == "foreign":
        assert "none of the training data's classes" in capsys.readouterr().err
        return
    results = results_of(tmp_path / "student")
    assert results["split"] == ("test" if kind == "new" else None)
    assert (tmp_path / "student" / "predictions_test.jsonl").is_file()
    validate_model_card(tmp_path / "student")
    target = {"job": "finetune", **{name: str(value) for name, value in values.items()}, "save_strategy": "no"}
    target |= {"model_name_or_path": str(model), "seeds": [0], "use_cpu": True, "num_train_epochs": 1}
    words = ["--stages", json.dumps({"target": target}), "--output_dir", str(tmp_path / "stages")]
    assert main(["stages", *words]) == 0
    assert "±" not in (tmp_path / "stages" / "stages.md").read_text(encoding="utf-8")


# ---- numbers ----


def scored(path, numbers, kind):
    rows = [{"id": n, "a": f"good {n}", "b": f"nice {n}", "score": number} for n, number in enumerate(numbers)]
    if kind == "jsonl":
        path = path.with_suffix(".jsonl")
        path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
        return path
    mark = {"csv": ",", "tsv": "\t"}[kind]
    path = path.with_suffix(f".{kind}")
    path.write_text("\n".join(mark.join(map(str, row)) for row in (rows[0], *(row.values() for row in rows))))
    return path


@pytest.mark.parametrize("kind", ["jsonl", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("csv", "tsv"))])
def test_numbers_are_scores_in_every_format(model, tmp_path, capsys, kind):
    """Never classes by themselves; a mean squared loss, correlations, and a head of one output."""
    numbers = [0.5, 1.5, 2.5, 4.0, -2.0, 3.25] * 3
    files = {
        "train_file": scored(tmp_path / "train", numbers, kind),
        "test_file": scored(tmp_path / "test", numbers[:6], kind),
    }
    columns = {"text_column": "a", "pair_column": "b", "label_column": "score"}
    assert run("finetune", tmp_path / "out", model, task="classification", **files, **columns) == 2
    assert "`--task regression`" in capsys.readouterr().err
    assert run("finetune", tmp_path / "out", model, task="regression", **files, **columns) == 0
    results = results_of(tmp_path / "out")
    assert set(results["runs"][0]["test"]) == {"pearson", "spearman", "mse"}
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    assert (loaded.config.num_labels, loaded.config.problem_type) == (1, "regression")
    validate_model_card(tmp_path / "out")
    assert "type: pearson" in card_of(tmp_path / "out")
    rows = map(json.loads, (tmp_path / "out" / "predictions_test.jsonl").read_text(encoding="utf-8").splitlines())
    assert [row["label"] for row in rows] == numbers[:6]
    # Again from there: the head stays.
    again = {**files, "max_steps": 1, "learning_rate": 1e-12}
    assert run("finetune", tmp_path / "again", tmp_path / "out", task="regression", **again, **columns) == 0
    before, after = (results_of(tmp_path / name)["runs"][0]["test"] for name in ("out", "again"))
    assert after["mse"] == pytest.approx(before["mse"], rel=1e-5)


@pytest.mark.parametrize("labels", [(0, 1), (1.0, 0.0), ("1", "0")])
def test_whole_numbers_remain_classes(model, tmp_path, labels):
    rows = [{"text": f"good {n}", "label": labels[n % 2]} for n in range(8)]
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    test = table(tmp_path / "test.tsv", [("x", "good", "1"), ("y", "nice", "0")])
    values = {"task": "classification", "train_file": tmp_path / "train.jsonl", "test_file": test}
    assert run("finetune", tmp_path / "out", model, **values) == 0
    assert results_of(tmp_path / "out")["labels"] == ["0", "1"]


# ---- settings that cannot be, and what cards say ----


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"load_best_model_at_end": True}, "`load_best_model_at_end` needs an `eval_strategy`"),
        ({"save_strategy": "best"}, "`save_strategy` = best needs an `eval_strategy`"),
        (
            {
                "load_best_model_at_end": True,
                "eval_strategy": "steps",
                "save_strategy": "epoch",
                "metric_for_best_model": "f1",
            },
            "`metric_for_best_model` must be one of loss, accuracy, macro_f1, matthews_correlation",
        ),
    ],
)
def test_a_best_model_that_cannot_be_found_is_refused(model, tmp_path, capsys, values, message):
    files = {"train_file": classes(tmp_path / "train.tsv"), "validation_file": classes(tmp_path / "dev.tsv", 8, 10)}
    assert run("finetune", tmp_path / "out", model, **{"task": "classification", **files, **values}) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_checkpoint_of_the_best_model_alone_is_chosen_by_the_loss(model, tmp_path):
    values = {"train_file": classes(tmp_path / "train.tsv"), "validation_file": classes(tmp_path / "dev.tsv", 8, 10)}
    values |= {"task": "classification", "eval_strategy": "epoch", "save_strategy": "best"}
    assert run("finetune", tmp_path / "out", model, **values) == 0


def test_several_tasks_choose_the_best_model_by_default(model, tmp_path, capsys):
    common = {"task": "classification", "train_file": [str(classes(tmp_path / "train.tsv"))]}
    numbers = [str(scored(tmp_path / "scores", [0.5, 1.5, 2.5, 3.5] * 2, "tsv"))]
    tasks = {
        "sides": {**common, "validation_file": [str(classes(tmp_path / "dev.tsv", 8, 10, [("n", "neither", "new")]))]},
        "scores": {
            "task": "regression",
            "train_file": numbers,
            "validation_file": numbers,
            "text_column": "a",
            "label_column": "score",
        },
    }
    words = {
        "tasks": json.dumps(tasks),
        "eval_strategy": "epoch",
        "load_best_model_at_end": True,
        "save_strategy": "epoch",
    }
    assert run("multitask", tmp_path / "out", model, **words) == 0
    results = results_of(tmp_path / "out")["tasks"]
    assert results["sides"]["trained"][0]["best_update"] == results["sides"]["trained"][0]["updates"]
    assert set(results["scores"]["runs"][0]["validation"]) == {"pearson", "spearman", "mse"}
    words |= {"metric_for_best_model": "f1", "overwrite": True}
    assert run("multitask", tmp_path / "out", model, **words) == 2
    assert "must be one of score, sides_loss, sides_accuracy" in capsys.readouterr().err


def test_a_card_says_what_happened(model, tmp_path):
    """Updates that were made, the saved weights' own scores on the file that was scored, and no spread of one seed."""
    files = {"train_file": classes(tmp_path / "train.tsv"), "test_file": classes(tmp_path / "my_test.tsv", 8, 11)}
    values = {"task": "classification", "max_steps": 3, "num_train_epochs": 50}
    assert run("finetune", tmp_path / "one", model, **files, **values) == 0
    card = card_of(tmp_path / "one")
    assert "| updates | 3 |" in card
    assert "| epochs | 1.5 |" in card
    assert "±" not in card
    assert run("finetune", tmp_path / "two", model, **files, **{**values, "seeds": [3, 4]}) == 0
    results, card = results_of(tmp_path / "two"), card_of(tmp_path / "two")
    assert "mean and standard deviation of 2 seeds" in card
    (index,) = validated_index(card)
    assert (index["dataset"]["name"], index["dataset"]["split"]) == ("my_test.tsv", "test")
    own = {metric["type"]: metric["value"] for metric in index["metrics"]}
    assert own["accuracy"] == pytest.approx(results["runs"][0]["test"]["accuracy"])


class Halves(torch.nn.Module):
    """Logits that the input says."""

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(()))

    def forward(self, x, labels=None):
        logits = self.scale * x
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


@pytest.mark.parametrize("batch", [1, 2, 5])
def test_rows_without_a_label_have_no_part_in_the_loss(tmp_path, batch):
    """The same whatever batches they fall into, also with a model's own loss, which is NaN for them alone."""
    rows = [{"x": [float(n), 0.0], "labels": label} for n, label in enumerate((0, -100, 1, -100, -100, 1))]
    args = TrainingArguments(str(tmp_path), per_device_eval_batch_size=batch, use_cpu=True, report_to="none")
    trainer = PtmTrainer(Halves(), args)
    kept = [row for row in rows if row["labels"] != -100]
    expected = trainer.evaluate(kept)["eval_loss"]
    assert trainer.evaluate(rows)["eval_loss"] == pytest.approx(expected, rel=1e-6)


def validated_index(card):
    import yaml

    front = yaml.safe_load(card.split("---")[1])
    return front["model-index"][0]["results"]
