"""BART batches: noises one by one and in order, any tokenizer's full stops, words, targets, options."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
from transformers import BartTokenizerFast, BertTokenizerFast, PreTrainedTokenizerFast

from hf_ptm_ext.collators import DataCollatorForTextInfilling
from hf_ptm_ext.data import embedded_corpus, train_wordpiece

PAD, UNK, CLS, SEP, MASK, STOP = range(6)
VOCAB = {"[PAD]": PAD, "[UNK]": UNK, "[CLS]": CLS, "[SEP]": SEP, "[MASK]": MASK, ".": STOP, "。": 6}
VOCAB |= {f"w{i}": i for i in range(10, 200)} | {f"##w{i}": i for i in range(200, 300)}
QUIET = {"mask_ratio": 0.0, "permute_sentence_ratio": 0.0}


@pytest.fixture
def make():
    def build(padding_side="right", **options):
        tokenizer = BertTokenizerFast(vocab=VOCAB, padding_side=padding_side)
        options = {"seed": 0, "return_tensors": "np", "mask_random_ratio": 0.0, **options}
        return DataCollatorForTextInfilling(tokenizer, **options)

    return build


def text(count, first=10):
    return [CLS, *range(first, first + count), SEP]


class TestSingleNoises:
    def test_token_masking(self, make):
        batch = make(mask_length="subword", permute_sentence_ratio=0.0)([text(20)] * 50)
        assert batch["input_ids"].shape == (50, 22)
        masked = batch["input_ids"] == MASK
        assert (masked.sum(axis=1) == 6).all()
        assert (batch["input_ids"] == text(20))[~masked].all()

    def test_token_deletion(self, make):
        batch = make(mask_length="subword", replace_length=0, permute_sentence_ratio=0.0)([text(20)] * 50)
        assert batch["input_ids"].shape == (50, 16)
        for row in batch["input_ids"]:
            assert row[0] == CLS
            assert row[-1] == SEP
            assert (np.diff(row[1:-1]) > 0).all()

    def test_document_rotation(self, make):
        batch = make(**QUIET, rotate_ratio=1.0)([text(5)] * 50)
        bodies = {tuple(row[1:-1]) for row in batch["input_ids"]}
        assert bodies == {tuple(10 + (i + r) % 5 for i in range(5)) for r in range(5)}

    def test_sentence_permutation(self, make):
        row = [CLS, 10, STOP, 20, 21, STOP, 30, 31, 32, STOP, SEP]
        batch = make(mask_ratio=0.0)([row] * 200)
        sentences = ([10, STOP], [20, 21, STOP], [30, 31, 32, STOP])
        orders = {tuple(ids) for ids in batch["input_ids"]}
        assert len(orders) == 6
        for order in orders:
            split = re.findall(r"[^5]*5", "".join(str(i // 10 if i >= 10 else i) for i in order[1:-1]))
            assert sorted(split) == sorted("".join(str(i // 10 if i >= 10 else i) for i in part) for part in sentences)

    def test_insertion(self, make):
        batch = make(**QUIET, insert_ratio=0.2)([text(8)] * 50)
        assert batch["input_ids"].shape == (50, 12)  # ceil(10 * 0.2)
        for row in batch["input_ids"]:
            assert row[row != MASK].tolist() == text(8)

    @pytest.mark.parametrize("length", ["span-poisson", "word"])
    def test_whole_words_are_covered(self, make, length):
        """Words of two pieces, w10 ##w200: no piece stays without its other."""
        row = [CLS, *(i for pair in zip(range(10, 40), range(200, 230), strict=True) for i in pair), SEP]
        for ids in make(mask_length=length, permute_sentence_ratio=0.0)([row] * 30)["input_ids"]:
            rest = ids[(ids >= 10)].tolist()
            assert rest[1::2] == [first + 190 for first in rest[::2]]
            if length == "word":
                assert (ids == MASK).sum() == 9
                assert len(rest) == 42

    def test_one_mask_for_each_token(self, make):
        batch = make(replace_length=-1, permute_sentence_ratio=0.0)([text(40)] * 50)
        zero_lengths = batch["attention_mask"].sum(axis=1) - 42
        assert zero_lengths.max() > 0
        for ids, extra in zip(batch["input_ids"], zero_lengths, strict=True):
            assert (ids == MASK).sum() - extra <= 12
            assert (ids >= 10).sum() >= 28

    def test_random_ids_in_place_of_masks(self, make):
        ids = make(mask_random_ratio=1.0, permute_sentence_ratio=0.0, first_random_id=250)(
            [[CLS, *[10] * 50, SEP]] * 40
        )
        noisy = ids["input_ids"][ids["input_ids"] > 10]
        assert len(noisy)
        assert noisy.min() >= 250
        assert not (ids["input_ids"] == MASK).any()

    def test_share_of_random_ids(self, make):
        options = {"mask_length": "subword", "permute_sentence_ratio": 0.0, "mask_random_ratio": 0.1}
        ids = make(**options, first_random_id=250)([text(100)] * 400)["input_ids"]
        random = (ids >= 250).sum()
        total = 30 * 400
        assert (ids == MASK).sum() + random == total
        assert random / total == pytest.approx(0.1, abs=5 * np.sqrt(0.09 / total))


class TestTargets:
    def test_the_target_is_the_text_shifted_behind_the_end_token(self, make):
        rows = [text(12), text(5, 60)]
        batch = make()(rows)
        assert batch["labels"].tolist() == [rows[0], rows[1] + [-100] * 7]
        assert batch["decoder_input_ids"].tolist() == [[SEP, *rows[0][:-1]], [SEP, *rows[1], *[PAD] * 6]]
        assert make(decoder_start_token_id=9)(rows)["decoder_input_ids"][0, 0] == 9

    def test_left_padding_is_the_encoders_only(self, make):
        rows = [text(12), text(5, 60)]
        left, right = make("left")(rows), make("right")(rows)
        assert (left["labels"] == right["labels"]).all()
        for a, b in zip(left["input_ids"], right["input_ids"], strict=True):
            assert a[a != PAD].tolist() == b[b != PAD].tolist()
        assert left["attention_mask"][1, -1] == right["attention_mask"][1, 0] == 1

    def test_rows_without_text_come_back_as_they_are(self, make):
        batch = make(rotate_ratio=1.0)([[CLS, SEP], text(8), [CLS]])
        assert batch["input_ids"][0, :2].tolist() == [CLS, SEP]
        assert batch["input_ids"][2, :1].tolist() == [CLS]
        assert batch["attention_mask"].sum(axis=1)[[0, 2]].tolist() == [2, 1]

    def test_rows_without_special_tokens(self, make):
        batch = make(**QUIET, rotate_ratio=1.0)([[10, 11, 12]] * 40)
        assert {tuple(row) for row in batch["input_ids"]} == {(10, 11, 12), (11, 12, 10), (12, 10, 11)}

    @settings(max_examples=60, deadline=None)
    @given(
        st.lists(st.integers(0, 60), min_size=1, max_size=5),
        st.floats(0, 1),
        st.floats(0, 1),
        st.sampled_from(["span-poisson", "word", "subword"]),
        st.integers(0, 2**20),
    )
    def test_what_is_not_masked_is_the_text(self, sizes, ratio, permute, length, seed):
        collator = DataCollatorForTextInfilling(
            BertTokenizerFast(vocab=VOCAB),
            mask_ratio=ratio,
            permute_sentence_ratio=permute,
            mask_length=length,
            mask_random_ratio=0.0,
            seed=seed,
            return_tensors="np",
        )
        rng = np.random.default_rng(seed)
        rows = [[CLS, *rng.choice([STOP, *range(10, 300)], n).tolist(), SEP] for n in sizes]
        batch = collator(rows)
        for row, ids, mask in zip(rows, batch["input_ids"], batch["attention_mask"], strict=True):
            ids = ids[mask == 1]
            assert ids[0] == CLS
            assert ids[-1] == SEP
            rest = ids[ids != MASK].tolist()
            for token in set(rest):
                assert rest.count(token) <= row.count(token)
            if not ratio:
                assert sorted(rest) == sorted(row)


class TestTokenizers:
    def sentences_move(self, tokenizer, line):
        collator = DataCollatorForTextInfilling(tokenizer, mask_ratio=0.0, seed=0, return_tensors="np")
        row = tokenizer(line)["input_ids"]
        got = {
            tokenizer.decode(ids, skip_special_tokens=True).replace(" ", "")
            for ids in collator([row] * 40)["input_ids"]
        }
        return got

    def test_gpt2_byte_level_with_the_mark_of_a_space(self):
        vocab = {token: i for i, token in enumerate(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])}
        for piece in [*sorted(pre_tokenizers.ByteLevel.alphabet())]:
            vocab.setdefault(piece, len(vocab))
        tokenizer = BartTokenizerFast(vocab=vocab, merges=[])
        assert self.sentences_move(tokenizer, "a.b.") == {"a.b.", "b.a."}

    def test_wordpiece_of_chinese(self):
        tokenizer = train_wordpiece([["猫坐。狗跑。"]] * 2, vocab_size=60)
        assert self.sentences_move(tokenizer, "猫坐。狗跑。") == {"猫坐。狗跑。", "狗跑。猫坐。"}

    def test_metaspace(self):
        backend = Tokenizer(models.Unigram())
        backend.pre_tokenizer = pre_tokenizers.Metaspace()
        special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
        trainer = trainers.UnigramTrainer(vocab_size=30, special_tokens=special, unk_token="<unk>")
        backend.train_from_iterator(["a cat . a dog runs . "] * 20, trainer)
        backend.post_processor = processors.TemplateProcessing(
            single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
        )
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=backend,
            bos_token="<s>",
            pad_token="<pad>",
            eos_token="</s>",
            unk_token="<unk>",
            mask_token="<mask>",
        )
        assert "▁." in tokenizer.get_vocab() or "." in tokenizer.get_vocab()
        decoded = self.sentences_move(tokenizer, "a cat . dog runs .")
        assert {text.replace("▁", "") for text in decoded} == {"acat.dogruns.", "dogruns.acat."}

    def test_question_marks_on_request(self, make):
        vocab = VOCAB | {"?": 7}
        collator = DataCollatorForTextInfilling(
            BertTokenizerFast(vocab=vocab), mask_ratio=0.0, full_stops=(".", "?"), seed=0, return_tensors="np"
        )
        got = {tuple(row) for row in collator([[CLS, 10, 7, 11, STOP, SEP]] * 30)["input_ids"]}
        assert got == {(CLS, 10, 7, 11, STOP, SEP), (CLS, 11, STOP, 10, 7, SEP)}

    def test_real_chinese_text_is_shuffled(self):
        documents = embedded_corpus("zh")[:40]
        tokenizer = train_wordpiece(documents, vocab_size=2000)
        collator = DataCollatorForTextInfilling(tokenizer, seed=0, return_tensors="np")
        rows = [tokenizer("".join(document), truncation=True, max_length=128)["input_ids"] for document in documents]
        batch = collator(rows)
        masks = (batch["input_ids"] == tokenizer.mask_token_id).sum(axis=1)
        assert (masks > 0).mean() > 0.9
        shuffled = DataCollatorForTextInfilling(tokenizer, mask_ratio=0.0, seed=0, return_tensors="np")(rows)
        assert (shuffled["input_ids"] != np.where(shuffled["labels"] < 0, 0, shuffled["labels"])).any(
            axis=1
        ).mean() > 0.5

    def test_no_full_stop_is_an_error(self):
        vocab = {piece: index for piece, index in VOCAB.items() if piece not in ".。"}
        with pytest.raises(ValueError, match="`full_stops` must be tokens of the vocabulary"):
            DataCollatorForTextInfilling(BertTokenizerFast(vocab=vocab))
        DataCollatorForTextInfilling(BertTokenizerFast(vocab=vocab), permute_sentence_ratio=0.0)


class TestWordColumn:
    def test_words_of_the_column_move_with_their_sentences(self, make):
        """Words 0 = (10, 11), 1 = (12 .), 2 = (20, 21 .) by the column alone."""
        row = {"input_ids": [CLS, 10, 11, 12, STOP, 20, 21, STOP, SEP], "word_ids": [-1, 0, 0, 1, 1, 2, 2, 2, -1]}
        batch = make(word_boundaries="column", mask_length="word", mask_ratio=0.3)([row] * 200)
        seen = set()
        for ids in batch["input_ids"]:
            left = frozenset(ids[(ids >= 10) | (ids == STOP)].tolist())
            seen.add(left)
            assert (ids == MASK).sum() == 1
        assert seen == {
            frozenset({12, 20, 21, STOP}),
            frozenset({10, 11, 20, 21, STOP}),
            frozenset({10, 11, 12, STOP}),
        }

    def test_the_column_is_missed(self, make):
        collator = make(word_boundaries="column")
        with pytest.raises(
            ValueError, match=r"`word_ids` must be a column of every feature.*remove_unused_columns=False"
        ):
            collator([text(5)])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mask_ratio": 1.2}, "`mask_ratio`"),
        ({"mask_length": "poisson"}, "`mask_length`"),
        ({"poisson_lambda": 0.0}, "`poisson_lambda`"),
        ({"replace_length": 2}, "`replace_length`"),
        ({"insert_ratio": -0.1}, "`insert_ratio`"),
        ({"rotate_ratio": 2.0}, "`rotate_ratio`"),
        ({"word_boundaries": "words"}, "`word_boundaries`"),
        ({"full_stops": ["!"]}, "`full_stops`"),
    ],
)
def test_wrong_options_are_named(make, options, message):
    with pytest.raises(ValueError, match=message):
        make(**options)
