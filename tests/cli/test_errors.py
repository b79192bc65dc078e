"""What a user's mistake looks like: one line that names the file or option and the remedy, before anything is done."""

import ast
import dataclasses
import importlib
import json
import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import pytest
from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast, Seq2SeqTrainingArguments

import hf_ptm_ext
from hf_ptm_ext import cli
from hf_ptm_ext.cli import main
from hf_ptm_ext.cli.arguments import TASK_NAMES
from hf_ptm_ext.cli.distill_arguments import TASKS as STUDENT_TASKS
from hf_ptm_ext.cli.errors import EXTRAS, STORAGE, folded, told
from hf_ptm_ext.cli.multitask_arguments import TaskOptions
from hf_ptm_ext.cli.options import OptionParser, kinds_of
from hf_ptm_ext.cli.ranges import ranges_of
from hf_ptm_ext.cli.recipes import as_flags
from hf_ptm_ext.distillation import DistillationArguments, TheseusArguments
from tests.cli.jobs import ROOT

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "warm", "cold", "day", "night", "a"]
ARGUMENTS = {
    "pretrain": "pretrain_arguments",
    "finetune": "finetune",
    "adapt": "adapt",
    "compress": "compress",
    "distill": "distill_arguments",
    "multitask": "multitask_arguments",
    "stages": "stages_arguments",
    "finetune-seq2seq": "seq2seq_arguments",
    "finetune-relations": "finetune_relations",
    "finetune-typing": "finetune_relations",
}
GROUPS = {job: importlib.import_module(f"hf_ptm_ext.cli.{name}").GROUPS for job, name in ARGUMENTS.items()}
# What each job needs before its numbers are looked at; the files are not there.
NEEDED = {
    "pretrain": "",
    "finetune": "--model_name_or_path m --task classification --train_file a.tsv --test_file b.tsv",
    "adapt": "--model_name_or_path m --task classification --train_file a.tsv --test_file b.tsv",
    "compress": "--model_name_or_path m --task classification --train_file a.tsv --test_file b.tsv",
    "distill": "--teacher_name_or_path m --task classification --train_file a.tsv --test_file b.tsv",
    "multitask": "--model_name_or_path m",
    "stages": "",
    "finetune-seq2seq": "--model_name_or_path m --train_file a.tsv",
    "finetune-relations": "--model_name_or_path m --train_file a.jsonl --test_file b.jsonl",
    "finetune-typing": "--model_name_or_path m --train_file a.jsonl --test_file b.jsonl",
}


@pytest.fixture
def empty(tmp_path, monkeypatch):
    """An empty working folder, which a refused command leaves empty."""
    folder = tmp_path / "empty"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def said(capsys, arguments, code=2):
    """The one line of a command that is refused."""
    capsys.readouterr()
    assert main([str(one) for one in arguments]) == code
    lines = capsys.readouterr().err.strip().splitlines()
    errors = [line for line in lines if "error: " in line]
    assert len(errors) == 1, lines
    assert lines[-1] == errors[0]
    assert not any("Traceback" in line for line in lines)
    return errors[0]


# ---- numbers ----


def numeric_fields(group):
    for name, hint in get_type_hints(group).items():
        kinds = kinds_of(hint)
        inner = [kind for kind in kinds if kind in (int, float)]
        if list in kinds and kinds[list] in (list[int], list[float]):
            inner = [int]
        if inner and any(one.name == name for one in dataclasses.fields(group)):
            yield name


ALL_GROUPS = {group for groups in GROUPS.values() for group in groups} | {
    *(DistillationArguments, TheseusArguments, TaskOptions, Seq2SeqTrainingArguments)
}


def test_every_number_of_every_job_has_a_range():
    missing = {name for group in ALL_GROUPS for name in numeric_fields(group)} - set(ranges_of(ALL_GROUPS))
    assert not missing


def test_every_default_is_in_its_range():
    for job, words in NEEDED.items():
        OptionParser(GROUPS[job]).parse_known_args(words.split())


@pytest.mark.parametrize("wrong", ["nan", "-7", "inf", "-inf", "1e400", "", "x", "1,5", "99999999999999999999999"])
@pytest.mark.parametrize("job", sorted(NEEDED))
def test_numbers_out_of_range_are_refused_before_anything_is_read(job, wrong):
    parser = OptionParser(GROUPS[job], prog="x")
    for name in sorted({name for group in GROUPS[job] for name in numeric_fields(group)}):
        allowed = parser.ranges[name]
        if allowed.endswith("inf)") and (wrong.startswith("9") or (wrong == "-7" and "-inf" in allowed)):
            continue  # a float may be so large, and a score negative
        with pytest.raises(ValueError, match=name) as caught:
            parser.parse_known_args([*NEEDED[job].split(), f"--{name}={wrong}"])
        assert "\n" not in str(caught.value)


def test_whole_numbers_that_no_machine_holds_are_refused():
    with pytest.raises(ValueError, match="`max_steps` must be"):
        OptionParser(GROUPS["pretrain"]).parse_known_args(["--max_steps", "9" * 30])


@pytest.mark.parametrize("job", sorted(NEEDED))
@pytest.mark.parametrize(("name", "value"), [("output_dir", ""), ("learning_rate", "nan"), ("seed", "-1")])
def test_the_refusal_is_a_line_and_leaves_nothing(empty, capsys, job, name, value):
    if job == "stages" and name != "output_dir":
        pytest.skip("has no training of its own")
    assert f"`{name}`" in said(capsys, [job, *NEEDED[job].split(), f"--{name}={value}"]) or name == "output_dir"
    assert not list(empty.iterdir())


@pytest.mark.parametrize(
    "option", ["dimension", "epochs", "margin", "negatives", "batch_size", "learning_rate", "seed"]
)
def test_numbers_of_entity_vectors(empty, capsys, option):
    words = ["train-entity-vectors", "triples.tsv", "--output_dir", "out", f"--{option}=-1"]
    assert f"`{option}`" in said(capsys, words)
    assert not list(empty.iterdir())


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ({"a": {"preset": "pkd"}, "b": {"preset": "pkd", "learning_rate": "nan"}}, "`learning_rate` must be"),
        ({"a": {"preset": "pkd"}, "b": {"preset": "pkd", "num_train_epochs": [1]}}, "`num_train_epochs` must be"),
        ({"a": {"preset": "pkd", "preset_options": {"temperature": -1}}}, "`temperature` must be positive"),
        ({"a": {"preset": "pkd", "preset_options": {"temprature": 1}}}, "option of preset pkd"),
        ({"a": {"preset": "pkd", "preset_options": {"alpha": "much"}}}, "`alpha` must be"),
        ({"a": {"objectives": {"label": 1}}}, "`objective` must be one of"),
        ({"a": {"objectives": {"labels": float("nan")}}}, "must be"),
        ({"a": {"preset": ["pkd"]}}, "preset"),
        ({"a": {"no_such": 1}}, "unknown options: no_such"),
        ({"../a": {"preset": "pkd"}}, "must be named by"),
        ({"a/b": {"preset": "pkd"}}, "must be named by"),
        ({"a\0b": {"preset": "pkd"}}, "must be named by"),
        ({"x" * 300: {"preset": "pkd"}}, "must be named by"),
    ],
)
def test_options_of_every_distillation_stage_are_checked_before_the_first(empty, capsys, stages, message):
    words = [*NEEDED["distill"].split(), f"--stages={json.dumps(stages)}"]
    assert message in said(capsys, ["distill", *words])
    assert not list(empty.iterdir())


@pytest.mark.parametrize(
    "name", ["../x", "/x", "a/b", "a\\b", "..", ".", "", "a\0", "nul", "COM1", "x" * 101, "_runs"]
)
@pytest.mark.parametrize("job", ["multitask", "stages"])
def test_names_of_stages_and_tasks_stay_inside_the_output_folder(empty, capsys, job, name):
    option = "tasks" if job == "multitask" else "stages"
    value = {name: {"task": "classification", "job": "finetune"}}
    assert "must be named by" in said(capsys, [job, *NEEDED[job].split(), f"--{option}={json.dumps(value)}"])
    assert not list(empty.iterdir())


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ({"max_seq_length": "nan"}, "`max_seq_length`"),
        ({"dropout": "nan"}, "`dropout`"),
        ({"text_column": None}, "`text_column`"),
        ({"text_column": {"a": 1}}, "`text_column`"),
        ({"loss_weight": 1e400}, "`loss_weight`"),
        ({"no_such": 1}, "no_such"),
    ],
)
def test_options_of_every_task_are_checked_before_the_first(empty, capsys, task, message):
    good = {"task": "classification", "train_file": "a.tsv", "test_file": "b.tsv"}
    tasks = {"one": good, "two": {**good, **task}}
    line = said(capsys, ["multitask", "--model_name_or_path", "m", f"--tasks={json.dumps(tasks)}"])
    assert message in line
    assert "two" in line


@pytest.mark.parametrize(
    ("job", "words", "message"),
    [
        ("adapt", "--methods lora houlsby --init_weights no_such", "`init_weights`"),
        ("adapt", "--methods lora pfeiffer --non_linearity no_such", "no_such"),
        ("multitask", "--smart_norm l3", "smart_norm"),
        ("finetune", "--task question-answering --doc_stride 128 --max_seq_length 128", "`doc_stride`"),
        ("pretrain", "--mask_replace_prob 0.8 --random_replace_prob 0.3", "`random_replace_prob`"),
    ],
)
def test_options_that_only_a_later_part_reads_are_checked_first(empty, capsys, job, words, message):
    assert message in said(capsys, [job, *NEEDED[job].split(), *words.split()])
    assert not list(empty.iterdir())


# ---- recipes ----

RECIPES = {
    "a key twice": ("learning_rate: 1\nlearning_rate: 2\n", "'learning_rate' is there twice"),
    "a nested key twice": ("lr_scheduler_kwargs: {a: 1, a: 2}\n", "'a' is there twice"),
    "a list for a number": ("learning_rate: [1, 2]\n", "`learning_rate` must be a number"),
    "a mapping for a text": ("output_dir: {a: 1}\n", "`output_dir` must be a text"),
    "nothing": ("learning_rate:\n", "`learning_rate` must be a number, got nothing"),
    "a date": ("output_dir: 2024-01-01\n", "`output_dir` must be a text"),
    "a word of YAML": ("eval_strategy: no\n", "Write it in quotes"),
    "not a number": ("learning_rate: .nan\n", "`learning_rate` must be"),
    "an infinite number": ("weight_decay: 1e999\n", "`weight_decay` must be"),
    "an unknown key": ("learning_rat: 1\n", "learning_rat"),
    "a number as a key": ("1: 2\n", "names as keys"),
    "an unknown tag": ("x: !!python/object/apply:os.system [touch pwned]\n", "not valid YAML"),
    "empty": ("", "must be a mapping"),
    "a list": ("- a\n", "must be a mapping"),
    "a scalar": ("a\n", "must be a mapping"),
    "deep": ("a: " + "[" * 3000, "nested"),
    "deep but closed": ("output_dir: " + "[" * 60 + "]" * 60, "deep"),
    "a bomb": (
        "a: &a [x, x, x, x, x, x, x, x, x]\n"
        + "".join(f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)),
        "references",
    ),
    "endless": ("a: &a [*a]\n", "deep"),
    "UTF-16": ("a: 1\n".encode("utf-16"), "UTF-16"),
    "Latin-1": ("language: é\n".encode("latin-1"), "line 1: not in UTF-8"),
    "zero bytes": (b"a: \0\n", "zero bytes"),
    "too large": ("#" * 2_000_000, "at most"),
}


@pytest.mark.parametrize("kind", sorted(RECIPES))
def test_a_recipe_that_cannot_be_is_a_line_with_its_file(empty, capsys, kind):
    content, message = RECIPES[kind]
    file = empty / "recipe.yaml"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    line = said(capsys, ["finetune", file, *NEEDED["finetune"].split()])
    assert message in line
    assert "recipe.yaml" in line
    assert list(empty.iterdir()) == [file]


@pytest.mark.parametrize(
    "content", ['{"learning_rate": 1, "learning_rate": 2}', '{"a": ' * 50000, "[1]", "{", '{"seeds": NaN}']
)
def test_a_recipe_in_json_that_cannot_be(empty, capsys, content):
    (empty / "recipe.json").write_text(content, encoding="utf-8")
    assert "recipe.json" in said(capsys, ["finetune", "recipe.json"])


def test_a_pipe_a_folder_and_a_device_are_no_recipes(empty, capsys):
    os.mkfifo("pipe.yaml")
    Path("folder.yaml").mkdir()
    Path("device.yaml").symlink_to("/dev/zero")
    for name in ("pipe.yaml", "folder.yaml", "device.yaml"):
        assert f"{name} must be a file" in said(capsys, ["finetune", name])


def test_a_recipe_may_begin_with_a_byte_order_mark(empty, capsys):
    (empty / "recipe.yaml").write_bytes(b"\xef\xbb\xbftask: parsing\n")
    assert "`task` must be one of" in said(
        capsys, ["finetune", "recipe.yaml", *NEEDED["finetune"].split()[:2], "--train_file", "a", "--test_file", "b"]
    )


def test_values_that_begin_with_a_dash_and_nothing_reach_the_job():
    parser = OptionParser(GROUPS["finetune"])
    values = {"text_column": "--x", "train_file": ["-a.tsv", "b.tsv"], "seeds": [3], "max_eval_rows": None}
    found, rest = parser.parse_known_args([*NEEDED["finetune"].split(), "--max_eval_rows=3", *as_flags(values)])
    assert (found.text_column, found.train_file, found.seeds, found.max_eval_rows, rest) == (
        *("--x", ["-a.tsv", "b.tsv"], [3], None, []),
    )


@pytest.mark.parametrize("pairs", [["x"], ["=1"], [], ["seed=1", "seed=2"], ["learning_rate=nan"], ["no_such=1"]])
def test_overrides_that_cannot_be(empty, capsys, pairs):
    said(capsys, ["finetune", *NEEDED["finetune"].split(), "--overrides", *pairs])
    assert not list(empty.iterdir())


# ---- damaged checkpoints ----


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A small classifier with its data."""
    folder = tmp_path_factory.mktemp("sound")
    config = BertConfig(
        vocab_size=len(WORDS), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    BertForSequenceClassification(config).save_pretrained(folder / "model")
    BertTokenizerFast(vocab={word: number for number, word in enumerate(WORDS)}).save_pretrained(folder / "model")
    rows = "text\tlabel\n" + "a warm day\tsun\na cold night\tmoon\n" * 8
    for name in ("train.tsv", "test.tsv"):
        (folder / name).write_text(rows, encoding="utf-8")
    return folder


def job(folder, model, output, *more):
    words = ["finetune", "--model_name_or_path", model, "--task", "classification", "--max_steps", "2", "--seeds", "0"]
    words += ["--train_file", folder / "train.tsv", "--test_file", folder / "test.tsv", "--output_dir", output]
    return [*words, "--use_cpu", "--disable_tqdm", "true", "--report_to", "none", "--max_seq_length", "16", *more]


def config_with(**changes):
    def damage(folder):
        file = folder / "config.json"
        file.write_text(json.dumps({**json.loads(file.read_text(encoding="utf-8")), **changes}), encoding="utf-8")

    return damage


def file_of(name, content, *removed):
    def damage(folder):
        for other in removed:
            (folder / other).unlink()
        (folder / name).write_bytes(content)

    return damage


WEIGHTS = "model.safetensors"
DAMAGES = {
    "config cut": file_of("config.json", b'{"model_type": "bert", "hidd'),
    "config a list": file_of("config.json", b"[1]"),
    "config empty": file_of("config.json", b""),
    "config not UTF-8": file_of("config.json", b'{"model_type": "b\xe9rt"}'),
    "config deep": file_of("config.json", b'{"a":' * 100000),
    "config of nothing": file_of("config.json", b"{}"),
    "unknown model_type": config_with(model_type="no_such"),
    "model_type a number": config_with(model_type=5),
    "model_type a list": config_with(model_type=["bert"]),
    "hidden_size 0": config_with(hidden_size=0),
    "hidden_size -1": config_with(hidden_size=-1),
    "hidden_size a text": config_with(hidden_size="big"),
    "hidden_size null": config_with(hidden_size=None),
    "no heads": config_with(num_attention_heads=0),
    "layers a list": config_with(num_hidden_layers=[1]),
    "huge": config_with(vocab_size=10**15),
    "unknown activation": config_with(hidden_act="no_such"),
    "dtype": config_with(dtype="no_such"),
    "id2label a list": config_with(id2label=["a", "b"]),
    "weights empty": file_of(WEIGHTS, b""),
    "weights cut": file_of(WEIGHTS, b"\x10\0\0\0\0\0\0\0{"),
    "weights noise": file_of(WEIGHTS, bytes(range(256)) * 20),
    "weights a page": file_of(WEIGHTS, b"<html>404</html>"),
    "pickle noise": file_of("pytorch_model.bin", b"noise" * 99, WEIGHTS),
    "pickle empty": file_of("pytorch_model.bin", b"", WEIGHTS),
    "zip cut": file_of("pytorch_model.bin", b"PK\x03\x04" + b"\0" * 99, WEIGHTS),
    "index cut": file_of(f"{WEIGHTS}.index.json", b'{"weight_map": ', WEIGHTS),
    "index of nothing": file_of(f"{WEIGHTS}.index.json", b"{}", WEIGHTS),
    "tokenizer cut": file_of("tokenizer.json", b'{"version": "1.0", '),
    "tokenizer of nothing": file_of("tokenizer.json", b"{}"),
    "tokenizer noise": file_of("tokenizer.json", bytes(range(200))),
    "tokenizer_config a list": file_of("tokenizer_config.json", b"[]"),
    "tokenizer_config cut": file_of("tokenizer_config.json", b'{"tok'),
}


@pytest.mark.parametrize("kind", sorted(DAMAGES))
def test_a_damaged_checkpoint_is_a_line_that_names_it(sound, tmp_path, capsys, kind):
    model = tmp_path / "checkpoint-x"
    shutil.copytree(sound / "model", model)
    DAMAGES[kind](model)
    line = said(capsys, job(sound, model, tmp_path / "out"))
    assert "checkpoint-x" in line or "`" in line


def test_a_name_that_the_hub_lacks_is_named(sound, tmp_path, capsys):
    assert "no-such/model" in said(capsys, job(sound, "no-such/model", tmp_path / "out"))


# ---- packages and machines ----


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--report_to", "wandb"), "wandb"),
        (("--report_to", "tensorboard"), "tensorboard"),
        (("--report_to", "no_such"), "no_such"),
        (("--deepspeed", '{"zero_optimization": {"stage": 2}}'), "deepspeed"),
        (("--optim", "adamw_bnb_8bit"), "bitsandbytes"),
        (("--optim", "no_such"), "no_such"),
        (("--lr_scheduler_type", "no_such"), "no_such"),
        (("--torch_compile_backend", "no_such"), "NO_SUCH"),
        (("--fsdp", "no_such"), "no_such"),
    ],
)
def test_what_is_not_installed_or_known_is_a_line(sound, tmp_path, capsys, monkeypatch, options, message):
    for package in ("wandb", "tensorboard", "tensorboardX", "deepspeed", "bitsandbytes"):
        monkeypatch.setitem(sys.modules, package, None)
    words = [word for word in job(sound, sound / "model", tmp_path / "out") if word not in ("--report_to", "none")]
    more = [] if "--report_to" in options else ["--report_to", "none"]
    assert message in said(capsys, [*words, *more, *options])


@pytest.mark.parametrize("package", sorted(EXTRAS))
def test_the_remedy_for_a_missing_package_is_an_extra_that_exists(package):
    name = re.fullmatch(r"hf-ptm-ext\[(\w+)\]", EXTRAS[package])
    if name is not None:
        text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
        assert re.search(rf"^{name[1]} = \[", text, re.MULTILINE)
    error = raised(ModuleNotFoundError(f"No module named '{package}'", name=package))
    assert f"pip install {EXTRAS[package]}" in told(error)


def test_a_picture_without_matplotlib(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    assert "hf-ptm-ext[viz]" in said(capsys, ["show", "masks", "unilm", "--png", tmp_path / "x.png"])


# ---- disks ----


def raised(error, file=None):
    """The error as a function raises it that writes a file."""

    def save(filename):
        raise error

    try:
        save(file)
    except Exception as found:
        return found


@pytest.mark.parametrize("number", sorted(STORAGE))
def test_what_a_disk_refuses_names_the_file_and_the_remedy(tmp_path, number):
    file = str(tmp_path / "model.safetensors")

    class Rust(Exception):
        """As safetensors and tokenizers raise it."""

    for error in (
        OSError(number, os.strerror(number), file),
        raised(OSError(number, os.strerror(number)), file),
        raised(Rust(f"Error while serializing: I/O error: {os.strerror(number)} (os error {number})"), file),
    ):
        line = told(error)
        assert file in line
        assert os.strerror(number) in line
        assert STORAGE[number] in line


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limit", "value", "words"),
    [(resource.RLIMIT_FSIZE, 4000, "File too large"), (resource.RLIMIT_NOFILE, 4, "Too many open files")],
)
def test_limits_of_the_machine_are_a_line(sound, tmp_path, limit, value, words):
    code = (
        "import resource, sys\nfrom hf_ptm_ext.cli import main\n"
        "import transformers, torch, hf_ptm_ext.cli.finetune, hf_ptm_ext.trainers\n"
        f"resource.setrlimit({limit}, ({value}, {value}))\nsys.exit(main(sys.argv[1:]))"
    )
    arguments = [str(word) for word in job(sound, sound / "model", tmp_path / "out")]
    found = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=600
    )
    assert found.returncode == 2, found.stderr[-2000:]
    assert words in found.stderr.strip().splitlines()[-1]
    assert "Traceback" not in found.stderr
    assert not (tmp_path / "out" / "config.json").exists()


# ---- what is kept ----


class Broken(Exception):
    """A fault of the program."""


def test_a_fault_inside_training_keeps_its_traceback(sound, tmp_path, monkeypatch):
    from transformers import Trainer

    step, count = Trainer.training_step, []

    def failing(self, *arguments, **options):
        count.append(1)
        if len(count) > 1:
            raise Broken
        return step(self, *arguments, **options)

    monkeypatch.setattr(Trainer, "training_step", failing)
    with pytest.raises(Broken):
        main(
            [str(word) for word in job(sound, sound / "model", tmp_path / "out", "--per_device_train_batch_size", "4")]
        )


def test_a_training_that_is_stopped_is_a_line():
    class TrainingStopped(RuntimeError):
        """As the Trainers raise it."""

    assert told(TrainingStopped("the loss is not finite\nat step 3")) == "the loss is not finite at step 3"


def test_debug_shows_the_traceback_of_any_of_them(empty, capsys):
    assert main(["finetune", *NEEDED["finetune"].split(), "--seed", "-1", "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_a_message_is_one_line_of_sensible_length_without_secrets(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "my-own-token")
    token = "hf_" + "a1B2c3" * 6
    line = folded(f"a\nb  my-own-token https://me:pw@host/x {token} \x1b[0m {'long ' * 2000} end")
    assert "\n" not in line
    assert "\x1b" not in line
    assert len(line) < 2000
    assert line.endswith("end")
    assert not any(secret in line for secret in ("my-own-token", "me:pw", token))


def test_a_traceback_has_no_secret_either(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["hf-ptm-ext", "pretrain", "--hub_token", "my-own-token"])
    assert main(["pretrain", "--learning_rate", "my-own-token", "--debug"]) == 2
    found = capsys.readouterr().err
    assert "Traceback" in found
    assert "my-own-token" not in found


@pytest.mark.parametrize(
    "encoding", ["ascii", *(pytest.param(name, marks=pytest.mark.slow) for name in ("gbk", "latin-1", "utf-8"))]
)
def test_a_terminal_of_any_encoding_gets_its_output(encoding):
    code = "import sys; from hf_ptm_ext.cli import main; sys.exit(main(['show', 'masks', 'unilm']))"
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, timeout=600)
    assert found.returncode == 0, found.stderr
    assert b"seq2seq" in found.stdout


def test_output_that_cannot_be_written_is_a_line():
    with open("/dev/full", "w", encoding="utf-8") as full:
        found = subprocess.run(
            [sys.executable, "-m", "hf_ptm_ext", "systems"], cwd=ROOT, stdout=full, stderr=subprocess.PIPE, timeout=600
        )
    assert found.returncode == 2
    assert len(found.stderr.splitlines()) == 1


# ---- advice ----


def texts_of(tree):
    """Every text of a module, what is put into it as {}."""
    inside = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "{}" for part in node.values]
            inside |= {id(part) for part in ast.walk(node)}
            yield "".join(parts)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield node.value


def every_text():
    package = Path(hf_ptm_ext.__file__).parent
    for file in sorted(package.rglob("*.py")):
        for text in texts_of(ast.parse(file.read_text(encoding="utf-8"))):
            yield str(file.relative_to(package)), " ".join(text.split())


def options_of(command):
    parser = OptionParser(GROUPS[command]) if command in GROUPS else cli._parser(command)[1]
    return {option for action in parser._actions for option in action.option_strings}, parser


ADVICE = sorted(
    {
        (file, found[1], found[2])
        for file, text in every_text()
        for found in re.finditer(r"(?:[`(]|: )hf-ptm-ext ([a-z][\w-]*)((?: [^\s`]+)*)", text)
    }
)


def test_there_is_advice_to_try():
    assert len(ADVICE) > 10


@pytest.mark.parametrize(("file", "command", "rest"), ADVICE)
def test_no_advice_names_a_command_or_option_that_fails(file, command, rest):
    assert command in cli.COMMANDS, f"{file}: {command}"
    known, _ = options_of(command)
    for option in re.findall(r"(?<!\S)(--[a-z][\w-]*)", rest):
        assert option in known | {"--overrides", "--debug"}, f"{file}: {command} {option}"
    for task in re.findall(r"--task ([a-z][a-z-]*)", rest):
        assert task in (STUDENT_TASKS if command == "distill" else TASK_NAMES), f"{file}: {task}"
    first = re.match(r" ([a-z]\w+)", rest)
    if command == "convert" and first is not None and "`" not in rest:
        from hf_ptm_ext.cli import convert, convert_adapters

        prose = first[1] in ("extends", "is", "of", "lists", "makes", "and", "or", "to")
        assert prose or first[1] in (*convert.FAMILIES, *convert_adapters.METHODS), f"{file}: {rest}"


def test_no_message_names_an_option_that_no_command_has():
    known = {"--flag", "--argument", "--help", "--debug", "--overrides", "--version", "--stages", "--tasks"}
    for command in cli.COMMANDS:
        known |= options_of(command)[0]
    for file, text in every_text():
        if file.startswith("cli/"):
            wrong = [one for one in re.findall(r"(?<![\w-])(--[a-z][\w-]*\w)", text) if one not in known]
            assert not wrong, f"{file}: {wrong}"
