"""Every job loads models in one way: the whole encoder trained, finite, its classes meaning what they meant."""

import json
import os
import shutil
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForQuestionAnswering,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    RobertaConfig,
    RobertaModel,
    T5Config,
    T5ForConditionalGeneration,
)

from hf_ptm_ext import (
    ElmoConfig,
    ElmoModel,
    ElmoTokenizer,
    KAdapterConfig,
    KAdapterForRelationClassification,
    KAdapterForSequenceClassification,
)
from hf_ptm_ext.cli import main
from hf_ptm_ext.cli.families import new_config
from hf_ptm_ext.cli.loading import fit_embeddings, head_names, in_order, load_model
from hf_ptm_ext.cli.options import read_options
from hf_ptm_ext.cli.pretrain_arguments import GROUPS
from hf_ptm_ext.data import train_wordpiece
from tests.cli.jobs import ROOT
from tests.cli.test_finetune import words_of

SHAPE = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
ROW = {"positive": "good fine nice", "negative": "bad ugly poor"}
RUN = {
    "seeds": 0,
    "max_seq_length": 16,
    "per_device_train_batch_size": 16,
    "use_cpu": True,
    "disable_tqdm": True,
    "report_to": "none",
    "save_strategy": "no",
}
STILL = {"max_steps": 1, "learning_rate": 1e-9, "weight_decay": 0}


@pytest.fixture(scope="module")
def polar(tmp_path_factory):
    """Rows whose class is told by any word, the same under other names, and a model that was trained on them."""
    folder = tmp_path_factory.mktemp("polar")
    rows = [(f"{text} {number}", label) for number in range(24) for label, text in ROW.items()]
    for name, names in (("rows", {}), ("others", {"positive": "a_good", "negative": "z_bad"})):
        lines = [f"{text}\t{names.get(label, label)}\n" for text, label in rows]
        (folder / f"{name}.tsv").write_text("text\tlabel\n" + "".join(lines), encoding="utf-8")
    tags = {"positive": "B-GOOD", "negative": "B-BAD"}
    tagged = ["".join(f"{word} {tags[label]}\n" for word in text.split()[:2]) + "x O\n" for text, label in rows]
    (folder / "tagged.conll").write_text("\n".join(tagged), encoding="utf-8")
    tokenizer = train_wordpiece([[text for text, _ in rows]], 200, model_max_length=32)
    torch.manual_seed(0)
    model = BertForMaskedLM(BertConfig(vocab_size=len(tokenizer), max_position_embeddings=32, **SHAPE))
    model.save_pretrained(folder / "bert")
    tokenizer.save_pretrained(folder / "bert")
    for task, file in (("classification", "rows.tsv"), ("tagging", "tagged.conll")):
        learnt = {"num_train_epochs": 8, "learning_rate": 5e-3}
        assert finetune(folder / task, folder / "bert", folder / file, task=task, **learnt)["accuracy"] == 1
    return folder


def finetune(output, model, file, job="finetune", **values):
    """Scores of a job on the rows that it was trained on."""
    given = {"model_name_or_path": model, "train_file": file, "test_file": file, "output_dir": output}
    assert main([job, *words_of(**{**given, "task": "classification", **RUN, **values})]) == 0
    return json.loads((output / "results.json").read_text(encoding="utf-8"))["runs"][0]["test"]


def turned(source, target, rename=None):
    """The same model with the rows of its head, and the names of its classes, the other way round."""
    shutil.copytree(source, target)
    weights = load_file(target / "model.safetensors")
    for name in ("classifier.weight", "classifier.bias"):
        weights[name] = weights[name].flip(0).contiguous()
    save_file(weights, target / "model.safetensors", {"format": "pt"})
    config = json.loads((target / "config.json").read_text(encoding="utf-8"))
    names = [config["id2label"][key] for key in sorted(config["id2label"], key=int)][::-1]
    config["id2label"] = {str(number): (rename or str)(name) for number, name in enumerate(names)}
    config["label2id"] = {name: int(number) for number, name in config["id2label"].items()}
    (target / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return target


@pytest.mark.parametrize("rename", [str, str.upper], ids=["same names", "other case"])
@pytest.mark.parametrize("task", ["classification", "tagging"])
def test_a_checkpoint_keeps_its_own_order_of_classes(polar, tmp_path, task, rename):
    file = polar / ("rows.tsv" if task == "classification" else "tagged.conll")
    model = turned(polar / task, tmp_path / "turned", rename)
    assert finetune(tmp_path / "out", model, file, task=task, **STILL)["accuracy"] == 1
    theirs, ours = (
        json.loads((folder / "config.json").read_text(encoding="utf-8"))["id2label"]
        for folder in (model, tmp_path / "out")
    )
    assert [name.upper() for name in theirs.values()] == [name.upper() for name in ours.values()]


@pytest.mark.parametrize("kind", ["other names", "generic names", "other number"])
def test_a_head_for_other_classes_is_made_anew_and_said_aloud(polar, tmp_path, caplog, kind):
    model, file = polar / "classification", polar / "rows.tsv"
    if kind == "other names":
        file = polar / "others.tsv"
    elif kind == "generic names":
        model = turned(model, tmp_path / "turned", lambda name: f"LABEL_{int(name == 'positive')}")
    else:
        rows = [f"{text}\tthird\n" for text in ("x", "y", "z")]
        file = tmp_path / "three.tsv"
        file.write_text((polar / "rows.tsv").read_text(encoding="utf-8") + "".join(rows), encoding="utf-8")
    finetune(tmp_path / "out", model, file, **STILL)
    assert "the head is made anew" in caplog.text
    before, after = (load_file(folder / "model.safetensors") for folder in (model, tmp_path / "out"))
    name = "bert.encoder.layer.0.output.dense.weight"
    assert torch.allclose(before[name], after[name], atol=1e-6)
    head = "classifier.weight"
    assert before[head].shape != after[head].shape or not torch.allclose(before[head], after[head], atol=1e-3)


def test_a_checkpoint_for_another_kind_of_task_gets_the_head_of_this_one(polar, tmp_path, caplog):
    encoder = BertConfig(vocab_size=200, max_position_embeddings=32, **SHAPE).to_dict()
    sizes = {"adapter_hidden_size": 16, "adapter_num_attention_heads": 2, "adapter_intermediate_size": 16}
    config = KAdapterConfig(encoder_config=encoder, relation_markers=[50, 51], num_labels=5, **sizes)
    relations = KAdapterForRelationClassification(config)
    relations.save_pretrained(tmp_path / "relations")
    AutoTokenizer.from_pretrained(polar / "bert").save_pretrained(tmp_path / "relations")
    with pytest.raises(RuntimeError, match=r"head for another task .*`ignore_mismatched_sizes=True`"):
        KAdapterForSequenceClassification.from_pretrained(tmp_path / "relations", num_labels=2)
    finetune(tmp_path / "out", tmp_path / "relations", polar / "rows.tsv", **STILL)
    assert "has a head of 5 outputs" in caplog.text
    saved = json.loads((tmp_path / "out" / "config.json").read_text(encoding="utf-8"))
    assert saved["architectures"] == ["KAdapterForSequenceClassification"]
    name = "k_adapter.adapters.fac.part.0.down_project.weight"
    assert torch.equal(load_file(tmp_path / "out" / "model.safetensors")[name], relations.state_dict()[name])


def test_a_student_and_its_teacher_may_order_their_classes_differently(polar, tmp_path):
    student = turned(polar / "classification", tmp_path / "student")
    values = {
        "teacher_name_or_path": polar / "classification",
        "student_name_or_path": student,
        "train_file": polar / "rows.tsv",
        "test_file": polar / "rows.tsv",
        "output_dir": tmp_path / "out",
        "task": "classification",
        "stages": json.dumps({"one": {"preset": "soft-labels"}}),
        "baseline": False,
        **RUN,
        **STILL,
    }
    assert main(["distill", *words_of(**values)]) == 0
    assert (
        json.loads((tmp_path / "out" / "results.json").read_text(encoding="utf-8"))["runs"][0]["test"]["accuracy"] == 1
    )


def test_orders_of_classes():
    assert in_order(["a", "b"], ["b", "a"]) == ("b", "a")
    assert in_order(["a", "B"], ["b", "A"]) == ("B", "a")
    assert in_order(["a", "A"], ["A", "a"]) == ("A", "a")
    assert in_order(["a", "A"], ["a", "b"]) is None
    assert in_order(["a", "b"], ["a", "b", "c"]) is None
    assert in_order(["0", "1"], None) is None


# ---- weights that would be random, or are damaged ----


def foreign(weights):
    return {name.replace("bert.", "foreign."): value for name, value in weights.items()}


def without(weights, *words):
    return {name: value for name, value in weights.items() if not any(word in name for word in words)}


def changed(weights, name, value):
    return {**weights, name: value}


INNER = "bert.encoder.layer.1.output.dense.weight"
DAMAGES = {
    "a foreign prefix": foreign,
    "an empty file": lambda weights: {},
    "a layer too few": lambda weights: without(weights, "layer.1."),
    "one weight too few": lambda weights: without(weights, "layer.0.attention.self.query.bias"),
    "no embeddings": lambda weights: without(weights, "word_embeddings", "decoder"),
    "a layer of another shape": lambda weights: changed(weights, INNER, torch.zeros(16, 8)),
    "NaN": lambda weights: changed(weights, INNER, weights[INNER].fill_(float("nan"))),
    "infinity": lambda weights: changed(weights, INNER, weights[INNER].fill_(float("-inf"))),
}
JOBS = ("finetune", "adapt", "multitask", "distill", "pretrain", "finetune-relations")


def words(job, model, polar, output):
    """A command line of a job that starts from a model."""
    file = polar / "rows.tsv"
    data = {"task": "classification", "train_file": file, "test_file": file}
    values = {"model_name_or_path": model, "output_dir": output, **RUN, **STILL}
    if job in ("finetune", "adapt"):
        values |= data
    elif job == "multitask":
        values["tasks"] = json.dumps({"one": {name: str(value) for name, value in data.items()}})
    elif job == "distill":
        values |= data | {"teacher_name_or_path": model}
        values["stages"] = json.dumps({"one": {"preset": "soft-labels"}})
        del values["model_name_or_path"]
    elif job == "pretrain":
        values |= {"objective": "mlm", "train_file": polar / "plain.txt", "seeds": None}
        (polar / "plain.txt").write_text("\n\n".join([*ROW.values()] * 20), encoding="utf-8")
    else:
        rows = [
            {"tokens": text.split(), "head": {"pos": [0, 1]}, "tail": {"pos": [2, 3]}, "relation": label}
            for label, text in ROW.items()
        ]
        (polar / "relations.jsonl").write_text("\n".join(json.dumps(row) for row in rows * 4), encoding="utf-8")
        values |= {"train_file": polar / "relations.jsonl", "test_file": polar / "relations.jsonl"}
    return [job, *words_of(**{name: value for name, value in values.items() if value is not None})]


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("damage", DAMAGES)
def test_no_job_trains_an_encoder_that_is_damaged_or_random_in_part(polar, tmp_path, capfd, damage, job):
    source = polar / ("bert" if job == "pretrain" else "classification")
    shutil.copytree(source, tmp_path / "model", ignore=shutil.ignore_patterns("_*"))
    file = tmp_path / "model" / "model.safetensors"
    save_file(DAMAGES[damage](load_file(file)), file, {"format": "pt"})
    assert main(words(job, tmp_path / "model", polar, tmp_path / "out")) == 2
    line = capfd.readouterr().err.strip().splitlines()[-1]
    assert str(tmp_path / "model") in line
    assert "_name_or_path`" in line
    if damage in ("a layer of another shape", "NaN", "infinity"):
        assert INNER in line
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("weights", ["fp32", "bf16"])
def test_those_jobs_run_on_the_whole_model(polar, tmp_path, job, weights):
    """And save its weights in the precision in which they were trained."""
    source = polar / ("bert" if job == "pretrain" else "classification")
    assert main([*words(job, source, polar, tmp_path / "out"), "--weights", weights]) == 0
    saved = [load_file(file) for file in (tmp_path / "out").rglob("*.safetensors")]
    types = {value.dtype for one in saved for value in one.values()}
    assert types == {torch.bfloat16 if weights == "bf16" else torch.float32}


def test_a_model_without_a_pooler_begins_with_a_new_one(polar, tmp_path):
    assert "bert.pooler.dense.weight" not in load_file(polar / "bert" / "model.safetensors")
    finetune(tmp_path / "out", polar / "bert", polar / "rows.tsv", **STILL)


# ---- options that a trained model cannot follow ----


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("config_overrides", "num_hidden_layers=4", "lacks"),
        ("config_overrides", "hidden_sizes=4", "hidden_sizes"),
        ("config_name", "nowhere.json", "`config_name`"),
        ("family", "zen", "`family` = zen"),
        ("family", "spanbert", "`family` = spanbert"),
    ],
)
def test_options_of_a_new_model_beside_a_trained_one_are_followed_or_refused(
    polar, tmp_path, capfd, option, value, said
):
    model = polar / "bert"
    if option == "family":
        model = tmp_path / "model"
        shutil.copytree(polar / "bert", model)
        config = json.loads((model / "config.json").read_text(encoding="utf-8"))
        (model / "config.json").write_text(json.dumps({**config, "model_type": "roberta"}), encoding="utf-8")
    assert main([*words("pretrain", model, polar, tmp_path / "out"), f"--{option}", value]) == 2
    assert said in capfd.readouterr().err.strip().splitlines()[-1]


def test_a_field_that_weights_do_not_follow_from_is_overridden(polar, tmp_path):
    overrides = ["--config_overrides", "hidden_dropout_prob=0.25"]
    assert main([*words("pretrain", polar / "bert", polar, tmp_path / "out"), *overrides]) == 0
    config = json.loads((tmp_path / "out" / "config.json").read_text(encoding="utf-8"))
    assert config["hidden_dropout_prob"] == 0.25


# ---- more tokens than positions or embeddings ----


@pytest.mark.parametrize("job", [*JOBS, "roberta"])
def test_positions_are_checked_before_anything_is_read(polar, tmp_path, capfd, job):
    model = polar / ("bert" if job == "pretrain" else "classification")
    if job == "roberta":  # counts its positions from behind the padding
        model = tmp_path / "roberta"
        RobertaModel(RobertaConfig(vocab_size=40, max_position_embeddings=34, **SHAPE)).save_pretrained(model)
    line = words("finetune" if job == "roberta" else job, model, polar, tmp_path / "out")
    line[line.index("--max_seq_length") + 1] = "33"
    line = [word.replace(str(polar / "rows.tsv"), "nowhere.tsv") for word in line]
    assert main(line) == 2
    said = capfd.readouterr().err.strip().splitlines()[-1]
    assert "`max_seq_length`" in said
    assert "32" in said


@pytest.mark.parametrize("family", ["bert", "roberta", "camembert", "mpnet"])
def test_a_new_model_has_a_position_for_every_token(family):
    tokenizer = train_wordpiece([["a b c d"]], 40)
    model, _, _, _ = read_options(["--family", family], GROUPS, "pretrain")
    config = new_config(model, AutoConfig.for_model(family), tokenizer, 600)
    with torch.device("meta"):
        table = AutoModel.from_config(config).embeddings.position_embeddings
    first = 0 if table.padding_idx is None else table.padding_idx + 1
    assert table.num_embeddings - first >= 600


@pytest.mark.parametrize("job", JOBS)
def test_added_tokens_get_embeddings_and_both_numbers_are_told(polar, tmp_path, caplog, job):
    model = tmp_path / "model"
    shutil.copytree(polar / ("bert" if job == "pretrain" else "classification"), model)
    shutil.rmtree(model / "_runs", ignore_errors=True)
    tokenizer = AutoTokenizer.from_pretrained(model)
    rows = load_file(model / "model.safetensors")["bert.embeddings.word_embeddings.weight"].shape[0]
    tokenizer.add_tokens(["fine", "zebra"] if "fine" not in tokenizer.get_vocab() else ["lamp", "zebra"])
    tokenizer.save_pretrained(model)
    assert main(words(job, model, polar, tmp_path / "out")) == 0
    assert f"has {rows} embeddings and its tokenizer {rows + 2} tokens" in caplog.text


def test_a_default_length_becomes_what_the_model_has(polar, tmp_path, caplog):
    line = words("finetune", polar / "classification", polar, tmp_path / "out")
    at = line.index("--max_seq_length")
    assert main([*line[:at], *line[at + 2 :]]) == 0
    assert "`max_seq_length` is 32" in caplog.text


# ---- what lies beside the weights, and other architectures ----


def test_files_that_are_not_loaded_are_in_nobodys_way(polar, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(polar / "classification", model, ignore=shutil.ignore_patterns("_*"))
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
    for name in ("pytorch_model.bin", "ggml-model-f16.bin", "openvino_model.bin"):
        (model / name).write_text(pointer, encoding="utf-8")
    finetune(tmp_path / "out", model, polar / "rows.tsv", **STILL)


def test_what_a_task_adds_to_a_model_without_a_base_of_its_own_is_its_head(tmp_path):
    sizes = {"vocab_size": 40, "d_model": 16, "d_ff": 16, "d_kv": 8, "num_layers": 1, "num_heads": 2}
    writer = T5ForConditionalGeneration(T5Config(**sizes))
    writer.lm_head = torch.nn.Linear(16, 40, bias=False)  # untied: no new part of a task either
    assert head_names(writer) == set()
    writer.tie_weights()
    writer.save_pretrained(tmp_path / "t5")
    asks = load_model(AutoModelForQuestionAnswering, str(tmp_path / "t5"))
    assert head_names(asks) == {"qa_outputs.weight", "qa_outputs.bias"}


@pytest.mark.slow
def test_a_repository_of_the_hub_names_no_file_outside_either(polar, tmp_path):
    home = tmp_path / "home" / "hub" / "models--me--evil"
    snapshot = home / "snapshots" / ("a" * 40)
    shutil.copytree(polar / "bert", snapshot)
    (home / "refs").mkdir()
    (home / "refs" / "main").write_text("a" * 40, encoding="utf-8")
    (snapshot / "tokenizer.json").unlink()
    secret = tmp_path / "secret.txt"
    secret.write_text("[UNK]\nsecret\n", encoding="utf-8")
    config = {"tokenizer_class": "BertTokenizer", "vocab": str(secret)}
    (snapshot / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    code = "from hf_ptm_ext.cli.checkpoint_names import tokenizer_of; tokenizer_of('me/evil', 'model_name_or_path')"
    process = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "`vocab`" in process.stderr.strip().splitlines()[-1]
    assert "must not name a file" in process.stderr


def test_characters_of_an_elmo_are_not_compared_with_its_words():
    sizes = {"filters": [[1, 4]], "cell_size": 4, "projection_dim": 4, "n_highway": 1}
    model, words = ElmoModel(ElmoConfig(**sizes)), ["word" * number for number in range(1, 400)]
    fit_embeddings(model, ElmoTokenizer.train([words], 300), "here")
    assert len(model.get_input_embeddings().weight) < 300
