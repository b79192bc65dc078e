"""Adapters on every architecture with default targets: where they act, what they change, what they leave alone."""

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file

from hf_ptm_ext.adapters import HoulsbyConfig, PfeifferConfig
from hf_ptm_ext.adapters.layers import BottleneckLayer, HoulsbyLayer
from tests.adapters.architectures import (
    ALL,
    MAIN,
    OURS,
    WITHOUT_DROPOUT,
    dropout_fields,
    make_inputs,
    make_model,
    output_of,
)

CONFIGS = {"houlsby": HoulsbyConfig, "pfeiffer": PfeifferConfig}
method = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
SLOW_ALL = [name if name in MAIN else pytest.param(name, marks=pytest.mark.slow) for name in ALL]


def adapters_of(model: Any) -> dict[str, BottleneckLayer]:
    layers = {name: module for name, module in model.named_modules() if isinstance(module, BottleneckLayer)}
    return {name: layer for name, layer in layers.items() if layer.options}


def layers_of(config: Any) -> int:
    """Transformer layers of a tiny model."""
    if config.model_type == "albert":
        return 1  # all layers share their weights
    return 4 if config.is_encoder_decoder or config.model_type == "zen" else 2


@method
@pytest.mark.parametrize("model_type", SLOW_ALL)
def test_a_new_adapter_changes_nothing_and_leaves_without_a_trace(model_type: str, config: Any) -> None:
    base = make_model(model_type, **dropout_fields(model_type, 0.1))
    inputs = make_inputs(model_type, base.config)

    def seeded(model: Any) -> torch.Tensor:
        """In training: the same draws of dropout, wherever adapters are."""
        torch.manual_seed(5)
        output = output_of(model.train(), inputs).detach()
        model.eval()
        return output

    with torch.no_grad():
        before, before_in_training = output_of(base, inputs), seeded(base)
        assert not torch.equal(before, before_in_training)
        model = get_peft_model(base, config()).eval()
        per_layer = 2 if config is HoulsbyConfig else 1
        assert len(adapters_of(model)) == per_layer * layers_of(base.config)
        assert (output_of(model, inputs) - before).abs().max() < 1e-6
        assert torch.equal(seeded(model), before_in_training)
        base = model.unload()
        assert torch.equal(output_of(base, inputs), before)
        assert torch.equal(seeded(base), before_in_training)
    assert not [module for module in base.modules() if isinstance(module, BottleneckLayer)]


@pytest.mark.parametrize("model_type", SLOW_ALL)
def test_houlsby_adapters_act_behind_the_dropout(model_type: str) -> None:
    """The adapter reads states with a half of them dropped, and none of its own output is dropped."""
    model = make_model(model_type, **dropout_fields(model_type, 0.5))
    model = get_peft_model(model, HoulsbyConfig(init_weights="bert")).train()
    seen: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}
    layers = adapters_of(model)
    for name, layer in layers.items():
        layer.houlsby_down["default"].register_forward_pre_hook(
            lambda module, args, name=name: seen.__setitem__(name, (args[0], torch.empty(0)))
        )
        layer.register_forward_hook(
            lambda module, args, output, name=name: seen.__setitem__(name, (seen[name][0], output))
        )
    output_of(model, make_inputs(model_type, model.config))
    assert seen.keys() == layers.keys()
    for name, (read, written) in seen.items():
        dropped = (read == 0).float().mean().item()
        if name.endswith(WITHOUT_DROPOUT.get(model_type, ("no such module",))):
            assert dropped == 0.0, name
        else:
            assert 0.3 < dropped < 0.7, name  # at least 384 draws of 0.5: seven standard deviations
        # Were it dropped, it would change a half; rounding hides a few changes.
        assert (written != read)[read.any(-1)].float().mean() > 0.9, name


@method
@pytest.mark.parametrize("model_type", MAIN)
def test_only_the_adapter_is_trained_and_saved(model_type: str, config: Any, tmp_path: Path) -> None:
    base = make_model(model_type)
    inputs = make_inputs(model_type, base.config)
    original = {name: value.clone() for name, value in base.state_dict().items()}
    with torch.no_grad():
        before = output_of(base, inputs)
    model = get_peft_model(base, config(init_weights="bert")).train()
    trained = {name: value for name, value in model.named_parameters() if value.requires_grad}
    optimizer = torch.optim.AdamW(trained.values(), lr=1e-2)
    start = {name: value.detach().clone() for name, value in trained.items()}
    for _ in range(2):
        output_of(model, inputs).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    moved = {name for name, value in trained.items() if not torch.equal(value, start[name])}
    # The last entity stream of the bare encoder is no part of what is trained here.
    assert {name for name in trained if "LayerNorm_ent" not in name} <= moved

    model.eval()
    with torch.no_grad():
        after = output_of(model, inputs)
        assert (after - before).abs().max() > 1e-3
        with model.disable_adapter():
            assert torch.equal(output_of(model, inputs), before)
    model.save_pretrained(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "README.md",
        "adapter_config.json",
        "adapter_model.safetensors",
    ]
    stored = load_file(tmp_path / "adapter_model.safetensors")
    assert sum(value.numel() for value in stored.values()) == sum(value.numel() for value in trained.values())

    again = PeftModel.from_pretrained(make_model(model_type), tmp_path).eval()
    with torch.no_grad():
        assert torch.equal(output_of(again, inputs), after)
    kept = model.unload().state_dict()
    assert kept.keys() == original.keys()
    assert all(torch.equal(kept[name], value) for name, value in original.items())


def test_of_two_dropouts_by_function_only_the_adapters_are_moved() -> None:
    """BART's layers share one probability: it is drawn by the wrappers, at all of its places."""
    model = get_peft_model(make_model("bart"), HoulsbyConfig())
    layer = model.base_model.model.model.decoder.layers[0]
    assert layer.dropout == 0.0
    wrappers = (layer.self_attn.out_proj, layer.encoder_attn.out_proj, layer.fc2)
    assert all(isinstance(wrapper, HoulsbyLayer) and wrapper.residual_dropout == 0.1 for wrapper in wrappers)
    assert [bool(wrapper.options) for wrapper in wrappers] == [True, False, True]


def test_every_family_has_its_place() -> None:
    assert set(OURS) <= set(ALL)


@method
def test_adapters_in_a_frozen_encoder_are_trained(config: Any) -> None:
    """K-Adapter's encoder runs without a graph, unless something in it is trained."""
    model = get_peft_model(make_model("k_adapter", freeze_encoder=True), config(init_weights="bert")).train()
    output_of(model, make_inputs("k_adapter", model.config)).square().mean().backward()
    gradients = [value.grad for name, value in model.named_parameters() if "_down" in name and "weight" in name]
    assert len(gradients) == (4 if config is HoulsbyConfig else 2)
    assert all(gradient.any() for gradient in gradients)


@pytest.mark.parametrize("model_type", OURS)
def test_lora_finds_its_targets_in_every_family(model_type: str) -> None:
    model = get_peft_model(make_model(model_type), LoraConfig(r=2))
    assert any("lora_A" in name for name, _ in model.named_parameters())


@pytest.mark.parametrize("model_type", OURS)
def test_ia3_and_layer_norm_tuning_find_theirs(model_type: str) -> None:
    from peft import IA3Config, LNTuningConfig

    for config in (IA3Config(), LNTuningConfig()):
        assert get_peft_model(make_model(model_type), config).get_nb_trainable_parameters()[0] > 0


@method
@pytest.mark.parametrize("reentrant", [False, True], ids=["plain", "reentrant"])
@pytest.mark.parametrize("model_type", OURS)
def test_adapters_are_trained_under_gradient_checkpointing(model_type: str, reentrant: bool, config: Any) -> None:
    base = make_model(model_type, **dropout_fields(model_type, 0.0))
    inputs = make_inputs(model_type, base.config)
    model = get_peft_model(base, config(init_weights="bert", train_layer_norms=False)).train()
    generator = torch.Generator().manual_seed(3)
    weights = torch.randn(output_of(model, inputs).shape, generator=generator)

    def gradients() -> dict[str, torch.Tensor | None]:
        model.zero_grad()
        (output_of(model, inputs) * weights).sum().backward()
        return {name: value.grad for name, value in model.named_parameters() if value.requires_grad}

    expected = {name: value.clone() for name, value in gradients().items() if value is not None}
    model.enable_input_require_grads()
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    found = gradients()
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, atol=1e-5, rtol=1e-4, msg=name)
