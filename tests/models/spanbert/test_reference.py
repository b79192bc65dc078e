"""Equality with the reference's arithmetic beyond the golden: rows of nothing but padding, no pairs, other sizes."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from hf_ptm_ext.conversion.spanbert import convert_config, convert_state_dict, revert_state_dict
from hf_ptm_ext.models.configuration_spanbert import SpanBertConfig
from hf_ptm_ext.models.modeling_spanbert import SpanBertForPreTraining
from tests.models.spanbert.reference import Reference, reference_losses
from tests.tolerance import assert_agrees

pytestmark = pytest.mark.golden
GOLDENS = Path(__file__).parents[2] / "goldens"
HIDDEN, LOGITS, LOSS = 2e-5, 5e-5, 2e-5


def without_prefix(state):
    return {name.removeprefix("decoder."): value for name, value in state.items()}


@pytest.fixture(scope="module")
def tensors():
    return load_file(GOLDENS / "spanbert-a.safetensors")


@pytest.fixture(scope="module")
def description():
    return json.loads((GOLDENS / "spanbert-a.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def original(tensors):
    return {name.removeprefix("sd."): value for name, value in tensors.items() if name.startswith("sd.")}


@pytest.fixture(scope="module")
def reference(original, description):
    sizes = description["config"]
    return Reference(without_prefix(original), sizes["num_hidden_layers"], sizes["num_attention_heads"])


@pytest.fixture
def golden_model(original, description):
    config = convert_config(description["config"])
    model = SpanBertForPreTraining(config)
    model.load_state_dict(convert_state_dict(original, config), strict=True)
    return model.eval()


def inputs_of(tensors):
    ids = tensors["in.src_tokens"]
    inputs = {"input_ids": ids, "attention_mask": (ids != 0).long(), "token_type_ids": tensors["in.segment_labels"]}
    labels, span_labels = (
        torch.where(tensors[name] == 0, -100, tensors[name]) for name in ("in.lm_target", "in.pair_targets")
    )
    return inputs, {"labels": labels, "span_boundaries": tensors["in.pairs"], "span_labels": span_labels}


def states_of(reference, inputs):
    return reference.hidden_states(inputs["input_ids"], inputs["attention_mask"], inputs["token_type_ids"])


@torch.no_grad()
def check(model, reference, inputs, targets):
    states = states_of(reference, inputs)
    output = model(**inputs, **targets, output_hidden_states=True)
    for got, expected in zip(output.hidden_states, states, strict=True):
        assert_agrees(got, expected, HIDDEN)
    logits = {
        "token": reference.token_logits(states[-1]),
        "boundary": reference.boundary_logits(states[-1], targets["span_boundaries"]),
    }
    assert_agrees(output.prediction_logits, logits["token"], LOGITS)
    assert_agrees(output.boundary_logits, logits["boundary"], LOGITS)
    if "next_sentence_label" in targets:
        logits["sentence"] = reference.sentence_logits(states[-1])
        assert_agrees(output.seq_relationship_logits, logits["sentence"], LOGITS)
    for name, value in reference_losses(logits, targets).items():
        assert_agrees(output[name], value, LOSS, name=name)


def test_the_functions_are_the_reference(reference, tensors):
    """The golden's own tensors: what the checks below compare with is not of our making."""
    states = states_of(reference, inputs_of(tensors)[0])
    for layer in (1, 2):
        assert_agrees(states[layer], tensors[f"out.hidden.{layer}"], HIDDEN)
    assert_agrees(reference.token_logits(states[-1]), tensors["out.mlm_logits"], LOGITS)
    boundary = reference.boundary_logits(states[-1], tensors["in.pairs"]).flatten(0, 1)
    assert_agrees(boundary, tensors["out.sbo_logits"], LOGITS)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("empty", [(), (0,), (1,), (2,), (0, 2), (0, 1, 2)])
def test_rows_of_nothing_but_padding(golden_model, reference, tensors, attention, empty):
    """The reference adds -10000 to all scores of such a row, which rounds them to about 1e-3."""
    golden_model.set_attn_implementation(attention)
    inputs, targets = inputs_of(tensors)
    inputs["attention_mask"][list(empty)] = 0
    check(golden_model, reference, inputs, targets)


@pytest.mark.parametrize("empty", [(), (1,)])
def test_rows_without_any_pair(golden_model, reference, tensors, empty):
    inputs, targets = inputs_of(tensors)
    inputs["attention_mask"][list(empty)] = 0
    targets["span_boundaries"] = torch.zeros_like(targets["span_boundaries"])
    targets["span_labels"] = torch.full_like(targets["span_labels"], -100)
    check(golden_model, reference, inputs, targets)
    with torch.no_grad():
        assert golden_model(**inputs, **targets).sbo_loss == 0


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize(
    ("layers", "heads", "activation"), [(1, 2, "relu"), (3, 3, "relu"), (3, 6, "gelu"), (1, 4, "gelu")]
)
@pytest.mark.parametrize("sentence", [False, True])
def test_other_sizes(attention, layers, heads, activation, sentence):
    torch.manual_seed(layers + heads)
    config = SpanBertConfig(
        vocab_size=83,
        hidden_size=24 if heads != 4 else 64,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=56,
        hidden_act=activation,
        max_position_embeddings=40,
        max_pair_targets=3,
        next_sentence_prediction=sentence,
        layer_norm_eps=1e-6,
    )
    model = SpanBertForPreTraining(config).eval()
    model.set_attn_implementation(attention)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape) * 0.15)
    state = without_prefix(revert_state_dict(model.state_dict(), config))
    reference = Reference(state, layers, heads, activation, config.layer_norm_eps)

    ids = torch.randint(5, 83, (4, 11))
    mask = (torch.arange(11) < torch.tensor([[11], [7], [0], [1]])).long()
    labels = torch.where(torch.rand(ids.shape) < 0.3, ids, -100)
    span_labels = torch.full((4, 2, 3), -100)
    span_labels[0, 0, :2], span_labels[1, 1, 0] = torch.tensor([7, 9]), 11
    boundaries = torch.tensor([[[1, 4], [0, 0]], [[2, 4], [4, 6]], [[0, 0], [0, 0]], [[0, 0], [0, 0]]])
    targets = {"labels": labels, "span_boundaries": boundaries, "span_labels": span_labels}
    if sentence:
        targets["next_sentence_label"] = torch.tensor([0, 1, -100, 1])
    inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.randint(2, ids.shape)}
    check(model, reference, inputs, targets)


@torch.no_grad()
def test_an_empty_row_in_half_precision_and_under_compile(golden_model, tensors):
    """Defined there too, near the reference: the other rows to a rounding, the empty one to the scores' 1e-3."""
    inputs, _ = inputs_of(tensors)
    inputs["attention_mask"][1] = 0
    expected = golden_model.bert(**inputs).last_hidden_state
    torch._dynamo.reset()
    compiled = torch.compile(golden_model.bert, backend="eager", fullgraph=True)(**inputs).last_hidden_state
    torch._dynamo.reset()
    assert_agrees(compiled[[0, 2]], expected[[0, 2]], HIDDEN)
    assert_agrees(compiled[1], expected[1], 1e-3)
    half = golden_model.to(torch.bfloat16).bert(**inputs).last_hidden_state
    assert torch.isfinite(half).all()
    assert (half[[0, 2]].float() - expected[[0, 2]]).abs().mean() < 0.05
