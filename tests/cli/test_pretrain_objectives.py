"""`hf-ptm-ext pretrain` with orders, units and pairs: recipes run on real text, streams resume, faults have names."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForPreTraining

from hf_ptm_ext import UniLMForPreTraining
from hf_ptm_ext.cli import main
from hf_ptm_ext.cli.pretrain import Pretrain, parse
from hf_ptm_ext.cli.pretraining.masking import WITH_PAIRS
from hf_ptm_ext.trainers import SentencePairModel
from tests.cli.jobs import TINY, flags, read_metrics

XLNET = "d_model=32,n_layer=1,n_head=2,d_inner=64"
# Recipe -> class of the saved model, terms, config.
RECIPES = {
    "xlnet.yaml": ("XLNetLMHeadModel", {"mlm"}, XLNET),
    "ernie_zh.yaml": ("ErnieForMaskedLM", {"mlm"}, TINY),
    "structbert.yaml": ("BertForPreTraining", {"mlm", "structure"}, TINY),
    "albert.yaml": ("AlbertForPreTraining", {"mlm", "sop"}, f"{TINY},embedding_size=16"),
}
ORDER = {
    "objective": "ngram",
    "family": "albert",
    "sentence_pairs": "order",
    "config_overrides": RECIPES["albert.yaml"][2],
}


@pytest.mark.parametrize("recipe", RECIPES)
def test_recipes_run_on_real_text(recipe, tmp_path, capsys):
    cls, terms, config = RECIPES[recipe]
    asked = flags(output_dir=tmp_path / "out", config_overrides=config, warmup_steps=0)
    assert main(["pretrain", recipe, *asked]) == 0
    metrics = read_metrics(tmp_path / "out")
    found = {name[5:-5] for name in metrics if name.startswith("eval_") and name.endswith("_loss")} - {""}
    assert found == terms
    assert all(metrics[f"before_{term}_loss"] > 0 for term in terms)
    if "structure" in terms:
        assert "sentence structure" in capsys.readouterr().out
    assert AutoConfig.from_pretrained(tmp_path / "out").architectures == [cls]


def test_units_of_a_dictionary_are_a_level_of_their_own(tmp_path):
    text, titles = tmp_path / "text.txt", tmp_path / "titles.tsv"
    text.write_text("\n\n".join("the Great Barrier Reef is seen by a Cartoon Art fan" for _ in range(30)), "utf-8")
    titles.write_text("Great Barrier Reef\tQ7343\nart fan\tQ1\ntoon\tQ2\n", encoding="utf-8")
    asked = {"objective": "ernie", "train_file": text, "validation_file": text, "entity_titles": titles}
    words = flags(output_dir=tmp_path / "out", level_weights=["entity=1"], mlm_probability=0.5, **asked)
    job = Pretrain(*parse(words))
    job.prepare()
    trainer, tokenizer = job.build("model", job.training_args)
    row = trainer.train_dataset[0]
    pieces = tokenizer.convert_ids_to_tokens(row["input_ids"])
    units = {}
    for piece, unit in zip(pieces, row["entity_unit_ids"], strict=True):
        units.setdefault(unit, []).append(piece)
    found = ["".join(unit).replace("##", "") for number, unit in sorted(units.items()) if number >= 0]
    assert found == ["the", "greatbarrierreef", "is", "seen", "by", "a", "cartoon", "artfan"]
    # What is hidden of a title is all of it.
    place = [number for number, unit in enumerate(row["entity_unit_ids"]) if unit == 1]
    labels = trainer.data_collator([row] * 50)["labels"][:, place]
    hidden = (labels != -100).sum(1)
    assert set(hidden.tolist()) == {0, len(place)}


def test_attention_modes_of_unilm_are_drawn_as_asked(tmp_path):
    asked = {"objective": "unilm", "corpus": "en", "vocab_size": 400, "max_train_rows": 40}
    words = flags(output_dir=tmp_path / "out", mode_probabilities=["seq2seq=3", "left-to-right=1"], **asked)
    job = Pretrain(*parse(words))
    job.prepare()
    trainer, _ = job.build("model", job.training_args)
    assert trainer.data_collator.mode_probabilities == {"seq2seq": 0.75, "left-to-right": 0.25}
    # An encoder that was converted, without a head for next sentences, gets one.
    trainer.model.config.next_sentence_prediction = False
    UniLMForPreTraining(trainer.model.config).save_pretrained(tmp_path / "unilm")
    trainer.processing_class.save_pretrained(tmp_path / "unilm")
    found = Pretrain(*parse([*words, *flags(model_name_or_path=tmp_path / "unilm")]))
    found.prepare()
    assert found.build("model", found.training_args)[0].model.config.next_sentence_prediction


def test_stages_of_levels_follow_the_batches(tmp_path):
    asked = {"objective": "ernie", "corpus": "zh", "segmenter": "jieba", "vocab_size": 3000}
    words = flags(output_dir=tmp_path, level_schedule=["0:basic=1", "2:phrase=1"], **asked)
    job = Pretrain(*parse(words))
    assert job.objective.weights() == {"schedule": ((0, {"basic": 1.0}), (2, {"phrase": 1.0}))}
    assert job.objective.levels == {"phrase": "phrase_ids"}


@pytest.mark.parametrize(
    "asked",
    [
        ORDER,
        {"objective": "word_order", "sentence_pairs": "structure"},
        {"objective": "mlm", "family": "nezha", "sentence_pairs": "next", "pack_rows": True, "row_length": 96},
    ],
)
def test_streams_of_pairs_resume_exactly(asked, tmp_path):
    asked = {**asked, "streaming": True, "max_train_rows": None, "max_steps": 4, "save_total_limit": 5}
    whole, again = tmp_path / "whole", tmp_path / "again"
    assert main(["pretrain", *flags(output_dir=whole, **asked)]) == 0
    state = json.loads((whole / "checkpoint-2" / "data_state_0.json").read_text("utf-8"))
    assert state["stream"]["settings"]["pairs"]["kind"] == asked["sentence_pairs"]
    shutil.copytree(whole / "checkpoint-2", again / "checkpoint-2")
    go_on = {"resume_from_checkpoint": again / "checkpoint-2", "overwrite": True}
    assert main(["pretrain", *flags(output_dir=again, **asked, **go_on)]) == 0
    ours, theirs = load_file(again / "model.safetensors"), load_file(whole / "model.safetensors")
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_third_class_goes_on_from_the_folder(tmp_path, caplog):
    asked = {"objective": "word_order", "sentence_pairs": "structure"}
    assert main(["pretrain", *flags(output_dir=tmp_path / "one", **asked)]) == 0
    more = {**asked, "config_overrides": None, "vocab_size": None, "model_name_or_path": tmp_path / "one"}
    assert main(["pretrain", *flags(output_dir=tmp_path / "two", **more)]) == 0
    before, after = read_metrics(tmp_path / "two"), read_metrics(tmp_path / "one")
    assert before["before_structure_loss"] == pytest.approx(after["eval_structure_loss"], rel=1e-5)
    # The plain folder is upstream's, and what was beside it does not go with another objective.
    assert AutoModelForPreTraining.from_pretrained(tmp_path / "one").cls.seq_relationship.weight.shape == (2, 32)
    plain = {**more, "sentence_pairs": "next", "objective": "mlm", "output_dir": tmp_path / "three"}
    assert main(["pretrain", *flags(**plain)]) == 0
    assert not (tmp_path / "three" / "auxiliary_heads.safetensors").exists()


def test_architectures_of_transformers_start_from_nothing(tmp_path):
    asked = {"objective": "mlm", "family": "roberta", "max_seq_length": 512, "max_train_rows": 8, "max_eval_rows": 2}
    assert main(["pretrain", *flags(output_dir=tmp_path, **asked, per_device_train_batch_size=1)]) == 0
    assert AutoConfig.from_pretrained(tmp_path).max_position_embeddings == 514


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--objective ngram --sentence_pairs order", "ernie, megatron-bert, mobilebert; got spanbert: name one"),
        ("--objective ngram --family nezha --sentence_pairs structure", "= structure goes with albert"),
        ("--objective span --sentence_pairs order", "`sentence_pairs` = order is none of objective span"),
        ("--objective unilm --sentence_pairs order", "`sentence_pairs` = order is none of objective unilm"),
        ("--objective electra --sentence_pairs next", "that hide tokens of an encoder, got electra"),
        ("--next_sentence_prediction true --sentence_pairs order", "is `sentence_pairs` = next, got order"),
        ("--objective electra --generator_name_or_path /no/where", "`generator_name_or_path` = /no/where does"),
        ("--objective infoword --family t5", "What `family` or `config_name` names is a T5"),
        ("--objective ernie --segmenter jieba --level_weights basic=nan", "that are not negative and not all 0, got"),
        ("--objective permutation --pack_rows true", "`pack_rows` must be off with objective permutation"),
        ("--objective permutation --family bert", "trains XLNet models, got a bert model"),
        ("--objective ernie", "phrases of `segmenter` or entities of `entity_titles`, got None and None"),
        ("--objective ernie --entity_titles /nowhere", "`entity_titles` = /nowhere is no file here"),
        ("--objective ernie --segmenter jieba --level_weights entity=1", "levels among basic, phrase weights"),
        ("--objective ernie --segmenter jieba --level_weights basic", "such as basic=1,phrase=2, got 'basic'"),
        ("--objective unilm --mode_probabilities seq=1", "modes among bidirectional, left-to-right"),
        ("--objective ernie --segmenter jieba --level_schedule 5:basic=1 0:phrase=1", "must be batches in order"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_named(words, message, tmp_path, capsys):
    given = flags(output_dir=tmp_path / "out", config_overrides=None)
    assert main(["pretrain", *given, *words.split()]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("family", WITH_PAIRS)
def test_every_architecture_of_pairs_has_both_heads(family):
    more = {
        "albert": {"embedding_size": 16},
        "big_bird": {"attention_type": "original_full"},
        "mobilebert": {"intra_bottleneck_size": 16, "embedding_size": 32},
    }
    config = AutoConfig.for_model(
        family, vocab_size=40, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64,
        **more.get(family, {}),
    )  # fmt: skip
    model = SentencePairModel(AutoModelForPreTraining.from_config(config), kind="structure").eval()
    ids = torch.arange(5, 15)[None]
    output = model(ids, torch.ones_like(ids), ids, next_sentence_label=torch.tensor([2]))
    assert output.sentence_logits.shape == (1, 3)
    output.loss.backward()
