"""Checks of configurations, saving and loading: nothing is lost, nothing is garbage, everything is reported."""

import ast
import inspect
import json
import random
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, PreTrainedConfig

from hf_ptm_ext.models import configuration_core

from .family import FamilyCase, Head, assert_same, assert_same_outputs

ANOTHER = {int: 3, bool: True, float: 0.25, str: "relu"}


def own_fields(config_class: type) -> list[str]:
    """Fields that the family declares itself."""
    inherited = {field.name for field in fields(PreTrainedConfig)}
    return [field.name for field in fields(config_class) if field.name not in inherited]


class ConfigChecks(FamilyCase):
    def test_configurations_survive_saving(self, tmp_path: Path) -> None:
        config = self.config(num_labels=5, id2label=None)
        config.save_pretrained(tmp_path)
        for loaded in (self.config_class.from_pretrained(tmp_path), AutoConfig.from_pretrained(tmp_path)):
            first, second = config.to_dict(), loaded.to_dict()
            for volatile in ("_name_or_path", "auto_map"):
                first.pop(volatile, None)
                second.pop(volatile, None)
            assert second == first
        stored = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
        assert stored["model_type"] == self.config_class.model_type
        assert set(own_fields(self.config_class)) <= set(stored)
        assert stored["hf_ptm_ext_version"]

    def test_a_configuration_needs_no_argument(self) -> None:
        self.config_class()

    def test_every_field_is_a_keyword_and_is_stored(self) -> None:
        for name in own_fields(self.config_class):
            value = getattr(self.config_class(), name)
            config = self.config_class(**{name: value})
            assert getattr(config, name) == value
            assert name in config.to_dict()

    def test_unknown_fields_are_kept(self, tmp_path: Path) -> None:
        self.config(note_of_mine="kept").save_pretrained(tmp_path)
        assert self.config_class.from_pretrained(tmp_path).note_of_mine == "kept"

    def test_wrong_types_are_refused_by_name(self) -> None:
        for name in own_fields(self.config_class):
            for wrong in (object(), ["12"]):
                with pytest.raises(Exception, match=name):
                    self.config(**{name: wrong})
        with pytest.raises(Exception, match="vocab_size"):
            self.config(vocab_size="99")
        config = self.config()
        dropout = self.dropout_fields[0]
        with pytest.raises(Exception, match=dropout):
            setattr(config, dropout, "much")

    def test_integers_pass_for_real_numbers(self) -> None:
        dropout = self.dropout_fields[0]
        assert getattr(self.config(**{dropout: 0}, layer_norm_eps=1), dropout) == 0

    def test_every_field_is_read_somewhere(self) -> None:
        """A field that nothing reads promises what the model does not do."""
        folder = Path(inspect.getfile(self.config_class)).parent
        read = {"initializer_range", "tie_word_embeddings"}  # by PreTrainedModel
        for path in folder.glob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                owner = getattr(node, "value", None)
                if isinstance(node, ast.Attribute) and ast.unparse(owner).endswith("config"):
                    read.add(node.attr)
        read |= {self.config_class.attribute_map.get(name, name) for name in read}
        assert set(own_fields(self.config_class)) - read - self.unread_fields == set()

    def test_labels_of_configurations(self) -> None:
        config = self.config(num_labels=4)
        assert config.num_labels == len(config.id2label) == 4
        names = self.config_class(**self.config_kwargs, id2label={0: "no", 1: "yes"}, label2id={"no": 0, "yes": 1})
        assert names.num_labels == 2
        assert self.config_class.from_dict(names.to_dict()).id2label == {0: "no", 1: "yes"}

    def test_another_minor_version_warns_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        module = sys.modules[self.config_class.__module__]
        said: list[str] = []
        monkeypatch.setattr(configuration_core.logger, "warning_once", said.append)
        self.config(hf_ptm_ext_version=module.HF_PTM_EXT_VERSION)
        self.config(hf_ptm_ext_version=".".join([*module.HF_PTM_EXT_VERSION.split(".")[:2], "77"]))
        self.config(hf_ptm_ext_version=None)
        assert not said
        self.config(hf_ptm_ext_version="98.7.6")
        assert "98.7.6" in said[0]
        assert module.HF_PTM_EXT_VERSION in said[0]

    def test_the_code_version_is_the_packages(self) -> None:
        import hf_ptm_ext

        assert hf_ptm_ext.__version__ == sys.modules[self.config_class.__module__].HF_PTM_EXT_VERSION


class LoadingChecks(FamilyCase):
    @torch.no_grad()
    def test_saving_and_loading_keeps_every_output(self, head: Head, tmp_path: Path) -> None:
        model, batch = self.model(head), self.labelled(head)
        model.save_pretrained(tmp_path)
        loaded, info = head.cls.from_pretrained(tmp_path, output_loading_info=True)
        assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"))
        assert not loaded.training
        assert set(loaded.state_dict()) == set(model.state_dict())
        assert_same_outputs(loaded(**batch), model(**batch), 1e-6)

    def test_buffers_are_as_new_after_loading(self, head: Head, tmp_path: Path) -> None:
        model = self.model(head)
        model.save_pretrained(tmp_path)
        loaded = dict(head.cls.from_pretrained(tmp_path).named_buffers())
        for name, buffer in model.named_buffers():
            assert_same(loaded[name], buffer, 0.0, name)

    def test_models_are_built_without_values(self, head: Head) -> None:
        with torch.device("meta"):
            model = head.cls(self.config(head))
        assert all(parameter.is_meta for parameter in model.parameters())

    def test_every_missing_weight_is_initialised_and_reported(self, head: Head, tmp_path: Path) -> None:
        """Loading builds on the meta device: a weight that nothing initialises would be whatever memory held."""
        model = self.model(head)
        model.save_pretrained(tmp_path)
        path = tmp_path / "model.safetensors"
        weights = load_file(path)
        half = set(random.Random(0).sample(sorted(weights), len(weights) // 2))
        for dropped in (half, set(weights) - half):
            save_file({name: value for name, value in weights.items() if name not in dropped}, path, {"format": "pt"})
            torch.use_deterministic_algorithms(True, warn_only=True)  # memory that nobody wrote is NaN then
            try:
                loaded, info = head.cls.from_pretrained(tmp_path, output_loading_info=True)
            finally:
                torch.use_deterministic_algorithms(False)
            assert dropped <= set(info["missing_keys"])
            tied = set(loaded.all_tied_weights_keys)
            assert set(info["missing_keys"]) - dropped <= tied
            for name, parameter in loaded.named_parameters():
                assert torch.isfinite(parameter).all(), name
                if name not in dropped:
                    assert_same(parameter, weights[name], 0.0, name)
                elif name.endswith("bias"):
                    assert not parameter.any(), name
                elif "layernorm" in name.lower().replace("_", "") and parameter.dim() == 1:
                    assert (parameter == 1).all(), name
                else:
                    assert 0.3 < parameter.std() / loaded.config.initializer_range < 3, name

    def test_unexpected_keys_are_reported(self, head: Head, tmp_path: Path) -> None:
        model = self.model(head)
        state = {**model.state_dict(), "nobody.knows": torch.zeros(2)}
        torch.save(state, tmp_path / "pytorch_model.bin")
        model.config.save_pretrained(tmp_path)
        _, info = head.cls.from_pretrained(tmp_path, output_loading_info=True)
        assert set(info["unexpected_keys"]) == {"nobody.knows"}

    def test_other_shapes_are_refused_or_reported(self, tmp_path: Path) -> None:
        head = next((head for head in self.heads if head.kind == "sequence"), None)
        if head is None:  # the family classifies nothing
            return
        self.model(head, num_labels=3).save_pretrained(tmp_path)
        with pytest.raises(RuntimeError, match="ignore_mismatched_sizes"):
            head.cls.from_pretrained(tmp_path, num_labels=5)
        loaded, info = head.cls.from_pretrained(
            tmp_path, num_labels=5, ignore_mismatched_sizes=True, output_loading_info=True
        )
        name = self.classifier_name
        assert {key[0] for key in info["mismatched_keys"]} == {f"{name}.weight", f"{name}.bias"}
        classifier = loaded.get_submodule(name)
        assert classifier.weight.shape[0] == loaded.config.num_labels == 5
        assert classifier.weight.abs().max() < 1

    @torch.no_grad()
    def test_heads_and_encoder_load_each_other(self, loss_head: Head, tmp_path: Path) -> None:
        model, inputs = self.model(loss_head), self.rows()
        model.save_pretrained(tmp_path / "head")
        encoder, info = self.base_class.from_pretrained(tmp_path / "head", output_loading_info=True)
        assert all(name.startswith(self.fresh_in_base) for name in info["missing_keys"])
        states = model.base_model(**inputs).last_hidden_state
        assert_same(encoder(**inputs).last_hidden_state, states, 0.0)

        encoder.save_pretrained(tmp_path / "encoder")
        prefix = f"{encoder.base_model_prefix}."
        assert not any(key.startswith(prefix) for key in load_file(tmp_path / "encoder" / "model.safetensors"))
        again, info = loss_head.cls.from_pretrained(tmp_path / "encoder", output_loading_info=True)
        assert_same(again.base_model(**inputs).last_hidden_state, states, 0.0)
        assert not any(name.startswith(prefix) for name in info["missing_keys"])

    @torch.no_grad()
    def test_half_precision(self, head: Head, tmp_path: Path) -> None:
        model, batch = self.model(head), self.labelled(head)
        model.save_pretrained(tmp_path)
        half = head.cls.from_pretrained(tmp_path, dtype=torch.bfloat16)
        assert {parameter.dtype for parameter in half.parameters()} == {torch.bfloat16}
        expected, got = model(**batch), half(**batch)
        for name in head.outputs:
            assert got[name].dtype == torch.bfloat16
            difference = (got[name].float() - expected[name]).abs()
            assert difference.mean() < 0.05 * expected[name].std()
        if head.labels is not None:
            assert got.loss.dtype == torch.float32 or head.cls.__name__.endswith("Regression")
            torch.testing.assert_close(got.loss.float(), expected.loss, rtol=0.05, atol=0.05)
        half.save_pretrained(tmp_path / "half")
        assert head.cls.from_pretrained(tmp_path / "half").dtype == torch.bfloat16

    @torch.no_grad()
    @pytest.mark.parametrize("form", ["plain", "gamma and beta", "module. and gamma", "encoder without prefix"])
    def test_older_names_load(self, form: str, tmp_path: Path) -> None:
        self.check_older_names(form, tmp_path)

    def check_older_names(self, form: str, tmp_path: Path) -> None:
        head = self.head("vocabulary")
        model, inputs = self.model(head), self.inputs(head)
        prefix = f"{model.base_model_prefix}."
        state: dict[str, Any] = {name: value.clone() for name, value in model.state_dict().items()}
        if form == "encoder without prefix":
            state = {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
        if "gamma" in form:
            renamed = {"weight": "gamma", "bias": "beta"}
            state = {
                ".".join([*name.split(".")[:-1], renamed[name.split(".")[-1]]])
                if "norm" in name.lower() and name.split(".")[-2].lower().startswith("layer")
                else name: value
                for name, value in state.items()
            }
            assert any(name.endswith("gamma") for name in state)
        if "module" in form:
            state = {f"module.{name}": value for name, value in state.items()}
        torch.save(state, tmp_path / "pytorch_model.bin")
        model.config.save_pretrained(tmp_path)
        loaded, info = head.cls.from_pretrained(tmp_path, output_loading_info=True)
        tied = set(loaded.all_tied_weights_keys)
        fresh = {name for name in model.state_dict() if not name.startswith(prefix)} if "prefix" in form else set()
        assert set(info["missing_keys"]) - tied == fresh - tied
        assert not info["unexpected_keys"]
        expected = model.base_model(**inputs).last_hidden_state
        assert_same(loaded.base_model(**inputs).last_hidden_state, expected, 1e-6)
        if not fresh:
            assert_same_outputs(loaded(**inputs), model(**inputs), 1e-6)
        encoder = self.base_class.from_pretrained(tmp_path)
        assert_same(encoder(**inputs).last_hidden_state, expected, 1e-6)
        # The next save has today's names.
        loaded.save_pretrained(tmp_path / "again")
        again = load_file(tmp_path / "again" / "model.safetensors")
        assert set(again) <= set(model.state_dict())

    @pytest.mark.parametrize("form", ["a layer", "a weight", "nothing"])
    def test_encoder_weights_that_a_file_lacks_are_named(
        self, head: Head, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A wrong name must never end as a freshly initialised weight without a word of ours."""
        module = sys.modules[next(cls.__module__ for cls in head.cls.__mro__ if "_check_loading" in vars(cls))]
        said: list[str] = []
        monkeypatch.setattr(module.logger, "warning", said.append)
        model = self.model(head)
        model.save_pretrained(tmp_path)
        path = tmp_path / "model.safetensors"
        gone = {"a layer": self.one_layer, "a weight": self.one_weight}.get(form)
        weights = load_file(path)
        kept = {name: value for name, value in weights.items() if gone is None or gone not in name}
        if gone is not None:
            assert len(kept) < len(weights)
            kept |= {f"elsewhere.{name}": value for name, value in weights.items() if gone in name}
        save_file(kept, path, {"format": "pt"})
        head.cls.from_pretrained(tmp_path)
        stack = self.one_layer.split(".")[0]
        expected = {"a layer": f"lacks {stack} layers 1 (of 2, from 0)", "a weight": gone}.get(form)
        if expected is None:
            assert said == []
        else:
            assert len(said) == 1
            assert expected in said[0]
            assert str(tmp_path) in said[0]

    def test_a_file_without_encoder_weights_is_refused(self, head: Head, tmp_path: Path) -> None:
        model = self.model(head)
        state = {f"elsewhere.{name}": value for name, value in model.state_dict().items()}
        torch.save(state, tmp_path / "pytorch_model.bin")
        model.config.save_pretrained(tmp_path)
        with pytest.raises(ValueError, match="No encoder weight"):
            head.cls.from_pretrained(tmp_path)
