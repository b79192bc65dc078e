"""FSDP2 and DDP in two processes: every family, every job, resume, evaluation, what is saved."""

import json
import re
import sys
from contextlib import redirect_stdout
from io import StringIO

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification, BertConfig, BertForMaskedLM, TrainingArguments

from hf_ptm_ext import SpanBertConfig, SpanBertForPreTraining, WeightedLayersConfig, ZenConfig, ZenForPreTraining
from hf_ptm_ext import WeightedLayersForSequenceClassification as WeightedLayers
from hf_ptm_ext.cli import main
from hf_ptm_ext.distillation import DistillationModel
from hf_ptm_ext.files import resource_folder
from hf_ptm_ext.trainers import PtmTrainer, last_complete_checkpoint
from hf_ptm_ext.trainers.sharding import layers_to_shard
from tests.cli import test_finetune_seq2seq as seq2seq
from tests.cli.jobs import flags, read_metrics, run_process
from tests.cli.test_finetune import RUN, data, results_of, save_bert, words_of  # noqa: F401  (data is a fixture)
from tests.trainers.every_family_in_two import FAMILIES

SIZES = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8, "vocab_size": 9}
TWO = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "-m"]
SHARDS = ["--fsdp", "full_shard", "--fsdp_config", '{"version": 2, "state_dict_type": "SHARDED_STATE_DICT"}']
MODES = {"ddp": ["hf_ptm_ext"], "fsdp": ["tests.trainers.sharded_on_cpu"]}
BARE = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def in_two(mode, *words):
    """Run a job in two processes."""
    return run_process(*TWO, *MODES[mode], *map(str, words), *(SHARDS if mode == "fsdp" else []), timeout=600)


def losses(printed):
    """The losses of the updates that a job printed."""
    return [float(found) for found in re.findall(r"\{'loss': '([0-9.e-]+)'", printed)]


# ---- where a model is cut ----


def test_layers_are_cut_out_and_what_shares_weights_is_not():
    config = BertConfig(**SIZES)
    student = BertForMaskedLM(config)
    wrapper = DistillationModel(student, BertForMaskedLM(config), [{"objective": "hidden"}])
    weighted = WeightedLayers(WeightedLayersConfig(encoder_config={"model_type": "bert", **SIZES}))
    assert layers_to_shard(SpanBertForPreTraining(SpanBertConfig(**SIZES))) == ["EncoderLayer"]
    assert layers_to_shard(ZenForPreTraining(ZenConfig(**SIZES))) == ["EncoderLayer", "ZenTextLayer"]
    assert layers_to_shard(student) == layers_to_shard(wrapper) == layers_to_shard(weighted) == ["BertLayer"]


@pytest.mark.parametrize(
    "asked",
    [
        {"version": 1, "sync_module_states": False},
        {"cpu_ram_efficient_loading": True},
        {"activation_checkpointing": True},
    ],
)
def test_what_would_train_another_model_is_refused(asked, tmp_path, monkeypatch):
    monkeypatch.delenv("ACCELERATE_USE_FSDP", raising=False)
    args = TrainingArguments(str(tmp_path), use_cpu=True, fsdp=True, fsdp_config=asked)
    with pytest.raises(ValueError, match=f"{next(iter(asked))}.* got (1|True)"):
        PtmTrainer(BertForMaskedLM(BertConfig(**SIZES)), args)


# ---- Trainers ----


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_every_family_is_trained_as_in_one_process(mode, tmp_path):
    """Losses, gradient norms and weights of every pre-training head, and of every head of a family without one."""
    printed = run_process(*TWO, "tests.trainers.every_family_in_two", mode, str(tmp_path), timeout=600)
    lines = [line.split() for line in printed.splitlines() if line.startswith("TRAINED")]
    assert [line for line in lines if len(line) > 3] == []
    assert all((int(units) > 1) == (mode == "fsdp") for _, _, units in lines)
    assert len({re.split("For|Model", name)[0] for _, name, _ in lines}) == len(FAMILIES)


@pytest.mark.slow
def test_sharded_runs_resume_evaluate_and_save(tmp_path):
    printed = run_process(*TWO, "tests.trainers.sharded_runs", str(tmp_path), timeout=600)
    found = dict(line.split()[1:] for line in printed.splitlines() if line.startswith("FOUND"))
    names = ("sharded", "full", "checkpointing", "distilled", "before", "evaluated", "refused")
    assert found == dict.fromkeys(names, "True")
    folder = tmp_path / "whole" / "checkpoint-4"
    assert last_complete_checkpoint(tmp_path / "whole") == folder
    shard = next((folder / "pytorch_model_fsdp_0").glob("*.distcp"))
    listed = json.loads((folder / "checkpoint_manifest.json").read_text())["files"]
    assert listed[f"pytorch_model_fsdp_0/{shard.name}"]["size"] == shard.stat().st_size
    shard.write_bytes(shard.read_bytes()[:-1] + b"?")
    assert last_complete_checkpoint(tmp_path / "whole").name == "checkpoint-2"


# ---- jobs ----


@pytest.mark.slow
def test_pretrain_is_the_same_sharded_and_whole(tmp_path):
    """By accelerate's files; the sharded run goes on by torchrun from a sharded checkpoint, to the same bits."""
    shape = "hidden_size=32,num_hidden_layers=2,num_attention_heads=2,intermediate_size=64"
    words = ["pretrain", *flags(objective="span", max_steps=4, config_overrides=shape, max_eval_rows=25)]
    launcher = [sys.executable, "-m", "accelerate.commands.launch", "--main_process_port"]
    for port, (mode, file) in enumerate({"ddp": "ddp.yaml", "fsdp": "fsdp2.yaml"}.items(), start=29641):
        config = str(resource_folder("configs") / "accelerate" / file)
        words_of_mode = ["--config_file", config, "-m", *MODES[mode], *words, "--output_dir", str(tmp_path / mode)]
        run_process(*launcher, str(port), *words_of_mode, MASTER_ADDR="127.0.0.1")
    whole, sharded = (read_metrics(tmp_path / mode) for mode in MODES)
    for name in ("before_mlm_loss", "before_sbo_loss", "eval_mlm_loss", "eval_sbo_loss", "train_loss"):
        assert sharded[name] == pytest.approx(whole[name], rel=1e-6), name
    assert sharded["eval_mlm_targets"] == whole["eval_mlm_targets"] > 0
    weights, others = (load_file(tmp_path / mode / "model.safetensors") for mode in MODES)
    assert weights.keys() == others.keys()
    assert all(torch.allclose(value, others[name], atol=1e-6) for name, value in weights.items())
    in_two(
        "fsdp",
        *words,
        "--output_dir",
        tmp_path / "on",
        "--resume_from_checkpoint",
        tmp_path / "fsdp" / "checkpoint-2",
        "--accept_changes",
        "true",
    )
    assert (tmp_path / "on" / "model.safetensors").read_bytes() == (
        tmp_path / "fsdp" / "model.safetensors"
    ).read_bytes()
    assert main(["verify", str(tmp_path / "fsdp")]) == 0, "it loads with its code where the package is not installed"


@pytest.fixture(scope="module")
def classifier(data, tmp_path_factory):  # noqa: F811
    """A classifier without dropout, fine-tuned in one process, with the command and what it printed."""
    folder = tmp_path_factory.mktemp("classifier")
    base = save_bert(folder / "base", (data / "texts.tsv").read_text(encoding="utf-8").splitlines())
    BertConfig.from_pretrained(base, **BARE).save_pretrained(base)
    options = {**RUN, "seeds": 0, "logging_steps": 1, "eval_strategy": "epoch"}
    options |= dict.fromkeys(("train_file", "validation_file", "test_file"), data / "texts.tsv")
    options |= {"task": "classification", "pair_column": "mention", "load_best_model_at_end": True}
    options |= {"train_sampling_strategy": "sequential", "learning_rate": 1e-3, "num_train_epochs": 3}
    words = words_of(model_name_or_path=base, **options)
    printed = StringIO()
    with redirect_stdout(printed):
        assert main(["finetune", *words, "--output_dir", str(folder / "one")]) == 0
    return folder, words, printed.getvalue()


def same_scores(folder, other):
    """Whether two folders hold the same scores and predictions."""
    first, second = (results_of(one)["runs"] for one in (folder, other))
    texts = [(one / "predictions_test.jsonl").read_text(encoding="utf-8") for one in (folder, other)]
    names = ("accuracy", "macro_f1")
    return texts[0] == texts[1] and all(first[0]["test"][name] == second[0]["test"][name] for name in names)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_finetune_is_that_of_one_process(mode, classifier, tmp_path):
    folder, words, printed = classifier
    again = in_two(mode, "finetune", *words, "--output_dir", tmp_path, "--per_device_train_batch_size", 8)
    assert losses(again) == pytest.approx(losses(printed), rel=2e-3)
    assert len(losses(printed)) > 5
    assert same_scores(tmp_path, folder / "one")


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_distill_is_that_of_one_process(mode, classifier, tmp_path, capsys):
    """Two stages, the first with projections and without the student's head."""
    folder, words, _ = classifier
    stages = {
        "layers": {"preset": "tinybert-intermediate", "num_train_epochs": 1},
        "labels": {"preset": "soft-labels"},
    }
    options = {
        "teacher_name_or_path": folder / "one",
        "student_layers": 1,
        "student_hidden_size": 16,
        "baseline": False,
    }
    options |= {"stages": json.dumps(stages), "student_num_attention_heads": 2, "student_intermediate_size": 16}
    places = [
        place
        for place, word in enumerate(words)
        if word in ("--model_name_or_path", "--validation_file", "--eval_strategy", "--load_best_model_at_end")
    ]
    kept = [word for place, word in enumerate(words) if place not in places and place - 1 not in places]
    words = ["distill", *kept, *words_of(**options)]
    assert main([*words, "--output_dir", str(tmp_path / "one")]) == 0
    printed = in_two(mode, *words, "--output_dir", tmp_path / "two", "--per_device_train_batch_size", 8)
    assert losses(printed) == pytest.approx(losses(capsys.readouterr().out), rel=2e-3)
    assert same_scores(tmp_path / "two", tmp_path / "one")
    assert AutoModelForSequenceClassification.from_pretrained(tmp_path / "two").config.hidden_size == 16


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_finetune_seq2seq_is_that_of_one_process(mode, tmp_path, capsys):
    shape = f"{seq2seq.TINY_BART},dropout=0.0,attention_dropout=0.0"
    options = {"family": "mass", "config_overrides": shape, "max_eval_rows": 5, "max_new_tokens": 8}
    words = ["finetune-seq2seq", *seq2seq.flags(**options, eval_strategy="steps", eval_steps=2, num_beams=2)]
    words += ["--train_sampling_strategy", "sequential"]
    assert main([*words, "--output_dir", str(tmp_path / "one"), "--per_device_train_batch_size", "8"]) == 0
    printed = in_two(mode, *words, "--output_dir", tmp_path / "two", "--per_device_train_batch_size", 4)
    one, two = read_metrics(tmp_path / "one"), read_metrics(tmp_path / "two")
    assert losses(printed) == pytest.approx(losses(capsys.readouterr().out), rel=2e-3)
    for name in ("train_loss", "eval_loss", "eval_rouge1", "eval_gen_len"):
        assert two[name] == pytest.approx(one[name], rel=1e-4), name
    assert seq2seq.predictions(tmp_path / "two") == seq2seq.predictions(tmp_path / "one")
