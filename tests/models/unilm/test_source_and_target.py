"""Where `UniLMForConditionalGeneration` takes the end of the source from; errors of inputs that do not say it.

Whatever tells the source apart (lengths, the family's token types, a tokenizer's, the first [SEP]), every way of using
the model must see the same source: leaving a target token visible to the others makes a loss that means nothing.
"""

import pytest
import torch
from transformers import BertTokenizerFast, Trainer, TrainingArguments

from hf_ptm_ext import (
    DataCollatorForUniLMSeq2Seq,
    UniLMConfig,
    UniLMForConditionalGeneration,
    UniLMForMaskedLM,
    UniLMModel,
)
from hf_ptm_ext.models.modeling_unilm import fine_tuning_loss

PAD, UNK, CLS, SEP, MASK = range(5)
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
SEQ2SEQ = 3
# Lengths 6 and 9, sources of 4 and 5 tokens.
ROWS = torch.tensor([[CLS, 7, 8, SEP, MASK, SEP, 0, 0, 0], [CLS, 9, 10, 11, SEP, 12, MASK, 14, SEP]])
MASKS = (ROWS != PAD).long()
LENGTHS = torch.tensor([4, 5])
OWN_TYPES = torch.tensor([[4, 4, 4, 4, 5, 5, 0, 0, 0], [4, 4, 4, 4, 4, 5, 5, 5, 5]])
PAIR_TYPES = torch.tensor([[0, 0, 0, 0, 1, 1, 0, 0, 0], [0, 0, 0, 0, 0, 1, 1, 1, 1]])
LABELS = torch.full_like(ROWS, -100)
LABELS[0, 4], LABELS[1, 6] = 13, 15
TOLD_BY = {
    "lengths": {"source_lengths": LENGTHS},
    "lengths and mode": {"source_lengths": LENGTHS, "lm_mode": torch.tensor([3, 3])},
    "the family's types": {"token_type_ids": OWN_TYPES},
    "a tokenizer's types": {"token_type_ids": PAIR_TYPES},
    "a tokenizer's types and mode": {"token_type_ids": PAIR_TYPES, "lm_mode": torch.tensor([3, 3])},
    "the first [SEP]": {},
}


def tokenizer():
    words = [f"w{number}" for number in range(5, 40)]
    return BertTokenizerFast(vocab={token: number for number, token in enumerate((*SPECIAL, *words))})


def model(model_class=UniLMForConditionalGeneration, **fields):
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    tokens = {"mask_token_id": MASK, "eos_token_id": SEP, "pad_token_id": PAD}
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "initializer_range": 0.3}
    config = UniLMConfig(**{"vocab_size": 40, "max_position_embeddings": 32, **sizes, **tokens, **dropout, **fields})
    return model_class(config).eval()


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("told_by", TOLD_BY)
def test_whatever_tells_the_source_the_outcome_is_the_same(told_by, training):
    generator = model().train(training)
    expected = generator(ROWS, attention_mask=MASKS, source_lengths=LENGTHS, labels=LABELS, return_logits=True)
    with_labels = generator(ROWS, attention_mask=MASKS, labels=LABELS, return_logits=True, **TOLD_BY[told_by])
    without = generator(ROWS, attention_mask=MASKS, **TOLD_BY[told_by])
    assert with_labels.loss.item() == pytest.approx(expected.loss.item(), abs=1e-6)
    for output in (with_labels, without):
        torch.testing.assert_close(output.logits[MASKS.bool()], expected.logits[MASKS.bool()])


@pytest.mark.parametrize("told_by", TOLD_BY)
def test_no_target_token_sees_what_follows_it(told_by):
    generator, changed = model(), ROWS.clone()
    changed[1, 7] = 20
    before, after = (generator(ids, attention_mask=MASKS, **TOLD_BY[told_by]).logits for ids in (ROWS, changed))
    torch.testing.assert_close(before[1, :7], after[1, :7])
    assert not torch.allclose(before[1, 7:], after[1, 7:])


def test_packed_rows_and_left_padding():
    generator = model()
    expected = generator(ROWS, attention_mask=MASKS, source_lengths=LENGTHS).logits[MASKS.bool()]
    packed = {"input_ids": ROWS[MASKS.bool()][None], "sequence_ids": torch.tensor([[1] * 6 + [2] * 9])}
    left = {"input_ids": torch.stack([ROWS[0].roll(3), ROWS[1]]), "attention_mask": MASKS.flip(1)}
    left["attention_mask"] = (left["input_ids"] != PAD).long()
    for types in ({}, {"token_type_ids": PAIR_TYPES}, {"token_type_ids": OWN_TYPES}):
        flat = {name: value[MASKS.bool()][None] for name, value in types.items()}
        torch.testing.assert_close(generator(**packed, **flat).logits[0], expected)
        moved = {name: torch.stack([value[0].roll(3), value[1]]) for name, value in types.items()}
        got = generator(**left, **moved).logits[left["attention_mask"].bool()]
        torch.testing.assert_close(got, expected)


def test_a_prompt_is_all_source_as_in_generation():
    generator, prompt = model(), torch.tensor([[CLS, 7, 8, SEP], [CLS, 9, 10, 11]])
    for types in ({}, {"token_type_ids": torch.zeros_like(prompt)}):
        got = generator(prompt, **types).logits
        expected = generator(prompt, lm_mode=torch.tensor([3, 3]), source_lengths=torch.tensor([4, 4])).logits
        torch.testing.assert_close(got, expected)


def test_another_mode_is_what_it_says():
    generator, masked_lm = model(), model(UniLMForMaskedLM)
    masked_lm.load_state_dict(generator.state_dict())
    for mode in range(3):
        modes = torch.full((2,), mode)
        got = generator(ROWS, attention_mask=MASKS, lm_mode=modes).logits
        torch.testing.assert_close(got, masked_lm(ROWS, attention_mask=MASKS, lm_mode=modes).logits)


@pytest.mark.parametrize("kind", ["collator", "token types", "a tokenizer's token types", "ids alone"])
def test_a_trainer_that_takes_the_labels_away(kind, tmp_path):
    """`label_smoothing_factor` pops the labels before the forward pass: in training and in evaluation."""
    features = [{"source_ids": [7, 8], "target_ids": [13]}, {"source_ids": [9, 10, 11], "target_ids": [12, 15, 14]}]
    collator = DataCollatorForUniLMSeq2Seq(tokenizer(), mask_replace_prob=1.0, random_replace_prob=0.0, seed=0)
    batch = collator(features)
    told = dict(batch)

    def collate(rows):
        kept = {"input_ids", "attention_mask", "labels"} if kind != "collator" else set(told)
        result = {name: told[name] for name in kept}
        if kind == "token types":
            result["token_type_ids"] = OWN_TYPES
        elif kind != "collator" and kind != "ids alone":
            result["token_type_ids"] = PAIR_TYPES
        return result

    assert torch.equal(told["token_type_ids"], OWN_TYPES)
    generator = model()
    arguments = TrainingArguments(
        output_dir=str(tmp_path),
        max_steps=1,
        learning_rate=0.0,
        label_smoothing_factor=0.1,
        per_device_train_batch_size=2,
        per_device_eval_batch_size=2,
        report_to=[],
        save_strategy="no",
        logging_steps=1,
        remove_unused_columns=False,
        use_cpu=True,
    )
    trainer = Trainer(generator, arguments, data_collator=collate, train_dataset=features, eval_dataset=features)
    trained = trainer.train().training_loss
    evaluated = trainer.evaluate()["eval_loss"]

    inputs = {name: value for name, value in told.items() if name != "labels"}
    with torch.no_grad():
        log_probs = generator.eval()(**inputs).logits.log_softmax(-1)
    chosen = told["labels"] != -100
    nll = -log_probs[chosen].gather(1, told["labels"][chosen][:, None]).mean()
    expected = 0.9 * nll - 0.1 * log_probs[chosen].mean()
    assert trained == pytest.approx(expected.item(), abs=1e-5)
    assert evaluated == pytest.approx(expected.item(), abs=1e-5)


def test_ignored_positions_are_ignored():
    """The model's own smoothing: neither value nor gradient knows of them, and a row without labels adds nothing."""
    generator = model(label_smoothing=0.1)
    inputs = {"attention_mask": MASKS, "source_lengths": LENGTHS}
    expected = generator(ROWS, labels=LABELS, **inputs).loss
    logits = generator(ROWS, **inputs).logits.detach().requires_grad_()

    own = fine_tuning_loss(logits.flatten(0, 1), LABELS.flatten(), 0.1)
    own.backward()
    assert own.item() == pytest.approx(expected.item(), abs=1e-6)
    assert not logits.grad[LABELS == -100].any()
    assert logits.grad[LABELS != -100].any()
    third = {
        "input_ids": torch.cat([ROWS, ROWS[:1]]),
        "attention_mask": torch.cat([MASKS, MASKS[:1]]),
        "source_lengths": torch.tensor([4, 5, 4]),
        "labels": torch.cat([LABELS, torch.full((1, 9), -100)]),
    }
    assert generator(**third).loss.item() == pytest.approx(expected.item(), abs=1e-6)


class TestErrors:
    def test_a_source_that_nothing_tells(self):
        several = torch.tensor([[CLS, 7, SEP, 8, SEP, 9, SEP]])
        with pytest.raises(ValueError, match=r"`source_lengths` or `token_type_ids` must say where the source ends"):
            model()(several)
        model()(several, source_lengths=torch.tensor([5]))
        with pytest.raises(ValueError, match=r"needs `source_lengths`.* or another `lm_mode`"):
            model()(inputs_embeds=torch.zeros(1, 5, 32))
        with pytest.raises(ValueError, match=r"needs `source_lengths`"):
            model(eos_token_id=None)(ROWS, attention_mask=MASKS)

    @pytest.mark.parametrize("model_class", [UniLMModel, UniLMForMaskedLM, UniLMForConditionalGeneration])
    def test_a_batch_that_mixes_modes_without_lengths(self, model_class):
        with pytest.raises(ValueError, match=r"`lm_mode` 3 .seq2seq. needs `source_lengths`"):
            model(model_class)(ROWS, attention_mask=MASKS, lm_mode=torch.tensor([3, 0]))

    def test_modes_that_are_no_tensor(self):
        with pytest.raises(TypeError, match="`lm_mode` must be a tensor"):
            model()(ROWS, attention_mask=MASKS, lm_mode=3, source_lengths=LENGTHS)

    @pytest.mark.parametrize("model_class", [UniLMModel, UniLMForMaskedLM, UniLMForConditionalGeneration])
    @pytest.mark.parametrize("types", [None, OWN_TYPES])
    def test_a_table_of_two_types(self, model_class, types):
        small = model(model_class, type_vocab_size=2)
        with pytest.raises(ValueError, match=r"`type_vocab_size` is 2.*convert unilm"):
            small(
                ROWS,
                attention_mask=MASKS,
                token_type_ids=types,
                lm_mode=torch.tensor([3, 3]),
                source_lengths=LENGTHS,
            )
        own = model(model_class, type_vocab_size=2, source_type_id=0, target_type_id=1)
        own(ROWS, attention_mask=MASKS, lm_mode=torch.tensor([3, 3]), source_lengths=LENGTHS)

    @pytest.mark.parametrize(("mode", "rows"), [(3, 5), (1, 2)])
    def test_a_table_too_small_to_generate(self, mode, rows):
        with pytest.raises(ValueError, match=rf"`type_vocab_size` must be above .* got {rows}"):
            model(type_vocab_size=rows).generate(torch.tensor([[CLS, 7, SEP]]), lm_mode=mode, max_new_tokens=2)

    @pytest.mark.parametrize("mask_token_id", [None, 40, -1])
    def test_a_model_without_a_mask_token(self, mask_token_id):
        with pytest.raises(ValueError, match=r"`config.mask_token_id` must be the tokenizer's \[MASK\]"):
            model(mask_token_id=mask_token_id).generate(torch.tensor([[CLS, 7, SEP]]), max_new_tokens=2)

    def test_a_source_longer_than_the_positions(self):
        long = torch.full((1, 33), 7)
        for call in (
            lambda: model()(long, source_lengths=torch.tensor([33])),
            lambda: model().generate(long, max_new_tokens=1),
            lambda: model().generate(long, max_new_tokens=1, search_beam_size=2),
        ):
            with pytest.raises(ValueError, match="`max_position_embeddings`"):
                call()
