"""ELECTRA's replaced token detection: the golden, the laws, plain checkpoints of both models, resume, learning."""

import json
import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import ElectraConfig, ElectraForMaskedLM, ElectraForPreTraining, TrainingArguments

from hf_ptm_ext import (
    DataCollatorForMaskedLanguageModeling,
    ElectraForReplacedTokenDetection,
    ReplacedTokenDetectionTrainer,
)
from hf_ptm_ext.data import embedded_corpus, pretraining_dataset, train_wordpiece
from hf_ptm_ext.objectives import replaced_token_loss, sample_tokens
from hf_ptm_ext.trainers import make_electra_generator

GOLDENS = Path(__file__).parents[1] / "goldens"
FACTS = json.loads((GOLDENS / "electra-a.json").read_text(encoding="utf-8"))
TENSORS = load_file(GOLDENS / "electra-a.safetensors")
SMALL = {
    "vocab_size": 110,
    "embedding_size": 24,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}


def part(prefix):
    return {name.removeprefix(prefix): value for name, value in TENSORS.items() if name.startswith(prefix)}


@pytest.fixture(scope="module")
def golden():
    discriminator = ElectraForPreTraining(ElectraConfig(**FACTS["disc_config"]))
    generator = ElectraForMaskedLM(ElectraConfig(**FACTS["gen_config"]))
    assert not discriminator.load_state_dict(part("disc."), strict=False).unexpected_keys
    assert not generator.load_state_dict(part("gen."), strict=False).unexpected_keys
    return ElectraForReplacedTokenDetection(discriminator, generator).eval()


def close(found, expected):
    torch.testing.assert_close(found, expected, atol=FACTS["tolerance"]["atol"], rtol=FACTS["tolerance"]["rtol"])


@pytest.mark.golden
def test_both_models_and_losses_are_those_of_the_golden(golden, monkeypatch):
    given, wanted = part("in."), part("out.")
    positions = given["mask_positions"].bool() if given["mask_positions"].max() <= 1 else None
    labels = given["mlm_labels"]
    chosen = labels != -100 if positions is None else positions
    # The golden's sample stands for the draw.
    monkeypatch.setattr(
        "hf_ptm_ext.trainers.replaced_token_detection.sample_tokens",
        lambda logits, *options: given["corrupted_ids"][chosen],
    )
    batch = {"input_ids": given["masked_ids"], "labels": labels}
    batch |= {name: given[name] for name in ("attention_mask", "token_type_ids")}
    with torch.no_grad():
        output = golden(**batch)
        more = {name: given[name] for name in ("attention_mask", "token_type_ids")}
        logits, _, corrupted, replaced = golden._corrupt(given["masked_ids"], labels, None, more)
        states = golden.generator.electra(given["masked_ids"], **more)[0]
    close(states, wanted["gen_last_hidden"])
    close(logits, wanted["gen_logits_at_mask"])
    assert torch.equal(corrupted, given["corrupted_ids"])
    assert torch.equal(replaced.long(), given["rtd_labels"])
    close(output.logits, wanted["disc_logits"])
    scalars = FACTS["scalars"]
    close(output.mlm_loss, torch.tensor(scalars["gen_mlm_loss"]))
    close(output.rtd_loss, torch.tensor(scalars["disc_rtd_loss"]))
    close(output.loss, torch.tensor(scalars["total_loss(gen_weight 1, disc_weight 50)"]))


def test_samples_follow_the_generator():
    torch.manual_seed(0)
    logits, probabilities = part("out.")["gen_logits_at_mask"][0], part("out.")["gen_probs_first_mask"]
    draws = 200_000
    counts = torch.bincount(
        torch.cat([sample_tokens(logits.expand(draws // 10, -1)) for _ in range(10)]), minlength=110
    )
    errors = (counts / draws - probabilities).abs() / (probabilities * (1 - probabilities) / draws).sqrt()
    assert errors.max() < 4.5
    cold = sample_tokens(logits.expand(100, -1), temperature=1e-4)
    assert (cold == logits.argmax()).all()


def test_embeddings_are_one_and_gradients_reach_them_from_both():
    model = ElectraForReplacedTokenDetection(ElectraForPreTraining(ElectraConfig(**SMALL)))
    theirs, ours = model.model.electra.embeddings, model.generator.electra.embeddings
    for name in ("word_embeddings", "position_embeddings", "token_type_embeddings"):
        assert getattr(theirs, name).weight is getattr(ours, name).weight
    assert model.generator.generator_lm_head.weight is theirs.word_embeddings.weight
    assert theirs.LayerNorm.weight is not ours.LayerNorm.weight
    ids = torch.randint(5, 110, (2, 12))
    labels = torch.full_like(ids, -100)
    labels[:, 3] = ids[:, 3]
    masked = ids.clone()
    masked[:, 3] = 4
    for weights in ((1.0, 0.0), (0.0, 1.0)):
        model.generator_loss_weight, model.discriminator_loss_weight = weights
        model.zero_grad()
        model(masked, labels=labels).loss.backward()
        moved = {name for name, value in model.named_parameters() if value.grad is not None and value.grad.any()}
        assert "model.electra.embeddings.word_embeddings.weight" in moved
        layers = {name.split(".")[0] for name in moved if ".layer." in name}
        assert layers == ({"generator"} if weights[0] else {"model"}), "no gradient goes through the samples"


def test_packed_rows_and_label_slots_change_nothing():
    torch.manual_seed(0)
    model = ElectraForReplacedTokenDetection(ElectraForPreTraining(ElectraConfig(**SMALL)), temperature=1e-6).eval()
    lengths, ids = (9, 7), torch.randint(5, 110, (2, 9))
    mask = (torch.arange(9) < torch.tensor(lengths)[:, None]).long()
    labels = torch.full_like(ids, -100)
    labels[0, 2], labels[0, 6], labels[1, 3] = 11, 12, 13
    padded = model(ids, attention_mask=mask, labels=labels)
    real = mask.bool()
    packed = {"input_ids": ids[real][None], "labels": labels[real][None]}
    packed["sequence_ids"] = torch.cat([torch.full((length,), number + 1) for number, length in enumerate(lengths)])[
        None
    ]
    packed["position_ids"] = torch.cat([torch.arange(length) for length in lengths])[None]
    places = torch.tensor([[2, 6, 12, 0, 1]])
    for more in ({}, {"label_positions": places}):
        output = model(**packed, **more)
        torch.testing.assert_close(output.logits[0], padded.logits[real], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(output.loss, padded.loss, atol=1e-5, rtol=1e-5)
    assert model(ids, attention_mask=mask).logits.shape == (2, 9), "a text as it is"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda d: ElectraForReplacedTokenDetection(d, temperature=0), "`temperature` must be positive, got 0"),
        (
            lambda d: ElectraForReplacedTokenDetection(
                d, ElectraForMaskedLM(ElectraConfig(**SMALL | {"vocab_size": 50}))
            ),
            "`generator` must have the discriminator's `vocab_size`, 110, got 50",
        ),
        (lambda d: make_electra_generator(d, size=2), r"`size` and `layers` must be in \(0, 1\], got 2 and 1.0"),
    ],
)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call(ElectraForPreTraining(ElectraConfig(**SMALL)))


@pytest.mark.parametrize(("width", "size"), [(32, 0.01), (256, 0.59), (1024, 0.3)])
def test_a_generator_has_whole_heads_whatever_its_share(width, size):
    config = ElectraConfig(**SMALL | {"hidden_size": width, "num_attention_heads": 2})
    made = make_electra_generator(ElectraForPreTraining(config), size).config
    assert made.hidden_size % made.num_attention_heads == 0
    assert abs(made.hidden_size - size * width) < made.num_attention_heads


def test_models_come_from_folders_and_are_of_the_right_class(tmp_path):
    discriminator = ElectraForPreTraining(ElectraConfig(**SMALL))
    discriminator.save_pretrained(tmp_path / "discriminator")
    make_electra_generator(discriminator).save_pretrained(tmp_path / "generator")
    model = ElectraForReplacedTokenDetection(tmp_path / "discriminator", str(tmp_path / "generator"))
    ids = torch.tensor([[2, 9, 10, 3]])
    assert torch.equal(model.eval()(ids).logits, discriminator.eval()(ids).logits)
    with pytest.raises(TypeError, match="`discriminator` must be an ElectraForPreTraining, got ElectraForMaskedLM"):
        ElectraForReplacedTokenDetection(tmp_path / "generator", discriminator)


def test_nothing_to_count_is_zero():
    none = torch.zeros(1, 2, dtype=torch.bool)
    loss = replaced_token_loss(torch.zeros(1, 2, requires_grad=True), none, none)
    assert loss.item() == 0
    loss.backward()


@pytest.fixture(scope="module")
def text():
    documents = embedded_corpus("en")[:120]
    tokenizer = train_wordpiece(documents, 500, lowercase=True, model_max_length=64)
    return tokenizer, pretraining_dataset(documents, tokenizer, max_seq_length=48)


def trainer_of(folder, text, steps, **options):
    tokenizer, rows = text
    torch.manual_seed(0)
    config = ElectraConfig(**SMALL | {"vocab_size": len(tokenizer)})
    model = ElectraForReplacedTokenDetection(ElectraForPreTraining(config))
    args = TrainingArguments(
        output_dir=str(folder), max_steps=steps, per_device_train_batch_size=8, learning_rate=2e-3, report_to=[],
        use_cpu=True, seed=0, disable_tqdm=True, logging_steps=1, lr_scheduler_type="constant", **options,
    )  # fmt: skip
    collator = DataCollatorForMaskedLanguageModeling(
        tokenizer, budget="exact", mask_replace_prob=0.85, random_replace_prob=0.0, seed=0
    )
    return ReplacedTokenDetectionTrainer(
        model=model,
        args=args,
        train_dataset=rows.select(range(1200)),
        eval_dataset=rows.select(range(16)),
        data_collator=collator,
        processing_class=tokenizer,
    )


def test_checkpoints_are_plain_and_a_resumed_run_is_the_same(tmp_path, text):
    whole = trainer_of(tmp_path / "whole", text, 6, save_strategy="no")
    whole.train()
    first = trainer_of(tmp_path / "parts", text, 6, save_steps=3)
    first.args.max_steps = 3
    first.train()
    again = trainer_of(tmp_path / "parts", text, 6, save_steps=3)
    again.train(resume_from_checkpoint=str(tmp_path / "parts" / "checkpoint-3"))
    for (name, one), (_, other) in zip(whole.model.named_parameters(), again.model.named_parameters(), strict=True):
        assert torch.equal(one, other), name
    again.save_model(str(tmp_path / "saved"))
    again.model.generator.save_pretrained(tmp_path / "generator")
    ids = torch.tensor([[2, 9, 10, 3]])
    with torch.no_grad():
        plain = ElectraForPreTraining.from_pretrained(tmp_path / "saved").eval()
        assert torch.equal(plain(ids).logits, again.model.eval()(ids).logits)
        generator = ElectraForMaskedLM.from_pretrained(tmp_path / "generator").eval()
        assert torch.equal(generator(ids).logits, again.model.generator(ids).logits)
    stored = load_file(tmp_path / "saved" / "auxiliary_heads.safetensors")
    assert not any("word_embeddings" in name or "generator_lm_head.weight" in name for name in stored)
    metrics, later = again.evaluate(), again.evaluate()
    assert metrics["eval_loss"] == later["eval_loss"], "the same tokens are sampled"
    assert {"eval_mlm_loss", "eval_rtd_accuracy", "eval_replaced_accuracy", "eval_replaced_targets"} <= set(metrics)
    assert {"mlm_loss", "rtd_loss"} <= set(again.state.log_history[-4])


@pytest.mark.slow
def test_both_terms_fall_on_real_text_and_an_ablated_one_does_not(tmp_path, text):
    trainer = trainer_of(tmp_path, text, 1500, save_strategy="no")
    held_out = text[1].select(range(1200, 1400))
    before = trainer.evaluate(held_out)
    trainer.train()
    after = trainer.evaluate(held_out)
    assert after["eval_mlm_loss"] < before["eval_mlm_loss"] - 0.7
    share = after["eval_replaced_targets"] / after["eval_rtd_targets"]
    guess = -(share * math.log(share) + (1 - share) * math.log(1 - share))
    assert after["eval_rtd_loss"] < guess - 0.005, "better than knowing how many are replaced"
    ablated = trainer_of(tmp_path, text, 200, save_strategy="no")
    ablated.model.discriminator_loss_weight = 0.0
    ablated.train()
    assert ablated.evaluate(held_out)["eval_rtd_loss"] > before["eval_rtd_loss"] - 0.02


def test_a_token_that_was_drawn_twice_counts_twice_and_is_replaced_once(text):
    tokenizer, rows = text[0], text[1]
    collator = DataCollatorForMaskedLanguageModeling(
        tokenizer, mlm_probability=0.5, mask_replace_prob=0.85, random_replace_prob=0, budget="electra", seed=0
    )
    batch = collator([rows[number] for number in range(8)])
    slots = torch.tensor([len(set(row)) for row in batch["label_positions"].tolist()])
    assert (slots < batch["label_positions"].shape[1]).any()
    torch.manual_seed(0)
    config = ElectraConfig(**{**SMALL, "vocab_size": len(tokenizer)})
    model = ElectraForReplacedTokenDetection(ElectraForPreTraining(config)).eval()
    output = model(**batch)
    states = model.generator.electra(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])[0]
    logits = model.generator.generator_lm_head(model.generator.generator_predictions(states))
    each = torch.nn.functional.cross_entropy(logits.transpose(1, 2), batch["labels"], reduction="none")
    labels = batch["labels"].gather(1, batch["label_positions"])
    expected = each.gather(1, batch["label_positions"])[labels != -100].mean()
    assert output.mlm_loss.item() == pytest.approx(expected.item(), rel=1e-5)
    assert model.count_targets(batch)["labels"] == (labels != -100).sum() > (batch["labels"] != -100).sum()
    exact = model(**batch, target_counts=model.count_targets(batch), num_items_in_batch=1)
    assert exact.mlm_loss.item() == pytest.approx(expected.item(), rel=1e-5)
