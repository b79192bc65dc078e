"""On real text a student comes closer to its teacher by the term that is trained, and not without it."""

import pytest
import torch
from transformers import BertForMaskedLM

from hf_ptm_ext import DataCollatorForMaskedLanguageModeling
from hf_ptm_ext.data import embedded_corpus, pretraining_dataset, train_wordpiece
from tests.distillation.pairs import model, trainer

TERMS = {
    "tinybert-general": ["attention_loss", "hidden_loss"],
    "minilm": ["attention_loss", "value_relation_loss"],
    "minilm-v2": ["relation_loss"],
    "distilbert": ["soft_label_loss", "cosine_loss"],
}


@pytest.fixture(scope="module")
def data():
    documents = embedded_corpus("en")[:60]
    tokenizer = train_wordpiece(documents, 300, model_max_length=64)
    return tokenizer, pretraining_dataset(documents, tokenizer, max_seq_length=32).select(range(96))


def run(folder, preset, data, objectives=None):
    tokenizer, rows = data
    sizes = {"vocab_size": len(tokenizer), "max_position_embeddings": 64}
    width = 24 if preset == "distilbert" else 16
    student = model(BertForMaskedLM, 0, 2, width, **sizes, initializer_range=0.05)
    return trainer(
        folder,
        preset if objectives is None else "",
        16,
        models=(student, model(BertForMaskedLM, 1, 4, 24, **sizes)),
        data=rows,
        data_collator=DataCollatorForMaskedLanguageModeling(tokenizer, seed=0),
        eval_dataset=rows.select(range(32)),
        max_steps=60,
        optim="adamw_torch",
        learning_rate=5e-3,
        logging_steps=30,
        teacher_in_eval=True,
        objectives=objectives,
    )


def before_and_after(folder, preset, data, trained):
    """The preset's terms before and after a run of the preset, or of the labels alone."""
    measured = run(folder, preset, data)
    first = measured.evaluate()
    if trained:
        measured.train()
    else:
        other = run(folder, preset, data, objectives={"labels": 1.0})
        other.train()
        measured.student.load_state_dict(other.student.state_dict())
    return first, measured.evaluate()


@pytest.mark.parametrize(
    "preset",
    [
        "tinybert-general",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("minilm", "minilm-v2", "distilbert")),
    ],
)
def test_the_trained_terms_fall(tmp_path, data, preset):
    first, last = before_and_after(tmp_path, preset, data, trained=True)
    _, ablated = before_and_after(tmp_path, preset, data, trained=False)
    for term in TERMS[preset]:
        assert last[f"eval_{term}"] < 0.9 * first[f"eval_{term}"], term
        assert last[f"eval_{term}"] < 0.9 * ablated[f"eval_{term}"], term
    assert torch.isfinite(torch.tensor(last["eval_loss"]))
