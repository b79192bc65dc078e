"""One model, many adapters: switching, deleting, taking off; what is refused; sizes; what is new is trained too."""

import copy
import pickle
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import AutoPeftModelForSequenceClassification, PeftConfig, PeftModel, get_peft_model
from torch import nn
from transformers import (
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertModel,
)

from hf_ptm_ext import (
    KBertForMultipleChoice,
    KBertModel,
    SpanBertForQuestionAnswering,
    SpanBertForSequenceClassification,
    SpanBertModel,
)
from hf_ptm_ext.adapters import HoulsbyConfig, PfeifferConfig
from hf_ptm_ext.hub import verify
from tests.adapters.architectures import config_of, make_inputs, make_model, output_of

CONFIGS = {"houlsby": HoulsbyConfig, "pfeiffer": PfeifferConfig}
method = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
INPUTS = make_inputs("bert", config_of("bert"))


def out(model: Any) -> torch.Tensor:
    model.eval()
    with torch.no_grad():
        return output_of(model, INPUTS)


@method
class TestSeveralAdapters:
    def two(self, config: Any) -> Any:
        model = get_peft_model(make_model("bert"), config(init_weights="bert"), adapter_name="first")
        model.add_adapter("second", config(init_weights="bert", reduction_factor=4, non_linearity="swish"))
        return model

    def test_switching_is_exact(self, config: Any) -> None:
        model = self.two(config)
        first = out(model)
        model.set_adapter("second")
        second = out(model)
        assert not torch.equal(first, second)
        trainable = {name for name, value in model.named_parameters() if value.requires_grad}
        assert trainable
        assert all(".second" in name for name in trainable)
        model.set_adapter("first")
        assert torch.equal(out(model), first)

    def test_training_one_leaves_the_other_alone(self, config: Any) -> None:
        model = self.two(config)
        first = out(model)
        model.set_adapter("second")
        optimizer = torch.optim.SGD([value for value in model.parameters() if value.requires_grad], lr=1.0)
        output_of(model.train(), INPUTS).square().mean().backward()
        optimizer.step()
        model.set_adapter("first")
        assert torch.equal(out(model), first)

    def test_deleting(self, config: Any) -> None:
        model = self.two(config)
        model.set_adapter("second")
        second = out(model)
        model.delete_adapter("first")
        assert torch.equal(out(model), second)
        assert not [name for name, _ in model.named_parameters() if ".first." in name]
        with pytest.raises(ValueError, match="first"):
            model.set_adapter("first")

    def test_taking_off_gives_the_model_back(self, config: Any) -> None:
        expected = out(make_model("bert"))
        base = self.two(config).unload()
        assert isinstance(base, BertModel)
        assert torch.equal(out(base), expected)

    def test_each_is_saved_and_loaded_by_name(self, config: Any, tmp_path: Path) -> None:
        model = self.two(config)
        outputs = {}
        for name in ("first", "second"):
            model.set_adapter(name)
            outputs[name] = out(model)
        model.save_pretrained(tmp_path)
        again = PeftModel.from_pretrained(make_model("bert"), tmp_path / "first", adapter_name="first")
        again.load_adapter(tmp_path / "second", adapter_name="second")
        for name, expected in outputs.items():
            again.set_adapter(name)
            assert torch.equal(out(again), expected)

    def test_one_adapter_acts_at_a_time(self, config: Any) -> None:
        model = self.two(config)
        with pytest.raises(ValueError, match="`adapter_name` must be one"):
            model.base_model.set_adapter(["first", "second"])

    def test_merging_is_refused_and_the_model_unharmed(self, config: Any) -> None:
        model = self.two(config)
        before = out(model)
        for merge in (model.merge_and_unload, model.merge_adapter):
            with pytest.raises(ValueError, match=r"non-linearity.*unload\(\)"):
                merge()
        assert torch.equal(out(model), before)

    def test_mixed_models_are_refused(self, config: Any) -> None:
        with pytest.raises(ValueError, match="not compatible with the `PeftMixedModel`"):
            get_peft_model(make_model("bert"), config(), mixed=True)

    def test_copies_and_pickles(self, config: Any) -> None:
        model = self.two(config)
        expected = out(model)
        assert torch.equal(out(copy.deepcopy(model)), expected)
        assert torch.equal(out(pickle.loads(pickle.dumps(model))), expected)

    def test_compiled_without_breaks(self, config: Any) -> None:
        model = self.two(config).eval()
        compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(compiled(**INPUTS)[0].detach(), out(model), atol=1e-5, rtol=1e-5)

    def test_activation_checkpointing_gives_the_same_gradients(self, config: Any) -> None:
        gradients = []
        for checkpointed in (False, True):
            base = make_model("bert", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
            torch.manual_seed(1)
            model = get_peft_model(base, config(init_weights="bert")).train()
            if checkpointed:
                base.gradient_checkpointing_enable({"use_reentrant": False})
            output_of(model, INPUTS).square().mean().backward()
            gradients.append({name: value.grad for name, value in model.named_parameters() if value.requires_grad})
        for name, gradient in gradients[0].items():
            torch.testing.assert_close(gradients[1][name], gradient)

    def test_half_precision(self, config: Any) -> None:
        base = make_model("bert").to(torch.bfloat16)
        model = get_peft_model(base, config(init_weights="bert"))
        assert {value.dtype for name, value in model.named_parameters() if "_down" in name} == {torch.float32}
        assert out(model).dtype == torch.bfloat16
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert out(get_peft_model(make_model("bert"), config(init_weights="bert"))).isfinite().all()

    def test_meta_weights_are_filled_on_loading(self, config: Any, tmp_path: Path) -> None:
        model = get_peft_model(make_model("bert"), config(init_weights="bert", scaling="learned", ln_before=True))
        model.save_pretrained(tmp_path)
        again = PeftModel.from_pretrained(make_model("bert"), tmp_path, low_cpu_mem_usage=True)
        assert torch.equal(out(again), out(model))


class TestLayerNorms:
    def test_houlsby_trains_every_layer_norm_as_a_copy(self) -> None:
        model = get_peft_model(make_model("bert"), HoulsbyConfig())
        norms = [name for name, value in model.named_parameters() if value.requires_grad and "LayerNorm" in name]
        assert len(norms) == 2 * (1 + 2 * 2)
        assert all(".modules_to_save.default." in name for name in norms)

    def test_pfeiffer_can_train_those_that_it_wraps(self, tmp_path: Path) -> None:
        expected = out(make_model("bert"))
        model = get_peft_model(make_model("bert"), PfeifferConfig(train_layer_norms=True))
        norms = [name for name, value in model.named_parameters() if value.requires_grad and "LayerNorm" in name]
        assert len([name for name in norms if "pfeiffer" not in name]) == 2 * (1 + 2 * 2)
        assert torch.equal(out(model), expected)
        with torch.no_grad():
            for value in model.parameters():
                if value.requires_grad:
                    value += 0.1
        after = out(model)
        model.save_pretrained(tmp_path)
        assert torch.equal(out(PeftModel.from_pretrained(make_model("bert"), tmp_path)), after)
        assert torch.equal(out(model.unload()), expected)

    def test_layer_norms_inside_of_what_is_wrapped_are_refused(self) -> None:
        with pytest.raises(ValueError, match=r"`train_layer_norms` must be False.*'t5'"):
            get_peft_model(make_model("t5"), PfeifferConfig(train_layer_norms=True))

    def test_modules_to_save_must_not_take_the_targets_away(self) -> None:
        with pytest.raises(ValueError, match=r"`modules_to_save`.*output\.LayerNorm.*`train_layer_norms=True`"):
            get_peft_model(make_model("bert"), PfeifferConfig(modules_to_save=["LayerNorm"]))

    def test_switched_with_their_adapter(self) -> None:
        model = get_peft_model(make_model("bert"), HoulsbyConfig(), adapter_name="first")
        model.add_adapter("second", HoulsbyConfig())
        model.set_adapter("second")
        with torch.no_grad():
            for name, value in model.named_parameters():
                if "LayerNorm.modules_to_save.second" in name:
                    value += 0.5
        second = out(model)
        model.set_adapter("first")
        assert torch.equal(out(model), out(make_model("bert")))
        model.set_adapter("second")
        assert torch.equal(out(model), second)


class TestSizes:
    @method
    def test_counts(self, config: Any) -> None:
        model = get_peft_model(make_model("bert"), config(reduction_factor=5, train_layer_norms=False))
        adapters = 2 * (2 if config is HoulsbyConfig else 1)
        assert model.get_nb_trainable_parameters()[0] == adapters * (2 * 32 * 6 + 6 + 32)

    def test_a_fixed_bottleneck(self) -> None:
        model = get_peft_model(make_model("bert"), PfeifferConfig(bottleneck_size=64))
        assert model.get_nb_trainable_parameters()[0] == 2 * (2 * 32 * 64 + 64 + 32)

    def test_factors_by_layer(self) -> None:
        model = get_peft_model(make_model("bert"), PfeifferConfig(reduction_factor={"1": 2, "default": 16}))
        sizes = [value.shape[0] for name, value in model.named_parameters() if name.endswith("down.default.bias")]
        assert sizes == [2, 16]
        with pytest.raises(ValueError, match="layer 1 or for `default`"):
            get_peft_model(make_model("bert"), PfeifferConfig(reduction_factor={"0": 2}))

    def test_layers_left_out_count_on_into_the_decoder(self) -> None:
        model = get_peft_model(make_model("bart"), PfeifferConfig(leave_out=[0, 3]))
        places = {re.sub(r".*?((en|de)coder\.layers\.\d).*", r"\1", name) for name, _ in trainable(model)}
        assert places == {"encoder.layers.1", "decoder.layers.0"}

    def test_the_file_is_small(self) -> None:
        """BERT-base at reduction 16: below 3 % of the model, without its being made."""
        with torch.device("meta"):
            base = BertModel(BertConfig())
        for config in CONFIGS.values():
            trained, total = get_peft_model(
                copy.deepcopy(base), config(), low_cpu_mem_usage=True
            ).get_nb_trainable_parameters()
            assert trained / total < 0.03

    def test_initial_weights(self) -> None:
        def drawn(**options: Any) -> dict[str, torch.Tensor]:
            torch.manual_seed(0)
            model = get_peft_model(make_model("bert"), PfeifferConfig(bottleneck_size=256, **options))
            return {
                name.split("pfeiffer_")[1].split(".")[0]: value for name, value in trainable(model) if "weight" in name
            }

        identity, normal, bert = (drawn(init_weights=name) for name in ("identity", "truncated_normal", "bert"))
        assert not identity["up"].any()
        # A normal cut at two deviations has 0.8796 of its deviation; 8192 draws, standard error below 1 %.
        for value in (identity["down"], normal["down"], normal["up"]):
            assert value.abs().max() <= 2e-3
            assert value.std().item() == pytest.approx(0.8796e-3, rel=0.05)
        for value in bert.values():
            assert value.std().item() == pytest.approx(0.02, rel=0.05)


def trainable(model: Any) -> list[tuple[str, nn.Parameter]]:
    return [(name, value) for name, value in model.named_parameters() if value.requires_grad]


class TestWhatIsRefused:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"reduction_factor": 0}, "`reduction_factor` must be positive, got 0"),
            ({"bottleneck_size": 0}, "`bottleneck_size` must be a positive integer, got 0"),
            ({"non_linearity": "gelv"}, "`non_linearity` must be one of .*, got 'gelv'"),
            ({"scaling": "big"}, "`scaling` must be a number or one of learned, channel, got 'big'"),
            ({"dropout": 1.0}, "`dropout` must be at least 0 and below 1, got 1.0"),
            (
                {"init_weights": "xavier"},
                "`init_weights` must be one of identity, truncated_normal, bert, got 'xavier'",
            ),
            ({"init_std": 0.0}, "`init_std` must be positive, got 0.0"),
            ({"leave_out": [-1]}, "`leave_out` must be numbers of layers, from 0"),
        ],
    )
    @method
    def test_values(self, config: Any, options: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            config(**options)

    def test_unknown_layers(self) -> None:
        with pytest.raises(ValueError, match=r"`leave_out` must be numbers below 2.*got \[5\]"):
            get_peft_model(make_model("bert"), HoulsbyConfig(leave_out=[1, 5]))

    def test_no_layer_left(self) -> None:
        with pytest.raises(ValueError, match="`leave_out` must leave a layer with adapters, got all 2"):
            get_peft_model(make_model("bert"), HoulsbyConfig(leave_out=[0, 1]))

    def test_unknown_arguments(self) -> None:
        with pytest.raises(TypeError, match="reduction_factr"):
            HoulsbyConfig(reduction_factr=4)


class Custom(nn.Module):
    """A model that nobody knows."""

    _peft_houlsby_target_modules = r"blocks\.\d+\.second"

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.ModuleDict({"first": nn.Linear(4, 4), "second": nn.Linear(4, 8)}) for _ in range(2)
        )

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            states = states + block["second"](block["first"](states))[..., :4]
        return states


class TestCustomModels:
    def test_an_unknown_architecture_is_explained(self) -> None:
        with pytest.raises(ValueError, match=r"`target_modules`.*_peft_pfeiffer_target_modules.*on the model class"):
            get_peft_model(Custom(), PfeifferConfig())

    def test_a_model_names_its_own_targets(self) -> None:
        model = get_peft_model(Custom(), HoulsbyConfig(bottleneck_size=3, leave_out=[1]))
        assert model.get_nb_trainable_parameters()[0] == 2 * 8 * 3 + 3 + 8
        assert model(torch.ones(2, 4)).shape == (2, 4)

    def test_targets_by_ending(self) -> None:
        model = get_peft_model(Custom(), HoulsbyConfig(target_modules=["first"], bottleneck_size=3))
        assert model.get_nb_trainable_parameters()[0] == 2 * (2 * 4 * 3 + 3 + 4)


def step(model: Any, batch: dict[str, torch.Tensor]) -> None:
    """One update, with dropout off."""
    optimizer = torch.optim.SGD([value for value in model.parameters() if value.requires_grad], lr=0.1)
    model.eval()(**batch).loss.backward()
    optimizer.step()


class TestNewHeads:
    """A head whose weights are new is trained and saved with the adapter, whatever the task is called."""

    CASES = {
        "multiple choice": (KBertForMultipleChoice, KBertModel, "kbert"),
        "sequence": (SpanBertForSequenceClassification, SpanBertModel, "spanbert"),
        "question answering": (SpanBertForQuestionAnswering, SpanBertModel, "spanbert"),
        "upstream": (BertForSequenceClassification, BertModel, "bert"),
    }

    def batch(self, case: str) -> dict[str, torch.Tensor]:
        inputs = dict(INPUTS)
        if case == "multiple choice":
            inputs = {name: value[:, None].repeat(1, 2, 1) for name, value in inputs.items()}
        if case == "question answering":
            return {**inputs, "start_positions": torch.tensor([1, 2]), "end_positions": torch.tensor([3, 2])}
        return {**inputs, "labels": torch.tensor([1, 0])}

    @method
    @pytest.mark.parametrize("task_type", [None, "SEQ_CLS"])
    @pytest.mark.parametrize("case", CASES)
    def test_reloaded_on_another_new_head(self, case: str, task_type: str | None, config: Any, tmp_path: Path) -> None:
        head_class, base_class, model_type = self.CASES[case]
        if case == "question answering" and task_type is not None:
            task_type = "QUESTION_ANS"
        base_class(config_of(model_type, hidden_size=16, intermediate_size=32)).save_pretrained(tmp_path / "base")
        torch.manual_seed(1)
        model = get_peft_model(head_class.from_pretrained(tmp_path / "base"), config(task_type=task_type))
        head = "qa_outputs" if case == "question answering" else "classifier"
        assert [name for name, _ in trainable(model) if f".{head}." in name]
        batch = self.batch(case)
        step(model, batch)
        model.save_pretrained(tmp_path / "adapter")
        torch.manual_seed(2)
        again = PeftModel.from_pretrained(head_class.from_pretrained(tmp_path / "base"), tmp_path / "adapter").eval()
        with torch.no_grad():
            assert torch.equal(again(**batch).loss, model(**batch).loss)

    def test_a_pooler_that_the_checkpoint_lacks(self, tmp_path: Path) -> None:
        BertForMaskedLM(config_of("bert")).save_pretrained(tmp_path / "base")
        torch.manual_seed(1)
        model = get_peft_model(
            AutoModelForSequenceClassification.from_pretrained(tmp_path / "base"), PfeifferConfig(task_type="SEQ_CLS")
        )
        assert [name for name, _ in trainable(model) if ".pooler." in name]
        step(model, self.batch("upstream"))
        model.save_pretrained(tmp_path / "adapter")
        torch.manual_seed(2)
        again = AutoPeftModelForSequenceClassification.from_pretrained(tmp_path / "adapter").eval()
        with torch.no_grad():
            assert torch.equal(again(**INPUTS).logits, model(**INPUTS).logits)

    def test_what_a_checkpoint_has_is_not_new(self, tmp_path: Path) -> None:
        BertForSequenceClassification(config_of("bert")).save_pretrained(tmp_path / "trained")
        BertForMaskedLM(config_of("bert")).save_pretrained(tmp_path / "masked")
        trained = AutoModelForSequenceClassification.from_pretrained(tmp_path / "trained")
        assert get_peft_model(trained, PfeifferConfig()).peft_config["default"].modules_to_save is None
        masked = AutoModelForMaskedLM.from_pretrained(tmp_path / "masked")
        assert get_peft_model(masked, PfeifferConfig()).peft_config["default"].modules_to_save is None

    def test_features_have_no_head(self) -> None:
        model = BertForSequenceClassification(config_of("bert"))
        config = PfeifferConfig(task_type="FEATURE_EXTRACTION")
        assert get_peft_model(model, config).peft_config["default"].modules_to_save is None


@method
def test_the_config_file_says_what_it_needs(config: Any, tmp_path: Path) -> None:
    get_peft_model(make_model("bert"), config(leave_out=[1])).save_pretrained(tmp_path)
    text = (tmp_path / "adapter_config.json").read_text("utf-8")
    assert '"requires": "import hf_ptm_ext"' in text
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = PeftConfig.from_pretrained(tmp_path)
    assert type(again) is config
    assert again.leave_out == [1]


def test_verify_says_what_an_adapters_folder_is(tmp_path: Path) -> None:
    get_peft_model(make_model("bert"), HoulsbyConfig()).save_pretrained(tmp_path)
    problems = verify(str(tmp_path)).problems
    assert "holds an adapter, not a model: `import hf_ptm_ext`" in problems[0]
