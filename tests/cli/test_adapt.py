"""`hf-ptm-ext adapt`: adapters by seeds with other methods beside them, and a folder that holds the adapter alone."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import AutoPeftModelForSequenceClassification, PeftModel
from transformers import AutoModelForTokenClassification, AutoTokenizer, BertConfig, BertForMaskedLM, pipeline

from hf_ptm_ext.cli import main
from hf_ptm_ext.cli.adapt import parse
from hf_ptm_ext.data import train_wordpiece
from hf_ptm_ext.hub import validate_model_card
from tests.cli.jobs import recipes_of

GOOD, BAD = ("bright", "warm", "kind", "glad"), ("dark", "cold", "cruel", "sad")
SHAPE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
RUN = {
    "seeds": [0, 1],
    "num_train_epochs": 8,
    "learning_rate": 2e-2,
    "full_learning_rate": 5e-3,
    "reduction_factor": 4,
    "max_seq_length": 16,
    "per_device_train_batch_size": 16,
    "use_cpu": True,
    "disable_tqdm": True,
    "report_to": "none",
    "save_strategy": "no",
    "language": "en",
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sentences with a good or a bad word, as classes and as tags, and a small BERT without a pooler."""
    folder = tmp_path_factory.mktemp("data")
    rows, tags = [], []
    for number in range(64):
        word = (GOOD, BAD)[number % 2][number // 2 % 4]
        words = ["the", "light", "in", "the", "harbour", "was", word, "and", ("low", "high")[number // 8 % 2]]
        label = ("good", "bad")[number % 2]
        rows.append({"text": " ".join(words), "label": label})
        tags.append({"tokens": words, "tags": [f"B-{label}" if one == word else "O" for one in words]})
    for name, lines in (("texts", rows), ("tagged", tags)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    tokenizer = train_wordpiece([[row["text"] for row in rows]], 200, model_max_length=32)
    torch.manual_seed(0)
    # Adapters act on each position alone: the word must be seen at the first one by random attention, and no noise on
    # top of it.
    quiet = {"initializer_range": 0.2, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = BertConfig(vocab_size=len(tokenizer), max_position_embeddings=32, **quiet, **SHAPE)
    BertForMaskedLM(config).save_pretrained(folder / "bert")
    tokenizer.save_pretrained(folder / "bert")
    return folder


def flags(**values: Any) -> list[str]:
    words = []
    for name, value in values.items():
        words += [f"--{name}", *(str(item) for item in (value if isinstance(value, list) else [value]))]
    return words


def adapt(output: Path, data: Path, file: str = "texts", **values: Any) -> dict[str, Any]:
    given = {"model_name_or_path": data / "bert", "train_file": data / f"{file}.jsonl", "output_dir": output}
    given |= {"test_file": data / f"{file}.jsonl", "task": "classification"}
    assert main(["adapt", *flags(**{**given, **RUN, **values})]) == 0
    return json.loads((output / "results.json").read_text("utf-8"))


def test_four_methods_side_by_side(data: Path, tmp_path: Path, capsys: Any) -> None:
    methods = ["houlsby", "pfeiffer", "lora", "full"]
    results = adapt(tmp_path / "out", data, methods=methods, seeds=0)
    printed = capsys.readouterr().out
    assert [run["variant"] for run in results["runs"]] == methods
    means = {method: {name: one["mean"] for name, one in results["summary"][method].items()} for method in methods}
    assert all(means[method]["accuracy"] > results["majority"]["accuracy"] + 0.05 for method in methods)
    trained = [means[method]["trained_parameters"] for method in methods]
    assert max(trained[:3]) < 0.5 * trained[3]
    assert means["full"]["trained_share"] == 1.0
    assert all(means[method]["step_seconds"] > 0 for method in methods)
    assert f"{trained[0]:,.0f}" in printed
    assert "its README.md says how to load it" in printed

    files = {path.name for path in (tmp_path / "out").iterdir() if path.is_file()}
    assert {"adapter_config.json", "adapter_model.safetensors", "results.json", "predictions_test.jsonl"} <= files
    assert not {"model.safetensors", "config.json"} & files
    validate_model_card(tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text("utf-8")
    assert "import hf_ptm_ext" in card
    assert "| full |" in card
    assert f"{trained[0]:,.0f} weights ({100 * means['houlsby']['trained_share']:.2f} % of the model's)" in card
    assert str(tmp_path) not in card
    assert str(data) not in card


@pytest.mark.parametrize("methods", [["pfeiffer"], ["lora"]])
def test_the_encoder_may_be_published_with_the_adapter(data: Path, tmp_path: Path, methods: list[str]) -> None:
    results = adapt(tmp_path / "out", data, methods=methods, publish="whole", seeds=[0])
    assert not list((tmp_path / "out").glob("adapter*"))
    validate_model_card(tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text("utf-8")
    assert ("trust_remote_code=True" in card) is (methods == ["pfeiffer"])
    assert "import hf_ptm_ext" not in card
    answers = pipeline("text-classification", model=str(tmp_path / "out"), trust_remote_code=True)
    rows = [json.loads(line) for line in (data / "texts.jsonl").read_text("utf-8").splitlines()]
    found = answers([row["text"] for row in rows])
    right = [one["label"] == row["label"] for one, row in zip(found, rows, strict=True)]
    assert sum(right) / len(right) == results["runs"][0]["test"]["accuracy"] > 0.7


def test_what_is_saved_is_the_first_seeds_adapter(data: Path, tmp_path: Path) -> None:
    results = adapt(tmp_path / "out", data, methods="pfeiffer", seeds=0)
    labels = results["labels"]
    torch.manual_seed(99)  # new head and pooler, which the adapter replaces
    model = AutoPeftModelForSequenceClassification.from_pretrained(tmp_path / "out", num_labels=len(labels)).eval()
    assert model.config.id2label == dict(enumerate(labels)), "names come with the adapter"
    assert model.config.label2id == {name: number for number, name in enumerate(labels)}
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    rows = [json.loads(line) for line in (data / "texts.jsonl").read_text("utf-8").splitlines()]
    batch = tokenizer([row["text"] for row in rows], padding=True, return_tensors="pt")
    with torch.no_grad():
        predicted = model(**batch).logits.argmax(-1).tolist()
    right = [labels[one] == row["label"] for one, row in zip(predicted, rows, strict=True)]
    assert sum(right) / len(right) == pytest.approx(results["runs"][0]["test"]["accuracy"])


def test_a_tagger(data: Path, tmp_path: Path) -> None:
    values = {"task": "tagging", "methods": "houlsby", "seeds": 0, "num_train_epochs": 12, "bottleneck_size": 8}
    results = adapt(tmp_path / "out", data, "tagged", **values)
    assert results["runs"][0]["test"]["f1"] > 0.5
    base = AutoModelForTokenClassification.from_pretrained(data / "bert", num_labels=len(results["labels"]))
    assert PeftModel.from_pretrained(base, tmp_path / "out").peft_config["default"].bottleneck_size == 8


def test_more_seeds_are_added_to_the_runs_that_are_there(data: Path, tmp_path: Path) -> None:
    values = {"methods": "houlsby", "num_train_epochs": 1}
    first = adapt(tmp_path / "out", data, seeds=0, **values)
    both = adapt(tmp_path / "out", data, seeds=[0, 1], resume_from_checkpoint="auto", **values)
    assert both["runs"][0] == first["runs"][0]
    assert [run["seed"] for run in both["runs"]] == [0, 1]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"methods": ["full", "houlsby"]}, "`methods` must begin with an adapter"),
        ({"methods": ["houlsby", "prefix"]}, "`methods` must be one of houlsby, pfeiffer, lora, full"),
        ({"methods": ["houlsby", "houlsby"]}, "`methods` must be different ones"),
        ({"leave_out": [7]}, "`leave_out` must be numbers below 2"),
        ({"non_linearity": "gelv"}, "`non_linearity` must be one of"),
    ],
)
def test_mistakes_are_named(data: Path, tmp_path: Path, capsys: Any, values: dict[str, Any], message: str) -> None:
    given = {"model_name_or_path": data / "bert", "train_file": data / "texts.jsonl", "task": "classification"}
    given |= {"test_file": data / "texts.jsonl", "output_dir": tmp_path / "out"}
    assert main(["adapt", *flags(**{**given, **RUN, **values})]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("recipe", sorted(recipes_of("adapt")))
def test_the_recipes_parse_with_the_command_in_their_head(recipe: str) -> None:
    _, data_args, adapter_args, training_args = parse([recipe, *recipes_of("adapt")[recipe]])
    assert adapter_args.methods[0] == "houlsby"
    assert adapter_args.methods[-1] == "full"
    assert training_args.seeds == [0, 1, 2]
    assert data_args.test_file
