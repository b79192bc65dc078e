"""`hf-ptm-ext pretrain`: from text to a folder that loads, and nothing half-written when something is wrong."""

import gzip
import json
import pickle
import sys

import pytest
from transformers import AutoModelForMaskedLM, AutoModelForPreTraining, AutoTokenizer, BertConfig, BertForMaskedLM

from hf_ptm_ext.cli import main
from hf_ptm_ext.cli.pretrain_arguments import parse
from hf_ptm_ext.hub import validate_model_card
from tests.cli.jobs import TINY, flags, read_metrics


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a job on the embedded English corpus."""
    folder = tmp_path_factory.mktemp("job") / "tiny-spanbert"
    assert main(["pretrain", *flags(output_dir=folder)]) == 0
    return folder


def test_the_folder_holds_model_code_tokenizer_card_curve_and_metrics(finished):
    names = {path.name for path in finished.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "README.md", "loss_curve.png"} <= names
    assert {"modeling_spanbert.py", "configuration_spanbert.py", "all_results.json", "checkpoint-2"} <= names
    assert not [name for name in names if name.startswith("_")], "nothing temporary is left"
    validate_model_card(finished / "README.md")


def test_metrics_tell_before_after_and_baselines_of_every_term(finished):
    metrics = read_metrics(finished)
    for term in ("mlm", "sbo"):
        for prefix in ("before", "eval", "baseline"):
            assert 0 <= metrics[f"{prefix}_{term}_accuracy"] <= 1
            assert metrics[f"{prefix}_{term}_loss"] > 0
    card = (finished / "README.md").read_text(encoding="utf-8")
    assert f"{metrics['eval_mlm_accuracy']:.2f}"[:3] in card
    assert "trust_remote_code=True" in card
    assert "pip install hf-ptm-ext" in card


def test_checkpoints_carry_their_code(finished):
    assert (finished / "checkpoint-2" / "modeling_spanbert.py").is_file()
    assert "AutoModel" in json.loads((finished / "checkpoint-2" / "config.json").read_text("utf-8"))["auto_map"]


def test_the_saved_model_fills_spans(finished):
    tokenizer = AutoTokenizer.from_pretrained(finished)
    model = AutoModelForPreTraining.from_pretrained(finished)
    [span] = model.fill_span("we propose a [MASK] [MASK] for learning", tokenizer)
    assert len(span["tokens"]) == 2


def test_a_checkpoint_goes_on_under_its_own_tokenizer(finished, tmp_path):
    folder = tmp_path / "more"
    arguments = flags(output_dir=folder, model_name_or_path=finished, config_overrides=None, vocab_size=None)
    assert main(["pretrain", *arguments]) == 0
    assert read_metrics(folder)["before_mlm_loss"] == pytest.approx(read_metrics(finished)["eval_mlm_loss"], rel=0.05)


@pytest.mark.parametrize("objective", ["mlm", "wwm"])
def test_any_masked_language_model_continues_under_its_own_class(finished, tmp_path, objective):
    base, folder = tmp_path / "bert", tmp_path / "out"
    tokenizer = AutoTokenizer.from_pretrained(finished)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64
    )
    BertForMaskedLM(config).save_pretrained(base)
    tokenizer.save_pretrained(base)
    arguments = flags(output_dir=folder, model_name_or_path=base, config_overrides=None, objective=objective)
    assert main(["pretrain", *arguments]) == 0
    assert type(AutoModelForMaskedLM.from_pretrained(folder)).__name__ == "BertForMaskedLM"
    assert "eval_sbo_loss" not in read_metrics(folder)


def test_two_segments_and_packed_rows(tmp_path):
    folder = tmp_path / "nsp"
    assert main(["pretrain", *flags(output_dir=folder, next_sentence_prediction=True, pack_rows=True)]) == 0
    assert read_metrics(folder)["eval_nsp_targets"] > 0


def test_chinese_words_from_a_segmenter(tmp_path):
    folder = tmp_path / "zh"
    arguments = flags(output_dir=folder, corpus="zh", objective="wwm", segmenter="jieba", vocab_size=1500)
    assert main(["pretrain", *arguments]) == 0
    assert read_metrics(folder)["eval_mlm_targets"] > 0
    assert "- zh" in (folder / "README.md").read_text(encoding="utf-8")


def test_streaming_from_files_of_several_kinds(tmp_path):
    text, lines = tmp_path / "a.txt.gz", tmp_path / "b.jsonl"
    with gzip.open(text, "wt", encoding="utf-8") as file:
        file.write("\n\n".join(f"This is sentence {n} of a document about ships and light." for n in range(40)))
    lines.write_text(
        "\n".join(json.dumps({"text": f"Number {n} speaks of harbours."}) for n in range(40)), encoding="utf-8"
    )
    folder = tmp_path / "out"
    assert main(["pretrain", *flags(output_dir=folder, train_file=[text, lines], streaming=True, vocab_size=200)]) == 0
    assert (folder / "checkpoint-2" / "data_state_0.json").is_file()


# ---- arguments ----


def test_a_recipe_is_overridden_by_flags_and_overrides(tmp_path):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("max_steps: 7\nlearning_rate: 1.0e-3\ntrain_file: [a.txt, b.txt]\n", encoding="utf-8")
    _, data, _, training = parse([str(recipe), "--max_steps", "9", "--overrides", "learning_rate=2e-3", "seed=4"])
    assert (training.max_steps, training.learning_rate, training.seed) == (9, 2e-3, 4)
    assert data.train_file == ["a.txt", "b.txt"]


def test_recipes_that_come_with_the_package_parse():
    for name in ("quickstart.yaml", "spanbert_continue.yaml", "wwm_zh.yaml"):
        assert parse([name])[3].max_steps > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--objective", "spans"], "`objective`"),
        (["--corpus", "en", "--train_file", "a.txt"], "one source"),
        (["--streaming", "true", "--max_steps", "-1"], "max_steps"),
        (["--objective", "mlm", "--next_sentence_prediction", "true"], "next_sentence_prediction"),
        (["--overrides", "seed"], "name=value"),
        (["missing.yaml"], "missing.yaml"),
    ],
)
def test_wrong_arguments_are_named(arguments, message, capsys):
    assert main(["pretrain", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_an_unknown_recipe_key_is_named(tmp_path, capsys):
    recipe = tmp_path / "recipe.json"
    recipe.write_text('{"max_step": 3}', encoding="utf-8")
    assert main(["pretrain", str(recipe)]) == 2
    assert "max_step" in capsys.readouterr().err


# ---- bad input: an error that names the file or field, and nothing written ----


def empty(path):
    path.write_bytes(b"")


def binary(path):
    path.write_bytes(bytes(range(256)) * 8)


def latin1(path):
    path.write_bytes("Ein schöner Tag.\n".encode("latin-1") * 5)


def one_document(path):
    path.write_text("A single line.\n", encoding="utf-8")


@pytest.mark.parametrize("write", [empty, binary, latin1, one_document])
def test_bad_text_is_refused_by_name(tmp_path, capsys, write):
    file, folder = tmp_path / "text.txt", tmp_path / "out"
    write(file)
    assert main(["pretrain", *flags(output_dir=folder, train_file=file)]) == 2
    error = capsys.readouterr().err
    assert "text.txt" in error or "validation_file" in error
    assert not folder.exists()


def truncated(folder):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:1000])


def not_weights(folder):
    (folder / "model.safetensors").unlink()
    with open(folder / "pytorch_model.bin", "wb") as file:
        pickle.dump({"os": sys.exit}, file)


@pytest.mark.parametrize("damage", [truncated, not_weights])
def test_a_damaged_checkpoint_is_refused(finished, tmp_path, capsys, damage):
    base, folder = tmp_path / "base", tmp_path / "out"
    base.mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"):
        (base / name).write_bytes((finished / name).read_bytes())
    damage(base)
    arguments = flags(output_dir=folder, model_name_or_path=base, config_overrides=None)
    assert main(["pretrain", *arguments]) == 2
    assert str(base) in capsys.readouterr().err
    assert not folder.exists()


def test_an_unknown_config_field_is_named(tmp_path, capsys):
    assert main(["pretrain", *flags(output_dir=tmp_path / "out", config_overrides="hiden_size=32")]) == 2
    assert "hiden_size" in capsys.readouterr().err


def test_a_tokenizer_without_mask_token_is_refused(finished, tmp_path, capsys):
    tokenizer = AutoTokenizer.from_pretrained(finished)
    tokenizer.mask_token = None
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    arguments = flags(output_dir=tmp_path / "out", tokenizer_name=tmp_path / "tokenizer")
    assert main(["pretrain", *arguments]) == 2
    assert "mask" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_another_run_is_not_written_over(finished, capsys):
    before = sorted(finished.iterdir())
    assert main(["pretrain", *flags(output_dir=finished)]) == 2
    assert "not empty" in capsys.readouterr().err
    assert sorted(finished.iterdir()) == before


def test_rows_longer_than_the_position_table_are_refused(tmp_path, capsys):
    arguments = flags(output_dir=tmp_path / "out", config_overrides=f"{TINY},max_position_embeddings=16")
    assert main(["pretrain", *arguments]) == 2
    assert "max_seq_length" in capsys.readouterr().err
