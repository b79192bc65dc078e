"""InfoWord's DIM term: whose n-grams are negatives, several processes, plain checkpoints, resume, learning."""

import math

import pytest
import torch
from torch import nn
from transformers import BertConfig, BertForMaskedLM, RobertaConfig, RobertaForMaskedLM, TrainingArguments

from hf_ptm_ext import DataCollatorForInfoWord, InfoWordTrainer
from hf_ptm_ext.data import embedded_corpus, pretraining_dataset, train_wordpiece
from hf_ptm_ext.objectives import contrastive_scores, info_nce_loss
from hf_ptm_ext.trainers import InfoWordModel

SMALL = {
    "vocab_size": 60,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}


def bert(**fields):
    torch.manual_seed(0)
    return BertForMaskedLM(BertConfig(**SMALL | fields))


def batch_of(rows=6, ngrams=2):
    torch.manual_seed(1)
    text = torch.randint(5, 60, (rows, 9))
    mask = torch.ones_like(text)
    mask[1, 6:] = 0
    return {
        "sentence_input_ids": text,
        "attention_mask": mask,
        "ngram_input_ids": torch.randint(5, 60, (rows, ngrams, 5)),
        "ngram_attention_mask": torch.ones(rows, ngrams, 5, dtype=torch.long),
        "ngram_labels": torch.arange(rows) * ngrams,
    }


def test_negatives_are_other_ngrams_of_other_rows():
    batch = batch_of()
    batch["ngram_input_ids"][4, 0] = batch["ngram_input_ids"][2, 0]  # row 4's n-gram is row 2's
    batch["ngram_labels"][5] = -100
    model = InfoWordModel(bert()).eval()
    encoder = model.model.base_model
    queries = encoder(batch["sentence_input_ids"], attention_mask=batch["attention_mask"])[0][:, 0]
    keys = encoder(batch["ngram_input_ids"].reshape(-1, 5))[0][:, 0]
    terms = []
    for row in range(5):
        others = [column for column in range(10) if column // 2 != row]  # row 5 has no n-gram of its own
        others = [column for column in others if not (row in (2, 4) and column == 2 * (6 - row))]
        scores = queries[row] @ keys[[2 * row, *others]].T
        terms.append(torch.logsumexp(scores, 0) - scores[0])
    output = model(**batch)
    torch.testing.assert_close(output.dim_loss, torch.stack(terms).mean())
    torch.testing.assert_close(output.loss, output.dim_loss)
    sums = model.evaluation_sums(**batch)["dim"]
    assert sums[2] == 5
    assert sums[0].item() / 5 == pytest.approx(output.dim_loss.item(), rel=1e-5)


def test_temperature_and_length():
    queries, keys = torch.randn(3, 8), torch.randn(5, 8)
    cosine = nn.functional.cosine_similarity(queries[:, None], keys[None], dim=-1)
    torch.testing.assert_close(contrastive_scores(queries, keys, 0.1, normalize=True), cosine / 0.1)
    with torch.autocast("cpu", dtype=torch.bfloat16):  # has 8 bits, and products of long vectors are in the hundreds
        scores = contrastive_scores(queries, keys)
    torch.testing.assert_close(scores, queries @ keys.T)
    with pytest.raises(ValueError, match="`temperature` must be positive, got 0"):
        InfoWordModel(bert(), temperature=0)
    with pytest.raises(ValueError, match="`labels` or `ngram_labels` must be given, got None and None"):
        InfoWordModel(bert())(torch.tensor([[5]]))
    none = info_nce_loss(torch.zeros(2, 2, requires_grad=True), torch.tensor([-100, -100]))
    none.backward()
    assert none.item() == 0


def in_process(rank, folder, batch):
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    model = InfoWordModel(bert(), gather_negatives=True)
    half = {name: values[3 * rank : 3 * rank + 3].clone() for name, values in batch.items()}
    half["ngram_labels"] = half["ngram_labels"] - 6 * rank
    loss = model(**half).dim_loss / 2  # as data parallelism takes the mean of both
    loss.backward()
    gradients = {name: value.grad for name, value in model.named_parameters() if value.grad is not None}
    for value in (loss := loss.detach(), *gradients.values()):
        torch.distributed.all_reduce(value)
    if rank == 0:
        torch.save({"loss": loss, "gradients": gradients}, f"{folder}/found.pt")
    torch.distributed.destroy_process_group()


def test_two_processes_with_all_ngrams_are_one(tmp_path):
    batch = batch_of()
    model = InfoWordModel(bert())
    loss = model(**batch).dim_loss
    loss.backward()
    torch.multiprocessing.spawn(in_process, (str(tmp_path), batch), nprocs=2)
    found = torch.load(tmp_path / "found.pt")
    torch.testing.assert_close(found["loss"], loss.detach())
    for name, value in model.named_parameters():
        if value.grad is not None:
            torch.testing.assert_close(found["gradients"][name], value.grad, atol=1e-5, rtol=1e-4)


@pytest.fixture(scope="module")
def text():
    documents = embedded_corpus("en")[:300]
    tokenizer = train_wordpiece(documents, 800, lowercase=True, model_max_length=64)
    return tokenizer, pretraining_dataset(documents, tokenizer, max_seq_length=48)


def trainer_of(folder, text, steps, model=None, **options):
    tokenizer, rows = text
    model = bert(vocab_size=len(tokenizer), hidden_size=64) if model is None else model
    options = {"per_device_train_batch_size": 16, "save_strategy": "no", **options}
    weight = options.pop("dim_loss_weight", 1.0)
    args = TrainingArguments(
        output_dir=str(folder), max_steps=steps, learning_rate=1e-3, report_to=[], use_cpu=True, seed=0,
        per_device_eval_batch_size=32, disable_tqdm=True, logging_steps=1, warmup_steps=10, **options,
    )  # fmt: skip
    return InfoWordTrainer(
        model=InfoWordModel(model, dim_loss_weight=weight),
        args=args,
        train_dataset=rows.select(range(len(rows) - 256)),
        eval_dataset=rows.select(range(len(rows) - 256, len(rows))),
        data_collator=DataCollatorForInfoWord(tokenizer, budget="exact", max_ngram_length=8, seed=0),
        processing_class=tokenizer,
    )


def test_checkpoints_are_plain_and_a_resumed_run_is_the_same(tmp_path, text):
    whole = trainer_of(tmp_path / "whole", text, 4, gradient_accumulation_steps=2)
    whole.train()
    parts = {"save_strategy": "steps", "save_steps": 2, "gradient_accumulation_steps": 2}
    first = trainer_of(tmp_path / "parts", text, 4, **parts)
    first.args.max_steps = 2
    first.train()
    again = trainer_of(tmp_path / "parts", text, 4, **parts)
    again.train(resume_from_checkpoint=str(tmp_path / "parts" / "checkpoint-2"))
    for (name, one), (_, other) in zip(whole.model.named_parameters(), again.model.named_parameters(), strict=True):
        assert torch.equal(one, other), name
    assert {"mlm_loss", "dim_loss"} <= set(again.state.log_history[-2])
    again.save_model(str(tmp_path / "saved"))
    ids = torch.tensor([[2, 9, 10, 3]])
    plain = BertForMaskedLM.from_pretrained(tmp_path / "saved").eval()
    assert torch.equal(plain(ids).logits, again.model.model.eval()(ids).logits)


def test_a_row_alone_has_no_negatives(tmp_path, text):
    with pytest.raises(ValueError, match=r"`per_device_train_batch_size` must be at least 2 for negatives.* got 1"):
        trainer_of(tmp_path, text, 1, per_device_train_batch_size=1)
    trainer_of(tmp_path, text, 1, per_device_train_batch_size=1, dim_loss_weight=0)


def test_roberta_is_an_encoder_too(tmp_path, text):
    torch.manual_seed(0)
    model = RobertaForMaskedLM(RobertaConfig(**SMALL | {"vocab_size": len(text[0]), "pad_token_id": 0}))
    trainer = trainer_of(tmp_path, text, 2, model)
    trainer.train()
    assert math.isfinite(trainer.evaluate()["eval_dim_loss"])


@pytest.mark.slow
def test_sentences_learn_to_tell_their_ngrams_and_an_ablated_model_does_not(tmp_path, text):
    """On held-out text, of 32 n-grams: a guess is right once in 32."""
    trainer = trainer_of(tmp_path, text, 600)
    before = trainer.evaluate()
    trainer.train()
    after = trainer.evaluate()
    assert after["eval_dim_loss"] < before["eval_dim_loss"] - 0.3
    assert after["eval_dim_accuracy"] > 4 / 32
    ablated = trainer_of(tmp_path, text, 600, dim_loss_weight=0.0)
    ablated.train()
    never = ablated.evaluate()
    assert never["eval_dim_accuracy"] < 3 / 32
    assert never["eval_dim_loss"] > after["eval_dim_loss"] + 0.3
    assert after["eval_mlm_loss"] < before["eval_mlm_loss"] - 0.5
