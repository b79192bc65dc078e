"""The wrapper's forward: what it computes, under every way of running it, and what it refuses."""

import copy
import hashlib
import pickle

import pytest
import torch
from transformers import (
    AutoConfig,
    AutoModel,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertModel,
)

from hf_ptm_ext import SpanBertConfig, SpanBertForPreTraining
from hf_ptm_ext.distillation import PRESETS, DistillationModel, preset_objectives
from tests.distillation.pairs import config, model, pair, rows


def batch(preset="pkd", number=8):
    return torch.utils.data.default_collate(rows(preset)[:number])


def wrapped(preset, models=None, **options):
    student, teacher = pair(preset) if models is None else models
    return DistillationModel(student, teacher, preset_objectives(preset, student), **options).train()


def gradients(module):
    """By name; a compiled graph gives zeros where an eager one gives none."""
    zeros = {name: torch.zeros_like(parameter) for name, parameter in module.named_parameters()}
    return zeros | {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}


def loss_and_gradients(module, inputs, run=None):
    module.zero_grad()
    output = (module if run is None else run)(**inputs)
    output["loss"].backward()
    return output["loss"].detach(), gradients(module)


def assert_same(first, second, rtol=1e-5, atol=1e-7):
    torch.testing.assert_close(first[0], second[0], rtol=rtol, atol=atol)
    assert first[1].keys() == second[1].keys()
    for name, value in first[1].items():
        torch.testing.assert_close(value, second[1][name], rtol=rtol, atol=atol)


def tinybert_reference(student, teacher, projection, inputs):
    """The released formulas on what upstream's own eager forward gives: -10000 at padding, entries <= -100 to zero."""
    mask = (1.0 - inputs["attention_mask"][:, None, None, :].float()) * -10000.0

    def states_and_scores(model):
        encoder = model.bert
        states = encoder(**{n: v for n, v in inputs.items() if n != "labels"}, output_hidden_states=True).hidden_states
        scores = []
        for layer, state in zip(encoder.encoder.layer, states, strict=False):
            attention = layer.attention.self
            size = attention.attention_head_size
            shape = (*state.shape[:2], -1, size)
            query, key = (p(state).view(shape).transpose(1, 2) for p in (attention.query, attention.key))
            raw = query @ key.transpose(-1, -2) / size**0.5 + mask
            scores.append(torch.where(raw <= -1e2, torch.zeros_like(raw), raw))
        return states, scores

    (own_states, own_scores), (states, scores) = states_and_scores(student), states_and_scores(teacher)
    step = len(scores) // len(own_scores)
    mse = torch.nn.functional.mse_loss
    attention = sum(mse(each, scores[i * step + step - 1]) for i, each in enumerate(own_scores))
    hidden = sum(mse(projection(each), states[i * step]) for i, each in enumerate(own_states))
    return attention, hidden


@pytest.mark.parametrize(
    ("layers", "teacher_layers", "width", "teacher_width", "heads", "lengths"),
    [
        (2, 4, 16, 24, 4, (9, 6, 1)),
        (3, 3, 12, 12, 3, (5, 5)),
        (1, 5, 8, 24, 2, (1,)),
        (2, 6, 24, 24, 6, (1, 1, 12)),
    ],
)
def test_tinybert_of_any_size_is_the_reference(layers, teacher_layers, width, teacher_width, heads, lengths):
    student = model(BertForSequenceClassification, 0, layers, width, heads).eval()
    teacher = model(BertForSequenceClassification, 1, teacher_layers, teacher_width, heads)
    module = DistillationModel(
        student, teacher, preset_objectives("tinybert-intermediate", student), teacher_in_eval=True
    ).eval()
    generator = torch.Generator().manual_seed(5)
    ids = torch.randint(1, 40, (len(lengths), max(lengths)), generator=generator)
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": ids % 2}
    output = module(**inputs)
    attention, hidden = tinybert_reference(student, teacher, module.terms["hidden"].fit_dense, inputs)
    torch.testing.assert_close(output.attention_loss, attention, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(output.hidden_loss, hidden, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("preset", ["tinybert-intermediate", "minilm-v2"])
def test_attention_implementations_and_compilation_agree(preset):
    module = wrapped(preset)
    inputs = batch()
    results = []
    for implementation in ("eager", "sdpa"):
        module.model.set_attn_implementation(implementation)
        for teacher in module.teachers.models:
            teacher.set_attn_implementation(implementation)
        results.append(loss_and_gradients(module, inputs))
    assert_same(*results, rtol=1e-4, atol=1e-6)
    taught = module.teachers(inputs)
    compiled = torch.compile(module, backend="aot_eager")
    result = loss_and_gradients(module, {**inputs, "teacher_outputs": taught}, compiled)
    assert_same(result, results[1], rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_compiles(preset):
    module = wrapped(preset)
    inputs = batch(preset)
    expected = loss_and_gradients(module, inputs)
    taught = module.teachers(inputs)
    compiled = torch.compile(module, backend="inductor")
    assert_same(loss_and_gradients(module, {**inputs, "teacher_outputs": taught}, compiled), expected, 1e-3, 1e-5)


def our_pair():
    sizes = {"vocab_size": 40, "max_position_embeddings": 32, "num_attention_heads": 4, "intermediate_size": 32}
    none = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    torch.manual_seed(0)
    student = SpanBertForPreTraining(SpanBertConfig(hidden_size=16, num_hidden_layers=2, **sizes, **none))
    return student, SpanBertForPreTraining(SpanBertConfig(hidden_size=24, num_hidden_layers=4, **sizes, **none))


@pytest.mark.parametrize("models", [None, our_pair], ids=["bert", "spanbert"])
def test_activation_checkpointing_gives_the_same_gradients(models):
    """An encoder of ours would fuse its projections when it runs again in the backward pass, were the hooks gone."""
    module = wrapped("tinybert-intermediate", None if models is None else models())
    inputs = {n: v for n, v in batch().items() if n != "labels"}
    plain = loss_and_gradients(module, inputs)
    assert not module.is_activation_checkpointing
    module.activation_checkpointing_enable()
    assert module.is_activation_checkpointing
    assert_same(loss_and_gradients(module, inputs), plain)


def test_reentrant_checkpointing_is_refused():
    module = wrapped("tinybert-intermediate")
    for options in ({"use_reentrant": True}, {"preserve_rng_state": True}):
        with pytest.raises(ValueError, match="use_reentrant"):
            module.activation_checkpointing_enable(options)
    module.model.activation_checkpointing_enable({"use_reentrant": True})
    with pytest.raises(ValueError, match=r"without a gradient[\s\S]*use_reentrant"):
        module(**batch())


def test_frozen_layers_below_are_no_mistake():
    module = wrapped("tinybert-intermediate")
    module.model.bert.embeddings.requires_grad_(False)
    module.model.bert.encoder.layer[0].requires_grad_(False)
    module(**batch()).loss.backward()
    assert module.model.bert.encoder.layer[1].attention.self.query.weight.grad is not None


def digest(module):
    state = module.state_dict()
    return hashlib.sha256(b"".join(state[name].numpy().tobytes() for name in sorted(state))).hexdigest()


def test_the_teacher_is_outside_frozen_and_without_dropout():
    student, _ = pair("pkd")
    teacher = model(BertForSequenceClassification, 1, 4, 24, hidden_dropout_prob=0.5).train()
    module = wrapped("pkd", (student, teacher))
    before = digest(teacher)
    first, second = module(**batch()), module(**batch())
    assert torch.equal(first.soft_label_loss, second.soft_label_loss), "a teacher with dropout teaches noise"
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.1)
    first.loss.backward()
    optimizer.step()
    assert digest(teacher) == before
    own = {id(parameter) for parameter in module.parameters()}
    assert not any(id(parameter) in own or parameter.grad is not None for parameter in teacher.parameters())
    assert not any("teacher" in name for name in module.state_dict())
    module.train()
    assert not teacher.training
    with pytest.raises(ValueError, match=r"another model than the student"):
        wrapped("pkd", (student, student))
    tied = copy.deepcopy(student)
    tied.bert.embeddings = student.bert.embeddings
    with pytest.raises(ValueError, match="share no weights"):
        wrapped("pkd", (student, tied))


def test_a_student_can_be_copied_pickled_and_set_free():
    module = wrapped("tinybert-intermediate")
    expected = module(**batch()).loss
    copied = copy.deepcopy(module.model)
    assert pickle.loads(pickle.dumps(module.model)).config.num_hidden_layers == 2
    module._capture.start()
    copied(**batch())
    with pytest.raises(ValueError, match="gave nothing"):
        module._capture.take()
    assert torch.equal(module(**batch()).loss, expected)
    module.close()
    for each in (module.model, *module.teachers.models):
        assert not any(part._forward_hooks or part._forward_pre_hooks for part in each.modules())


def test_packed_rows_are_refused_where_rows_are_compared():
    module = wrapped("tinybert-intermediate", our_pair())
    inputs = {n: v for n, v in batch().items() if n != "labels"}
    with pytest.raises(ValueError, match=r"'attention' compares whole rows, but `sequence_ids` packs"):
        module(**inputs, sequence_ids=inputs["attention_mask"])
    student, teacher = our_pair()
    hidden = DistillationModel(student, teacher, {"hidden": 1}).train()
    inputs.pop("attention_mask")
    ids = torch.ones_like(inputs["input_ids"])
    packed = hidden(**inputs, sequence_ids=ids, position_ids=torch.arange(12).expand(8, 12)).loss
    torch.testing.assert_close(packed, hidden(**inputs).loss)


def test_only_what_is_mapped_is_taken():
    module = wrapped("minilm")
    assert module.teachers.names == {"query.3", "key.3", "value.3"}
    assert sorted(module._capture.names) == ["key.1", "query.1", "value.1"]


def test_evaluation_needs_neither_labels_nor_teacher():
    module = wrapped("pkd").eval()
    inputs = batch()
    labels = inputs.pop("labels")
    assert set(module(**inputs)) == {"logits"}
    output = module(**inputs, labels=labels)
    torch.testing.assert_close(output.loss, torch.nn.functional.cross_entropy(output.logits, labels))
    module.teacher_in_eval = True
    assert set(module(**inputs, labels=labels)) == {"loss", "logits", "label_loss", "soft_label_loss", "patience_loss"}


def test_logits_of_spans_are_the_mean_of_both_ends():
    """DistilBERT's SQuAD script: (KL of starts + KL of ends) / 2."""
    sizes = {"num_labels": 2}
    student, teacher = (model(BertForQuestionAnswering, seed, 2, 16, **sizes) for seed in (0, 1))
    objectives = [{"objective": "soft_labels", "temperature": 2.0}, {"objective": "labels"}]
    module = DistillationModel(student, teacher, objectives).train()
    inputs = {name: value for name, value in batch().items() if name != "labels"}
    spans = {"start_positions": torch.zeros(8, dtype=torch.long), "end_positions": torch.ones(8, dtype=torch.long)}
    output = module(**inputs, **spans)
    with torch.no_grad():
        taught = teacher(**inputs)
    kl = [
        torch.nn.functional.kl_div(
            (output[name] / 2).log_softmax(-1), (taught[name] / 2).softmax(-1), reduction="batchmean"
        )
        * 4
        for name in ("start_logits", "end_logits")
    ]
    torch.testing.assert_close(output.soft_label_loss, sum(kl) / 2)
    torch.testing.assert_close(output.label_loss, student(**inputs, **spans).loss)
    assert set(output) == {"loss", "start_logits", "end_logits", "soft_label_loss", "label_loss"}


def test_several_teachers_are_one_mean_distribution():
    student, teachers = pair("ensemble")
    inputs = batch()
    module = wrapped("ensemble", (student, teachers))
    with torch.no_grad():
        each = [t(**{n: v for n, v in inputs.items() if n != "labels"}).logits for t in teachers]
    mean = torch.stack([logits.softmax(-1) for logits in each]).mean(0)
    torch.testing.assert_close(module.teachers(inputs)["logits"].softmax(-1), mean)
    assert not torch.allclose(mean, torch.stack(each).mean(0).softmax(-1), atol=1e-6)
    averaged = wrapped("ensemble", (student, teachers), average="logits")
    torch.testing.assert_close(averaged.teachers(inputs)["logits"], torch.stack(each).mean(0))
    with pytest.raises(ValueError, match="Several teachers"):
        wrapped("tinybert-intermediate", (student, teachers))


def test_positions_without_labels_give_no_nan():
    student, teacher = pair("distilbert")
    module = wrapped("distilbert", (student, teacher))
    inputs = batch("distilbert")
    inputs["labels"] = torch.full_like(inputs["labels"], -100)
    output = module(**inputs)
    assert output.label_loss.item() == 0
    output.loss.backward()
    assert all(torch.isfinite(value).all() for value in gradients(module).values())


def test_models_that_do_not_fit_are_refused():
    narrow, wide = pair("tinybert-intermediate")
    heads = model(BertForSequenceClassification, 0, 2, 16, 2)
    with pytest.raises(ValueError, match=r"student BertForSequenceClassification has 2 .* has 4.*minilm-v2"):
        wrapped("tinybert-intermediate", (heads, wide))
    with pytest.raises(ValueError, match=r"got 4 and 3\. Take a student of 1, 2, 4"):
        wrapped("tinybert-intermediate", (model(BertForSequenceClassification, 0, 3, 16), wide))
    with pytest.raises(ValueError, match=r"`hidden_size` on both sides.* has 16 .* has 24"):
        wrapped("pkd", (narrow, wide))
    with pytest.raises(ValueError, match="as many layers as the teacher, got 2 and 4"):
        wrapped("mobilebert", (model(BertModel, 0, 2, 24), model(BertModel, 1, 4, 24)))
    with pytest.raises(ValueError, match=r"`relation_heads` must divide.* got 5"):
        DistillationModel(narrow, wide, {"relations": {"relation_heads": 5}})
    with pytest.raises(TypeError, match="must be models of transformers, got Linear"):
        DistillationModel(torch.nn.Linear(2, 2), wide, {"labels": 1})
    headless = model(BertModel, 0, 2, 24)
    with pytest.raises(ValueError, match=r"`student` must have a head for objective 'label', BertModel"):
        wrapped("soft-labels", (headless, wide))
    with pytest.raises(ValueError, match=r"`teacher` must have a head for objective 'soft_label', BertModel"):
        wrapped("soft-labels", (narrow, headless))
    spanbert, _ = our_pair()
    with pytest.raises(ValueError, match=r"`student` must have a head that gives logits.* SpanBertModel"):
        wrapped("tinybert-prediction", (spanbert.bert, wide))(**batch())
    with pytest.raises(ValueError, match=r"`teacher` must have a head that gives logits.* SpanBertModel"):
        wrapped("tinybert-prediction", (narrow, our_pair()[1].bert))(**batch())


def test_a_regression_is_distilled_by_distance_or_by_its_labels():
    student, teacher = (model(BertForSequenceClassification, seed, 2, 16, num_labels=1) for seed in (0, 1))
    inputs = {**batch(), "labels": torch.arange(8.0)}
    assert list(wrapped("tinybert-prediction", (student, teacher)).terms) == ["label"]
    output = wrapped("soft-labels", (student, teacher))(**inputs)
    taught = teacher(**{n: v for n, v in inputs.items() if n != "labels"}).logits
    torch.testing.assert_close(output.soft_label_loss, (output.logits - taught).pow(2).mean())
    with pytest.raises(ValueError, match="logit_mse"):
        DistillationModel(student, teacher, {"soft_labels": {"kind": "hinton_kl"}})


def test_labels_are_asked_for_where_they_are_needed():
    inputs = batch()
    del inputs["labels"]
    with pytest.raises(ValueError, match=r"'label' needs `labels` in the batch, got attention_mask"):
        wrapped("pkd")(**inputs)
    wrapped("tinybert-intermediate")(**inputs).loss.backward()
    masked = batch("distilbert")
    del masked["labels"]
    student, teacher = pair("distilbert")
    module = DistillationModel(student, teacher, {"soft_labels": {"positions": "labels"}}).train()
    with pytest.raises(ValueError, match="`positions` = 'labels' needs `labels`"):
        module(**masked)


def test_compositions_are_checked():
    student, teacher = pair("tinybert-intermediate")
    with pytest.raises(ValueError, match=r"`objective` must be one of .*hidden.*Did you mean 'hidden'"):
        DistillationModel(student, teacher, {"hiden": 1})
    with pytest.raises(ValueError, match=r"layer', got|one of layers.*got 'layer'"):
        DistillationModel(student, teacher, {"hidden": {"layer": "uniform"}})
    with pytest.raises(ValueError, match=r"more than once"):
        DistillationModel(student, teacher, [{"objective": "hidden"}, {"objective": "hidden"}])
    with pytest.raises(ValueError, match=r"with at least one"):
        DistillationModel(student, teacher, [])
    with pytest.raises(ValueError, match=r"pair \[3, 0\]"):
        DistillationModel(student, teacher, {"hidden": {"layers": [[3, 0]]}})
    with pytest.raises(ValueError, match=r"`preset` must be one of .*Did you mean 'tinybert-general'"):
        preset_objectives("tinybert-genral", student)
    with pytest.raises(ValueError, match=r"option of preset pkd"):
        preset_objectives("pkd", student, gamma=1)
    module = DistillationModel(
        student,
        teacher,
        [
            {"objective": "hidden", "layers": [[0, 0]], "name": "embeddings", "weight": 2},
            {"objective": "hidden", "layers": [[-1, -1], [1, 2]], "projection": "separate", "weight": 0.5},
        ],
    )
    output = module(**batch())
    torch.testing.assert_close(output.loss, 2 * output.embeddings_loss + 0.5 * output.hidden_loss)
    assert sorted(module.auxiliary_state_dict()) == [
        "terms.embeddings.fit_dense.bias",
        "terms.embeddings.fit_dense.weight",
        "terms.hidden.fit_denses.1_to_2.bias",
        "terms.hidden.fit_denses.1_to_2.weight",
        "terms.hidden.fit_denses.2_to_4.bias",
        "terms.hidden.fit_denses.2_to_4.weight",
    ]


def test_a_teacher_of_twenty_four_layers_teaches_from_above_its_middle():
    student = model(BertModel, 0, 2)
    for model_type, layer in (("bert", 20), ("roberta", 18)):
        sizes = {"vocab_size": 40, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8}
        teacher = AutoModel.from_config(AutoConfig.for_model(model_type, num_hidden_layers=24, **sizes))
        module = DistillationModel(student, teacher, preset_objectives("minilm-v2", student))
        assert module.terms["relation"].pairs == [(1, layer)]
    assert config(2).num_hidden_layers == 2
