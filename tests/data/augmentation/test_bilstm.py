"""Distilled-BiLSTM's augmentation: the paper's probabilities, n-grams and pairs."""

import random

import pytest
from datasets import Dataset

from hf_ptm_ext.data.augmentation import DistilledBiLstmAugmentation, augment

WORDS = [f"{a}{b}" for a in "bcdfg" for b in "aeiou"]


def tagger(words):
    """One class for each first letter."""
    return [word[0] for word in words]


def augmentation(**options):
    return DistilledBiLstmAugmentation(tagger=tagger, **options).fit([" ".join(WORDS)])


def test_words_are_masked_and_exchanged_with_the_paper_s_probabilities():
    made = augmentation(ngram_probability=0.0)
    trials, masked, exchanged = 2000, 0, 0
    for number in range(trials):
        words = made.change(WORDS, tagger(WORDS), random.Random(number)).replace("[MASK]", "?").split()
        assert len(words) == len(WORDS)
        for old, new in zip(WORDS, words, strict=True):
            assert new == "?" or new[0] == old[0], "of the same part of speech"
            masked += new == "?"
            exchanged += new not in ("?", old)
    total = trials * len(WORDS)
    assert abs(masked / total - 0.1) < 4 * (0.09 / total) ** 0.5
    other = 0.1 * 4 / 5  # one draw in five is the word itself
    assert abs(exchanged / total - other) < 4 * (other / total) ** 0.5


def test_a_quarter_is_cut_to_one_of_five_n_grams_where_asked():
    plain = augmentation(mask_probability=0.0, pos_probability=0.0)
    assert {plain.change(WORDS, tagger(WORDS), random.Random(n)) for n in range(200)} == {" ".join(WORDS)}
    made = augmentation(mask_probability=0.0, pos_probability=0.0, ngram_probability=0.25)
    trials = 8000
    lengths = [0] * 6
    starts = set()
    for number in range(trials):
        words = made.change(WORDS, tagger(WORDS), random.Random(number)).split()
        if len(words) < len(WORDS):
            lengths[len(words)] += 1
            start = WORDS.index(words[0])
            assert words == WORDS[start : start + len(words)]
            starts.add(start)
    assert abs(sum(lengths) / trials - 0.25) < 4 * (0.1875 / trials) ** 0.5
    for count in lengths[1:]:
        assert abs(count / trials - 0.05) < 4 * (0.0475 / trials) ** 0.5
    assert starts == set(range(len(WORDS)))


def test_pairs_change_the_first_the_second_and_both_in_turn():
    made = augmentation(variants=3, mask_probability=1.0, pos_probability=0.0, ngram_probability=0.0)
    row = ("ba be", "ca ce")
    masked = "[MASK] [MASK]"
    assert made.rows([row], [random.Random(0)])[0] == [row, (masked, row[1]), (row[0], masked), (masked, masked)]
    assert made.rows([row[:1]], [random.Random(0)]) == [[row[:1]]], "a text of which no word stayed is dropped"
    with pytest.raises(ValueError, match="one or two, got 3"):
        made.rows([("a", "b", "c")], [random.Random(0)])


def test_twenty_draws_for_a_text_and_ten_for_a_pair_without_repetitions():
    made = augmentation()
    text = " ".join(WORDS)
    (single,) = made.rows([(text,)], [random.Random(0)])
    (pair,) = made.rows([(text, text)], [random.Random(0)])
    assert single[0] == (text,)
    assert 15 < len(single) == len(set(single)) <= 21
    assert 8 < len(pair) == len(set(pair)) <= 11
    assert made.rows([("",)], [random.Random(0)]) == [[("",)]]
    assert made.rows([("ba",)], [random.Random(0)])[0][0] == ("ba",)


def test_a_data_set_of_pairs_and_a_chinese_one():
    pairs = Dataset.from_dict({"a": ["ba be bi"] * 2, "b": ["ca ce ci"] * 2, "label": [0, 1]})
    more = augment(pairs, augmentation(), ("a", "b"), seed=1)
    assert more[0] == pairs[0]
    first = [row for row in more if row["label"] == 0]
    second = [row for row in more if row["label"] == 1]
    assert [(r["a"], r["b"]) for r in first] != [(r["a"], r["b"]) for r in second], "draws are a row's own"
    assert list(augment(pairs.to_iterable_dataset(), augmentation(), ("a", "b"), seed=1, batch_size=1)) == list(more)
    chinese = Dataset.from_dict({"text": ["这部电影很好看，推荐！", "服务太差了。"]})
    made = DistilledBiLstmAugmentation("[MASK]").fit(chinese["text"])
    texts = augment(chinese, made, "text")["text"]
    assert len(texts) > 20
    assert all("[MASK]" in text or " " not in text for text in texts)


def d_bert_port(texts, tags, draws, generator):
    """augment_data.py at its defaults (mask 0.1, part of speech 0.1, no windows), words split at spaces."""
    same_tag = {}
    for text in texts:
        for word, tag in zip(text.split(), tags(text.split()), strict=True):
            same_tag.setdefault(tag, []).append(word)
    known, variants = {" ".join(text.split()) for text in texts}, []
    for text in texts:
        variants.append([])
        for _ in range(draws):
            words, all_replaced = [], True
            for word, tag in zip(text.split(), tags(text.split()), strict=True):
                roll = generator.random()
                if roll < 0.1:
                    word = "[MASK]"
                elif roll < 0.2:
                    word = generator.choice(same_tag[tag])
                else:
                    all_replaced = False
                words.append(word)
            if not all_replaced and " ".join(words) not in known:
                known.add(" ".join(words))
                variants[-1].append(" ".join(words))
    return variants


def test_a_data_set_grows_as_d_berts_at_its_defaults():
    texts = ["ba be", "ba bi", "ba be", "ca ce ci co", "ba"]
    draws, trials = 20, 100
    ours, theirs = [0] * len(texts), [0] * len(texts)
    for seed in range(trials):
        made = DistilledBiLstmAugmentation(tagger=tagger).fit(texts)
        rows = augment(Dataset.from_dict({"text": texts, "row": list(range(len(texts)))}), made, "text", seed=seed)
        found = [[row["text"] for row in rows if row["row"] == number] for number in range(len(texts))]
        assert [each[0] for each in found] == texts
        variants = [text for each in found for text in each[1:]]
        assert len(variants) == len(set(variants)), "over the whole corpus"
        assert not set(variants) & {*texts, "[MASK] [MASK]", "[MASK]"}
        for number, each in enumerate(d_bert_port(texts, tagger, draws, random.Random(seed))):
            theirs[number] += len(each)
            ours[number] += len(found[number]) - 1
    assert theirs[0] > 2 * theirs[2]
    assert theirs[4] == 0
    for mine, other in zip(ours, theirs, strict=True):
        assert mine / trials == pytest.approx(other / trials, rel=0.15, abs=0.2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mask_probability": 1.1}, "mask_probability"),
        ({"mask_probability": 0.6, "pos_probability": 0.6}, "at most 1"),
        ({"variants": 0}, "variants"),
        ({"max_ngram": 0}, "max_ngram"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        DistilledBiLstmAugmentation(**options)
