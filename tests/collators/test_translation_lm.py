"""XLM's sentence pairs: layout, positions, languages, which tokens are chosen, missing languages."""

import numpy as np
import pytest
from transformers import BertTokenizerFast

from hf_ptm_ext.collators import DataCollatorForTranslationLanguageModeling

PAD, UNK, CLS, SEP, MASK = range(5)
VOCAB = {"[PAD]": PAD, "[UNK]": UNK, "[CLS]": CLS, "[SEP]": SEP, "[MASK]": MASK} | {f"w{i}": i for i in range(5, 100)}
PAIR = {"source_ids": [10, 11], "target_ids": [20, 21, 22]}


@pytest.fixture
def make():
    def build(padding_side="right", **options):
        tokenizer = BertTokenizerFast(vocab=VOCAB, padding_side=padding_side)
        options = {"languages": (0, 1), "seed": 0, "return_tensors": "np", **options}
        return DataCollatorForTranslationLanguageModeling(tokenizer, **options)

    return build


class TestLayout:
    def test_positions_restart_and_languages_follow_the_sentences(self, make):
        batch = make(mlm_probability=0.0, languages=(3, 5))([PAIR, {"source_ids": [12], "target_ids": []}])
        assert batch["input_ids"].tolist() == [
            [CLS, 10, 11, SEP, CLS, 20, 21, 22, SEP],
            [CLS, 12, SEP, CLS, SEP, *[PAD] * 4],
        ]
        assert batch["position_ids"].tolist() == [[0, 1, 2, 3, 0, 1, 2, 3, 4], [0, 1, 2, 0, 1, 0, 0, 0, 0]]
        assert batch["langs"].tolist() == [[3] * 4 + [5] * 5, [3] * 3 + [5] * 2 + [0] * 4]
        assert batch["attention_mask"].tolist() == [[1] * 9, [1] * 5 + [0] * 4]
        assert set(batch) == {"input_ids", "attention_mask", "position_ids", "langs", "labels"}

    def test_both_ways_of_tokenising(self, make):
        whole = {"input_ids": [CLS, 10, 11, SEP, PAD], "labels": [CLS, 20, 21, 22, SEP, -100], "langs": [0, 1]}
        for name, values in make()([PAIR]).items():
            assert (make()([whole])[name] == values).all(), name

    def test_left_padding(self, make):
        batch = make("left", mlm_probability=0.0)([PAIR, {"source_ids": [12], "target_ids": []}])
        assert batch["position_ids"][1].tolist() == [0, 0, 0, 0, 0, 1, 2, 0, 1]
        assert batch["attention_mask"][1].tolist() == [0] * 4 + [1] * 5

    def test_other_columns_of_a_row_are_kept(self, make):
        batch = make()([PAIR | {"sample_id": 7, "token_type_ids": [0] * 4}, PAIR | {"sample_id": 8}])
        assert batch["sample_id"].tolist() == [7, 8]
        with pytest.raises(ValueError, match="`sample_id` must be in every feature, row 1 has none"):
            make()([PAIR | {"sample_id": 7}, PAIR])


class TestChoice:
    def test_any_token_but_the_first_of_the_row(self, make):
        batch = make(mlm_probability=1.0)([PAIR, {"source_ids": [12], "target_ids": []}])
        chosen = batch["labels"] != -100
        assert chosen.tolist() == [[False] + [True] * 8, [False] + [True] * 4 + [False] * 4]
        chosen = make("left", mlm_probability=1.0)([PAIR, {"source_ids": [12], "target_ids": []}])["labels"] != -100
        assert chosen[1].tolist() == [False] * 5 + [True] * 4

    def test_shares_and_fates(self, make):
        rows = [{"source_ids": [10] * 30, "target_ids": [20] * 30}] * 500
        batch = make()(rows)
        chosen = batch["labels"] != -100
        count = 500 * 63
        assert chosen.sum() / count == pytest.approx(0.15, abs=5 * np.sqrt(0.15 * 0.85 / count))
        noisy = batch["input_ids"][chosen]
        for got, expected in (
            ((noisy == MASK).mean(), 0.8 + 0.1 / 100),
            ((noisy == batch["labels"][chosen]).mean(), 0.1 + 0.1 / 100),
        ):
            assert got == pytest.approx(expected, abs=5 * np.sqrt(expected * (1 - expected) / chosen.sum()))

    def test_weights_by_frequency(self, make):
        """alpha = 1: a token with a hundredth of the count is drawn first; the number is exact."""
        counts = np.zeros(100, dtype=int)
        counts[10], counts[20] = 10_000, 100
        batch = make(sample_alpha=1.0, token_counts=counts)([{"source_ids": [10] * 36, "target_ids": [20] * 20}] * 50)
        chosen = batch["labels"] != -100
        assert chosen.sum() == 450  # ceil(0.15 * 60 * 50)
        rare = (batch["labels"] == 20).sum()
        assert rare > 0.95 * 450
        assert set(batch["labels"][chosen]) <= {10, 20}

    def test_weights_need_counts(self, make):
        with pytest.raises(ValueError, match="`token_counts` must be given with `sample_alpha`"):
            make(sample_alpha=0.5)
        with pytest.raises(ValueError, match="`token_counts` must have one count per id, 100"):
            make(sample_alpha=0.5, token_counts=[1, 2])
        with pytest.raises(ValueError, match="`sample_alpha` must not be negative"):
            make(sample_alpha=-1.0)


class TestLanguages:
    def test_a_column_goes_before_the_option(self, make):
        batch = make(language_ids={"en": 0, "de": 4, "zh": 7})(
            [PAIR | {"langs": ["zh", "de"]}, PAIR | {"langs": [1, 2]}]
        )
        assert batch["langs"].tolist() == [[7] * 4 + [4] * 5, [1] * 4 + [2] * 5]

    def test_codes_of_the_tokenizer(self):
        tokenizer = BertTokenizerFast(vocab=VOCAB)
        tokenizer.lang2id = {"en": 1, "fr": 2}  # as XLM's tokenizers have it
        collator = DataCollatorForTranslationLanguageModeling(tokenizer, languages=("en", "fr"), seed=0)
        assert collator([PAIR])["langs"].tolist() == [[1] * 4 + [2] * 5]
        with pytest.raises(ValueError, match=r"`languages` must be known languages, got 'xx' of \['en', 'fr'\]"):
            DataCollatorForTranslationLanguageModeling(tokenizer, languages=("en", "xx"))

    def test_a_row_without_languages(self, make):
        with pytest.raises(ValueError, match="`langs` must say the languages of source and target, row 1 has none"):
            make(languages=None)([PAIR | {"langs": [0, 1]}, PAIR])

    @pytest.mark.parametrize("langs", [[0], [0, 1, 2], [0, -1], ["en", "zh"], [0.5, 1.0]])
    def test_wrong_languages(self, make, langs):
        with pytest.raises(ValueError, match="`langs` of row 0 must be"):
            make()([PAIR | {"langs": langs}])

    def test_missing_columns_name_the_trainers_switch(self, make):
        with pytest.raises(ValueError, match=r"`target_ids` must be in every feature.*remove_unused_columns=False"):
            make()([{"source_ids": [10], "langs": [0, 1]}])
        with pytest.raises(ValueError, match="must have no special tokens at the ends"):
            make()([{"source_ids": [CLS, 10, SEP], "target_ids": [20]}])
