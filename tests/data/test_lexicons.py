"""Lexicons: WordNet's supersenses, opinion words, SentiWordNet; files as they come, and files that are damaged."""

import pickle
from pathlib import Path

import pytest

from hf_ptm_ext.data import (
    SUPERSENSES,
    SentimentWords,
    SentiWordNet,
    SupersenseTable,
    nltk_tagger,
    read_opinion_lexicon,
    read_supersense_vocab,
)
from hf_ptm_ext.data.lexicons import POS_TAGS

FIXTURES = Path(__file__).parents[1] / "fixtures"
WORDNET = FIXTURES / "wordnet" / "dict"
SENTIWORDNET = """# a comment
a\t00001\t0.75\t0\tgood#1 fine#2\tof the right kind
s\t00002\t0\t0.125\tgood#2\tthorough
n\t00003\t0\t0.5\tgood#1\tgoods
v\t00004\t0\t0.5\tspoil#1\tmake useless
"""


def test_wordnets_folder_is_read_and_words_are_looked_up_by_their_forms():
    table = SupersenseTable.read(WORDNET)
    assert len(SUPERSENSES) == 45
    assert SUPERSENSES[4] == "noun.act"
    assert SUPERSENSES[44] == "adj.ppl"
    assert {"noun.animal", "noun.food", "noun.person"} <= set(table.senses("basses"))
    assert table.senses("geese") == table.senses("goose") == table.senses("Goose"), "an irregular form"
    assert "verb.motion" in table.senses("swims")
    assert "noun.act" in table.senses("swims"), "of all parts of speech"
    assert "verb.motion" in table.senses("went")
    assert not any(name.startswith("noun") for name in table.senses("swam")), "an irregular verb is no noun"
    assert "galore" in table.lemmas, "without its marker (ip)"
    assert not any("_" in lemma for lemma in table.lemmas), "words alone"


def test_short_words_stop_words_and_unknown_words_have_no_senses():
    table = SupersenseTable.of({"go": ["verb.motion"], "this": ["noun.act"], "goes": ["verb.motion"], "": []})
    assert table(["go", "this", "zzzzz", "", "你好", "goes"])["supersenses"][:5] == [0] * 5
    assert table.senses("goes") == ["verb.motion"]
    assert SupersenseTable.of({"this": ["noun.act"]}, stop_words=()).senses("this") == ["noun.act"]


def test_a_table_is_written_and_read_and_may_have_other_classes(tmp_path):
    table = SupersenseTable.read(WORDNET)
    table.save(tmp_path / "senses.tsv")
    again = SupersenseTable.read(tmp_path / "senses.tsv")
    assert again.lemmas == {lemma: bits for lemma, bits in table.lemmas.items() if bits}
    (tmp_path / "supersense_vocab.txt").write_text("\n".join(reversed(SUPERSENSES)) + "\n")
    names = read_supersense_vocab(tmp_path / "supersense_vocab.txt")
    other = SupersenseTable.read(tmp_path / "senses.tsv", names)
    assert names == tuple(reversed(SUPERSENSES))
    assert set(other.senses("goose")) == set(table.senses("goose"))
    assert other.bits("goose") != table.bits("goose")
    assert pickle.loads(pickle.dumps(table)).bits("goose") == table.bits("goose")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.tsv", "goose noun.animal\n", "line 1: must have a word, a tab"),
        ("a.tsv", "goose\tnoun.anima\n", r"a\.tsv, line 1: supersenses must be among .* got 'noun.anima'"),
        ("a.tsv", "", "must have a word, a tab and supersenses a line, got none"),
        ("data.noun", "00001740 03 n zz entity 0\n", "line 1: must be a synset"),
        ("data.noun", "00001740 99 n 01 entity 0\n", "line 1: must be a synset"),
    ],
)
def test_damaged_tables_are_refused(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=message):
        SupersenseTable.read(tmp_path if name == "data.noun" else tmp_path / name)
    with pytest.raises(ValueError, match="`names` must be 1 to 63"):
        SupersenseTable({}, ["a"] * 2)
    for names in ("", "a\na\n"):
        (tmp_path / "names.txt").write_text(names)
        with pytest.raises(ValueError, match=r"names\.txt must have different supersenses, one a line"):
            read_supersense_vocab(tmp_path / "names.txt")


def test_empty_lines_among_irregular_forms(tmp_path):
    for name in ("noun", "verb", "adj", "adv"):
        (tmp_path / f"data.{name}").write_bytes((WORDNET / f"data.{name}").read_bytes())
    (tmp_path / "noun.exc").write_text("\n\ngeese goose\n")
    assert "noun.animal" in SupersenseTable.read(tmp_path).senses("geese")


def test_opinion_words(tmp_path):
    words = read_opinion_lexicon(*(FIXTURES / "lexicons" / f"{name}.txt" for name in ("positive", "negative")))
    assert words["good"] == 1
    assert words["bad"] == 0
    assert len(words) > 1000
    (tmp_path / "a").write_text("; comment\nGood\nboth\n")
    (tmp_path / "b").write_text("bad\nboth\n")
    assert read_opinion_lexicon(tmp_path / "a", tmp_path / "b") == {"good": 1, "bad": 0}
    (tmp_path / "b").write_text("# nothing\n\n")
    with pytest.raises(ValueError, match="must have a word a line"):
        read_opinion_lexicon(tmp_path / "a", tmp_path / "b")
    with pytest.raises(ValueError, match="must have different words, got the same 2 in both"):
        read_opinion_lexicon(tmp_path / "a", tmp_path / "a")


def test_sentiwordnet_weighs_senses_by_rank_and_gloss(tmp_path):
    (tmp_path / "SentiWordNet.txt").write_text(SENTIWORDNET)
    lexicon = SentiWordNet.read(tmp_path / "SentiWordNet.txt")
    adjective, noun, verb, adverb, unknown = (POS_TAGS[letter] for letter in "anvru")
    assert lexicon("good", adjective, "") == 1
    assert lexicon("good", noun, "") == 0
    assert lexicon("spoiled", verb, "") == 0, "by its lemma"
    assert [lexicon("good", adverb, ""), lexicon("good", unknown, ""), lexicon("never", noun, "")] == [2, 2, 2]
    assert lexicon.senses["good", "a"][1][:2] == (2, -0.125), "a satellite is an adjective"
    # exp((cos + 1) / (2 rank)): the second sense wins once its gloss fits well enough.
    torn = {("torn", "a"): [(1, 0.1, "one"), (2, -0.1, "two")]}
    assert SentiWordNet(torn)("torn", adjective, "text") == 1
    fits = SentiWordNet(torn, lambda text, glosses: [-1.0 if gloss == "one" else 1.0 for gloss in glosses])
    assert fits("torn", adjective, "text") == 0
    for damaged in ("a\t1\tx\t0\tgood#1\tg\n", "a\t1\t0\t0\tgood#0\tg\n", "a\t1\tnan\t0\tgood#1\tg\n"):
        (tmp_path / "SentiWordNet.txt").write_text(damaged)
        with pytest.raises(ValueError, match="line 1: must have a letter"):
            SentiWordNet.read(tmp_path / "SentiWordNet.txt")
    (tmp_path / "SentiWordNet.txt").write_text("# nothing\n")
    with pytest.raises(ValueError, match="must have a sense a line, got none"):
        SentiWordNet.read(tmp_path / "SentiWordNet.txt")


def test_words_need_a_tagger_where_the_lexicon_does():
    with pytest.raises(ValueError, match="`tagger` must tag words for SentiWordNet"):
        SentimentWords(SentiWordNet({}))
    with pytest.raises(TypeError, match="`lexicon` must be a mapping or a function, got list"):
        SentimentWords([])
    words = SentimentWords(lambda word, tag, text: int(tag == 1), tagger=lambda words: ["JJ"])
    assert words(["Good"]) == {"pos_tag_ids": [1], "word_polarity_ids": [1]}
    with pytest.raises(ValueError, match="`tagger` must give a tag for each of 2 words, got 1"):
        words(["Good", "film"])


def test_nltk_is_optional_and_says_what_it_lacks(monkeypatch):
    nltk = pytest.importorskip("nltk")
    monkeypatch.setattr(nltk.data, "path", [])
    with pytest.raises(ImportError, match="nltk has no data of its tagger"):
        nltk_tagger()
    monkeypatch.setitem(__import__("sys").modules, "nltk", None)
    with pytest.raises(ImportError, match=r"pip install hf-ptm-ext\[lexicons\]"):
        nltk_tagger()
