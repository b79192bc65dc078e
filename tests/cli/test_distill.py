"""Distillation by seeds from the command line: teacher, student with and without it, stages, resume, recipes."""

import copy
import json
from collections import Counter
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    DistilBertConfig,
    DistilBertModel,
)

from hf_ptm_ext.cli import main
from hf_ptm_ext.cli.distill import Distill
from hf_ptm_ext.cli.distill_arguments import DistillArguments, parse, stage_arguments
from hf_ptm_ext.cli.recipes import split_nested
from hf_ptm_ext.distillation import DistillationTrainer
from tests.cli.test_finetune import RUN, data, finetune, results_of, words_of  # noqa: F401  (data is a fixture)

CONFIGS = Path(__file__).parents[2] / "scripts" / "configs"
SHORT = {**{name: value for name, value in RUN.items() if name != "language"}, "seeds": [0], "language": "en"}


@pytest.fixture(scope="module")
def teacher(data, tmp_path_factory):  # noqa: F811
    folder = tmp_path_factory.mktemp("teacher") / "teacher"
    file = data / "texts.tsv"
    finetune(folder, data / "bert", file, file, task="classification", pair_column="mention")
    return folder


def distill(output, teacher, file, recipe=None, code=0, **values):
    given = {"teacher_name_or_path": teacher, "train_file": file, "test_file": file, "output_dir": output}
    given |= {"pair_column": "mention", "task": "classification"}
    words = words_of(**{**given, **SHORT, **values})
    assert main(["distill", *([recipe] if recipe else []), *words]) == code
    return results_of(output) if code == 0 else None


def test_teacher_student_and_the_student_alone_stand_side_by_side(data, teacher, tmp_path, capsys):  # noqa: F811
    stages = {"distil": {"preset": "soft-labels", "num_train_epochs": 2}}
    results = distill(tmp_path / "out", teacher, data / "texts.tsv", student_layers=1, stages=json.dumps(stages))
    printed = capsys.readouterr().out
    for name in ("teacher", "distilled", "without the teacher", "rows a second"):
        assert name in printed
    assert set(results["summary"]) == {"distilled", "without the teacher", "teacher"}
    sizes = {name: scores["parameters"]["mean"] for name, scores in results["summary"].items()}
    assert sizes["distilled"] == sizes["without the teacher"] < sizes["teacher"]
    student = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    assert student.config.num_hidden_layers == 1
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "distilled from" in card
    assert "of the teacher's rows a second" in card


def test_rows_without_labels_teach_by_the_teacher_alone(data, teacher, tmp_path, monkeypatch):  # noqa: F811
    seen = []
    inner = DistillationTrainer.__init__

    def remembered(trainer, *args, **kwargs):
        seen.append(kwargs["train_dataset"])
        inner(trainer, *args, **kwargs)

    monkeypatch.setattr(DistillationTrainer, "__init__", remembered)
    header, *lines = (data / "texts.tsv").read_text(encoding="utf-8").splitlines()
    column = header.split("\t").index("label")
    more = [line.split("\t") for line in lines]
    more = [[*row[:column], "", *row[column + 1 :]] for row in more]
    new = [[value + " anew" if value else value for value in row] for row in more]
    for row in new:
        row[column] = ""
    file = tmp_path / "unlabelled.tsv"
    file.write_text("\n".join([header, *("\t".join(row) for row in [*more[:3], *new])]) + "\n", encoding="utf-8")
    stages = json.dumps({"distil": {"objectives": {"labels": 1.0, "soft_labels": 1.0}, "num_train_epochs": 2}})
    results = distill(
        tmp_path / "out", teacher, data / "texts.tsv", student_layers=1, stages=stages, unlabelled_file=file
    )
    assert results["data"]["unlabelled"] == {"rows": len(new), "left_out": 3}
    labels = Counter(row["labels"] == -100 for row in seen[0])
    assert labels == {True: len(new), False: len(lines)}
    assert all(torch.isfinite(torch.tensor(run["test"]["accuracy"])) for run in results["runs"])


def vectors_file(tmp_path, tokenizer):
    """Word vectors of 4 numbers of every piece that is a word."""
    words = [word for word in sorted(tokenizer.get_vocab()) if word.isalpha()]
    lines = [f"{word} {number} 1 0 0.5" for number, word in enumerate(words)]
    (tmp_path / "vectors.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return tmp_path / "vectors.txt", words


@pytest.mark.parametrize("proposed", [False, True])
def test_variants_of_the_training_rows_are_labelled_by_the_teacher(data, teacher, tmp_path, monkeypatch, proposed):  # noqa: F811
    seen = []
    inner = DistillationTrainer.__init__

    def remembered(trainer, *args, **kwargs):
        seen.append(kwargs["train_dataset"])
        inner(trainer, *args, **kwargs)

    monkeypatch.setattr(DistillationTrainer, "__init__", remembered)
    stages = json.dumps({"distil": {"preset": "soft-labels", "num_train_epochs": 1}})
    options = {"student_layers": 1, "stages": stages, "train_sample": 6, "seeds": [0, 1], "augment": 3}
    if proposed:
        tokenizer = AutoTokenizer.from_pretrained(data / "bert")
        tokenizer.save_pretrained(tmp_path / "mlm")
        BertForMaskedLM(AutoModel.from_pretrained(data / "bert").config).save_pretrained(tmp_path / "mlm")
        vectors, _ = vectors_file(tmp_path, tokenizer)
        options |= {"augment_model": tmp_path / "mlm", "augment_vectors_file": vectors}
    results = distill(tmp_path / "out", teacher, data / "texts.tsv", baseline=False, **options)
    for rows in seen:
        told = [row["labels"] == -100 for row in rows]
        assert told[:6] == [False] * 6
        assert 6 < sum(told) <= 6 * 2 * 3 + 6  # of pairs up to two rounds
        assert all(told[6:])
    assert results["data"]["augmented"]["rows"] == len(seen[-1]) - 6
    assert [row["input_ids"] for row in seen[0]] != [row["input_ids"] for row in seen[1]]


def test_a_bilstm_begins_with_word_vectors_of_their_width(data, teacher, tmp_path, capsys):  # noqa: F811
    vectors, words = vectors_file(tmp_path, AutoTokenizer.from_pretrained(data / "bert"))
    stages = json.dumps({"distil": {"preset": "bilstm", "max_steps": 1, "learning_rate": 0.0}})
    options = {"stages": stages, "baseline": False, "student_vectors_file": vectors}
    distill(tmp_path / "out", teacher, data / "texts.tsv", "distill_bilstm.yaml", **options)
    student = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    number = AutoTokenizer.from_pretrained(tmp_path / "out").convert_tokens_to_ids(words[3])
    assert student.config.embedding_size == 4
    assert student.get_input_embeddings().weight[number].tolist() == [3, 1, 0, 0.5]
    distill(tmp_path / "no", teacher, data / "texts.tsv", code=2, **options)
    assert "is for `student_class` = distilled_bilstm" in capsys.readouterr().err


@pytest.mark.parametrize(
    "recipe", sorted(path.name for path in CONFIGS.glob("distill_*.yaml") if "bilstm" not in path.name)
)
def test_every_recipe_is_understood(recipe):
    given = yaml.safe_load((CONFIGS / recipe).read_text(encoding="utf-8"))
    words = ["--teacher_name_or_path", "t", "--train_file", "a.txt", "--test_file", "b.txt"]
    _, data_args, training = parse([recipe, *words, "--use_cpu", "true"])
    assert training.stages == given["stages"]
    assert data_args.task == given["task"]
    assert training.epochs_alone() > 0


@pytest.mark.parametrize(
    "recipe",
    [
        "distill_pkd.yaml",
        "distill_theseus.yaml",
        pytest.param("distill_distilbert.yaml", marks=pytest.mark.slow),
        pytest.param("distill_minilm.yaml", marks=pytest.mark.slow),
        pytest.param("distill_minilm_v2.yaml", marks=pytest.mark.slow),
        pytest.param("distill_ensemble.yaml", marks=pytest.mark.slow),
        pytest.param("distill_tinybert.yaml", marks=pytest.mark.slow),
    ],
)
def test_recipes_run(data, teacher, tmp_path, recipe):  # noqa: F811
    stages = yaml.safe_load((CONFIGS / recipe).read_text(encoding="utf-8"))["stages"]
    short = {name: {**options, "num_train_epochs": 1} for name, options in stages.items()}
    if "pkd" in recipe:  # its own map leaves out the last layer, here the only one
        short["distil"]["preset_options"] |= {"layers": [[1, 1]]}
    results = distill(
        tmp_path / "out",
        teacher,
        data / "texts.tsv",
        recipe,
        student_layers=1,
        stages=json.dumps(short),
        baseline=False,
        max_train_rows=32,
    )
    assert results["summary"]["distilled"]["accuracy"]["mean"] > 0


@pytest.mark.slow
def test_a_student_learns_masked_words_from_plain_text(data, tmp_path):  # noqa: F811
    text = tmp_path / "text.txt"
    lines = (data / "texts.tsv").read_text(encoding="utf-8").splitlines()[1:]
    text.write_text("\n".join(line.split("\t")[0] for line in lines), encoding="utf-8")
    stages = {"distil": {"preset": "distilbert", "num_train_epochs": 1}}
    results = distill(
        tmp_path / "out",
        data / "bert",
        text,
        task="masked-lm",
        student_layers=1,
        stages=json.dumps(stages),
        baseline=False,
    )
    assert set(results["summary"]) == {"distilled", "teacher"}


@pytest.mark.parametrize("preset", ["soft-labels", "theseus"])
def test_stages_train_as_the_job_is_told(tmp_path, preset):
    job = DistillArguments(output_dir=str(tmp_path), use_cpu=True, nonfinite="skip", weights="bf16")
    made = stage_arguments(job, {"preset": preset}, str(tmp_path / "stage"), last=True)
    assert (made.nonfinite, made.weights, made.bf16) == ("skip", "bf16", False)
    if preset != "theseus":
        assert made.teacher_dtype == "bfloat16"
        told = {"preset": preset, "teacher_dtype": "float32"}
        assert stage_arguments(job, told, str(tmp_path / "stage"), last=True).teacher_dtype == "float32"


def test_stages_may_be_yaml_and_changed_by_flags():
    words = ["--teacher_name_or_path", "t", "--task", "tagging", "--train_file", "a.txt", "--test_file", "b.txt"]
    words += ["--stages", '{a: {preset: pkd, learning_rate: 1e-4, bf16: "false"}}', "--use_cpu", "true"]
    training = parse([*words, "--stages.a.preset", "soft-labels", "--stages.b.preset=pkd"])[-1]
    a = {"preset": "soft-labels", "learning_rate": 1e-4, "bf16": False}
    assert training.stages == {"a": a, "b": {"preset": "pkd"}}
    numbers = ["--stages.a.num_train_epochs", "3", "--stages.a.learning_rate=0.01"]
    told = parse([*words, *numbers])[-1].told[1]["stages"]["a"]
    assert [told[name] for name in ("num_train_epochs", "learning_rate")] == [3, 0.01]
    assert split_nested(["--stages.a.x", "007", "1e5", "nan", "-2"], "stages")[1]["a"]["x"] == [
        "007",
        "1e5",
        "nan",
        -2,
    ]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"stages": "{}"}, "`stages` must name at least one stage"),
        ({"stages": '{"a": {"preset": "nothing"}}'}, "nothing"),
        ({"stages": '{"a": {"preset": "pkd", "epochs": 2}}'}, "unknown options: epochs"),
        ({"stages": "[1"}, "`stages` must be a mapping or JSON"),
        ({"unlabelled_file": "a.tsv", "task": "masked-lm"}, "plain text has no labels"),
        (
            {"unlabelled_file": "a.tsv", "stages": '{"a": {"objectives": {"labels": 1}}}'},
            "teaches nothing by `stages` that read labels alone",
        ),
        ({"augment": 2, "task": "tagging"}, "changes words of classified texts"),
        ({"augment": 2, "stages": '{"a": {"objectives": {"labels": 1}}}'}, "`augment` = 2 teaches nothing"),
        ({"augment_model": "a"}, "goes with `augment`, got none"),
        ({"task": "question-answering"}, "`task` must be one of classification, tagging, masked-lm"),
    ],
)
def test_mistakes_are_told_before_anything_is_read(tmp_path, capsys, values, message):
    given = {"stages": '{"a": {"preset": "pkd"}}', **values}
    distill(tmp_path / "out", "teacher", "nowhere.tsv", code=2, **given)
    assert message in capsys.readouterr().err


def test_a_teacher_that_is_not_fine_tuned_is_refused(data, tmp_path, capsys):  # noqa: F811
    stages = '{"a": {"preset": "pkd"}}'
    distill(tmp_path / "out", data / "bert", data / "texts.tsv", code=2, stages=stages)
    assert "has no trained head for text classification" in capsys.readouterr().err


TEXT = "the river is long .\nthe city is old .\n\nthe old city is on the river .\nit is long .\n\n"


@pytest.fixture
def texts(tmp_path):
    file = tmp_path / "texts.txt"
    file.write_text(TEXT * 30, encoding="utf-8")
    return file


@pytest.fixture
def masked_lm_teacher(data, tmp_path):  # noqa: F811
    folder = tmp_path / "masked_lm"
    tokenizer = AutoTokenizer.from_pretrained(data / "bert")
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=32
    )
    torch.manual_seed(0)
    model = BertForMaskedLM(config)
    # It always gives one answer, the text's most frequent piece: its score is that piece's share of the masked places.
    ((answer, _),) = Counter(tokenizer.encode(TEXT, add_special_tokens=False)).most_common(1)
    with torch.no_grad():
        model.cls.predictions.bias[answer] = 100.0
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def distill_text(output, teacher, file, preset="distilbert", code=0, **values):
    stages = {"distil": {"preset": preset, "num_train_epochs": 2}}
    given = {"task": "masked-lm", "teacher_name_or_path": teacher, "train_file": file, "validation_file": file}
    given |= {"output_dir": output, "stages": json.dumps(stages), "max_seq_length": 16}
    assert main(["distill", *words_of(**{**given, **SHORT, **values})]) == code
    return results_of(output) if code == 0 else None


def test_on_plain_text_every_variant_fills_the_same_masks(masked_lm_teacher, texts, tmp_path):
    # A student of all layers that learns nothing is its teacher, so the scores differ only if the masks do.
    still = {"learning_rate": 0.0, "baseline_learning_rate": 0.0}
    results = distill_text(tmp_path / "out", masked_lm_teacher, texts, student_layers=2, **still)
    found = {name: scores["accuracy"]["mean"] for name, scores in results["summary"].items()}
    assert len(found) == 3
    assert len(set(found.values())) == 1
    assert found["teacher"] > 0


def test_on_plain_text_the_student_can_be_evaluated_while_it_learns(masked_lm_teacher, texts, tmp_path):
    out = tmp_path / "out"
    best = {"load_best_model_at_end": True, "metric_for_best_model": "accuracy"}
    options = {"eval_strategy": "epoch", "save_strategy": "epoch", "baseline": False, **best}
    results = distill_text(out, masked_lm_teacher, texts, student_layers=1, **options)
    assert 0 <= results["summary"]["distilled"]["accuracy"]["mean"] <= 1
    assert AutoModelForMaskedLM.from_pretrained(out).config.num_hidden_layers == 1


def test_a_preset_that_trains_the_teacher_is_no_stage(masked_lm_teacher, texts, tmp_path, capsys):
    distill_text(tmp_path / "out", masked_lm_teacher, texts, preset="dualtrain", code=2)
    assert "DataCollatorForMixedVocabulary" in capsys.readouterr().err


def test_the_general_recipe_takes_a_headless_teacher_and_leaves_its_student(data, tmp_path, monkeypatch, capsys):  # noqa: F811
    texts = tmp_path / "texts.txt"
    lines = (data / "texts.tsv").read_text(encoding="utf-8").splitlines()[1:]
    texts.write_text("\n".join(line.split("\t")[0] for line in lines), encoding="utf-8")
    headless = tmp_path / "headless"
    AutoModel.from_pretrained(data / "bert").save_pretrained(headless)
    AutoTokenizer.from_pretrained(data / "bert").save_pretrained(headless)
    encoders = []
    train = DistillationTrainer.train

    def remembered(trainer, *args, **kwargs):
        result = train(trainer, *args, **kwargs)
        encoders.append({name: value.clone() for name, value in trainer.student.state_dict().items()})
        return result

    monkeypatch.setattr(DistillationTrainer, "train", remembered)
    recipe = yaml.safe_load((CONFIGS / "distill_tinybert_general.yaml").read_text(encoding="utf-8"))
    stages = {name: {**options, "num_train_epochs": 1} for name, options in recipe["stages"].items()}
    results = distill(
        tmp_path / "out",
        headless,
        texts,
        "distill_tinybert_general.yaml",
        task="masked-lm",
        stages=json.dumps(stages),
        student_layers=1,
        student_hidden_size=24,
        student_num_attention_heads=AutoModel.from_pretrained(headless).config.num_attention_heads,
        student_intermediate_size=24,
        baseline=False,
    )
    assert set(results["summary"]) == {"distilled"}, "an untrained head has no score"
    assert "to the teacher's" in capsys.readouterr().out
    before, after = encoders
    moved = {name for name, value in before.items() if not torch.equal(value, after[name])}
    assert moved
    assert all(name.startswith("cls.") for name in moved), "the second stage trains what fills masks, and nothing else"
    projections = load_file(tmp_path / "out" / "distill_projections.safetensors")
    assert projections["terms.hidden.fit_dense.weight"].shape == (
        AutoModel.from_pretrained(headless).config.hidden_size,
        24,
    )
    distill(tmp_path / "soft", headless, texts, task="masked-lm", stages='{"a": {"preset": "soft-labels"}}', code=2)
    assert "has no trained head for masked language modelling" in capsys.readouterr().err


def test_the_bilstm_recipe_takes_sizes_and_refuses_what_it_has_not(data, teacher, tmp_path, capsys):  # noqa: F811
    stages = '{"distil": {"preset": "bilstm", "num_train_epochs": 1}}'
    options = {"student_hidden_size": 64, "student_intermediate_size": 20, "stages": stages, "baseline": False}
    distill(tmp_path / "out", teacher, data / "texts.tsv", "distill_bilstm.yaml", **options)
    config = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out").config
    assert (config.hidden_size, config.lstm_size, config.classifier_size) == (64, 32, 20)
    for changed in ({"student_hidden_size": 63}, {"student_layers": 2}, {"student_init": "first"}):
        distill(tmp_path / "no", teacher, data / "texts.tsv", "distill_bilstm.yaml", code=2, **{**options, **changed})
        (name,) = changed
        assert f"`{name}` " in capsys.readouterr().err.splitlines()[-1]


def test_module_replacing_refuses_another_width_before_it_trains(data, teacher, tmp_path, capsys):  # noqa: F811
    options = {"student_layers": 1, "student_hidden_size": 8}
    distill(tmp_path / "out", teacher, data / "texts.tsv", "distill_theseus.yaml", code=2, **options)
    assert "`successor` must have the predecessor's `hidden_size`" in capsys.readouterr().err


def test_each_stage_goes_on_with_the_projections_before_it(data, teacher, tmp_path, monkeypatch):  # noqa: F811
    """TinyBERT's stay with the student: from job to job and from stage to stage."""
    began, ended = [], []
    train = DistillationTrainer.train

    def remembered(trainer, *args, **kwargs):
        began.append(copy.deepcopy(trainer.wrapper.auxiliary_state_dict()))
        result = train(trainer, *args, **kwargs)
        ended.append(copy.deepcopy(trainer.wrapper.auxiliary_state_dict()))
        return result

    monkeypatch.setattr(DistillationTrainer, "train", remembered)
    stage = {"preset": "tinybert-intermediate", "num_train_epochs": 1}
    options = {"baseline": False, "stages": json.dumps({"first": stage, "second": stage})}
    heads = AutoModel.from_pretrained(teacher).config.num_attention_heads
    sizes = {"student_layers": 1, "student_hidden_size": 8 * heads, "student_num_attention_heads": heads}
    distill(tmp_path / "one", teacher, data / "texts.tsv", **options, **sizes)
    distill(tmp_path / "two", teacher, data / "texts.tsv", **options, student_name_or_path=tmp_path / "one")
    assert len(began) == 4
    for before, after in zip(ended, began[1:], strict=False):
        assert before.keys() == after.keys() != set()
        assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("start", ["student", "none", "pre-trained"])
def test_the_student_alone_begins_where_it_is_told(data, teacher, tmp_path, monkeypatch, start):  # noqa: F811
    began = []
    trainer = Distill.trainer
    monkeypatch.setattr(
        Distill, "trainer", lambda job, model, *args: began.append(model) or trainer(job, model, *args)
    )
    stages = '{"distil": {"preset": "soft-labels", "max_steps": 1}}'
    where = data / "bert" if start == "pre-trained" else start
    options = {"student_layers": 1, "student_init": "last", "stages": stages, "baseline_init": where}
    distill(tmp_path / "out", teacher, data / "texts.tsv", **options, max_steps=1)
    student, alone = (model.bert.encoder.layer[0].state_dict() for model in began)
    of = {"student": teacher, "pre-trained": data / "bert"}
    name = "attention.self.query.weight"
    if start == "none":
        assert not torch.equal(alone[name], student[name])
    else:
        layers = AutoModel.from_pretrained(of[start]).encoder.layer
        assert all(torch.equal(alone[name], value) for name, value in layers[-1].state_dict().items())


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        (None, "`baseline_init` = nowhere/to/be/found does not exist"),
        ({"vocab_size": 5000}, "has a vocabulary of 5000, the teacher one of"),
        ({"max_position_embeddings": 16}, "must not exceed the 16 positions of `baseline_init`"),
        ({"num_hidden_layers": 1}, "start: `init` must name layers of the teacher"),
    ],
)
def test_a_wrong_start_is_told_before_a_run(data, teacher, tmp_path, monkeypatch, capsys, sizes, message):  # noqa: F811
    start = tmp_path / "start" if sizes else "nowhere/to/be/found"
    if sizes:
        BertForMaskedLM(BertConfig.from_pretrained(data / "bert", **sizes)).save_pretrained(start)
    monkeypatch.setattr(Distill, "model", lambda *args: pytest.fail("a run has begun"))
    options = {"student_init": "0,1", "stages": '{"distil": {"preset": "soft-labels"}}', "baseline_init": start}
    distill(tmp_path / "out", teacher, data / "texts.tsv", code=2, **options)
    assert message in capsys.readouterr().err.splitlines()[-1]


def test_a_start_of_the_students_own_family_and_another_size(data, teacher, tmp_path, monkeypatch, caplog):  # noqa: F811
    """A pre-trained DistilBERT beside one of the teacher; told by its content when the job goes on."""
    began, model = [], Distill.model
    monkeypatch.setattr(Distill, "model", lambda *args: began.append(model(*args)) or began[-1])
    config = AutoModel.from_pretrained(teacher).config
    sizes = {"vocab_size": config.vocab_size, "dim": 16, "hidden_dim": 16, "n_heads": 2, "n_layers": 2}
    DistilBertModel(DistilBertConfig(**sizes)).save_pretrained(tmp_path / "start")
    options = {"stages": '{"distil": {"preset": "soft-labels"}}', "student_class": "distilbert", "student_layers": 1}
    job = tmp_path / "out", teacher, data / "texts.tsv"
    distill(*job, **options, baseline_init=tmp_path / "start", max_steps=1)
    assert (began[1].config.model_type, began[1].config.dim, began[1].config.n_layers) == ("distilbert", 16, 1)
    assert "for a fair comparison" in caplog.text
    assert "start of the student without the teacher" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    (tmp_path / "start").rename(tmp_path / "moved")
    again = {**options, "max_steps": 1, "resume_from_checkpoint": "auto"}
    distill(*job, **again, baseline_init=tmp_path / "moved")
    distill(*job, **again, baseline_init="none", code=2)


class Stop(BaseException):
    """As if the job were killed."""


def test_a_job_that_was_stopped_after_a_stage_ends_as_the_whole_job_does(data, teacher, tmp_path, monkeypatch):  # noqa: F811
    stages = {
        "intermediate": {"preset": "tinybert-intermediate", "num_train_epochs": 1},
        "prediction": {"preset": "tinybert-prediction", "num_train_epochs": 2},
    }
    options = {"student_layers": 1, "stages": json.dumps(stages), "baseline": False, "save_strategy": "epoch"}
    distill(tmp_path / "whole", teacher, data / "texts.tsv", **options)
    train, began = DistillationTrainer.train, []

    def stopped(trainer, *args, **kwargs):
        began.append(trainer.args.preset)
        if len(began) == 2:
            raise Stop
        return train(trainer, *args, **kwargs)

    parts = tmp_path / "parts"
    with monkeypatch.context() as patch:
        patch.setattr(DistillationTrainer, "train", stopped)
        with pytest.raises(Stop):
            distill(parts, teacher, data / "texts.tsv", **options)
    assert (parts / "_runs" / "seed0_0" / "stage-intermediate" / "finished.json").is_file()
    distill(parts, teacher, data / "texts.tsv", **options, resume_from_checkpoint="auto")
    first, second = (load_file(str(path / "model.safetensors")) for path in (tmp_path / "whole", parts))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
