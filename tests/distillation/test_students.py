"""Students: which weights they start from, in which class, and which requests are refused."""

import copy

import pytest
import torch
from transformers import (
    AlbertConfig,
    AlbertModel,
    BertConfig,
    BertForMaskedLM,
    BertForPreTraining,
    BertForSequenceClassification,
    BertModel,
    DebertaV2Config,
    DebertaV2Model,
    DistilBertConfig,
    DistilBertForMaskedLM,
    DistilBertForSequenceClassification,
    DistilBertModel,
    ElectraConfig,
    ElectraForPreTraining,
    GPT2Config,
    GPT2LMHeadModel,
    RobertaConfig,
    RobertaForMaskedLM,
    T5Config,
    T5Model,
    set_seed,
)

from hf_ptm_ext import (
    ErnieThuConfig,
    ErnieThuForSequenceClassification,
    KBertConfig,
    KBertForTokenClassification,
    NezhaConfig,
    NezhaForMaskedLM,
    SpanBertConfig,
    SpanBertForPreTraining,
    UniLMConfig,
    UniLMForMaskedLM,
    ZenConfig,
    ZenForSequenceClassification,
)
from hf_ptm_ext.distillation import DistillationModel, make_student, preset_objectives

SIZES = {"vocab_size": 30, "hidden_size": 16, "num_attention_heads": 4, "intermediate_size": 24}
IDS = torch.tensor([[5, 6, 7, 8, 9], [5, 9, 8, 7, 6]])
DISTILBERT_LAYERS = [0, 2, 4, 7, 9, 11]


def teacher(model_class=BertForMaskedLM, config_class=BertConfig, layers=4, **fields):
    """A tiny teacher far from a new model, LayerNorms and biases included."""
    set_seed(0)
    made = model_class(config_class(num_hidden_layers=layers, **{**SIZES, **fields}))
    for parameter in made.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    return made.eval()


def first_tensor(model):
    with torch.no_grad():
        return model(input_ids=IDS).to_tuple()[0]


TEACHERS = {
    "bert": lambda: teacher(BertForPreTraining),
    "roberta": lambda: teacher(RobertaForMaskedLM, RobertaConfig, pad_token_id=1, max_position_embeddings=20),
    "electra": lambda: teacher(ElectraForPreTraining, ElectraConfig, embedding_size=8),
    "albert": lambda: teacher(AlbertModel, AlbertConfig, embedding_size=8),
    "deberta-v2": lambda: teacher(DebertaV2Model, DebertaV2Config, relative_attention=True, pos_att_type=["p2c"]),
    "distilbert": lambda: teacher(DistilBertModel, DistilBertConfig, n_layers=4, dim=16, n_heads=4, hidden_dim=24),
    "gpt2": lambda: teacher(GPT2LMHeadModel, GPT2Config),
    "spanbert": lambda: teacher(SpanBertForPreTraining, SpanBertConfig),
    "unilm": lambda: teacher(UniLMForMaskedLM, UniLMConfig),
    "kbert": lambda: teacher(KBertForTokenClassification, KBertConfig),
    "nezha": lambda: teacher(NezhaForMaskedLM, NezhaConfig, max_relative_position=4),
    "zen": lambda: teacher(ZenForSequenceClassification, ZenConfig, num_hidden_word_layers=3),
    "ernie_thu": lambda: teacher(
        ErnieThuForSequenceClassification, ErnieThuConfig, entity_size=8, entity_num_attention_heads=2
    ),
}


@pytest.mark.parametrize("family", TEACHERS)
def test_a_student_with_all_layers_computes_what_its_teacher_does(family):
    origin = TEACHERS[family]()
    before = copy.deepcopy(origin.state_dict())
    student = make_student(origin)
    assert type(student) is type(origin)
    assert student.student_report.fresh == ()
    torch.testing.assert_close(first_tensor(student.eval()), first_tensor(origin), rtol=0, atol=0)
    with torch.no_grad():
        for parameter in student.parameters():
            parameter.zero_()
    assert all(torch.equal(value, before[name]) for name, value in origin.state_dict().items())


@pytest.mark.parametrize("family", [name for name in TEACHERS if name != "albert"])
def test_a_shallow_student_has_the_chosen_layers(family):
    origin = TEACHERS[family]()
    stack = {"distilbert": "transformer.layer", "gpt2": "transformer.h"}.get(family, "encoder.layer")
    layers = lambda model: next(  # noqa: E731
        module for name, module in model.named_modules() if name == stack or name.endswith(f".{stack}")
    )
    student = make_student(origin, init=[3, 1])
    assert student.config.num_hidden_layers == 2
    for own, other in ((0, 3), (1, 1)):
        expected = layers(origin)[other].state_dict()
        assert {*layers(student)[own].state_dict()} == {*expected}
        for name, value in layers(student)[own].state_dict().items():
            torch.testing.assert_close(value, expected[name], rtol=0, atol=0)
    assert student.student_report.fresh == ()
    assert torch.isfinite(first_tensor(student)).all()


@pytest.mark.parametrize(
    ("init", "expected"),
    [("every-other", DISTILBERT_LAYERS), ("first", [0, 1, 2, 3, 4, 5]), ("last", [6, 7, 8, 9, 10, 11])],
)
def test_layers_by_name(init, expected):
    origin = teacher(RobertaForMaskedLM, RobertaConfig, 12)
    student = make_student(origin, layers=6, init=init)
    assert list(student.student_report.layers) == expected
    for own, other in enumerate(expected):
        value = origin.roberta.encoder.layer[other].intermediate.dense.weight
        assert torch.equal(student.roberta.encoder.layer[own].intermediate.dense.weight, value)
    # DistilRoBERTa keeps segments and the head
    assert torch.equal(
        student.roberta.embeddings.token_type_embeddings.weight, origin.roberta.embeddings.token_type_embeddings.weight
    )
    assert torch.equal(student.lm_head.dense.weight, origin.lm_head.dense.weight)
    assert student.lm_head.decoder.weight is student.roberta.embeddings.word_embeddings.weight


def test_distilbert_takes_over_its_six_layers_and_the_vocabulary_head():
    origin = teacher(layers=12)
    student = make_student(origin, layers=6, model_class=DistilBertForMaskedLM)
    assert isinstance(student, DistilBertForMaskedLM)
    assert student.student_report.fresh == ()
    names = {
        "attention.q_lin": "attention.self.query",
        "attention.k_lin": "attention.self.key",
        "attention.v_lin": "attention.self.value",
        "attention.out_lin": "attention.output.dense",
        "sa_layer_norm": "attention.output.LayerNorm",
        "ffn.lin1": "intermediate.dense",
        "ffn.lin2": "output.dense",
        "output_layer_norm": "output.LayerNorm",
    }
    for own, other in enumerate(DISTILBERT_LAYERS):
        for name, bert_name in names.items():
            for kind in ("weight", "bias"):
                value = student.get_parameter(f"distilbert.transformer.layer.{own}.{name}.{kind}")
                assert torch.equal(value, origin.get_parameter(f"bert.encoder.layer.{other}.{bert_name}.{kind}"))
    assert torch.equal(student.vocab_transform.weight, origin.cls.predictions.transform.dense.weight)
    assert torch.equal(student.vocab_layer_norm.bias, origin.cls.predictions.transform.LayerNorm.bias)
    assert torch.equal(student.vocab_projector.bias, origin.cls.predictions.bias)
    assert student.vocab_projector.weight is student.distilbert.embeddings.word_embeddings.weight


def test_distilbert_with_every_layer_of_a_bert_without_segments_predicts_the_same():
    origin = teacher()
    origin.bert.embeddings.token_type_embeddings.weight.data.zero_()
    student = make_student(origin, model_class="distilbert")
    torch.testing.assert_close(first_tensor(student.eval()), first_tensor(origin))


def test_a_named_class_has_the_teachers_head():
    origin = teacher(BertForSequenceClassification, num_labels=3, id2label={0: "a", 1: "b", 2: "c"})
    student = make_student(origin, layers=2, model_class="distilbert")
    assert isinstance(student, DistilBertForSequenceClassification)
    assert student.config.id2label == {0: "a", 1: "b", 2: "c"}
    # BERT's classifier reads its pooler, DistilBERT's another layer: neither is copied.
    assert set(student.student_report.fresh) == {
        f"{module}.{kind}" for module in ("pre_classifier", "classifier") for kind in ("weight", "bias")
    }
    assert isinstance(make_student(teacher(BertForPreTraining), model_class="distilbert"), DistilBertForMaskedLM)


def test_another_head_of_the_teachers_family_starts_anew():
    student = make_student(teacher(), layers=2, model_class=BertForSequenceClassification)
    fresh = {name.partition(".")[0] for name in student.student_report.fresh}
    assert fresh == {"bert", "classifier"}  # bert.pooler
    assert all("pooler" in name or "classifier" in name for name in student.student_report.fresh)


@pytest.mark.parametrize(
    ("size", "expected"),
    [("tinybert-4l-312d", (4, 312, 1200, 12)), ("tinybert-6l-768d", (6, 768, 3072, 12))],
)
def test_tinybert_sizes(size, expected):
    sizes = {"hidden_size": 24, "num_attention_heads": 12, "intermediate_size": 8, "vocab_size": 9}
    origin = BertModel(BertConfig(num_hidden_layers=12, max_position_embeddings=4, **sizes))
    config = make_student(origin, size=size, init="none").config
    found = (config.num_hidden_layers, config.hidden_size, config.intermediate_size, config.num_attention_heads)
    assert found == expected
    assert make_student(origin, size=size, layers=2, hidden_size=24, init="none").config.num_hidden_layers == 2


def test_nothing_is_copied_under_none():
    origin = teacher()
    student = make_student(origin, layers=2, init="none")
    assert student.student_report.copied == ()
    assert not torch.equal(
        student.bert.embeddings.word_embeddings.weight, origin.bert.embeddings.word_embeddings.weight
    )


def test_another_width_keeps_only_what_fits():
    origin = teacher(intermediate_size=32)
    student = make_student(origin, layers=2, hidden_size=8)
    assert student.config.intermediate_size == 16  # in proportion
    assert student.student_report.copied == ("cls.predictions.bias",)
    assert torch.equal(student.cls.predictions.bias, origin.cls.predictions.bias)
    assert make_student(origin, layers=2, hidden_size=8, intermediate_size=5).config.intermediate_size == 5


def test_another_number_of_heads_starts_the_attention_anew():
    student = make_student(teacher(), num_attention_heads=2)
    fresh = student.student_report.fresh
    assert len(fresh) == 4 * 4 * 2  # query, key, value and output, weight and bias, in four layers
    assert all("attention." in name for name in fresh)


def test_fields_that_follow_the_width():
    origin = teacher(DebertaV2Model, DebertaV2Config)
    assert make_student(origin, hidden_size=8).config.pooler_hidden_size == 8


def test_students_learn_under_a_preset():
    origin = teacher(layers=12)
    student = make_student(origin, layers=6, model_class="distilbert")
    labels = torch.full_like(IDS, -100)
    labels[:, 2] = 7
    model = DistillationModel(student, origin, preset_objectives("distilbert", student))
    model(input_ids=IDS, attention_mask=torch.ones_like(IDS), labels=labels).loss.backward()
    assert student.distilbert.transformer.layer[0].ffn.lin1.weight.grad.abs().sum() > 0


def test_the_report_names_what_is_new():
    student = make_student(teacher(), layers=2, model_class=BertForSequenceClassification)
    assert student.student_report.summary().startswith("layers from the teacher's 0, 3; ")
    assert "initialised at random (bert.pooler.dense.weight, " in student.student_report.summary()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"layers": 5}, "`layers` must not be more than the teacher's 4"),
        ({"layers": 0}, "`layers` must be at least 1, got 0"),
        ({"init": "every_other"}, "`init` must be one of every-other, first, last, none"),
        ({"init": [0, 4]}, "`init` must name layers of the teacher, 0 to 3 .*, got 4"),
        ({"init": [0, -5]}, "got -5"),
        ({"init": []}, "`init` must name at least one layer"),
        ({"init": [0, 1], "layers": 3}, "got 2 for `layers` = 3"),
        ({"hidden_size": 10}, "`hidden_size` must be a multiple of `num_attention_heads`, got 10 and 4"),
        ({"num_attention_heads": 3}, "got 16 and 3"),
        ({"size": "tinybert"}, "`size` must be one of tinybert-4l-312d, tinybert-6l-768d, got 'tinybert'"),
        (
            {"model_class": RobertaForMaskedLM},
            "the teacher's family 'bert' or of 'distilbert', got RobertaForMaskedLM",
        ),
        ({"model_class": "tinybert"}, "`model_class` must be a class, or one of distilbert, mobilebert"),
        ({"model_class": "mobilebert"}, "whose teachers are of 'ib_bert'"),
    ],
)
def test_requests_that_do_not_fit(arguments, message):
    with pytest.raises(ValueError, match=message):
        make_student(teacher(), **arguments)


def test_teachers_that_are_none():
    with pytest.raises(TypeError, match="`teacher` must be a model of transformers, got Linear"):
        make_student(torch.nn.Linear(2, 2))
    t5 = T5Model(T5Config(vocab_size=9, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2))
    with pytest.raises(ValueError, match=r"`teacher` must be of a family whose layers are known: .*T5Model"):
        make_student(t5)
    with pytest.raises(TypeError, match="`model_class` must be a model class of transformers"):
        make_student(teacher(), model_class=torch.nn.Linear)


def test_a_wrapped_teacher_is_refused():
    from peft import LoraConfig, get_peft_model

    wrapped = get_peft_model(teacher(), LoraConfig(r=2, target_modules=["query"]))
    with pytest.raises(ValueError, match="merge it first"):
        make_student(wrapped)
