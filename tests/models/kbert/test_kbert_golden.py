"""K-BERT reproduces the reference: hidden states, poolings, switches, heads and losses."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from hf_ptm_ext.conversion.kbert import convert_config, convert_state_dict, revert_state_dict
from hf_ptm_ext.models.modeling_kbert import (
    KBertForPreTraining,
    KBertForSequenceClassification,
    KBertForTokenClassification,
    KBertModel,
)
from hf_ptm_ext.models.visibility_kbert import SentenceTree, kbert_visible_matrix
from tests.tolerance import assert_agrees

pytestmark = pytest.mark.golden
GOLDENS = Path(__file__).parents[2] / "goldens"


@pytest.fixture(scope="module")
def golden():
    facts = json.loads((GOLDENS / "kbert-a.json").read_text(encoding="utf-8"))
    return facts, load_file(GOLDENS / "kbert-a.safetensors")


def part(tensors, *prefixes):
    return {
        name.removeprefix(prefix): value
        for prefix in prefixes
        for name, value in tensors.items()
        if name.startswith(prefix)
    }


def load(model_class, golden, *heads, attention="eager", **fields):
    """The golden's model with the heads of some of its files, converted as they are."""
    facts, tensors = golden
    config = convert_config({**facts["config"], **fields})
    state = convert_state_dict(part(tensors, "model/", *heads), config)
    if model_class is KBertModel:
        state = {name.removeprefix("bert."): value for name, value in state.items() if name.startswith("bert.")}
    model = model_class._from_config(config, attn_implementation=attention)
    report = model.load_state_dict(state, strict=False)
    assert not report.missing_keys
    assert all(name.startswith(("cls.", "bert.pooler")) for name in report.unexpected_keys)
    return model.eval()


def inputs(golden, check):
    tensors = golden[1]
    names = {"token_type_ids": "segment_ids", "position_ids": "soft_position_ids"}
    ours = ("input_ids", "token_type_ids", "position_ids", "word_index", "branch_id")
    return {name: tensors[f"{check}.in.{names.get(name, name)}"] for name in ours}


def close(got, expected, golden, kind="logits"):
    assert_agrees(got, expected, golden[0]["tolerance"][f"{kind}_atol"])


@pytest.mark.parametrize("check", ["cls", "ner"])
def test_two_numbers_per_token_say_what_the_matrix_says(golden, check):
    given = part(golden[1], f"{check}.in.")
    matrix = kbert_visible_matrix(given["word_index"], given["branch_id"])
    assert torch.equal(matrix, given["visible_matrix"].bool())
    real = given["branch_id"] >= 0
    positions = SentenceTree(real.shape, given["word_index"], given["branch_id"]).soft_positions()
    assert torch.equal(positions[real], given["soft_position_ids"][real])


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("check", ["cls", "ner"])
def test_every_layer_is_the_references(golden, check, attention):
    """Padding included, which attends everywhere there."""
    with torch.no_grad():
        outputs = load(KBertModel, golden, attention=attention)(**inputs(golden, check), output_hidden_states=True)
    assert len(outputs.hidden_states) == 4
    for number, states in enumerate(outputs.hidden_states):
        close(states, golden[1][f"{check}.out.hidden_{number}"], golden, "hidden")


@pytest.mark.parametrize("pooling", ["first", "mean", "max", "last"])
def test_every_pooling_and_its_loss_is_the_references(golden, pooling):
    model = load(KBertForSequenceClassification, golden, "cls_head/", pooling=pooling, labels_num=3)
    with torch.no_grad():
        outputs = model(**inputs(golden, "cls"), labels=golden[1]["cls.in.labels"])
    close(outputs.logits, golden[1][f"cls.out.logits_{pooling}"], golden)
    close(outputs.loss, golden[1][f"cls.out.loss_{pooling}"], golden)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_the_switches_are_the_references(golden, attention):
    load_with = {"attention": attention, "labels_num": 3}
    given, labels = inputs(golden, "cls"), golden[1]["cls.in.labels"]
    with torch.no_grad():
        model = load(KBertForSequenceClassification, golden, "cls_head/", **load_with, no_vm=True)
        outputs = model(**given, labels=labels)
        close(outputs.logits, golden[1]["cls.out.logits_first_no_vm"], golden)
        close(outputs.loss, golden[1]["cls.out.loss_first_no_vm"], golden)
        model = load(KBertForSequenceClassification, golden, "cls_head/", **load_with, use_soft_positions=False)
        close(model(**given).logits, golden[1]["cls.out.logits_first_hard_positions"], golden)
        model = load(KBertForSequenceClassification, golden, "cls_head/", **load_with)
        hard = torch.arange(64).expand(4, 64)
        close(
            model(**{**given, "position_ids": hard}).logits,
            golden[1]["cls.out.logits_first_hard_positions"],
            golden,
        )


def test_the_tagger_and_its_loss_are_the_references(golden):
    """Knowledge counts with the label [ENT], padding (0 there) does not."""
    model = load(KBertForTokenClassification, golden, "ner_head/", labels_num=7)
    labels = golden[1]["ner.in.labels"]
    with torch.no_grad():
        outputs = model(**inputs(golden, "ner"), labels=torch.where(labels > 0, labels, -100))
    close(outputs.logits, golden[1]["ner.out.logits"], golden)
    close(outputs.loss, golden[1]["ner.out.loss"], golden)
    predictions = outputs.logits.argmax(-1)
    assert torch.equal(predictions, golden[1]["ner.out.predictions"])
    assert ((predictions == labels) & (labels > 0)).sum() == golden[1]["ner.out.correct"]


def test_the_pretraining_heads_are_the_references(golden):
    model = load(KBertForPreTraining, golden, pooling="mean")  # which the next-sentence head does not read
    with torch.no_grad():
        outputs = model(**inputs(golden, "cls"))
    close(outputs.prediction_logits[0], golden[1]["cls.out.mlm_logits_row0"], golden)
    close(outputs.seq_relationship_logits, golden[1]["cls.out.nsp_logits"], golden)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_a_model_that_works_as_bert_does_is_the_reference_at_real_tokens(golden, attention):
    """LayerNorms folded, two token types, padding without influence, positions made by the model."""
    ours = {"layer_norm_style": "hf", "reference_padding": False, "type_vocab_size": 2, "attention": attention}
    given = inputs(golden, "cls")
    real = given["branch_id"] >= 0
    del given["position_ids"]
    given["token_type_ids"] = (given["token_type_ids"] - 1).clamp(min=0)
    model = load(KBertModel, golden, **ours)
    with torch.no_grad():
        outputs = model(**given, output_hidden_states=True)
    assert torch.isfinite(outputs.last_hidden_state).all()
    for number, states in enumerate(outputs.hidden_states):
        close(states[real], golden[1][f"cls.out.hidden_{number}"][real], golden, "hidden")
    model = load(KBertForSequenceClassification, golden, "cls_head/", labels_num=3, **ours)
    with torch.no_grad():
        close(model(**given).logits, golden[1]["cls.out.logits_first"], golden)


def test_the_original_comes_back(golden):
    facts, tensors = golden
    config = convert_config(facts["config"])
    for heads in (["model/"], ["model/", "ner_head/"]):
        original = part(tensors, *heads)
        reverted = revert_state_dict(convert_state_dict(original, config), config)
        assert reverted.keys() == original.keys()
        assert all(torch.equal(reverted[name], value) for name, value in original.items())


def test_a_classifier_beside_the_next_sentence_target_is_said(golden, caplog):
    """The two have a first layer each, and the model pools once."""
    facts, tensors = golden
    config = convert_config(facts["config"])
    original = part(tensors, "model/", "cls_head/")
    reverted = revert_state_dict(convert_state_dict(original, config), config)
    assert "target.nsp_linear_1.weight" in caplog.text
    lost = {name for name in original if name.startswith("target.nsp_")}
    assert reverted.keys() == original.keys() - lost
