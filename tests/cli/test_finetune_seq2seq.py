"""`hf-ptm-ext finetune-seq2seq`: from pairs of texts to a folder that loads, with scores, baseline and texts."""

import json
import re
import sys
from pathlib import Path
from statistics import mean, stdev

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, BertConfig, BertModel

from hf_ptm_ext.cli import main
from hf_ptm_ext.cli.finetune_seq2seq import smooth_once
from hf_ptm_ext.cli.results import percent
from hf_ptm_ext.cli.seq2seq_arguments import FineTuningArguments, parse, read_preset
from hf_ptm_ext.cli.seq2seq_data import shortened
from hf_ptm_ext.cli.seq2seq_generation import RepeatedNgramProcessor
from hf_ptm_ext.files import resource_folder
from hf_ptm_ext.hub import validate_model_card
from hf_ptm_ext.metrics import Rouge
from hf_ptm_ext.trainers import PtmSeq2SeqTrainer
from tests.cli.jobs import TINY, read_metrics, recipes_of, run_process

FIXTURES = Path(__file__).parents[1] / "fixtures"
PAIRS = FIXTURES / "scitldr_64.jsonl"
QUESTIONS = FIXTURES / "xquad_24.jsonl"
TINY_BART = (
    "d_model=32,encoder_layers=1,decoder_layers=1,encoder_attention_heads=2,decoder_attention_heads=2,"
    "encoder_ffn_dim=64,decoder_ffn_dim=64"
)
RUN = {
    "train_file": PAIRS,
    "validation_file": PAIRS,
    "max_eval_rows": 6,
    "config_overrides": TINY,
    "vocab_size": 600,
    "max_source_length": 48,
    "max_target_length": 24,
    "max_steps": 4,
    "save_strategy": "steps",
    "save_steps": 2,
    "save_total_limit": 2,
    "per_device_train_batch_size": 4,
    "logging_steps": 1,
    "disable_tqdm": True,
    "dataloader_pin_memory": False,
    "use_cpu": True,
}


def flags(**values):
    words = []
    for name, value in {**RUN, **values}.items():
        if value is not None:
            words += [f"--{name}", *(str(item) for item in (value if isinstance(value, list) else [value]))]
    return words


def finetune(folder, **values):
    assert main(["finetune-seq2seq", *flags(output_dir=folder, **values)]) == 0
    return read_metrics(folder)


def predictions(folder, split="validation"):
    lines = (folder / f"predictions_{split}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a tiny UniLM, tested on questions as well."""
    folder = tmp_path_factory.mktemp("job") / "tiny-unilm"
    finetune(folder, test_file=PAIRS, max_test_rows=3, decoding="unilm_gigaword", max_new_tokens=8)
    return folder


def test_the_folder_holds_model_code_tokenizer_texts_card_and_metrics(finished):
    names = {path.name for path in finished.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "README.md", "modeling_unilm.py"} <= names
    assert {"predictions_validation.jsonl", "predictions_test.jsonl", "all_results.json", "checkpoint-4"} <= names
    assert {"custom_generate", "generation_config.json"} <= names
    assert [name for name in names if name.startswith("_")] == ["_runs"], "nothing temporary is left"
    validate_model_card(finished / "README.md")
    assert json.loads((finished / "config.json").read_text("utf-8"))["use_cache"] is True
    generation = json.loads((finished / "generation_config.json").read_text("utf-8"))
    assert generation["max_new_tokens"] == 8
    assert "max_length" not in generation
    assert "temperature" not in generation, "upstream's defaults are not written in"
    tokenizer = AutoTokenizer.from_pretrained(finished)
    assert tokenizer.padding_side == "left", "as `generate` wants it of a prompt"
    assert "token_type_ids" not in tokenizer("a")


def test_scores_are_those_of_the_written_texts_beside_the_baseline(finished):
    metrics = read_metrics(finished)
    for split, prefix in (("validation", "eval"), ("test", "test")):
        rows = predictions(finished, split)
        texts, references = [row["prediction"] for row in rows], [row["references"] for row in rows]
        scores = Rouge().compute(predictions=texts, references=references)
        assert metrics[f"{prefix}_rouge1"] == pytest.approx(scores["rouge1"])
        assert 0.1 < metrics[f"baseline_{prefix}_rouge1"] < 1
    card = (finished / "README.md").read_text(encoding="utf-8")
    assert f"| validation rouge1 | {metrics['eval_rouge1']:.4g} | {metrics['baseline_eval_rouge1']:.4g} |" in card
    assert "padding_side" in card, "prompts are padded on the left"


def test_the_prompt_is_stripped_and_the_limit_is_the_targets(finished):
    rows = predictions(finished)
    tokenizer = AutoTokenizer.from_pretrained(finished)
    for row in rows:
        words = " ".join(row["source"].lower().split()[:4])
        assert not row["prediction"].startswith(words), "the source is no part of the prediction"
        assert len(tokenizer(row["prediction"], add_special_tokens=False)["input_ids"]) <= 8
    assert 0 < read_metrics(finished)["eval_gen_len"] <= 8


def test_short_and_long_sources_of_one_batch_may_write_the_same_number_of_tokens(finished, tmp_path):
    file = tmp_path / "rows.jsonl"
    texts = ["light", " ".join(["deep networks learn"] * 10)]
    file.write_text("".join(json.dumps({"source": text, "target": "a"}) + "\n" for text in texts), encoding="utf-8")
    folder, options = tmp_path / "out", {"model_name_or_path": finished, "config_overrides": None, "max_steps": 1}
    finetune(folder, validation_file=file, max_new_tokens=5, min_new_tokens=5, **options)
    assert read_metrics(folder)["eval_gen_len"] == 5
    alone = tmp_path / "alone"
    finetune(alone, validation_file=file, max_new_tokens=5, min_new_tokens=5, per_device_eval_batch_size=1, **options)
    assert predictions(alone) == predictions(folder), "padding changes nothing"


@pytest.mark.parametrize(
    ("family", "config", "options"),
    [
        ("mass", TINY_BART, {"num_beams": 2, "no_repeat_ngram_size": 2, "forbid_ignore_set": "."}),
        ("bart", TINY_BART, {"decoding": "mass_summarization", "max_new_tokens": 6, "min_new_tokens": 3}),
        ("t5", "d_model=32,num_layers=1,num_heads=2,d_kv=16,d_ff=64", {"metric": "sacrebleu", "source_prefix": "s: "}),
    ],
)
def test_encoder_decoders_are_fine_tuned_and_decode_as_evaluated(tmp_path, family, config, options):
    folder = tmp_path / "out"
    metrics = finetune(folder, family=family, config_overrides=config, **options)
    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert type(model).__name__.lower().startswith(family)
    assert metrics["eval_gen_len"] > 1
    assert ("eval_bleu" if "metric" in options else "eval_rougeLsum") in metrics
    row = predictions(folder)[0]
    ids = tokenizer(options.get("source_prefix", "") + row["source"])["input_ids"]
    ids = torch.tensor([shortened(ids, 48, tokenizer)])
    text = tokenizer.decode(model.generate(ids)[0], skip_special_tokens=True)
    if family != "mass":  # words exempt from blocking have no place in a generation_config
        assert text.split() == row["prediction"].split(), "the saved model decodes as it was evaluated"


SEARCHES = {
    "mass": {"length_penalty": 0.6, "not_predict": ["the"]},
    "mass_nmt": {"length_penalty": 0.6, "early_stopping": True, "source_lang": "0", "target_lang": "1"},
}


@pytest.mark.parametrize("family", SEARCHES)
def test_the_own_search_of_a_family_decodes(tmp_path, family):
    """By flags and by a recipe, as `generate` does it with the same options."""
    options = {"family": family, "search": family, "num_beams": 3, "min_new_tokens": 3, "max_new_tokens": 8}
    options |= {"no_repeat_ngram_size": 2, **SEARCHES[family]}
    recipe = tmp_path / "own.yaml"
    recipe.write_text("\n".join(f"{name}: {json.dumps(value)}" for name, value in options.items()), "utf-8")
    folder, again = tmp_path / "flags", tmp_path / "recipe"
    finetune(folder, config_overrides=TINY_BART, **options)
    chosen = flags(output_dir=again, config_overrides=TINY_BART)
    assert main(["finetune-seq2seq", str(recipe), *chosen]) == 0
    assert predictions(again) == predictions(folder)
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    stored = json.loads((folder / "generation_config.json").read_text("utf-8"))
    assert (stored["num_beams"], stored["length_penalty"]) == (3, 0.6)
    for row in predictions(folder)[:3]:
        ids = torch.tensor([shortened(tokenizer(row["source"])["input_ids"], 48, tokenizer)])
        text = tokenizer.decode(model.generate(ids, search_beam_size=3)[0], skip_special_tokens=True)
        assert text.split() == row["prediction"].split()


@pytest.mark.parametrize(("family", "search"), [("unilm", "mass"), ("mass", "unilm"), ("bart", "mass_nmt")])
def test_the_search_of_another_family_is_refused_before_anything_is_read(tmp_path, capsys, family, search):
    chosen = flags(
        output_dir=tmp_path, family=family, search=search, config_overrides=None, train_file=tmp_path / "no.jsonl"
    )
    assert main(["finetune-seq2seq", *chosen]) == 2
    assert f"`search` = {search} is the beam search of that family, and this is a {family}" in capsys.readouterr().err


def test_pseudo_masked_input_trains_and_generates(tmp_path):
    metrics = finetune(tmp_path / "out", pseudo_masked=True, target_mask_prob=0.3)
    assert metrics["eval_loss"] > 0
    assert metrics["eval_gen_len"] > 0


def test_questions_are_generated_from_passage_and_answer(tmp_path):
    folder = tmp_path / "out"
    options = {"train_file": QUESTIONS, "validation_file": QUESTIONS, "file_format": "squad", "vocab_size": 2000}
    metrics = finetune(folder, metric_tokenizer="character", max_eval_rows=24, **options)
    assert metrics["baseline_eval_rouge1"] > 0
    rows = predictions(folder)
    assert any("\u4e00" <= row["source"][0] <= "\u9fff" for row in rows)
    for row in rows:
        assert row["source_pair"] in row["source"]
        assert not re.search("[\u4e00-\u9fff] [\u4e00-\u9fff]", row["prediction"]), "no blanks between characters"


def test_a_converted_bert_is_fine_tuned_and_a_plain_one_refused_with_the_command(finished, tmp_path, capsys):
    tokenizer = AutoTokenizer.from_pretrained(finished)
    bert, converted = tmp_path / "bert", tmp_path / "unilm"
    BertModel(
        BertConfig(
            vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64
        )
    ).save_pretrained(bert)
    tokenizer.save_pretrained(bert)
    options = {"model_name_or_path": bert, "config_overrides": None, "output_dir": tmp_path / "out"}
    assert main(["finetune-seq2seq", *flags(**options)]) == 2
    assert "hf-ptm-ext convert unilm" in capsys.readouterr().err
    assert main(["convert", "unilm", str(bert), str(converted)]) == 0
    options |= {"model_name_or_path": converted, "config_overrides": "hidden_dropout_prob=0.0"}
    finetune(options.pop("output_dir"), **options)
    config = json.loads((tmp_path / "out" / "config.json").read_text(encoding="utf-8"))
    assert (config["hidden_dropout_prob"], config["label_smoothing"]) == (0.0, 0.1)


def test_half_precision_files_are_trained_in_single_precision(finished, tmp_path):
    base, folder = tmp_path / "half", tmp_path / "out"
    AutoModelForSeq2SeqLM.from_pretrained(finished).half().save_pretrained(base)
    AutoTokenizer.from_pretrained(finished).save_pretrained(base)
    finetune(folder, model_name_or_path=base, config_overrides=None, max_steps=1, validation_file=None)
    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    assert {value.dtype for value in model.state_dict().values()} == {torch.float32}


# ---- resume ----


def test_a_resumed_run_ends_as_the_uninterrupted_one(finished, tmp_path):
    """Dropout and masks are on: both must go on where they stopped."""
    whole, part = tmp_path / "whole", tmp_path / "part"
    finetune(whole)
    finetune(part, max_steps=4)
    weights = (whole / "model.safetensors").read_bytes()
    assert (part / "model.safetensors").read_bytes() == weights, "the run itself is repeatable"
    for name in ("model.safetensors", "config.json"):
        (part / name).unlink()
    assert main(["finetune-seq2seq", *flags(output_dir=part, resume_from_checkpoint=part / "checkpoint-2")]) == 0
    assert (part / "model.safetensors").read_bytes() == weights
    assert predictions(part) == predictions(whole)


def test_one_command_starts_resumes_and_stays_finished(tmp_path):
    folder, options = tmp_path / "out", {"resume_from_checkpoint": "auto", "save_steps": 1, "max_steps": 2}
    first = finetune(folder, **options)
    again = finetune(folder, **options)
    assert again["eval_rouge1"] == first["eval_rouge1"]
    assert again["eval_loss"] == first["eval_loss"]


def test_another_run_is_not_written_over(finished, capsys):
    assert main(["finetune-seq2seq", *flags(output_dir=finished)]) == 2
    assert "not empty" in capsys.readouterr().err


# ---- by seeds ----


class Interrupted(Exception):
    pass


def test_runs_by_seeds_are_the_single_runs_added_and_resumed_exactly(tmp_path, monkeypatch, capsys):
    """A second seed is added to the first and interrupted behind its first checkpoint; masks and dropout are on."""
    options = {"test_file": PAIRS, "max_test_rows": 3, "max_new_tokens": 8}
    singles = {seed: finetune(tmp_path / str(seed), seed=seed, **options) for seed in (1, 2)}
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    finetune(whole, seeds=[1, 2], **options)
    results = json.loads((whole / "results.json").read_text("utf-8"))
    for run in results["runs"]:
        assert run["scores"].items() <= singles[run["seed"]].items(), "bit for bit"
        assert {"eval_loss", "eval_rouge1", "baseline_test_rouge1"} <= run["scores"].keys()
    losses = [singles[seed]["eval_loss"] for seed in (1, 2)]
    assert results["summary"]["model"]["eval_loss"] == {"mean": mean(losses), "std": stdev(losses)}

    finetune(parts, seeds=1, **options)
    steps, original = [], PtmSeq2SeqTrainer.training_step

    def training_step(self, *args, **kwargs):
        steps.append(self.args.seed)
        if len(steps) == 4:
            raise Interrupted
        return original(self, *args, **kwargs)

    monkeypatch.setattr(PtmSeq2SeqTrainer, "training_step", training_step)
    for _ in range(2):
        try:
            finetune(parts, seeds=[1, 2], resume_from_checkpoint="auto", **options)
        except Interrupted:
            assert [path.name for path in (parts / "_runs").glob("seed2*/checkpoint-*")] == ["checkpoint-2"]
    assert steps == [2] * 6, "the finished seed is not run again, and the other one goes on from its checkpoint"
    for folder in (whole, parts):
        assert json.loads((folder / "results.json").read_text("utf-8")) == results
        assert (folder / "model.safetensors").read_bytes() == (tmp_path / "1" / "model.safetensors").read_bytes()
        assert predictions(folder, "test") == predictions(tmp_path / "1", "test")
        assert read_metrics(folder)["eval_loss"] == losses[0], "the first seed's, whose model it is"
        assert (folder / "loss_curve.png").read_bytes() == (tmp_path / "1" / "loss_curve.png").read_bytes()
        card = (folder / "README.md").read_text("utf-8")
        assert "mean and standard deviation of 2 seeds" in card
        assert f"| eval_rouge1 | {percent(results['summary']['model']['eval_rouge1'], 1, 4)} |" in card
        validate_model_card(folder)
        assert not list(folder.rglob("checkpoint-*"))
    again = flags(output_dir=whole, seeds=[2, 1], resume_from_checkpoint="auto", **options)
    assert main(["finetune-seq2seq", *again]) == 2, "the model that the folder holds is the first seed's"
    assert "first_seed = 2 (was 1)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seeds": [1, 1]}, "`seeds` must be different numbers, at least one, got [1, 1]"),
        ({"seeds": [1], "resume_from_checkpoint": "out/checkpoint-2"}, "must be auto, got out/checkpoint-2"),
    ],
)
def test_seeds_that_cannot_be_are_refused(tmp_path, capsys, changes, message):
    assert main(["finetune-seq2seq", *flags(output_dir=tmp_path / "out", **changes)]) == 2
    assert message in capsys.readouterr().err


# ---- label smoothing ----


def test_smoothing_is_applied_once_by_the_model_that_has_its_own(finished, tmp_path):
    model = AutoModelForSeq2SeqLM.from_pretrained(finished)
    arguments = FineTuningArguments(output_dir=str(tmp_path), label_smoothing_factor=0.2, use_cpu=True)
    assert smooth_once(model, arguments) is None
    assert (model.config.label_smoothing, arguments.label_smoothing_factor) == (0.2, 0.0)


# ---- recipes and presets ----


def test_presets_are_overridden_by_recipes_and_flags(tmp_path):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("train_file: [a.jsonl]\ndecoding: unilm_gigaword\nmax_new_tokens: 20\n", encoding="utf-8")
    decoding = parse([str(recipe), "--num_beams", "3", "--use_cpu", "true"])[3]
    assert (decoding.search, decoding.num_beams, decoding.max_new_tokens) == ("unilm", 3, 20)
    assert (decoding.length_penalty, decoding.forbid_ignore_set) == (0.6, ["."])
    other = parse([str(recipe), "--decoding=unilm_question_generation", "--use_cpu", "true"])[3]
    assert (other.num_beams, other.length_penalty, other.max_new_tokens) == (1, None, 20)


def test_recipes_that_come_with_the_package_parse():
    recipes = recipes_of("finetune-seq2seq")
    assert {
        f"{family}_{task}.yaml" for family in ("unilm", "mass") for task in ("summarization", "question_generation")
    } <= set(recipes)
    assert "mass_translation.yaml" in recipes
    for name, words in recipes.items():
        model, data, _, _, training = parse([name, *words, "--use_cpu", "true"])
        assert training.label_smoothing_factor == 0.1
        # UniLM's positions count source and target together, an encoder-decoder's each by itself.
        lengths = (data.max_source_length, data.max_target_length)
        assert (sum(lengths) if name.startswith("unilm") else max(lengths)) <= 512
        assert (model.model_name_or_path == "FOLDER") == (model.config_overrides is None)


def test_presets_that_come_with_the_package_are_read():
    names = sorted(path.stem for path in resource_folder("decoding").iterdir())
    assert {"unilm_cnn_dailymail", "unilm_question_generation", "mass_summarization"} <= set(names)
    for name in names:
        assert read_preset(name)["max_new_tokens"] > 0


# ---- repeated n-grams ----


def test_phrases_of_the_source_can_be_copied_and_generated_ones_not_repeated():
    source = [2, 5, 6, 7, 3]
    ids = torch.tensor([[*source, 5, 6], [*source, 5, 6]])
    scores = RepeatedNgramProcessor(len(source), 3, [])(ids, torch.zeros(2, 10))
    assert not scores.any(), "5 6 7 stands in the source only"
    ids = torch.tensor([[*source, 5, 6, 7, 8, 5, 6]])
    assert RepeatedNgramProcessor(len(source), 3, [])(ids, torch.zeros(1, 10)).nonzero().tolist() == [[0, 7]]
    assert not RepeatedNgramProcessor(len(source), 3, [7])(ids, torch.zeros(1, 10)).any(), "7 is exempt"
    assert not RepeatedNgramProcessor(len(source), 3, [6])(ids, torch.zeros(1, 10)).any(), "6 lifts the block"


# ---- what is wrong is named, and nothing is written ----


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source_column": "abstract"}, "no column 'abstract'"),
        ({"target_column": "summary"}, "`target_column`"),
        ({"train_file": None}, "`train_file` or `dataset_name`"),
        ({"train_file": "missing.jsonl"}, "missing.jsonl"),
        ({"max_source_length": 600}, "`max_position_embeddings` = 512"),
        ({"config_overrides": f"{TINY},max_position_embeddings=64"}, "max_source_length + max_target_length"),
        ({"family": "bert"}, "neither UniLM nor an encoder-decoder"),
        ({"family": "unilmm"}, "`family`"),
        ({"config_overrides": "hiden_size=3"}, "hiden_size"),
        ({"decoding": "unilm_xsum"}, "unilm_cnn_dailymail"),
        ({"search": "beam"}, "`search`"),
        ({"family": "bart", "config_overrides": TINY_BART, "search": "unilm"}, "Use stock"),
        ({"metric": "bleu"}, "`metric`"),
        (
            {"load_best_model_at_end": True, "eval_strategy": "steps", "metric_for_best_model": "accuracy"},
            "one of loss, rouge1",
        ),
        ({"metric_tokenizer": "zh"}, "`tokenizer` must be one of word, character"),
        ({"metric": "sacrebleu", "metric_tokenizer": "word"}, "`tokenize`"),
        ({"generation_max_length": 60}, "`max_new_tokens`"),
        ({"max_target_length": 2}, "`max_target_length`"),
        ({"license": "Apache"}, "Apache"),
        ({"file_format": "squad", "source_prefix": "ask: "}, "squad"),
    ],
)
def test_mistakes_are_named(tmp_path, capsys, changes, message):
    folder = tmp_path / "out"
    values = {"max_source_length": 48, **changes}
    if changes.get("max_source_length") == 600:
        values["config_overrides"] = f"{TINY},max_position_embeddings=512"
    assert main(["finetune-seq2seq", *flags(output_dir=folder, **values)]) == 2
    assert message in capsys.readouterr().err
    assert not folder.exists()


def test_a_missing_metric_library_is_named_before_training(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "rouge_score.rouge_scorer", None)
    assert main(["finetune-seq2seq", *flags(output_dir=tmp_path / "out")]) == 2
    assert "pip install hf-ptm-ext[metrics]" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_tokenizer_of_another_model_is_named_with_both_sizes(finished, tmp_path, capsys):
    model = AutoModelForSeq2SeqLM.from_pretrained(finished)
    model.resize_token_embeddings(100)
    model.save_pretrained(tmp_path / "small")
    options = {"model_name_or_path": tmp_path / "small", "tokenizer_name": finished, "config_overrides": None}
    assert main(["finetune-seq2seq", *flags(output_dir=tmp_path / "out", **options)]) == 2
    error = capsys.readouterr().err
    assert "100 embeddings" in error
    assert "`tokenizer_name`" in error


def test_words_cannot_score_chinese(tmp_path, capsys):
    options = {"train_file": QUESTIONS, "validation_file": QUESTIONS, "file_format": "squad", "vocab_size": 2000}
    words = flags(output_dir=tmp_path / "out", max_eval_rows=24, metric_tokenizer="word", **options)
    assert main(["finetune-seq2seq", *words]) == 2
    assert "tokenizer='character'" in capsys.readouterr().err


def test_the_metric_follows_the_script_of_the_references_and_says_so(tmp_path):
    options = {"train_file": QUESTIONS, "validation_file": QUESTIONS, "file_format": "squad", "vocab_size": 2000}
    metrics = finetune(tmp_path, max_eval_rows=4, max_steps=1, save_steps=1, **options)
    assert "|tok:character|" in metrics["metric_signature"]
    assert metrics["metric_lost_letters"] == 0
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert metrics["metric_signature"] in card.replace("\\|", "|")


# ---- learning ----


@pytest.mark.slow
def test_unilm_overfits_16_real_pairs_token_by_token(tmp_path):
    """Greedy decoding writes all 16 summaries, each token of them."""
    folder = tmp_path / "out"
    finetune(
        folder,
        max_train_rows=16,
        max_eval_rows=16,
        config_overrides="hidden_size=128,num_hidden_layers=3,num_attention_heads=4,intermediate_size=512,"
        "hidden_dropout_prob=0.0,attention_probs_dropout_prob=0.0",
        vocab_size=1500,
        max_source_length=40,
        max_target_length=64,
        max_steps=400,
        save_steps=400,
        learning_rate=1e-3,
        label_smoothing_factor=0.0,
        per_device_train_batch_size=16,
        per_device_eval_batch_size=32,
        logging_steps=100,
    )
    tokenizer = AutoTokenizer.from_pretrained(folder)

    def ids(text):
        return tokenizer(text, add_special_tokens=False)["input_ids"]

    rows = predictions(folder)
    exact = [ids(row["prediction"]) == ids(row["references"][0])[: 64 - 2] for row in rows]
    assert sum(exact) == 16
    metrics = read_metrics(folder)
    assert metrics["eval_rouge2"] > 0.95 > metrics["baseline_eval_rouge2"]


def test_sources_without_targets_are_predicted_and_not_scored(finished, tmp_path):
    rows = [{"key": f"q{number}", "source": f"a text about ship {number}"} for number in range(3)]
    (tmp_path / "test.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    metrics = finetune(tmp_path / "out", test_file=tmp_path / "test.jsonl", max_steps=1, save_strategy="no")
    assert not any("test_" in name for name in metrics), sorted(metrics)
    lines = (tmp_path / "out" / "predictions_test.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line).keys() for line in lines] == [{"id", "source", "prediction"}] * 3
    validate_model_card(tmp_path / "out")


@pytest.mark.parametrize("drop", ["train", "evaluation"])
def test_sources_of_the_training_data_are_left_out_of_one_side(tmp_path, drop):
    rows = [json.loads(line) for line in PAIRS.read_text(encoding="utf-8").splitlines()][:8]
    for name, part in (("train", rows[:6]), ("validation", rows[4:])):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, part)), encoding="utf-8")
    files = {f"{name}_file": tmp_path / f"{name}.jsonl" for name in ("train", "validation")}
    metrics = finetune(tmp_path / "out", **files, max_steps=1, save_strategy="no", drop_overlap=drop)
    assert metrics["eval_rows_in_training_data"] == 2
    side = "train" if drop == "train" else "validation"
    assert metrics["in_training_data"]["validation"] == {"rows": 2, "of": 4, "left_out_of": side, "left_out": 2}
    ids = [row["id"] for row in predictions(tmp_path / "out")]
    assert len(ids) == (4 if drop == "train" else 2)
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert f"| validation rows that are in the training data | 2 of 4, left out of {side} |" in card


@pytest.mark.slow
def test_two_processes_write_the_texts_of_one_each_row_once(tmp_path):
    small = {"max_train_rows": 7, "max_eval_rows": 7, "save_strategy": "no", "per_device_eval_batch_size": 2}
    small |= {"max_source_length": 24, "max_target_length": 16}
    config = f"{TINY.replace('hidden_size=32', 'hidden_size=64')},hidden_dropout_prob=0.0"
    finetune(tmp_path / "base", **small, max_steps=200, learning_rate=5e-3, config_overrides=config)
    known = predictions(tmp_path / "base")
    assert len({row["prediction"] for row in known}) > 3, "texts that tell their rows apart"
    values = {"model_name_or_path": tmp_path / "base", "config_overrides": None, "max_steps": 1}
    words = flags(**small, **values, output_dir=tmp_path / "two", learning_rate=1e-12)
    launch = ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--num_machines", "1"]
    launch += ["--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "29614"]
    run_process(sys.executable, *launch, "scripts/run_seq2seq.py", *words, MASTER_ADDR="127.0.0.1")
    assert predictions(tmp_path / "two") == known
