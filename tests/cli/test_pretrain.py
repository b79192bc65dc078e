"""`hf-ptm-ext pretrain`: from text to a folder that loads, and nothing half-written when something is wrong."""

import gzip
import json
import pickle
import shutil
import sys
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file
from transformers import (
    AutoConfig,
    AutoModelForMaskedLM,
    AutoModelForPreTraining,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertTokenizer,
    RobertaConfig,
    RobertaForMaskedLM,
)

from hf_ptm_ext.cli import main
from hf_ptm_ext.cli.arguments import ModelArguments
from hf_ptm_ext.cli.families import overrides
from hf_ptm_ext.cli.pretrain import parse
from hf_ptm_ext.cli.pretrain_arguments import DataArguments, ObjectiveArguments
from hf_ptm_ext.cli.pretrain_data import build_rows, describe_data, read_documents, trained_tokenizer
from hf_ptm_ext.cli.pretraining import OBJECTIVES
from hf_ptm_ext.cli.runs import written_aside
from hf_ptm_ext.cli.signature import refuse_changes
from hf_ptm_ext.cli.stages import scores_of
from hf_ptm_ext.cli.stages_arguments import Stage
from hf_ptm_ext.data import is_held_out
from hf_ptm_ext.hub import validate_model_card
from hf_ptm_ext.trainers import PreTrainingTrainer, checkpoints
from tests.cli.jobs import TINY, flags, read_metrics, recipes_of


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
    assert [name for name in names if name.startswith("_")] == ["_runs"], "nothing temporary is left"
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
    assert "| updates | 3 |" in card
    assert "before training (random weights)" in card


def test_runs_by_seeds_have_the_numbers_of_the_single_run_and_their_spread(finished, tmp_path):
    folder = tmp_path / "pretrain"
    assert main(["pretrain", *flags(output_dir=folder, seeds=[42, 7])]) == 0
    first, other = json.loads((folder / "results.json").read_text("utf-8"))["runs"]
    assert first["scores"].items() <= read_metrics(finished).items()
    assert first["scores"]["eval_loss"] != other["scores"]["eval_loss"]
    assert (folder / "model.safetensors").read_bytes() == (finished / "model.safetensors").read_bytes()
    assert (folder / "loss_curve.png").read_bytes() == (finished / "loss_curve.png").read_bytes()
    told = scores_of(Stage("pretrain", "pretrain", None, {}), tmp_path)["after"]["loss"]
    assert told["mean"] == pytest.approx((first["scores"]["eval_loss"] + other["scores"]["eval_loss"]) / 2)
    assert told["std"] > 0
    validate_model_card(folder)


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
    assert "| metric | before training | value |" in (folder / "README.md").read_text(encoding="utf-8")


def test_a_head_that_was_not_trained_for_this_is_named_beside_its_measurement(finished, tmp_path, caplog):
    """And held-out text of the training file is counted."""
    base, folder, text = tmp_path / "bert", tmp_path / "out", tmp_path / "text.txt"
    tokenizer = AutoTokenizer.from_pretrained(finished)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64
    )
    BertForMaskedLM(config).bert.save_pretrained(base)
    tokenizer.save_pretrained(base)
    text.write_text("\n\n".join(f"we propose a model for learning {number}" for number in range(9)), "utf-8")
    given = {"model_name_or_path": base, "train_file": text, "validation_file": text, "max_steps": 1}
    assert main(["pretrain", *flags(output_dir=folder, config_overrides=None, objective="mlm", **given)]) == 0
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert "before training (a head that the checkpoint lacks" in card
    assert "name: text.txt" in card
    assert "validation rows are in the training data too" in caplog.text


@pytest.mark.parametrize("objective", ["mlm", "wwm", "ngram"])
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


def test_rare_tokens_are_asked_for_more_often(tmp_path):
    options = {"objective": "mlm", "budget": "roberta", "sample_alpha": 0.5, "random_by_frequency": True}
    assert main(["pretrain", *flags(output_dir=tmp_path / "out", max_steps=2, pack_rows=True, **options)]) == 0
    metrics = read_metrics(tmp_path / "out")
    assert metrics["eval_mlm_targets"] > 0
    # The words of rows as they are would be guessed by their frequency better than rare ones.
    assert main(["pretrain", *flags(output_dir=tmp_path / "plain", max_steps=2, objective="mlm")]) == 0
    assert metrics["baseline_mlm_loss"] > read_metrics(tmp_path / "plain")["baseline_mlm_loss"] + 0.3


def test_two_segments_and_packed_rows(tmp_path):
    folder = tmp_path / "nsp"
    assert main(["pretrain", *flags(output_dir=folder, next_sentence_prediction=True, pack_rows=True)]) == 0
    assert read_metrics(folder)["eval_nsp_targets"] > 0


def test_unilm_trains_pairs_in_four_modes(tmp_path):
    folder = tmp_path / "unilm"
    assert main(["pretrain", *flags(output_dir=folder, objective="unilm", pack_rows=True)]) == 0
    assert read_metrics(folder)["eval_nsp_targets"] > 0
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert (config["model_type"], config["type_vocab_size"], config["mask_token_id"]) == ("unilm", 6, 4)


def test_chinese_words_from_a_segmenter(tmp_path):
    folder = tmp_path / "zh"
    arguments = flags(output_dir=folder, corpus="zh", objective="wwm", segmenter="jieba", vocab_size=1500)
    assert main(["pretrain", *arguments]) == 0
    assert read_metrics(folder)["eval_mlm_targets"] > 0
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert "- zh" in card
    assert "whole-word masking" in card
    assert "fill_span" not in card, "there is no boundary head"


def test_similar_words_stand_in_the_place_of_words(tmp_path, capsys):
    vectors, folder = tmp_path / "vectors.txt", tmp_path / "out"
    vectors.write_text("ship 1 0\nboat 1 0.1\nlight 0 1\nlamp 0.1 1\n", encoding="utf-8")
    assert main(["pretrain", *flags(output_dir=folder, objective="macbert", similar_words=vectors)]) == 0
    assert read_metrics(folder)["eval_mlm_targets"] > 0
    assert "similar words" in (folder / "README.md").read_text(encoding="utf-8")
    assert main(["pretrain", *flags(output_dir=tmp_path / "none", objective="macbert")]) == 2
    assert "`similar_words` must name word vectors for objective macbert" in capsys.readouterr().err


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


@pytest.mark.parametrize("streaming", [False, True])
def test_corpora_come_by_their_weights(tmp_path, streaming):
    files = [tmp_path / "ships.txt", tmp_path / "harbours.txt"]
    for file, count in zip(files, (30, 200), strict=True):
        file.write_text("\n\n".join(f"sentence {n} speaks of {file.stem}." for n in range(count)), encoding="utf-8")
    model, data, options, _ = parse(
        flags(train_file=files, corpus_weights=[0.8, 0.2], streaming=streaming, vocab_size=200, max_train_rows=5000)
    )
    documents = read_documents(data)
    assert 0 < len(documents.evaluation) < 50, "each corpus holds out its own share"
    tokenizer = trained_tokenizer(data, documents)
    objective = OBJECTIVES["span"](model, data, options)
    objective.prepare(tokenizer)
    rows = build_rows(objective, documents, 0)
    drawn = [tokenizer.decode(row["input_ids"]) for row in islice(iter(rows.train), 600)]
    assert abs(sum("ships" in text for text in drawn) - 480) < 4 * (600 * 0.8 * 0.2) ** 0.5
    if not streaming:
        assert len({tuple(row) for row in rows.train["input_ids"]}) == 230 - len(documents.evaluation), (
            "each row is there"
        )
    assert "ships.txt (80 %), harbours.txt (20 %)" in describe_data(data, rows)["name"]


@pytest.mark.parametrize("drop", [None, "train", "evaluation"])
def test_documents_of_the_training_data_are_counted_and_left_out(tmp_path, caplog, drop):
    files = [tmp_path / name for name in ("ships.txt", "harbours.txt", "validation.txt")]
    texts = [f"we propose a model for learning {number}" for number in range(12)]
    for file, part in zip(files, (texts[:5], texts[5:8], [texts[1].upper(), texts[7], *texts[8:]]), strict=True):
        file.write_text("\n\n".join(part), encoding="utf-8")
    given = {"train_file": files[:2], "validation_file": files[2], "corpus_weights": [0.5, 0.5], "drop_overlap": drop}
    folder = tmp_path / "out"
    assert main(["pretrain", *flags(output_dir=folder, objective="mlm", vocab_size=120, max_steps=1, **given)]) == 0
    assert "2 of 6 validation rows are in the training data too" in caplog.text
    left_out = {"train": ("train", (4, 2, 6)), "evaluation": ("validation", (5, 3, 4)), None: (None, (5, 3, 6))}[drop]
    note = read_metrics(folder)["in_training_data"]["validation"]
    assert (note["rows"], note["of"], note.get("left_out_of")) == (2, 6, left_out[0])
    out = f", left out of {left_out[0]}" if drop else ""
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert f"| validation rows that are in the training data | 2 of 6{out} |" in card
    documents = read_documents(parse(flags(**given))[1])
    assert (*map(len, documents.parts), len(documents.evaluation)) == left_out[1]


def test_a_run_that_began_before_there_was_an_option_goes_on(tmp_path):
    refuse_changes(tmp_path, {"seed": 1}, {"seed": 1, "on_bad_rows": "error"}, accept=False)
    with pytest.raises(ValueError, match="seed = 2 \\(was 1\\)"):
        refuse_changes(tmp_path, {"seed": 1}, {"seed": 2, "on_bad_rows": "error"}, accept=False)


# ---- arguments ----


def test_a_recipe_is_overridden_by_flags_and_overrides(tmp_path):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("max_steps: 7\nlearning_rate: 1.0e-3\ntrain_file: [a.txt, b.txt]\n", encoding="utf-8")
    _, data, _, training = parse([str(recipe), "--max_steps", "9", "--overrides", "learning_rate=2e-3", "seed=4"])
    assert (training.max_steps, training.learning_rate, training.seed) == (9, 2e-3, 4)
    assert data.train_file == ["a.txt", "b.txt"]


def test_recipes_that_come_with_the_package_parse():
    recipes = recipes_of("pretrain")
    assert "quickstart.yaml" in recipes
    for name, words in recipes.items():
        training = parse([name, *words, "--use_cpu", "true"])[3]
        assert training.max_steps > 0 or training.num_train_epochs > 3  # the default says nothing of a recipe


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--objective", "spans"], "`objective`"),
        (["--corpus", "en", "--train_file", "a.txt"], "one source"),
        (["--streaming", "true", "--max_steps", "-1"], "max_steps"),
        (["--streaming", "true", "--drop_overlap", "train"], "`drop_overlap` = train"),
        (["--on_bad_rows", "skip"], "`on_bad_rows` = skip"),
        (["--objective", "mlm", "--entity_table", "x"], "`entity_table` goes with objective ernie_thu"),
        (["--objective", "mlm", "--next_sentence_prediction", "true"], "next with objective span too; got spanbert"),
        (["--objective", "mass", "--next_sentence_prediction", "true"], "that hide tokens of an encoder, got mass"),
        (["--overrides", "seed"], "name=value"),
        (["--train_file", "a.txt", "b.txt", "--corpus_weights", "1"], "`corpus_weights`"),
        (["--train_file", "a.txt", "b.txt", "--corpus_weights", "1", "0"], "`corpus_weights`"),
        (["--corpus_weights", "1", "2"], "`train_file`"),
        (["missing.yaml"], "missing.yaml"),
        (["--objective", "span", "--family", "elmo"], "Objective span trains spanbert, got `family` = elmo"),
        (["--objective", "mlm", "--family", "awd_lstm"], "`family` = awd_lstm has no AutoModelForMaskedLM"),
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


# ---- what must not be lost or mixed ----


@pytest.mark.parametrize(("field", "value"), [("license", "Apache"), ("language", "english")])
def test_a_wrong_card_field_is_refused_before_training(tmp_path, capsys, field, value):
    assert main(["pretrain", *flags(output_dir=tmp_path / "out", **{field: value})]) == 2
    assert value in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_overwriting_removes_the_checkpoints_of_the_other_run(finished, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(finished, folder)
    assert main(["pretrain", *flags(output_dir=folder, overwrite=True, max_steps=1, save_steps=1)]) == 0
    assert [path.name for path in checkpoints(folder)] == ["checkpoint-1"]


def test_a_stream_holds_text_out_and_never_trains_on_it(tmp_path, monkeypatch):
    seen = []
    original = PreTrainingTrainer.get_batch_samples
    monkeypatch.setattr(
        PreTrainingTrainer,
        "get_batch_samples",
        lambda self, *arguments: seen.append(original(self, *arguments)) or seen[-1],
    )
    file, folder = tmp_path / "text.txt", tmp_path / "out"
    file.write_text("\n\n".join(f"Document {number} is about ships." for number in range(60)), encoding="utf-8")
    arguments = flags(output_dir=folder, train_file=file, streaming=True, vocab_size=120, validation_fraction=0.3)
    assert main(["pretrain", *arguments, "--max_steps", "30"]) == 0
    documents = [[f"Document {number} is about ships."] for number in range(60)]
    held_out = [document for document in documents if is_held_out(document, 0.3)]
    assert read_metrics(folder)["eval_mlm_targets"] > 0
    tokenizer = AutoTokenizer.from_pretrained(folder)
    forbidden = {tuple(tokenizer(document[0])["input_ids"]) for document in held_out}
    trained = set()
    for batches, _ in seen:
        for batch in batches:
            ids = torch.where(batch["labels"] != -100, batch["labels"], batch["input_ids"])
            trained |= {tuple(token for token in row if token != tokenizer.pad_token_id) for row in ids.tolist()}
    assert trained, "something was trained on"
    assert not trained & forbidden


def test_a_failing_move_leaves_no_folder_that_passes_for_a_model(tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text("old", encoding="utf-8")
    (tmp_path / "model.safetensors").write_text("old", encoding="utf-8")
    original = Path.replace

    def fail_on_weights(self, target):
        if self.name == "model.safetensors":
            raise OSError("no space left")
        return original(self, target)

    monkeypatch.setattr(Path, "replace", fail_on_weights)

    def save():
        with written_aside(tmp_path) as partial:
            for name in ("config.json", "model.safetensors", "added.py"):
                (partial / name).write_text("new", encoding="utf-8")

    with pytest.raises(OSError, match="no space"):
        save()
    assert not (tmp_path / "config.json").exists()


def test_config_overrides_of_any_type(tmp_path):
    overrides = f"{TINY},attention_probs_dropout_prob=0,layer_norm_eps=1e-6,hidden_act=relu,classifier_dropout=0.2"
    assert main(["pretrain", *flags(output_dir=tmp_path / "out", config_overrides=overrides, max_steps=1)]) == 0
    config = json.loads((tmp_path / "out" / "config.json").read_text(encoding="utf-8"))
    assert (config["layer_norm_eps"], config["hidden_act"], config["classifier_dropout"]) == (1e-6, "relu", 0.2)


@pytest.mark.parametrize(
    ("family", "given", "found"),
    [
        ("spanbert", None, {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}),
        ("bart", None, {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}),
        ("t5", None, {"dropout_rate": 0.0}),
        (
            "bert",
            "attention_probs_dropout_prob=0.2",
            {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.2},
        ),
    ],
)
def test_dropout_has_the_names_of_each_family_and_single_fields_win(family, given, found):
    config = AutoConfig.for_model(family)
    model = ModelArguments(dropout=0.0, config_overrides=given)
    assert overrides(model, config.to_dict(), type(config).__name__) == found
    assert overrides(ModelArguments(), config.to_dict(), type(config).__name__) == {}


def test_dropout_is_refused_where_there_is_none():
    with pytest.raises(ValueError, match=r"`dropout` = 0\.1 is nothing that SomeConfig has"):
        overrides(ModelArguments(dropout=0.1), {"hidden_size": 8, "classifier_dropout": 0.1}, "SomeConfig")


def test_weights_in_bfloat16_are_saved_verified_and_trained_further_in_float32(tmp_path, caplog, capsys):
    options = {"weights": "bf16", "dropout": 0.0, "max_steps": 2}
    first, second = tmp_path / "half", tmp_path / "whole"
    with caplog.at_level("INFO"):
        assert main(["pretrain", *flags(output_dir=first, **options)]) == 0
    assert "bfloat16 weights, float32 masters" in caplog.text
    assert "bfloat16 weights, float32 masters" in (first / "README.md").read_text(encoding="utf-8")
    config = json.loads((first / "config.json").read_text(encoding="utf-8"))
    assert (config["dtype"], config["hidden_dropout_prob"]) == ("bfloat16", 0.0)
    assert {value.dtype for value in load_file(first / "model.safetensors").values()} == {torch.bfloat16}
    assert read_metrics(first)["before_mlm_loss"] > 0
    assert main(["verify", str(first)]) == 0
    assert "OK" in capsys.readouterr().out
    assert main(["pretrain", *flags(output_dir=second, model_name_or_path=first, config_overrides=None)]) == 0
    assert json.loads((second / "config.json").read_text(encoding="utf-8"))["dtype"] == "float32"


def test_the_label_budget_of_compiled_rows_holds_every_row(tmp_path):
    data, options = DataArguments(max_seq_length=256, pack_rows=True), ObjectiveArguments()
    options.next_sentence_prediction = True
    pair = [2, *range(10, 17), 3, *range(20, 27), 3]
    row = {
        "input_ids": (pair * 15 + [0] * 16)[:256],
        "sequence_ids": ([number for number in range(1, 16) for _ in pair] + [0] * 16)[:256],
    }
    tokenizer = BertTokenizer(
        vocab={"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4} | {f"w{n}": n for n in range(5, 30)}
    )
    objective = OBJECTIVES["span"](ModelArguments(), data, options)
    objective.prepare(tokenizer)
    objective.model = SimpleNamespace(config=SimpleNamespace(max_pair_targets=15))
    collator = objective.collator(0, [1] * 30, fixed_shapes=True)
    assert (collator([row])["labels"] != -100).sum() == 60


def test_packed_rows_are_refused_for_models_that_would_mix_them(finished, tmp_path, capsys):
    base = tmp_path / "bert"
    tokenizer = AutoTokenizer.from_pretrained(finished)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64
    )
    BertForMaskedLM(config).save_pretrained(base)
    tokenizer.save_pretrained(base)
    options = {"model_name_or_path": base, "config_overrides": None, "objective": "mlm", "pack_rows": True}
    assert main(["pretrain", *flags(output_dir=tmp_path / "out", **options)]) == 2
    assert "sequence_ids" in capsys.readouterr().err


def test_a_tokenizer_that_does_not_know_the_text_is_refused(finished, tmp_path, capsys):
    arguments = flags(output_dir=tmp_path / "out", corpus="zh", tokenizer_name=finished)
    assert main(["pretrain", *arguments]) == 2
    assert "tokenizer_name" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_text_without_a_whole_batch_is_refused_if_the_rest_is_dropped(tmp_path, capsys):
    options = {"dataloader_drop_last": True, "max_train_rows": 3}
    assert main(["pretrain", *flags(output_dir=tmp_path / "out", **options)]) == 2
    assert "dataloader_drop_last" in capsys.readouterr().err


@pytest.mark.parametrize("write", [empty, binary])
def test_bad_validation_text_is_named_too(tmp_path, capsys, write):
    file = tmp_path / "validation.txt"
    write(file)
    assert main(["pretrain", *flags(output_dir=tmp_path / "out", validation_file=file)]) == 2
    assert "validation.txt" in capsys.readouterr().err


def test_another_architecture_is_sent_to_the_token_objectives(tmp_path, capsys):
    RobertaForMaskedLM(
        RobertaConfig(vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2)
    ).save_pretrained(tmp_path / "roberta")
    BertTokenizer(vocab={"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "a": 5}).save_pretrained(
        tmp_path / "roberta"
    )
    file = tmp_path / "text.txt"
    file.write_text("a a a\n\na a\n", encoding="utf-8")
    options = {"model_name_or_path": tmp_path / "roberta", "config_overrides": None, "train_file": file}
    assert main(["pretrain", *flags(output_dir=tmp_path / "out", **options)]) == 2
    assert "--objective mlm" in capsys.readouterr().err


def test_chinese_whole_words_without_a_segmenter_name_the_option(tmp_path, capsys):
    assert main(["pretrain", *flags(output_dir=tmp_path / "out", corpus="zh", objective="wwm", vocab_size=1500)]) == 2
    assert "--segmenter jieba" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_one_command_starts_resumes_and_stays_finished(tmp_path):
    folder = tmp_path / "out"
    arguments = flags(output_dir=folder, resume_from_checkpoint="auto", save_steps=1)
    assert main(["pretrain", *arguments]) == 0
    before = read_metrics(folder)
    weights = (folder / "model.safetensors").read_bytes()
    assert main(["pretrain", *arguments]) == 0
    after = read_metrics(folder)
    assert (folder / "model.safetensors").read_bytes() == weights
    assert after["eval_mlm_loss"] == before["eval_mlm_loss"]
    assert after["before_mlm_loss"] == before["before_mlm_loss"], "what was measured before training is kept"


def test_the_card_names_the_folder_not_a_temporary_one(finished):
    card = (finished / "README.md").read_text(encoding="utf-8")
    assert "your-name/tiny-spanbert" in card
    assert "_partial" not in card
