"""MASS checkpoints in the shapes in which people have them: bare, wrapped, other sizes, the mistakes of users."""

import argparse
import json

import pytest
import torch
from safetensors.torch import load_file

from hf_ptm_ext.cli import main
from hf_ptm_ext.conversion.mass import (
    convert_checkpoint,
    convert_config,
    convert_state_dict,
    read_vocabulary,
    revert_checkpoint,
    revert_state_dict,
)
from hf_ptm_ext.models.configuration_mass import MassConfig
from hf_ptm_ext.models.modeling_mass import MassForConditionalGeneration, MassModel

PIECES = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "light", "house", "##s", "mark"]
SIZES = {
    "vocab_size": 30,
    "d_model": 16,
    "encoder_layers": 2,
    "encoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_layers": 1,
    "decoder_attention_heads": 4,
    "decoder_ffn_dim": 20,
    "max_source_positions": 24,
    "max_target_positions": 12,
    "eos_token_id": 4,
    "decoder_start_token_id": 4,
    "bos_token_id": 3,
}
HEADS = {"encoder_attention_heads": 2, "decoder_attention_heads": 4}


def model_of(**fields):
    torch.manual_seed(0)
    model = MassForConditionalGeneration(MassConfig(**{**SIZES, **fields})).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape) * 0.1)
    return model


@pytest.fixture(scope="module")
def model():
    return model_of()


@pytest.fixture
def original(model):
    return revert_state_dict(model.state_dict(), model.config)


TABLES = {
    "one table": {},
    "another output matrix": {"tie_word_embeddings": False},
    "another encoder table": {"share_encoder_decoder_embeddings": False},
    "three tables": {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False},
}


@pytest.mark.parametrize("fields", TABLES.values(), ids=TABLES)
@pytest.mark.parametrize("pad", [0, 5])
def test_every_kind_of_tying_and_padding_comes_back(fields, pad):
    model = model_of(pad_token_id=pad, activation_function="relu", **fields)
    original = revert_state_dict(model.state_dict(), model.config)
    assert ("decoder.embed_out" in original) == (not model.config.tie_word_embeddings)
    assert original["encoder.embed_positions.weight"].shape[0] == 24 + 1 + pad
    options = {**HEADS, "pad": pad, "eos": 4, "bos": 3, "activation_fn": "relu"}
    conversion = convert_checkpoint(original, options)
    config = conversion.config
    for name in (*SIZES, *TABLES["three tables"], "pad_token_id", "activation_function"):
        assert getattr(config, name) == getattr(model.config, name), name
    loaded = MassForConditionalGeneration(config).eval()
    loaded.load_state_dict(convert_state_dict(original, config))
    source, target = torch.tensor([[7, 8, 9, 4], [7, 4, pad, pad]]), torch.tensor([[4, 8, 9]] * 2)
    with torch.no_grad():
        expected = model(source, decoder_input_ids=target).logits
        assert torch.equal(loaded(source, decoder_input_ids=target).logits, expected)
    again, options = revert_checkpoint(conversion.tensors, config)
    assert again.keys() == original.keys()
    assert all(torch.equal(again[name], value) for name, value in original.items())
    assert convert_config(options).to_dict() == config.to_dict()


@pytest.mark.parametrize("fields", TABLES.values(), ids=TABLES)
def test_tables_survive_saving_and_resizing(fields, tmp_path):
    model = model_of(**fields)
    model.resize_token_embeddings(33)
    tables = [model.get_input_embeddings(), model.model.decoder.embed_tokens, model.lm_head]
    assert {len(table.weight) for table in tables} == {33}
    one = model.config.share_encoder_decoder_embeddings
    assert (tables[0].weight is tables[1].weight) == one
    if one or model.config.tie_word_embeddings:
        assert (tables[2].weight is tables[1].weight) == model.config.tie_word_embeddings
    model.save_pretrained(tmp_path)
    loaded, info = MassForConditionalGeneration.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values())
    ids = torch.tensor([[7, 32, 4]])
    with torch.no_grad():
        assert torch.equal(loaded(ids, labels=ids).logits, model(ids, labels=ids).logits)


def test_wrapped_files_give_the_same_bytes_as_bare_ones(original, tmp_path):
    """Thread 108: the published file is bare, fine-tuned ones hold the command line beside the weights."""
    options = argparse.Namespace(arch="transformer_mass_base", encoder_layers=2, seed=1)
    forms = {
        "bare": original,
        "model": {"model": original},
        "wrapped": {"model": original, "args": options, "optimizer_history": []},
        "parallel": {f"module.{name}": value for name, value in original.items()},
    }
    (tmp_path / "options.json").write_text(json.dumps({**HEADS, "eos": 4}), encoding="utf-8")
    contents = []
    for name, value in forms.items():
        torch.save(value, tmp_path / f"{name}.pt")
        arguments = ["--config", str(tmp_path / "options.json")]
        assert main(["convert", "mass", str(tmp_path / f"{name}.pt"), str(tmp_path / name), *arguments]) == 0
        contents.append((tmp_path / name / "model.safetensors").read_bytes())
        config = MassConfig.from_pretrained(tmp_path / name)
        assert (config.encoder_layers, config.decoder_layers, config.eos_token_id) == (2, 1, 4)
    assert len(set(contents)) == 1
    assert "lm_head.weight" not in load_file(tmp_path / "bare" / "model.safetensors")


def test_options_inside_a_file_reach_the_configuration(original, tmp_path):
    args = argparse.Namespace(
        arch="transformer_mass_base", activation_fn="relu", dropout=0.3, share_all_embeddings=True, **HEADS
    )
    torch.save({"model": original, "args": args}, tmp_path / "checkpoint_best.pt")
    assert main(["convert", "mass", str(tmp_path / "checkpoint_best.pt"), str(tmp_path / "ours")]) == 0
    config = MassConfig.from_pretrained(tmp_path / "ours")
    assert (config.activation_function, config.dropout, config.decoder_attention_heads) == ("relu", 0.3, 4)


def test_a_size_that_cannot_be_inferred_is_named(original, tmp_path, capsys):
    torch.save(original, tmp_path / "mass.pt")
    assert main(["convert", "mass", str(tmp_path / "mass.pt"), str(tmp_path / "ours")]) == 2
    error = capsys.readouterr().err
    assert "`encoder_attention_heads`" in error
    assert "args" not in error
    assert not (tmp_path / "ours").exists()
    with pytest.raises(ValueError, match="`decoder_attention_heads`"):
        convert_checkpoint(original, {"encoder_attention_heads": 2})


def test_heads_of_the_published_sizes_are_known():
    sizes = {"d_model": 768, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072}
    heads = {"encoder_attention_heads": 12, "decoder_attention_heads": 12}
    config = MassConfig(**{**SIZES, **sizes, **heads, "encoder_layers": 1})
    with torch.device("meta"):
        state = MassForConditionalGeneration(config).state_dict()
    original = revert_state_dict({name: torch.zeros(value.shape) for name, value in state.items()}, config)
    conversion = convert_checkpoint(original, {})
    assert conversion.config.encoder_attention_heads == conversion.config.decoder_attention_heads == 12
    assert {"encoder_attention_heads", "activation_function", "pad_token_id", "eos_token_id"} == {
        name for name in conversion.assumed if not name.startswith("decoder")
    }


def test_architectures_stand_for_options():
    assert convert_config({"arch": "transformer_mass"}).activation_function == "relu"
    assert convert_config({"arch": "transformer_mass"}).tie_word_embeddings is False
    middle = convert_config({"arch": "transformer_mass_middle", "encoder_layers": 3, "seed": 7, "lr": [0.1]})
    assert (middle.d_model, middle.encoder_layers, middle.decoder_layers) == (1024, 3, 6)
    with pytest.raises(ValueError, match=r"`arch` must be one of .*transformer_mass_base.* got 'bart_base'"):
        convert_config({"arch": "bart_base"})
    with pytest.raises(ValueError, match="`encoder_normalize_before`"):
        convert_config({"encoder_normalize_before": True})
    with pytest.raises(ValueError, match="`encoder_embed_dim` and `decoder_embed_dim`"):
        convert_config({"encoder_embed_dim": 16, "decoder_embed_dim": 32})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"encoder_layers": 3}, r"`encoder_layers` must be the number of layers in the file, 2, got 3"),
        ({"vocab_size": 31}, r"\(30, 16\) and the config asks for \(31, 16\): correct `vocab_size`"),
        ({"max_source_positions": 20}, r"correct `max_source_positions`"),
        ({"decoder_ffn_dim": 24}, r"correct `decoder_ffn_dim`"),
        ({"tie_word_embeddings": False}, r"`tie_word_embeddings` .* must be true"),
    ],
)
def test_sizes_that_do_not_fit_are_named(original, change, message):
    """Threads 30 and 54: both sizes of a vocabulary that belongs to other weights."""
    with pytest.raises(ValueError, match=message):
        convert_state_dict(original, MassConfig(**{**SIZES, **change}))


def test_files_of_the_other_code_bases_are_told_apart(original):
    for names, message in (
        (["encoders.zh.layers.0.fc1.weight", "decoders.en.layers.0.fc1.weight"], "supervised translation"),
        (["layer_norm15.0.weight", "attentions.0.q_lin.weight"], "convert mass_nmt"),
        (["bert.encoder.layer.0.output.dense.weight"], "no encoder layer"),
    ):
        with pytest.raises(ValueError, match=message):
            convert_checkpoint(dict.fromkeys(names, torch.zeros(2)), HEADS)
    original["encoder.layers.0.strange.weight"] = torch.zeros(2)
    with pytest.raises(ValueError, match=r"fit nowhere in MASS: `encoder\.layers\.0\.strange\.weight`"):
        convert_checkpoint(original, HEADS)
    del original["encoder.layers.0.strange.weight"], original["decoder.layers.0.fc2.weight"]
    with pytest.raises(ValueError, match=r"lacks weights: `model\.decoder\.layers\.0\.fc2\.weight`"):
        convert_checkpoint(original, HEADS)


class TestVocabulary:
    def write(self, folder, pieces=PIECES, name="dict.txt"):
        lines = [f"{piece} {number}" if name == "dict.txt" else piece for number, piece in enumerate(pieces)]
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
        return folder / name

    @pytest.mark.parametrize("name", ["dict.txt", "vocab.txt"])
    def test_a_dictionary_beside_the_weights_makes_tokenizer_and_ids(self, original, tmp_path, name, capsys):
        source = tmp_path / "source"
        source.mkdir()
        torch.save(original, source / "mass-base-uncased.pt")
        (source / "config.json").write_text(json.dumps(HEADS), encoding="utf-8")
        self.write(source, name=name)
        assert main(["convert", "mass", str(source), str(tmp_path / "ours")]) == 0
        said = capsys.readouterr().out
        assert name in said
        assert "activation_function gelu, as in the published models" in said
        from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

        import hf_ptm_ext  # noqa: F401 - registers the family

        tokenizer = AutoTokenizer.from_pretrained(tmp_path / "ours")
        model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "ours").eval()
        batch = tokenizer(["Lights mark", "house"], padding=True, return_tensors="pt")
        assert batch["input_ids"].tolist() == [[6, 8, 9, 4], [7, 4, 0, 0]]
        assert set(batch) == {"input_ids", "attention_mask"}
        assert tokenizer.decode([4, 6, 8, 9, 4], skip_special_tokens=True) == "lights mark"
        assert tokenizer.model_max_length == 24
        output = model.generate(**batch, max_new_tokens=4, min_new_tokens=4)
        assert output[:, 0].tolist() == [4, 4]
        card = (tmp_path / "ours" / "README.md").read_text(encoding="utf-8")
        assert "pipeline_tag: summarization" in card
        assert "eos_at_limit=True" in card

    def test_special_tokens_that_a_dictionary_lacks_stand_behind(self, tmp_path):
        vocab = read_vocabulary(self.write(tmp_path, ["light", "[UNK]", "[SEP]"]))
        assert vocab == {"light": 0, "[UNK]": 1, "[SEP]": 2, "[PAD]": 3, "[CLS]": 4, "[MASK]": 5}

    def test_lines_that_are_none_are_named(self, tmp_path):
        (tmp_path / "dict.txt").write_text("[PAD] 1\nlight\n", encoding="utf-8")
        with pytest.raises(ValueError, match=r"line 2: a line must be `token count`, got 'light'"):
            read_vocabulary(tmp_path / "dict.txt")
        with pytest.raises(ValueError, match=r"line 3: 'a' is there twice, first in line 1"):
            read_vocabulary(self.write(tmp_path, ["a", "b", "a"]))

    def test_more_tokens_than_rows_name_both_numbers(self, original, tmp_path, capsys):
        torch.save(original, tmp_path / "mass.pt")
        (tmp_path / "config.json").write_text(json.dumps(HEADS), encoding="utf-8")
        self.write(tmp_path, [*PIECES, *(f"word{number}" for number in range(25))])
        assert main(["convert", "mass", str(tmp_path / "mass.pt"), str(tmp_path / "ours")]) == 2
        assert "has 35 pieces, more than `vocab_size` = 30" in capsys.readouterr().err

    def test_ids_that_contradict_the_vocabulary_are_refused(self, original, tmp_path, capsys):
        torch.save(original, tmp_path / "mass.pt")
        (tmp_path / "config.json").write_text(json.dumps({**HEADS, "eos_token_id": 2}), encoding="utf-8")
        self.write(tmp_path)
        assert main(["convert", "mass", str(tmp_path / "mass.pt"), str(tmp_path / "ours")]) == 2
        assert "`eos_token_id` is 2 in the options and 4 in the vocabulary" in capsys.readouterr().err


def test_ours_goes_back_by_command(model, original, tmp_path):
    model.save_pretrained(tmp_path / "ours")
    assert main(["convert", "mass", str(tmp_path / "ours"), str(tmp_path / "theirs"), "--to-original"]) == 0
    written = torch.load(tmp_path / "theirs" / "model.pt", weights_only=True)
    assert written.keys() == original.keys()
    assert all(torch.equal(written[name], value) for name, value in original.items())
    assert main(["convert", "mass", str(tmp_path / "theirs"), str(tmp_path / "again")]) == 0
    ids = torch.tensor([[7, 8, 4]])
    again = MassForConditionalGeneration.from_pretrained(tmp_path / "again")
    with torch.no_grad():
        assert torch.equal(again(ids, labels=ids).logits, model(ids, labels=ids).logits)


def test_the_hubs_configuration_and_names_load_unchanged(model, tmp_path):
    """RUCAIBox/mass-*: the bare model's names, the reference's position rows, decoding settings in config.json."""
    config = {name: getattr(model.config, name) for name in SIZES} | {
        "model_type": "mass",
        "architectures": ["MassModel"],
        "activation_function": "gelu",
        "max_position_embeddings": 24,
        "init_std": 0.02,
        "dropout": 0.1,
        "scale_embedding": True,
        "normalize_before": False,
        "normalize_embedding": True,
        "add_final_layer_norm": False,
        "encoder_layerdrop": 0.0,
        "decoder_layerdrop": 0.0,
        "classif_dropout": 0.1,
        "pad_token_id": 0,
        "forced_bos_token_id": 3,
        "forced_eos_token_id": 4,
        "num_beams": 5,
        "no_repeat_ngram_size": 3,
        "early_stopping": True,
        "num_hidden_layers": 2,
        "task_specific_params": {"summarization": {"max_length": 20}},
        "tokenizer_class": "BertTokenizer",
    }
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    bare = MassModel(model.config)
    bare.load_state_dict(model.model.state_dict())
    torch.save(
        {**bare.state_dict(), "encoder.version": torch.tensor([3.0]), "final_logits_bias": torch.zeros(1, 30)},
        tmp_path / "pytorch_model.bin",
    )
    loaded, info = MassForConditionalGeneration.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values())
    source = torch.tensor([[7, 8, 9, 4], [0, 0, 7, 4]])
    with torch.no_grad():
        assert torch.equal(loaded(source, labels=source).logits, model(source, labels=source).logits)
    assert loaded.generation_config.num_beams == 5
    assert loaded.generate(source, max_new_tokens=4).shape[1] <= 5
    for name, value in (("normalize_before", True), ("normalize_embedding", False), ("encoder_layerdrop", 0.1)):
        with pytest.raises(ValueError, match=f"`{name}` must be"):
            MassConfig(**{**config, name: value})
