"""LIBERT: constraints, hard negatives, batches of text and of pairs in strict turn, plain checkpoints, learning."""

from itertools import pairwise

import pytest
import torch
from torch.nn.functional import cross_entropy
from transformers import BertConfig, BertForMaskedLM, BertForPreTraining, BertModel

from hf_ptm_ext.collators import DataCollatorForLexicalRelations, DataCollatorForMaskedLanguageModeling
from hf_ptm_ext.data import (
    embedded_corpus,
    lexical_relation_rows,
    mine_lexical_negatives,
    pretraining_dataset,
    read_lexical_constraints,
    train_wordpiece,
)
from hf_ptm_ext.data.augmentation import WordVectors
from hf_ptm_ext.trainers import LexicalRelationModel, LexicalRelationTrainer, MixedBatchSampler, Mixing
from tests.trainers.runs import StopAfter
from tests.trainers.test_knowledge import NO_DROPOUT, SHAPE, arguments

PAIRS = [(f"north{name}", f"south{name}") for name in "abcdefgh"]


@pytest.fixture(scope="module")
def tokenizer():
    return train_wordpiece(embedded_corpus("en")[:60], 400, lowercase=True, model_max_length=64)


def libert(folder, tokenizer, *, pairs=None, stop=None, weight=1.0, plain=BertForMaskedLM, **options):
    torch.manual_seed(0)
    config = BertConfig(vocab_size=len(tokenizer), max_position_embeddings=64, **SHAPE, **NO_DROPOUT)
    text = pretraining_dataset(embedded_corpus("en")[:30], tokenizer, max_seq_length=32)
    relations = pairs or lexical_relation_rows(PAIRS, [(first, first[::-1]) for first, _ in PAIRS])
    collators = [
        DataCollatorForLexicalRelations(tokenizer, DataCollatorForMaskedLanguageModeling(tokenizer, seed=seed), 32)
        for seed in (1, 2)
    ]
    return LexicalRelationTrainer(
        model=LexicalRelationModel(plain(config), dropout=0.0, relation_loss_weight=weight),
        args=arguments(folder, **options),
        train_dataset=text,
        eval_dataset=text.select(range(20)),
        relation_rows=relations,
        relation_eval_rows=relations,
        data_collator=collators[0],
        eval_collator=collators[1],
        processing_class=tokenizer,
        callbacks=[StopAfter(stop)] if stop else [],
    )


def test_constraints_are_read(tmp_path):
    (tmp_path / "a.txt").write_text(
        "en_happy en_Glad\nen_glad en_happy\n\nen_ice_cream en_dessert\nen_happy en_glad\n"
    )
    assert read_lexical_constraints(tmp_path / "a.txt", seed=None) == [("happy", "glad"), ("ice cream", "dessert")]
    assert sorted(read_lexical_constraints(tmp_path / "a.txt")) == [("happy", "glad"), ("ice cream", "dessert")]
    (tmp_path / "b.txt").write_text("en_happy\n")
    with pytest.raises(ValueError, match=r"line 1: must have two words, got 'en_happy'"):
        read_lexical_constraints(tmp_path / "b.txt")
    (tmp_path / "b.txt").write_text("\n")
    with pytest.raises(ValueError, match="no line has a pair of words"):
        read_lexical_constraints(tmp_path / "b.txt")


def test_negatives_are_the_nearest_words_of_the_batch_that_are_no_relations():
    table = {"a": [1.0, 0.0], "b": [0.9, 0.1], "c": [0.8, 0.3], "d": [0.0, 1.0], "e": [0.1, 1.0], "f": [0.3, 0.9]}
    pairs = [("a", "b"), ("c", "d"), ("e", "f")]
    found = mine_lexical_negatives(pairs, table)
    assert found == [("a", "c"), ("b", "c"), ("c", "b"), ("d", "e"), ("e", "d"), ("f", "d")]
    assert mine_lexical_negatives(pairs, WordVectors(list(table), list(table.values()))) == found
    assert ("a", "f") in mine_lexical_negatives(pairs, table, known=[("c", "a")]), "not the next, which is related"
    halves = mine_lexical_negatives([*pairs[:2], ("e", "f"), ("a", "f")], table, batch=2)
    assert all({word, other} <= set("abcd") for word, other in halves[:4]), "of their batch"
    # A term has the mean of its words; words are also looked up in title case; unknown ones are never chosen.
    more = {"Rome": [1.0, 0.1], "ice": [1.0, 0.0], "cream": [0.0, 1.0], "cold": [0.7, 0.7]}
    assert mine_lexical_negatives([("rome", "zzz"), ("ice cream", "qqq"), ("cold", "yyy")], more) == [
        *(("rome", "cold"), ("ice cream", "cold"), ("cold", "ice cream"))
    ]
    assert mine_lexical_negatives([("a", "b")], table) == [], "no other word"
    with pytest.raises(ValueError, match="`batch` must be at least 2, got 1"):
        mine_lexical_negatives(pairs, table, batch=1)
    with pytest.raises(ValueError, match="must have the words of the pairs"):
        mine_lexical_negatives(pairs, {"x": [1.0]})


@pytest.mark.parametrize(("processes", "accumulated"), [(1, 1), (2, 1), (1, 3), (2, 2)])
def test_the_task_of_an_update_is_a_function_of_its_number(processes, accumulated):
    mixing = Mixing("alternating", main_task="text", pattern=("text", "text", "pairs"))
    seen = []
    for rank in range(processes):
        sampler = MixedBatchSampler({"text": 50, "pairs": 7}, 4, mixing, 0, rank, processes, accumulated)
        batches = []
        for epoch in range(2):
            sampler.set_epoch(epoch)
            batches += list(sampler)
        tasks = [{"text" if row < 50 else "pairs" for row in batch} for batch in batches]
        updates = [set().union(*tasks[n : n + accumulated]) for n in range(0, len(tasks), accumulated)]
        assert updates == [{mixing.pattern[n % 3]} for n in range(len(updates))], "across epochs too"
        seen += [row for batch in batches for row in batch]
    assert set(range(50)) <= set(seen), "all text"
    with pytest.raises(ValueError, match="`pattern` must be of the tasks"):
        MixedBatchSampler({"text": 5, "other": 5}, 4, mixing)


def test_updates_alternate_and_what_is_saved_is_plain(tmp_path, tokenizer):
    trainer = libert(tmp_path, tokenizer, max_steps=6)
    trainer.train()
    logged = [{name for name in entry if name.endswith("_loss")} for entry in trainer.state.log_history[:6]]
    assert logged == [{"mlm_loss"}, {"relation_loss"}] * 3
    both = libert(tmp_path / "both", tokenizer, max_steps=6, logging_steps=6)
    both.train()
    for term in ("mlm_loss", "relation_loss"):  # a mean over the updates that had it
        each = [entry[term] for entry in trainer.state.log_history if term in entry]
        assert both.state.log_history[0][term] == pytest.approx(sum(each) / 3, rel=1e-4)
    metrics = trainer.evaluate()
    assert metrics["eval_relation_targets"] == 16
    assert metrics["eval_loss"] == pytest.approx(metrics["eval_mlm_loss"] + metrics["eval_relation_loss"], rel=1e-5)
    trainer.save_model(str(tmp_path / "out"))
    _, info = BertForMaskedLM.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]


def test_a_resumed_run_is_the_whole_one(tmp_path, tokenizer):
    options = {"max_steps": 6, "save_strategy": "steps", "save_steps": 3}
    whole = libert(tmp_path / "whole", tokenizer, **options)
    whole.train()
    libert(tmp_path / "cut", tokenizer, stop=3, **options).train()
    resumed = libert(tmp_path / "cut", tokenizer, **options)
    resumed.train(resume_from_checkpoint=True)
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[name]), name


def test_the_loss_is_liberts_with_next_sentences(tokenizer):
    torch.manual_seed(0)
    bert = BertForPreTraining(BertConfig(vocab_size=len(tokenizer), **SHAPE, **NO_DROPOUT))
    model = LexicalRelationModel(bert).eval()
    assert model.pooler is None, "BERT has one"
    rows = [{"first": "light", "second": "house", "relation_label": 1}, {"input_ids": [2, 5, 6, 3]}]
    masked = DataCollatorForMaskedLanguageModeling(tokenizer, mlm_probability=1.0, seed=0)
    batch = DataCollatorForLexicalRelations(tokenizer, masked)(rows)
    output = model(**batch, next_sentence_label=torch.tensor([1]))
    pair = tokenizer("light", "house", return_tensors="pt")
    logits = model.classifier(bert.bert(**pair).pooler_output)
    text = {name: batch[name] for name in ("input_ids", "attention_mask")}
    expected = bert(**text, labels=batch["labels"], next_sentence_label=torch.tensor([1])).loss
    torch.testing.assert_close(output.mlm_loss + output.nsp_loss, expected)
    torch.testing.assert_close(output.relation_loss, cross_entropy(logits, torch.tensor([1])))
    torch.testing.assert_close(output.loss, expected + output.relation_loss)


def test_the_pooler_reads_the_first_token_on_whichever_side_padding_is():
    model = LexicalRelationModel(BertForMaskedLM(BertConfig(vocab_size=20, **SHAPE, **NO_DROPOUT))).eval()
    pair = {"relation_input_ids": torch.tensor([[0, 2, 5, 3, 6, 3]])}
    pair["relation_attention_mask"] = (pair["relation_input_ids"] > 0).long()
    states = model.model.bert(pair["relation_input_ids"], attention_mask=pair["relation_attention_mask"])[0]
    torch.testing.assert_close(model(**pair).relation_logits, model.classifier(model.pooler(states[:, 1]).tanh()))


def test_what_does_not_fit_is_refused(tmp_path, tokenizer):
    config = BertConfig(vocab_size=len(tokenizer), **SHAPE)
    with pytest.raises(ValueError, match="BertModel without a vocabulary"):
        LexicalRelationModel(BertModel(config))
    model = LexicalRelationModel(BertForMaskedLM(config))
    with pytest.raises(ValueError, match="nothing to do"):
        model()
    with pytest.raises(ValueError, match="needs a head of next sentences, got a BertForMaskedLM"):
        model(input_ids=torch.tensor([[2, 3]]), labels=torch.tensor([[5, 5]]), next_sentence_label=torch.tensor([0]))
    collator = DataCollatorForLexicalRelations(tokenizer)
    with pytest.raises(ValueError, match="`mlm_collator` must be given for rows of text"):
        collator([{"input_ids": [2, 3]}])
    with pytest.raises(ValueError, match="A pair must have `first`, `second`"):
        collator([{"first": "", "second": "a", "relation_label": 1}])
    fixed = DataCollatorForLexicalRelations(tokenizer, max_length=16, fixed_length=True)
    assert fixed(lexical_relation_rows(PAIRS, []))["relation_input_ids"].shape == (8, 16)
    with pytest.raises(ValueError, match="`relation_rows` must have pairs"):
        LexicalRelationTrainer(model, arguments(tmp_path), train_dataset=[{"input_ids": [2, 3]}])


@pytest.mark.slow
def test_relations_are_learnt_and_without_the_term_they_are_not(tmp_path, tokenizer):
    words = sorted(
        {word.lower() for document in embedded_corpus("en")[:8] for line in document for word in line.split()}
    )
    words = [word for word in words if len(word) > 3 and word.isalpha()][:200]
    pairs = list(pairwise(words[:81]))  # neighbours in the alphabet
    others = list(zip(words[:80], words[100:180], strict=True))
    after = {}
    for weight in (1.0, 0.0):
        folder = tmp_path / str(weight)
        rows = lexical_relation_rows(pairs, others)
        trainer = libert(
            folder, tokenizer, pairs=rows, weight=weight, max_steps=800, logging_steps=100, learning_rate=1e-3
        )
        trainer.train()
        after[weight] = trainer.evaluate()
    assert after[1.0]["eval_relation_loss"] < 0.4 < 0.65 < after[0.0]["eval_relation_loss"]
