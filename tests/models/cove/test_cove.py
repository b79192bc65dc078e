"""CoVe: both goldens, padding, what is frozen, conversion both ways and training."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer, Trainer, TrainingArguments

from hf_ptm_ext import CoveConfig, CoveForPreTraining, CoveForTokenClassification, CoveModel, WeightedLayersModel
from hf_ptm_ext.cli import main
from hf_ptm_ext.conversion.cove import convert_checkpoint, revert_checkpoint
from tests.tolerance import assert_agrees

GOLDENS = Path(__file__).parents[2] / "goldens"
SIZES = {"vocab_size": 40, "embedding_size": 6, "lstm_size": 5}
IDS = torch.tensor([[5, 6, 7, 8, 9, 10], [5, 6, 7, 0, 0, 0], [11, 0, 0, 0, 0, 0]])
MASK = (IDS != 0).long()


def golden(name):
    facts = json.loads((GOLDENS / f"{name}.json").read_text(encoding="utf-8"))
    tensors = load_file(GOLDENS / f"{name}.safetensors")
    state = {key.removeprefix("param."): value for key, value in tensors.items() if key.startswith("param.")}
    return facts, tensors, state


def made(model_class, **fields):
    torch.manual_seed(0)
    return model_class(CoveConfig(**{**SIZES, **fields})).eval()


@pytest.mark.golden
@pytest.mark.parametrize("mode", ["layer1", "layer0_layer1", "residual_layer1"])
@torch.no_grad()
def test_the_encoders_golden(mode):
    facts, tensors, state = golden("cove-a")
    asked = facts["modes"][mode]
    layers = [0] * asked.get("layer0", False) + [1]
    options = {"output_layers": layers, "concat_embeddings": asked.get("residual_embeddings", False)}
    converted = convert_checkpoint(state, {**facts["config"], **options})
    model = CoveModel(converted.config).eval()
    model.load_state_dict({name.removeprefix("cove."): value for name, value in converted.tensors.items()})
    ids = tensors["input.ids"]
    mask = torch.arange(ids.shape[1]) < tensors["input.lengths"][:, None]
    tolerance = facts["tolerance"]
    assert_agrees(model(ids, mask).last_hidden_state, tensors[f"out.{mode}"], tolerance["atol"], tolerance["rtol"])
    back, told = revert_checkpoint(converted.tensors, converted.config)
    assert back.keys() == state.keys()
    assert all(torch.equal(back[name], value) for name, value in state.items())
    assert told["lstm_size"] == 24


@pytest.mark.golden
@torch.no_grad()
def test_the_translation_models_golden():
    facts, tensors, state = golden("cove-mt-a")
    converted = convert_checkpoint(state, {**facts["config"], "mask_attention": False})
    model = CoveForPreTraining(converted.config).eval()
    model.load_state_dict(converted.tensors)
    assert converted.architecture == "CoveForPreTraining"
    source, target = tensors["input.src"].T, tensors["input.tgt"].T
    mask = torch.arange(source.shape[1]) < tensors["input.src_lengths"][:, None]
    output = model(source, mask, decoder_input_ids=target[:, :-1], labels=target[:, 1:])
    near = facts["tolerance"].values()
    assert_agrees(output.encoder_last_hidden_state.transpose(0, 1), tensors["out.context"], *near)
    assert_agrees(output.decoder_hidden_states[0].transpose(0, 1), tensors["out.decoder_outputs"], *near)
    assert_agrees(output.logits.log_softmax(-1).transpose(0, 1), tensors["out.log_probs"], *near)
    assert_agrees(output.loss * facts["scalars"]["n_target_words"], facts["scalars"]["nll_sum_over_non_pad"], *near)
    _, (hidden, cells) = model.cove.encoder(model.cove.embeddings.word_embeddings(source), mask)
    assert_agrees(hidden, tensors["out.encoder_h"], *near)
    assert_agrees(cells, tensors["out.encoder_c"], *near)
    shifted = model(source, mask, labels=target[:, 1:])
    torch.testing.assert_close(shifted.loss, output.loss)
    back, _ = revert_checkpoint(converted.tensors, converted.config)
    assert back.keys() == state.keys()
    assert all(torch.equal(back[name], value) for name, value in state.items())


@torch.no_grad()
def test_padding_on_either_side_and_hidden_states():
    model = made(CoveModel, output_layers=[0, 1])
    expected = model(IDS, MASK, output_hidden_states=True)
    assert [state.shape[-1] for state in expected.hidden_states] == [6, 10, 10]
    assert not expected.last_hidden_state[MASK == 0].any()
    for left, right in ((0, 2), (3, 0)):
        ids, mask = (torch.nn.functional.pad(each, (left, right)) for each in (IDS, MASK))
        found = model(ids, mask)
        torch.testing.assert_close(found.last_hidden_state[:, left : left + 6], expected.last_hidden_state)
        torch.testing.assert_close(found.pooler_output, expected.pooler_output)
    torch.testing.assert_close(model(IDS[1:2, :3]).pooler_output[0], expected.pooler_output[1])
    words = model.embeddings.word_embeddings(IDS)
    torch.testing.assert_close(model(inputs_embeds=words, attention_mask=MASK)[0], expected.last_hidden_state)
    assert not model(IDS, torch.zeros_like(MASK)).pooler_output.any()


@torch.no_grad()
def test_an_initial_state_belongs_to_its_row():
    model = made(CoveModel)
    state = tuple(torch.randn(4, 3, 5) for _ in range(2))
    found = model(IDS, MASK, initial_state=state).last_hidden_state
    for row, length in enumerate(MASK.sum(1)):
        own = tuple(part[:, row : row + 1] for part in state)
        alone = model(IDS[row : row + 1, :length], initial_state=own).last_hidden_state
        torch.testing.assert_close(found[row, :length], alone[0])


@torch.no_grad()
def test_dot_attention_without_feeding_one_direction_and_masked_padding():
    model = made(CoveForPreTraining, attention_type="dot", input_feed=False, bidirectional=False, target_vocab_size=9)
    labels = torch.tensor([[4, 5, 3], [4, 3, -100], [3, -100, -100]])
    whole = model(IDS, MASK, labels=labels)
    for row, length in enumerate(MASK.sum(1)):
        alone = model(IDS[row : row + 1, :length], labels=labels[row : row + 1])
        torch.testing.assert_close(whole.logits[row], alone.logits[0])


def test_refusals():
    with pytest.raises(ValueError, match="output_layers"):
        CoveConfig(output_layers=[2])
    with pytest.raises(ValueError, match="attention_type"):
        CoveConfig(attention_type="mlp")
    with pytest.raises(ValueError, match="output_attentions"):
        made(CoveModel)(IDS, output_attentions=True)
    with pytest.raises(ValueError, match="labels"):
        made(CoveForPreTraining)(IDS)


def test_the_command_takes_the_released_file_and_glove(tmp_path):
    _, _tensors, state = golden("cove-a")
    table = state.pop("vectors.weight")
    torch.save(state, tmp_path / "wmtlstm.pth")
    lines = [f"w{number} {' '.join(map(str, row.tolist()))}\n" for number, row in enumerate(table)]
    (tmp_path / "glove.txt").write_text("".join(lines), encoding="utf-8")
    command = ["convert", "cove", str(tmp_path / "wmtlstm.pth")]
    assert main([*command, str(tmp_path / "new"), "--word_vectors", str(tmp_path / "glove.txt")]) == 0
    model, tokenizer = CoveModel.from_pretrained(tmp_path / "new"), AutoTokenizer.from_pretrained(tmp_path / "new")
    assert not any(value.requires_grad for value in model.embeddings.parameters())
    batch = tokenizer(["w3 w4 w5", "w6 nothing"], padding=True, return_tensors="pt")
    output = model(**batch).last_hidden_state
    torch.testing.assert_close(output[0, :, :24], table[3:6])
    assert not output[1, 1:, :24].any()
    assert main([*command, str(tmp_path / "bare")]) == 0
    bare = AutoModel.from_pretrained(tmp_path / "bare").eval()
    torch.testing.assert_close(bare(inputs_embeds=table[None, 3:6]).last_hidden_state[0], output[0])
    assert main(["convert", "cove", str(tmp_path / "new"), str(tmp_path / "back"), "--to_original"]) == 0
    back = torch.load(tmp_path / "back" / "model.pth", weights_only=True)
    assert all(torch.equal(back[name], value) for name, value in state.items())
    assert (tmp_path / "back" / "dictionary.txt").read_text().split()[:3] == ["[PAD]", "[UNK]", "w0"]


def test_its_layers_are_mixed():
    encoder = made(CoveModel, concat_embeddings=False)
    model = WeightedLayersModel.from_encoder(encoder, mixed_layers=[1, 2])
    states = encoder(IDS, MASK, output_hidden_states=True).hidden_states
    torch.testing.assert_close(model(IDS, MASK).last_hidden_state, (states[1] + states[2]) / 2)


def test_a_head_learns_in_a_trainer_and_the_words_stay(tmp_path):
    own = {"initializer_range": 1.0, "dropout": 0.0, "classifier_dropout": 0.0}
    model = made(CoveForTokenClassification, num_labels=2, **own)
    before = model.cove.embeddings.word_embeddings.weight.clone()
    rows = [{"input_ids": ids, "labels": [int(word % 2) for word in ids]} for ids in torch.randint(1, 40, (64, 6))]
    arguments = TrainingArguments(
        output_dir=str(tmp_path), max_steps=80, learning_rate=3e-2, report_to=[], use_cpu=True, save_strategy="no"
    )
    trainer = Trainer(model, arguments, train_dataset=rows[16:], eval_dataset=rows[:16])
    first = trainer.evaluate()["eval_loss"]
    trainer.train()
    assert trainer.evaluate()["eval_loss"] < first / 2
    assert torch.equal(model.cove.embeddings.word_embeddings.weight, before)


def test_source_and_target_words_are_resized_apart(tmp_path):
    """As in transformers' Marian: one method for the source's words, one for the target's."""
    model, labels = made(CoveForPreTraining, target_vocab_size=20), torch.tensor([[4, 3], [5, 3], [6, 3]])
    before = model(IDS, labels=labels).logits
    model.resize_token_embeddings(43)
    assert torch.equal(model(IDS, labels=labels).logits, before)
    assert (model.config.vocab_size, model.config.target_vocab_size) == (43, 20)
    assert model.resize_decoder_token_embeddings(22) is model.decoder.embeddings.word_embeddings
    after = model(IDS, labels=labels).logits
    torch.testing.assert_close(after[..., :20], before)
    assert after.shape[-1] == model.config.target_vocab_size == 22
    model.save_pretrained(tmp_path)
    loaded = CoveForPreTraining.from_pretrained(tmp_path).eval()
    assert torch.equal(loaded(IDS, labels=labels).logits, after)
    model.resize_decoder_token_embeddings(20)
    torch.testing.assert_close(model(IDS, labels=labels).logits, before)
