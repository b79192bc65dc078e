"""`hf-ptm-ext convert spanbert`: what it writes, what it says, and what it refuses."""

import argparse
import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from hf_ptm_ext import SpanBertForMaskedLM, SpanBertForPreTraining, SpanBertModel, cli
from hf_ptm_ext.hub.model_card import validate_model_card

GOLDENS = Path(__file__).parents[1] / "goldens"
VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghij", *(f"##{letter}" for letter in "abcdefghij")]


@pytest.fixture(scope="module")
def original():
    tensors = load_file(GOLDENS / "spanbert-a.safetensors")
    return {key.removeprefix("sd."): tensor for key, tensor in tensors.items() if key.startswith("sd.")}


@pytest.fixture(scope="module")
def options():
    with open(GOLDENS / "spanbert-a.json", encoding="utf-8") as file:
        return json.load(file)["config"]


@pytest.fixture
def source(tmp_path, original, options):
    """A folder as the original project leaves it."""
    folder = tmp_path / "original"
    folder.mkdir()
    torch.save(original, folder / "model.pt")
    (folder / "config.json").write_text(json.dumps(options), encoding="utf-8")
    (folder / "vocab.txt").write_text("\n".join(VOCAB) + "\n", encoding="utf-8")
    return folder


def convert(source, target, *more):
    return cli.main(["convert", "spanbert", str(source), str(target), *more])


def test_writes_a_folder_ready_for_the_hub(source, tmp_path, original, capsys):
    target = tmp_path / "new" / "target"
    assert convert(source, target, "--license", "cc-by-nc-4.0") == 0
    said = capsys.readouterr().out
    assert "prefix `decoder.` taken off: 52 keys" in said
    assert "`gamma`, `beta`" in said
    names = {path.name for path in target.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "README.md"} <= names
    assert "modeling_spanbert.py" in names
    config = json.loads((target / "config.json").read_text(encoding="utf-8"))
    assert len(config["auto_map"]) == 8
    assert config["architectures"] == ["SpanBertForPreTraining"]
    validate_model_card(target)
    model, info = SpanBertForPreTraining.from_pretrained(target, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    state = model.state_dict()
    for key, tensor in original.items():
        name = key.removeprefix("decoder.").replace("gamma", "weight").replace("beta", "bias")
        assert torch.equal(state[name], tensor), name
    assert not list(tmp_path.glob("**/.*tmp"))


def test_file_wrapped_or_bare_gives_the_same_bytes(source, tmp_path, original, options):
    assert convert(source, tmp_path / "bare") == 0
    torch.save({"model": original, "args": argparse.Namespace(**options)}, source / "model.pt")
    (source / "config.json").unlink()
    assert convert(source, tmp_path / "wrapped") == 0
    contents = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("bare", "wrapped")]
    assert contents[0] == contents[1]
    configs = [json.loads((tmp_path / name / "config.json").read_text("utf-8")) for name in ("bare", "wrapped")]
    assert configs[0] == configs[1]


def test_bert_encoder_without_heads_says_which_are_new(source, tmp_path, original, options, capsys):
    encoder = {
        key.replace("decoder.", "module."): tensor
        for key, tensor in original.items()
        if key.startswith("decoder.bert.")
    }
    torch.save(encoder, source / "model.pt")
    bert = {key: options[key] for key in options if "pair" not in key and key != "no_nsp"}
    (source / "config.json").write_text(json.dumps({**bert, "model_type": "bert"}), encoding="utf-8")
    assert convert(source, tmp_path / "target") == 0
    said = capsys.readouterr().out
    assert "prefix `module.` taken off" in said
    assert "initialised  cls.predictions.* (masked-language-model head)" in said
    assert "initialised  cls.pair_target_predictions.* (span boundary head)" in said
    _, info = SpanBertModel.from_pretrained(tmp_path / "target", output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    _, info = SpanBertForMaskedLM.from_pretrained(tmp_path / "target", output_loading_info=True)
    assert all(name.startswith("cls.predictions") for name in info["missing_keys"])
    assert info["missing_keys"]


def test_what_is_left_out_is_told(source, tmp_path, original, capsys):
    embeddings = original["decoder.bert.embeddings.word_embeddings.weight"]
    more = {
        "decoder.cls.predictions.decoder.weight": embeddings.clone(),
        "decoder.bert.embeddings.position_ids": torch.arange(48)[None],
    }
    torch.save({**original, **more}, source / "model.pt")
    assert convert(source, tmp_path / "target") == 0
    said = capsys.readouterr().out
    assert "decoder.cls.predictions.decoder.weight: tied to" in said
    assert "position_ids: an index buffer" in said


class TestVocabulary:
    @pytest.mark.parametrize(
        ("more", "flags", "lower"),
        [
            ([], [], True),
            (["<S>", "<T>"], [], True),  # tags of Google's lower-case Chinese vocabulary
            (["A"], [], False),
            (["A"], ["--uncased"], True),
            ([], ["--cased"], False),
        ],
    )
    def test_case_is_seen_or_told(self, source, tmp_path, more, flags, lower):
        from transformers import AutoTokenizer

        (source / "vocab.txt").write_text("\n".join([*VOCAB, *more]), encoding="utf-8")
        assert convert(source, tmp_path / "target", *flags) == 0
        tokenizer = AutoTokenizer.from_pretrained(tmp_path / "target")
        assert tokenizer.tokenize("Ab") == (["a", "##b"] if lower else (["A", "##b"] if more else ["[UNK]"]))
        assert tokenizer.model_max_length == 48

    @pytest.mark.parametrize(
        ("pieces", "message"),
        [
            (VOCAB[:4], "lacks [MASK]"),
            ([*VOCAB, "a"], "line 26: 'a' is there twice"),
            ([*VOCAB, *map(str, range(100))], "more than `vocab_size` = 100"),
        ],
    )
    def test_wrong_ones_are_refused(self, source, tmp_path, capsys, pieces, message):
        (source / "vocab.txt").write_text("\n".join(pieces), encoding="utf-8")
        assert convert(source, tmp_path / "target") == 2
        assert message in capsys.readouterr().err

    @pytest.mark.parametrize("cased", [True, False])
    def test_is_read_from_what_transformers_saves(self, source, tmp_path, cased):
        """A `tokenizer.json` is all that version 5 writes of a BERT's tokenizer."""
        from transformers import AutoTokenizer, BertTokenizerFast

        (source / "vocab.txt").unlink()
        pieces = [*VOCAB, "A", "é"]  # an upper-case piece and an accent, whatever the tokenizer does to texts
        vocab = {piece: number for number, piece in enumerate(pieces)}
        saved = BertTokenizerFast(vocab=vocab, do_lower_case=not cased)
        saved.save_pretrained(source)
        assert not (source / "vocab.txt").exists()
        assert convert(source, tmp_path / "target") == 0
        tokenizer = AutoTokenizer.from_pretrained(tmp_path / "target")
        for text in ("Ab ab", "é b"):
            assert tokenizer(text)["input_ids"] == saved(text)["input_ids"]
        assert (
            cli.main(["convert", "spanbert", str(tmp_path / "target"), str(tmp_path / "back"), "--to-original"]) == 0
        )
        assert (tmp_path / "back" / "vocab.txt").read_text(encoding="utf-8").split("\n") == [*pieces, ""]

    def test_of_another_kind_of_tokenizer_is_refused(self, source, tmp_path, capsys):
        (source / "vocab.txt").unlink()
        (source / "tokenizer.json").write_text('{"model": {"type": "BPE", "vocab": {}}}', encoding="utf-8")
        assert convert(source, tmp_path / "target") == 2
        said = capsys.readouterr().err
        assert "must hold a WordPiece tokenizer" in said
        assert "'BPE'" in said
        assert "--vocab" in said

    def test_in_another_encoding(self, source, tmp_path, capsys):
        (source / "vocab.txt").write_bytes("é".encode("latin-1"))
        assert convert(source, tmp_path / "target") == 2
        assert "UTF-8" in capsys.readouterr().err


class TestTarget:
    def test_existing_files_need_overwrite(self, source, tmp_path, capsys):
        target = tmp_path / "target"
        assert convert(source, target) == 0
        (target / "stale.txt").touch()
        assert convert(source, target) == 2
        assert "--overwrite" in capsys.readouterr().err
        assert (target / "stale.txt").exists()
        assert convert(source, target, "--overwrite") == 0
        assert not (target / "stale.txt").exists()

    def test_a_folder_of_other_things_is_never_replaced(self, source, tmp_path):
        target = tmp_path / "thesis"
        target.mkdir()
        (target / "thesis.tex").touch()
        assert convert(source, target, "--overwrite") == 2
        assert (target / "thesis.tex").exists()

    def test_the_source_is_never_replaced(self, source):
        assert convert(source, source, "--overwrite") == 2
        assert (source / "model.pt").exists()

    def test_failure_leaves_nothing_behind(self, source, tmp_path, monkeypatch, capsys):
        def fail(*args, **kwargs):
            raise OSError("disk full")

        monkeypatch.setattr("huggingface_hub.save_torch_state_dict", fail)
        before = set(tmp_path.iterdir())
        assert convert(source, tmp_path / "target") == 2
        assert "disk full" in capsys.readouterr().err
        assert set(tmp_path.iterdir()) == before


class TestMistakes:
    def test_no_config(self, source, tmp_path, capsys):
        (source / "config.json").unlink()
        assert convert(source, tmp_path / "target") == 2
        assert "`--config`" in capsys.readouterr().err

    def test_wrong_number_of_layers(self, source, tmp_path, options, capsys):
        (source / "other.json").write_text(json.dumps({**options, "num_hidden_layers": 12}), encoding="utf-8")
        assert convert(source, tmp_path / "target", "--config", str(source / "other.json")) == 2
        assert "`num_hidden_layers`" in capsys.readouterr().err

    def test_wrong_type_in_the_config(self, source, tmp_path, options, capsys):
        (source / "config.json").write_text(json.dumps({**options, "hidden_size": "32"}), encoding="utf-8")
        assert convert(source, tmp_path / "target") == 2
        assert "hidden_size" in capsys.readouterr().err

    def test_damaged_file(self, source, tmp_path, capsys):
        content = (source / "model.pt").read_bytes()
        (source / "model.pt").write_bytes(content[: len(content) // 2])
        assert convert(source, tmp_path / "target") == 2
        assert "model.pt is cut short" in capsys.readouterr().err
        assert not (tmp_path / "target").exists()

    def test_unknown_family(self, source, tmp_path, capsys):
        assert cli.main(["convert", "spanbrt", str(source), str(tmp_path / "target")]) == 2
        error = capsys.readouterr().err
        assert "`family` must be one of awd_lstm, context2vec, " in error
        assert "Did you mean 'spanbert'?" in error
        assert len(error.splitlines()) == 1

    def test_options_of_another_family(self, source, tmp_path, capsys):
        assert convert(source, tmp_path / "target", "--encoder", "bert") == 2
        assert (
            "`--encoder` is one of the options of k_adapter and ktnet, got spanbert: leave it out."
            in capsys.readouterr().err
        )

    def test_missing_vocabulary(self, source, tmp_path, capsys):
        shutil.rmtree(tmp_path / "target", ignore_errors=True)
        assert convert(source, tmp_path / "target", "--vocab", "nowhere.txt") == 2
        assert "nowhere.txt" in capsys.readouterr().err


class TestBack:
    def test_gives_the_originals_file_again(self, source, tmp_path, original, options):
        assert convert(source, tmp_path / "ours") == 0
        assert convert(tmp_path / "ours", tmp_path / "back", "--to-original") == 0
        back = torch.load(tmp_path / "back" / "model.pt", weights_only=True)
        copies = {f"decoder.cls.{head}.decoder.weight" for head in ("predictions", "pair_target_predictions")}
        assert back.keys() == original.keys() | copies
        assert all(torch.equal(back[key], original[key]) for key in original)
        written = json.loads((tmp_path / "back" / "config.json").read_text(encoding="utf-8"))
        shared = written.keys() & options.keys()
        assert {key: written[key] for key in shared} == {key: options[key] for key in shared}
        assert convert(tmp_path / "back", tmp_path / "again") == 0
        contents = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("ours", "again")]
        assert contents[0] == contents[1]

    def test_a_head_that_the_original_has_not_is_named(self, tmp_path, capsys):
        from hf_ptm_ext import SpanBertForTokenClassification
        from tests.hub.checkpoints import tiny_model

        SpanBertForTokenClassification(tiny_model().config).save_pretrained(tmp_path / "ours")
        assert convert(tmp_path / "ours", tmp_path / "back", "--to-original") == 2
        assert "`classifier.weight`" in capsys.readouterr().err

    def test_a_folder_of_another_family_is_refused(self, source, tmp_path, capsys):
        (source / "config.json").write_text('{"model_type": "bert"}', encoding="utf-8")
        assert convert(source, tmp_path / "back", "--to-original") == 2
        assert "'bert'" in capsys.readouterr().err
