"""The released TinyBERT on a tiny pair: losses, logits and gradients, through the wrapper."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import BertConfig, BertForSequenceClassification

from hf_ptm_ext.distillation import DistillationModel, preset_objectives, rectify_classifier_input
from tests.tolerance import assert_agrees

pytestmark = pytest.mark.golden
GOLDENS = Path(__file__).resolve().parents[1] / "goldens"
GOLDEN = json.loads((GOLDENS / "tinybert-model-a.json").read_text(encoding="utf-8"))
TOLERANCE = GOLDEN["tolerance"]


@pytest.fixture(scope="module")
def tensors():
    return load_file(GOLDENS / "tinybert-model-a.safetensors")


def side(tensors, name, **fields):
    """Student or teacher, and its `fit_dense`."""
    shared, sizes = GOLDEN["config"], GOLDEN["config"][name]
    config = BertConfig(
        vocab_size=shared["vocab"],
        hidden_size=sizes["hidden"],
        num_hidden_layers=sizes["layers"],
        num_attention_heads=sizes["heads"],
        intermediate_size=sizes["intermediate"],
        max_position_embeddings=shared["max_position"],
        type_vocab_size=shared["type_vocab"],
        layer_norm_eps=shared["layer_norm_eps"],
        num_labels=shared["labels"],
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        **fields,
    )
    state = {key.removeprefix(f"{name}."): value for key, value in tensors.items() if key.startswith(f"{name}.")}
    projection = {key: state.pop(key) for key in list(state) if key.startswith("fit_dense.")}
    model = BertForSequenceClassification(config)
    model.load_state_dict(state)
    return model, projection


def wrapped(tensors, preset):
    student, projection = side(tensors, "student")
    model = DistillationModel(student, side(tensors, "teacher")[0], preset_objectives(preset, student))
    if "intermediate" in preset:
        model.load_auxiliary_state_dict({f"terms.hidden.{name}": value for name, value in projection.items()})
    return model


def inputs(tensors):
    return {key.removeprefix("input."): value for key, value in tensors.items() if key.startswith("input.")}


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_intermediate_losses_and_gradients(tensors, implementation):
    model = wrapped(tensors, "tinybert-intermediate")
    model.model.set_attn_implementation(implementation)
    output = model(**inputs(tensors))
    output.loss.backward()
    for name, key in (("attention_loss", "tinybert.att"), ("hidden_loss", "tinybert.rep")):
        assert_agrees(output[name], GOLDEN["losses"][key], **TOLERANCE, name=name)
    parameters = dict(model.named_parameters())
    gradients = {key: value for key, value in tensors.items() if key.startswith("grad.student.")}
    for key, value in gradients.items():
        name = key.removeprefix("grad.student.")
        name = f"terms.hidden.{name}" if name.startswith("fit_dense") else f"model.{name}"
        assert_agrees(parameters[name].grad, value, **TOLERANCE)
    assert len(gradients) == 4


def test_predictions_of_the_released_classifier(tensors):
    model = wrapped(tensors, "tinybert-prediction")
    handles = [rectify_classifier_input(each) for each in (model.model, *model.teachers.models)]
    output = model(**inputs(tensors))
    assert_agrees(output.logits, tensors["output.student_logits"], **TOLERANCE)
    taught = model.teachers(inputs(tensors))["logits"]
    assert_agrees(taught, tensors["output.teacher_logits"], **TOLERANCE)
    expected = GOLDEN["losses"]["tinybert.pred_soft_ce_T1"]
    assert_agrees(output.soft_label_loss, expected, **TOLERANCE)
    for handle in handles:
        handle.remove()
    assert not torch.allclose(model(**inputs(tensors)).logits, output.logits)
