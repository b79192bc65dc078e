"""K-Adapter's golden: features, both objectives, every way to join, from the original's tensors."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from hf_ptm_ext.conversion.k_adapter import convert_config, convert_state_dict, revert_state_dict
from hf_ptm_ext.models.modeling_k_adapter import (
    KAdapterForDependencyHeads,
    KAdapterForRelationClassification,
    KAdapterModel,
)
from tests.tolerance import assert_agrees

pytestmark = pytest.mark.golden
FOLDER = Path(__file__).parents[2] / "goldens"
GOLDEN = json.loads((FOLDER / "k-adapter-a.json").read_text(encoding="utf-8"))
T = load_file(str(FOLDER / "k-adapter-a.safetensors"))
TOLERANCE = {"rtol": GOLDEN["tolerance"]["rtol"], "atol": GOLDEN["tolerance"]["atol"]}
STATES = tuple(T[f"in.hidden_states.{layer}"] for layer in range(GOLDEN["config"]["base_layers"] + 1))
MASK = T["in.attention_mask"]


def original(part):
    return {key.removeprefix(f"{part}/"): value for key, value in T.items() if key.startswith(f"{part}/")}


def config(*adapters, **more):
    return convert_config({**GOLDEN["config"], "adapters": list(adapters), **more})


def loaded(cls, part, name):
    model = cls(config(name)).eval()
    converted = convert_state_dict(original(part), model.config)
    report = model.load_state_dict(converted, strict=False)
    assert not report.unexpected_keys
    assert all(key.startswith("k_adapter.encoder.") for key in report.missing_keys)
    reverted = revert_state_dict(model.state_dict(), model.config)
    assert reverted.keys() == original(part).keys()
    assert all(torch.equal(reverted[key], value) for key, value in original(part).items())
    return model


@torch.no_grad()
def test_relation_classification_is_the_references():
    model = loaded(KAdapterForRelationClassification, "fac_adapter", "fac")
    features = model.k_adapter(encoder_hidden_states=STATES, attention_mask=MASK).adapter_features[0]
    assert_agrees(features, T["out.fac.adapter_features"], **TOLERANCE)
    output = model(
        encoder_hidden_states=STATES,
        attention_mask=MASK,
        subject_positions=T["in.subject_start_onehot"].argmax(1),
        object_positions=T["in.object_start_onehot"].argmax(1),
        labels=T["in.relation_labels"],
    )
    assert_agrees(output.logits, T["out.fac.logits"], **TOLERANCE)
    assert_agrees(output.loss, T["out.fac.loss"], **TOLERANCE)


@torch.no_grad()
def test_head_prediction_is_the_references():
    model = loaded(KAdapterForDependencyHeads, "lin_adapter", "lin")
    features = model.k_adapter(encoder_hidden_states=STATES, attention_mask=MASK).adapter_features[0]
    assert_agrees(features, T["out.lin.adapter_features"], **TOLERANCE)
    output = model(encoder_hidden_states=STATES, attention_mask=MASK, labels=T["in.head_labels"])
    assert_agrees(output.logits, T["out.lin.logits"], **TOLERANCE)
    assert_agrees(output.loss, T["out.lin.loss"], **TOLERANCE)


@torch.no_grad()
@pytest.mark.parametrize(
    ("name", "adapters", "fusion"),
    [
        ("concat_both", ("fac", "lin"), "concat"),
        ("concat_fac_only", ("fac",), "concat"),
        ("concat_lin_only", ("lin",), "concat"),
        ("add_both", ("fac", "lin"), "add"),
    ],
)
def test_every_way_to_join_is_the_references(name, adapters, fusion):
    model = KAdapterModel(config(*adapters, fusion_mode=fusion)).eval()
    state = {}
    for adapter in adapters:
        parts = {key: value for key, value in original(f"{adapter}_adapter").items() if key.startswith("adapter.")}
        state.update(convert_state_dict(parts, config(adapter)))
    if fusion == "concat":
        wanted = {f"task_dense_{adapter}" for adapter in adapters} | ({"task_dense"} if len(adapters) > 1 else set())
        task = {key: value for key, value in original("task").items() if key.rpartition(".")[0] in wanted}
        state.update(convert_state_dict(task, model.config))
    report = model.load_state_dict(
        {key.removeprefix("k_adapter."): value for key, value in state.items()}, strict=False
    )
    assert not report.unexpected_keys
    assert all(key.startswith("encoder.") for key in report.missing_keys)
    output = model(encoder_hidden_states=STATES, attention_mask=MASK)
    assert_agrees(output.last_hidden_state, T[f"out.fusion.{name}"], **TOLERANCE)
