"""KEPLER and WKLM on upstream's models and real text: they learn, log, resume exactly, save plain models."""

import json
from pathlib import Path

import pytest
import torch
from transformers import (
    AutoModelForMaskedLM,
    BertConfig,
    BertForMaskedLM,
    RobertaConfig,
    RobertaForMaskedLM,
)

from hf_ptm_ext.cli.pretrain_arguments import PretrainingArguments
from hf_ptm_ext.collators import (
    DataCollatorForEntityReplacement,
    DataCollatorForKnowledgeEmbedding,
    DataCollatorForMaskedLanguageModeling,
    EntityCatalogue,
)
from hf_ptm_ext.data import ZippedRows, embedded_corpus, pretraining_dataset, read_triples, train_wordpiece
from hf_ptm_ext.trainers import (
    EntityReplacementModel,
    EntityReplacementTrainer,
    KnowledgeEmbeddingModel,
    KnowledgeEmbeddingTrainer,
)
from hf_ptm_ext.trainers.auxiliary import AUXILIARY_FILE
from tests.trainers.runs import StopAfter

FIXTURES = Path(__file__).parents[1] / "fixtures"
SHAPE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def arguments(folder, **options):
    defaults = {
        "max_steps": 6,
        "per_device_train_batch_size": 16,
        "per_device_eval_batch_size": 64,
        "learning_rate": 3e-3,
        "lr_scheduler_type": "constant",
        "warmup_steps": 0,
        "logging_steps": 1,
        "save_strategy": "no",
        "disable_tqdm": True,
        "remove_unused_columns": False,
        "dataloader_pin_memory": False,
        "use_cpu": True,
        "seed": 0,
    }
    return PretrainingArguments(output_dir=str(folder), **{**defaults, **options})


def test_activation_checkpointing_reaches_the_plain_model():
    for model in (
        KnowledgeEmbeddingModel(RobertaForMaskedLM(RobertaConfig(vocab_size=30, **SHAPE)), num_relations=2),
        EntityReplacementModel(BertForMaskedLM(BertConfig(vocab_size=30, **SHAPE))),
    ):
        assert not model.is_activation_checkpointing
        model.activation_checkpointing_enable(activation_checkpointing_kwargs={"use_reentrant": False})
        assert model.is_activation_checkpointing
        assert model.model.is_activation_checkpointing


# ---- KEPLER ----


@pytest.fixture(scope="module")
def graph():
    (triples,) = read_triples(FIXTURES / "wordnet" / "triples.tsv")
    lines = (FIXTURES / "wordnet" / "glosses.tsv").read_text(encoding="utf-8").splitlines()
    glosses = dict(line.split("\t") for line in lines)
    return triples, [glosses[entity] for entity in triples.entities]


@pytest.fixture(scope="module")
def tokenizer(graph):
    return train_wordpiece([*embedded_corpus("en")[:60], graph[1]], 400, model_max_length=64)


def kepler(folder, graph, tokenizer, *, weight=1.0, variant="plain", stop=None, **options):
    triples, glosses = graph
    text = pretraining_dataset(embedded_corpus("en")[:30], tokenizer, max_seq_length=32)
    torch.manual_seed(0)
    config = RobertaConfig(
        vocab_size=len(tokenizer),
        pad_token_id=tokenizer.pad_token_id,
        max_position_embeddings=80,
        **SHAPE,
        **NO_DROPOUT,
    )
    model = KnowledgeEmbeddingModel(
        RobertaForMaskedLM(config), len(triples.relations), variant=variant, ke_loss_weight=weight
    )

    def collator(seed):
        return DataCollatorForKnowledgeEmbedding(
            tokenizer,
            descriptions=glosses,
            num_relations=len(triples.relations),
            known_triples=triples.rows,
            mlm_collator=DataCollatorForMaskedLanguageModeling(tokenizer, seed=seed),
            relation_descriptions=[name.strip("_").replace("_", " ") for name in triples.relations],
            variant=variant,
            max_description_length=32,
            seed=seed,
        )

    return KnowledgeEmbeddingTrainer(
        model=model,
        args=arguments(folder, **options),
        train_dataset=ZippedRows(text, triples.rows, "triple"),
        eval_dataset=ZippedRows(text.select(range(64)), triples.rows, "triple"),
        data_collator=collator(1),
        eval_collator=collator(2),
        processing_class=tokenizer,
        callbacks=[StopAfter(stop)] if stop else [],
    )


def terms(trainer, *names):
    return {name: [entry[name] for entry in trainer.state.log_history if name in entry] for name in names}


def test_an_update_of_kepler_logs_both_terms_and_every_variant_trains(tmp_path, graph, tokenizer):
    for variant in ("plain", "cond", "rel"):
        trainer = kepler(tmp_path / variant, graph, tokenizer, variant=variant, max_steps=2)
        trainer.train()
        logged = terms(trainer, "loss", "mlm_loss", "ke_loss")
        for total, mlm, ke in zip(*logged.values(), strict=True):
            assert total == pytest.approx(mlm + ke, abs=1e-3)
        assert ("relation_embeddings.weight" in dict(trainer.model.named_parameters())) == (variant != "rel")


def test_accumulated_micro_batches_are_one_batch(tmp_path, graph, tokenizer):
    """Rows with different numbers of labels: the mean is over the update, for both terms."""
    weights = []
    for batch, accumulation in ((16, 1), (4, 4)):
        trainer = kepler(
            tmp_path / str(batch),
            graph,
            tokenizer,
            max_steps=1,
            per_device_train_batch_size=batch,
            gradient_accumulation_steps=accumulation,
            optim="sgd",
            learning_rate=0.1,
            max_grad_norm=0.0,
        )
        trainer.data_collator.mlm_collator.mlm_probability = 1.0  # the masks of four calls differ from those of one
        trainer.data_collator.mlm_collator.mask_replace_prob = 1.0
        trainer.data_collator.mlm_collator.random_replace_prob = 0.0
        trainer.data_collator._sampler.draw = lambda triples, side, rng: triples[:, 2 if side == "head" else 0]
        trainer.train()
        weights.append(trainer.model.state_dict())
    for name, value in weights[0].items():
        torch.testing.assert_close(weights[1][name], value, atol=1e-5, rtol=1e-4, msg=name)


def test_kepler_resumes_as_if_it_had_not_stopped(tmp_path, graph, tokenizer):
    through = kepler(tmp_path / "through", graph, tokenizer)
    through.train()
    stopped = kepler(tmp_path / "stopped", graph, tokenizer, save_strategy="steps", save_steps=3, stop=3)
    stopped.train()
    resumed = kepler(tmp_path / "stopped", graph, tokenizer, save_strategy="steps", save_steps=3)
    resumed.train(resume_from_checkpoint=True)
    for name, value in through.model.state_dict().items():
        torch.testing.assert_close(resumed.model.state_dict()[name], value, msg=name)


def test_what_kepler_saves_is_a_plain_roberta(tmp_path, graph, tokenizer):
    trainer = kepler(tmp_path, graph, tokenizer, max_steps=1)
    trainer.train()
    trainer.save_model(str(tmp_path / "out"))
    config = json.loads((tmp_path / "out" / "config.json").read_text(encoding="utf-8"))
    assert config["model_type"] == "roberta"
    assert config["architectures"] == ["RobertaForMaskedLM"]
    loaded, info = AutoModelForMaskedLM.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    ids = torch.tensor([[2, 7, 9, 3]])
    torch.testing.assert_close(loaded.eval()(ids).logits, trainer.model.model.eval()(ids).logits)
    (tmp_path / "out" / AUXILIARY_FILE).unlink()
    with pytest.raises(ValueError, match=f"has no {AUXILIARY_FILE}"):
        trainer._load_from_checkpoint(str(tmp_path / "out"))


@pytest.mark.slow
def test_knowledge_is_learnt_and_without_the_term_it_is_not(tmp_path, graph, tokenizer):
    before, after = {}, {}
    for weight in (1.0, 0.0):
        trainer = kepler(tmp_path / str(weight), graph, tokenizer, weight=weight, max_steps=150, logging_steps=50)
        before[weight] = trainer.evaluate()
        trainer.train()
        after[weight] = trainer.evaluate()
    assert after[1.0]["eval_ke_loss"] < before[1.0]["eval_ke_loss"] - 0.2
    assert after[1.0]["eval_ke_accuracy"] > after[0.0]["eval_ke_accuracy"] + 0.2
    assert after[0.0]["eval_ke_loss"] > before[0.0]["eval_ke_loss"] - 0.05
    for weight in (1.0, 0.0):
        assert after[weight]["eval_mlm_loss"] < before[weight]["eval_mlm_loss"] - 0.4


def test_kepler_errors(graph, tokenizer, tmp_path):
    trainer = kepler(tmp_path, graph, tokenizer)
    with pytest.raises(ValueError, match="nothing to train on"):
        trainer.model(input_ids=torch.tensor([[2, 3]]))
    ids = torch.ones(1, 5, 4, dtype=torch.long)
    with pytest.raises(ValueError, match="Give collator and model the same variant"):
        trainer.model(description_input_ids=ids, description_attention_mask=ids, relation_ids=torch.tensor([0]))
    with pytest.raises(ValueError, match="`variant` must be one of plain, cond, rel, got 'none'"):
        KnowledgeEmbeddingModel(trainer.model.model, 3, variant="none")
    with pytest.raises(ValueError, match="`num_relations` must be positive, got 0"):
        KnowledgeEmbeddingModel(trainer.model.model, 0)
    with pytest.raises(ValueError, match=r"wrong: \['relation_embeddings.weight'\]"):
        trainer.model.load_auxiliary_state_dict({})


# ---- WKLM ----


@pytest.fixture(scope="module")
def mentions():
    lines = (FIXTURES / "wikidata" / "typing.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def wklm(folder, mentions, *, weight=1.0, **options):
    tokenizer = train_wordpiece([[" ".join(row["tokens"]) for row in mentions]], 600, model_max_length=96)
    entities = sorted({row["id"] for row in mentions})
    number = {entity: position for position, entity in enumerate(entities)}
    names, types = [[] for _ in entities], [[] for _ in entities]
    rows = []
    for row in mentions:
        entity = number[row["id"]]
        names[entity] = [row["name"]]
        types[entity] = row["coarse"]
        encoded = tokenizer(row["tokens"], is_split_into_words=True, truncation=True, max_length=64)
        at = [
            place for place, word in enumerate(encoded.word_ids()) if word is not None and word in range(*row["pos"])
        ]
        if at:
            rows.append(
                {
                    "input_ids": encoded["input_ids"],
                    "mention_spans": [[at[0], at[-1] + 1]],
                    "mention_entities": [entity],
                }
            )
    torch.manual_seed(0)
    config = BertConfig(vocab_size=len(tokenizer), max_position_embeddings=96, **SHAPE, **NO_DROPOUT)
    catalogue = EntityCatalogue(names, types, tokenizer)

    def collator(seed):
        return DataCollatorForEntityReplacement(tokenizer, catalogue=catalogue, max_length=96, seed=seed)

    return EntityReplacementTrainer(
        model=EntityReplacementModel(BertForMaskedLM(config), dropout=0.0, entity_loss_weight=weight),
        args=arguments(folder, **options),
        train_dataset=rows,
        eval_dataset=rows,
        data_collator=collator(1),
        eval_collator=collator(2),
        processing_class=tokenizer,
    )


def test_wklm_logs_both_terms_and_saves_a_plain_bert(tmp_path, mentions):
    trainer = wklm(tmp_path, mentions, max_steps=2)
    trainer.train()
    logged = terms(trainer, "loss", "mlm_loss", "entity_loss")
    for total, mlm, entity in zip(*logged.values(), strict=True):
        assert total == pytest.approx(mlm + entity, abs=1e-3)
    trainer.save_model(str(tmp_path / "out"))
    _, info = AutoModelForMaskedLM.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]


def test_the_classifier_reads_what_the_vocabulary_projection_reads(mentions, tmp_path):
    model = wklm(tmp_path, mentions).model.eval()
    ids = torch.tensor([[2, 20, 21, 22, 3]])
    states = model.model.cls.predictions.transform(model.model.bert(ids).last_hidden_state)
    expected = model.classifier(torch.cat([states[:, 0], states[:, 3]], dim=-1))
    got = model(ids, entity_start=torch.tensor([[1]]), entity_end=torch.tensor([[3]])).entity_logits
    torch.testing.assert_close(got[:, 0], expected)


def test_padding_mentions_and_rows_without_any_change_nothing(mentions, tmp_path):
    model = wklm(tmp_path, mentions).model.eval()
    ids = torch.tensor([[2, 20, 21, 3]])
    places = {"entity_start": torch.tensor([[1, 1]]), "entity_end": torch.tensor([[2, 1]])}
    alone = model(
        ids, entity_start=torch.tensor([[1]]), entity_end=torch.tensor([[2]]), entity_labels=torch.tensor([[0]])
    )
    padded = model(ids, **places, entity_labels=torch.tensor([[0, -100]]))
    torch.testing.assert_close(alone.entity_loss, padded.entity_loss)
    assert model(ids, **places, entity_labels=torch.tensor([[-100, -100]])).loss == 0


@pytest.mark.slow
def test_replacements_are_told_and_without_the_term_they_are_not(tmp_path, mentions):
    """On the training sentences with new replacements: the model has to know which name belongs where."""
    after = {}
    for weight in (1.0, 0.0):
        trainer = wklm(tmp_path / str(weight), mentions[:48], weight=weight, max_steps=600, logging_steps=200)
        trainer.train()
        after[weight] = trainer.evaluate()
    assert after[1.0]["eval_entity_accuracy"] > after[0.0]["eval_entity_accuracy"] + 0.15
    assert after[1.0]["eval_entity_loss"] < 0.5 < 0.66 < after[0.0]["eval_entity_loss"]


def test_the_loss_and_its_gradients_are_wklms():
    """fairseq-wklm: what the LM head's transform gives before and behind a mention; a mean over mentions and MLM."""
    torch.manual_seed(0)
    model = EntityReplacementModel(BertForMaskedLM(BertConfig(vocab_size=30, **SHAPE, **NO_DROPOUT)))
    batch = {
        "input_ids": torch.tensor([[2, 5, 6, 7, 8, 3], [2, 9, 4, 11, 3, 0]]),
        "attention_mask": torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 0]]),
        "labels": torch.tensor([[-100, -100, -100, 12, -100, -100], [-100, -100, 10, -100, -100, -100]]),
        "entity_start": torch.tensor([[1, 4], [3, 0]]),
        "entity_end": torch.tensor([[3, 5], [4, 0]]),
        "entity_labels": torch.tensor([[1, 0], [0, -100]]),
    }
    bert = model.model
    states = bert.bert(batch["input_ids"], attention_mask=batch["attention_mask"]).last_hidden_state
    states = bert.cls.predictions.transform(states)
    masked = torch.stack([bert.cls.predictions.decoder(states[0, 3]), bert.cls.predictions.decoder(states[1, 2])])
    mentions = [(0, 0, 3, 1), (0, 3, 5, 0), (1, 2, 4, 0)]  # row, before, behind, label
    torch.manual_seed(3)
    both = torch.zeros(2, 2, 2 * SHAPE["hidden_size"])
    for number, (row, before, behind, _) in enumerate(mentions):
        both[row, number % 2] = torch.cat([states[row, before], states[row, behind]])
    both[1, 1] = torch.cat([states[1, 0], states[1, 0]])  # padding, of which nothing is read
    logits = model.classifier(torch.nn.functional.dropout(both, 0.05))
    logits = torch.stack([logits[row, number % 2] for number, (row, *_) in enumerate(mentions)])
    loss = torch.nn.functional.cross_entropy(masked, torch.tensor([12, 10]))
    loss = loss + torch.nn.functional.cross_entropy(logits, torch.tensor([1, 0, 0]))
    expected = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    torch.manual_seed(3)
    found = model.train()(**batch).loss
    torch.testing.assert_close(found, loss)
    gradients = torch.autograd.grad(found, list(model.parameters()), allow_unused=True)
    for mine, other in zip(gradients, expected, strict=True):
        assert (mine is None) == (other is None)
        if mine is not None:
            torch.testing.assert_close(mine, other, atol=1e-6, rtol=1e-4)


def test_a_model_without_a_vocabulary_is_refused():
    from transformers import BertModel

    with pytest.raises(ValueError, match="BertModel without a vocabulary projection"):
        EntityReplacementModel(BertModel(BertConfig(vocab_size=30, **SHAPE)))
