"""Entity documents, sentence pairs with entities, and the original project's files."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import BertTokenizerFast

from hf_ptm_ext import DataCollatorForDenoisingEntities, EntityVocabulary, ErnieThuProcessor
from hf_ptm_ext.data import (
    EntitySentence,
    SpecialTokens,
    encode_entity_documents,
    entity_pairs,
    instances_dataset,
    read_entity_documents,
    read_instances,
    write_entity_documents,
    write_instances,
)

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "bob", "dylan", "##s", "sang", "in", "paris", "."]
TOKENIZER = BertTokenizerFast(vocab={piece: index for index, piece in enumerate(PIECES)})
VOCABULARY = EntityVocabulary.from_entity2id({"Q392": 0, "Q90": 1})
SPECIAL = SpecialTokens([2], [3], [2], [3], [3])


def test_annotated_texts_become_documents_with_every_token_of_a_mention():
    processor = ErnieThuProcessor(TOKENIZER, VOCABULARY)
    texts = [("Bob Dylans sang.", [(0, 10, "Q392")]), ("  ", []), ("in Paris", [{"start": 3, "end": 8, "id": "Q90"}])]
    (first, second) = encode_entity_documents([texts, []], processor)
    assert first == [
        EntitySentence([5, 6, 7, 8, 11], [1, 1, 1, 0, 0]),
        EntitySentence([9, 10], [0, 2]),
    ]
    assert second == []


DOCUMENTS = st.lists(
    st.lists(
        st.lists(st.tuples(st.integers(5, 99), st.sampled_from([0, 0, 1, 2])), min_size=1, max_size=12), max_size=5
    ),
    min_size=2,
    max_size=4,
).map(
    lambda documents: [
        [EntitySentence([i for i, _ in sentence], [e for _, e in sentence]) for sentence in document]
        for document in documents
    ]
)


@given(documents=DOCUMENTS)
def test_shards_read_back(documents, tmp_path_factory):
    folder = tmp_path_factory.mktemp("shard")
    files = (folder / "a_token", folder / "a_entity")
    write_entity_documents(documents, *files, names=VOCABULARY.id_of)
    assert list(read_entity_documents(*files, rows=VOCABULARY.rows)) == documents
    unknown = list(read_entity_documents(*files, rows=EntityVocabulary.from_ids(["Q90"]).rows))
    flat = [e for document in unknown for sentence in document for e in sentence.entity_ids]
    expected = [e for document in documents for sentence in document for e in sentence.entity_ids]
    assert flat == [max(entity - 1, 0) for entity in expected]


def test_the_original_form_is_tabs_and_counts(tmp_path):
    files = (tmp_path / "a_token", tmp_path / "a_entity")
    files[0].write_text("2\t2\t5\t6\t1\t10\n", encoding="utf-8")
    files[1].write_text("2\t2\tQ392\tQ392\t1\t#UNK#\n", encoding="utf-8")
    (document,) = read_entity_documents(*files, rows=VOCABULARY.rows)
    assert document == [EntitySentence([5, 6], [1, 1]), EntitySentence([10], [0])]
    write_entity_documents([document], tmp_path / "b_token", tmp_path / "b_entity", names=VOCABULARY.id_of)
    assert (tmp_path / "b_token").read_bytes() == files[0].read_bytes()
    assert (tmp_path / "b_entity").read_bytes() == files[1].read_bytes()


@pytest.mark.parametrize(
    ("tokens", "entities", "message"),
    [
        ("1\t2\t5\n", "1\t2\tQ1\tQ1\n", "must have 4 fields by its counts, got 3"),
        ("1\t1\t5\t6\n", "1\t1\tQ1\n", "must have 3 fields by its counts, got 4"),
        ("x\n", "1\t1\tQ1\n", "must hold counts and fields"),
        ("1\t1\tfive\n", "1\t1\tQ1\n", "must hold token ids"),
        ("1\t1\t5\n", "1\t2\tQ1\tQ1\n", "an entity field for each token"),
        ("1\t1\t5\n", "", "same number of lines"),
    ],
)
def test_damaged_shards_are_named_by_line(tmp_path, tokens, entities, message):
    files = (tmp_path / "a_token", tmp_path / "a_entity")
    for file, text in zip(files, (tokens, entities), strict=True):
        file.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        list(read_entity_documents(*files, rows=VOCABULARY.rows))


# ---- pairs ----


def random_documents(seed, count=30):
    """Every token id says which entity it carries: id % 50 is the entity, 0 for half of them."""
    rng = np.random.default_rng(seed)
    documents = []
    for _ in range(count):
        document = []
        for _ in range(int(rng.integers(1, 8))):
            ids, entities = [], []
            while len(ids) < int(rng.integers(4, 20)):
                entity = int(rng.integers(1, 50)) if rng.random() < 0.4 else 0
                size = int(rng.integers(1, 4))
                ids += [100 + entity] * size
                entities += [entity] * size
            document.append(EntitySentence(ids, entities))
        documents.append(document)
    return documents


def test_pairs_keep_token_and_entity_together():
    rows = list(entity_pairs(random_documents(0), 64, SPECIAL, np.random.default_rng(1), min_entities=0, thin=False))
    assert rows
    for row in rows:
        assert len(row["input_ids"]) == len(row["entity_ids"]) == len(row["token_type_ids"]) <= 64
        for token, entity in zip(row["input_ids"], row["entity_ids"], strict=True):
            assert entity == (token - 100 if token > 100 else 0)
    assert {row["next_sentence_label"] for row in rows} == {0, 1}


def create_instances_port(document):
    """How create_instances.py reads a line of entities: counts between the sentences, an equal left one drops."""
    fields = [len(document)]
    for sentence in document:
        fields += [("count", len(sentence.entity_ids)), *sentence.entity_ids]
    for number in range(1, len(fields)):
        if fields[number] == fields[number - 1]:
            fields[number] = 0
    split = []
    for field in fields[1:]:
        if isinstance(field, tuple):
            split.append([])
        else:
            split[-1].append(field)
    return [EntitySentence(one.input_ids, entities) for one, entities in zip(document, split, strict=True)]


@pytest.mark.parametrize("max_length", [16, 64])
def test_entities_are_thinned_in_their_sentence_before_joining_and_cutting(max_length):
    documents = random_documents(0)
    documents.append([EntitySentence([105, 101], [5, 1]), EntitySentence([101, 102], [1, 2])] * 3)
    thinned = list(entity_pairs(documents, max_length, SPECIAL, np.random.default_rng(1)))
    ported = [create_instances_port(document) for document in documents]
    expected = list(entity_pairs(ported, max_length, SPECIAL, np.random.default_rng(1), min_entities=0, thin=False))
    assert thinned == [row for row in expected if sum(entity > 0 for entity in row["entity_ids"]) >= 5]
    assert len(thinned) < len(expected)
    after = [np.array(row["entity_ids"]) for row in expected]
    assert any(((row[1:] == row[:-1]) & (row[1:] > 0)).any() for row in after), "equal ones of two sentences stay"


# ---- instances ----


ROWS = [
    {
        "input_ids": [2, 5, 6, 3, 10, 3],
        "token_type_ids": [0, 0, 0, 0, 1, 1],
        "labels": [-100, 7, -100, -100, -100, -100],
        "entity_ids": [0, 1, 0, 0, 2, 0],
        "next_sentence_label": 1,
    },
    {"input_ids": [2, 3]},
]


def test_instances_read_back(tmp_path):
    prefix = tmp_path / "data"
    assert write_instances(ROWS, prefix, 8) == 2
    first, second = read_instances(prefix)
    assert first == {**ROWS[0], "attention_mask": [1] * 6}
    assert second["input_ids"] == [2, 3]
    assert (second["entity_ids"], second["labels"], second["next_sentence_label"]) == ([0, 0], [-100, -100], 0)
    padded = next(read_instances(prefix, keep_padding=True))
    assert padded["input_ids"] == [*ROWS[0]["input_ids"], 0, 0]
    assert padded["entity_ids"][-2:] == [0, 0]
    assert instances_dataset(prefix).to_list() == [first, second]


def test_the_bytes_are_those_of_the_original_format(tmp_path):
    write_instances(ROWS[:1], tmp_path / "data", 6)
    values = np.fromfile(tmp_path / "data.bin", dtype="<i4") - 1
    assert values.tolist() == [
        *[2, 5, 6, 3, 10, 3],
        *[1] * 6,
        *[0, 0, 0, 0, 1, 1],
        *[-1, 7, -1, -1, -1, -1],
        *[-1, 0, -1, -1, 1, -1],
        *[0, 1, 0, 0, 1, 0],
        1,
    ]
    index = (tmp_path / "data.idx").read_bytes()
    assert index[:8] == b"TNTIDX\0\0"
    assert np.frombuffer(index[8:48], dtype="<u8").tolist() == [1, 4, 4, 1, 1]
    assert np.frombuffer(index[48:], dtype="<i8").tolist() == [0, 1, 0, 37, 37]


def test_damaged_instances_are_refused(tmp_path):
    write_instances(ROWS, tmp_path / "data", 8)
    binary, index = tmp_path / "data.bin", tmp_path / "data.idx"
    whole = index.read_bytes()
    index.write_bytes(whole[:-8])
    with pytest.raises(ValueError, match="cut off"):
        next(read_instances(tmp_path / "data"))
    index.write_bytes(b"PK" + whole[2:])
    with pytest.raises(ValueError, match="another format"):
        next(read_instances(tmp_path / "data"))
    index.write_bytes(whole)
    binary.write_bytes(binary.read_bytes()[:-4])
    with pytest.raises(ValueError, match=r"data\.bin must have 98 values, got 97"):
        next(read_instances(tmp_path / "data"))
    binary.unlink()
    with pytest.raises(FileNotFoundError, match=r"data\.bin"):
        next(read_instances(tmp_path / "data"))
    with pytest.raises(ValueError, match="`max_length`"):
        write_instances(ROWS, tmp_path / "data", 5)
    with pytest.raises(ValueError, match="`labels`"):
        write_instances([{"input_ids": [2, 3], "labels": [1]}], tmp_path / "data", 5)
    assert not binary.exists()


def test_instances_go_through_the_collator(tmp_path):
    write_instances(ROWS, tmp_path / "data", 8)
    batch = DataCollatorForDenoisingEntities(TOKENIZER)(list(read_instances(tmp_path / "data")))
    assert batch["entity_candidates"].tolist() == [[0, 1, 2]] * 2
    assert batch["labels"].tolist()[0] == ROWS[0]["labels"]
    assert batch["next_sentence_label"].tolist() == [1, 0]
