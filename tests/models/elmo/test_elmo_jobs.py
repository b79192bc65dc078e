"""ELMo in training: its batches, the job, what the language models learn, and a process without the package."""

import json

import pytest
import torch
from transformers import AutoModelForPreTraining, AutoTokenizer

from hf_ptm_ext import (
    DataCollatorForBidirectionalLanguageModeling,
    ElmoConfig,
    ElmoForPreTraining,
    ElmoModel,
    ElmoTokenizer,
    WeightedLayersForSequenceClassification,
)
from hf_ptm_ext.cli import main
from hf_ptm_ext.cli.recipes import parse_overrides
from hf_ptm_ext.hub import fresh_process
from tests.hub.checkpoints import run_script

SIZES = {"filters": [[1, 8], [2, 8]], "char_embedding_dim": 8, "n_highway": 1, "cell_size": 32, "projection_dim": 16}
OVERRIDES = "filters=[[1,8],[2,8]],n_highway=1,cell_size=32,projection_dim=16"
NAMES = ("ship", "light", "keeper", "storm", "harbour", "night")


def documents(number, seed=0):
    """Sentences of which each half tells the other: the noun says its verb, the verb its noun."""
    draw = torch.Generator().manual_seed(seed)
    nouns = torch.randint(len(NAMES), (number, 3), generator=draw).tolist()
    return [[" ".join(f"the {NAMES[noun]} was{noun}" for noun in row)] for row in nouns]


def test_batches_of_words_and_their_ids():
    tokenizer = ElmoTokenizer(["the", "cat"])
    collator = DataCollatorForBidirectionalLanguageModeling(tokenizer, max_length=3, pad_to_multiple_of=4)
    batch = collator([{"text": "the cat sat down"}, {"words": ["cat"]}])
    assert batch["input_ids"].shape == (2, 4, 50)
    assert batch["labels"].tolist() == [[4, 5, 3, -100], [5, -100, -100, -100]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 0], [1, 0, 0, 0]]
    assert collator([{"words": ["cat"]}], return_tensors="np")["labels"].shape == (1, 4)
    with pytest.raises(ValueError, match="Row 1 must have `words` or a `text`"):
        collator([{"text": "the"}, {"text": ""}])


def test_overrides_take_lists():
    known = {"filters", "a", "b"}
    found = parse_overrides("filters=[[1,8],[2,8]], a=1e-3,b=[1,2]", known, "ElmoConfig")
    assert found == {"filters": [[1, 8], [2, 8]], "a": 1e-3, "b": [1, 2]}
    with pytest.raises(ValueError, match="does not have"):
        parse_overrides("a=[1,b=2", known, "ElmoConfig")


def job(folder, text, *more):
    (folder / "text.txt").write_text("\n\n".join("\n".join(document) for document in text), encoding="utf-8")
    words = ["--train_file", str(folder / "text.txt"), "--output_dir", str(folder / "out"), "--objective", "bilm"]
    sizes = ["--config_overrides", OVERRIDES, "--max_steps", "3", "--vocab_size", "40", "--lowercase", "false"]
    quiet = ["--use_cpu", "true", "--report_to", "none", "--save_strategy", "no", "--per_device_train_batch_size", "8"]
    return main(["pretrain", *words, *sizes, *quiet, *more])


def test_the_job_trains_measures_and_saves(tmp_path, capsys):
    assert job(tmp_path, documents(60), "--gradient_accumulation_steps", "2") == 0, capsys.readouterr().err
    assert "next word" in capsys.readouterr().out
    results = json.loads((tmp_path / "out" / "all_results.json").read_text(encoding="utf-8"))
    for when in ("before", "eval"):
        both = [results[f"{when}_{name}_loss"] for name in ("forward", "backward")]
        assert results[f"{when}_loss"] == pytest.approx(sum(both) / 2)
    assert results["eval_forward_targets"] == results["eval_backward_targets"] == 30  # 3 rows of 9 words and an end
    assert 0 < results["baseline_forward_loss"] < results["before_forward_loss"]
    model = AutoModelForPreTraining.from_pretrained(tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert type(model) is ElmoForPreTraining
    assert model.config.vocab_size == len(tokenizer) == 17
    again = ["--model_name_or_path", str(tmp_path / "out"), "--config_overrides", "dropout=0.0"]
    again = [*again, "--output_dir", str(tmp_path / "more")]
    assert job(tmp_path, documents(60), *again) == 0, capsys.readouterr().err


def test_the_published_size_is_told(tmp_path, caplog):
    assert job(tmp_path, documents(40), "--config_overrides", "filters=[[1,8]],projection_dim=8,n_layers=1") == 0
    told = next(record.getMessage() for record in caplog.records if "published size" in record.getMessage())
    assert "cells of 4096 and 6" in told
    assert "elmo.yaml" in told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--pack_rows", "true"], "`pack_rows` = True is none of objective bilm"),
        (["--streaming", "true"], "`streaming` = True is none of objective bilm"),
        (["--model_name_or_path", "elmo", "--transfer_vocabulary", "true"], "`transfer_vocabulary` = True is none of"),
        (["--sentence_pairs", "next"], "go with objectives that hide tokens"),
        (["--family", "spanbert"], "trains ELMo models, got a spanbert model"),
    ],
)
def test_what_the_job_cannot_do_is_one_line(words, told, tmp_path, capsys):
    assert job(tmp_path, documents(60), *words) == 2
    error = capsys.readouterr().err
    assert told in error, error
    assert error.count("\n") == 1


@pytest.mark.slow
def test_each_direction_learns_what_it_is_trained_on():
    """A noun is known from its verb backwards alone, the verb from its noun forwards; an untrained direction learns
    nothing.
    """
    tokenizer = ElmoTokenizer.train(documents(200), 40)
    collator = DataCollatorForBidirectionalLanguageModeling(tokenizer)
    held_out = collator([{"text": document[0]} for document in documents(60, seed=1)])
    losses = {}
    for trained in ("forward", "backward", "both"):
        torch.manual_seed(0)
        config = ElmoConfig(**SIZES, vocab_size=len(tokenizer), n_negative_samples_batch=12, dropout=0.0)
        model = ElmoForPreTraining(config)
        before = model.eval()(**held_out)
        model.train()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        for step in range(100):
            rows = [{"text": document[0]} for document in documents(16, seed=100 + step)]
            output = model(**collator(rows))
            loss = output.loss if trained == "both" else output[f"{trained}_loss"]
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        after = model.eval()(**held_out)
        losses[trained] = {name: after[f"{name}_loss"].item() for name in ("forward", "backward")}
        losses["before"] = {name: before[f"{name}_loss"].item() for name in ("forward", "backward")}
    unigrams = 2.39  # of "the", six nouns, six verbs and the ends
    for name, other in (("forward", "backward"), ("backward", "forward")):
        assert max(losses["both"][name], losses[name][name]) < unigrams - 1, losses
        assert losses[name][other] > unigrams - 0.1, losses


SCRIPT = """
import sys, torch, transformers
folder = {folder!r}
load = dict(trust_remote_code=True)
tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **load)
model = transformers.AutoModelForSequenceClassification.from_pretrained(folder, **load).eval()
inputs = tokenizer(["The light was seen.", "Yes"], padding=True, return_tensors="pt")
with torch.no_grad():
    found = model(**inputs).logits
expected = torch.load(folder + "/expected.pt", weights_only=True)
assert "hf_ptm_ext" not in sys.modules
assert type(tokenizer).__module__.startswith("transformers_modules.")
print((found - expected).abs().max().item())
"""


@pytest.mark.slow
@pytest.mark.parametrize("normed", [False, True])
def test_weighted_layers_on_it_in_a_process_without_the_package(normed, tmp_path):
    torch.manual_seed(0)
    encoder = ElmoModel(ElmoConfig(**SIZES)).eval()
    model = WeightedLayersForSequenceClassification.from_encoder(encoder, pooling="mean", do_layer_norm=normed)
    tokenizer = ElmoTokenizer(["the", "light"])
    inputs = tokenizer(["The light was seen.", "Yes"], padding=True, return_tensors="pt")
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    with torch.no_grad():
        torch.save(model(**inputs).logits, tmp_path / "model" / "expected.pt")
        assert fresh_process.seeded_inputs(model)["input_ids"].shape == (2, 16, 50)
    script = SCRIPT.format(folder=str(tmp_path / "model"))
    printed = run_script(script, timeout=600, HF_HOME=str(tmp_path / "home"), HF_HUB_OFFLINE="1")
    assert float(printed.splitlines()[-1]) < 1e-6
