"""SentiLARE and SenseBERT on upstream's models and real text: formulas, plain checkpoints, resume, learning."""

from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy, gelu, layer_norm, linear
from transformers import (
    AutoModelForMaskedLM,
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertModel,
    RobertaConfig,
    RobertaForMaskedLM,
    TrainingArguments,
)

from hf_ptm_ext import NezhaConfig, NezhaForMaskedLM
from hf_ptm_ext.collators import (
    DataCollatorForSentimentMasking,
    DataCollatorForSupersenseMasking,
    LexiconColumns,
    token_supersenses,
)
from hf_ptm_ext.data import (
    SentimentWords,
    SupersenseTable,
    embedded_corpus,
    pretraining_dataset,
    read_opinion_lexicon,
    train_wordpiece,
)
from hf_ptm_ext.objectives import supersense_loss
from hf_ptm_ext.trainers import (
    AuxiliaryObjectiveTrainer,
    LexicalInputModel,
    LexicalInputTrainer,
    SentiLareModel,
    SentimentEmbeddings,
    SupersenseEmbeddings,
    SupersenseModel,
)
from tests.trainers.runs import StopAfter
from tests.trainers.test_knowledge import NO_DROPOUT, SHAPE, arguments, terms

LEXICONS = Path(__file__).parents[1] / "fixtures" / "lexicons"
KINDS = ("sentilare", "sensebert")


@pytest.fixture(scope="module")
def tokenizer():
    return train_wordpiece(embedded_corpus("en"), 2000, lowercase=True, model_max_length=64)


def endings(words):
    """A tagger by endings, which are enough of an English part of speech to be learnt."""
    tags = {"ly": "RB", "ed": "VBD", "ing": "VBG", "ness": "NN", "tion": "NN", "ment": "NN", "ful": "JJ", "ous": "JJ"}
    return [next((tag for end, tag in tags.items() if len(word) > 4 and word.endswith(end)), "X") for word in words]


@pytest.fixture(scope="module")
def lexicons():
    opinions = read_opinion_lexicon(LEXICONS / "positive.txt", LEXICONS / "negative.txt")
    words = SentimentWords(opinions, tagger=endings)
    return {"sentilare": words, "sensebert": SupersenseTable.read(LEXICONS / "supersenses.tsv")}


def rated(row):
    """A text's rating, by its words of opinion: they are real, and so is what they add up to."""
    polarity = row["word_polarity_ids"]
    return {**row, "sentence_polarity": 2 + max(-2, min(2, polarity.count(1) - polarity.count(0)))}


def make_rows(kind, tokenizer, lexicons, documents=120):
    rows = pretraining_dataset(embedded_corpus("en")[:documents], tokenizer, max_seq_length=32)
    rows = rows.map(LexiconColumns(tokenizer, lexicons[kind]))
    return rows.map(rated) if kind == "sentilare" else rows


def train(kind, folder, tokenizer, lexicons, *, weight=1.0, stop=None, documents=120, **options):
    rows = make_rows(kind, tokenizer, lexicons, documents)
    torch.manual_seed(0)
    config = BertConfig(vocab_size=len(tokenizer), max_position_embeddings=64, **SHAPE, **NO_DROPOUT)
    if kind == "sentilare":
        model = SentiLareModel(BertForMaskedLM(config), weight, weight, weight)
        collator = [DataCollatorForSentimentMasking(tokenizer, seed=seed) for seed in (1, 2)]
    else:
        table = lexicons[kind]
        model = SupersenseModel(
            BertForMaskedLM(config), token_supersenses(tokenizer, table), supersense_loss_weight=weight
        )
        collator = [DataCollatorForSupersenseMasking(tokenizer, table=table, seed=seed) for seed in (1, 2)]
    return AuxiliaryObjectiveTrainer(
        model=model,
        args=arguments(folder, **options),
        train_dataset=rows.select(range(64, len(rows))),
        eval_dataset=rows.select(range(64)),
        data_collator=collator[0],
        eval_collator=collator[1],
        processing_class=tokenizer,
        callbacks=[StopAfter(stop)] if stop else [],
    )


TERMS = {"sentilare": ("mlm", "pos_tag", "word_polarity", "sentence_polarity"), "sensebert": ("mlm", "supersense")}


@pytest.mark.parametrize("kind", KINDS)
def test_all_terms_are_logged_and_what_is_saved_is_plain(kind, tmp_path, tokenizer, lexicons):
    trainer = train(kind, tmp_path, tokenizer, lexicons, max_steps=2)
    trainer.train()
    names = [f"{term}_loss" for term in TERMS[kind]]
    for total, *parts in zip(*terms(trainer, "loss", *names).values(), strict=True):
        assert total == pytest.approx(sum(parts), abs=2e-3)
    assert {f"eval_{name}" for name in names} <= trainer.evaluate().keys()
    trainer.save_model(str(tmp_path / "out"))
    plain, info = AutoModelForMaskedLM.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    tables = {"sentilare": SentimentEmbeddings, "sensebert": SupersenseEmbeddings}[kind]
    loaded = LexicalInputModel(plain, tables.from_pretrained(tmp_path / "out")).eval()
    row = trainer.eval_collator([trainer.eval_dataset[0]])
    given = {name: row[name] for name in ("input_ids", "attention_mask", *loaded.lexical.columns)}
    expected = trainer.model.eval()(**given).logits
    torch.testing.assert_close(loaded(**given).logits, expected)
    other = {SentimentEmbeddings: SupersenseEmbeddings, SupersenseEmbeddings: SentimentEmbeddings}[tables]
    with pytest.raises(ValueError, match="must have the tables of a"):
        other.from_pretrained(tmp_path / "out")
    with pytest.raises(ValueError, match="has no auxiliary_heads"):
        tables.from_pretrained(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_a_resumed_run_is_the_whole_one(kind, tmp_path, tokenizer, lexicons):
    options = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2, "documents": 20}
    whole = train(kind, tmp_path / "whole", tokenizer, lexicons, **options)
    whole.train()
    train(kind, tmp_path / "cut", tokenizer, lexicons, stop=2, **options).train()
    resumed = train(kind, tmp_path / "cut", tokenizer, lexicons, **options)
    resumed.train(resume_from_checkpoint=True)
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[name]), name


@pytest.mark.parametrize("kind", KINDS)
def test_accumulated_batches_equal_one_large_one(kind, tmp_path, tokenizer, lexicons):
    """Also where a term has no target in a micro-batch: none of the means is one over a micro-batch."""
    rows = make_rows(kind, tokenizer, lexicons, 20)
    trainer = train(kind, tmp_path, tokenizer, lexicons, documents=20)
    model, whole = trainer.model, trainer.data_collator([rows[n] for n in range(12)])
    given = {"num_items_in_batch": (whole["labels"] != -100).sum(), "target_counts": model.count_targets(whole)}
    parts = [
        model(
            **{name: value[n : n + 3] for name, value in whole.items()},
            **given,
        )
        for n in range(0, 12, 3)
    ]
    torch.testing.assert_close(sum(part.loss for part in parts), model(**whole).loss, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_label_slots_and_evaluation_give_the_same(kind, tmp_path, tokenizer, lexicons):
    trainer = train(kind, tmp_path, tokenizer, lexicons, documents=20)
    rows = [trainer.eval_dataset[n] for n in range(8)]
    batch = trainer.data_collator(rows)
    trainer.data_collator.set_epoch(1)
    trainer.data_collator.set_epoch(0)
    trainer.data_collator.label_budget = 24
    with_slots = trainer.data_collator(rows)
    assert torch.equal(batch["labels"], with_slots["labels"])
    model = trainer.model.eval()
    one, other = model(**batch), model(**with_slots)
    torch.testing.assert_close(one.loss, other.loss)
    for term, (loss, _, count) in model.evaluation_sums(**dict(with_slots)).items():
        torch.testing.assert_close(float(loss / max(count, 1)), one[f"{term}_loss"].item(), rtol=1e-4, atol=1e-5)


# ---- SentiLARE ----


def test_sentilares_loss_is_the_papers():
    """Tied heads: Linear, GELU, LayerNorm, then the table; sums of the words' vectors before the first LayerNorm."""
    torch.manual_seed(0)
    model = SentiLareModel(BertForMaskedLM(BertConfig(vocab_size=30, **SHAPE, **NO_DROPOUT))).eval()
    batch = {
        "input_ids": torch.tensor([[2, 5, 4, 7, 3], [2, 9, 4, 3, 0]]),
        "attention_mask": torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 1, 0]]),
        "pos_tag_ids": torch.tensor([[4, 3, 4, 1, 4], [4, 0, 4, 4, 4]]),
        "word_polarity_ids": torch.tensor([[2, 2, 2, 1, 2], [2, 0, 2, 2, 2]]),
        "sentence_polarity_ids": torch.tensor([[5, 3, 3, 3, 5], [5, 5, 5, 5, 5]]),
        "labels": torch.tensor([[-100, -100, 6, 7, -100], [-100, -100, 8, -100, -100]]),
        "pos_tag_labels": torch.tensor([[-100, -100, 3, 1, -100], [-100, -100, -100, -100, -100]]),
        "word_polarity_labels": torch.tensor([[-100, -100, 2, 1, -100], [-100, -100, -100, -100, -100]]),
        "sentence_polarity_labels": torch.tensor([-100, 1]),
    }
    bert, tables = model.model, [table.weight for table in model.lexical.tables]
    embeds = bert.bert.embeddings.word_embeddings(batch["input_ids"])
    for name, table, unknown in zip(model.lexical.columns, tables, (4, 2, 5), strict=True):
        padded = torch.cat([table[:-1], torch.zeros(1, table.shape[1])])
        assert len(table) == unknown + 1
        embeds = embeds + padded[batch[name]]
    states = bert.bert(inputs_embeds=embeds, attention_mask=batch["attention_mask"]).last_hidden_state
    words = torch.stack([states[0, 2], states[0, 3]])
    masked = bert.cls(torch.stack([*words, states[1, 2]]))

    def head(name, states, table):
        part = getattr(model, name)
        hidden = layer_norm(gelu(linear(states, part.dense.weight, part.dense.bias)), (32,))
        return linear(hidden, table, part.bias)

    expected = {
        "mlm_loss": cross_entropy(masked, torch.tensor([6, 7, 8])),
        "pos_tag_loss": cross_entropy(head("pos_head", words, tables[0]), torch.tensor([3, 1])),
        "word_polarity_loss": cross_entropy(head("senti_head", words, tables[1]), torch.tensor([2, 1])),
        "sentence_polarity_loss": cross_entropy(head("pola_head", states[1:, 0], tables[2]), torch.tensor([1])),
    }
    found = model(**batch)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value)
    torch.testing.assert_close(found.loss, sum(expected.values()))
    left = {name: values.roll(1, dims=1) if values.dim() == 2 else values for name, values in batch.items()}
    states = bert.bert(inputs_embeds=embeds.roll(1, dims=1), attention_mask=left["attention_mask"]).last_hidden_state
    rating = cross_entropy(head("pola_head", states[1:, 1], tables[2]), torch.tensor([1]))
    torch.testing.assert_close(model(**left).sentence_polarity_loss, rating, msg="the first token, not padding")


@pytest.mark.parametrize(
    "plain",
    [
        lambda: BertForMaskedLM(BertConfig(vocab_size=30, **SHAPE)),
        lambda: RobertaForMaskedLM(RobertaConfig(vocab_size=30, max_position_embeddings=40, **SHAPE)),
        lambda: NezhaForMaskedLM(NezhaConfig(vocab_size=30, **SHAPE)),
    ],
    ids=["bert", "roberta", "nezha"],
)
def test_without_knowledge_it_is_the_plain_model(plain):
    model = SentiLareModel(plain()).eval()
    ids = torch.tensor([[2, 5, 6, 7, 3]])
    unknown = {"pos_tag_ids": torch.full_like(ids, 4), "word_polarity_ids": torch.full_like(ids, 2)}
    expected = model.model(input_ids=ids).logits
    torch.testing.assert_close(model(input_ids=ids).logits, expected)
    torch.testing.assert_close(model(input_ids=ids, **unknown).logits, expected)
    known = model(input_ids=ids, **{**unknown, "word_polarity_ids": torch.tensor([[2, 1, 2, 0, 2]])}).logits
    assert not torch.allclose(known, expected)
    assert not model.model.get_input_embeddings()._forward_hooks, "nothing is left behind"


def test_a_batch_without_targets_is_no_nan():
    model = SentiLareModel(BertForMaskedLM(BertConfig(vocab_size=30, **SHAPE)))
    ids, none = torch.tensor([[2, 5, 3]]), torch.full((1, 3), -100)
    output = model(
        input_ids=ids,
        labels=none,
        pos_tag_labels=none,
        word_polarity_labels=none,
        sentence_polarity_labels=none[:, 0],
    )
    assert output.loss == 0
    output.loss.backward()


def test_models_that_do_not_fit_are_refused():
    config = BertConfig(vocab_size=30, **SHAPE)
    with pytest.raises(ValueError, match="BertModel without a vocabulary"):
        SentiLareModel(BertModel(config))
    with pytest.raises(ValueError, match="`lexical` must be as wide as the word embeddings, 32, got 8"):
        LexicalInputModel(BertModel(config), SentimentEmbeddings(8))
    with pytest.raises(ValueError, match="no more than the model's 30 tokens, got 31"):
        SupersenseModel(BertForMaskedLM(config), [0] * 31)
    with pytest.raises(ValueError, match="bits of 2 senses"):
        SupersenseEmbeddings(8, [4], num_senses=2)


def test_fine_tuning_reads_the_words_and_saves_a_plain_classifier(tmp_path, tokenizer, lexicons):
    """Texts that only their words' polarity tells apart: their tokens are hidden."""
    torch.manual_seed(0)
    config = BertConfig(vocab_size=len(tokenizer), max_position_embeddings=64, **SHAPE, **NO_DROPOUT)
    model = LexicalInputModel(BertForSequenceClassification(config), SentimentEmbeddings(32))
    ids = [2, *[tokenizer.unk_token_id] * 6, 3]
    rows = [
        {"input_ids": ids, "word_polarity_ids": [2, *[number % 2] * 6, 2], "label": number % 2} for number in range(32)
    ]
    trainer = LexicalInputTrainer(
        model=model,
        args=TrainingArguments(
            str(tmp_path), max_steps=40, learning_rate=3e-3, use_cpu=True, report_to="none", save_strategy="no",
            logging_steps=1, disable_tqdm=True,
        ),
        train_dataset=rows,
        eval_dataset=rows,
        processing_class=tokenizer,
        compute_metrics=lambda found: {"accuracy": float((found.predictions.argmax(-1) == found.label_ids).mean())},
    )  # fmt: skip
    trainer.train()
    assert trainer.evaluate()["eval_accuracy"] == 1.0
    trainer.save_model(str(tmp_path / "out"))
    plain = BertForSequenceClassification.from_pretrained(tmp_path / "out")
    again = LexicalInputModel(plain, SentimentEmbeddings.from_pretrained(tmp_path / "out")).eval()
    given = {"input_ids": torch.tensor([ids]), "word_polarity_ids": torch.tensor([rows[1]["word_polarity_ids"]])}
    torch.testing.assert_close(again(**given).logits, model.eval()(**given).logits)


def test_accumulated_batches_are_a_mean_in_fine_tuning(tmp_path):
    """Upstream's classifiers give the mean of a micro-batch; a Trainer adds them up of a model that takes a count."""
    found = []
    for accumulation in (1, 4):
        torch.manual_seed(0)
        plain = BertForSequenceClassification(BertConfig(vocab_size=30, **SHAPE, **NO_DROPOUT))
        given = arguments(
            tmp_path,
            max_steps=1,
            per_device_train_batch_size=8 // accumulation,
            gradient_accumulation_steps=accumulation,
        )
        rows = [{"input_ids": [2, 5, 6, 3], "word_polarity_ids": [2, n % 2, 1, 2], "labels": n % 2} for n in range(8)]
        trainer = LexicalInputTrainer(LexicalInputModel(plain, SentimentEmbeddings(32)), given, train_dataset=rows)
        trainer.train()
        found.append(trainer.state.log_history[0]["loss"])
    assert found[1] == pytest.approx(found[0], rel=1e-4)


# ---- SenseBERT ----


def test_senseberts_loss_is_the_papers():
    logits = torch.randn(3, 45, generator=torch.Generator().manual_seed(0))
    p = logits.softmax(-1)
    first = -(p[0, 3] + p[0, 44]).log() - (p[0, 3].log() + p[0, 44].log()) / 2
    second = -2 * p[1, 0].log()
    labels = torch.tensor([(1 << 3) | (1 << 44), 1, -100])
    torch.testing.assert_close(supersense_loss(logits, labels), (first + second) / 2)
    assert supersense_loss(logits, torch.full((3,), -100)) == 0
    logits.requires_grad_()
    supersense_loss(logits, labels).backward()
    assert logits.grad.isfinite().all()
    assert not logits.grad[2].any()


def test_senses_are_read_and_scored_by_one_table_and_pieces_by_their_mean():
    torch.manual_seed(0)
    bits = torch.zeros(30, dtype=torch.long)
    bits[5], bits[6] = 0b110, 1 << 44
    model = SupersenseModel(BertForMaskedLM(BertConfig(vocab_size=30, **SHAPE, **NO_DROPOUT)), bits).eval()
    bert, senses = model.model, model.lexical.senses.weight
    ids = torch.tensor([[2, 5, 4, 4, 6, 3]])
    embeds = bert.bert.embeddings.word_embeddings(ids).clone()
    embeds[0, 1] += senses[1] + senses[2]
    embeds[0, 4] += senses[44]
    states = bert.cls.predictions.transform(bert.bert(inputs_embeds=embeds).last_hidden_state)
    word = states[0, 2:4].mean(dim=0) @ senses.T
    labels = torch.full_like(ids, -100)
    labels[0, 2:4] = torch.tensor([8, 9])
    output = model(
        input_ids=ids,
        labels=labels,
        supersense_labels=torch.tensor([[-100, -100, 0b11, -100, -100, -100]]),
        supersense_lengths=torch.tensor([[0, 1, 2, 0, 1, 0]]),
    )
    logits = bert.cls.predictions.decoder(states[0, 2:4])
    torch.testing.assert_close(output.supersense_loss, supersense_loss(word[None], torch.tensor([0b11])))
    torch.testing.assert_close(output.mlm_loss, cross_entropy(logits, labels[0, 2:4]))


# ---- learning ----


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_terms_are_learnt_and_without_them_they_are_not(kind, tmp_path, tokenizer, lexicons):
    after = {}
    for weight in (1.0, 0.0):
        trainer = train(
            kind, tmp_path / str(weight), tokenizer, lexicons,
            weight=weight, documents=600, max_steps=400, per_device_train_batch_size=32, logging_steps=100,
        )  # fmt: skip
        before = trainer.evaluate()
        trainer.train()
        after[weight] = trainer.evaluate()
        print(kind, weight, before, after[weight])
    for term in TERMS[kind][1:]:
        name = f"eval_{term}_loss"
        assert after[1.0][name] < 0.8 * before[name], term
        assert after[1.0][name] < 0.8 * after[0.0][name], term
