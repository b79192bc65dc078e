"""The scripts of `examples/` run as they stand, on a tiny model, and leave what loads without this package."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import BertConfig, BertForPreTraining, BertForSequenceClassification

from hf_ptm_ext.data import embedded_corpus, train_wordpiece
from hf_ptm_ext.hub import verify

EXAMPLES = Path(__file__).parents[1] / "examples"
SIZES = {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 64}
# Script -> its arguments beside `--output`; a model is one of those that `models` makes.
ARGUMENTS = {
    "spanbert.py": "--model bert --max_steps 4 --max_seq_length 32",
    "houlsby.py": "--model bert --epochs 0.2",
    "tinybert.py": "--teacher classifier --layers 2 --hidden_size 16 --epochs 0.2 0.2",
    "kbert_ner.py": "--model bert --epochs 0.2",
    "ernie_thu_relations.py": "--model bert --epochs 0.2",
    "unilm_summaries.py": "--model unilm --epochs 0.2",
}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A folder with a BERT, a classifier and a BERT that was converted to a UniLM."""
    from hf_ptm_ext.cli import main

    folder = tmp_path_factory.mktemp("models")
    torch.manual_seed(0)
    tokenizer = train_wordpiece(embedded_corpus("en")[:100], vocab_size=500)
    labels = {"id2label": {0: "cons", 1: "pros"}, "label2id": {"cons": 0, "pros": 1}}
    BertForPreTraining(BertConfig(vocab_size=len(tokenizer), **SIZES)).save_pretrained(folder / "bert")
    BertForSequenceClassification(BertConfig(vocab_size=len(tokenizer), **SIZES, **labels)).save_pretrained(
        folder / "classifier"
    )
    for name in ("bert", "classifier"):
        tokenizer.save_pretrained(folder / name)
    assert main(["convert", "unilm", str(folder / "bert"), str(folder / "unilm")]) == 0
    return folder


def test_every_example_is_run_and_short():
    scripts = {path.name: path.read_text(encoding="utf-8") for path in EXAMPLES.glob("*.py")}
    assert scripts.keys() == ARGUMENTS.keys()
    assert max(len(text.splitlines()) for text in scripts.values()) < 80


NOTEBOOKS = sorted((EXAMPLES / "notebooks").glob("*.ipynb"))


def cells(notebook, kind):
    found = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in found if cell["cell_type"] == kind]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_small_and_its_links_exist(notebook):
    assert notebook.stat().st_size < 20_000
    for cell in cells(notebook, "code"):
        compile("".join(cell["source"]), notebook.name, "exec")
        assert cell["execution_count"]
    for cell in cells(notebook, "markdown"):
        for link in re.findall(r"\]\(([^)]+)\)", "".join(cell["source"])):
            assert (notebook.parent / link).exists(), link


@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(notebook, monkeypatch, capsys):
    monkeypatch.chdir(notebook.parent)
    namespace = {"__name__": "__main__"}
    for number, cell in enumerate(cells(notebook, "code"), 1):
        exec(compile("".join(cell["source"]), f"{notebook.name}[{number}]", "exec"), namespace)
        assert capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("script", ARGUMENTS)
def test_an_example_runs(script, models, tmp_path):
    result = subprocess.run(
        [sys.executable, str(EXAMPLES / script), *ARGUMENTS[script].split(), "--output", str(tmp_path)],
        cwd=models,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    assert "eval_" in result.stdout or "f1" in result.stdout
    if script == "houlsby.py":
        assert (tmp_path / "adapter_model.safetensors").is_file()
    else:
        assert verify(tmp_path).ok
