"""IB-BERT's arithmetic against upstream's MobileBERT and plain formulas, its neighbours, and its student."""

import math

import pytest
import torch
from torch.nn.functional import gelu, layer_norm, linear
from transformers import MobileBertConfig, MobileBertForPreTraining, MobileBertModel

from hf_ptm_ext import IBBertConfig, IBBertForMaskedLM, IBBertForPreTraining, IBBertModel
from hf_ptm_ext.distillation import DistillationModel, make_student, preset_objectives

SIZES = {
    "vocab_size": 50,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "embedding_size": 8,
    "max_position_embeddings": 24,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
IDS = torch.tensor([[5, 6, 7, 8, 9, 3], [5, 9, 8, 3, 0, 0]])
MASK = (IDS != 0).long()
TYPES = torch.tensor([[0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 0, 0]])


def made(model_class=IBBertForPreTraining, **fields):
    torch.manual_seed(0)
    model = model_class(IBBertConfig(**{**SIZES, "intra_bottleneck_size": 48, **fields})).eval()
    for parameter in model.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    return model


@pytest.mark.parametrize("activation", [True, False])
@torch.no_grad()
def test_equals_upstreams_mobilebert_where_that_can_be_built(activation):
    """Where the inside is as wide as the outside; two of its LayerNorms have another epsilon than the config."""
    fields = {"intra_bottleneck_size": 32, "classifier_activation": activation}
    ours = made(padding_in_trigrams=True, **fields)
    config = MobileBertConfig(
        **SIZES,
        **fields,
        hidden_act="gelu_new",
        key_query_shared_bottleneck=False,
        num_feedforward_networks=1,
        normalization_type="layer_norm",
    )
    upstream = MobileBertForPreTraining(config).eval()
    for module in upstream.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.eps = 1e-12
    names = {key.replace("bert.", "mobilebert.", 1) if key.startswith("bert.") else key for key in ours.state_dict()}
    assert names == set(upstream.state_dict())
    upstream.load_state_dict(
        {
            key.replace("bert.", "mobilebert.", 1) if key.startswith("bert.") else key: value
            for key, value in ours.state_dict().items()
        }
    )
    inputs = {"input_ids": IDS, "attention_mask": MASK, "token_type_ids": TYPES, "output_hidden_states": True}
    got, expected = ours(**inputs), upstream(**inputs)
    for mine, theirs in zip(got.hidden_states, expected.hidden_states, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(got.prediction_logits, expected.prediction_logits, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(got.seq_relationship_logits, expected.seq_relationship_logits, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("intra", "heads", "embedding"), [(48, 4, 8), (64, 2, 32), (24, 3, 5)])
@torch.no_grad()
def test_the_formulas_of_one_layer(intra, heads, embedding):
    model = made(IBBertModel, intra_bottleneck_size=intra, num_attention_heads=heads, embedding_size=embedding)
    state = model.state_dict()

    def dense(name, value):
        return linear(value, state[f"{name}.weight"], state[f"{name}.bias"])

    def norm(name, value):
        weight = state[f"{name}.LayerNorm.weight"]
        return layer_norm(value, weight.shape, weight, state[f"{name}.LayerNorm.bias"], 1e-12)

    for row in range(2):
        length = int(MASK[row].sum())
        words = state["embeddings.word_embeddings.weight"][IDS[row, :length]]
        none = torch.zeros(1, embedding)
        joined = torch.cat([torch.cat([words[1:], none]), words, torch.cat([none, words[:-1]])], dim=1)
        states = dense("embeddings.embedding_transformation", joined)
        states = states + state["embeddings.token_type_embeddings.weight"][TYPES[row, :length]]
        states = norm("embeddings", states + state["embeddings.position_embeddings.weight"][:length])
        for number in range(2):
            name = f"encoder.layer.{number}"
            inside = norm(f"{name}.bottleneck.input", dense(f"{name}.bottleneck.input.dense", states))
            query, key, value = (
                dense(f"{name}.attention.self.{part}", states).view(length, heads, -1).transpose(0, 1)
                for part in ("query", "key", "value")
            )
            weights = (query @ key.transpose(1, 2) / math.sqrt(intra // heads)).softmax(-1)
            context = (weights @ value).transpose(0, 1).reshape(length, intra)
            attended = norm(f"{name}.attention.output", dense(f"{name}.attention.output.dense", context) + inside)
            expanded = gelu(dense(f"{name}.intermediate.dense", attended), approximate="tanh")
            inner = norm(f"{name}.output", dense(f"{name}.output.dense", expanded) + attended)
            outside = dense(f"{name}.output.bottleneck.dense", inner)
            states = norm(f"{name}.output.bottleneck", outside + states)
        got = model(IDS, MASK, TYPES).last_hidden_state[row, :length]
        torch.testing.assert_close(got, states, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_padding_is_no_neighbour_unless_the_reference_is_asked_for():
    for reference in (False, True):
        model = made(IBBertModel, padding_in_trigrams=reference)
        alone = model(IDS[1:, :4], MASK[1:, :4], TYPES[1:, :4]).last_hidden_state
        padded = model(IDS[1:], MASK[1:], TYPES[1:]).last_hidden_state[:, :4]
        assert torch.allclose(alone, padded, atol=1e-5) != reference


def test_embeddings_as_wide_as_the_states_need_no_columns_of_their_own():
    model = made(IBBertForMaskedLM, embedding_size=32, trigram_input=False)
    assert model.cls.predictions.dense is None
    assert model.bert.embeddings.embedding_transformation is None
    assert model(IDS, MASK).logits.shape == (2, 6, 50)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"intra_bottleneck_size": 50}, "`intra_bottleneck_size` must be a multiple of `num_attention_heads`, got 50"),
        ({"embedding_size": 33}, r"`embedding_size` must be in \[1, `hidden_size` = 32\], got 33"),
        ({"num_feedforward_networks": 4}, "`num_feedforward_networks` must be 1 in an IB-BERT, got 4"),
        ({"normalization_type": "no_norm"}, "`normalization_type` must be 'layer_norm'"),
        ({"hidden_act": "gleu"}, "`hidden_act` must be one of"),
        ({"is_decoder": True}, "`is_decoder` must be False"),
    ],
)
def test_configs_of_other_models(fields, message):
    with pytest.raises(ValueError, match=message):
        IBBertConfig(**{**SIZES, "intra_bottleneck_size": 48, **fields})


def test_a_mobilebert_starts_from_its_teachers_embeddings_and_heads_and_learns_layer_by_layer():
    teacher = made()
    student = make_student(teacher, model_class="mobilebert")
    assert isinstance(student, MobileBertForPreTraining)
    assert student.config.num_hidden_layers == 2
    assert student.config.hidden_size == teacher.config.hidden_size
    fresh = student.student_report.fresh
    assert all(name.startswith("mobilebert.encoder.layer.") for name in fresh if "pooler" not in name)
    for name in ("embeddings.word_embeddings.weight", "embeddings.embedding_transformation.bias"):
        assert torch.equal(student.mobilebert.get_parameter(name), teacher.bert.get_parameter(name))
    assert torch.equal(student.cls.predictions.dense.weight, teacher.cls.predictions.dense.weight)
    assert torch.equal(student.cls.predictions.transform.dense.weight, teacher.cls.predictions.transform.dense.weight)

    model = DistillationModel(student, teacher, preset_objectives("mobilebert", student))
    output = model(input_ids=IDS, attention_mask=MASK, token_type_ids=TYPES)
    output.loss.backward()
    for layer in student.mobilebert.encoder.layer:
        for part in (layer.attention.self.query, layer.ffn[0].intermediate.dense, layer.output.bottleneck.dense):
            assert part.weight.grad.abs().sum() > 0
    assert isinstance(make_student(made(IBBertModel), model_class=MobileBertModel), MobileBertModel)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"layers": 1}, "`layers` must be the teacher's 2 for MobileBERT"),
        ({"hidden_size": 16}, "`hidden_size` must be the teacher's 32 for MobileBERT"),
        ({"num_attention_heads": 2}, "`num_attention_heads` must be the teacher's 4 for MobileBERT"),
    ],
)
def test_mobileberts_that_cannot_learn_from_it(arguments, message):
    with pytest.raises(ValueError, match=message):
        make_student(made(), model_class="mobilebert", **arguments)
