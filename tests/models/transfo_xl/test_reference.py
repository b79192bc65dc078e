"""Transformer-XL against its golden, and against the formulas at every option."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from hf_ptm_ext import TransfoXLConfig, TransfoXLLMHeadModel
from hf_ptm_ext.conversion.transfo_xl import convert_config, convert_state_dict
from tests.models.transfo_xl.reference import reference
from tests.tolerance import assert_agrees

GOLDENS = Path(__file__).parents[2] / "goldens"
SIZES = {"vocab_size": 50, "cutoffs": [12, 30], "d_model": 16, "d_embed": 16, "n_head": 2, "d_head": 8, "d_inner": 24}
SIZES |= {"n_layer": 2, "div_val": 2, "mem_len": 6, "clamp_len": 7, "same_length": True, "untie_r": True}
SIZES |= {"pre_lnorm": False, "layer_norm_epsilon": 1e-5, "proj_share_all_but_first": True}
OPTIONS = [
    {},
    {"same_length": False},
    {"clamp_len": -1, "same_length": False},
    {"untie_r": False},
    {"pre_lnorm": True},
    {"div_val": 1},
    {"div_val": 1, "d_embed": 12},
    {"div_val": 1, "d_embed": 12, "proj_share_all_but_first": False},
    {"d_embed": 24, "d_head": 5},
    {"cutoffs": []},
    {"cutoffs": [], "div_val": 1, "d_embed": 8},
    {"proj_share_all_but_first": False, "tie_word_embeddings": False},
    {"mem_len": 0, "same_length": False},
    {"mem_len": 20, "pre_lnorm": True, "same_length": False},
]


@pytest.fixture(scope="module")
def golden():
    facts = json.loads((GOLDENS / "transfo-xl-a.json").read_text(encoding="utf-8"))
    return facts, load_file(GOLDENS / "transfo-xl-a.safetensors")


def made(config, **options):
    """A model with weights of some size."""
    torch.manual_seed(0)
    model = TransfoXLLMHeadModel._from_config(config, **options).eval()
    with torch.no_grad():
        for value in model.parameters():
            value.add_(0.2 * torch.randn_like(value))
    return model


def check(model, ids, mems, expected, tolerance):
    outputs = model(ids, mems=mems, output_hidden_states=True)
    hidden, logs, new = expected
    assert len(outputs.hidden_states) == len(hidden)
    for ours, theirs in zip([*outputs.hidden_states, outputs.logits], [*hidden, logs], strict=True):
        assert_agrees(ours, theirs, *tolerance)
    for ours, theirs in zip(outputs.mems or [], new if outputs.mems else [], strict=True):
        assert_agrees(ours, theirs, *tolerance)
    by_labels = model(ids, mems=mems, labels=ids)
    losses = -logs[:, :-1].gather(2, ids[:, 1:, None]).squeeze(2)
    assert_agrees(by_labels.losses, losses, *tolerance)
    assert_agrees(by_labels.loss, losses.mean(), *tolerance)
    return outputs.mems


@pytest.mark.golden
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@torch.no_grad()
def test_the_golden(golden, attention):
    facts, tensors = golden
    tolerance = facts["tolerance"]["atol"], facts["tolerance"]["rtol"]
    config = convert_config(facts["config"])
    state = {name.removeprefix("sd."): value for name, value in tensors.items() if name.startswith("sd.")}
    model = TransfoXLLMHeadModel._from_config(config, attn_implementation=attention).eval()
    model.load_state_dict(convert_state_dict(state, config))
    for target, source in facts["scalars"]["tied"]:
        assert model.get_parameter(target) is model.get_parameter(source)
    mems = None
    for name in ("seg0", "seg1"):
        ids = tensors[f"in.{name}.input_ids"].long()
        hidden = [tensors[f"out.{name}.hidden.{layer}"] for layer in range(3)]
        new = [tensors[f"out.{name}.mems.{layer}"] for layer in range(2)]
        own = reference({**state, **{a: state[b] for a, b in facts["scalars"]["tied"]}}, facts["config"], ids, mems)
        before, mems = mems, check(model, ids, mems, (hidden, tensors[f"out.{name}.logprobs"], new), tolerance)
        losses = model(ids, labels=ids, mems=before)
        assert_agrees(losses.loss, facts["scalars"][f"{name}.loss"], *tolerance)
        ours, theirs = losses.losses.flatten().sort()[0], tensors[f"out.{name}.token_losses"].flatten().sort()[0]
        assert_agrees(ours, theirs, *tolerance)
        assert_agrees(own[1], tensors[f"out.{name}.logprobs"], *tolerance)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: " ".join(map(str, options.items())) or "defaults")
@torch.no_grad()
def test_every_option_is_the_reference(options, attention):
    fields = {**SIZES, **options}
    model = made(TransfoXLConfig(**fields), attn_implementation=attention)
    state = dict(model.state_dict())
    ids = torch.randint(0, 50, (2, 27), generator=torch.Generator().manual_seed(1))
    mems, theirs = None, None
    for segment in ids.split((9, 4, 14), dim=1):
        expected = reference(state, fields, segment, theirs)
        mems, theirs = check(model, segment, mems, expected, (2e-5, 1e-4)), expected[2]
        theirs = theirs if fields["mem_len"] else None
