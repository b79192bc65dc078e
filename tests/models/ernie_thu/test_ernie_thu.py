"""What is ERNIE-THU's own: entities as inputs, two recorded streams, candidates, the way from BERT."""

import logging

import pytest
import torch
from transformers import (
    AutoModelForSequenceClassification,
    BertConfig,
    BertForPreTraining,
    BertModel,
    Trainer,
)

from hf_ptm_ext.models.configuration_ernie_thu import ErnieThuConfig
from hf_ptm_ext.models.modeling_ernie_thu import (
    ErnieThuForEntityTyping,
    ErnieThuForMaskedLM,
    ErnieThuForPreTraining,
    ErnieThuForSequenceClassification,
    ErnieThuModel,
)
from tests.conformance.attention import assert_gradients_equal
from tests.conformance.family import assert_same, assert_same_outputs
from tests.conformance.trainer import arguments

BERT_SIZES = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 37,
    "max_position_embeddings": 32,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
SIZES = {**BERT_SIZES, "entity_hidden_size": 12, "entity_num_attention_heads": 3}
OWN_TABLE = {"entity_embeddings_in_checkpoint": True, "entity_vocab_size": 8}
LAYERS = ["sim", "norm", "norm"]
MASK = torch.tensor([[1] * 9, [1] * 6 + [0] * 3, [1] * 4 + [0] * 5])
IDS = torch.randint(5, 99, (3, 9), generator=torch.Generator().manual_seed(0)) * MASK
ENTITY_IDS = torch.tensor([[0, 3, 0, 5, 0, 0, 7, 0, 0], [0, 0, 2, 0, 3, 0, 0, 0, 0], [0] * 9])
INPUTS = {"input_ids": IDS, "attention_mask": MASK, "entity_ids": ENTITY_IDS}


def make(cls=ErnieThuModel, attention="sdpa", **fields):
    torch.manual_seed(0)
    config = ErnieThuConfig(**{**SIZES, **OWN_TABLE, "fusion_layer_types": LAYERS, **fields})
    model = cls._from_config(config, attn_implementation=attention)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
            if name.endswith("entity_embeddings.weight"):
                parameter[0] = 0
    return model.eval()


@pytest.fixture
def said(caplog):
    """What our loggers say."""
    logger = logging.getLogger("hf_ptm_ext")
    before, logger.propagate = logger.propagate, True
    with caplog.at_level(logging.WARNING):
        yield caplog
    logger.propagate = before


# ---- from BERT ----


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_without_fusion_it_is_bert(attention):
    bert = BertModel(BertConfig(**BERT_SIZES)).eval()
    ours = make(attention=attention, fusion_layer_types=["sim"] * 3, entity_embeddings_in_checkpoint=False)
    assert set(ours.state_dict()) == set(bert.state_dict())
    ours.load_state_dict(bert.state_dict())
    bert.set_attn_implementation(attention)
    given = {name: INPUTS[name] for name in ("input_ids", "attention_mask")}
    with torch.no_grad():
        expected, got = bert(**given), ours(**given)
    assert_same(got.last_hidden_state[MASK.bool()], expected.last_hidden_state[MASK.bool()], 1e-6)
    assert_same(got.pooler_output, expected.pooler_output, 1e-6)


def test_a_bert_is_where_training_begins(tmp_path, said):
    """Its whole text side is there, the entity side is new and said to be, once; nothing else is missing."""
    bert = BertForPreTraining(BertConfig(**BERT_SIZES))
    bert.save_pretrained(tmp_path)
    model, info = ErnieThuForPreTraining.from_pretrained(
        tmp_path, entity_hidden_size=12, entity_num_attention_heads=3, output_loading_info=True
    )
    assert model.config.model_type == "ernie_thu"
    assert model.config.fusion_layer_types == ["sim", "mix", "norm"]
    assert all("_ent." in name for name in info["missing_keys"])
    assert not info["unexpected_keys"]
    for name, value in bert.state_dict().items():
        assert torch.equal(model.state_dict()[name], value), name
    messages = [record.getMessage() for record in said.records if record.name.startswith("hf_ptm_ext")]
    assert len([text for text in messages if "no entity side" in text]) == 1
    assert len([text for text in messages if "entity head" in text]) == 1
    assert not any("encoder layers" in text or "weights of the encoder" in text for text in messages)
    new = [value for name, value in model.named_parameters() if "dense_ent.weight" in name]
    assert all(0.01 < value.std() < 0.03 for value in new)
    assert not model.get_parameter("bert.encoder.layer.2.output.dense_ent.weight").requires_grad
    outputs = model(**{name: INPUTS[name] for name in ("input_ids", "attention_mask")})
    assert torch.isfinite(outputs.prediction_logits).all()


def test_a_lost_entity_weight_is_named(tmp_path, said):
    """A part of the entity side is no BERT."""
    model = make(ErnieThuForMaskedLM)
    state = {name: value for name, value in model.state_dict().items() if "1.output.dense_ent" not in name}
    torch.save(state, tmp_path / "pytorch_model.bin")
    model.config.save_pretrained(tmp_path)
    ErnieThuForMaskedLM.from_pretrained(tmp_path)
    assert "bert.encoder.layer.1.output.dense_ent.weight" in said.text
    assert "no entity side" not in said.text


# ---- the configuration ----


def test_the_originals_layer_types_are_read(tmp_path):
    """transformers reserves the name: a config that kept it could not even be made."""
    config = ErnieThuConfig(**SIZES, layer_types=["sim", "mix"])
    assert config.fusion_layer_types == ["sim", "mix", "sim"]
    assert "layer_types" not in config.to_dict()
    config.save_pretrained(tmp_path)
    text = (tmp_path / "config.json").read_text(encoding="utf-8").replace("fusion_layer_types", "layer_types")
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    assert ErnieThuConfig.from_pretrained(tmp_path).fusion_layer_types == ["sim", "mix", "sim"]


def test_layer_types_are_checked():
    assert ErnieThuConfig().fusion_layer_types == ["sim"] * 5 + ["mix"] + ["norm"] * 6
    with pytest.raises(ValueError, match=r"`fusion_layer_types` must be made of 'sim'.*got 'norma'"):
        ErnieThuConfig(fusion_layer_types=["sim", "norma"])
    with pytest.raises(ValueError, match=r"at most `num_hidden_layers` = 3 entries.*got 4"):
        ErnieThuConfig(num_hidden_layers=3, fusion_layer_types=["sim"] * 4)
    with pytest.raises(ValueError, match=r"`entity_hidden_size` must be a multiple.*100 and 3"):
        ErnieThuConfig(entity_num_attention_heads=3)
    with pytest.raises(ValueError, match="`entity_vocab_size`"):
        ErnieThuConfig(entity_embeddings_in_checkpoint=True)
    config = ErnieThuConfig(**SIZES)
    config.num_hidden_layers = 2  # changed behind the config's back
    with pytest.raises(ValueError, match=r"`fusion_layer_types`.*Change both together"):
        ErnieThuModel(config)


# ---- entities as inputs ----


def test_ids_vectors_and_explicit_masks_are_one_thing():
    model = make()
    vectors = model.entity_embeddings(ENTITY_IDS)
    mask = ENTITY_IDS != 0
    mask[:, 0] = True
    text = {name: INPUTS[name] for name in ("input_ids", "attention_mask")}
    with torch.no_grad():
        expected = model(**INPUTS)
        assert_same_outputs(model(**text, entity_embeds=vectors), expected)
        assert_same_outputs(model(**text, entity_embeds=vectors, entity_mask=mask), expected)
        assert_same_outputs(model(**INPUTS, entity_mask=mask.float()), expected)


def test_a_text_without_entities_needs_nothing():
    """Zeros, and [CLS] alone in the mask; not the BERT of these weights, since the fusion's bias acts."""
    model = make()
    text = {name: INPUTS[name] for name in ("input_ids", "attention_mask")}
    first = torch.zeros_like(IDS)
    first[:, 0] = 1
    with torch.no_grad():
        expected = model(**text)
        assert_same_outputs(model(**text, entity_ids=torch.zeros_like(IDS)), expected)
        zeros = torch.zeros(*IDS.shape, 12)
        assert_same_outputs(model(**text, entity_embeds=zeros, entity_mask=first), expected)
        without_first = model(**text, entity_mask=torch.zeros_like(IDS))
    assert (without_first.last_hidden_state - expected.last_hidden_state).abs().max() > 1e-3


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("masked", ["some", "all"])
def test_a_vector_at_a_masked_position_changes_nothing(attention, masked):
    model = make(ErnieThuForPreTraining, attention)
    vectors = torch.randn(3, 9, 12, generator=torch.Generator().manual_seed(0))
    mask = torch.rand(3, 9, generator=torch.Generator().manual_seed(1)) < (0.4 if masked == "some" else 0.0)
    other = torch.where(mask[..., None], vectors, vectors * -30 + 5)
    text = {name: INPUTS[name] for name in ("input_ids", "attention_mask")}
    with torch.no_grad():
        first = model(**text, entity_embeds=vectors, entity_mask=mask)
        second = model(**text, entity_embeds=other, entity_mask=mask)
    assert_same_outputs(first, second, 0.0)


def test_the_first_token_of_left_padded_and_packed_sequences_is_masked_in():
    model = make()
    left = torch.cat([torch.zeros(3, 2, dtype=torch.long), MASK], 1)[:, :9]
    shifted = {"input_ids": IDS.roll(2, 1) * left, "attention_mask": left}
    rows = [IDS[row : row + 1, :7][:, : int(MASK[row, :7].sum())] for row in range(3)]
    with torch.no_grad():
        alone = [model(row).last_hidden_state[0] for row in rows]
        padded = model(**shifted).last_hidden_state
        packed = model(
            torch.cat(rows, 1), sequence_ids=torch.cat([torch.full_like(row, n + 1) for n, row in enumerate(rows)], 1)
        ).last_hidden_state[0]
    for row, expected in enumerate(alone):
        assert_same(padded[row][left[row].bool()], expected, 1e-5)
    assert_same(packed, torch.cat(alone), 1e-5)


def test_ids_on_padding_are_no_entities():
    model = make()
    stray = torch.where(MASK == 0, 4, ENTITY_IDS)
    with torch.no_grad():
        got = model(**{**INPUTS, "entity_ids": stray})
        expected = model(**INPUTS)
    assert_same(got.last_hidden_state[MASK.bool()], expected.last_hidden_state[MASK.bool()], 1e-6)


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"entity_embeds": torch.zeros(3, 9, 12)}, ValueError, "At most one of `entity_ids` and `entity_embeds`"),
        ({"entity_ids": ENTITY_IDS[:, :8]}, ValueError, r"`entity_ids` must have the shape.*\(3, 9\), got \(3, 8\)"),
        ({"entity_mask": MASK[0]}, ValueError, r"`entity_mask` must have the shape"),
        ({"entity_ids": ENTITY_IDS - 1}, ValueError, r"0 = no entity, got -1.*add 1"),
        ({"entity_ids": ENTITY_IDS + 1}, ValueError, r"`entity_ids` must be 0 to 7, the rows of the entity table"),
        ({"entity_ids": ENTITY_IDS.float()}, TypeError, "`entity_ids` must be integers"),
        (
            {"entity_ids": None, "entity_embeds": torch.zeros(3, 9, 20)},
            ValueError,
            r"`entity_hidden_size`\) = \(3, 9, 12\), got \(3, 9, 20\)",
        ),
    ],
)
def test_entities_that_do_not_fit_are_refused(wrong, error, message):
    with pytest.raises(error, match=message):
        make()(**{**INPUTS, **wrong})


def test_entity_arguments_that_nothing_reads_are_refused():
    with pytest.raises(TypeError, match=r"`entity_embed`.*did you mean `entity_embeds`"):
        make(ErnieThuForSequenceClassification)(**INPUTS, entity_embed=torch.zeros(3, 9, 12))


# ---- two streams in the output ----


def test_both_streams_and_both_attentions_are_recorded():
    model = make(ErnieThuForSequenceClassification, "eager")
    with torch.no_grad():
        outputs = model(**INPUTS, output_hidden_states=True, output_attentions=True)
    assert [tuple(state.shape) for state in outputs.hidden_states] == [(3, 9, 32)] * 4
    assert [tuple(state.shape) for state in outputs.entity_hidden_states] == [(3, 9, 12)] * 4
    assert [tuple(weights.shape) for weights in outputs.attentions] == [(3, 4, 9, 9)] * 3
    assert [tuple(weights.shape) for weights in outputs.entity_attentions] == [(3, 3, 9, 9)] * 2  # `norm` layers
    assert_same(outputs.entity_hidden_states[0], model.bert.entity_embeddings(ENTITY_IDS), 0.0)
    assert_same(outputs.entity_hidden_states[1], outputs.entity_hidden_states[0], 0.0)  # `sim` passes it on
    keys = ENTITY_IDS != 0
    keys[:, 0] = True
    for weights in outputs.entity_attentions:
        assert_same(weights.sum(-1), torch.ones(3, 3, 9), 1e-5)
        assert not weights.masked_select(~keys[:, None, None].expand_as(weights)).any()


def test_a_selection_of_layers_holds_for_both_streams():
    model = make()
    with torch.no_grad():
        outputs = model(**INPUTS, output_hidden_states=[1, 3])
        everything = model(**INPUTS, output_hidden_states=True)
        assert "entity_hidden_states" not in model(**INPUTS)
        model.config.output_hidden_states = True
        assert_same_outputs(model(**INPUTS), everything, 0.0)
    for name in ("hidden_states", "entity_hidden_states"):
        assert [state is None for state in outputs[name]] == [True, False, True, False]
        assert_same(outputs[name][3], everything[name][3], 0.0)
    assert isinstance(model(**INPUTS, return_dict=False), tuple)


# ---- what is never trained ----


def test_four_weights_are_frozen_in_heads_also_after_loading(tmp_path):
    frozen = {f"bert.encoder.layer.2.output.{part}" for part in ("dense_ent.weight", "dense_ent.bias")}
    frozen |= {f"bert.encoder.layer.2.output.LayerNorm_ent.{part}" for part in ("weight", "bias")}
    model = make(ErnieThuForPreTraining)
    model.save_pretrained(tmp_path)
    for each in (model, ErnieThuForPreTraining.from_pretrained(tmp_path)):
        names = {name for name, value in each.named_parameters() if not value.requires_grad}
        assert names == {*frozen, "bert.entity_embeddings.weight"}
    # In the bare encoder the entity stream is an output.
    bare = ErnieThuModel.from_pretrained(tmp_path)
    bare(**INPUTS).entity_last_hidden_state.sum().backward()
    assert bare.encoder.layer[2].output.dense_ent.weight.grad.any()


# ---- pre-training ----


def entity_labels(extra=()):
    """The clean entities, also where the input has lost them."""
    labels = ENTITY_IDS.clone()
    for row, position, entity in extra:
        labels[row, position] = entity
    return labels


def test_candidates_in_every_form():
    model = make(ErnieThuForPreTraining)
    clean = entity_labels([(2, 1, 6)])
    distinct = torch.tensor([0, 2, 3, 5, 6, 7])
    index = torch.where(clean > 0, torch.searchsorted(distinct, clean), -100)
    vectors = model.bert.entity_embeddings(distinct)
    forms = [
        {"entity_labels": clean},
        {"entity_labels": torch.where(clean == 0, -100, clean)},
        {"entity_labels": index, "entity_candidates": distinct},
        {"entity_labels": index, "entity_candidates": distinct[None]},
        {"entity_labels": index, "entity_candidates": distinct.expand(3, -1)},  # one set for each replica
        {"entity_labels": index, "entity_candidate_embeds": vectors},
        {"entity_labels": index, "entity_candidate_embeds": vectors[None]},
    ]
    with torch.no_grad():
        outputs = [model(**INPUTS, **form) for form in forms]
    for each in outputs:
        assert_same_outputs(each, outputs[0])
        assert each.entity_logits.shape == (3, 9, 6)
        assert not each.entity_logits[..., 0].any(), "no entity has logit 0"
    expected = torch.nn.functional.cross_entropy(outputs[0].entity_logits.flatten(0, 1), index.flatten())
    torch.testing.assert_close(outputs[0].entity_loss, expected)
    with torch.no_grad():
        without = model(**INPUTS, **forms[0], include_none_candidate=False)
        model.config.include_none_candidate = False
        assert_same_outputs(model(**INPUTS, **forms[0]), without, 0.0)
    assert_same(without.entity_logits, outputs[0].entity_logits[..., 1:], 1e-6)
    assert without.entity_loss < outputs[0].entity_loss
    # Candidates without labels: logits to rank by.
    assert model(**INPUTS, entity_candidates=distinct).entity_logits.shape == (3, 9, 6)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"entity_candidates": torch.arange(3)}, r"`entity_labels` must be indices into the 3 candidates.*2 to 7"),
        (
            {"entity_candidate_embeds": torch.zeros(8, 20)},
            r"`entity_candidate_embeds` must have vectors of.*12, got 20",
        ),
        ({"entity_candidates": torch.tensor([[0, 1], [0, 2]])}, "one set for the whole batch, got 2 rows that differ"),
        (
            {"entity_candidates": torch.zeros(1, 2, 3, dtype=torch.long)},
            r"`entity_candidates` must be \(N,\) or \(1, N\)",
        ),
        ({"entity_candidates": torch.arange(8), "entity_candidate_embeds": torch.zeros(8, 12)}, "At most one of"),
    ],
)
def test_candidates_that_do_not_fit_are_refused(wrong, message):
    labels = torch.where(ENTITY_IDS == 0, -100, ENTITY_IDS)
    with pytest.raises(ValueError, match=message):
        make(ErnieThuForPreTraining)(**INPUTS, entity_labels=labels, **wrong)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("none_candidate", [True, False])
def test_a_batch_without_entities_has_entity_loss_zero(training, none_candidate):
    model = make(ErnieThuForPreTraining, include_none_candidate=none_candidate).train(training)
    for labels in (torch.zeros_like(IDS), torch.full_like(IDS, -100)):
        outputs = model(input_ids=IDS, attention_mask=MASK, entity_ids=torch.zeros_like(IDS), entity_labels=labels)
        assert outputs.entity_loss == 0
        outputs.loss.backward()
        head = dict(model.cls.predictions_ent.named_parameters())
        assert all(value.grad is not None and not value.grad.any() for value in head.values())


def test_terms_have_weights_and_each_is_optional():
    labels = {"labels": IDS, "next_sentence_label": torch.tensor([0, 1, 0]), "entity_labels": ENTITY_IDS}
    model = make(ErnieThuForPreTraining, entity_loss_weight=0.25)
    outputs = model(**INPUTS, **labels)
    expected = outputs.mlm_loss + outputs.nsp_loss + 0.25 * outputs.entity_loss
    torch.testing.assert_close(outputs.loss, expected)
    terms = {"labels": "mlm_loss", "next_sentence_label": "nsp_loss", "entity_labels": "entity_loss"}
    for name, term in terms.items():
        alone = model(**INPUTS, **{name: labels[name]})
        assert [other for other in terms.values() if other in alone] == [term]
        torch.testing.assert_close(alone[term], outputs[term])
    assert "loss" not in model(**INPUTS)


def test_evaluation_sums_are_the_losses():
    model = make(ErnieThuForPreTraining)
    labels = {"labels": IDS, "next_sentence_label": torch.tensor([0, 1, -100]), "entity_labels": ENTITY_IDS}
    outputs, sums = model(**INPUTS, **labels), model.evaluation_sums(**INPUTS, **labels)
    assert list(sums) == ["mlm", "nsp", "entity"]
    for name, (total, correct, number) in sums.items():
        assert outputs[f"{name}_loss"].item() == pytest.approx(float(total / number), abs=1e-5)
        assert 0 <= correct <= number
    assert list(model.evaluation_sums(**INPUTS, entity_labels=ENTITY_IDS)) == ["entity"]


def test_fixed_positions_change_no_gradient():
    """With `label_positions` the entity term runs over all positions, so that no shape depends on the labels."""
    model = make(ErnieThuForPreTraining).train()
    labels = torch.full_like(IDS, -100)
    labels[:, 2] = 11
    positions = torch.tensor([[2, 1, 0]] * 3)
    first = model(**INPUTS, labels=labels, entity_labels=ENTITY_IDS)
    second = model(**INPUTS, labels=labels, entity_labels=ENTITY_IDS, label_positions=positions)
    assert second.prediction_logits is None
    assert second.entity_logits is None
    assert_gradients_equal(model, first.loss, second.loss, 1e-6)


def test_candidates_must_be_given_while_compiling():
    torch._dynamo.reset()
    model = torch.compile(make(ErnieThuForPreTraining), backend="eager", fullgraph=True)
    with pytest.raises(Exception, match="`entity_candidates` must be given while compiling"):
        model(**INPUTS, entity_labels=ENTITY_IDS)
    torch._dynamo.reset()


def test_candidates_vary_between_batches_of_an_evaluation(tmp_path):
    """Their number is another one in every batch: nothing that has it is gathered."""
    rows = [
        {"input_ids": IDS[row], "attention_mask": MASK[row], "entity_ids": ENTITY_IDS[row], "labels": IDS[row]}
        | {"entity_labels": ENTITY_IDS[row]}
        for row in (0, 1, 2, 0)
    ]
    model, seen = make(ErnieThuForPreTraining), []
    model.config.output_hidden_states = True
    trainer = Trainer(
        model=model,
        args=arguments(tmp_path, per_device_eval_batch_size=1),
        eval_dataset=rows,
        compute_metrics=lambda result: seen.append(result.predictions) or {},
    )
    assert trainer.evaluate()["eval_loss"] > 0
    assert seen[0].shape == (4, 9, 99)


def test_half_precision_of_sixteen_bits():
    """-10000 and its like fit; a row without entities and an all-zero mask stay finite."""
    for dtype in (torch.float16, torch.bfloat16):
        for attention in ("eager", "sdpa"):
            model = make(ErnieThuForPreTraining, attention).to(dtype)
            for extra in ({}, {"entity_mask": torch.zeros_like(IDS)}):
                outputs = model(**INPUTS, **extra, labels=IDS, entity_labels=ENTITY_IDS)
                assert outputs.prediction_logits.dtype == dtype
                assert torch.isfinite(outputs.loss)
                outputs.loss.backward()
                assert all(torch.isfinite(value.grad).all() for value in model.parameters() if value.grad is not None)


# ---- entity typing ----


def test_entity_typing_is_found_by_the_auto_class(tmp_path):
    model = make(ErnieThuForEntityTyping, num_labels=4)
    model.save_pretrained(tmp_path / "typing")
    found = AutoModelForSequenceClassification.from_pretrained(tmp_path / "typing")
    assert type(found) is ErnieThuForEntityTyping
    assert found.config.problem_type == "multi_label_classification"
    with torch.no_grad():
        assert_same(found(**INPUTS).logits, model(**INPUTS).logits, 1e-6)
    make(ErnieThuForSequenceClassification).save_pretrained(tmp_path / "other")
    other = AutoModelForSequenceClassification.from_pretrained(tmp_path / "other")
    assert type(other) is ErnieThuForSequenceClassification
    assert type(AutoModelForSequenceClassification.from_config(ErnieThuConfig(**SIZES))) is type(other)
    with pytest.raises(ValueError, match="`problem_type` must be multi_label_classification"):
        make(ErnieThuForEntityTyping, problem_type="regression")


def test_probabilities_of_classes_are_labels_too():
    model = make(ErnieThuForSequenceClassification, num_labels=3, problem_type="single_label_classification")
    soft = torch.tensor([[0.2, 0.5, 0.3], [0.0, 1.0, 0.0], [-100.0, -100.0, -100.0]])
    outputs = model(**INPUTS, labels=soft)
    expected = torch.nn.functional.cross_entropy(outputs.logits[:2], soft[:2])
    torch.testing.assert_close(outputs.loss, expected)
    # The Trainer counts entries that are not -100.
    torch.testing.assert_close(model(**INPUTS, labels=soft, num_items_in_batch=torch.tensor(12)).loss, expected / 2)
    certain = torch.eye(3)[[0, 1, 1]]
    hard = model(**INPUTS, labels=torch.tensor([0, 1, 1])).loss
    torch.testing.assert_close(model(**INPUTS, labels=certain).loss, hard)


# ---- adapters ----


@pytest.mark.parametrize(
    ("targets", "number"), [(["query", "value"], 2 * (3 + 2)), (["self.query", "self.value"], 2 * 3)]
)
def test_lora_reaches_the_entity_attention_or_leaves_it(targets, number):
    """By the end of a name: `query` is also in `self_ent`; `self.query` is the text's alone."""
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(
        make(ErnieThuForSequenceClassification), LoraConfig(task_type="SEQ_CLS", target_modules=targets, r=2)
    )
    assert len([name for name, _ in model.named_parameters() if "lora_B" in name]) == number
    model(**INPUTS, labels=torch.tensor([0, 1, 1])).loss.backward()
    assert all(value.grad is not None for value in model.parameters() if value.requires_grad)
