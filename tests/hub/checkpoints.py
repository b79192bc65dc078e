"""Tiny checkpoints, and scripts that run where the package cannot be imported."""

import os
import subprocess
import sys
from pathlib import Path

import torch
from transformers import BertTokenizerFast

from hf_ptm_ext import SpanBertConfig, SpanBertForPreTraining
from hf_ptm_ext.hub import fresh_process

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "tests" / "fixtures"

# A fifth of the time that it takes to import torch and transformers goes to the search for garbage.
WITHOUT_GARBAGE = "import gc\ngc.disable()\n"
HIDE_PACKAGE = (
    "import importlib.util\n"
    f"spec = importlib.util.spec_from_file_location('fresh_process', {fresh_process.__file__!r})\n"
    "fresh_process = importlib.util.module_from_spec(spec)\n"
    "spec.loader.exec_module(fresh_process)\n"
    "fresh_process.hide_package()\n"
)


def tiny_model():
    """A random SpanBERT of two layers whose vocabulary is the fixture's."""
    torch.manual_seed(0)
    config = SpanBertConfig(
        vocab_size=149,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=48,
        max_pair_targets=6,
    )
    return SpanBertForPreTraining(config).eval()


def tiny_tokenizer():
    with open(FIXTURES / "vocab.txt", encoding="utf-8") as file:
        vocab = {line.rstrip("\n"): number for number, line in enumerate(file)}
    return BertTokenizerFast(vocab=vocab, do_lower_case=True, model_max_length=48)


def write_checkpoint(folder):
    """Save model and tokenizer as a user would."""
    tiny_model().save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def run_script(code, *, hidden=True, timeout=600, **environment):
    """Run Python code in a fresh process, by default one that cannot import the package.

    Returns:
        What it printed. A failure fails the test with the script's last words.
    """
    result = subprocess.run(
        [sys.executable, "-c", WITHOUT_GARBAGE + (HIDE_PACKAGE if hidden else "") + code],
        env={**os.environ, "PYTHONWARNINGS": "ignore", "TOKENIZERS_PARALLELISM": "false", **environment},
        cwd=ROOT,
        # Without an answer: whoever forgets `trust_remote_code` must fail, not wait.
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-4000:]
    return result.stdout
