"""ERNIE 2.0's seven tasks are learnt on real text, English and Chinese, and none by a model that was never asked."""

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    ErnieConfig,
    TrainingArguments,
)

from hf_ptm_ext.collators import DataCollatorForErnieMasking, DataCollatorForErnieTask
from hf_ptm_ext.data import (
    DISCOURSE_MARKERS,
    DISCOURSE_RELATIONS,
    capitalization_rows,
    discourse_pairs,
    embedded_corpus,
    encode_documents,
    pretraining_dataset,
    relevance_pairs,
    reordering_rows,
    sentence_distance_pairs,
    special_tokens_of,
    text_pair_rows,
    token_document_rows,
    train_wordpiece,
)
from hf_ptm_ext.trainers import ContinualMultiTaskTrainer, ContinualSchedule, Task, load_task_models

pytestmark = pytest.mark.slow

LENGTH, PARAGRAPH = 40, 96
TOKENS, TEXTS = AutoModelForTokenClassification, AutoModelForSequenceClassification
HEADS = {
    "masking": (AutoModelForMaskedLM, ()),
    "capitalization": (TOKENS, ("lower", "capital")),
    "relation": (TOKENS, ("here", "elsewhere")),
    "reordering": (TEXTS, tuple(map(str, range(9)))),
    "distance": (TEXTS, ("near", "same", "other")),
    "discourse": (TEXTS, DISCOURSE_RELATIONS),
    "relevance": (TEXTS, ("clicked", "shown", "random")),
}


def judged(documents):
    """Searches for a part of a title, which was clicked; another sentence of the document was shown."""
    for document in documents:
        for place, title in enumerate(document[:3]):
            query = " ".join(title.split()[2:6]) if title.isascii() else title[3:9]
            yield query, title, 0
            yield query, document[(place + 1) % len(document)], 1


def rows_of(documents, tokenizer, seed):
    draws, specials = np.random.default_rng(seed), special_tokens_of(tokenizer)
    ids = list(encode_documents(documents, tokenizer))
    continues = np.array([piece.startswith("##") for piece in tokenizer.convert_ids_to_tokens(range(len(tokenizer)))])
    blocks = pretraining_dataset(documents, tokenizer, max_seq_length=LENGTH)
    markers = {**DISCOURSE_MARKERS["en"], **DISCOURSE_MARKERS["zh"]}
    titles = relevance_pairs(list(judged(documents)), draws)
    return {
        "masking": [{**row, "phrase_ids": np.cumsum(~continues[row["input_ids"]]).tolist()} for row in blocks],
        "capitalization": list(capitalization_rows(documents, tokenizer, LENGTH)),
        "relation": list(token_document_rows(ids, specials, LENGTH)),
        "reordering": [row for _ in range(3) for row in reordering_rows(ids, specials, PARAGRAPH, draws)],
        "distance": [pair.features(specials, "labels") for pair in sentence_distance_pairs(ids, LENGTH - 3, draws)],
        "discourse": list(text_pair_rows(discourse_pairs(documents, markers), tokenizer, LENGTH)),
        "relevance": list(text_pair_rows(titles, tokenizer, LENGTH)),
    }


@pytest.fixture(scope="module")
def text():
    both = zip(embedded_corpus("en"), embedded_corpus("zh"), strict=False)
    documents = [document for pair in both for document in pair]
    tokenizer = train_wordpiece(documents, 1500)
    held_out = len(documents) // 10
    return tokenizer, rows_of(documents[held_out:], tokenizer, 0), rows_of(documents[:held_out], tokenizer, 1)


def trainer(folder, text, trained):
    tokenizer, train, held_out = text
    torch.manual_seed(0)
    config = ErnieConfig(
        vocab_size=len(tokenizer), hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128,
        max_position_embeddings=PARAGRAPH, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    masking = {"masking": DataCollatorForErnieMasking(tokenizer, levels={"phrase": "phrase_ids"}, seed=0)}
    tasks = {
        name: Task(
            model,
            train[name] if name in trained else None,
            held_out[name][:400],
            DataCollatorForErnieTask(tokenizer, number, masking.get(name)),
        )
        for number, (name, model) in enumerate(load_task_models(config, HEADS, 7).items())
    }
    args = TrainingArguments(
        str(folder), per_device_train_batch_size=16, learning_rate=1e-3, warmup_steps=50, report_to=[], seed=0,
        save_strategy="no", use_cpu=True, remove_unused_columns=False, disable_tqdm=True, logging_steps=1000,
    )  # fmt: skip
    return ContinualMultiTaskTrainer(tasks, args, schedule=ContinualSchedule.automatic(trained, 250))


def entropy(rows):
    """What a model reaches that knows only how frequent each class is."""
    labels = np.concatenate([np.atleast_1d(row["labels"]) for row in rows])
    shares = np.bincount(labels[labels >= 0]) / (labels >= 0).sum()
    return -(shares[shares > 0] * np.log(shares[shares > 0])).sum()


def test_every_term_falls_and_none_of_a_model_that_was_never_asked(tmp_path, text):
    asked, never = trainer(tmp_path / "asked", text, list(HEADS)), trainer(tmp_path / "never", text, ["masking"])
    before = asked.evaluate()
    losses = {}
    for name, run in (("asked", asked), ("never", never)):
        run.train()
        losses[name] = run.evaluate()
    assert losses["asked"]["eval_masking_loss"] < before["eval_masking_loss"] - 2
    for name in [*HEADS][1:]:
        found, start, ablated = (one[f"eval_{name}_loss"] for one in (losses["asked"], before, losses["never"]))
        assert found < start - 0.08, name
        assert found < ablated - 0.08, name
        frequencies = entropy(text[2][name][:400])
        assert ablated > frequencies - 0.01, name
        if name != "discourse":  # 200 pairs of eight classes held out
            assert found < frequencies - 0.005, name
