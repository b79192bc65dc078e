"""MASS is BART's network with other positions: an independent implementation, for configurations no golden has."""

import pytest
import torch
from transformers import BartConfig, BartForConditionalGeneration

from hf_ptm_ext.models.configuration_mass import MassConfig
from hf_ptm_ext.models.modeling_mass import MassForConditionalGeneration

SIZES = {
    "vocab_size": 60,
    "d_model": 24,
    "encoder_layers": 3,
    "encoder_attention_heads": 4,
    "encoder_ffn_dim": 40,
    "decoder_layers": 2,
    "decoder_attention_heads": 3,
    "decoder_ffn_dim": 28,
    "bos_token_id": 2,
    "eos_token_id": 3,
    "decoder_start_token_id": 3,
}
CASES = {
    "base": {},
    "relu": {"activation_function": "relu"},
    "another padding token": {"pad_token_id": 9},
    "no scaling": {"scale_embedding": False},
    "another output matrix": {"tie_word_embeddings": False},
    "other positions": {"max_source_positions": 17, "max_target_positions": 11, "pad_token_id": 1},
}


def models(fields):
    torch.manual_seed(0)
    mass = MassForConditionalGeneration(MassConfig(**{**SIZES, "max_position_embeddings": 20, **fields})).eval()
    with torch.no_grad():
        for parameter in mass.parameters():
            parameter.add_(torch.randn(parameter.shape) * 0.1)
    pad = mass.config.pad_token_id
    known = {name: value for name, value in fields.items() if not name.startswith("max_")}
    options = {"pad_token_id": pad, "scale_embedding": True, "activation_function": "gelu", **known}
    bart = BartForConditionalGeneration(BartConfig(**SIZES, max_position_embeddings=20, **options)).eval()
    state = {}
    for name, value in mass.state_dict().items():
        if name.endswith("embed_positions.weight"):  # BART's rows begin at 2, MASS's behind the padding's
            rows = value[pad + 1 :]
            value = torch.cat([torch.zeros(2, rows.shape[1]), rows, torch.zeros(20 - len(rows), rows.shape[1])])
        state[name] = value
    report = bart.load_state_dict(state, strict=False)
    assert not report.unexpected_keys
    assert set(report.missing_keys) <= {"final_logits_bias"}
    return mass, bart


@pytest.mark.parametrize("fields", CASES.values(), ids=CASES)
@torch.no_grad()
def test_right_padded_batches_are_barts(fields):
    mass, bart = models(fields)
    pad = mass.config.pad_token_id
    source, fed = torch.randint(10, 60, (3, 12)), torch.randint(10, 60, (3, 8))
    for row, length in enumerate((12, 7, 3)):
        source[row, length:] = pad
    inputs = {"input_ids": source, "attention_mask": (source != pad).long(), "decoder_input_ids": fed}
    expected, got = bart(**inputs), mass(**inputs)
    torch.testing.assert_close(got.logits, expected.logits, atol=1e-5, rtol=1e-5)
    # Positions that the decoder is told: as a longer target would have them, which here is fed in front.
    places = torch.arange(3, 8).expand(3, 5)
    tail = mass(**{**inputs, "decoder_input_ids": fed[:, 3:], "decoder_position_ids": places}).logits
    assert (tail - expected.logits[:, 3:]).abs().max() > 1e-3  # it does not see what stood before
    alone = mass(**{**inputs, "decoder_input_ids": fed[:, :5], "decoder_position_ids": torch.arange(5).expand(3, 5)})
    torch.testing.assert_close(alone.logits, expected.logits[:, :5], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("fields", CASES.values(), ids=CASES)
def test_beams_and_losses_are_barts(fields):
    mass, bart = models(fields)
    pad = mass.config.pad_token_id
    source = torch.randint(10, 60, (2, 9))
    source[1, 5:] = pad
    arguments = {
        "attention_mask": (source != pad).long(),
        "num_beams": 3,
        "num_return_sequences": 3,
        "max_new_tokens": 8,
        "forced_eos_token_id": 3,
        "return_dict_in_generate": True,
        "output_scores": True,
    }
    expected, got = (model.generate(source, **arguments) for model in (bart, mass))
    assert torch.equal(got.sequences, expected.sequences)
    torch.testing.assert_close(got.sequences_scores, expected.sequences_scores, atol=1e-5, rtol=1e-5)
    labels = torch.tensor([[12, 13, 3, -100], [14, 3, -100, -100]])
    inputs = {"input_ids": source, "attention_mask": arguments["attention_mask"], "labels": labels}
    expected, got = bart(**inputs).loss, mass(**inputs).loss
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)
