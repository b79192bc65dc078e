"""What word vectors are used for: look-up, neighbours, measures, training."""

import json
from pathlib import Path

import numpy as np
import pytest
from gensim.models import KeyedVectors
from safetensors.numpy import load_file

from hf_ptm_ext.data.word_vectors import GloVe, WordVectors, glove_cooccurrences, train_word_vectors
from hf_ptm_ext.data.word_vectors.glove import Cooccurrences

GOLDENS = Path(__file__).parents[2] / "goldens"
RANDOM = np.random.default_rng(5)
WORDS = [f"w{number}" for number in range(40)]
TABLE = RANDOM.normal(size=(40, 8)).astype(np.float32)
VECTORS = WordVectors(WORDS, TABLE)


@pytest.fixture(scope="module")
def theirs():
    keyed = KeyedVectors(8)
    keyed.add_vectors(WORDS, TABLE)
    return keyed


def test_unknown_words():
    words = ["w3", "new", "w0"]
    for oov, expected in (("zero", np.zeros(8)), ("mean", TABLE.mean(axis=0)), ("nan", np.full(8, np.nan))):
        found = VECTORS.vectors(words, oov=oov)
        np.testing.assert_allclose(found, [TABLE[3], expected, TABLE[0]], rtol=1e-6)
    drawn = VECTORS.vectors([f"new{number}" for number in range(5000)], oov="normal", seed=3)
    np.testing.assert_allclose(drawn.mean(axis=0), TABLE.mean(axis=0), atol=0.07)
    np.testing.assert_allclose(drawn.std(axis=0), TABLE.std(axis=0), rtol=0.05)
    np.testing.assert_array_equal(drawn[:2], VECTORS.vectors([f"new{n}" for n in range(5000)], "normal", 3)[:2])
    assert VECTORS.vectors([]).shape == (0, 8)
    for call in (lambda: VECTORS.vectors(words), lambda: VECTORS["w41"]):
        with pytest.raises(KeyError, match=r"no vector for '(new|w41)'"):
            call()
    with pytest.raises(ValueError, match=r"`oov` must be one of zero, .*, got 'subword'"):
        VECTORS.vectors(words, oov="subword")


@pytest.mark.parametrize(("plus", "minus"), [(["w1"], []), (["w1", "w2"], ["w3"])])
def test_neighbours_are_those_of_gensim(theirs, plus, minus):
    ours = VECTORS.most_similar(plus, minus, topn=12)
    expected = theirs.most_similar(plus, minus, topn=12)
    assert [word for word, _ in ours] == [word for word, _ in expected]
    np.testing.assert_allclose([score for _, score in ours], [score for _, score in expected], rtol=1e-5)


def test_analogies_are_scored_as_gensim_scores_them(tmp_path):
    base, shift = RANDOM.normal(size=(12, 8)), RANDOM.normal(size=8)
    table = np.concatenate([base, base + shift + 0.3 * RANDOM.normal(size=(12, 8))]).astype(np.float32)
    words = [f"A{n}" for n in range(12)] + [f"b{n}" for n in range(12)]
    lines = [f"a{i} B{i} a{j} b{j}" for i in range(12) for j in range(12) if i != j]
    (tmp_path / "q.txt").write_text(": made\n" + "\n".join(lines) + "\n: other\na1 b1 a2 unknown\na0 a1 a2 a3\n")
    ours = WordVectors(words, table).evaluate_analogies(tmp_path / "q.txt")
    keyed = KeyedVectors(8)
    keyed.add_vectors(words, table)
    accuracy, sections = keyed.evaluate_word_analogies(str(tmp_path / "q.txt"))
    found = {
        each["section"]: (len(each["correct"]), len(each["correct"]) + len(each["incorrect"])) for each in sections
    }
    assert ours.sections == {name: found[name] for name in ("made", "other")}
    assert 0 < ours.accuracy == accuracy < 1
    assert ours.skipped == 1
    (tmp_path / "bad.txt").write_text(": made\na b c\n")
    with pytest.raises(ValueError, match="line 2: four words or `: section` expected"):
        VECTORS.evaluate_analogies(tmp_path / "bad.txt")


def test_similarity_is_spearmans_as_gensim_takes_it(tmp_path, theirs):
    pairs = [(first, second) for second in range(40) for first in range(second)]
    lines = [f"w{pairs[n][0]}\tW{pairs[n][1]}\t{n % 7}" for n in RANDOM.permutation(len(pairs))[:60]]
    (tmp_path / "pairs.tsv").write_text("\n".join([*lines, "w1\tunknown\t3"]) + "\n")
    ours = VECTORS.evaluate_similarity(tmp_path / "pairs.tsv")
    _, spearman, _ = theirs.evaluate_word_pairs(str(tmp_path / "pairs.tsv"))
    assert ours.spearman == pytest.approx(spearman[0], abs=1e-6)
    assert (ours.pairs, ours.skipped) == (60, 1)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "must have lines of two words and a number, got none"),
        ("word other\n", "must have lines of two words and a number, got none"),
        ("w1\tw2\tnan\nw1\tw3\tnan\n", "line 2: two words and a number expected"),
    ],
)
def test_a_file_without_scores_is_told(tmp_path, content, told):
    (tmp_path / "pairs.tsv").write_text(content)
    with pytest.raises(ValueError, match=rf"pairs\.tsv.*{told}"):
        VECTORS.evaluate_similarity(tmp_path / "pairs.tsv")


# ---- GloVe ----

FILES = GOLDENS / "glove-train-a.files"
GOLDEN = json.loads((GOLDENS / "glove-train-a.json").read_text())
TENSORS = load_file(GOLDENS / "glove-train-a.safetensors")


@pytest.mark.golden
def test_glove_counts_as_the_tool_does():
    found = glove_cooccurrences((FILES / "corpus.txt").read_text().splitlines(), window=4, min_count=3)
    assert found.words == GOLDEN["vocab"]
    np.testing.assert_array_equal(found.i + 1, TENSORS["cooc_i"])
    np.testing.assert_array_equal(found.j + 1, TENSORS["cooc_j"])
    expected = TENSORS["cooc_value"].copy()
    expected[0] /= 2  # the tool's own slip on a corpus this small
    np.testing.assert_allclose(found.values, expected, atol=1e-9)


@pytest.mark.golden
def test_glove_trains_as_the_tool_does():
    config = GOLDEN["config"]
    records = Cooccurrences(
        GOLDEN["vocab"],
        np.zeros(13),
        TENSORS["cooc_i"] - 1,
        TENSORS["cooc_j"] - 1,
        TENSORS["cooc_value"],
    )
    options = {name: config[name] for name in ("dim", "eta", "alpha", "x_max")}
    glove = GloVe(**options, iterations=config["iters"], batch_size=1)
    vectors = glove.fit(records, start=TENSORS["initial_parameters"], unknown=True)
    np.testing.assert_allclose(glove.parameters, TENSORS["final_parameters"], rtol=0, atol=1e-9)
    np.testing.assert_allclose(glove.costs, GOLDEN["cost_per_iteration"], atol=5e-7)
    written = WordVectors.load(FILES / "vectors.txt")
    assert vectors.words == written.words
    np.testing.assert_allclose(vectors.table, written.table, atol=6e-7)
    binary = WordVectors.load(FILES / "vectors.bin")
    assert binary.words == written.words[:-1]
    np.testing.assert_allclose(binary.table, vectors.table[:-1], atol=1e-6)


def test_many_records_at_once_train_too():
    texts = (FILES / "corpus.txt").read_text().splitlines()
    records = glove_cooccurrences(texts, min_count=1)
    one, many = GloVe(dim=8, batch_size=1, iterations=10), GloVe(dim=8, batch_size=64, iterations=10)
    assert one.fit(records).words == many.fit(records).words
    assert many.costs[-1] < 0.5 * many.costs[0]
    assert many.costs[-1] < 1.5 * one.costs[-1]


def test_counts_do_not_depend_on_how_many_lines_are_counted_at_once(monkeypatch):
    texts = [" ".join(RANDOM.choice(WORDS, RANDOM.integers(0, 12))) for _ in range(80)]
    whole = glove_cooccurrences(texts, window=3, min_count=1, symmetric=False, distance_weighting=False)
    monkeypatch.setattr("hf_ptm_ext.data.word_vectors.glove._PAIRS_AT_ONCE", 50)
    parts = glove_cooccurrences(texts, window=3, min_count=1, symmetric=False, distance_weighting=False)
    expected = {}
    for text in texts:
        words = text.split()
        for place, word in enumerate(words):
            for other in words[max(0, place - 3) : place]:
                expected[word, other] = expected.get((word, other), 0) + 1
    for found in (whole, parts):
        assert {
            (found.words[i], found.words[j]): value for i, j, value in zip(found.i, found.j, found.values, strict=True)
        } == expected


@pytest.mark.parametrize("algorithm", ["skipgram", "cbow", "fasttext", "glove"])
def test_training_finds_words_of_one_kind(algorithm):
    animals, tools = ["cat", "dog", "cow", "pig"], ["saw", "axe", "drill", "plane"]
    beside = np.array(["eats", "meat", "runs", "sleeps", "cuts", "wood", "steel", "sharp"])
    texts = []
    for kind, shares in ((animals, [0.22] * 4 + [0.03] * 4), (tools, [0.03] * 4 + [0.22] * 4)):
        for _ in range(300):
            others = RANDOM.choice(beside, 4, p=shares)
            texts.append(" ".join([*others[:2], RANDOM.choice(kind), *others[2:]]))
    if algorithm == "glove":
        options = {"dim": 16, "x_max": 10, "iterations": 100, "batch_size": 16}
    else:
        options = {"vector_size": 16, "workers": 1, "epochs": 30, "seed": 1, "window": 3}
        options |= {"bucket": 100} if algorithm == "fasttext" else {}
    vectors = train_word_vectors(texts, algorithm, min_count=1, **options)
    centred = WordVectors(vectors.words, vectors.table - vectors.table.mean(axis=0)).unit_table
    unit = {word: centred[vectors.index[word]] for word in animals + tools}
    within = [unit[a] @ unit[b] for kind in (animals, tools) for a in kind for b in kind if a != b]
    across = [unit[a] @ unit[b] for a in animals for b in tools]
    assert np.mean(within) > np.mean(across) + 0.2
    assert ("cats" in vectors or vectors.subwords is not None) == (algorithm == "fasttext")


def test_what_cannot_be_trained_is_told():
    with pytest.raises(ValueError, match=r"`algorithm` must be one of skipgram, .*, got 'bert'"):
        train_word_vectors(["a"], "bert")
    with pytest.raises(TypeError, match="gone through twice"):
        train_word_vectors((text for text in ["a b"]), "glove")
    with pytest.raises(ValueError, match=r"have no word 5 times \(`min_count`\), of 2 words"):
        train_word_vectors(["a b"], "glove")
    with pytest.raises(ValueError, match="`dim` must be at least 1, got 0"):
        GloVe(dim=0)
    with pytest.raises(ValueError, match="`x_max` must be greater than 0, got 0"):
        GloVe(x_max=0)
    with pytest.raises(ValueError, match="No two of the 1 words are beside each other"):
        train_word_vectors(["a", "a"], "glove", min_count=1)
    for algorithm in ("skipgram", "glove"):  # would be one of letters
        with pytest.raises(TypeError, match="must be lines or lists of words, got one text, 'the cat'"):
            train_word_vectors("the cat", algorithm)


def test_too_few_words_for_gensim_are_told():
    pytest.importorskip("gensim")
    with pytest.raises(ValueError, match="too few words to train on: 1 lines, `min_count` = 5"):
        train_word_vectors(["a b"], "skipgram")
