"""NEZHA reproduces the reference: the golden, and the formulas at other sizes, lengths, reaches and masks."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from hf_ptm_ext.conversion.nezha import convert_config, convert_state_dict, revert_state_dict
from hf_ptm_ext.models.modeling_nezha import NezhaForPreTraining
from tests.models.nezha.reference import Reference
from tests.tolerance import assert_agrees

pytestmark = pytest.mark.golden
GOLDENS = Path(__file__).parents[2] / "goldens"
TOLERANCE = 1e-5  # the golden's own


@pytest.fixture(scope="module")
def golden():
    facts = json.loads((GOLDENS / "nezha-a.json").read_text(encoding="utf-8"))
    tensors = load_file(GOLDENS / "nezha-a.safetensors")
    state = {name.removeprefix("model/"): value for name, value in tensors.items() if name.startswith("model/")}
    return facts, tensors, state


def loaded(state, config, attention):
    model = NezhaForPreTraining._from_config(config, attn_implementation=attention)
    model.load_state_dict(convert_state_dict(state, config))
    return model.eval()


def close(got, expected, double=None):
    assert_agrees(got, expected, TOLERANCE, double=double)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@torch.no_grad()
def test_the_golden(golden, attention):
    facts, tensors, state = golden
    config = convert_config(facts["config"])
    assert facts["tolerance"] == TOLERANCE
    model = loaded(state, config, attention)
    names = ("input_ids", "attention_mask", "token_type_ids")
    inputs = {name: tensors[f"in.{name}"] for name in names}
    outputs = model(**inputs, output_hidden_states=True)
    assert len(outputs.hidden_states) == 4
    for number, states in enumerate(outputs.hidden_states):
        close(states, tensors[f"out.hidden_{number}"])
    close(model.bert(**inputs).pooler_output, tensors["out.pooled"])
    close(outputs.seq_relationship_logits, tensors["out.nsp_logits"])
    close(outputs.prediction_logits, tensors["out.mlm_logits"], model.double()(**inputs).prediction_logits)


def test_the_golden_goes_back_to_its_own_names(golden):
    facts, _, state = golden
    config = convert_config(facts["config"])
    reverted = revert_state_dict(convert_state_dict(state, config), config)
    assert reverted.keys() == state.keys()
    assert all(torch.equal(reverted[name], state[name]) for name in state)


@torch.no_grad()
def test_the_formulas_are_the_references(golden):
    facts, tensors, state = golden
    state = {name: value.double() for name, value in state.items()}
    reference = Reference(state, layers=3, heads=4, reach=facts["config"]["max_relative_position"])
    states = reference.hidden_states(
        tensors["in.input_ids"], tensors["in.attention_mask"], tensors["in.token_type_ids"]
    )
    for number, each in enumerate(states):
        close(each, tensors[f"out.hidden_{number}"])
    vocabulary, sentence, pooled = reference.logits(states[-1])
    close(vocabulary, tensors["out.mlm_logits"])
    close(sentence, tensors["out.nsp_logits"])
    close(pooled, tensors["out.pooled"])


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize(
    ("reach", "length", "heads", "hidden"),
    [
        (1, 13, 4, 32),
        (4, 5, 4, 32),  # every distance within reach
        (64, 17, 2, 24),
        (3, 1, 4, 32),
        (5, 70, 2, 16),  # longer than `max_position_embeddings`: there is no table to run out of
        (6, 11, 4, 20),  # heads of an odd width
    ],
)
@torch.no_grad()
def test_any_reach_length_and_width(attention, reach, length, heads, hidden):
    original = {
        "vocab_size": 90,
        "hidden_size": hidden,
        "num_hidden_layers": 2,
        "num_attention_heads": heads,
        "intermediate_size": 40,
        "max_position_embeddings": 64,
        "max_relative_position": reach,
    }
    config = convert_config(original)
    torch.manual_seed(reach)
    state = revert_state_dict(NezhaForPreTraining(config).state_dict(), config)
    state = {name: value + 0.1 * torch.randn(value.shape) for name, value in state.items()}
    state.pop("cls.predictions.decoder.weight", None)
    ids = torch.randint(1, 90, (3, length))
    types = torch.randint(0, 2, ids.shape)
    mask = torch.ones_like(ids)
    mask[1, length // 2 + 1 :] = 0
    mask[2] = 0  # a row of nothing but padding: everything sees everything
    outputs = loaded(state, config, attention)(ids, mask, types, output_hidden_states=True)
    reference = Reference(state, layers=2, heads=heads, reach=reach)
    states = reference.hidden_states(ids, mask, types)
    for got, expected in zip(outputs.hidden_states, states, strict=True):
        close(got, expected)
    vocabulary, sentence, _ = reference.logits(states[-1])
    close(outputs.prediction_logits, vocabulary)
    close(outputs.seq_relationship_logits, sentence)


@torch.no_grad()
def test_distances_beyond_reach_are_one():
    """A token moved among places that are all out of the first token's reach changes nothing for that token alone."""
    config = convert_config(
        {
            "vocab_size": 50,
            "hidden_size": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "intermediate_size": 16,
            "max_relative_position": 2,
            "initializer_range": 1.0,
        }
    )
    torch.manual_seed(0)
    model = NezhaForPreTraining(config).eval().bert
    first = torch.tensor([[5, 6, 7, 8, 9, 10]])
    swapped = torch.tensor([[5, 6, 7, 10, 9, 8]])
    before, after = model(first).last_hidden_state, model(swapped).last_hidden_state
    close(after[:, 0], before[:, 0])
    assert (after[:, 2] - before[:, 2]).abs().max() > 1e-3
