"""ULMFiT by jobs: its schedules as options of every job, and its three stages as one recipe."""

import json

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer, BertConfig, BertForMaskedLM

from hf_ptm_ext import ElmoConfig, ElmoModel, ElmoTokenizer
from hf_ptm_ext.cli import distill, finetune, main
from hf_ptm_ext.data import train_wordpiece
from hf_ptm_ext.files import read_json
from hf_ptm_ext.trainers import GradualUnfreezingCallback

GOOD, BAD = ("bright", "warm", "kind", "glad"), ("dark", "cold", "cruel", "sad")
COMMON = "--use_cpu true --disable_tqdm true --report_to none --max_seq_length 24 --seeds 0 --save_strategy no"
ULMFIT = "--lr_schedule slanted_triangular --layer_decay 2.6 --gradual_unfreezing 1"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Sentences with their class, and with the tags of their words; an ELMo and a BERT."""
    folder = tmp_path_factory.mktemp("data")
    rows, tagged = [], []
    for number in range(64):
        word, place = (GOOD, BAD)[number % 2][number // 2 % 4], ("harbour", "mountain", "town")[number % 3]
        rows.append({"text": f"the light in the {place} was {word}", "label": ("good", "bad")[number % 2]})
        tags = ["O", "O", "O", "O", "B-PLACE", "O", ("B-GOOD", "B-BAD")[number % 2]]
        tagged.append({"tokens": rows[-1]["text"].split(), "tags": tags})
    for name, found in (("rows", rows), ("tagged", tagged)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in found), encoding="utf-8")
    texts = [row["text"] for row in rows]
    torch.manual_seed(0)
    sizes = {"filters": [[1, 16], [2, 16], [3, 16]], "cell_size": 48, "projection_dim": 24, "n_layers": 1}
    ElmoModel(ElmoConfig(vocab_size=404, **sizes)).save_pretrained(folder / "elmo")
    ElmoTokenizer([f"word{number}" for number in range(400)]).save_pretrained(folder / "elmo")
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    tokenizer = train_wordpiece([texts], 200, model_max_length=32)
    BertForMaskedLM(BertConfig(vocab_size=len(tokenizer), **sizes)).save_pretrained(folder / "bert")
    tokenizer.save_pretrained(folder / "bert")
    return folder


def words_of(data, model, output, *more, rows="rows"):
    file = str(data / f"{rows}.jsonl")
    names = ["--model_name_or_path", str(data / model), "--train_file", file, "--test_file", file]
    return [*names, "--output_dir", str(output), *COMMON.split(), *more]


def test_the_options_reach_the_trainer_of_a_job(data, tmp_path):
    options = [*ULMFIT.split(), "--config_overrides", "hidden_dropout_prob=0.25", "--learning_rate", "0.01"]
    words = words_of(data, "bert", tmp_path, "--task", "classification", "--num_train_epochs", "5", *options)
    job = finetune.Finetune(*finetune.parse(words))
    job.prepare()
    trainer, _ = job.build(job.variants[0], job.training_args)
    assert trainer.model.config.hidden_dropout_prob == trainer.model.bert.embeddings.dropout.p == 0.25
    assert any(isinstance(one, GradualUnfreezingCallback) for one in trainer.callback_handler.callbacks)
    trainer.create_optimizer_and_scheduler(100)
    highest = sorted({group["initial_lr"] for group in trainer.optimizer.param_groups})
    assert highest == pytest.approx([0.01 / 2.6**n for n in (3, 2, 1, 0)])
    assert trainer._get_learning_rate() == pytest.approx(0.01 / 32)
    assert trainer.lr_scheduler.lr_lambdas[0](10) == 1.0  # a tenth of the updates


@pytest.mark.parametrize(
    ("job", "options", "message"),
    [
        ("finetune", "--lr_schedule triangular", "slanted_triangular"),
        ("finetune", "--lr_schedule slanted_triangular --lr_scheduler_type cosine", "takes the place of"),
        ("finetune", "--lr_schedule slanted_triangular --warmup_steps 0", "rises in `warmup_steps`, got 0"),
        ("finetune", "--layer_decay 0", "layer_decay"),
        ("finetune", "--gradual_unfreezing 0", "gradual_unfreezing"),
        ("finetune", "--config_overrides nothing=1", "names 'nothing', which BertConfig does not have"),
        ("adapt", "--layer_decay 2.6", "adapters are new"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(data, tmp_path, capsys, job, options, message):
    words = words_of(data, "bert", tmp_path / "out", "--task", "classification", *options.split())
    assert main([job, *words]) == 2
    assert message in capsys.readouterr().err


def test_a_distillation_refuses_them(data, tmp_path):
    words = words_of(data, "bert", tmp_path, "--task", "classification", "--stages", '{"a": {"preset": "minilm"}}')
    words[0] = "--teacher_name_or_path"
    with pytest.raises(ValueError, match="`gradual_unfreezing` is nothing of a distillation, got 1"):
        distill.parse([*words, "--gradual_unfreezing", "1"])


@pytest.mark.parametrize(("task", "rows", "epochs"), [("classification", "rows", 12), ("tagging", "tagged", 25)])
def test_elmo_is_fine_tuned_on_words_that_its_softmax_lacks(data, tmp_path, capsys, task, rows, epochs):
    output = tmp_path / "out"
    options = (
        f"--task {task} --num_train_epochs {epochs} --learning_rate 0.02 --per_device_train_batch_size 16".split()
    )
    assert main(["finetune", *words_of(data, "elmo", output, *options, rows=rows)]) == 0
    assert "unknown" not in capsys.readouterr().err
    scores = read_json(output / "results.json")["summary"]["fine-tuned"]
    assert scores["accuracy"]["mean"] > 0.95
    assert AutoTokenizer.from_pretrained(output)("was kind")["input_ids"][1][:3] == [259, 108, 106]


@pytest.mark.slow
def test_the_recipe_runs_its_three_stages(data, tmp_path):
    text = tmp_path / "general.txt"
    lines = [f"the {place} was {word} in the light" for place in ("sea", "town") for word in GOOD + BAD]
    text.write_text("\n\n".join(lines * 12), encoding="utf-8")
    file, output = str(data / "rows.jsonl"), tmp_path / "out"
    small = {"max_seq_length": 24, "use_cpu": True, "disable_tqdm": True, "report_to": "none"}
    changes = {
        "general.train_file": text,
        "general.config_overrides": "embedding_size=16,lstm_size=24,num_hidden_layers=2",
        "general.num_train_epochs": 1,
        "general.per_device_train_batch_size": 8,
        "general.per_device_eval_batch_size": 2,
        "target_text.train_file": file,
        "target_text.num_train_epochs": 2,
        "target_text.per_device_train_batch_size": 8,
        "target_text.per_device_eval_batch_size": 2,
        "classifier.train_file": file,
        "classifier.test_file": file,
        "classifier.num_train_epochs": 8,
        "classifier.per_device_train_batch_size": 8,
        "classifier.seeds": 0,
    }
    words = [word for name, value in changes.items() for word in (f"--stages.{name}", str(value))]
    words += ["--common", json.dumps(small), "--output_dir", str(output)]
    assert main(["stages", "ulmfit.yaml", *words]) == 0
    general, target = (load_file(output / stage / "model.safetensors") for stage in ("general", "target_text"))
    assert general.keys() == target.keys()
    assert any(not torch.equal(value, target[name]) for name, value in general.items())
    tokenizers = [AutoTokenizer.from_pretrained(output / stage) for stage in ("general", "target_text", "classifier")]
    assert len({json.dumps(one.get_vocab(), sort_keys=True) for one in tokenizers}) == 1
    config = AutoConfig.from_pretrained(output / "classifier")
    assert (config.weight_p, config.embed_p, config.id2label) == (0.5, 0.05, {0: "bad", 1: "good"})
    assert AutoConfig.from_pretrained(output / "target_text").weight_p == 0.2
    model = AutoModelForSequenceClassification.from_pretrained(output / "classifier")
    assert model(**tokenizers[2](["it was kind"], return_tensors="pt")).logits.shape == (1, 2)
    assert read_json(output / "stages.json")["stages"][2]["from"] == ["target_text"]
