"""Heads that call their encoder in parts return its hidden states, as they are without the head."""

import pytest
import torch

from hf_ptm_ext import (
    AwdLstmConfig,
    AwdLstmForSequenceClassification,
    CoveConfig,
    CoveForPreTraining,
    SkipThoughtConfig,
    SkipThoughtForPreTraining,
    SkipThoughtModel,
)

AWD_LSTM = {"vocab_size": 60, "embedding_size": 8, "lstm_size": 12, "bptt": 3}
WORDS = {"vocab_size": 60, "embedding_size": 8}
LABELS = torch.tensor([[9, 8, 3], [7, 3, 3]])
HEADS = {
    "awd_lstm": (AwdLstmForSequenceClassification, AwdLstmConfig(**AWD_LSTM), {}),
    "cove": (CoveForPreTraining, CoveConfig(**WORDS, lstm_size=5, target_vocab_size=50), {"labels": LABELS}),
    "skip_thought": (SkipThoughtForPreTraining, SkipThoughtConfig(**WORDS, gru_size=5), {"next_labels": LABELS}),
}


@pytest.mark.parametrize("name", HEADS)
def test_hidden_states(name):
    cls, config, labels = HEADS[name]
    torch.manual_seed(0)
    model, ids = cls(config).eval(), torch.randint(5, 60, (2, 7))
    mask = torch.tensor([[1] * 7, [0, 0, 1, 1, 1, 1, 0]])
    plain = model(ids, mask, **labels)
    output = model(ids, mask, **labels, output_hidden_states=True)
    assert torch.equal(output.logits, plain.logits)
    found = output.get("hidden_states", output.get("encoder_hidden_states"))
    expected = model.base_model(ids, mask, output_hidden_states=True).hidden_states
    assert len(found) == len(expected)
    real = mask[..., None].bool()
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours * real, theirs * real)
    chosen = model(ids, mask, **labels, output_hidden_states=[-1])
    assert [one is None for one in chosen.get("hidden_states", chosen.get("encoder_hidden_states"))].count(False) == 1


def test_what_cannot_be_told_is_refused():
    model = AwdLstmForSequenceClassification(AwdLstmConfig(**AWD_LSTM, fastai_compatible_pooling=True))
    ids = torch.randint(5, 60, (2, 7))
    with pytest.raises(ValueError, match="output_hidden_states"):
        model(ids, output_hidden_states=True)
    with pytest.raises(ValueError, match="got both"):
        model(ids, inputs_embeds=torch.zeros(2, 7, 8))


def test_word_vectors_that_are_returned_are_those_that_are_read():
    model = SkipThoughtModel(SkipThoughtConfig(**WORDS, gru_size=5))
    output = model(torch.randint(5, 60, (2, 7)), output_hidden_states=True)
    output.hidden_states[0].retain_grad()
    output.pooler_output.sum().backward()
    assert output.hidden_states[0].grad.any(-1).all()
