"""ERNIE-THU reproduces the reference: both streams, every head, every loss, every gradient norm."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from hf_ptm_ext import EntityTable
from hf_ptm_ext.conversion.ernie_thu import convert_config, convert_state_dict, infer_layer_types, revert_state_dict
from hf_ptm_ext.models.modeling_ernie_thu import (
    ErnieThuForEntityTyping,
    ErnieThuForPreTraining,
    ErnieThuForQuestionAnswering,
    ErnieThuForSequenceClassification,
    ErnieThuModel,
)
from tests.tolerance import assert_agrees

pytestmark = pytest.mark.golden
GOLDENS = Path(__file__).parents[2] / "goldens"


@pytest.fixture(scope="module")
def golden():
    facts = json.loads((GOLDENS / "ernie-thu-a.json").read_text(encoding="utf-8"))
    return facts, load_file(GOLDENS / "ernie-thu-a.safetensors")


def part(tensors, prefix):
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def load(model_class, golden, attention="eager", head=None, **fields):
    facts, tensors = golden
    config = convert_config(facts["original_config"])
    for name, value in fields.items():
        setattr(config, name, value)
    state = convert_state_dict(part(tensors, "sd."), config)
    if model_class is ErnieThuModel:
        state = {name.removeprefix("bert."): value for name, value in state.items() if name.startswith("bert.")}
    elif head is not None:
        state = {name: value for name, value in state.items() if name.startswith("bert.")} | part(tensors, head)
    model = model_class._from_config(config, attn_implementation=attention)
    report = model.load_state_dict(state, strict=False)
    assert not report.missing_keys
    assert {name.split(".")[1] for name in report.unexpected_keys} <= {"pooler"}
    return model.eval()


def inputs(tensors):
    return {name: tensors[f"in.{name}"] for name in ("input_ids", "attention_mask", "token_type_ids")} | {
        "entity_embeds": tensors["in.input_ent"],
        "entity_mask": tensors["in.ent_mask"],
    }


def ignored(labels):
    """Their -1 is our -100."""
    return torch.where(labels < 0, -100, labels)


def targets(tensors):
    return {
        "labels": ignored(tensors["in.mlm_labels"]),
        "next_sentence_label": tensors["in.nsp_labels"],
        "entity_labels": ignored(tensors["in.ent_labels"]),
        "entity_candidate_embeds": tensors["in.candidate_emb"],
    }


def close(got, expected, golden, kind):
    assert_agrees(got, expected, golden[0]["tolerance"][f"{kind}_atol"])


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_both_streams_of_every_layer_are_the_references(golden, attention):
    tensors = golden[1]
    with torch.no_grad():
        outputs = load(ErnieThuModel, golden, attention)(**inputs(tensors), output_hidden_states=True)
    layers = golden[0]["original_config"]["num_hidden_layers"]
    expected = [tensors["out.embedding_output"], *(tensors[f"out.hidden_text.{n}"] for n in range(layers))]
    entities = [tensors["in.input_ent"], *(tensors[f"out.hidden_ent.{n}"] for n in range(layers))]
    for got, reference in zip(outputs.hidden_states, expected, strict=True):
        close(got, reference, golden, "hidden")
    for got, reference in zip(outputs.entity_hidden_states, entities, strict=True):
        close(got, reference, golden, "hidden")
    close(outputs.entity_last_hidden_state, entities[-1], golden, "hidden")
    close(outputs.pooler_output, tensors["out.pooled"], golden, "hidden")
    assert torch.equal(outputs.entity_hidden_states[1], tensors["in.input_ent"]), "a `sim` layer changes no entity"


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_the_pretraining_heads_and_losses_are_the_references(golden, attention):
    facts, tensors = golden
    model = load(ErnieThuForPreTraining, golden, attention)
    with torch.no_grad():
        outputs = model(**inputs(tensors), **targets(tensors))
    close(outputs.prediction_logits, tensors["out.mlm_logits"], golden, "logits")
    close(outputs.seq_relationship_logits, tensors["out.nsp_logits"], golden, "logits")
    close(outputs.entity_logits, tensors["out.dea_logits"], golden, "logits")
    names = {"mlm_loss": "mlm", "nsp_loss": "nsp", "entity_loss": "dea", "loss": "total"}
    for name, theirs in names.items():
        close(outputs[name], facts["scalars"][f"loss_{theirs}"], golden, "loss")
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    lean = model.train()(**inputs(tensors), **targets(tensors))
    assert lean.prediction_logits is None
    assert lean.entity_logits is None
    for name, theirs in names.items():
        close(lean[name], facts["scalars"][f"loss_{theirs}"], golden, "loss")
    without = {name: value for name, value in targets(tensors).items() if not name.startswith("entity")}
    outputs = model.eval()(**inputs(tensors), **without)
    assert outputs.entity_loss is None
    assert outputs.entity_logits is None
    close(outputs.loss, facts["scalars"]["loss_mlm_plus_nsp"], golden, "loss")


def test_every_gradient_norm_is_the_references(golden):
    facts, tensors = golden
    model = load(ErnieThuForPreTraining, golden)
    model(**inputs(tensors), **targets(tensors)).loss.backward()
    parameters = dict(model.named_parameters(remove_duplicate=False))
    norms = facts["grad_norms_of_loss_total"]
    untrained = [name for name, norm in norms.items() if norm is None]
    assert len(untrained) == 4
    for name, norm in norms.items():
        if norm is None:
            assert parameters[name].grad is None, name
            assert not parameters[name].requires_grad, name
        else:
            rtol = facts["tolerance"]["grad_norm_rtol"]
            assert_agrees(parameters[name].grad.norm(), norm, 1e-6, rtol, name=name)


def test_ids_with_a_table_are_vectors(golden):
    """The same through the table, with candidates by id and with candidates that the model makes itself."""
    facts, tensors = golden
    model = load(ErnieThuForPreTraining, golden)
    model.set_entity_table(EntityTable.from_arrays(tensors["in.entity_table"][1:]))
    given = inputs(tensors)
    del given["entity_embeds"], given["entity_mask"]
    given["entity_ids"] = tensors["in.entity_ids_corrupted"] + 1
    labels = targets(tensors)
    del labels["entity_candidate_embeds"]
    by_id = {**labels, "entity_candidates": tensors["in.candidate_ids"] + 1}
    own = {**labels, "entity_labels": tensors["in.entity_ids"] + 1}
    for each in (by_id, {**by_id, "entity_candidates": by_id["entity_candidates"][None]}, own):
        with torch.no_grad():
            outputs = model(**given, **each)
        close(outputs.entity_logits, tensors["out.dea_logits"], golden, "logits")
        close(outputs.loss, facts["scalars"]["loss_total"], golden, "loss")
    with torch.no_grad():
        without_none = model(**given, **own, include_none_candidate=False)
    close(without_none.entity_logits, tensors["out.dea_logits"][..., 1:], golden, "logits")


def test_the_fine_tuned_heads_are_the_references(golden):
    facts, tensors = golden
    given, scalars = inputs(tensors), facts["scalars"]
    with torch.no_grad():
        typing = load(ErnieThuForEntityTyping, golden, head="head.typing.", num_labels=9)
        outputs = typing(**given, labels=tensors["in.typing_labels"])
        close(outputs.logits, tensors["out.typing_logits"], golden, "logits")
        close(outputs.loss, scalars["loss_typing"], golden, "loss")

        relations = load(ErnieThuForSequenceClassification, golden, head="head.rel.", num_labels=7)
        outputs = relations(**given, labels=tensors["in.rel_labels"])
        close(outputs.logits, tensors["out.rel_logits"], golden, "logits")
        close(outputs.loss, scalars["loss_rel"], golden, "loss")

        answers = load(ErnieThuForQuestionAnswering, golden, head="head.qa.")
        for name, loss in (("qa_start", "loss_qa"), ("qa_start_out_of_range", "loss_qa_out_of_range_start")):
            outputs = answers(**given, start_positions=tensors[f"in.{name}"], end_positions=tensors["in.qa_end"])
            close(outputs.start_logits, tensors["out.qa_start_logits"], golden, "logits")
            close(outputs.end_logits, tensors["out.qa_end_logits"], golden, "logits")
            close(outputs.loss, scalars[loss], golden, "loss")

        # Similarity as probabilities of two classes.
        similarity = load(ErnieThuForSequenceClassification, golden, head="head.stsb.", num_labels=2)
        similarity.config.problem_type = "single_label_classification"
        outputs = similarity(**given, labels=tensors["in.stsb_soft_labels"])
        close(outputs.logits.softmax(-1), tensors["out.stsb_probs"], golden, "logits")
        close(outputs.loss, scalars["loss_stsb"], golden, "loss")


def test_the_original_comes_back(golden):
    facts, tensors = golden
    original = part(tensors, "sd.")
    config = convert_config(facts["original_config"])
    assert infer_layer_types(original) == config.fusion_layer_types == facts["original_config"]["layer_types"]
    reverted = revert_state_dict(convert_state_dict(original, config), config)
    assert reverted.keys() == original.keys()
    for name, value in original.items():
        assert torch.equal(reverted[name], value), name
