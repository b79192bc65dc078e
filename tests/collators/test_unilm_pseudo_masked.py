"""s2s-ft's pseudo-masked input: assembly, corruption, and the model's loss, which is that of all targets at once."""

import numpy as np
import pytest
import torch

from hf_ptm_ext import DataCollatorForUniLMSeq2Seq, UniLMConfig, UniLMForConditionalGeneration

CLS, SEP, PAD, MASK = 2, 3, 0, 4


@pytest.fixture
def make(wordpiece):
    def build(**options):
        return DataCollatorForUniLMSeq2Seq(wordpiece, **({"seed": 0, "pseudo_masked": True} | options))

    return build


def row(source, target):
    return {"source_ids": list(source), "target_ids": list(target)}


def test_the_row_is_source_target_and_a_pseudo_token_for_each_of_the_target(make):
    batch = make(mask_replace_prob=1.0, random_replace_prob=0.0, target_mask_prob=0.0)(
        [row([9, 10, SEP, 11], [12, 13]), row([], [14])]
    )
    assert batch["input_ids"].tolist() == [
        [CLS, 9, 10, SEP, 11, SEP, 12, 13, SEP, MASK, MASK, MASK],
        [CLS, SEP, 14, SEP, MASK, MASK] + [PAD] * 6,
    ]
    assert batch["labels"].tolist() == [[-100] * 9 + [12, 13, SEP], [-100] * 4 + [14, SEP] + [-100] * 6]
    assert batch["token_type_ids"].tolist() == [[4] * 6 + [5] * 6, [4, 4, 5, 5, 5, 5] + [0] * 6]
    assert batch["lm_mode"].tolist() == [3, 3]
    assert batch["source_lengths"].tolist() == [6, 2]
    assert batch["pseudo_lengths"].tolist() == [3, 2]


def test_an_empty_target_still_teaches_to_end(make):
    batch = make()([row([9], [])])
    assert batch["labels"].tolist() == [[-100] * 4 + [SEP]]


def test_truncation_counts_the_special_tokens(make):
    options = {"mask_replace_prob": 1.0, "random_replace_prob": 0.0, "target_mask_prob": 0.0}
    batch = make(max_source_length=5, max_target_length=3, **options)([row(range(9, 19), range(20, 30))])
    assert batch["input_ids"].tolist() == [[CLS, 9, 10, 11, SEP, 20, 21, SEP, MASK, MASK, MASK]]
    assert make(max_target_length=1)([row([9], [20])])["labels"].tolist() == [[-100] * 4 + [SEP]]
    plain = make(pseudo_masked=False, max_source_length=5, max_target_length=3)([row(range(9, 19), range(20, 30))])
    assert plain["source_lengths"].tolist() == [5]
    assert plain["input_ids"].shape == (1, 8)
    # `max_len` bounds positions, which the pseudo tokens share with the target.
    batch = make(max_len=12)([row(range(9, 19), range(20, 24))])
    assert batch["source_lengths"].tolist() == [7]
    assert batch["input_ids"].shape == (1, 7 + 5 + 5)


@pytest.mark.parametrize("padding_side", ["right", "left"])
def test_fates(wordpiece, padding_side):
    """0.8/0.1/0.1 for pseudo tokens; a target token stays or becomes its own pseudo token; the source stays."""
    wordpiece.padding_side = padding_side
    try:
        collator = DataCollatorForUniLMSeq2Seq(wordpiece, seed=0, pseudo_masked=True)
        rows = [row(range(10, 10 + n % 7), range(40, 60 + n % 5)) for n in range(600)]
        batch = collator(rows)
    finally:
        wordpiece.padding_side = "right"
    masked = kept = copied = changed = total = 0
    for feature, ids, mask in zip(rows, batch["input_ids"], batch["attention_mask"], strict=True):
        source, target = feature["source_ids"], [*feature["target_ids"], SEP]
        text = ids[mask.bool()].tolist()
        assert text[: len(source) + 2] == [CLS, *source, SEP]
        given, pseudo = np.split(np.array(text[len(source) + 2 :]), 2)
        target = np.array(target)
        assert ((given == target) | (given == pseudo)).all()
        masked += (pseudo == MASK).sum()
        kept += (pseudo == target).sum()
        copied += ((given == pseudo) & (pseudo != target)).sum()
        changed += (pseudo != target).sum()
        total += len(target)

    def within(count, of, probability):
        """Five standard deviations of a binomial."""
        return abs(count / of - probability) < 5 * np.sqrt(probability * (1 - probability) / of)

    vocabulary = len(wordpiece)
    assert within(masked, total, 0.8 + 0.1 / vocabulary)
    assert within(kept, total, 0.1 + 0.1 / vocabulary)
    assert within(copied, changed, 0.5)


def test_source_words_can_be_corrupted_without_a_label(make):
    rows = [row([*range(10, 40), SEP, 41], [50, 51])] * 200
    batch = make(source_mask_prob=0.3, mask_replace_prob=1.0, random_replace_prob=0.0)(rows)
    source = batch["input_ids"][:, :34]
    assert (batch["labels"][:, :34] == -100).all()
    assert (source[:, [0, 31, 33]] == torch.tensor([CLS, SEP, SEP])).all()
    share = (source == MASK).float().sum() / (31 * 200)
    assert abs(share - 0.3) < 5 * (0.3 * 0.7 / (31 * 200)) ** 0.5
    assert ((source == MASK) | (source == torch.tensor([CLS, *range(10, 40), SEP, 41, SEP]))).all()


def test_seeds_and_label_positions(make):
    rows = [row([9, 10], range(20, 29)), row([9], [20])]
    first, again, other = (make(seed=seed, label_budget=12)(rows) for seed in (0, 0, 1))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["input_ids"], other["input_ids"])
    assert (first["labels"].gather(1, first["label_positions"]) != -100).sum(1).tolist() == [10, 2]


class TestModel:
    @pytest.fixture
    def model(self):
        torch.manual_seed(0)
        config = UniLMConfig(
            vocab_size=149,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=64,
            max_position_embeddings=16,
            mask_token_id=MASK,
            eos_token_id=SEP,
            initializer_range=0.2,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
        return UniLMForConditionalGeneration(config)

    ROWS = (row([9, 10, 11, 12], [20, 21, 22, 23, 24]), row([], [30]), row([15], [31, 32]))

    @pytest.mark.parametrize("smoothing", [0.0, 0.1])
    @pytest.mark.parametrize("attention", ["eager", "sdpa"])
    def test_one_pass_is_one_masked_row_for_every_target_token(self, make, model, smoothing, attention):
        """Clean targets: each pseudo token predicts what a [MASK] behind the text before it does in plain seq2seq."""
        model.config.label_smoothing = smoothing
        model.set_attn_implementation(attention)
        options = {"mask_replace_prob": 1.0, "random_replace_prob": 0.0, "target_mask_prob": 0.0}
        batch = make(**options)(self.ROWS)
        sums, count = 0.0, 0
        for feature in self.ROWS:
            source = [CLS, *feature["source_ids"], SEP]
            target = [*feature["target_ids"], SEP]
            for place, word in enumerate(target):
                ids = torch.tensor([[*source, *target[:place], MASK]])
                labels = torch.full_like(ids, -100)
                labels[0, -1] = word
                loss = model(ids, source_lengths=torch.tensor([len(source)]), labels=labels).loss
                sums, count = sums + loss.item() * (1 + 1e-5), count + 1
        for training in (True, False):
            loss = model.train(training)(**batch).loss
            assert loss.item() == pytest.approx(sums / (count + 1e-5), abs=1e-5)

    def test_learning_and_more_tokens_than_positions(self, make, model):
        """19 tokens in a row, 13 positions of 16; and the loss falls."""
        rows = [row([9, 10, 11, 12], [20, 21, 22, 23, 24, 25])]
        collator = make()
        assert collator(rows)["input_ids"].shape == (1, 20)
        optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
        losses = []
        for _ in range(40):
            loss = model.train()(**collator(rows)).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        assert sum(losses[-5:]) < 0.2 * sum(losses[:5])
        answer = model.eval().generate(torch.tensor([[CLS, 9, 10, 11, 12, SEP]]), max_new_tokens=7, do_sample=False)
        assert answer[0, 6:].tolist() == [20, 21, 22, 23, 24, 25, SEP]

    def test_other_lengths_than_the_rows_have_are_refused(self, make, model):
        batch = make()(self.ROWS)
        for name, value, message in (
            ("pseudo_lengths", batch["pseudo_lengths"] + 1, "`source_lengths` . 2 m tokens"),
            ("source_lengths", batch["source_lengths"] + 1, "`source_lengths` . 2 m tokens"),
            ("lm_mode", torch.tensor([3, 1, 3]), "must be 0 where `lm_mode` is not 3"),
            ("source_lengths", None, "`pseudo_lengths` needs `source_lengths`"),
        ):
            with pytest.raises(ValueError, match=message):
                model(**{**batch, name: value})
        too_long = make(max_len=40)([row([9] * 8, range(20, 28))])
        with pytest.raises(ValueError, match="`max_position_embeddings` = 16"):
            model(**too_long)
