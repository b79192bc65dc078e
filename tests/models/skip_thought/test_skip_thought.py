"""Skip-thought: the golden, both encoders, padding, conversion both ways, a larger vocabulary, learning."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer

from hf_ptm_ext import SkipThoughtConfig, SkipThoughtForPreTraining, SkipThoughtModel, WordVectors, expand_vocabulary
from hf_ptm_ext.cli import main
from hf_ptm_ext.conversion.skip_thought import LAYOUT, convert_checkpoint, revert_checkpoint
from hf_ptm_ext.data import word_tokenizer
from tests.tolerance import assert_agrees

GOLDENS = Path(__file__).parents[2] / "goldens"
SIZES = {"vocab_size": 30, "embedding_size": 6, "gru_size": 5, "bi_gru_size": 4}
IDS = torch.tensor([[5, 6, 7, 8, 9, 10], [5, 6, 7, 0, 0, 0], [11, 0, 0, 0, 0, 0]])
MASK = (IDS != 0).long()


def golden():
    facts = json.loads((GOLDENS / "skip-thought-a.json").read_text(encoding="utf-8"))
    tensors = load_file(GOLDENS / "skip-thought-a.safetensors")
    states = [
        {key.removeprefix(start): value for key, value in tensors.items() if key.startswith(start)}
        for start in ("param.", "param_bi.")
    ]
    return facts, tensors, *states


def loaded(state, options, model_class=SkipThoughtModel):
    conversion = convert_checkpoint(state, options)
    model = model_class(conversion.config).eval()
    names = model.state_dict()
    own = {
        name.removeprefix("skip_thought.") if name not in names else name: v for name, v in conversion.tensors.items()
    }
    model.load_state_dict({name: value for name, value in own.items() if name in names})
    return model, conversion


@pytest.mark.golden
@torch.no_grad()
def test_the_goldens_sentence_vectors():
    facts, tensors, uni, bi = golden()
    near, ids = tuple(facts["tolerance"].values()), tensors["input.x"].T
    options = {**facts["config"], "normalize": False}
    model, _ = loaded(uni, options)
    assert_agrees(model(ids).pooler_output, tensors["out.uni_with_eos"], *near)
    assert_agrees(model(ids[:, :-1]).pooler_output, tensors["out.uni_without_eos"], *near)
    model, conversion = loaded(bi, options)
    assert conversion.config.encoder_type == "bi"
    assert_agrees(model(ids).pooler_output, tensors["out.bi_with_eos"], *near)
    both = {f"uni.{key}": value for key, value in uni.items() if not key.startswith(("decoder", "ff"))}
    both |= {f"bi.{key}": value for key, value in bi.items()}
    model, conversion = loaded(both, facts["config"])
    found = [model(rows).pooler_output for rows in (ids, ids[:, :-1])]
    wanted = tensors["out.combine_skip_normalised"]
    assert_agrees(min(found, key=lambda one: (one - wanted).abs().max()), wanted, *near)
    back, _ = revert_checkpoint(conversion.tensors, conversion.config)
    assert back.keys() == both.keys()
    assert all(torch.equal(back[key], value) for key, value in both.items())


@pytest.mark.golden
@torch.no_grad()
def test_the_goldens_cost():
    facts, tensors, uni, _ = golden()
    model, conversion = loaded(uni, facts["config"], SkipThoughtForPreTraining)
    assert conversion.architecture == "SkipThoughtForPreTraining"
    labels = {}
    for name, key in (("next_labels", "y"), ("previous_labels", "z")):
        labels[name] = tensors[f"input.{key}"].masked_fill(tensors[f"input.{key}_mask"] == 0, -100).T
    output = model(tensors["input.x"].T, tensors["input.x_mask"].T.long(), **labels)
    targets = sum((value != -100).sum() for value in labels.values())
    cost = facts["scalars"]["cost_sum_over_tokens_and_batch"]
    assert_agrees(output.loss * targets, cost, *facts["tolerance"].values())
    back, _ = revert_checkpoint(conversion.tensors, conversion.config)
    assert back.keys() == uni.keys()
    assert all(torch.equal(back[key], value) for key, value in uni.items())


def made(model_class=SkipThoughtModel, **fields):
    torch.manual_seed(0)
    return model_class(SkipThoughtConfig(**{**SIZES, **fields})).eval()


@pytest.mark.parametrize("kind", ["uni", "bi", "combine"])
@torch.no_grad()
def test_padding_on_either_side_changes_nothing(kind):
    model = made(encoder_type=kind)
    expected = model(IDS, MASK)
    assert expected.pooler_output.shape[1] == model.config.hidden_size == {"uni": 5, "bi": 8, "combine": 13}[kind]
    for left, right in ((0, 2), (3, 0)):
        ids, mask = (torch.nn.functional.pad(each, (left, right)) for each in (IDS, MASK))
        torch.testing.assert_close(model(ids, mask).pooler_output, expected.pooler_output)
    torch.testing.assert_close(model(IDS[1:2, :3]).pooler_output[0], expected.pooler_output[1])
    model.resize_token_embeddings(33)
    torch.testing.assert_close(model(IDS, MASK).pooler_output, expected.pooler_output)


def test_the_command_reads_the_release_and_writes_it(tmp_path):
    facts, tensors, uni, bi = golden()
    words = ["<eos>", "UNK", *(f"w{number}" for number in range(2, 50))]
    generator = np.random.default_rng(0)
    tables = {}
    for name, table, state in (("uni_skip.npz", "utable.npy", uni), ("bi_skip.npz", "btable.npy", bi)):
        np.savez(tmp_path / name, **{key: value.numpy() for key, value in state.items()})
        new = generator.normal(size=(10, 12)).astype(np.float32)
        tables[table] = np.concatenate([state["Wemb"].numpy(), new])
        np.save(tmp_path / table, tables[table])
    assert main(["convert", "skip_thought", str(tmp_path / "uni_skip.npz"), str(tmp_path / "bare")]) == 0
    assert SkipThoughtForPreTraining.from_pretrained(tmp_path / "bare").config.vocab_size == 40
    (tmp_path / "dictionary.txt").write_text("\n".join(words), encoding="utf-8")
    assert main(["convert", "skip_thought", str(tmp_path), str(tmp_path / "new")]) == 0
    model, tokenizer = (
        SkipThoughtModel.from_pretrained(tmp_path / "new"),
        AutoTokenizer.from_pretrained(tmp_path / "new"),
    )
    batch = tokenizer([f"{text} w999" for text in facts["sentences"]["x"]], return_tensors="pt", padding=True)
    assert batch["input_ids"][:, -1].tolist() == [1, 1, 1]
    ids = torch.where(tensors["input.x"].T == 0, 1, tensors["input.x"].T)
    expanded = torch.where(batch["input_ids"] < 40, batch["input_ids"], 1)
    assert expanded.tolist() == ids.tolist()
    assert main(["convert", "skip_thought", str(tmp_path / "new"), str(tmp_path / "back"), "--to_original"]) == 0
    assert np.array_equal(np.load(tmp_path / "back" / "btable.npy"), tables["btable.npy"])
    with np.load(tmp_path / "back" / "bi_skip.npz") as back:
        assert all(np.array_equal(back[key], bi[key].numpy()) for key in bi if key != "Wemb")
    assert (tmp_path / "back" / "dictionary.txt").read_text().split() == words
    assert model.config.encoder_type == "combine"


@torch.no_grad()
def test_two_models_are_read_without_expanded_tables(tmp_path):
    for kind, start in (("uni", "param."), ("bi", "param_bi.")):
        stored = load_file(GOLDENS / "skip-thought-a.safetensors").items()
        arrays = {key.removeprefix(start): one.numpy() for key, one in stored if key.startswith(start)}
        np.savez(tmp_path / f"{kind}_skip.npz", **arrays)
    converted = convert_checkpoint(LAYOUT.read(tmp_path).tensors, {})
    assert (converted.architecture, converted.config.hidden_size) == ("SkipThoughtModel", 60)


def test_a_vocabulary_is_expanded_by_linear_regression():
    words = [f"w{number}" for number in range(28)]
    tokenizer = word_tokenizer(words, pad_token="<eos>", unk_token="UNK")
    model = made(encoder_type="combine")
    generator = np.random.default_rng(0)
    table, maps = generator.normal(size=(40, 3)), generator.normal(size=(2, 3, 6))
    for encoder, matrix in zip(model.encoders(), maps, strict=True):
        encoder.word_embeddings.weight.data[2:] = torch.tensor(table[:28] @ matrix + 0.5).float()
    before = model(IDS, MASK).pooler_output
    vectors = WordVectors([f"w{number}" for number in range(40)], table)
    larger = expand_vocabulary(model, tokenizer, vectors)
    assert larger("w3 w39 none")["input_ids"] == [5, 41, 1]
    assert len(larger) == model.config.vocab_size == 42
    torch.testing.assert_close(model(IDS, MASK).pooler_output, before)
    for encoder, matrix in zip(model.encoders(), maps, strict=True):
        wanted = torch.tensor(table[28:] @ matrix + 0.5).float()
        torch.testing.assert_close(encoder.word_embeddings.weight[30:], wanted, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="none of"):
        expand_vocabulary(model, larger, WordVectors(["other"], [[1.0]]))


def test_it_learns_what_stands_around():
    torch.manual_seed(0)
    model = made(SkipThoughtForPreTraining, encoder_type="bi", initializer_range=0.5).train()
    ids = torch.randint(2, 8, (96, 2))
    end = torch.zeros_like(ids[:, :1])
    labels = {"next_labels": torch.cat([ids + 1, end], dim=1), "previous_labels": torch.cat([ids[:, :1], end], dim=1)}
    held_out = {name: value[:32] for name, value in labels.items()}
    optimizer = torch.optim.Adam([value for value in model.parameters() if value.requires_grad], lr=2e-2)
    first = model(ids[:32], **held_out).loss.item()
    for _ in range(60):
        optimizer.zero_grad()
        model(ids[32:], **{name: value[32:] for name, value in labels.items()}).loss.backward()
        optimizer.step()
    wrong = {name: value.roll(1, 0) for name, value in held_out.items()}
    assert model(ids[:32], **held_out).loss.item() < first / 2 < model(ids[:32], **wrong).loss.item()
    assert not model.decoders["next"].bias_hh_l0.any()
    with pytest.raises(ValueError, match="one by one"):
        made(SkipThoughtForPreTraining, encoder_type="combine")
