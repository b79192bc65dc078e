"""The mixture is ELMo's, learns which layer a task wants, and leaves the encoder as it is."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSequenceClassification, BertConfig, BertModel

from hf_ptm_ext import (
    ScalarMix,
    WeightedLayersConfig,
    WeightedLayersForSequenceClassification,
    WeightedLayersForTokenClassification,
    WeightedLayersModel,
)
from hf_ptm_ext.models.mix_weighted_layers import normalized
from tests.models.weighted_layers.test_modeling_weighted_layers import ENCODER
from tests.tolerance import assert_agrees

GOLDEN = json.loads((Path(__file__).parents[2] / "goldens" / "transfer-schedules.json").read_text(encoding="utf-8"))
IDS = torch.tensor([[2, 50, 7, 51, 8, 3], [2, 50, 51, 3, 0, 0]])
MASK = (IDS != 0).long()


def config(**fields):
    return WeightedLayersConfig(encoder_config=ENCODER, **fields)


@pytest.mark.golden
def test_the_mixture_is_elmos():
    case = GOLDEN["scalar_mix"]
    mix = ScalarMix(len(case["w"]))
    with torch.no_grad():
        mix.weight.copy_(torch.tensor(case["w"]))
        mix.gamma.fill_(case["gamma"])
    found = mix([torch.tensor(layer) for layer in case["layers"]])
    assert_agrees(found, case["output"], 1e-6)


def test_normalisation_is_over_all_tokens_that_count():
    torch.manual_seed(0)
    layer = torch.randn(2, 6, 8) * 3 + 1
    done = normalized(layer, MASK)[MASK.bool()]
    assert done.mean().item() == pytest.approx(0, abs=1e-5)
    assert done.var(correction=0).item() == pytest.approx(1, abs=1e-4)
    mix = ScalarMix(1, do_layer_norm=True)
    torch.testing.assert_close(mix([layer], MASK), normalized(layer, MASK))
    torch.testing.assert_close(normalized(layer), normalized(layer, torch.ones(2, 6)))


def test_normalisation_stays_finite_in_half_precision():
    torch.manual_seed(0)
    layer = torch.randn(2, 64, 768)
    half = normalized(layer.half())
    assert half.dtype == torch.float16
    torch.testing.assert_close(half.float(), normalized(layer), atol=5e-3, rtol=5e-3)


def test_a_mixture_that_a_file_lacks_begins_evenly():
    state = {name: value for name, value in WeightedLayersModel(config()).state_dict().items() if "mix." not in name}
    loaded = WeightedLayersModel.from_pretrained(None, config=config(), state_dict=state)
    assert loaded.mix_weights() == pytest.approx({0: 1 / 3, 1: 1 / 3, 2: 1 / 3})
    assert loaded.mix.gamma == 1


def test_layers_are_left_out_in_training_only():
    torch.manual_seed(0)
    mix = ScalarMix(4, dropout=0.5).train()
    drawn = torch.stack([mix.shares() for _ in range(200)])
    assert ((drawn == 0).any(1) & (drawn.sum(1) > 0.99)).any()
    assert 0.3 < (drawn < 1e-6).float().mean() < 0.6
    torch.testing.assert_close(mix.eval().shares(), torch.full((4,), 0.25))


def test_the_layer_that_has_the_signal_gets_the_weight():
    torch.manual_seed(0)
    mix, head = ScalarMix(3), torch.nn.Linear(4, 1)
    optimizer = torch.optim.Adam([*mix.parameters(), *head.parameters()], lr=0.05)
    for _ in range(150):
        signal = torch.randn(32, 4)
        layers = [torch.randn(32, 4), signal, torch.randn(32, 4)]
        loss = (head(mix(layers)).squeeze(-1) - signal.sum(-1)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    shares = mix.shares().tolist()
    assert shares[1] > 0.9


def test_a_task_is_learnt_from_the_mixture_and_the_encoder_does_not_move():
    torch.manual_seed(0)
    model = WeightedLayersForTokenClassification(config(num_labels=2, classifier_dropout=0.0))
    ids = torch.randint(5, 25, (16, 8))
    labels = ids % 2
    before = {name: value.clone() for name, value in model.weighted_layers.encoder.state_dict().items()}
    optimizer = torch.optim.Adam([value for value in model.parameters() if value.requires_grad], lr=0.05)
    model.train()
    losses = []
    for _ in range(200):
        loss = model(ids, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    shares = model.mix_weights()
    assert list(shares) == [0, 1, 2]
    assert sum(shares.values()) == pytest.approx(1, abs=1e-5)
    assert max(shares.values()) > 0.4, "the mixture is trained too"
    for name, value in model.weighted_layers.encoder.state_dict().items():
        assert torch.equal(value, before[name]), "the encoder is left as it is"


def test_a_frozen_encoder_gives_its_features_without_dropout(tmp_path):
    torch.manual_seed(0)
    BertModel(BertConfig(**{**ENCODER, "hidden_dropout_prob": 0.5})).save_pretrained(tmp_path / "encoder")
    model = WeightedLayersForSequenceClassification.from_encoder(
        str(tmp_path / "encoder"), mixed_layers=[0, 2], pooling="mean", classifier_dropout=0.0
    ).train()
    plain = BertModel.from_pretrained(tmp_path / "encoder").eval()
    states = plain(IDS, attention_mask=MASK, output_hidden_states=True).hidden_states
    mixed = (states[0] + states[2]) / 2
    mean = (mixed * MASK.unsqueeze(-1)).sum(1) / MASK.sum(1, keepdim=True)
    torch.testing.assert_close(model(IDS, attention_mask=MASK).logits, model.classifier(mean))
    model.save_pretrained(tmp_path / "whole")
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path / "whole")
    assert not any(value.requires_grad for value in again.weighted_layers.encoder.parameters())
    torch.testing.assert_close(again(IDS, attention_mask=MASK).logits, model(IDS, attention_mask=MASK).logits)


@pytest.mark.parametrize("pooling", ["first", "mean"])
@pytest.mark.parametrize("do_layer_norm", [False, True])
def test_padding_is_not_read(pooling, do_layer_norm):
    torch.manual_seed(0)
    model = WeightedLayersModel(config(pooling=pooling, do_layer_norm=do_layer_norm)).eval()
    whole = model(IDS[1:], attention_mask=MASK[1:]).pooler_output
    torch.testing.assert_close(model(IDS[1:, :4]).pooler_output, whole, atol=1e-5, rtol=1e-5)


def test_the_regulariser_is_the_squared_length_of_the_logits():
    torch.manual_seed(0)
    plain = WeightedLayersForSequenceClassification(config()).eval()
    held = WeightedLayersForSequenceClassification(config(mix_l2_weight=0.5)).eval()
    with torch.no_grad():
        plain.weighted_layers.mix.weight.copy_(torch.tensor([1.0, 2.0, -1.0]))
    held.load_state_dict(plain.state_dict())
    labels = torch.tensor([0, 1])
    losses = [model(IDS, attention_mask=MASK, labels=labels).loss for model in (held, plain)]
    assert (losses[0] - losses[1]).item() == pytest.approx(0.5 * 6.0, rel=1e-5)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"layers": [1]}, "name the hidden states in `mixed_layers`"),
        ({"mixed_layers": [3]}, "different hidden states of the encoder, 0 to 2"),
        ({"mixed_layers": []}, "different hidden states"),
        ({"mixed_layers": [1, 1]}, "different hidden states"),
        ({"pooling": "max"}, "`pooling` must be one of first, mean"),
        ({"mix_dropout": 2.0}, r"`mix_dropout` must be a probability in \[0, 1\]"),
        ({"mix_l2_weight": -1.0}, "`mix_l2_weight` must not be negative"),
    ],
)
def test_configurations_that_cannot_be_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        config(**fields)


def test_mixtures_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="`num_layers` must be at least 1"):
        ScalarMix(0)
    with pytest.raises(ValueError, match="`dropout` must be a probability"):
        ScalarMix(1, dropout=2.0)
    with pytest.raises(ValueError, match="`layers` must be 2, got 1"):
        ScalarMix(2)([torch.zeros(1)])
    with pytest.raises(TypeError, match="did you mean `attention_mask`"):
        WeightedLayersModel(config())(IDS, attention_maks=MASK)
