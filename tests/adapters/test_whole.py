"""A model and its adapter as one checkpoint: the same outputs, nothing changed, and only what can be saved so."""

import json

import peft
import pytest
import torch
from peft import LoraConfig, PromptTuningConfig, get_peft_model
from transformers import AutoModel, AutoModelForSequenceClassification, BertForSequenceClassification, pipeline

from hf_ptm_ext import HoulsbyConfig, PfeifferConfig, SpanBertForSequenceClassification, save_adapted
from hf_ptm_ext.data import train_wordpiece
from hf_ptm_ext.hub import finish_folder, verify
from tests.adapters.architectures import config_of, make_inputs

INPUTS = make_inputs("bert", config_of("bert"))


def adapted(config, model_type="bert"):
    torch.manual_seed(0)
    model = get_peft_model(AutoModelForSequenceClassification.from_config(config_of(model_type)), config)
    with torch.no_grad():
        for value in model.parameters():
            if value.requires_grad:
                value.add_(0.1 * torch.randn_like(value))
    return model.eval()


def load(folder):
    return AutoModelForSequenceClassification.from_pretrained(folder, trust_remote_code=True)


@torch.no_grad()
@pytest.mark.parametrize(
    "config",
    [
        HoulsbyConfig(scaling="channel", ln_after=True, leave_out=[0]),
        HoulsbyConfig(reduction_factor={"0": 2, "default": 8}, train_layer_norms=False, scaling=3.0),
        PfeifferConfig(ln_before=True, train_layer_norms=True, scaling="learned", dropout=0.5),
    ],
    ids=["houlsby", "sizes", "pfeiffer"],
)
def test_options_travel(tmp_path, config):
    model = adapted(config)
    before, state = model.state_dict(), torch.random.get_rng_state()
    save_adapted(model, tmp_path / "whole")
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    loaded = load(tmp_path / "whole")
    assert torch.equal(loaded(**INPUTS).logits, model(**INPUTS).logits)
    plain = BertForSequenceClassification(config_of("bert"))
    assert issubclass(type(loaded), BertForSequenceClassification)
    assert not torch.equal(loaded(**INPUTS).logits, plain(**INPUTS).logits)
    states = AutoModel.from_pretrained(tmp_path / "whole", trust_remote_code=True)(**INPUTS).last_hidden_state
    assert torch.equal(states, model.get_base_model().bert(**INPUTS).last_hidden_state)


@torch.no_grad()
@pytest.mark.parametrize("exact", [True, False])
def test_adapters_keep_their_precision_beside_a_model_of_half(tmp_path, exact):
    base = AutoModelForSequenceClassification.from_config(config_of("bert")).to(torch.bfloat16)
    config = HoulsbyConfig(init_weights="bert")
    model = get_peft_model(base, config, autocast_adapter_dtype=exact).eval()
    save_adapted(model, tmp_path / "whole")
    loaded = load(tmp_path / "whole")
    kinds = {value.dtype for name, value in loaded.named_parameters() if ".down." in name}
    assert kinds == {torch.float32 if exact else torch.bfloat16}
    assert loaded.dtype == torch.bfloat16
    assert torch.equal(loaded(**INPUTS).logits, model(**INPUTS).logits)


def test_it_trains_on_and_is_saved_again(tmp_path):
    save_adapted(adapted(PfeifferConfig(), "spanbert"), tmp_path / "whole")
    loaded = load(tmp_path / "whole").train()
    assert SpanBertForSequenceClassification.__name__ in {cls.__name__ for cls in type(loaded).__mro__}
    loaded(**INPUTS, labels=torch.tensor([0, 1])).loss.backward()
    assert all(value.grad is not None for name, value in loaded.named_parameters() if ".up." in name)
    loaded.eval().save_pretrained(tmp_path / "again")
    files = [{path.name for path in (tmp_path / name).iterdir()} for name in ("whole", "again")]
    assert files[0] == files[1]
    configs = [json.loads((tmp_path / name / "config.json").read_text("utf-8")) for name in ("whole", "again")]
    assert configs[0]["auto_map"] == configs[1]["auto_map"]
    with torch.no_grad():
        assert torch.equal(load(tmp_path / "again")(**INPUTS).logits, loaded(**INPUTS).logits)


def test_the_active_adapter_is_saved(tmp_path):
    model = adapted(HoulsbyConfig())
    model.add_adapter("second", HoulsbyConfig(non_linearity="relu"))
    model.set_adapter("second")
    save_adapted(model, tmp_path / "second")
    with torch.no_grad():
        expected = model(**INPUTS).logits
        assert torch.equal(load(tmp_path / "second")(**INPUTS).logits, expected)
        model.set_adapter("default")
        assert not torch.equal(model(**INPUTS).logits, expected)


@torch.no_grad()
def test_what_can_be_merged_is(tmp_path):
    model = adapted(LoraConfig(task_type="SEQ_CLS", r=2))
    before = model(**INPUTS).logits
    save_adapted(model, tmp_path / "merged")
    assert torch.equal(model(**INPUTS).logits, before)
    assert not list((tmp_path / "merged").glob("*.py"))
    plain = AutoModelForSequenceClassification.from_pretrained(tmp_path / "merged")
    torch.testing.assert_close(plain(**INPUTS).logits, before)


def test_a_pipeline_reads_it(tmp_path):
    tokenizer = train_wordpiece([["light and dark"]], 60)
    save_adapted(adapted(HoulsbyConfig()), tmp_path / "whole")
    tokenizer.save_pretrained(tmp_path / "whole")
    classify = pipeline("text-classification", model=str(tmp_path / "whole"), trust_remote_code=True)
    assert type(classify.model).__name__ == "AdaptedBertForSequenceClassification"
    assert set(classify("light")[0]) == {"label", "score"}


def test_without_the_flag_it_does_not_pass_for_a_plain_model(tmp_path):
    save_adapted(adapted(HoulsbyConfig()), tmp_path / "whole")
    with pytest.raises(ValueError, match="trust_remote_code"):
        AutoModelForSequenceClassification.from_pretrained(tmp_path / "whole", trust_remote_code=False)


class Own(BertForSequenceClassification):
    """A user's class that no auto class gives."""


def test_what_cannot_be_saved_so(tmp_path):
    plain = BertForSequenceClassification(config_of("bert"))
    with pytest.raises(TypeError, match="must be adapted by PEFT, got BertForSequenceClassification"):
        save_adapted(plain, tmp_path / "whole")
    prompts = get_peft_model(plain, PromptTuningConfig(task_type="SEQ_CLS", num_virtual_tokens=2))
    with pytest.raises(ValueError, match="got PROMPT_TUNING, which stands in front of the text"):
        save_adapted(prompts, tmp_path / "whole")
    with pytest.raises(ValueError, match="Auto classes gives, got a Own"):
        save_adapted(get_peft_model(Own(config_of("bert")), HoulsbyConfig()), tmp_path / "whole")
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").touch()
    with pytest.raises(FileExistsError, match="new or empty"):
        save_adapted(adapted(HoulsbyConfig()), tmp_path / "used")
    assert [path.name for path in tmp_path.iterdir()] == ["used"]
    assert peft.PeftType.HOULSBY == "HOULSBY"


def test_verify_knows_the_code_that_saving_writes(tmp_path):
    """Of the adapters, of the model's family and of the encoder inside it; a line more needs the reader's trust."""
    config = config_of("k_adapter", encoder_config={**config_of("nezha").to_dict()})
    model = get_peft_model(AutoModelForSequenceClassification.from_config(config), HoulsbyConfig())
    save_adapted(model, tmp_path / "whole")
    found = verify(tmp_path / "whole")
    assert found.problems == []
    names = {
        "AutoModel": "AdaptedKAdapterModel",
        "AutoModelForSequenceClassification": "AdaptedKAdapterForSequenceClassification",
    }
    assert {one.auto_class: one.class_name for one in found.results} == names
    assert {"encoder_family_core.py", "modeling_nezha.py", "bottleneck_core.py"} <= found.code.keys()
    written = {path.name: path.read_bytes() for path in (tmp_path / "whole").glob("*.py")}
    for name in ("modeling_adapted.py", "encoder_family_core.py"):
        file = tmp_path / "whole" / name
        file.write_bytes(written[name] + b"print()\n")
        with pytest.raises(ValueError, match=f"{name} .differs from|{name} .not in"):
            verify(tmp_path / "whole")
        file.unlink()
        assert verify(tmp_path / "whole").problems[0].startswith(f"{name} is missing")
        finish_folder(tmp_path / "whole")
    assert {path.name: path.read_bytes() for path in (tmp_path / "whole").glob("*.py")} == written
