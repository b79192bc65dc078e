"""The objectives learn on real text: each term leaves the unigram level, an ablated one does not."""

import sys
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

from hf_ptm_ext import UniLMForPreTraining
from hf_ptm_ext.collators import DataCollatorForUniLMPreTraining
from hf_ptm_ext.data import (
    embedded_corpus,
    encode_documents,
    held_out_split,
    next_sentence_pairs,
    special_tokens_of,
)
from tests.cli.jobs import read_metrics, run_process

THREADS = {"OMP_NUM_THREADS": "1"}
SIXTEEN = ("--per_device_train_batch_size", "16")
PAIRS = Path(__file__).parents[1] / "fixtures" / "xquad_pairs_240.jsonl"


def learn(folder, recipe, *more):
    words = ["-m", "hf_ptm_ext", "pretrain", recipe, "--output_dir", str(folder), "--disable_tqdm", "true", *more]
    run_process(sys.executable, *words, "--eval_strategy", "no", "--save_strategy", "no", timeout=1500, **THREADS)
    return read_metrics(folder)


@pytest.mark.slow
def test_the_quickstart_leaves_the_unigram_level(tmp_path):
    metrics = learn(tmp_path / "out", "quickstart.yaml")
    assert metrics["eval_mlm_loss"] <= metrics["baseline_mlm_loss"] - 0.2
    assert metrics["eval_sbo_loss"] <= metrics["baseline_sbo_loss"] - 0.1
    assert metrics["eval_mlm_accuracy"] >= 2 * metrics["baseline_mlm_accuracy"]


@pytest.mark.slow
def test_a_boundary_term_of_weight_zero_is_not_learnt(tmp_path):
    short = ["--max_steps", "120", "--max_eval_rows", "128"]
    learnt = learn(tmp_path / "with", "quickstart.yaml", *short)
    ablated = learn(tmp_path / "without", "quickstart.yaml", *short, "--sbo_loss_weight", "0")
    assert learnt["eval_sbo_loss"] < learnt["before_sbo_loss"] - 0.5
    assert ablated["eval_sbo_loss"] > ablated["before_sbo_loss"] - 0.05
    assert ablated["eval_mlm_loss"] < ablated["before_mlm_loss"] - 0.5


@pytest.mark.slow
def test_chinese_whole_words_are_learnt(tmp_path):
    metrics = learn(tmp_path / "out", "wwm_zh.yaml", "--max_steps", "180", "--max_seq_length", "64")
    assert metrics["eval_mlm_loss"] < metrics["before_mlm_loss"] - 1.0
    assert metrics["eval_mlm_loss"] < metrics["baseline_mlm_loss"]


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["ngram", "macbert"])
def test_ngrams_of_words_are_learnt(tmp_path, objective):
    vectors = tmp_path / "vectors.txt"  # neighbours at random: what is learnt is to see through them
    words = sorted({word.lower() for document in embedded_corpus("en") for line in document for word in line.split()})
    lines = (" ".join([word, *map(str, row)]) for word, row in zip(words, np.random.randn(len(words), 8), strict=True))
    vectors.write_text("\n".join(lines), encoding="utf-8")
    more = ["--similar_words", str(vectors)] if objective == "macbert" else []
    metrics = learn(tmp_path / "out", f"{objective}.yaml", "--max_steps", "160", "--max_seq_length", "64", *more)
    assert metrics["eval_mlm_loss"] < metrics["before_mlm_loss"] - 1.0
    assert metrics["eval_mlm_loss"] < metrics["baseline_mlm_loss"]


@pytest.mark.slow
def test_every_mode_of_unilm_is_learnt(tmp_path):
    """Held-out rows in one mode at a time, before and after 200 steps of the mixture."""
    learn(tmp_path / "out", "unilm.yaml", "--max_steps", "200", "--max_eval_rows", "64")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    trained = UniLMForPreTraining.from_pretrained(tmp_path / "out")
    torch.manual_seed(0)
    fresh = UniLMForPreTraining(trained.config)
    documents = list(encode_documents(held_out_split(embedded_corpus("en"))[1][:40], tokenizer))
    pairs = next_sentence_pairs(documents, 93, np.random.default_rng(0))
    rows = [pair.features(special_tokens_of(tokenizer)) for pair in islice(pairs, 48)]
    for mode in ("bidirectional", "left-to-right", "right-to-left", "seq2seq"):
        collator = DataCollatorForUniLMPreTraining(tokenizer, mode_probabilities={mode: 1.0}, seed=0)
        batch = {name: value for name, value in collator(rows).items() if name != "next_sentence_label"}
        losses = []
        for model in (fresh, trained):
            loss_sum, _, targets = model.eval().evaluation_sums(**batch)["mlm"].tolist()
            losses.append(loss_sum / targets)
        assert losses[1] < losses[0] - 0.7, (mode, losses)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["mass.yaml", "bart.yaml", "t5.yaml"])
def test_denoising_leaves_the_unigram_level(tmp_path, recipe):
    """300 updates of 16 rows; the baseline knows the frequencies of these very targets, sentinels included."""
    metrics = learn(tmp_path / "out", recipe, "--max_steps", "300", "--max_eval_rows", "128", *SIXTEEN)
    term = "mass" if recipe == "mass.yaml" else "denoising"
    assert metrics[f"eval_{term}_loss"] < metrics[f"baseline_{term}_loss"] - 0.5
    assert metrics[f"eval_{term}_accuracy"] > 2 * metrics[f"baseline_{term}_accuracy"]


@pytest.mark.slow
def test_translations_are_learnt(tmp_path):
    """120 updates on 228 pairs of questions: far below an untrained model, and below the targets' unigram level."""
    pairs = ["--train_file", str(PAIRS), "--languages", "en", "zh", "--vocab_size", "600"]
    metrics = learn(tmp_path / "out", "tlm.yaml", *pairs, "--max_steps", "120", *SIXTEEN)
    assert metrics["eval_mlm_loss"] < metrics["before_mlm_loss"] - 1.0
    assert metrics["eval_mlm_loss"] < metrics["baseline_mlm_loss"]
