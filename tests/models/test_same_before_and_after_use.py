"""Tokenizers and processors pickle and fingerprint the same before and after use: `datasets.map` finds its cache."""

import pickle

import datasets
import numpy as np
import pytest
from datasets.fingerprint import Hasher
from transformers import AutoTokenizer, BertTokenizer

from hf_ptm_ext import (
    DictionaryLinker,
    EntityVocabulary,
    ErnieThuProcessor,
    KBertTokenizer,
    KnowledgeGraph,
    ZenTokenizer,
)
from hf_ptm_ext.data.augmentation import WordVectors

VOCAB = {word: number for number, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"北京首都是"])}
TEXT = "北京是首都"
GRAPH = KnowledgeGraph([("北京", "是", "首都"), ("北京", "", "都")])


def processor(linker=None):
    vocabulary = EntityVocabulary.from_ids(["Q1"], titles={"北京": "Q1"})
    return ErnieThuProcessor(BertTokenizer(VOCAB), vocabulary, linker)


KINDS = {
    "zen": lambda: ZenTokenizer(VOCAB, ngrams=["北京", "首都"]),
    "zen without n-grams": lambda: ZenTokenizer(VOCAB, ngrams=[]),
    "zen, drawn": lambda: ZenTokenizer(VOCAB, ngrams=["北京", "首都"], max_ngrams=1, ngram_seed=3),
    "kbert": lambda: KBertTokenizer(VOCAB, kg=GRAPH),
    "kbert without a graph": lambda: KBertTokenizer(VOCAB, kg=None),
    "kbert, characters": lambda: KBertTokenizer(VOCAB, kg=GRAPH, granularity="char"),
    "kbert, reference": lambda: KBertTokenizer(VOCAB, kg=GRAPH, reference="classification"),
    "ernie_thu": processor,
    "ernie_thu, linker": lambda: processor(DictionaryLinker({"北京": "Q1"})),
    "ernie_thu, spaces": lambda: processor(DictionaryLinker({"北京": "Q1", "首都": "Q1"}, ignore_case=True)),
}
USES = {
    "text": lambda used, folder: used(TEXT),
    "long text": lambda used, folder: used(TEXT * 400),
    "batch": lambda used, folder: used([TEXT, TEXT[:2]], padding=True, truncation=True, max_length=4),
    "windows": lambda used, folder: used(
        [TEXT * 3], truncation=True, max_length=6, stride=1, return_overflowing_tokens=True, padding="max_length"
    ),
    "words": lambda used, folder: getattr(used, "linker", None) or used([["北京", "是"]], is_split_into_words=True),
    "pair": lambda used, folder: used(TEXT, TEXT, return_tensors="pt"),
    "padding": lambda used, folder: used.pad([used(TEXT), used(TEXT[:2])], return_tensors="pt"),
    "saving": lambda used, folder: used.save_pretrained(folder),
}


@pytest.mark.parametrize("kind", KINDS)
def test_using_one_changes_neither_its_pickle_nor_its_fingerprint(kind, tmp_path, caplog):
    used = KINDS[kind]()
    pickled, fingerprint = pickle.dumps(used), Hasher.hash(used)
    for name, use in USES.items():
        use(used, tmp_path)
        assert pickle.dumps(used) == pickled, name
        assert Hasher.hash(used) == fingerprint, name
    copy = pickle.loads(pickled)
    assert copy(TEXT) == used(TEXT)


@pytest.mark.parametrize("kind", ["zen", "kbert", "ernie_thu, linker"])
def test_map_finds_its_cache_after_use(kind, tmp_path):
    used = KINDS[kind]()
    datasets.Dataset.from_dict({"text": [TEXT, TEXT[:2], TEXT * 2]}).save_to_disk(tmp_path / "rows")

    def tokenized():
        rows = datasets.load_from_disk(tmp_path / "rows")
        return rows.map(lambda row: used(row["text"], truncation=True, max_length=8), remove_columns=["text"])

    files = []
    for _ in range(3):
        found = tokenized()
        files.append([file["filename"] for file in found.cache_files])
        used([TEXT], padding="max_length", max_length=12, truncation=True)
    assert files[0]
    assert files[0] == files[1] == files[2]


def test_padding_and_truncation_of_a_call_are_not_saved(tmp_path):
    for kind in ("zen", "kbert"):
        used = KINDS[kind]()
        used.save_pretrained(tmp_path / "before")
        used([TEXT], padding="max_length", max_length=12, truncation=True)
        used.save_pretrained(tmp_path / "after")
        first, second = (
            {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("before", "after")
        )
        assert first == second
        assert AutoTokenizer.from_pretrained(tmp_path / "after")(TEXT) == used(TEXT)


def test_counts_of_entities_begin_anew_in_a_copy():
    used = processor()
    used(TEXT, entities=[(0, 2, "Q1")])
    assert used.entity_counts
    assert not pickle.loads(pickle.dumps(used)).entity_counts


def test_a_tokenizer_knows_tokens_that_are_added_after_use():
    used = ZenTokenizer(VOCAB, ngrams=["北京", "x 首"])
    used(TEXT)
    used.add_tokens(["x"])
    assert used("x首")["ngram_ids"] == [2]


def test_neighbours_that_were_found_are_no_part_of_word_vectors():
    vectors = WordVectors(["good", "fine", "table"], np.eye(3, 4))
    before = pickle.dumps(vectors)
    vectors.nearest("good", 2)
    assert pickle.dumps(vectors) == before
