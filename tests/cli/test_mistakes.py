"""Ten mistakes that everybody makes, each in several jobs: one line that names what was given and what helps."""

import os
import shutil
import sys

import pytest
import torch
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from hf_ptm_ext.data import embedded_corpus, train_wordpiece
from tests.cli.jobs import ROOT
from tests.cli.test_errors import said

SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
RUN = "--use_cpu --max_steps 1 --report_to none --disable_tqdm true"
DATA = "--train_file train.tsv --test_file test.tsv"
PAIRS = "--source_column text --target_column label"
TASKS = "--tasks.one.task classification --tasks.one.train_file train.tsv --tasks.one.test_file test.tsv"
# Job -> a command that would run.
JOBS = {
    "pretrain": "pretrain --model_name_or_path bert --objective mlm --corpus en --max_train_rows 9 --max_eval_rows 9",
    "finetune": f"finetune --model_name_or_path bert --task classification {DATA}",
    "adapt": f"adapt --model_name_or_path bert --task classification {DATA} --methods houlsby",
    "distill": f"distill distill_pkd.yaml --teacher_name_or_path bert --task classification {DATA}",
    "finetune-seq2seq": f"finetune-seq2seq --model_name_or_path bert {PAIRS} {DATA}",
    "finetune-relations": f"finetune-relations --model_name_or_path bert {DATA.replace('tsv', 'jsonl')}",
    "multitask": f"multitask --model_name_or_path bert {TASKS}",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Rows, a BERT, a GPT-2 whose tokenizer has no mask, and what a finished job left."""
    folder = tmp_path_factory.mktemp("mistakes")
    tokenizer = train_wordpiece(embedded_corpus("en")[:50], vocab_size=300, model_max_length=64)
    BertForMaskedLM(BertConfig(vocab_size=len(tokenizer), **SIZES)).save_pretrained(folder / "bert")
    tokenizer.save_pretrained(folder / "bert")
    config = GPT2Config(vocab_size=300, n_embd=16, n_layer=1, n_head=2, bos_token_id=2, eos_token_id=3)
    GPT2LMHeadModel(config).save_pretrained(folder / "gpt")
    unmasked = PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend_tokenizer, pad_token="[PAD]")
    for name in ("gpt", "unmasked"):
        unmasked.save_pretrained(folder / name)
    for name in ("train.tsv", "test.tsv"):
        (folder / name).write_text("text\tlabel\n" + "a warm day\tsun\na cold night\tmoon\n" * 8, encoding="utf-8")
    for name in ("train.jsonl", "test.jsonl"):
        shutil.copy(ROOT / "tests/fixtures/wikidata/relations.jsonl", folder / name)
    (folder / "used").mkdir()
    (folder / "used" / "results.json").write_text("{}", encoding="utf-8")
    return folder


@pytest.fixture
def mistake(folder, monkeypatch, capsys):
    """The one line that a command ends with, which leaves nothing behind."""
    monkeypatch.chdir(folder)

    def line(job, *changes, more=""):
        command = f"{JOBS[job]} {RUN}" + ("" if job == "finetune-seq2seq" else " --max_seq_length 16")
        for old, new in changes:
            assert old in command
            command = command.replace(old, new, 1)
        before = sorted(folder.rglob("*"))
        command += "" if "--output_dir" in more else " --output_dir out"
        found = said(capsys, [*command.split(), *more.split()])
        assert sorted(folder.rglob("*")) == before
        return found

    return line


@pytest.mark.parametrize("job", ["finetune", "adapt", "distill", "finetune-seq2seq", "multitask"])
def test_a_wrong_path_of_data(mistake, job):
    line = mistake(job, ("train.tsv", "trian.tsv"))
    assert "nothing matches 'trian.tsv'. Did you mean 'train.tsv'?" in line
    assert os.getcwd() in line


def test_a_wrong_path_of_one_file(mistake):
    line = mistake("finetune-relations", ("train.jsonl", "trian.jsonl"))
    assert "trian.jsonl: there is no such file. Did you mean 'train.jsonl'? Check the path." in line


@pytest.mark.parametrize("job", sorted(JOBS))
def test_a_wrong_path_of_the_model(mistake, job):
    line = mistake(job, ("_path bert", "_path brt"))
    assert "brt is no folder here, and as a repository of the Hub it cannot be read. Did you mean 'bert'?" in line


@pytest.mark.parametrize(
    ("job", "option"),
    [
        *(("finetune", "--text_column"), ("adapt", "--text_column"), ("distill", "--text_column")),
        *(("multitask", "--tasks.one.text_column"), ("finetune-seq2seq", "--source_column")),
    ],
)
def test_a_wrong_column(mistake, job, option):
    line = mistake(job, more=f"{option} txet")
    assert "no column 'txet', only ['label', 'text']. Did you mean 'text'?" in line
    assert f"Set `{option.rpartition('.')[2].removeprefix('--')}`" in line


def test_a_missing_extra(mistake, monkeypatch):
    monkeypatch.setitem(sys.modules, "jieba", None)  # as where it is not installed
    assert "pip install hf-ptm-ext[zh]" in mistake("pretrain", more="--objective wwm --segmenter jieba")


def test_a_missing_package_of_the_scores(mistake, monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    assert "pip install hf-ptm-ext[metrics]" in mistake("finetune-seq2seq", more="--metric sacrebleu")


@pytest.mark.parametrize("job", sorted(JOBS))
def test_a_wrong_recipe(mistake, job):
    name = "distill_pdk.yaml" if job == "distill" else "quickstrat.yaml"
    old = "distill distill_pkd.yaml" if job == "distill" else job
    meant = "distill_pkd.yaml" if job == "distill" else "quickstart.yaml"
    assert f"Did you mean '{meant}'?" in mistake(job, (old, f"{job} {name}"))
    other = "kbert_ner.yaml" if job != "finetune" else "quickstart.yaml"
    assert "is a recipe of `hf-ptm-ext " in mistake(job, (old, f"{job} {other}"))


@pytest.mark.parametrize("job", sorted(JOBS))
def test_a_wrong_flag(mistake, job):
    line = mistake(job, more="--lerning-rate 1e-4")
    assert "'--lerning_rate' is no argument" in line
    assert "Did you mean '--learning_rate'?" in line


@pytest.mark.skipif(torch.cuda.is_available(), reason="a machine without a GPU")
@pytest.mark.parametrize("job", sorted(JOBS))
def test_flags_of_a_gpu_on_a_cpu(mistake, job):
    flags = {
        "--bf16 true": "needs a GPU that has bf16, and none is found: leave it out, or add --use_cpu true",
        "--bf16_full_eval true": "`bf16_full_eval` = true needs a GPU",
        "--tf32 true": "`tf32` = True needs an NVIDIA GPU",
        "--fsdp full_shard": "with several processes by `accelerate launch`",
    }
    for flag, message in flags.items():
        assert message in mistake(job, ("--use_cpu ", ""), more=flag)


@pytest.mark.parametrize("job", sorted(JOBS))
def test_a_folder_that_is_used(mistake, job):
    line = mistake(job, more="--output_dir used")
    assert "`output_dir` = used is not empty. Pass --resume_from_checkpoint auto" in line
    assert "--overwrite true to train anew, or name another folder" in line


@pytest.mark.parametrize("job", sorted(JOBS))
def test_a_folder_that_cannot_be_written(mistake, job):
    assert "`output_dir` must be a folder, got the file train.tsv" in mistake(job, more="--output_dir train.tsv")
    assert "name another one" in mistake(job, more="--output_dir /sys/nothing")


@pytest.mark.parametrize("objective", ["mlm", "span", "wwm"])
def test_a_tokenizer_without_a_mask(mistake, objective):
    line = mistake("pretrain", more=f"--tokenizer_name unmasked --objective {objective}")
    assert "must have a mask token" in line
    assert "tokenizer of a masked language model" in line


@pytest.mark.parametrize("job", ["finetune", "adapt", "distill", "multitask"])
def test_a_wrong_task(mistake, job):
    line = mistake(job, ("classification", "clasification"))
    assert "`task` must be one of classification, tagging, " in line
    assert "Did you mean 'classification'?" in line


def test_a_model_that_cannot_do_the_task(mistake):
    line = mistake("pretrain", ("_path bert", "_path gpt"))
    assert (
        "gpt is a GPT2, which has no AutoModelForMaskedLM: name a model of another kind, or do another task." in line
    )
