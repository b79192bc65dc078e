"""`hf-ptm-ext compress`: three ways side by side with the uncompressed encoder, and a folder that loads."""

import json

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, BertConfig, BertForMaskedLM, Trainer

from hf_ptm_ext.cli import main
from hf_ptm_ext.cli.compress import METHODS, parse
from hf_ptm_ext.compression import sparsity_report
from hf_ptm_ext.data import train_wordpiece
from hf_ptm_ext.hub import validate_model_card
from tests.cli.jobs import recipes_of

GOOD, BAD = ("bright", "warm", "kind", "glad"), ("dark", "cold", "cruel", "sad")
SHAPE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
RUN = {"seeds": 0, "num_train_epochs": 10, "learning_rate": 5e-3, "max_seq_length": 16, "use_cpu": True}
RUN |= {"per_device_train_batch_size": 16, "disable_tqdm": True, "report_to": "none", "save_strategy": "no"}
RUN |= {"language": "en", "task": "classification", "repeats": 1}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    rows = []
    for number in range(64):
        words = f"the light in the harbour was {(GOOD, BAD)[number % 2][number // 2 % 4]} today"
        rows.append({"text": words, "label": ("good", "bad")[number % 2]})
    (folder / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    tokenizer = train_wordpiece([[row["text"] for row in rows]], 200, model_max_length=32)
    torch.manual_seed(0)
    config = BertConfig(vocab_size=len(tokenizer), max_position_embeddings=32, **SHAPE)
    BertForMaskedLM(config).save_pretrained(folder / "bert")
    tokenizer.save_pretrained(folder / "bert")
    return folder


def compress(output, data, **values):
    given = {"model_name_or_path": data / "bert", "train_file": data / "texts.jsonl", "output_dir": output}
    words = []
    for name, value in {**given, "test_file": data / "texts.jsonl", **RUN, **values}.items():
        words += [f"--{name}", *(str(item) for item in (value if isinstance(value, list) else [value]))]
    return main(["compress", *words])


def test_all_methods_beside_the_uncompressed_encoder(data, tmp_path, capsys):
    assert compress(tmp_path / "out", data, methods=["quantise", "quantise-after", "prune", "layers"]) == 0
    results = json.loads((tmp_path / "out" / "results.json").read_text("utf-8"))
    assert [run["variant"] for run in results["runs"]] == [
        "quantise",
        "quantise-after",
        "prune",
        "layers",
        "uncompressed",
    ]
    means = {name: {key: one["mean"] for key, one in found.items()} for name, found in results["summary"].items()}
    better = {name: found["accuracy"] - results["majority"]["accuracy"] for name, found in means.items()}
    assert min(better.values()) > 0.1, better
    whole = means["uncompressed"]["megabytes"]
    assert means["quantise"]["megabytes"] == means["quantise-after"]["megabytes"] < 0.5 * whole
    assert means["layers"]["megabytes"] < means["prune"]["megabytes"] == whole
    assert means["prune"]["zeros"] == pytest.approx(0.5, abs=0.01)
    assert all(found["ms_1"] > 0 and found["speed_32"] > 0 for found in means.values())
    printed = capsys.readouterr().out
    assert "times as fast" in printed
    validate_model_card(tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text("utf-8")
    assert "whole numbers (Q8BERT)" in card
    assert f"{means['quantise']['speed_32']:.2f} times the uncompressed speed" in card
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out", trust_remote_code=True).eval()
    assert type(model).__name__ == "Int8BertForSequenceClassification"
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    rows = [json.loads(line) for line in (data / "texts.jsonl").read_text("utf-8").splitlines()]
    batch = tokenizer([row["text"] for row in rows], padding=True, return_tensors="pt")
    right = [
        model.config.id2label[number] == row["label"]
        for number, row in zip(model(**batch).logits.argmax(-1).tolist(), rows, strict=True)
    ]
    assert sum(right) / len(right) == pytest.approx(results["runs"][0]["test"]["accuracy"])


def test_one_training_serves_what_differs_behind_it(data, tmp_path, monkeypatch):
    trained = []
    train = Trainer.train
    monkeypatch.setattr(
        Trainer, "train", lambda one, *given, **more: trained.append(one) or train(one, *given, **more)
    )
    methods = ["prune-after", "quantise-after", "layers-after", "prune"]
    grid = {"validation_file": data / "texts.jsonl", "grid": "learning_rate=5e-3,1e-3"}
    more = {**grid, "max_steps": 6, "seeds": [0, 1]}
    assert compress(tmp_path / "out", data, methods=methods, sparsity=[0.3, 0.9], **more) == 0
    # With each seed and rate once for all that differ behind it, as often for each share of `prune`; and to save it.
    assert len(trained) == 4 * 3 + 1
    results = json.loads((tmp_path / "out" / "results.json").read_text("utf-8"))
    after, whole = ["prune-after 0.3", "prune-after 0.9", "quantise-after", "layers-after"], "uncompressed"
    assert list(results["summary"]) == [*after, "prune 0.3", "prune 0.9", whole]
    of_seed = {(run["variant"], run["seed"]): run for run in results["runs"]}
    assert of_seed["prune-after 0.9", 1]["test"]["zeros"] == pytest.approx(0.9, abs=0.01)
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    assert sparsity_report(loaded)["total"]["sparsity"] == pytest.approx(0.3, abs=0.01)
    alone = {**more, "methods": "prune-after", "sparsity": 0.3, "baseline": False}
    assert compress(tmp_path / "alone", data, **alone) == 0
    again = json.loads((tmp_path / "alone" / "results.json").read_text("utf-8"))["summary"]
    assert list(again) == ["prune-after"]
    assert again["prune-after"]["accuracy"] == results["summary"]["prune-after 0.3"]["accuracy"]


def test_few_bits_are_few_bytes(data, tmp_path):
    values = {"methods": "quantise-groups", "max_steps": 2, "bits": 2, "embedding_bits": 4, "groups": 4}
    values["linear_baseline"] = True
    assert compress(tmp_path / "out", data, **values) == 0
    summary = json.loads((tmp_path / "out" / "results.json").read_text("utf-8"))["summary"]
    assert summary.pop("n-grams, linear")["accuracy"]["mean"] > 0
    sizes = {name: found["megabytes"]["mean"] for name, found in summary.items()}
    assert sizes["quantise-groups"] < 0.5 * sizes["uncompressed"]
    assert "weights of 2 bits in groups" in (tmp_path / "out" / "README.md").read_text("utf-8")
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out", trust_remote_code=True)
    assert model.bert.encoder.layer[0].output.dense.bits == 2


@pytest.mark.parametrize("method", ["prune", "prune-after", "layers"])
def test_plain_checkpoints_are_saved(data, tmp_path, method):
    values = {"methods": method, "max_steps": 2, "sparsity": 0.3, "layer_keep": 1, "save_strategy": "epoch"}
    assert compress(tmp_path / "out", data, **values) == 0
    loaded, info = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert loaded.config.num_hidden_layers == (1 if method == "layers" else 2)
    if method != "layers":
        assert sparsity_report(loaded)["total"]["sparsity"] == pytest.approx(0.3, abs=0.01)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"methods": ["prune", "prune"]}, "`methods` must be different ones of"),
        ({"sparsity": [0.5, 0.5]}, "`sparsity` must be one share or several different ones, got [0.5, 0.5]."),
        ({"methods": ["prune", "layers"], "layer_keep": "0,5"}, "`layers` must be rising numbers from 0 to 1"),
        ({"start_step": 40}, "`start_step` must be below the 40 forward passes of this training, got 40."),
    ],
)
def test_impossible_options_are_refused_before_training(data, tmp_path, capsys, values, message):
    assert compress(tmp_path / "out", data, **values) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "[2/" not in error


def test_a_run_with_checkpointed_gradients_is_saved(data, tmp_path):
    values = {"methods": "quantise", "max_steps": 2, "gradient_checkpointing": True}
    assert compress(tmp_path / "out", data, **values) == 0
    assert (tmp_path / "out" / "model.safetensors").is_file()


@pytest.mark.parametrize("recipe", sorted(recipes_of("compress")))
def test_recipes_of_the_package_are_read(recipe):
    _, _, how, training = parse([recipe, *recipes_of("compress")[recipe]])
    assert set(how.methods) <= set(METHODS)
    assert training.seeds == [0, 1, 2]
