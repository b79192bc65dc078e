"""Context2Vec: the golden, the other layout by a port of the reference, padding, conversion both ways, learning."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer, pipeline

from hf_ptm_ext import Context2VecConfig, Context2VecForMaskedLM, Context2VecModel
from hf_ptm_ext.cli import main
from hf_ptm_ext.conversion.context2vec import convert_checkpoint, revert_checkpoint
from tests.tolerance import assert_agrees

GOLDENS = Path(__file__).parents[2] / "goldens"
SIZES = {"vocab_size": 30, "embedding_size": 6, "lstm_size": 5, "target_size": 8}
IDS = torch.tensor([[5, 6, 7, 8, 9, 10], [5, 6, 7, 0, 0, 0], [11, 0, 0, 0, 0, 0]])
MASK = (IDS != 0).long()


def golden():
    facts = json.loads((GOLDENS / "context2vec-a.json").read_text(encoding="utf-8"))
    tensors = load_file(GOLDENS / "context2vec-a.safetensors")
    state = {key.removeprefix("param."): value for key, value in tensors.items() if key.startswith("param.")}
    return facts, tensors, state


def made(model_class=Context2VecModel, **fields):
    torch.manual_seed(0)
    return model_class(Context2VecConfig(**{**SIZES, **fields})).eval()


def converted(state, options):
    conversion = convert_checkpoint(state, options)
    model = Context2VecForMaskedLM(conversion.config).eval()
    model.load_state_dict(conversion.tensors)
    return model, conversion


@pytest.mark.golden
@torch.no_grad()
def test_the_golden():
    facts, tensors, state = golden()
    model, conversion = converted(state, facts["config"])
    near, ids = tuple(facts["tolerance"].values()), tensors["input.sentences"]
    contexts = model.context2vec(ids).last_hidden_state
    assert_agrees(contexts, tensors["out.context"], *near)
    assert_agrees(model.targets.sampling_probabilities(), tensors["out.sampling_probs"], *near)
    assert_agrees(model.losses(contexts, ids, tensors["input.negatives"]), tensors["out.loss_per_position"], *near)
    output = model(ids, labels=ids, negatives=tensors["input.negatives"])
    assert_agrees(output.loss * ids.numel(), facts["scalars"]["loss_sum"], *near)
    cosines, words = model.fill_slot(ids[:1], torch.tensor([2]), topn=40)
    scores = torch.zeros(40).scatter(0, words[0], cosines[0])
    assert_agrees(scores, tensors["out.word_scores_row0_pos2"], *near)
    back, _ = revert_checkpoint(conversion.tensors, conversion.config)
    assert {name.replace("/", ".") for name in back} == state.keys()
    assert all(torch.equal(value, state[name.replace("/", ".")]) for name, value in back.items())


def chainer_contexts(state, rows, bos=1, eos=2):
    """The reference's steps on its own keys, without the multilayer perceptron."""

    def read(side, ids):
        hidden = cell = torch.zeros(len(ids), state[f"{side}_1.lateral.W"].shape[1])
        states = []
        for step in ids.T:
            gates = state[f"{side}_embed.W"][step] @ state[f"{side}_1.upward.W"].T + state[f"{side}_1.upward.b"]
            gates = (gates + hidden @ state[f"{side}_1.lateral.W"].T).unflatten(1, (-1, 4))
            a, i, f, o = gates.unbind(-1)
            cell = a.tanh() * i.sigmoid() + f.sigmoid() * cell
            hidden = o.sigmoid() * cell.tanh()
            states.append(hidden)
        return torch.stack(states, dim=1)

    column = torch.ones(len(rows), 1, dtype=torch.long)
    left = read("l2r", torch.cat([column * bos, rows], 1)[:, :-1])
    right = read("r2l", torch.cat([column * eos, rows.flip(1)], 1)[:, :-1]).flip(1)
    sides = ((left, "lp_l2r"), (right, "lp_r2l"))
    return torch.cat([side @ state[f"{name}.W"].T + state[f"{name}.b"] for side, name in sides], dim=-1)


@torch.no_grad()
def test_the_shallow_layout_is_the_references():
    facts, _, state = golden()
    generator = torch.Generator().manual_seed(1)
    for name in ("l3.W", "l3.b", "l4.W", "l4.b"):
        del state[name]
    for side in ("lp_l2r", "lp_r2l"):
        state |= {
            f"{side}.W": torch.randn(12, 24, generator=generator),
            f"{side}.b": torch.randn(12, generator=generator),
        }
    model, conversion = converted(state, {**facts["config"], "deep": False})
    rows = torch.randint(3, 40, (4, 7), generator=generator)
    torch.testing.assert_close(model.context2vec(rows)[0], chainer_contexts(state, rows), rtol=1e-4, atol=1e-5)
    back, options = revert_checkpoint(conversion.tensors, conversion.config)
    assert all(torch.equal(value, state[name.replace("/", ".")]) for name, value in back.items())
    assert options["deep"] is False


@pytest.mark.parametrize("deep", [True, False])
@torch.no_grad()
def test_padding_changes_nothing_and_a_word_does_not_see_itself(deep):
    model = made(deep=deep)
    expected = model(IDS, MASK)
    for left, right in ((0, 2), (3, 0)):
        ids, mask = (torch.nn.functional.pad(each, (left, right)) for each in (IDS, MASK))
        found = model(ids, mask).last_hidden_state[:, left : left + 6]
        torch.testing.assert_close(found, expected.last_hidden_state)
    torch.testing.assert_close(model(IDS[1:2, :3])[0][0], expected[0][1, :3])
    other = IDS.clone()
    other[0, 2] = 20
    changed = (model(other, MASK)[0] - expected[0])[0].abs().amax(-1)
    assert changed[2] == 0
    assert (changed[[0, 1, 3, 4, 5]] > 0).all()


def test_the_command_reads_params_and_writes_them(tmp_path):
    _, tensors, state = golden()
    words = ["<UNK>", "<BOS>", "<EOS>", *(f"w{number}" for number in range(3, 40))]
    arrays = {name.replace(".", "/"): value.numpy() for name, value in state.items()}
    with (tmp_path / "MODEL").open("wb") as file:
        np.savez(file, **arrays)
    rows = (
        f"{word} {' '.join(map(str, row.tolist()))}\n" for word, row in zip(words, state["loss_func.W"], strict=True)
    )
    (tmp_path / "words.targets").write_text("40 24\n" + "".join(rows), encoding="utf-8")
    told = "model_file\tMODEL\nwords_file\twords.targets\nunit\t12\ndeep\tyes\ndrop_ratio\t0.0\n#\tcommand\n"
    (tmp_path / "MODEL.params").write_text(told, encoding="utf-8")
    assert main(["convert", "context2vec", str(tmp_path / "MODEL.params"), str(tmp_path / "new")]) == 0
    fill = pipeline("fill-mask", str(tmp_path / "new"), device="cpu")
    ids = tensors["input.sentences"][:1]
    text = " ".join("<UNK>" if place == 2 else words[number] for place, number in enumerate(ids[0]))
    scores = fill.model(ids).logits[0, 2]
    assert fill(text)[0]["token"] == int(scores.argmax())
    assert AutoTokenizer.from_pretrained(tmp_path / "new")("W5 w6")["input_ids"] == [5, 6]
    assert main(["convert", "context2vec", str(tmp_path / "new"), str(tmp_path / "back"), "--to_original"]) == 0
    with np.load(tmp_path / "back" / "model.npz") as back:
        assert all(np.array_equal(back[name], value) for name, value in arrays.items())
    assert main(["convert", "context2vec", str(tmp_path / "back" / "model.params"), str(tmp_path / "again")]) == 0


def test_it_learns_and_negatives_follow_counts():
    torch.manual_seed(0)
    model = made(Context2VecForMaskedLM, negative_samples=3).train()
    model.set_counts([0.0] * 5 + [1.0] * 25)
    assert model.targets.sampling_probabilities()[:5].sum() == 0
    rows = (torch.arange(8)[None] + torch.randint(25, (96, 1))) % 25 + 5  # each word is told by its neighbours
    held_out, optimizer = rows[:32], torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=3e-2)
    first = model(held_out, labels=held_out).loss.item()
    for _ in range(150):
        optimizer.zero_grad()
        model(rows[32:], labels=rows[32:]).loss.backward()
        optimizer.step()
    assert model(held_out, labels=held_out).loss.item() < first / 2
    near = model.eval().fill_slot(held_out, torch.full((32,), 4), topn=3)[1]
    assert (near == held_out[:, 4:5]).any(-1).float().mean() > 0.5, "by chance: 0.1"
    assert not model.context2vec.encoder.forward_lstm.bias_hh_l0.any()
    with pytest.raises(ValueError, match="even"):
        Context2VecConfig(deep=False, target_size=7)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_counts_beyond_half_precision(tmp_path, dtype):
    model = made(Context2VecForMaskedLM)
    counts = 100_001.0 * torch.arange(1, 31)
    model.set_counts(counts)
    wanted = model.targets.sampling_probabilities()
    model.save_pretrained(tmp_path)
    for half in (Context2VecForMaskedLM.from_pretrained(tmp_path, dtype=dtype), model.to(dtype)):
        assert half.targets.weight.dtype == dtype
        assert torch.equal(half.targets.sampling_probabilities(), wanted)
        assert not half.targets.counts.requires_grad
        half.save_pretrained(tmp_path / "half")
        state = load_file(tmp_path / "half" / "model.safetensors")
        assert torch.equal(state["targets.counts"], counts)
        assert half(IDS, MASK, labels=IDS).loss.isfinite()
        assert half.float().targets.counts.dtype == torch.float32


def test_words_come_and_go(tmp_path):
    model = made(Context2VecForMaskedLM)
    with torch.no_grad():
        model.targets.weight.normal_()
        expected = model(IDS, MASK).logits
        model.set_counts(torch.arange(30))
        model.resize_token_embeddings(33, pad_to_multiple_of=8)
        assert torch.equal(model(IDS, MASK).logits[..., :30], expected)
    assert model.targets.counts[[1, 29, 30]].tolist() == [1, 29, 1]
    assert not model.targets.counts.requires_grad
    model(IDS, MASK, labels=torch.full_like(IDS, 39)).loss.backward()
    assert model.targets.weight.grad[39].any()
    model.save_pretrained(tmp_path)
    loaded = Context2VecForMaskedLM.from_pretrained(tmp_path)
    assert torch.equal(loaded.targets.weight, model.targets.weight)
    loaded.resize_token_embeddings(20)
    assert loaded(IDS, MASK).logits.shape[-1] == loaded.config.vocab_size == 20
