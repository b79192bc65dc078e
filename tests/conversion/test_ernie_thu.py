"""Original ERNIE-THU checkpoints: kinds of layers from the keys, files of every kind, BERT as the start, and back."""

import json

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoProcessor, BertConfig, BertForPreTraining

from hf_ptm_ext import (
    ErnieThuForEntityTyping,
    ErnieThuForPreTraining,
    ErnieThuForQuestionAnswering,
    ErnieThuForSequenceClassification,
    ErnieThuModel,
    ErnieThuProcessor,
)
from hf_ptm_ext.cli import main
from hf_ptm_ext.conversion.ernie_thu import (
    convert_checkpoint,
    convert_config,
    convert_state_dict,
    describe_key,
    infer_layer_types,
    revert_checkpoint,
    revert_config,
    revert_state_dict,
)
from hf_ptm_ext.hub import verify

SIZES = {
    "vocab_size": 149,
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 32,
}
OPTIONS = {**SIZES, "layer_types": ["sim", "mix", "norm"], "ent_hidden_size": 8, "ent_num_heads": 2}


def original(cls=ErnieThuForPreTraining, **options):
    """A file of the original code: its names, its tied copy, one bias."""
    torch.manual_seed(0)
    config = convert_config({**OPTIONS, **options})
    model = cls(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape) * 0.1)
    return revert_state_dict(model.state_dict(), config, tied_copies=cls is ErnieThuForPreTraining)


def old_names(state):
    """LayerNorms as TensorFlow calls them."""
    ending = {"weight": "gamma", "bias": "beta"}
    return {
        ".".join([*name.split(".")[:-1], ending[name.split(".")[-1]]]) if ".LayerNorm" in name else name: value
        for name, value in state.items()
    }


def test_kinds_of_layers_are_read_from_the_keys():
    for types in (["sim", "mix", "norm"], ["norm", "sim", "mix"], ["mix", "mix", "mix"], ["norm", "sim", "sim"]):
        assert infer_layer_types(original(layer_types=types)) == types
    assert infer_layer_types(original(layer_types=[])) is None
    state = {name: value for name, value in original().items() if "2.intermediate.dense_ent" not in name}
    state = {name: value for name, value in state.items() if "2.output.dense_ent" not in name}
    with pytest.raises(ValueError, match=r"Layer 2 .* entity attention .* no fusion"):
        infer_layer_types(state)


def test_the_config_must_say_what_the_keys_say():
    state = original()
    wrong = convert_config({**OPTIONS, "layer_types": ["sim", "norm", "mix"]})
    with pytest.raises(ValueError, match=r"must be \['sim', 'mix', 'norm'\].*layer 1 is 'mix' in the file and 'norm'"):
        convert_state_dict(state, wrong)
    for layers, found in ((2, 3), (4, 3)):
        with pytest.raises(ValueError, match=rf"`num_hidden_layers` .* in the file, {found}, got {layers}"):
            convert_state_dict(state, convert_config({**OPTIONS, "num_hidden_layers": layers, "layer_types": ["mix"]}))


def test_the_configs_own_names_and_the_originals():
    config = convert_config({**OPTIONS, "seed": 3, "train_batch_size": 8})
    assert config.fusion_layer_types == ["sim", "mix", "norm"]
    assert (config.entity_hidden_size, config.entity_num_attention_heads) == (8, 2)
    plain = convert_config(SIZES)
    assert (plain.entity_hidden_size, plain.entity_num_attention_heads) == (100, 4)
    assert plain.fusion_layer_types == ["sim", "mix", "norm"]
    assert convert_config(revert_config(config)).to_dict() == config.to_dict()
    with pytest.raises(ValueError, match="'entity'"):
        convert_config({**OPTIONS, "layer_types": ["sim", "entity"]})
    with pytest.raises(ValueError, match=r"`fusion_layer_types` must have at most"):
        convert_config({**OPTIONS, "layer_types": ["sim"] * 4})
    with pytest.raises(ValueError, match="`hidden_size` is missing"):
        convert_config({name: value for name, value in OPTIONS.items() if name != "hidden_size"})


@pytest.mark.parametrize("form", ["plain", "gamma and beta", "module.", "without bert.", "without the tied copy"])
def test_every_form_of_a_file_gives_the_same_tensors(form):
    state, config = original(), convert_config(OPTIONS)
    expected = convert_state_dict(state, config)
    changed = {
        "plain": dict,
        "gamma and beta": old_names,
        "module.": lambda state: {f"module.{name}": value for name, value in old_names(state).items()},
        "without bert.": lambda state: {name.removeprefix("bert."): value for name, value in state.items()},
        "without the tied copy": lambda state: {name: v for name, v in state.items() if "decoder" not in name},
    }[form](state)
    converted = convert_state_dict(changed, config)
    assert converted.keys() == expected.keys()
    assert all(torch.equal(converted[name], value) for name, value in expected.items())
    model = ErnieThuForPreTraining(config)
    model.load_state_dict(converted)
    assert describe_key("bert.pooler.dense.gamma") == ("bert.pooler.dense.gamma", ())


def test_what_does_not_fit_is_named():
    state, config = original(), convert_config(OPTIONS)
    with pytest.raises(ValueError, match=r"fit nowhere in ERNIE-THU: `cls\.other"):
        convert_state_dict({**state, "cls.other": torch.zeros(1)}, config)
    key = "bert.encoder.layer.1.intermediate.dense_ent.weight"
    with pytest.raises(ValueError, match=rf"`{key}`.*`entity_hidden_size` is 8 in the config, 9 in the file"):
        convert_state_dict({**state, key: torch.zeros(32, 9)}, config)
    with pytest.raises(ValueError, match=r"lacks weights: `bert\.encoder\.layer\.2\.attention\.self_ent\.key\.bias`"):
        convert_state_dict({n: v for n, v in state.items() if "self_ent.key.bias" not in n}, config)
    with pytest.raises(ValueError, match=r"lacks weights: `cls\.predictions_ent\.transform\.dense\.bias`"):
        convert_state_dict({n: v for n, v in state.items() if n != "cls.predictions_ent.transform.dense.bias"}, config)
    with pytest.raises(ValueError, match="differs from"):
        convert_state_dict({**state, "cls.predictions.decoder.weight": torch.zeros(149, 16)}, config)


@pytest.mark.parametrize(
    ("cls", "prefix", "labels"),
    [
        (ErnieThuForEntityTyping, "typing", 5),
        (ErnieThuForSequenceClassification, "classifier", 5),
        (ErnieThuForQuestionAnswering, "qa_outputs", 2),
    ],
)
def test_fine_tuned_files_become_their_own_class(cls, prefix, labels):
    state = original()
    state[f"{prefix}.weight"] = torch.randn(labels, 16)
    if prefix != "typing":
        state[f"{prefix}.bias"] = torch.randn(labels)
    conversion = convert_checkpoint(state, OPTIONS)
    assert conversion.architecture == cls.__name__
    assert not conversion.initialised
    assert "cls.predictions.bias" in conversion.dropped
    model = cls(conversion.config)
    if prefix != "qa_outputs":
        assert model.num_labels == labels
    report = model.load_state_dict(conversion.tensors, strict=False)
    assert not report.missing_keys
    reverted, options = revert_checkpoint(conversion.tensors, conversion.config)
    assert options["layer_types"] == ["sim", "mix", "norm"]
    for name in reverted:
        assert torch.equal(reverted[name], state[name]), name


def test_options_without_layer_types_are_read_from_the_file():
    options = {name: value for name, value in OPTIONS.items() if name not in ("layer_types", "ent_hidden_size")}
    conversion = convert_checkpoint(original(layer_types=["norm", "mix"]), options)
    assert conversion.config.fusion_layer_types == ["norm", "mix", "sim"]
    assert conversion.config.entity_hidden_size == 8


# ---- by command ----


VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghij", *(f"##{letter}" for letter in "abcdefghij")]


def write(folder, state, options, config_name="ernie_config.json"):
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(VOCAB) + "\n", encoding="utf-8")
    torch.save(state, folder / "pytorch_model.bin")
    (folder / config_name).write_text(json.dumps(options), encoding="utf-8")
    return folder


def test_the_command_converts_and_goes_back(tmp_path, capsys):
    state = original()
    source = write(tmp_path / "ernie_base", state, OPTIONS)
    assert main(["convert", "ernie_thu", str(source), str(tmp_path / "ours")]) == 0
    printed = capsys.readouterr().out
    assert "to ErnieThuForPreTraining" in printed
    assert "initialised  nothing" in printed
    model, info = ErnieThuForPreTraining.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    for name, value in convert_state_dict(state, convert_config(OPTIONS)).items():
        assert torch.equal(model.state_dict()[name], value), name
    assert {path.name for path in (tmp_path / "ours").iterdir()} >= {
        "modeling_ernie_thu.py",
        "entity_table_ernie_thu.py",
        "processing_ernie_thu.py",
        "processor_config.json",
        "tokenizer.json",
        "README.md",
    }
    processor = AutoProcessor.from_pretrained(tmp_path / "ours")
    assert type(processor) is ErnieThuProcessor
    assert processor("ab c", entities=[(0, 2, 4)])["entity_ids"] == [0, 4, 0, 0, 0]
    assert verify(tmp_path / "ours").ok

    assert main(["convert", "ernie_thu", str(tmp_path / "ours"), str(tmp_path / "back"), "--to-original"]) == 0
    assert {path.name for path in (tmp_path / "back").iterdir()} == {path.name for path in source.iterdir()}
    assert (tmp_path / "back" / "vocab.txt").read_bytes() == (source / "vocab.txt").read_bytes()
    back = torch.load(tmp_path / "back" / "pytorch_model.bin", weights_only=True)
    assert back.keys() == state.keys()
    assert all(torch.equal(back[name], value) for name, value in state.items())
    options = json.loads((tmp_path / "back" / "ernie_config.json").read_text(encoding="utf-8"))
    assert options["layer_types"] == OPTIONS["layer_types"]


def test_a_bert_becomes_the_start_of_an_ernie(tmp_path, capsys):
    """Its entity side is new, the same one every time; the command says so, and of the heads the loading."""
    bert = BertForPreTraining(BertConfig(**SIZES))
    bert.save_pretrained(tmp_path / "bert")
    assert main(["convert", "ernie_thu", str(tmp_path / "bert"), str(tmp_path / "ours")]) == 0
    printed = capsys.readouterr().out
    assert "initialised  bert.encoder.layer.*_ent.* (entity side of the encoder)" in printed
    assert "initialised  cls.predictions_ent.* (entity head)" in printed
    stored = load_file(tmp_path / "ours" / "model.safetensors")
    entity_side = {name: value for name, value in stored.items() if "_ent." in name}
    assert len(entity_side) == 22
    for name, value in entity_side.items():
        if name.endswith("bias"):
            assert not value.any()
        elif value.dim() == 1:
            assert (value == 1).all()
        else:
            assert 0.015 < value.std() < 0.025
    assert main(["convert", "ernie_thu", str(tmp_path / "bert"), str(tmp_path / "again")]) == 0
    names = ("ours", "again")
    assert len({(tmp_path / name / "model.safetensors").read_bytes() for name in names}) == 1
    model, info = ErnieThuForPreTraining.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert info["missing_keys"]
    assert all(name.startswith("cls.predictions_ent.") for name in info["missing_keys"])
    for name, value in bert.state_dict().items():
        assert torch.equal(model.state_dict()[name], value), name
    assert not (tmp_path / "ours" / "processing_ernie_thu.py").exists(), "no vocabulary, no processor"
    assert "entity side" in (tmp_path / "ours" / "README.md").read_text(encoding="utf-8")
    again = ErnieThuModel.from_pretrained(tmp_path / "ours")
    assert torch.isfinite(again(torch.tensor([[2, 7, 3]])).last_hidden_state).all()
