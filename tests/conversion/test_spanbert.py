"""SpanBERT conversion: the golden of the reference code, older file formats, and what does not fit."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from hf_ptm_ext import SpanBertForPreTraining, SpanBertModel
from hf_ptm_ext.conversion.spanbert import convert_config, convert_state_dict, revert_state_dict
from tests.tolerance import assert_agrees

GOLDENS = Path(__file__).parents[1] / "goldens"


@pytest.fixture(scope="module")
def golden():
    with open(GOLDENS / "spanbert-a.json", encoding="utf-8") as file:
        description = json.load(file)
    return description, load_file(GOLDENS / "spanbert-a.safetensors")


@pytest.fixture(scope="module")
def original(golden):
    return {key.removeprefix("sd."): tensor for key, tensor in golden[1].items() if key.startswith("sd.")}


@pytest.fixture
def config(golden):
    return convert_config(golden[0]["config"])


def converted_model(original, config):
    model = SpanBertForPreTraining(config)
    model.load_state_dict(convert_state_dict(original, config), strict=True)
    return model.eval()


def golden_inputs(tensors):
    def ignored(targets):
        return torch.where(targets == 0, -100, targets)

    return {
        "input_ids": tensors["in.src_tokens"],
        "attention_mask": (tensors["in.src_tokens"] != 0).long(),
        "token_type_ids": tensors["in.segment_labels"],
        "labels": ignored(tensors["in.lm_target"]),
        "span_boundaries": tensors["in.pairs"],
        "span_labels": ignored(tensors["in.pair_targets"]),
    }


@pytest.fixture(scope="module")
def output(golden, original):
    model = converted_model(original, convert_config(golden[0]["config"]))
    with torch.no_grad():
        return model(**golden_inputs(golden[1]), output_hidden_states=True)


@pytest.mark.parametrize("layer", [1, 2])
@pytest.mark.golden
def test_hidden_states_are_the_references_at_every_position(golden, output, layer):
    assert_agrees(output.hidden_states[layer], golden[1][f"out.hidden.{layer}"], 2e-5)


@pytest.mark.golden
def test_logits_are_the_references(golden, output):
    assert_agrees(output.prediction_logits, golden[1]["out.mlm_logits"], 5e-5)
    assert_agrees(output.boundary_logits.flatten(0, 1), golden[1]["out.sbo_logits"], 5e-5)


@pytest.mark.golden
def test_losses_are_the_references(golden, output):
    scalars = golden[0]["scalars"]
    assert_agrees(output.mlm_loss, scalars["lm_loss"] / scalars["ntokens"], 1e-5)
    assert_agrees(output.sbo_loss, scalars["pair_loss"] / scalars["npairs"], 1e-5)
    assert_agrees(output.loss, scalars["loss"], 1e-5)


def test_reverting_gives_back_the_file(original, config):
    reverted = revert_state_dict(convert_state_dict(original, config), config)
    assert reverted.keys() == original.keys()
    assert all(torch.equal(reverted[key], original[key]) for key in original)


def test_reverting_keeps_tied_copies_that_the_file_had(original, config):
    embeddings = original["decoder.bert.embeddings.word_embeddings.weight"]
    copies = [f"decoder.cls.{head}.decoder.weight" for head in ("predictions", "pair_target_predictions")]
    with_copies = original | {key: embeddings.clone() for key in copies}
    assert revert_state_dict(convert_state_dict(with_copies, config), config).keys() == with_copies.keys()
    assert (
        revert_state_dict(convert_state_dict(original, config), config, tied_copies=True).keys() == with_copies.keys()
    )
    model = converted_model(with_copies, config)
    assert revert_state_dict(model.state_dict(), config, tied_copies=False).keys() == original.keys()


def test_a_tied_copy_that_differs_is_refused(original, config):
    key = "decoder.cls.predictions.decoder.weight"
    with pytest.raises(ValueError, match=r"cls\.predictions\.decoder\.weight.*differs"):
        convert_state_dict(original | {key: torch.zeros(100, 32)}, config)


class TestConfig:
    def test_reads_the_references_options(self, config):
        assert (config.max_pair_targets, config.pair_target_layer, config.pad_token_id) == (6, -1, 0)
        assert not config.next_sentence_prediction
        assert not config.add_pooling_layer
        assert config.sbo_loss_weight == 1.0
        assert "AutoModelForPreTraining" in config.auto_map

    def test_position_width_is_200_whatever_the_option_says(self, golden):
        assert (
            convert_config(golden[0]["config"] | {"pair_positional_embedding_size": 64}).pair_positional_embedding_size
            == 200
        )

    @pytest.mark.parametrize("field", ["vocab_size", "num_hidden_layers", "num_attention_heads"])
    def test_missing_size_is_named(self, golden, field):
        with pytest.raises(ValueError, match=f"`{field}` is missing"):
            convert_config({key: value for key, value in golden[0]["config"].items() if key != field})

    def test_relative_positions_are_refused(self, golden):
        with pytest.raises(ValueError, match="`position_embedding_type`"):
            convert_config(golden[0]["config"] | {"position_embedding_type": "relative_key"})


def test_the_boundary_head_uses_the_configs_activation(golden, original):
    config = convert_config(golden[0]["config"] | {"hidden_act": "relu"})
    head = converted_model(original, config).cls.pair_target_predictions.mlp_layer_norm
    states = torch.randn(5, head.linear1.in_features, generator=torch.Generator().manual_seed(0))
    inner = head.layer_norm1(torch.relu(head.linear1(states)))
    torch.testing.assert_close(head(states), head.layer_norm2(torch.relu(head.linear2(inner))))


def with_next_sentence_head(original):
    generator = torch.Generator().manual_seed(1)
    shapes = {"bert.pooler.dense.weight": (32, 32), "bert.pooler.dense.bias": (32,)}
    shapes |= {"cls.seq_relationship.weight": (2, 32), "cls.seq_relationship.bias": (2,)}
    return original | {f"decoder.{key}": torch.randn(shape, generator=generator) for key, shape in shapes.items()}


class TestNextSentenceVariant:
    @pytest.mark.golden
    def test_pooler_and_head_are_converted_and_reverted(self, golden, original):
        config = convert_config(golden[0]["config"] | {"no_nsp": False})
        original = with_next_sentence_head(original)
        model = converted_model(original, config)
        output = model(**golden_inputs(golden[1]), next_sentence_label=torch.tensor([0, 1, 0]))
        pooled = torch.tanh(
            golden[1]["out.hidden.2"][:, 0] @ original["decoder.bert.pooler.dense.weight"].T
            + original["decoder.bert.pooler.dense.bias"]
        )
        logits = (
            pooled @ original["decoder.cls.seq_relationship.weight"].T + original["decoder.cls.seq_relationship.bias"]
        )
        assert_agrees(output.seq_relationship_logits, logits, 5e-5)
        reverted = revert_state_dict(convert_state_dict(original, config), config)
        assert reverted.keys() == original.keys()

    def test_head_without_the_option_is_named(self, original, config):
        with pytest.raises(ValueError, match=r"decoder\.cls\.seq_relationship\.weight.*`next_sentence_prediction`"):
            convert_state_dict(with_next_sentence_head(original), config)

    def test_option_without_the_head_is_named(self, golden, original):
        with pytest.raises(ValueError, match="`next_sentence_prediction`"):
            convert_state_dict(original, convert_config(golden[0]["config"] | {"no_nsp": False}))


def bert_names(original):
    return {key.removeprefix("decoder."): tensor for key, tensor in original.items()}


class TestBertFiles:
    @pytest.mark.parametrize("prefix", ["", "bert.", "module.bert.", "module.", "module.decoder.bert."])
    @pytest.mark.golden
    def test_encoder_only_files_of_any_prefix_are_equal(self, golden, original, config, prefix):
        encoder = {
            key.replace("bert.", prefix, 1): tensor
            for key, tensor in bert_names(original).items()
            if key.startswith("bert.")
        }
        converted = convert_state_dict(encoder, config)
        model = SpanBertModel(config)
        model.load_state_dict({key.removeprefix("bert."): tensor for key, tensor in converted.items()}, strict=True)
        states = model.eval()(
            golden[1]["in.src_tokens"], attention_mask=golden_inputs(golden[1])["attention_mask"]
        ).last_hidden_state
        assert_agrees(states, golden[1]["out.hidden.2"], 2e-5)

    def test_weight_and_bias_names_and_index_buffers_are_read(self, original, config):
        plain = convert_state_dict(original, config)
        again = convert_state_dict(plain | {"bert.embeddings.position_ids": torch.arange(48)[None]}, config)
        assert plain.keys() == again.keys()


class TestWhatDoesNotFit:
    @pytest.mark.parametrize("layers", [1, 3])
    def test_number_of_layers(self, golden, original, layers):
        config = convert_config(golden[0]["config"] | {"num_hidden_layers": layers})
        with pytest.raises(ValueError, match=rf"`num_hidden_layers`.*2.*{layers}"):
            convert_state_dict(original, config)

    @pytest.mark.parametrize(
        ("field", "value", "found"),
        [
            ("vocab_size", 120, 100),
            ("max_position_embeddings", 40, 48),
            ("type_vocab_size", 3, 2),
            ("intermediate_size", 80, 64),
            ("max_pair_targets", 15, 6),
            ("hidden_size", 64, 32),
        ],
    )
    def test_sizes(self, golden, original, field, value, found):
        config = convert_config(golden[0]["config"] | {field: value})
        with pytest.raises(ValueError, match=rf"`{field}` is {value} in the config, {found} in the file"):
            convert_state_dict(original, config)

    @pytest.mark.parametrize("key", ["decoder.bert.encoder.gamma_scale", "decoder.bert.my_gamma", "classifier.weight"])
    def test_unknown_key_is_named_as_it_is(self, original, config, key):
        with pytest.raises(ValueError, match=f"`{key}`"):
            convert_state_dict(original | {key: torch.zeros(2)}, config)

    @pytest.mark.parametrize(
        "key",
        [
            "decoder.bert.encoder.layer.1.output.LayerNorm.beta",
            "decoder.bert.embeddings.word_embeddings.weight",
            "decoder.cls.predictions.bias",
            "decoder.cls.pair_target_predictions.mlp_layer_norm.linear2.weight",
        ],
    )
    def test_missing_weight_is_named(self, original, config, key):
        del (original := dict(original))[key]
        name = key.removeprefix("decoder.").replace("beta", "bias")
        with pytest.raises(ValueError, match=name):
            convert_state_dict(original, config)

    def test_two_keys_for_one_weight(self, original, config):
        twice = original | {"bert.embeddings.LayerNorm.weight": torch.ones(32)}
        with pytest.raises(ValueError, match="both stand for"):
            convert_state_dict(twice, config)

    def test_no_encoder_at_all(self, config):
        with pytest.raises(ValueError, match="no encoder layer"):
            convert_state_dict({"roberta.encoder.layer.0.output.dense.bias": torch.zeros(32)}, config)

    def test_reverting_a_foreign_key(self, config):
        with pytest.raises(ValueError, match=r"`classifier\.weight`"):
            revert_state_dict({"classifier.weight": torch.zeros(2)}, config)
