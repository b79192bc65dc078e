"""SiATL: the language-model loss beside the class loss, annealed by epoch."""

import pytest
import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2ForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from hf_ptm_ext import AwdLstmConfig, AwdLstmForSequenceClassification
from hf_ptm_ext.objectives import annealed_weight, next_token_loss
from hf_ptm_ext.trainers import AuxiliaryLanguageModelCallback, PtmTrainer


def gpt2():
    torch.manual_seed(0)
    sizes = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 16, "vocab_size": 40}
    dropouts = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    return GPT2ForSequenceClassification(GPT2Config(**sizes, **dropouts, pad_token_id=0, num_labels=2))


def awd_lstm():
    torch.manual_seed(0)
    config = AwdLstmConfig(vocab_size=40, embedding_size=16, lstm_size=24, num_hidden_layers=1, drop_mult=0.0)
    config.classifier_dropout = 0.0
    return AwdLstmForSequenceClassification(config)


def rows(number=8, length=8):
    """Counting texts: each token is the one before it plus one; the class is the parity of the first."""
    return [
        {"input_ids": torch.arange(length) + 2 + n, "attention_mask": torch.ones(length).long(), "labels": n % 2}
        for n in range(number)
    ]


def arguments(folder, **more):
    return TrainingArguments(
        output_dir=str(folder), report_to="none", disable_tqdm=True, use_cpu=True, logging_steps=1, **more
    )


@pytest.mark.parametrize("make", [gpt2, awd_lstm])
def test_the_loss_is_the_class_loss_and_the_weighted_language_model_loss(tmp_path, make):
    model, seen = make(), []
    batch = torch.utils.data.default_collate(rows(4))
    plain = model(**batch)
    states = model.base_model(batch["input_ids"])[0]
    logits = states @ model.get_input_embeddings().weight.T
    expected = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), batch["input_ids"][:, 1:].flatten())

    class Keep(TrainerCallback):
        def on_log(self, args, state, control, logs=None, **kwargs):
            seen.append(logs)

    callbacks = [AuxiliaryLanguageModelCallback(start=0.5), Keep()]
    args = arguments(tmp_path, max_steps=1, per_device_train_batch_size=4, save_strategy="no")
    PtmTrainer(model=model, args=args, train_dataset=rows(4), callbacks=callbacks).train()
    assert seen[0]["lm_loss"] == pytest.approx(expected.item(), rel=1e-4)
    assert seen[0]["loss"] == pytest.approx((plain.loss + 0.5 * expected).item(), rel=1e-4)
    after = model.eval()(**batch)
    assert "lm_loss" not in after
    assert not model._forward_hooks
    assert not model.base_model._forward_hooks


class BatchMeanTrainer(Trainer):
    loss_is_scaled_for_ga = False


def test_accumulated_batches_make_the_same_update(tmp_path):
    weights = []
    for batch, accumulation in ((8, 1), (2, 4), (1, 8)):
        model = gpt2()
        args = arguments(
            tmp_path / str(batch),
            max_steps=1,
            per_device_train_batch_size=batch,
            gradient_accumulation_steps=accumulation,
            save_strategy="no",
            optim="sgd",
            max_grad_norm=0.0,
            learning_rate=0.1,
        )
        callbacks = [AuxiliaryLanguageModelCallback()]
        BatchMeanTrainer(model=model, args=args, train_dataset=rows(), callbacks=callbacks).train()
        weights.append(torch.cat([value.flatten() for value in model.state_dict().values()]))
    for other in weights[1:]:
        torch.testing.assert_close(other, weights[0], atol=1e-6, rtol=1e-5)


def test_the_language_model_is_learnt_beside_the_classes(tmp_path):
    losses = {}
    for weight in (1e-6, 1.0):
        model = gpt2()
        args = arguments(tmp_path, max_steps=60, per_device_train_batch_size=8, save_strategy="no", learning_rate=1e-2)
        callback = AuxiliaryLanguageModelCallback(start=weight, end=weight)
        PtmTrainer(model=model, args=args, train_dataset=rows(), callbacks=[callback]).train()
        ids = torch.stack([row["input_ids"] for row in rows()])
        with torch.no_grad():
            states = model.eval().transformer(ids)[0]
        losses[weight] = next_token_loss(states @ model.transformer.wte.weight.T, ids).item()
    assert losses[1.0] < 0.5 < 2.0 < losses[1e-6]


def test_the_weight_falls_by_epoch_as_siatls():
    weights = [annealed_weight(epoch) for epoch in range(20)]
    siatl = torch.linspace(-1.6, -2.3, 15, dtype=torch.float64).exp().tolist()
    assert weights == pytest.approx([*siatl, *[siatl[-1]] * 5])


def test_the_term_and_its_gradient_are_siatls():
    """clf_trainer.py: a mean over the next tokens of the whole batch, padding (id 0) and the last place left out."""
    torch.manual_seed(0)
    logits = torch.randn(2, 4, 9, requires_grad=True)
    ids = torch.tensor([[5, 6, 7, 8], [5, 6, 0, 0]])
    rolled = torch.cat([ids[:, 1:], torch.zeros_like(ids[:, :1])], dim=1)
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), rolled.flatten(), ignore_index=0)
    found = next_token_loss(logits, ids, (ids != 0).long())
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(*(torch.autograd.grad(loss, logits)[0] for loss in (found, expected)))


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_is_neither_read_from_nor_predicted(side):
    torch.manual_seed(0)
    logits, ids = torch.randn(1, 4, 9), torch.tensor([[5, 6, 7, 8]])
    alone = next_token_loss(logits, ids)
    pad = torch.randn(1, 2, 9), torch.zeros(1, 2).long()
    parts = ((pad[0], logits), (pad[1], ids)) if side == "left" else ((logits, pad[0]), (ids, pad[1]))
    padded = torch.cat(parts[0], dim=1), torch.cat(parts[1], dim=1)
    torch.testing.assert_close(next_token_loss(padded[0], padded[1], (padded[1] != 0).long()), alone)
    assert next_token_loss(logits[:, :1], ids[:, :1]) == 0


def test_a_bidirectional_model_is_refused(tmp_path):
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    model = BertForSequenceClassification(BertConfig(vocab_size=40, **sizes))
    args = arguments(tmp_path, max_steps=1, save_strategy="no")
    trainer = Trainer(model=model, args=args, train_dataset=rows(), callbacks=[AuxiliaryLanguageModelCallback()])
    with pytest.raises(ValueError, match=r"`model` must be causal, BertForSequenceClassification sees"):
        trainer.train()
    with pytest.raises(ValueError, match="must be positive"):
        AuxiliaryLanguageModelCallback(start=0.0)
