"""TinyBERT's checkpoints: both ways, the golden's predictions and losses, the command, files that do not fit."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoModelForSequenceClassification, BertConfig, BertForPreTraining

from hf_ptm_ext import cli
from hf_ptm_ext.conversion.tinybert import (
    PROJECTIONS_FILE,
    convert_checkpoint,
    convert_config,
    convert_projections,
    convert_state_dict,
    revert_config,
    revert_state_dict,
)
from hf_ptm_ext.distillation import DistillationModel, preset_objectives, rectify_classifier_input
from tests.tolerance import assert_agrees

GOLDENS = Path(__file__).parents[1] / "goldens"
FACTS = json.loads((GOLDENS / "tinybert-model-a.json").read_text(encoding="utf-8"))
VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(chr(97 + n) for n in range(26)), *map(str, range(29))]


@pytest.fixture(scope="module")
def tensors():
    return load_file(GOLDENS / "tinybert-model-a.safetensors")


def side(tensors, part):
    return {key.removeprefix(f"{part}."): value for key, value in tensors.items() if key.startswith(f"{part}.")}


def original_config(part):
    """As the hub's files have it: no `model_type`, and fields of other tools."""
    return {**revert_config(convert_config(FACTS["config"], part)), "emb_size": 312}


def written(folder, part, tensors):
    folder.mkdir()
    torch.save(side(tensors, part), folder / "pytorch_model.bin")
    (folder / "config.json").write_text(json.dumps(original_config(part)), encoding="utf-8")
    (folder / "vocab.txt").write_text("\n".join(VOCAB) + "\n", encoding="utf-8")
    return folder


@pytest.mark.parametrize("part", ["student", "teacher"])
@pytest.mark.golden
def test_the_golden_predicts_and_goes_back(tensors, part):
    original, config = side(tensors, part), convert_config(FACTS["config"], part)
    converted = convert_state_dict(original, config)
    model = AutoModelForSequenceClassification.from_config(config)
    model.load_state_dict(converted)
    model.eval()
    handle = rectify_classifier_input(model)
    inputs = {name: tensors[f"input.{name}"] for name in ("input_ids", "attention_mask", "token_type_ids")}
    with torch.no_grad():
        assert_agrees(model(**inputs).logits, tensors[f"output.{part}_logits"], **FACTS["tolerance"])
    handle.remove()
    reverted = revert_state_dict(model.state_dict(), config, convert_projections(original))
    assert reverted.keys() == original.keys()
    assert all(torch.equal(reverted[key], original[key]) for key in original)


@pytest.mark.golden
def test_distillation_goes_on_from_a_converted_student(tensors):
    models = {}
    for part in ("student", "teacher"):
        conversion = convert_checkpoint(side(tensors, part), original_config(part))
        models[part] = AutoModelForSequenceClassification.from_config(conversion.config)
        models[part].load_state_dict(conversion.tensors)
    models["student"].eval()
    model = DistillationModel(
        models["student"],
        models["teacher"],
        preset_objectives("tinybert-intermediate", models["student"]),
        teacher_in_eval=True,
    ).eval()
    model.load_auxiliary_state_dict(convert_projections(side(tensors, "student")))
    output = model(**side(tensors, "input"))
    for name, key in (("attention_loss", "tinybert.att"), ("hidden_loss", "tinybert.rep")):
        assert_agrees(output[name], FACTS["losses"][key], **FACTS["tolerance"], name=name)


def test_number_of_labels_is_the_classifiers(tensors):
    conversion = convert_checkpoint(side(tensors, "student"), original_config("student"))
    assert conversion.config.num_labels == FACTS["config"]["labels"]
    assert conversion.architecture == "BertForSequenceClassification"


def general(layers=2):
    """A general TinyBERT: pre-training heads, the projection, old LayerNorm names."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=60, hidden_size=24, num_hidden_layers=layers, num_attention_heads=12, intermediate_size=20
    )
    model = BertForPreTraining(config)
    state = {key.replace("LayerNorm.weight", "LayerNorm.gamma"): value for key, value in model.state_dict().items()}
    state.pop("cls.predictions.decoder.bias")
    state["fit_dense.weight"], state["fit_dense.bias"] = torch.randn(32, 24), torch.randn(32)
    return model, {key.replace("LayerNorm.bias", "LayerNorm.beta"): value for key, value in state.items()}


def test_a_general_checkpoint_keeps_its_heads():
    model, state = general()
    config = convert_config(revert_config(model.config))
    converted = convert_state_dict(state, config)
    expected = model.state_dict()
    assert converted.keys() == expected.keys()
    assert all(torch.equal(converted[key], expected[key]) for key in expected)
    bare = {key.removeprefix("bert."): value for key, value in state.items() if key.startswith("bert.")}
    assert convert_checkpoint(bare, revert_config(config)).architecture == "BertModel"


def test_projections_of_single_layers_are_told(tensors):
    state = {**side(tensors, "student"), "fit_denses.0.weight": torch.zeros(24, 16)}
    report = convert_checkpoint(state, original_config("student"))
    assert report.dropped["fit_denses.0.weight"] == "projections of single layers, of training alone"
    assert PROJECTIONS_FILE in report.dropped["fit_dense.weight"]


def test_the_command_writes_what_auto_classes_and_the_trainer_read(tensors, tmp_path, capsys):
    source, target = written(tmp_path / "original", "student", tensors), tmp_path / "ours"
    assert cli.main(["convert", "tinybert", str(source), str(target)]) == 0
    report = capsys.readouterr().out
    assert "to BertForSequenceClassification" in report
    assert "rectify_classifier_input(model)" in report
    assert load_file(target / PROJECTIONS_FILE).keys() == convert_projections(side(tensors, "student")).keys()
    model = AutoModelForSequenceClassification.from_pretrained(target)
    assert torch.equal(model.classifier.weight, tensors["student.classifier.weight"])
    assert AutoModel.from_pretrained(target).config.hidden_size == 16
    assert (target / "README.md").exists()

    back = tmp_path / "back"
    assert cli.main(["convert", "tinybert", str(target), str(back), "--to-original"]) == 0
    reverted, expected = torch.load(back / "model.pt", weights_only=True), side(tensors, "student")
    assert reverted.keys() == expected.keys()
    assert all(torch.equal(reverted[key], expected[key]) for key in expected)
    assert "model_type" not in json.loads((back / "config.json").read_text(encoding="utf-8"))


def test_a_student_trained_with_other_projections_has_no_original(tensors, tmp_path, capsys):
    source, target = written(tmp_path / "original", "student", tensors), tmp_path / "ours"
    cli.main(["convert", "tinybert", str(source), str(target)])
    save_file({"terms.hidden.0.weight": torch.zeros(2, 2)}, target / PROJECTIONS_FILE)
    assert cli.main(["convert", "tinybert", str(target), str(tmp_path / "back"), "--to-original"]) != 0
    assert "one projection that TinyBERT shares among all states" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_hidden_layers": 3}, "`num_hidden_layers` must be the number of layers in the file, 2, got 3"),
        ({"hidden_size": 20}, "`hidden_size` is 20 in the config, 16 in the file"),
        ({"vocab_size": None}, "`vocab_size` is missing"),
    ],
)
def test_configs_that_do_not_fit(tensors, change, message):
    with pytest.raises(ValueError, match=message):
        convert_checkpoint(side(tensors, "student"), {**original_config("student"), **change})


def test_keys_that_do_not_fit(tensors):
    state = {**side(tensors, "student"), "lstm.weight": torch.zeros(1)}
    with pytest.raises(ValueError, match=r"fit nowhere in TinyBERT's pre-training model: `lstm\.weight`"):
        convert_state_dict(state, convert_config(FACTS["config"]))
    with pytest.raises(ValueError, match="`part` must be 'student' or 'teacher', got 'both'"):
        convert_config(FACTS["config"], "both")
