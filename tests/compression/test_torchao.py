"""Quantisation after training by torchao: every family is saved, loads by the Auto classes, and computes the same."""

import pytest
import torch
from transformers import AutoModel

from hf_ptm_ext import to_torchao
from hf_ptm_ext.hub import fresh_process
from hf_ptm_ext.registration import FAMILIES
from tests.remote.test_every_system import tiny

pytest.importorskip("torchao")
BARE = {}
for family in FAMILIES:
    for auto_class, name in family.model_classes():
        if auto_class == "AutoModel":
            BARE[family.model_type] = name


@pytest.mark.slow
@pytest.mark.parametrize("model_type", sorted(BARE))
def test_every_family_is_saved_and_loads(tmp_path, model_type):
    fields = {"encoder_config": {"model_type": "bert", "hidden_size": 32, "num_attention_heads": 2}}
    given = fields if model_type in ("k_adapter", "weighted_layers", "san") else {}
    model = tiny(model_type, BARE[model_type], **given)
    if not any(isinstance(module, torch.nn.Linear) for module in model.modules()):  # recurrent ones, tables
        with pytest.raises(ValueError, match="no projection to quantise"):
            to_torchao(model)
        return
    plain = fresh_process.outputs_of(model)
    quantised = to_torchao(model)
    kinds = {type(value).__name__ for value in quantised.parameters()}
    assert "Int8Tensor" in kinds
    expected = fresh_process.outputs_of(quantised)
    assert fresh_process.largest_difference(plain, expected) > 0
    quantised.save_pretrained(tmp_path)
    loaded = AutoModel.from_pretrained(tmp_path)
    assert "Int8Tensor" in {type(value).__name__ for value in loaded.parameters()}
    assert fresh_process.largest_difference(expected, fresh_process.outputs_of(loaded)) < 1e-5


@pytest.mark.slow
def test_parts_are_left_out(tmp_path):
    model = to_torchao(tiny("spanbert", "SpanBertForMaskedLM"), "int8-weights", exclude=["pooler", r"layer\.0\."])
    kinds = {name: type(value).__name__ for name, value in model.named_parameters()}
    assert kinds["bert.encoder.layer.0.output.dense.weight"] == "Parameter"
    assert kinds["bert.encoder.layer.1.output.dense.weight"] == "Int8Tensor"
    assert kinds["bert.embeddings.word_embeddings.weight"] == "Parameter"
    with pytest.raises(ValueError, match="no projection to quantise"):
        to_torchao(tiny("distilled_bilstm", "DistilledBiLstmModel"))
    assert torch.equal(model.cls.predictions.decoder.weight, model.bert.embeddings.word_embeddings.weight)
