"""What K-Adapter promises: an encoder that stays as it is, adapters that come and go alone, unread padding."""

import pytest
import torch
from transformers import AutoModelForSequenceClassification, BertConfig, BertModel, RobertaConfig, RobertaModel

from hf_ptm_ext import (
    KAdapterConfig,
    KAdapterForDependencyHeads,
    KAdapterForRelationClassification,
    KAdapterForSequenceClassification,
    KAdapterModel,
)
from hf_ptm_ext.conversion.k_adapter import convert_config, convert_state_dict
from tests.models.k_adapter.test_modeling_k_adapter import ENCODER
from tests.tolerance import assert_agrees

SIZES = {
    "adapter_hidden_size": 24,
    "adapter_num_attention_heads": 3,
    "adapter_num_hidden_layers": 1,
    "adapter_intermediate_size": 48,
    "adapter_initializer_range": 0.05,
}
IDS = torch.tensor([[2, 50, 7, 51, 8, 3], [2, 50, 51, 3, 0, 0]])
MASK = (IDS != 0).long()


def config(**fields):
    return KAdapterConfig(encoder_config=ENCODER, **{**SIZES, **fields})


@pytest.fixture
def encoder_folder(tmp_path):
    torch.manual_seed(0)
    folder = tmp_path / "encoder"
    BertModel(BertConfig(**{**ENCODER, "hidden_dropout_prob": 0.5})).save_pretrained(folder)
    return str(folder)


def test_a_frozen_encoder_gives_its_own_states_and_does_not_move(encoder_folder):
    torch.manual_seed(0)
    model = KAdapterForRelationClassification.from_encoder(
        encoder_folder, **SIZES, relation_markers=[50, 51], num_labels=3
    )
    plain = BertModel.from_pretrained(encoder_folder).eval()
    expected = plain(IDS, attention_mask=MASK, output_hidden_states=True).hidden_states
    model.train()  # dropout of 0.5 would show
    states = model.k_adapter.encoder(input_ids=IDS, attention_mask=MASK)
    for one, other in zip(states, expected, strict=True):
        torch.testing.assert_close(one, other)
        assert not one.requires_grad
    before = {name: value.clone() for name, value in model.k_adapter.encoder.state_dict().items()}
    trained = [name for name, value in model.named_parameters() if value.requires_grad]
    assert not [name for name in trained if ".encoder.model." in name]
    optimizer = torch.optim.AdamW([value for value in model.parameters() if value.requires_grad], lr=0.01)
    losses = []
    for _ in range(40):
        loss = model(IDS, attention_mask=MASK, labels=torch.tensor([0, 2])).loss
        loss.backward()
        assert all(model.get_parameter(name).grad is not None for name in trained)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < 0.1 * losses[0]
    for name, value in model.k_adapter.encoder.state_dict().items():
        assert torch.equal(value, before[name])


def test_an_encoder_that_is_not_frozen_is_trained(encoder_folder):
    model = KAdapterForSequenceClassification.from_encoder(
        encoder_folder, **SIZES, freeze_encoder=False, freeze_adapters=True, num_labels=2
    )
    model.train()(IDS, attention_mask=MASK, labels=torch.tensor([0, 1])).loss.backward()
    moved = {name for name, value in model.named_parameters() if value.grad is not None}
    assert any(".encoder.model." in name for name in moved)
    assert not any(".adapters." in name for name in moved)
    assert not model.k_adapter.adapters.training


def test_what_is_frozen_is_frozen_after_loading_too(tmp_path):
    KAdapterForSequenceClassification(config(freeze_adapters=True)).save_pretrained(tmp_path)
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    trained = {name for name, value in model.named_parameters() if value.requires_grad}
    assert trained
    assert not [name for name in trained if ".encoder.model." in name or ".adapters." in name]
    model, _ = KAdapterForSequenceClassification.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(value.requires_grad for value in model.k_adapter.encoder.parameters())


def test_adapters_begin_as_almost_nothing():
    torch.manual_seed(0)
    model = KAdapterModel(config(adapter_initializer_range=2e-4, fusion="add")).eval()
    output = model(IDS, attention_mask=MASK, output_hidden_states=True)
    chain = sum(output.hidden_states[layer] for layer in model.config.adapter_layers)
    assert_agrees(output.adapter_features[0], chain, 1e-2)


def test_padding_is_read_only_in_parity(encoder_folder):
    outputs = {}
    for respect in (True, False):
        torch.manual_seed(0)
        model = KAdapterModel.from_encoder(encoder_folder, **SIZES, respect_padding=respect)
        whole = model(IDS, attention_mask=MASK).last_hidden_state[1, :4]
        alone = model(IDS[1:, :4]).last_hidden_state[0]
        outputs[respect] = torch.allclose(whole, alone, atol=1e-5)
    assert outputs == {True: True, False: False}


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_attention_implementations_agree_and_reach_the_encoder(encoder_folder, attention):
    torch.manual_seed(0)
    model = KAdapterModel.from_encoder(encoder_folder, **SIZES)
    expected = model(IDS, attention_mask=MASK).last_hidden_state
    model.set_attn_implementation(attention)
    assert model.encoder.model.config._attn_implementation == attention
    found = model(IDS, attention_mask=MASK).last_hidden_state
    torch.testing.assert_close(found[MASK == 1], expected[MASK == 1], atol=1e-5, rtol=1e-5)


def test_adapters_are_saved_and_read_alone(tmp_path):
    torch.manual_seed(0)
    first = KAdapterForRelationClassification(config(num_labels=5)).eval()
    path = first.save_adapter(tmp_path, "fac")
    both = KAdapterForSequenceClassification(config(adapters=["fac", "lin"])).eval()
    both.k_adapter.encoder.load_state_dict(first.k_adapter.encoder.state_dict())
    both.load_adapter_weights(tmp_path, "fac")
    features = both.k_adapter(IDS, attention_mask=MASK).adapter_features[0]
    torch.testing.assert_close(features, first.k_adapter(IDS, attention_mask=MASK).adapter_features[0])
    assert path.endswith("k_adapter_fac.safetensors")
    with pytest.raises(ValueError, match=r"`name` must be one of the adapters \['fac'\], got 'lin'"):
        first.save_adapter(tmp_path, "lin")
    with pytest.raises(ValueError, match=r"has no k_adapter_lin\.safetensors"):
        both.load_adapter_weights(tmp_path, "lin")
    other = KAdapterModel(config(adapter_layers=[0, 2]))
    with pytest.raises(ValueError, match=r"`adapter_layers` is \[0, 2\]|`adapter_layers` is"):
        other.load_adapter_weights(tmp_path, "fac")


def test_markers_are_found_and_missing_ones_named():
    torch.manual_seed(0)
    model = KAdapterForRelationClassification(config(relation_markers=[50, 51], num_labels=3)).eval()
    given = model(
        IDS, attention_mask=MASK, subject_positions=torch.tensor([1, 1]), object_positions=torch.tensor([3, 2])
    )
    torch.testing.assert_close(model(IDS, attention_mask=MASK).logits, given.logits)
    with pytest.raises(ValueError, match="a text has no token 51"):
        model(IDS[:, :3])
    with pytest.raises(ValueError, match=r"`subject_positions` must be given, or `config\.relation_markers`"):
        KAdapterForRelationClassification(config())(IDS)


def test_heads_are_predicted_for_real_tokens_only():
    torch.manual_seed(0)
    model = KAdapterForDependencyHeads(config(adapters=["lin"], max_head_positions=8)).eval()
    labels = torch.randint(8, IDS.shape)
    other = labels.masked_fill(MASK == 0, 5)
    torch.testing.assert_close(
        model(IDS, attention_mask=MASK, labels=labels).loss, model(IDS, attention_mask=MASK, labels=other).loss
    )


def test_the_skip_option_adds_what_the_released_code_adds():
    torch.manual_seed(0)
    model = KAdapterModel(config(adapter_layers=[0, 1, 2], adapter_skip_layers=2, fusion="add")).eval()
    output = model(IDS, attention_mask=MASK, output_hidden_states=True)
    states, adapter = output.hidden_states, model.adapters["fac"]
    plain = KAdapterModel(config(adapter_layers=[0, 1, 2], fusion="add")).eval()
    plain.load_state_dict(model.state_dict())

    def part(number, inputs):
        single = KAdapterModel(config(adapter_layers=[number], fusion="add")).eval()
        single.adapters["fac"].part[0].load_state_dict(adapter.part[number].state_dict())
        hidden = [torch.zeros_like(inputs)] * 3
        hidden[number] = inputs
        return single.adapters["fac"](tuple(hidden), MASK)

    first = part(0, states[0])
    second = part(1, states[1] + first)
    torch.testing.assert_close(output.adapter_features[0], part(2, states[2] + 2 * second))
    assert not torch.allclose(plain(IDS, attention_mask=MASK).adapter_features[0], output.adapter_features[0])


def test_any_encoder_and_its_own_inputs(tmp_path):
    torch.manual_seed(0)
    sizes = {key: value for key, value in ENCODER.items() if key != "model_type"}
    RobertaModel(RobertaConfig(**sizes, type_vocab_size=1, pad_token_id=0)).save_pretrained(tmp_path)
    model = KAdapterForSequenceClassification.from_encoder(str(tmp_path), **SIZES)
    plain = RobertaModel.from_pretrained(tmp_path).eval()
    states = model.k_adapter.encoder(input_ids=IDS, attention_mask=MASK)
    torch.testing.assert_close(states[-1], plain(IDS, attention_mask=MASK).last_hidden_state)
    model.save_pretrained(tmp_path / "whole")
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path / "whole")
    torch.testing.assert_close(again(IDS, attention_mask=MASK).logits, model(IDS, attention_mask=MASK).logits)


def test_gradient_checkpointing_reaches_encoder_and_adapters():
    torch.manual_seed(0)
    model = KAdapterForSequenceClassification(config(freeze_encoder=False, adapter_dropout=0.0)).train()
    labels = torch.tensor([0, 1])
    gradients = []
    for checkpointing in (False, True):
        if checkpointing:
            model.gradient_checkpointing_enable()
        model.zero_grad()
        torch.manual_seed(1)
        model(IDS, attention_mask=MASK, labels=labels).loss.backward()
        gradients.append([value.grad.clone() for value in model.parameters() if value.grad is not None])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"adapter_layers": [3]}, "hidden states of the encoder, 0 to 2, got"),
        ({"adapters": ["a", "a"]}, "names, each once"),
        ({"adapters": ["a.b"]}, "without dots"),
        ({"fusion": "mean"}, "`fusion` must be one of concat, add"),
        ({"adapter_num_attention_heads": 5}, "must divide `adapter_hidden_size`, got 5 and 24"),
        ({"adapter_skip_layers": 1}, "`adapter_skip_layers` must be 0 or at least 2"),
        ({"relation_markers": [1]}, "`relation_markers` must be two token ids"),
        ({"adapter_dropout": 2.0}, r"`adapter_dropout` must be a probability in \[0, 1\]"),
        ({"encoder_config": {"hidden_size": 8}}, "or its dictionary with a `model_type`"),
        ({"encoder_config": {"model_type": "no_such_family"}}, "which transformers does not know"),
    ],
)
def test_configurations_that_cannot_be_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        KAdapterConfig(**{"encoder_config": ENCODER, **SIZES, **fields})


def test_inputs_that_cannot_be_are_refused():
    model = KAdapterModel(config()).eval()
    with pytest.raises(ValueError, match="Exactly one of `input_ids` and `inputs_embeds`"):
        model()
    with pytest.raises(ValueError, match="stand for the text"):
        model(IDS, encoder_hidden_states=(torch.zeros(1, 2, 32),) * 3)
    with pytest.raises(ValueError, match="must be 3, the embeddings and every layer's output, got 1"):
        model(encoder_hidden_states=(torch.zeros(1, 2, 32),))
    with pytest.raises(TypeError, match="did you mean `attention_mask`"):
        model(IDS, attention_maks=MASK)
    with pytest.raises(ValueError, match=r"none of K-Adapter's: `other\.weight"):
        convert_state_dict({"other.weight": torch.zeros(1)}, convert_config({}))
    with pytest.raises(TypeError, match="`original` must be a mapping"):
        convert_config([])
