"""`hf-ptm-ext multitask`: several tasks on one encoder by seeds, each task alone beside it, a folder for each."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
)

from hf_ptm_ext.cli import main
from hf_ptm_ext.cli.multitask_arguments import parse
from hf_ptm_ext.data import train_wordpiece
from hf_ptm_ext.hub import validate_model_card
from hf_ptm_ext.trainers import MultiTaskTrainer
from tests.cli.jobs import recipes_of

GOOD, BAD = ("bright", "warm", "kind", "glad"), ("dark", "cold", "cruel", "sad")
SHAPE = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
RUN = {
    "seeds": 0,
    "num_train_epochs": 6,
    "learning_rate": 5e-3,
    "max_seq_length": 24,
    "per_device_train_batch_size": 16,
    "use_cpu": True,
    "disable_tqdm": True,
    "report_to": "none",
    "save_strategy": "no",
    "language": "en",
}
SENTENCE = ["the", "light", "in", "the", "harbour", "was"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sentences with a good or a bad word: its class, its tag, the word itself as an answer; pairs of sentences."""
    folder = tmp_path_factory.mktemp("data")
    files: dict[str, list[dict[str, Any]]] = {"texts": [], "tagged": [], "pairs": [], "questions": []}
    for number in range(64):
        word = (GOOD, BAD)[number % 2][number // 2 % 4]
        other = (GOOD, BAD)[number // 2 % 2][number // 8 % 4]
        words, label = [*SENTENCE, word], ("good", "bad")[number % 2]
        text = " ".join(words)
        files["texts"].append({"text": text, "label": label})
        files["tagged"].append({"tokens": words, "tags": ["O"] * len(SENTENCE) + [f"B-{label}"]})
        files["pairs"].append({"text": text, "other": f"{' '.join(SENTENCE)} {other}", "label": label})
        answers = {"text": [word], "answer_start": [text.index(word)]}
        files["questions"].append({"id": str(number), "question": "the light", "context": text, "answers": answers})
    for name, rows in files.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    tokenizer = train_wordpiece([[row["text"] for row in files["texts"]]], 200, model_max_length=32)
    torch.manual_seed(0)
    config = BertConfig(vocab_size=len(tokenizer), max_position_embeddings=32, initializer_range=0.2, **SHAPE)
    BertForMaskedLM(config).save_pretrained(folder / "bert")
    tokenizer.save_pretrained(folder / "bert")
    return folder


def two_tasks(data: Path) -> dict[str, dict[str, Any]]:
    """A recipe's tasks: classes and tags."""
    return {
        "topic": {"task": "classification", **both(data / "texts.jsonl")},
        "tags": {"task": "tagging", **both(data / "tagged.jsonl")},
    }


def both(file: Path) -> dict[str, str]:
    return {"train_file": str(file), "test_file": str(file)}


def words_of(data: Path, output: Path, tasks: dict[str, dict[str, Any]], *more: str, **values: Any) -> list[str]:
    given = {"model_name_or_path": data / "bert", "output_dir": output, **RUN, **values}
    words = []
    for name, value in given.items():
        words += [f"--{name}", *(str(item) for item in (value if isinstance(value, list) else [value]))]
    return ["--tasks", json.dumps(tasks), *words, *more]


def multitask(
    data: Path, output: Path, tasks: dict[str, dict[str, Any]], *more: str, **values: Any
) -> dict[str, dict[str, Any]]:
    assert main(["multitask", *words_of(data, output, tasks, *more, **values)]) == 0
    return json.loads((output / "results.json").read_text("utf-8"))["tasks"]


def test_tasks_together_and_each_alone(data: Path, tmp_path: Path, capsys: Any) -> None:
    output = tmp_path / "out"
    results = multitask(data, output, two_tasks(data), "--tasks.topic.dropout", "0.05", seeds=[0, 1])
    printed = capsys.readouterr().out
    for name, metric in (("topic", "accuracy"), ("tags", "f1")):
        means = {variant: found[metric]["mean"] for variant, found in results[name]["summary"].items()}
        assert list(means) == ["multi-task", "single-task"]
        assert min(means.values()) > {"topic": results[name]["majority"][metric] + 0.2, "tags": 0.3}[name]
        assert [(run["seed"], run["variant"]) for run in results[name]["runs"]] == [
            (seed, variant) for seed in (0, 1) for variant in ("multi-task", "single-task")
        ]
        shown = results[name]["summary"]["multi-task"][metric]
        assert f"{100 * shown['mean']:.1f} ± {100 * shown['std']:.1f}" in printed
        card = (output / name / "README.md").read_text("utf-8")
        assert "together with other tasks" in card
        assert "single-task" in card
        assert str(tmp_path) not in card
        validate_model_card(output / name)
        assert (output / name / "predictions_test.jsonl").is_file()
    # What was saved is a plain model, that of the first seed: it gives that run's accuracy again.
    model = AutoModelForSequenceClassification.from_pretrained(output / "topic").eval()
    tokenizer = AutoTokenizer.from_pretrained(output / "topic")
    rows = [json.loads(line) for line in (data / "texts.jsonl").read_text("utf-8").splitlines()]
    batch = tokenizer([row["text"] for row in rows], padding=True, return_tensors="pt")
    with torch.no_grad():
        predicted = model(**batch).logits.argmax(-1).tolist()
    right = [model.config.id2label[one] == row["label"] for one, row in zip(predicted, rows, strict=True)]
    assert sum(right) / len(right) == pytest.approx(results["topic"]["runs"][0]["test"]["accuracy"])
    tagger = AutoModelForTokenClassification.from_pretrained(output / "tags")
    assert tagger.config.id2label == {0: "O", 1: "B-bad", 2: "B-good"}
    assert torch.equal(tagger.bert.embeddings.word_embeddings.weight, model.bert.embeddings.word_embeddings.weight), (
        "one encoder"
    )


def test_a_task_alone_starts_from_the_same_weights_and_gets_as_many_batches(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = two_tasks(data)
    tasks["tags"]["max_train_rows"] = "16"
    seen: list[tuple[list[str], int, dict[str, torch.Tensor]]] = []
    train = MultiTaskTrainer.train

    def remembering(self: MultiTaskTrainer, *args: Any, **kwargs: Any) -> Any:
        start = {name: value.clone() for name, value in self.model.state_dict().items()}
        found = train(self, *args, **kwargs)
        seen.append((list(self.tasks), self.state.global_step, start))
        return found

    monkeypatch.setattr(MultiTaskTrainer, "train", remembering)
    multitask(data, tmp_path / "out", tasks, num_train_epochs=2)
    together, topic, tags = seen
    assert [names for names, _, _ in seen] == [["topic", "tags"], ["topic"], ["tags"]]
    assert [steps for _, steps, _ in seen] == [10, 8, 2]
    for _, _, start in (topic, tags):
        assert all(torch.equal(value, together[2][name]) for name, value in start.items())


@pytest.mark.slow
def test_an_interrupted_job_goes_on_and_seeds_are_added(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {"num_train_epochs": 2, "save_strategy": "epoch"}
    whole = multitask(data, tmp_path / "whole", two_tasks(data), **values)

    class Killed(BaseException):
        pass

    save = MultiTaskTrainer._save_checkpoint

    def stopped(self: MultiTaskTrainer, *args: Any, **kwargs: Any) -> None:
        save(self, *args, **kwargs)
        raise Killed

    output = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(MultiTaskTrainer, "_save_checkpoint", stopped)
        with pytest.raises(Killed):
            main(["multitask", *words_of(data, output, two_tasks(data), **values)])
    assert list(output.glob("_runs/seed0_0/checkpoint-8"))
    resumed = multitask(data, output, two_tasks(data), resume_from_checkpoint="auto", **values)
    assert {name: one["runs"] for name, one in resumed.items()} == {name: one["runs"] for name, one in whole.items()}
    more = multitask(data, output, two_tasks(data), resume_from_checkpoint="auto", **{**values, "seeds": [0, 3]})
    assert more["tags"]["runs"][:2] == resumed["tags"]["runs"]
    assert [run["seed"] for run in more["tags"]["runs"]] == [0, 0, 3, 3]


def test_questions_an_answer_network_and_smoothness(data: Path, tmp_path: Path) -> None:
    tasks = {
        "pairs": {"task": "classification", "pair_column": "other", "head": "san", **both(data / "pairs.jsonl")},
        "answers": {
            "task": "question-answering",
            "max_answer_length": 4,
            "doc_stride": 2,
            **both(data / "questions.jsonl"),
        },
    }
    output = tmp_path / "out"
    results = multitask(data, output, tasks, baseline=False, mixing="equal", num_train_epochs=20)
    assert list(results["pairs"]["summary"]) == ["multi-task"]
    assert results["answers"]["summary"]["multi-task"]["f1"]["mean"] > 0.5
    assert results["pairs"]["summary"]["multi-task"]["accuracy"]["mean"] > 0.7
    for name in tasks:
        validate_model_card(output / name)
    AutoModelForQuestionAnswering.from_pretrained(output / "answers")
    model = AutoModelForSequenceClassification.from_pretrained(output / "pairs")
    card = (output / "pairs" / "README.md").read_text("utf-8")
    assert "trust_remote_code=True" in card
    assert model.config.id2label == dict(enumerate(results["pairs"]["labels"]))
    assert "| loss_weight | 1 |" in card
    assert "| SMART |" not in card
    tokenizer = AutoTokenizer.from_pretrained(output / "pairs")
    rows = [json.loads(line) for line in (data / "pairs.jsonl").read_text("utf-8").splitlines()]
    batch = tokenizer(*([row[name] for row in rows] for name in ("text", "other")), padding=True, return_tensors="pt")
    with torch.no_grad():
        predicted = model(**batch).logits.argmax(-1).tolist()
    labels = results["pairs"]["labels"]
    right = [labels[one] == row["label"] for one, row in zip(predicted, rows, strict=True)]
    assert sum(right) / len(right) == pytest.approx(results["pairs"]["runs"][0]["test"]["accuracy"])


def test_the_best_checkpoint_by_all_tasks_is_kept(data: Path, tmp_path: Path) -> None:
    tasks = two_tasks(data)
    for task in tasks.values():
        task["validation_file"] = task["train_file"]
    values = {"eval_strategy": "epoch", "save_strategy": "epoch", "load_best_model_at_end": True}
    values |= {"metric_for_best_model": "score", "num_train_epochs": 2, "smart_weight": 1.0, "baseline": False}
    values |= {
        "mixing": "main",
        "extra_task_ratio": 0.5,
        "main_last": True,
        "smart_rule": "mt-dnn",
        "smart_norm": "l1",
    }
    results = multitask(data, tmp_path / "out", tasks, **values)
    assert set(results["tags"]["runs"][0]) == {"seed", "variant", "validation", "test"}
    assert "| SMART | weight: 1, " in (tmp_path / "out" / "tags" / "README.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("change", "values", "message"),
    [
        ({"tasks": "classification"}, {}, "unknown arguments: tasks"),
        ({"task": "parsing"}, {}, "Task topic: `task` must be one of"),
        ({"task": None}, {}, "Task topic must say its `task`"),
        ({"head": "san"}, {}, "is for classification with a `pair_column`"),
        ({"head": "large"}, {}, "`head` must be one of plain, san"),
        ({"dropout": 1.5}, {}, "`dropout` must be at least 0 and below 1"),
        ({"loss_weight": 0}, {}, "`loss_weight` must be positive"),
        ({"test_file": None}, {}, "Task topic: `validation_file` or `test_file`"),
        ({}, {"mixing": "random"}, "`mixing` must be one of"),
        ({}, {"mixing": "main", "main_task": "tag"}, "`main_task` must be one of topic, tags"),
        ({}, {"main_task": "tags"}, "with mixing main"),
        ({}, {"extra_task_ratio": 0.5}, "`extra_task_ratio` must be 0 without mixing main"),
        ({}, {"smart_rule": "newest", "smart_weight": 1}, "smart_rule"),
        ({}, {"label_smoothing_factor": 0.1}, "`label_smoothing_factor` must be 0"),
        ({}, {"temperature": 0, "mixing": "temperature"}, "`temperature` must be positive"),
    ],
)
def test_mistakes_are_named(
    data: Path, tmp_path: Path, capsys: Any, change: dict[str, Any], values: dict[str, Any], message: str
) -> None:
    tasks = two_tasks(data)
    tasks["topic"] |= change
    assert main(["multitask", *words_of(data, tmp_path / "out", tasks, **values)]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["a.b", "_runs", "values", "a/b", ""])
def test_names_that_cannot_be_folders_or_modules(data: Path, tmp_path: Path, capsys: Any, name: str) -> None:
    tasks = {name: two_tasks(data)["topic"]}
    assert main(["multitask", *words_of(data, tmp_path / "out", tasks)]) == 2
    assert "A task must be named by" in capsys.readouterr().err


@pytest.mark.parametrize("recipe", sorted(recipes_of("multitask")))
def test_the_recipes_parse_with_the_command_in_their_head(recipe: str) -> None:
    _, shared, tasks, training = parse([recipe, *recipes_of("multitask")[recipe]])
    assert training.seeds == [0, 1, 2]
    assert shared.baseline
    assert len(tasks) > 1
    assert all(data.train_file and data.test_file for data, _ in tasks.values())


@pytest.mark.parametrize("words", [("--tasks.topic", "x"), ("--tasks.topic.train_file",), ("--tasks..head", "san")])
def test_a_flag_of_a_task_names_task_and_argument(
    data: Path, tmp_path: Path, capsys: Any, words: tuple[str, ...]
) -> None:
    assert main(["multitask", *words_of(data, tmp_path / "out", two_tasks(data), *words)]) == 2
    assert "must be spelt --tasks.NAME.FIELD VALUE" in capsys.readouterr().err


def test_flags_change_one_argument_of_one_task(data: Path, tmp_path: Path) -> None:
    more = ("--tasks.tags.train_file", "a.jsonl", "b.jsonl", "--overrides", "tasks.topic.loss_weight=0.5")
    _, _, tasks, training = parse(words_of(data, tmp_path / "out", two_tasks(data), *more))
    assert tasks["tags"][0].train_file == ["a.jsonl", "b.jsonl"]
    assert tasks["tags"][0].test_file == [str(data / "tagged.jsonl")]
    assert tasks["topic"][1].loss_weight == 0.5
    assert training.seeds == [0]
