"""Hooks take what upstream's own outputs are, in every family, whatever the attention implementation."""

import pytest
import torch
from torch import nn
from transformers import AutoConfig, AutoModel, BertModel, PreTrainedConfig, PreTrainedModel

import hf_ptm_ext  # noqa: F401  (registers the families)
from hf_ptm_ext.distillation import Capture
from hf_ptm_ext.distillation.layouts import LAYOUTS, layout_of
from tests.distillation.pairs import config, model

SMALL = {
    "vocab_size": 40,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 40,
}
FIELDS = {
    "distilbert": {"vocab_size": 40, "dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32},
    "mobilebert": {"true_hidden_size": 8, "intra_bottleneck_size": 8, "embedding_size": 8},
    "electra": {"embedding_size": 8},
    "albert": {"embedding_size": 8},
    "splinter": {"question_token_id": 5},
    "zen": {"ngram_vocab_size": 10, "num_hidden_ngram_layers": 1},
}
OF_ITS_OWN_TESTS = {"ib_bert"}


def small(model_type):
    fields = FIELDS.get(model_type, {})
    torch.manual_seed(0)
    sizes = fields if model_type == "distilbert" else {**SMALL, **fields}
    return AutoModel.from_config(AutoConfig.for_model(model_type, **sizes)).eval()


@pytest.mark.parametrize("model_type", sorted(set(LAYOUTS) - OF_ITS_OWN_TESTS))
def test_states_are_those_that_the_model_itself_gives(model_type):
    encoder = small(model_type)
    layers = encoder.config.num_hidden_layers
    states = [f"hidden.{index}" for index in range(layers + 1)]
    projections = [f"{kind}.{layer}" for kind in ("query", "key", "value") for layer in range(layers)]
    capture = Capture(encoder, [*states, *projections, "first.1"])
    ids = torch.randint(6, 40, (2, 7))
    mask = torch.tensor([[1] * 7, [1] * 4 + [0] * 3])
    with torch.no_grad():
        expected = encoder(input_ids=ids, attention_mask=mask, output_hidden_states=True).hidden_states
        capture.start()
        encoder(input_ids=ids, attention_mask=mask)
        seen = capture.take()
    assert len(expected) == layers + 1
    for index, state in enumerate(expected):
        torch.testing.assert_close(seen[f"hidden.{index}"], state)
    torch.testing.assert_close(seen["first.1"], expected[1][:, 0])
    for name in projections:
        assert seen[name].shape[:2] == (2, 7)
    assert not torch.equal(seen["query.0"], seen["query.1"])
    assert not torch.equal(seen["query.0"], seen["key.0"])


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_queries_are_the_projections_of_the_states(implementation):
    encoder = model(BertModel, 0, 2)
    encoder.set_attn_implementation(implementation)
    capture = Capture(encoder, ["hidden.1", "query.1"])
    capture.start()
    encoder(input_ids=torch.randint(5, 40, (2, 7)))
    seen = capture.take()
    torch.testing.assert_close(seen["query.1"], encoder.encoder.layer[1].attention.self.query(seen["hidden.1"]))


class Odd(PreTrainedModel):
    """A model of a kind that nobody knows."""

    config_class = PreTrainedConfig
    _distill_qkv = ("stack", "q", "k", "v")

    def __init__(self, config):
        super().__init__(config)
        block = {"q": nn.Linear(4, 4), "k": nn.Linear(4, 4), "v": nn.Linear(4, 4)}
        self.stack = nn.ModuleList([nn.ModuleDict(block)])
        self.post_init()

    def forward(self, inputs_embeds):
        return inputs_embeds if self.config.skip else self.stack[0]["q"](inputs_embeds)


def odd(**fields):
    return Odd(PreTrainedConfig(num_hidden_layers=1, hidden_size=4, num_attention_heads=1, **fields))


def test_a_class_says_where_its_projections_are():
    assert layout_of(odd()).query == "q"
    capture = Capture(odd(), ["query.0"])
    encoder = capture.model
    encoder.config.skip = False
    capture.start()
    encoder(torch.ones(1, 2, 4))
    assert capture.take()["query.0"].shape == (1, 2, 4)


def test_a_hook_that_never_fires_is_an_error():
    encoder = odd(skip=True)
    capture = Capture(encoder, ["query.0"])
    capture.start()
    encoder(torch.ones(1, 2, 4))
    with pytest.raises(ValueError, match=r"gave nothing for query\.0"):
        capture.take()


def test_unknown_models_and_names_are_refused():
    encoder = model(BertModel, 0, 2)
    with pytest.raises(ValueError, match="ends with 1"):
        Capture(encoder, ["query.2"])
    with pytest.raises(ValueError, match="of the kinds"):
        Capture(encoder, ["attention.1"])
    encoder.config.model_type = "unheard-of"
    with pytest.raises(ValueError, match="_distill_qkv"):
        Capture(encoder, ["query.1"])
    grouped = AutoModel.from_config(AutoConfig.for_model("albert", **SMALL, embedding_size=8, num_hidden_groups=2))
    with pytest.raises(ValueError, match="num_hidden_groups"):
        layout_of(grouped)


def test_closing_takes_the_hooks_off():
    encoder = model(BertModel, 0, 2)
    capture = Capture(encoder, ["hidden.0", "query.1", "hidden.2"])
    capture.close()
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in encoder.modules())
    assert config(2).num_hidden_layers == 2
