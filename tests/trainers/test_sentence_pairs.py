"""Masked tokens and sentence pairs on upstream's classes: their own loss, three classes, exact means, refusals."""

from itertools import islice

import pytest
import torch
from transformers import (
    AlbertConfig,
    AlbertForPreTraining,
    BertConfig,
    BertForMaskedLM,
    BertForPreTraining,
    TrainingArguments,
)

from hf_ptm_ext import DataCollatorForMaskedLanguageModeling, SentencePairModel, SentencePairTrainer
from hf_ptm_ext.data import PairRule, PretrainingStream, embedded_corpus, train_wordpiece
from hf_ptm_ext.trainers.pretraining import metrics_from_sums

SIZES = {
    "vocab_size": 30, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
    "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
}  # fmt: skip
MODELS = {
    "next": (BertConfig, BertForPreTraining, "next_sentence_label"),
    "order": (AlbertConfig, AlbertForPreTraining, "sentence_order_label"),
}


def new(kind, seed=0):
    torch.manual_seed(seed)
    config, cls, _ = MODELS.get(kind, MODELS["next"])
    more = {"embedding_size": 8, "classifier_dropout_prob": 0.0} if config is AlbertConfig else {}
    return cls(config(**SIZES, **more))


def batch_of(rows=4, classes=2, seed=0):
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(5, 30, (rows, 12), generator=generator)
    labels = ids.where(torch.rand(ids.shape, generator=generator) < 0.3, -100)
    labels[:, 0] = ids[:, 0]
    mask = torch.ones_like(ids)
    mask[0, 9:], labels[0, 9:] = 0, -100
    return {
        "input_ids": ids.masked_fill(labels != -100, 4),
        "attention_mask": mask,
        "token_type_ids": (torch.arange(12) > 5).long().expand(rows, -1).contiguous(),
        "labels": labels,
        "next_sentence_label": torch.arange(rows) % classes,
    }


@pytest.mark.parametrize("kind", ["next", "order"])
def test_the_loss_is_upstreams_own(kind):
    plain = new(kind).eval()
    batch = batch_of()
    asked = {MODELS[kind][2] if name == "next_sentence_label" else name: value for name, value in batch.items()}
    expected = plain(**asked).loss
    model = SentencePairModel(plain, kind=kind).eval()
    output = model(**batch)
    assert output.loss.item() == pytest.approx(expected.item(), rel=1e-6)
    assert output.loss.item() == pytest.approx((output.mlm_loss + output[f"{model.term}_loss"]).item())
    slots = torch.argsort((batch["labels"] == -100).int(), dim=1)[:, :10]  # those with a label first
    assert model(**batch, label_positions=slots).loss.item() == pytest.approx(expected.item(), rel=1e-6)
    sums = metrics_from_sums(model.evaluation_sums(**batch), {}, "eval")
    assert sums["eval_loss"] == pytest.approx(expected.item(), rel=1e-6)
    assert not model.auxiliary_names(), "all of it is the plain model's"


@pytest.mark.parametrize("kind", ["next", "order"])
def test_a_third_class_stands_where_it_belongs(kind):
    plain = new(kind).eval()
    model = SentencePairModel(plain, kind="structure").eval()
    batch = batch_of(classes=3)
    two = plain(**{name: batch[name] for name in ("input_ids", "attention_mask", "token_type_ids")})
    own = two.seq_relationship_logits if kind == "next" else two.sop_logits
    found = model(**batch)
    kept = [0, 2] if kind == "next" else [0, 1]  # follows and elsewhere; in order and exchanged
    assert torch.allclose(found.sentence_logits[:, kept], own, atol=1e-6)
    assert model.auxiliary_names() == ["third.weight", "third.bias"]
    found.structure_loss.backward()
    assert model.third.weight.grad.abs().sum() > 0


def test_terms_are_means_over_the_update(tmp_path):
    """Four rows at once, or two and two with another number of labels and pairs each."""
    batch = batch_of()
    batch["next_sentence_label"][0] = -100
    rows = [{name: values[number] for name, values in batch.items()} for number in range(4)]
    found = []
    for size in (4, 2):
        args = TrainingArguments(
            str(tmp_path / str(size)), max_steps=1, per_device_train_batch_size=size,
            gradient_accumulation_steps=4 // size, learning_rate=0.1, optim="sgd", use_cpu=True, report_to=[],
            seed=0, save_strategy="no", logging_steps=1, disable_tqdm=True, remove_unused_columns=False,
        )  # fmt: skip
        trainer = SentencePairTrainer(SentencePairModel(new("next"), kind="next"), args, train_dataset=rows)
        trainer.train()
        found.append((trainer.state.log_history[0], trainer.model.state_dict()))
    (whole, weights), (parts, others) = found
    for name in ("loss", "mlm_loss", "nsp_loss"):
        assert parts[name] == pytest.approx(whole[name], rel=1e-4)
    assert all(torch.allclose(weights[name], others[name], atol=1e-6) for name in weights)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="`kind` must be one of next, order, structure, got 'sop'"):
        SentencePairModel(new("next"), kind="sop")
    with pytest.raises(ValueError, match="heads for masked tokens and for sentence pairs, got BertForMaskedLM"):
        SentencePairModel(BertForMaskedLM(BertConfig(**SIZES)))


def test_nothing_to_count_is_no_term():
    batch = batch_of()
    output = SentencePairModel(new("next"))(input_ids=batch["input_ids"])
    assert set(output) == {"sentence_logits"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["next", "order", "structure"])
def test_how_segments_of_real_text_stand_is_fitted_where_it_is_asked(tmp_path, kind):
    documents = embedded_corpus("en")[:40]
    tokenizer = train_wordpiece(documents, 400, model_max_length=48)
    pairs = PretrainingStream(documents, tokenizer, max_seq_length=48, pairs=PairRule(kind), seed=1)
    rows = list(islice(pairs, 96))
    collator = DataCollatorForMaskedLanguageModeling(tokenizer, budget="exact", seed=0)
    losses = []
    for asked in (True, False):
        torch.manual_seed(0)
        sizes = {**SIZES, "vocab_size": len(tokenizer), "hidden_size": 64, "intermediate_size": 128}
        args = TrainingArguments(
            str(tmp_path / str(asked)), max_steps=600, per_device_train_batch_size=16, learning_rate=2e-3, seed=0,
            use_cpu=True, report_to=[], save_strategy="no", disable_tqdm=True, remove_unused_columns=False,
        )  # fmt: skip
        trainer = SentencePairTrainer(
            SentencePairModel(BertForPreTraining(BertConfig(**sizes)), kind=kind),
            args,
            train_dataset=rows if asked else [{**row, "next_sentence_label": -100} for row in rows],
            eval_dataset=rows,
            data_collator=collator,
        )
        name = f"eval_{trainer.model.term}_loss"
        before = trainer.evaluate()[name]
        trainer.train()
        losses.append((before, trainer.evaluate()[name]))
    (before, after), (_, never) = losses
    assert after < before - 0.3
    assert never > before - 0.1
