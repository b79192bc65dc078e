"""A batch whose rows have adapters of their own: each row is what its adapter alone makes of it, as in PEFT's LoRA."""

from typing import Any

import pytest
import torch
from peft import get_peft_model

from tests.adapters.architectures import MAIN, make_inputs, make_model, output_of
from tests.adapters.test_architectures import CONFIGS, method

NAMES = ["first", "__base__", "second", "first"]


def with_two_adapters(model_type: str, config: Any) -> tuple[Any, dict[str, torch.Tensor]]:
    """A model with two trained adapters, whose copies of LayerNorms differ too, and four rows."""
    base = make_model(model_type)
    inputs = {
        name: value.repeat(2, *[1] * (value.dim() - 1)) for name, value in make_inputs(model_type, base.config).items()
    }
    options = {"init_weights": "truncated_normal", "init_std": 0.5, "task_type": "FEATURE_EXTRACTION"}
    model = get_peft_model(base, config(**options), adapter_name="first")
    model.add_adapter("second", config(**options, leave_out=[] if model_type == "albert" else [0]))
    generator = torch.Generator().manual_seed(1)
    for name, value in model.named_parameters():
        if "modules_to_save" in name:
            value.data += 0.3 * torch.randn(value.shape, generator=generator)
    return model.eval(), inputs


def alone(model: Any, run: Any) -> dict[str, Any]:
    """What each adapter, and none, makes of all rows."""
    with model.disable_adapter():
        found = {"__base__": run()}
    for name in ("first", "second"):
        model.set_adapter(name)
        found[name] = run()
    return found


@method
@pytest.mark.parametrize("model_type", MAIN)
@torch.no_grad()
def test_each_row_has_its_adapter(model_type: str, config: Any) -> None:
    model, inputs = with_two_adapters(model_type, config)
    expected = alone(model, lambda: output_of(model, inputs))
    assert (expected["first"] - expected["second"]).abs().max() > 1e-3
    mixed = model(**inputs, adapter_names=NAMES)[0]
    for row, name in enumerate(NAMES):
        torch.testing.assert_close(mixed[row], expected[name][row], atol=2e-5, rtol=1e-4)
    assert torch.equal(output_of(model, inputs), expected["second"])  # nothing stays behind


@method
@pytest.mark.parametrize("options", [{}, {"num_beams": 3}, {"num_beams": 2, "num_return_sequences": 2}], ids=str)
@pytest.mark.parametrize("model_type", ["bart", "mass", "mass_nmt", "t5"])
@torch.no_grad()
def test_generated_texts_have_their_adapters(model_type: str, config: Any, options: dict[str, int]) -> None:
    model, inputs = with_two_adapters(model_type, config)
    inputs.pop("decoder_input_ids")
    given = {**inputs, "max_new_tokens": 5, "min_new_tokens": 5, **options}
    expected = alone(model, lambda: model.generate(**given))
    mixed = model.generate(**given, adapter_names=NAMES)
    answers = options.get("num_return_sequences", 1)
    for row, name in enumerate(NAMES):
        part = slice(row * answers, (row + 1) * answers)
        assert torch.equal(mixed[part], expected[name][part])


@method
def test_what_a_mixed_batch_cannot_be_is_said(config: Any) -> None:
    model, inputs = with_two_adapters("spanbert", config)
    for names, message in ((["first", "third"], r"got \['third'\]"), (NAMES[:3], "a name for each text, got 3 for 4")):
        with pytest.raises(ValueError, match=f"`adapter_names` must .*{message}"):
            model(**inputs, adapter_names=names)
    with pytest.raises(ValueError, match="`alora_offsets` must be None"):
        model(**inputs, alora_offsets=[1])
    with pytest.raises(ValueError, match="`adapter_names` must be None in training"):
        model.train()(**inputs, adapter_names=NAMES)
    assert set(CONFIGS) == {"houlsby", "pfeiffer"}
