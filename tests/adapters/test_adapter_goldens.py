"""Adapters compute what those of the `adapters` library compute, and their checkpoints go both ways."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import get_peft_model, set_peft_model_state_dict
from peft.utils import get_peft_model_state_dict
from safetensors.torch import load_file
from transformers import BertConfig, BertModel

from hf_ptm_ext.conversion import adapter_library, houlsby, pfeiffer
from tests.adapters.library_reference import hidden_states, make_weights
from tests.tolerance import assert_agrees

GOLDENS = Path(__file__).parents[1] / "goldens"
CONVERSIONS = {"houlsby-a": houlsby, "pfeiffer-a": pfeiffer}
Golden = tuple[dict[str, Any], dict[str, torch.Tensor]]


@pytest.fixture(params=sorted(CONVERSIONS))
def golden_name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def golden(golden_name: str) -> Golden:
    return json.loads((GOLDENS / f"{golden_name}.json").read_text("utf-8")), load_file(
        GOLDENS / f"{golden_name}.safetensors"
    )


def part(tensors: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}


def adapted(bert: dict[str, Any], original: dict[str, Any], weights: dict[str, torch.Tensor]) -> Any:
    """Our model with the weights of a state dict of the library."""
    base = BertModel(BertConfig(**bert), add_pooling_layer=False)
    base.load_state_dict(adapter_library.base_state_dict(weights))
    config = adapter_library.convert_config(original)
    model = get_peft_model(base, config)
    missing = set_peft_model_state_dict(model, adapter_library.convert_state_dict(weights, config))
    assert not missing.unexpected_keys
    assert not [key for key in missing.missing_keys if "houlsby_" in key or "pfeiffer_" in key]
    return model.eval()


def assert_states(ours: Any, expected: list[torch.Tensor], atol: float, rtol: float) -> None:
    assert len(ours) == len(expected)
    for states, reference in zip(ours, expected, strict=True):
        assert_agrees(states, reference, atol, rtol)


@pytest.mark.golden
class TestGoldens:
    def test_hidden_states_and_gradients(self, golden: Golden) -> None:
        case, tensors = golden
        model = adapted(case["bert_config"], case["adapter_config"], part(tensors, "state_dict."))
        inputs = part(tensors, "input.")
        output = model(**inputs, output_hidden_states=True)
        assert_states(output.hidden_states, list(part(tensors, "output.hidden_states.").values()), **case["tolerance"])

        loss = (output.last_hidden_state * inputs["attention_mask"][..., None]).square().mean()
        assert_agrees(loss, case["gradient_loss"]["value"], 1e-5)
        loss.backward()
        config = model.peft_config["default"]
        gradients = {name: value.grad for name, value in model.named_parameters() if value.requires_grad}
        for key, value in adapter_library.convert_state_dict(part(tensors, "grad."), config).items():
            module, _, parameter = key.rpartition(".")
            assert_agrees(gradients[f"{module}.default.{parameter}"], value, **case["tolerance"])

    def test_without_the_adapter_it_is_plain_bert(self, golden: Golden) -> None:
        case, tensors = golden
        model = adapted(case["bert_config"], case["adapter_config"], part(tensors, "state_dict."))
        inputs = part(tensors, "input.")
        expected = tensors["output.last_hidden_state_adapter_off"]
        with model.disable_adapter():
            assert_agrees(model(**inputs).last_hidden_state, expected, **case["tolerance"])
        base = model.unload()
        assert_agrees(base(**inputs).last_hidden_state, expected, **case["tolerance"])

    def test_parameter_counts(self, golden: Golden) -> None:
        case, tensors = golden
        model = adapted(case["bert_config"], case["adapter_config"], part(tensors, "state_dict."))
        trainable, total = model.get_nb_trainable_parameters()
        counts = case["parameter_counts"]
        assert (trainable, total) == (counts["trainable_after_train_adapter"], counts["with_adapters"])

    def test_initial_weights_have_the_librarys_spread(self, golden: Golden) -> None:
        case, _ = golden
        config = adapter_library.convert_config(case["adapter_config"])
        config.reduction_factor = 1
        model = get_peft_model(BertModel(BertConfig(**case["bert_config"])), config)
        adapters = {name: value for name, value in model.named_parameters() if value.requires_grad}
        drawn = [value for name, value in adapters.items() if name.endswith("weight")]
        # N(0, 0.02) over at least 4096 values: the standard error of the deviation is below 0.0003.
        assert torch.cat([value.flatten() for value in drawn]).std().item() == pytest.approx(0.02, abs=0.0012)
        assert all(not value.any() for name, value in adapters.items() if name.endswith("bias"))

    def test_weights_go_both_ways(self, golden: Golden) -> None:
        case, tensors = golden
        weights = part(tensors, "state_dict.")
        model = adapted(case["bert_config"], case["adapter_config"], weights)
        config = model.peft_config["default"]
        again = adapter_library.revert_state_dict(get_peft_model_state_dict(model), config)
        expected = {key: value for key, value in weights.items() if ".adapters." in key}
        assert again.keys() == expected.keys()
        assert all(torch.equal(again[key], value) for key, value in expected.items())
        fields = adapter_library.revert_config(config)
        assert {name: case["adapter_config"][name] for name in fields} == fields


@pytest.mark.golden
class TestReference:
    def test_the_reference_gives_the_golden(self, golden: Golden) -> None:
        case, tensors = golden
        weights = part(tensors, "state_dict.")
        states = hidden_states(weights, case["bert_config"], case["adapter_config"], part(tensors, "input."))
        assert_states(states, list(part(tensors, "output.hidden_states.").values()), **case["tolerance"])

    @pytest.mark.parametrize(
        "options",
        [
            {"non_linearity": "gelu"},
            {"scaling": 0.5},
            {"reduction_factor": 7},
            {"reduction_factor": 64},
            {"leave_out": [1]},
            {"leave_out": [0, 2], "reduction_factor": 3},
            {"ln_before": True},
            {"ln_after": True},
            {"scaling": "learned", "ln_before": True},
            {"scaling": "channel"},
            {"non_linearity": "gelu", "scaling": 0.5, "reduction_factor": 7, "leave_out": [0], "ln_before": True},
        ],
        ids=str,
    )
    def test_other_options(self, golden: Golden, options: dict[str, Any]) -> None:
        case, tensors = golden
        bert = {**case["bert_config"], "num_hidden_layers": 3}
        original = {**case["adapter_config"], **options}
        weights = make_weights(bert, original, seed=1)
        inputs = part(tensors, "input.")
        model = adapted(bert, original, weights)
        output = model(**inputs, output_hidden_states=True)
        assert_states(output.hidden_states, hidden_states(weights, bert, original, inputs), **case["tolerance"])
        again = adapter_library.revert_state_dict(get_peft_model_state_dict(model), model.peft_config["default"])
        assert again.keys() == {key for key in weights if ".adapters." in key}


class TestOtherFiles:
    HOULSBY = {"mh_adapter": True, "output_adapter": True, "original_ln_before": False, "original_ln_after": True}

    def test_the_librarys_own_config_file_is_read(self) -> None:
        file = {
            "config": {**self.HOULSBY, "reduction_factor": 8, "non_linearity": "swish"},
            "version": "adapters.1.3.0",
        }
        config = houlsby.convert_config({**file, "model_type": "distilbert", "hidden_size": 768})
        assert (config.reduction_factor, config.non_linearity, config.train_layer_norms) == (8, "swish", False)

    def test_old_files_call_the_approximate_gelu_gelu(self) -> None:
        file = {"config": {**self.HOULSBY, "non_linearity": "gelu"}, "name": "sst"}
        assert houlsby.convert_config(file).non_linearity == "gelu_new"

    def test_old_names_of_the_adapters(self) -> None:
        old = {"bert.encoder.layer.0.attention.output.attention_text_task_adapters.sst.adapter_up.bias": torch.ones(4)}
        converted = houlsby.convert_state_dict(old, houlsby.convert_config(self.HOULSBY))
        assert list(converted) == ["base_model.model.bert.encoder.layer.0.attention.output.dropout.houlsby_up.bias"]

    @pytest.mark.parametrize(
        ("place", "ours", "ours_pfeiffer"),
        [
            ("transformer.layer.1.attention_adapters", "transformer.layer.1.attention.out_lin", None),
            ("t.layer.1.output_adapters", "t.layer.1.ffn.dropout", "t.layer.1.output_layer_norm"),
            ("encoder.layers.0.attention_adapters", "encoder.layers.0.self_attn.out_proj", None),
            ("decoder.layers.0.output_adapters", "decoder.layers.0.fc2", "decoder.layers.0.final_layer_norm"),
            ("decoder.block.0.layer.2", "decoder.block.0.layer.2.dropout", "decoder.block.0.layer.2"),
        ],
    )
    def test_places_of_other_architectures(self, place: str, ours: str, ours_pfeiffer: str | None) -> None:
        weights = {f"{place}.adapters.task.adapter_up.bias": torch.ones(4)}
        config = houlsby.convert_config(self.HOULSBY)
        converted = houlsby.convert_state_dict(weights, config)
        assert list(converted) == [f"base_model.model.{ours}.houlsby_up.bias"]
        assert list(houlsby.revert_state_dict(converted, config)) == list(weights)
        config = pfeiffer.convert_config({"mh_adapter": False, "original_ln_before": True})
        if ours_pfeiffer is None:
            with pytest.raises(ValueError, match="no place"):
                pfeiffer.convert_state_dict(weights, config)
        else:
            converted = pfeiffer.convert_state_dict(weights, config)
            assert list(converted) == [f"base_model.model.{ours_pfeiffer}.pfeiffer_up.bias"]
            assert list(pfeiffer.revert_state_dict(converted, config)) == list(weights)

    def test_layer_norms_in_front_are_told_by_the_model_type(self) -> None:
        config = pfeiffer.convert_config(
            {"config": {"mh_adapter": False, "original_ln_before": True}, "version": "1", "model_type": "mbart"}
        )
        weights = {"encoder.layers.0.output_adapters.adapters.task.adapter_up.bias": torch.ones(4)}
        converted = pfeiffer.convert_state_dict(weights, config)
        assert list(converted) == ["base_model.model.encoder.layers.0.pfeiffer_up.bias"]

    def test_what_does_not_fit_is_named(self) -> None:
        config = houlsby.convert_config(self.HOULSBY)
        good = {"encoder.layer.0.output.adapters.a.adapter_up.bias": torch.ones(4)}
        other = {key.replace(".a.", ".b."): value for key, value in good.items()}
        gate = {"encoder.layer.0.output.adapters.a.gate.weight": torch.ones(4)}
        with pytest.raises(ValueError, match=r"adapter_name.*a, b"):
            houlsby.convert_state_dict({**good, **other}, config)
        with pytest.raises(ValueError, match=r"invertible_adapters\.a\.F"):
            houlsby.convert_state_dict({**good, "invertible_adapters.a.F.0.weight": torch.ones(4)}, config)
        with pytest.raises(ValueError, match="gate"):
            houlsby.convert_state_dict({**good, **gate}, config)
        with pytest.raises(ValueError, match="pfeiffer's, got houlsby's"):
            pfeiffer.convert_config(self.HOULSBY)
        with pytest.raises(ValueError, match="`is_parallel` = True"):
            houlsby.convert_config({**self.HOULSBY, "is_parallel": True})
        with pytest.raises(ValueError, match="`inv_adapter` = 'nice'"):
            houlsby.convert_config({**self.HOULSBY, "inv_adapter": "nice"})
        with pytest.raises(ValueError, match=r"LayerNorm\.weight"):
            houlsby.revert_state_dict({"base_model.model.embeddings.LayerNorm.weight": torch.ones(4)}, config)
