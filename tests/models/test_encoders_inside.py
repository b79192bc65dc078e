"""Models on an encoder of another kind hand on what its forward names, and masks that mean the same to it."""

import functools
from typing import Any

import pytest
import torch
from torch import nn
from transformers import BertConfig

from hf_ptm_ext import (
    DistilledBiLstmConfig,
    DistilledBiLstmModel,
    KAdapterConfig,
    KAdapterForDependencyHeads,
    KAdapterForSequenceClassification,
    KAdapterModel,
    SanConfig,
    SanForSequenceClassification,
    WeightedLayersConfig,
    WeightedLayersModel,
)
from hf_ptm_ext.models.composite_core import _inputs_of
from tests.conformance.family import assert_same
from tests.conformance.masks import bad_forms, query_forms, some_see, token_forms

IDS = torch.tensor([[2, 50, 7, 51, 8, 3], [2, 50, 51, 3, 0, 0]])
MASK = (IDS != 0).long()
SIZES = {
    "vocab_size": 60,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
ADAPTERS = {
    "adapter_layers": [1],
    "adapter_hidden_size": 16,
    "adapter_num_attention_heads": 2,
    "adapter_num_hidden_layers": 1,
    "adapter_intermediate_size": 32,
}


def composite(cls: type, encoder: str, attention: str) -> Any:
    torch.manual_seed(3)
    fields = {} if cls is WeightedLayersModel else {**ADAPTERS, "respect_padding": True, "adapters": ["fac"]}
    config_class = WeightedLayersConfig if cls is WeightedLayersModel else KAdapterConfig
    config = config_class(encoder_config={"model_type": encoder, **SIZES}, **fields)
    return cls._from_config(config, attn_implementation=attention).eval()


@torch.no_grad()
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("encoder", ["bert", "nezha"])
@pytest.mark.parametrize("cls", [KAdapterModel, WeightedLayersModel])
def test_masks_mean_the_same_in_every_form(cls, encoder, attention):
    model = composite(cls, encoder, attention)
    real = MASK.bool()
    padding, pattern = real[:, None].expand(-1, 6, -1), some_see(MASK)
    expected = model(IDS, attention_mask=MASK).last_hidden_state
    for name, mask in token_forms(MASK).items():
        assert_same(model(IDS, attention_mask=mask).last_hidden_state, expected, 1e-6, name)
    added = torch.zeros(2, 1, 6, 6).masked_fill(~pattern[:, None], -1e30)
    others = composite(cls, encoder, "eager")(IDS, attention_mask=added).last_hidden_state
    shown = model(IDS, attention_mask=padding).last_hidden_state
    assert_same(shown[real], expected[real], 1e-5, "padding by queries")
    for seen, wanted in ((padding, shown), (pattern, others)):
        for name, mask in query_forms(seen).items():
            assert_same(model(IDS, attention_mask=mask).last_hidden_state[real], wanted[real], 1e-5, name)
    for name, mask in bad_forms(MASK).items():
        with pytest.raises((ValueError, TypeError), match="`attention_mask`"):
            pytest.fail(f"{name}: {model(IDS, attention_mask=mask)}")


@torch.no_grad()
@pytest.mark.parametrize("cls", [KAdapterForDependencyHeads, KAdapterForSequenceClassification])
def test_heads_read_masks_of_every_form(cls):
    model = composite(cls, "bert", "eager")
    expected = model(IDS, attention_mask=MASK).logits
    rows = MASK.bool() if expected.dim() == 3 else slice(None)
    for mask in [*token_forms(MASK).values(), *query_forms(MASK.bool()[:, None].expand(-1, 6, -1)).values()]:
        assert_same(model(IDS, attention_mask=mask).logits[rows], expected[rows], 1e-5)


@torch.no_grad()
def test_a_bilstm_reads_masks_of_tokens_alone():
    model = DistilledBiLstmModel(DistilledBiLstmConfig(vocab_size=60, embedding_size=8, lstm_size=8)).eval()
    expected = model(IDS, attention_mask=MASK).last_hidden_state
    for name, mask in token_forms(MASK).items():
        assert_same(model(IDS, attention_mask=mask).last_hidden_state, expected, 1e-6, name)
    for name, mask in {**bad_forms(MASK), **query_forms(some_see(MASK))}.items():
        with pytest.raises((ValueError, TypeError), match="`attention_mask`"):
            pytest.fail(f"{name}: {model(IDS, attention_mask=mask)}")


# ---- which inputs an encoder takes ----


def renaming(function):
    @functools.wraps(function)
    def outer(*args, **kwargs):
        position_ids = token_type_ids = None  # names of its own
        del position_ids, token_type_ids
        return function(*args, **kwargs)

    return outer


def hiding(function):
    return lambda *args, **kwargs: function(*args, **kwargs)


class Local(nn.Module):
    def forward(self, input_ids, attention_mask=None, **kwargs):
        token_type_ids = torch.zeros_like(input_ids)
        position_ids = inputs_embeds = token_type_ids
        return position_ids, inputs_embeds


class Decorated(nn.Module):
    @renaming
    @renaming
    def forward(self, input_ids, attention_mask=None):
        token_type_ids = input_ids
        return token_type_ids


class KeywordOnly(nn.Module):
    def forward(self, *, input_ids, token_type_ids=None):
        return input_ids


class Hidden(nn.Module):
    forward = hiding(KeywordOnly.forward)


def test_local_variables_of_a_forward_are_no_inputs():
    assert _inputs_of(Local()) == {"input_ids", "attention_mask"}
    assert _inputs_of(Decorated()) == {"input_ids", "attention_mask"}
    assert _inputs_of(KeywordOnly()) == {"input_ids", "token_type_ids"}
    replaced = Local()
    replaced.forward = functools.partial(KeywordOnly().forward)
    assert _inputs_of(replaced) == {"input_ids", "token_type_ids"}
    assert len(_inputs_of(Hidden())) == 5, "where names are hidden, the encoder decides"


@torch.no_grad()
@pytest.mark.parametrize("cls", [KAdapterModel, WeightedLayersModel])
def test_an_encoder_without_token_types_gets_none(cls):
    """DistilBERT's embeddings have a local variable `position_ids`, and RoBERTa's forward token types of its own."""
    distilbert = {
        "model_type": "distilbert",
        "vocab_size": 60,
        "dim": 32,
        "n_layers": 2,
        "n_heads": 4,
        "hidden_dim": 64,
    }
    config_class, fields = (WeightedLayersConfig, {}) if cls is WeightedLayersModel else (KAdapterConfig, ADAPTERS)
    extra = {} if cls is WeightedLayersModel else {"adapters": ["fac"]}
    model = cls(config_class(encoder_config=distilbert, **fields, **extra)).eval()
    expected = model(IDS, attention_mask=MASK).last_hidden_state
    got = model(IDS, attention_mask=MASK, token_type_ids=torch.ones_like(IDS)).last_hidden_state
    assert_same(got, expected, 0.0)


@pytest.mark.parametrize("config_class", [KAdapterConfig, SanConfig, WeightedLayersConfig])
def test_the_checkpoint_of_an_encoder_alone_is_refused_in_one_line(config_class, tmp_path):
    BertConfig(**SIZES).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"is a bert, an encoder alone: .*`from_encoder`"):
        config_class.from_pretrained(tmp_path)


def test_what_the_configuration_asks_of_the_encoder_is_returned():
    config = SanConfig(encoder_config={"model_type": "bert", **SIZES}, output_hidden_states=True)
    config.output_attentions = True
    model = SanForSequenceClassification._from_config(config, attn_implementation="eager")
    output = model(IDS, MASK, token_type_ids=(IDS > 0).long().cumsum(1).gt(2).long() * MASK)
    assert (len(output.hidden_states), len(output.attentions)) == (3, 2)
