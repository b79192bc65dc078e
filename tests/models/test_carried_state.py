"""Language models that hand a state on generate as they do when they read the whole text in every step."""

import pytest
import torch

from hf_ptm_ext import AwdLstmConfig, AwdLstmForCausalLM, TransfoXLConfig, TransfoXLLMHeadModel

SIZES = {"vocab_size": 60, "cutoffs": [20], "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 48, "mem_len": 64}
LONG = {"initial_memory": "empty", "same_length": False, "init_std": 0.3, "proj_init_std": 0.3}


@pytest.fixture(params=["awd_lstm", "transfo_xl"])
def model(request):
    """A model whose words depend on what was read, and whose state holds a whole text."""
    torch.manual_seed(1)
    if request.param == "awd_lstm":
        sizes = {"vocab_size": 60, "embedding_size": 20, "lstm_size": 28, "initializer_range": 2.0}
        return AwdLstmForCausalLM(AwdLstmConfig(**sizes)).eval()
    return TransfoXLLMHeadModel(TransfoXLConfig(**SIZES, **LONG)).eval()


HOW = ({}, {"num_beams": 3}, {"num_return_sequences": 2, "do_sample": True}, {"guidance_scale": 2.5})


@pytest.mark.parametrize("how", HOW, ids=str)
def test_state_in_generation(model, how):
    """Beams take their states with them; a state of the caller's is each beam's and sample's."""
    ids = torch.randint(5, 60, (2, 6))

    def written(text, **kwargs):
        torch.manual_seed(0)
        options = {"max_new_tokens": 6, "eos_token_id": None, "pad_token_id": 1, "do_sample": False, **how}
        return model.generate(text, attention_mask=torch.ones_like(text), **options, **kwargs)[:, text.shape[1] :]

    whole = written(ids, use_cache=False)
    assert torch.equal(written(ids), whole)
    given = {model.carried_state: model(ids[:, :3])[model.carried_state]}
    assert torch.equal(written(ids[:, 3:], **given), whole)
    assert torch.equal(written(ids[:, 3:], use_cache=False, **given), whole)


def test_assisted_decoding_is_refused(model):
    with pytest.raises(ValueError, match="stateful"):
        model.generate(torch.tensor([[5, 6]]), prompt_lookup_num_tokens=2, do_sample=False)
