"""ELMo: the golden, other options against plain torch, states across batches, losses, files, the tokenizer."""

import json
import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import (
    AutoModel,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    pipeline,
)

from hf_ptm_ext import (
    ElmoConfig,
    ElmoForPreTraining,
    ElmoForSequenceClassification,
    ElmoForTokenClassification,
    ElmoModel,
    ElmoTokenizer,
    ScalarMix,
    WeightedLayersForSequenceClassification,
    WeightedLayersModel,
)
from hf_ptm_ext.conversion import elmo as conversion
from hf_ptm_ext.models.modeling_elmo import log_uniform_sample
from tests.models.elmo.reference import layers_of
from tests.tolerance import assert_agrees

GOLDENS = Path(__file__).parents[2] / "goldens"
SIZES = {"vocab_size": 40, "filters": [[1, 4], [2, 8], [3, 5]], "char_embedding_dim": 6, "cell_size": 14}
SIZES |= {"projection_dim": 8, "n_negative_samples_batch": 0, "dropout": 0.0}
TEXTS = [["The", "cat", "sat", "."], ["Hello"], ["na\u00efve", "\u4e2d\u6587" * 20, "x" * 90]]


@pytest.fixture(scope="module")
def golden():
    facts = json.loads((GOLDENS / "elmo-a.json").read_text(encoding="utf-8"))
    tensors = load_file(GOLDENS / "elmo-a.safetensors")
    state = {name.removeprefix("h5."): value for name, value in tensors.items() if name.startswith("h5.")}
    return facts, tensors, state


def loaded(state, options, **fields):
    config = conversion.convert_config(options)
    for name, value in fields.items():
        setattr(config, name, value)
    model = ElmoModel(config).eval()
    tensors = conversion.convert_state_dict(state, config)
    model.load_state_dict({name.removeprefix("elmo."): value for name, value in tensors.items()})
    return model


def characters(texts=TEXTS, **options):
    return ElmoTokenizer()(texts, is_split_into_words=True, padding=True, return_tensors="pt", **options)


def made(model_class=ElmoModel, **fields):
    torch.manual_seed(0)
    model = model_class(ElmoConfig(**{**SIZES, **fields})).eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            if "characters" not in name:
                value.add_(0.3 * torch.randn_like(value))
    return model


@pytest.mark.golden
@torch.no_grad()
def test_the_golden(golden):
    facts, tensors, state = golden
    inputs = characters(facts["sentences"])
    assert torch.equal(inputs["input_ids"], tensors["in.character_ids"].long())
    assert torch.equal(inputs["attention_mask"].bool(), tensors["out.mask"].bool())
    model = loaded(state, facts["options.json"])
    bounded = model(**inputs, keep_boundaries=True, output_hidden_states=True).hidden_states
    words = model(inputs["input_ids"], output_hidden_states=True).hidden_states
    tolerance = (facts["tolerance"]["atol"], facts["tolerance"]["rtol"])
    for number, state_of_layer in enumerate(bounded):
        assert_agrees(state_of_layer, tensors[f"out.call0.layer.{number}"], *tolerance, name=f"layer {number}")
    for number in range(2):
        mix = ScalarMix(3)
        mix.weight.copy_(tensors[f"mix.{number}.scalar_parameters"])
        mix.gamma.copy_(tensors[f"mix.{number}.gamma"][0])
        assert_agrees(mix(words), tensors[f"out.call0.mix.{number}"], *tolerance, name=f"mix {number}")


def test_there_and_back(golden):
    facts, _, state = golden
    config = conversion.convert_config(facts["options.json"])
    assert conversion.revert_config(config) == facts["options.json"]
    back = conversion.revert_state_dict(conversion.convert_state_dict(state, config), config)
    assert {name.replace("/", "::"): value.tolist() for name, value in back.items()} == {
        name: value.tolist() for name, value in state.items()
    }


def original(options, seed=0):
    """Random weights of an original file of these options."""
    torch.manual_seed(seed)
    config = conversion.convert_config(options)
    ours = {f"elmo.{name}": value for name, value in ElmoModel(config).state_dict().items()}
    shapes = conversion.revert_state_dict(ours, config)
    return {name: 0.6 * torch.randn_like(value) for name, value in shapes.items()}


def options_of(**changed):
    lstm = {
        "dim": 10,
        "projection_dim": 6,
        "n_layers": 3,
        "cell_clip": 3,
        "proj_clip": 3,
        "use_skip_connections": True,
    }
    network = {"activation": "relu", "filters": [[1, 3], [4, 5]], "n_highway": 1, "n_characters": 262}
    network |= {"max_characters_per_token": 50, "embedding": {"dim": 5}}
    for name, value in changed.items():
        (lstm if name in lstm else network)[name] = value
    return {"lstm": lstm, "char_cnn": network}


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"activation": "tanh", "n_highway": 2},
        {"cell_clip": 0.1, "proj_clip": 0.05},
        {"cell_clip": None, "proj_clip": 0, "use_skip_connections": False, "n_highway": 0, "n_layers": 1},
    ],
)
@torch.no_grad()
def test_other_options_and_states_across_batches_are_plain_torch(changed):
    options = options_of(**changed)
    state = original(options)
    model, inputs = loaded(state, options, stateful=True), characters()
    lengths, starts = inputs["attention_mask"].sum(1).tolist(), [None] * 3
    for _ in range(2):
        found = model(**inputs, keep_boundaries=True, output_hidden_states=True).hidden_states
        for row, length in enumerate(lengths):
            wanted, starts[row] = layers_of(state, options, inputs["input_ids"][row, :length], starts[row])
            for one, expected in zip(found, wanted, strict=True):
                assert_agrees(one[row, : length + 2], expected, 1e-5)
                assert not one[row, length + 2 :].any()


@torch.no_grad()
def test_states_are_carried_row_by_row_and_forgotten_when_asked():
    model, fresh = made(stateful=True), made()
    inputs = characters()
    first = model(**inputs).last_hidden_state
    torch.testing.assert_close(first, fresh(**inputs).last_hidden_state)
    one = {name: value[:1] for name, value in inputs.items()}
    second = model(**one).last_hidden_state
    assert not torch.allclose(second, first[:1])
    assert [state.shape[1] for state, _ in model.states] == [3, 3], "rows that a batch lacks keep their states"
    model.reset_states()
    torch.testing.assert_close(model(**inputs).last_hidden_state, first)
    more = {name: torch.cat([value, value]) for name, value in inputs.items()}
    torch.testing.assert_close(model(**more).last_hidden_state[3:], first)


@torch.no_grad()
def test_padding_on_either_side_changes_nothing():
    model, inputs = made(), characters()
    expected = model(**inputs)
    left = characters(padding_side="left")
    found = model(**left)
    torch.testing.assert_close(found.pooler_output, expected.pooler_output)
    for row, length in enumerate(inputs["attention_mask"].sum(1).tolist()):
        states = expected.last_hidden_state[row, :length]
        torch.testing.assert_close(found.last_hidden_state[row, -length:], states)
        torch.testing.assert_close(model(inputs["input_ids"][row : row + 1, :length]).last_hidden_state[0], states)
        torch.testing.assert_close(expected.pooler_output[row], states.mean(0))
    nothing = model(torch.zeros(1, 2, 50, dtype=torch.long))
    assert not nothing.last_hidden_state.any()
    assert not nothing.pooler_output.any()


@pytest.mark.parametrize("normed", [False, True])
@torch.no_grad()
def test_weighted_layers_are_its_scalar_mix(normed, tmp_path):
    """AllenNLP normalises with the boundaries, and takes them away behind the mixture."""
    made().save_pretrained(tmp_path)
    model = WeightedLayersModel.from_encoder(tmp_path, do_layer_norm=normed, pooling="mean").eval()
    mix = model.mix
    mix.weight.copy_(torch.tensor([0.3, -1.0, 0.5]))
    inputs = characters()
    lengths = inputs["attention_mask"].sum(1)
    layers = made()(**inputs, keep_boundaries=True, output_hidden_states=True).hidden_states
    mixed = mix(layers, torch.arange(layers[0].shape[1])[None] < lengths[:, None] + 2)
    for given in (inputs, {"input_ids": inputs["input_ids"]}):
        output = model(**given, output_hidden_states=True)
        assert output.hidden_states[0].shape[1] == 4
        for row, length in enumerate(lengths.tolist()):
            torch.testing.assert_close(output.last_hidden_state[row, :length], mixed[row, 1 : length + 1])
            torch.testing.assert_close(output.pooler_output[row], mixed[row, 1 : length + 1].mean(0))


# ---- language models ----


@torch.no_grad()
def test_losses_are_cross_entropies_of_the_neighbours():
    model, inputs = made(ElmoForPreTraining), characters()
    labels = torch.tensor([[5, 6, 7, 4], [8, -100, -100, -100], [9, 10, 11, -100]])
    output = model(**inputs, labels=labels)
    logits = model(**inputs)
    top = model.elmo(**inputs, keep_boundaries=True).last_hidden_state
    ahead, back = model.softmax(top[..., :8]).log_softmax(-1), model.softmax(top[..., 8:]).log_softmax(-1)
    sums, count = [0.0, 0.0], 0
    for row, length in enumerate(inputs["attention_mask"].sum(1).tolist()):
        words = [1, *labels[row, :length].tolist(), 2]
        count += length + 1
        for place in range(length + 1):
            sums[0] -= ahead[row, place, words[place + 1]].item()
            sums[1] -= back[row, place + 1, words[place]].item()
        for place in range(length):
            torch.testing.assert_close(logits.forward_logits[row, place].log_softmax(-1), ahead[row, place])
            torch.testing.assert_close(logits.backward_logits[row, place].log_softmax(-1), back[row, place + 2])
    assert output.forward_loss.item() == pytest.approx(sums[0] / count, rel=1e-5)
    assert output.backward_loss.item() == pytest.approx(sums[1] / count, rel=1e-5)
    assert output.loss.item() == pytest.approx(sum(sums) / count / 2, rel=1e-5)
    for name, (loss, _, number) in model.evaluation_sums(**inputs, labels=labels).items():
        assert number == count
        assert loss / count == pytest.approx(getattr(output, f"{name}_loss").item(), rel=1e-5)
    left = characters(padding_side="left")
    turned = torch.tensor([[5, 6, 7, 4], [-100, -100, -100, 8], [-100, 9, 10, 11]])
    torch.testing.assert_close(model(**left, labels=turned).loss, output.loss)


def test_micro_batches_add_up_to_an_update():
    model, inputs = made(ElmoForPreTraining), characters()
    labels = torch.tensor([[5, 6, 7, 4], [8, -100, -100, -100], [9, 10, 11, -100]])
    whole = model(**inputs, labels=labels).loss
    counts = {"words": torch.tensor(0)}
    parts = [({name: value[rows] for name, value in inputs.items()}, labels[rows]) for rows in ([0], [1, 2])]
    counts = {"words": sum(model.count_targets({"labels": part})["words"] for _, part in parts)}
    assert counts["words"] == 11
    added = sum(model(**part, labels=own, target_counts=counts).loss for part, own in parts)
    torch.testing.assert_close(added, whole)
    shared = sum(model(**part, labels=own, num_items_in_batch=8).loss for part, own in parts)
    assert shared.item() == pytest.approx(whole.item(), rel=0.05)


@torch.no_grad()
def test_the_sampled_softmax_estimates_the_whole_one():
    torch.manual_seed(1)
    words, number = 200, 60
    draws = [log_uniform_sample(number, words, torch.device("cpu")) for _ in range(800)]
    counts = torch.stack([torch.bincount(chosen, minlength=words) for chosen, _ in draws]).float()
    assert counts.max() == 1, "different words"
    assert (counts.sum(1) == number).all()
    expected = torch.stack([one for _, one in draws]).mean(0)
    assert (counts.mean(0) - expected).abs().max() < 0.06
    # The normaliser that training divides by is right in the mean.
    logits = torch.randn(words)
    found = torch.stack([(logits[chosen].exp() / rate[chosen]).sum() for chosen, rate in draws]).mean()
    assert found.item() == pytest.approx(logits.exp().sum().item(), rel=0.03)
    model = made(ElmoForPreTraining, vocab_size=400, n_negative_samples_batch=200).train()
    labels = torch.tensor([[5, 6, 7, 4], [8, -100, -100, -100], [9, 10, 11, -100]])
    sampled = torch.stack([model(**characters(), labels=labels).loss for _ in range(40)]).mean()
    assert sampled.item() == pytest.approx(model.eval()(**characters(), labels=labels).loss.item(), rel=0.1)


def test_every_weight_gets_a_gradient_and_new_ones_are_as_the_papers():
    model = ElmoForPreTraining(ElmoConfig(**{**SIZES, "n_negative_samples_batch": 20})).train()
    assert all((highway.carry.bias == -2).all() for highway in model.elmo.embeddings.highways)
    assert not model.elmo.embeddings.characters.weight[0].any()
    assert model.softmax.weight.std().item() == pytest.approx(8**-0.5, rel=0.2)
    labels = torch.tensor([[5, 6, 7, 4], [8, -100, -100, -100], [9, 10, 11, -100]])
    model(**characters(), labels=labels).loss.backward()
    assert [name for name, one in model.named_parameters() if one.grad is None or not one.grad.any()] == []


# ---- files ----


@torch.no_grad()
def test_saving_loading_heads_and_pipelines(tmp_path):
    model = made(ElmoForSequenceClassification, num_labels=3)
    model.save_pretrained(tmp_path)
    tokenizer = ElmoTokenizer(["the", "cat"])
    tokenizer.save_pretrained(tmp_path)
    loaded_model = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert type(loaded_model) is ElmoForSequenceClassification
    inputs = tokenizer(["the cat sat.", "yes"], return_tensors="pt", padding=True)
    torch.testing.assert_close(loaded_model(**inputs).logits, model(**inputs).logits)
    assert type(AutoModel.from_pretrained(tmp_path)) is ElmoModel
    read = AutoTokenizer.from_pretrained(tmp_path)
    assert (type(read), len(read), read.convert_tokens_to_ids(["cat", "dog"])) == (ElmoTokenizer, 6, [5, 3])
    classify = pipeline("text-classification", model=loaded_model, tokenizer=read, device="cpu")
    single = [classify(text)[0]["score"] for text in ("the cat sat.", "yes")]
    assert [one["score"] for one in classify(["the cat sat.", "yes"], batch_size=2)] == pytest.approx(single, abs=1e-6)
    tagger = made(ElmoForTokenClassification, num_labels=4)
    assert tagger(**inputs, labels=torch.tensor([[0, 1, 2, 3], [1, -100, -100, -100]])).logits.shape == (2, 4, 4)
    weighted = WeightedLayersForSequenceClassification.from_encoder(
        AutoModel.from_pretrained(tmp_path), pooling="mean"
    )
    assert weighted(**inputs).logits.shape == (2, 2)


@pytest.mark.parametrize("suffix", [".hdf5", ".h5"])
def test_the_command_converts_files_of_hdf5_both_ways(suffix, golden, tmp_path, capsys):
    h5py = pytest.importorskip("h5py")
    from hf_ptm_ext.cli import main

    facts, tensors, _ = golden
    source = tmp_path / f"weights{suffix}"
    source.write_bytes((GOLDENS / "elmo-a.files" / "weights.hdf5").read_bytes())
    (tmp_path / "options.json").write_text(json.dumps(facts["options.json"]), encoding="utf-8")
    (tmp_path / "words.txt").write_text("<S>\n</S>\n<UNK>\nthe\n", encoding="utf-8")
    command = ["convert", "elmo", str(source), str(tmp_path / "ours"), "--vocab", str(tmp_path / "words.txt")]
    assert main(command) == 0, capsys.readouterr().err
    assert "softmax" in capsys.readouterr().out
    model, tokenizer = AutoModel.from_pretrained(tmp_path / "ours"), AutoTokenizer.from_pretrained(tmp_path / "ours")
    inputs = tokenizer(facts["sentences"], is_split_into_words=True, padding=True, return_tensors="pt")
    with torch.no_grad():
        found = model.eval()(**inputs, keep_boundaries=True).last_hidden_state
    assert_agrees(found, tensors["out.call0.layer.2"], 2e-5, 1e-4)
    assert main(["convert", "elmo", str(tmp_path / "ours"), str(tmp_path / "back"), "--to_original"]) == 0
    assert json.loads((tmp_path / "back" / "options.json").read_text()) == facts["options.json"]
    assert (tmp_path / "back" / "vocab.txt").read_text() == "<S>\n</S>\n<UNK>\nthe\n"
    with h5py.File(source) as before, h5py.File(tmp_path / "back" / "weights.hdf5") as after:
        names = []
        before.visititems(lambda name, part: names.append(name) if isinstance(part, h5py.Dataset) else None)
        assert names
        assert all((before[name][()] == after[name][()]).all() for name in names)


def test_what_is_no_file_of_hdf5_is_one_line(tmp_path, capsys, golden):
    h5py = pytest.importorskip("h5py")
    from hf_ptm_ext.cli import main

    whole = (GOLDENS / "elmo-a.files" / "weights.hdf5").read_bytes()
    (tmp_path / "options.json").write_text(json.dumps(golden[0]["options.json"]), encoding="utf-8")
    (tmp_path / "cut.hdf5").write_bytes(whole[: len(whole) // 2])
    with h5py.File(tmp_path / "link.hdf5", "w") as file:
        file["char_embed"] = h5py.ExternalLink("cut.hdf5", "char_embed")
    with h5py.File(tmp_path / "bomb.hdf5", "w") as file:
        file.create_dataset("char_embed", shape=(2**28, 4), dtype="f4", chunks=(2**10, 4))
    for name, told in (("cut", "cut short"), ("link", "lacks|no weights|no encoder layer"), ("bomb", "claims")):
        assert main(["convert", "elmo", str(tmp_path / f"{name}.hdf5"), str(tmp_path / name)]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert any(part in error for part in told.split("|")), error


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "`lstm` and `char_cnn`"),
        ({"lstm": {}, "char_cnn": {}}, "missing"),
        (options_of(dim=10**12), "`cell_size` must be an integer"),
        (options_of(filters=[[1, 3], "x"]), "`filters`"),
        (options_of(filters=[[51, 3]]), "`filters`"),
        (options_of(n_characters=300), "`n_characters`"),
        (options_of(activation="softplusplus"), "`activation` must be one of"),
        (options_of(cell_clip=-1), "`cell_clip`"),
    ],
)
def test_options_that_are_none(options, told):
    with pytest.raises(ValueError, match=told.replace("`", ".")) as error:
        conversion.convert_config(options)
    assert "\n" not in str(error.value)


# ---- inputs ----


def test_mistakes_in_inputs_are_named():
    model, inputs = made(), characters()
    with pytest.raises(ValueError, match=r"`input_ids` must be ids of characters, .* got \(3, 4\)"):
        model(inputs["input_ids"][..., 0])
    with pytest.raises(ValueError, match="`output_attentions` must be False"):
        model(**inputs, output_attentions=True)
    with pytest.raises(TypeError, match="atention_mask"):
        model(**inputs, atention_mask=inputs["attention_mask"])
    with pytest.raises(ValueError, match="nothing attends here"):
        model(inputs["input_ids"], attention_mask=torch.ones(3, 4, 4))
    with pytest.raises(ValueError, match="`new_num_tokens` = 300"):
        model.resize_token_embeddings(300)


def test_characters_and_splits():
    tokenizer = ElmoTokenizer()
    assert tokenizer.characters_of("cat")[:6] == [259, 100, 98, 117, 260, 261]
    assert tokenizer.characters_of("<S>")[:4] == [259, 257, 260, 261]
    assert tokenizer.characters_of("</S>")[:4] == [259, 258, 260, 261]
    long = tokenizer.characters_of("x" * 60)
    assert (len(long), long[-1], long.count(121)) == (50, 260, 48)
    assert tokenizer.words_of("It's 3.5 miles, U.S. ship-to-shore!") == [
        *("It's", "3.5", "miles", ",", "U", ".", "S", ".", "ship-to-shore", "!"),
    ]
    assert ElmoTokenizer(split="whitespace").words_of("It 's 3.5 .") == ["It", "'s", "3.5", "."]
    ids = tokenizer("na\u00efve cat")["input_ids"]
    assert tokenizer.decode(ids) == "na\u00efve cat"
    assert tokenizer.batch_decode([ids, ids[:1]]) == ["na\u00efve cat", "na\u00efve"]
    assert len(tokenizer("a b c d", truncation=True, max_length=2)["input_ids"]) == 2
    assert tokenizer(["a b", "c"], padding="max_length", max_length=5, return_tensors="np")["input_ids"].shape == (
        2,
        5,
        50,
    )
    rows = [{**tokenizer(text), "label": 1} for text in ("a b c", "d")]
    batch = DataCollatorWithPadding(tokenizer)(rows)
    assert batch["input_ids"].shape == (2, 3, 50)
    assert batch["labels"].tolist() == [1, 1]
    with pytest.raises(ValueError, match="`text_pair` must be left out"):
        tokenizer("a", "b")
    with pytest.raises(ValueError, match="`split` must be one of"):
        ElmoTokenizer(split="none")


def test_a_vocabulary_is_the_most_frequent_words(tmp_path):
    tokenizer = ElmoTokenizer.train([["the cat .", "the dog ."], ["the end"]], vocab_size=7)
    assert tokenizer.words == ["<PAD>", "<S>", "</S>", "<UNK>", "the", ".", "cat"]
    path = tmp_path / "vocab.txt"
    path.write_text("the\ncat\nthe\n", encoding="utf-8")
    with pytest.raises(ValueError, match="got 'the' more than once"):
        ElmoTokenizer(path)


@torch.no_grad()
def test_it_compiles_whole():
    model, inputs = made(), characters()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(**inputs).last_hidden_state, model(**inputs).last_hidden_state)


def test_the_vectors_of_a_published_model_have_its_size():
    with torch.device("meta"):
        model = ElmoModel(ElmoConfig())
    assert math.isclose(sum(one.numel() for one in model.parameters()), 93.6e6, rel_tol=0.01)
