"""The original project's input, to the token: its own cases, and trees built by definition."""

import json
from pathlib import Path

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hf_ptm_ext import KBertTokenizer, KnowledgeGraph, kbert_visible_matrix
from tests.models.kbert.sentence_trees import Tree, matrix_of

GOLDEN = json.loads((Path(__file__).parents[2] / "goldens" / "kbert-a.json").read_text(encoding="utf-8"))
CHARS = "苹果公司北京大学x7"
VOCAB = {token: number for number, token in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[ENT]", *CHARS])}


@pytest.fixture(scope="module", params=["rust", "python"])
def reference(request):
    triples = [tuple(line.split("\t")) for line in GOLDEN["spo"].splitlines()]
    vocab = {token: number for number, token in enumerate(GOLDEN["vocab"])}
    return KBertTokenizer(vocab, kg=KnowledgeGraph(triples), reference="classification", matcher_backend=request.param)


def inputs_of(tokenizer, text, case, **options):
    return tokenizer(
        text,
        use_predicate=case["predicate"],
        max_entities=case["max_entities"],
        max_length=case["max_length"],
        truncation=True,
        padding="max_length",
        return_knowledge_mask=True,
        **options,
    )


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=lambda case: case["note"])
def test_the_cases_of_the_original(reference, case):
    got = inputs_of(reference, case["text"], case, add_special_tokens=False)
    assert got["input_ids"] == case["input_ids"]
    assert got["position_ids"] == case["soft_position_ids"]
    assert got["knowledge_mask"] == case["knowledge_tag"]
    assert got["branch_id"] == case["compact_branch_id"]
    assert got["attention_mask"] == [int(branch >= 0) for branch in case["compact_branch_id"]]
    matrix = kbert_visible_matrix(torch.tensor([got["word_index"]]), torch.tensor([got["branch_id"]]))[0]
    assert ["".join(map(str, row)) for row in matrix.int().tolist()] == case["visible_rows"]
    if case["segment_ids_cls"] is not None:
        assert got["token_type_ids"] == case["segment_ids_cls"]


def test_a_batch_has_the_rows_of_single_texts(reference):
    for predicate in (False, True):
        cases = [case for case in GOLDEN["cases"] if case["predicate"] == predicate and case["max_entities"] == 2]
        texts = [case["text"] for case in cases]
        case = {**cases[0], "max_length": 40}
        batch = inputs_of(reference, texts, case, add_special_tokens=False)
        for row, text in enumerate(texts):
            alone = inputs_of(reference, text, case, add_special_tokens=False)
            assert {name: values[row] for name, values in batch.items()} == dict(alone)


def test_the_tokenizer_writes_the_tags_itself(reference):
    single = {**GOLDEN["cases"][0], "max_length": 30}
    text = "我吃苹果"
    assert inputs_of(reference, text, single) == inputs_of(reference, f"[CLS]{text}", single, add_special_tokens=False)
    pair = inputs_of(reference, text, single, text_pair="苹果很甜")
    assert pair == inputs_of(reference, f"[CLS]{text}[SEP]苹果很甜[SEP]", single, add_special_tokens=False)
    assert pair.tokens()[pair.tokens().index("[SEP]") :].count("[SEP]") == 2
    # A single text has segment 1 throughout, whatever stands in it.
    inside = inputs_of(reference, "我[SEP]吃", single)
    assert set(inside["token_type_ids"]) == {0, 1}


def test_pairs_are_pairs_in_whatever_form_they_come(reference):
    """Segments are counted row by row: tuples, columns, and pairs among single texts."""
    case = {**GOLDEN["cases"][0], "max_length": 30}
    pair = dict(inputs_of(reference, "我吃苹果", case, text_pair="苹果很甜"))
    assert set(pair["token_type_ids"]) == {0, 1, 2}
    empty = dict(inputs_of(reference, "我吃苹果", case, text_pair=""))
    assert empty == dict(inputs_of(reference, "[CLS]我吃苹果[SEP][SEP]", case, add_special_tokens=False))
    single = dict(inputs_of(reference, "我[SEP]吃", case))
    mixed = inputs_of(reference, [("我吃苹果", "苹果很甜"), "我[SEP]吃", ("我吃苹果", "")], case)
    columns = inputs_of(reference, ["我吃苹果", "我吃苹果"], case, text_pair=["苹果很甜", ""])
    for batch, rows in ((mixed, [pair, single, empty]), (columns, [pair, empty])):
        assert [{name: values[row] for name, values in batch.items()} for row in range(len(rows))] == rows


def test_the_end_of_a_first_text_is_no_end_of_the_text(reference):
    """北京大 goes on with a tag in a pair, and 北京 is lost there as by pkuseg; alone it is found."""
    case = {**GOLDEN["cases"][0], "max_length": 24}
    assert sum(inputs_of(reference, "北京大", case)["knowledge_mask"]) == 2
    assert sum(inputs_of(reference, "北京大", case, text_pair="好")["knowledge_mask"]) == 0


def test_tagging_as_in_the_original(reference):
    tokenizer = KBertTokenizer(reference.get_vocab(), kg=reference.kg, reference="ner")
    words, labels = list("库克在北京"), [3, 4, 2, 5, 6]
    got = tokenizer(
        words, is_split_into_words=True, word_labels=labels, max_length=16, padding="max_length", truncation=True,
        knowledge_label=1, padding_label=0,
    )  # fmt: skip
    case = next(case for case in GOLDEN["cases"] if case["text"] == "库克在北京")
    assert got["input_ids"] == case["input_ids"]
    assert got["position_ids"] == case["soft_position_ids"]
    assert got["token_type_ids"] == [1] * 16, "padding included"
    assert got["labels"] == [3, 4, 1, 1, 1, 1, 1, 2, 5, 6, 1, 1, 0, 0, 0, 0]
    assert tokenizer(words, is_split_into_words=True, word_labels=labels)["labels"] == [
        3, 4, -100, -100, -100, -100, -100, 2, 5, 6, -100, -100,
    ]  # fmt: skip


def test_blanks_shift_no_label(reference):
    """In the original, a blank that has a label vanishes and every later label moves by one."""
    tokenizer = KBertTokenizer(reference.get_vocab(), kg=reference.kg, reference="ner", max_entities=0)
    got = tokenizer(["在", "\u3000", "北", "京"], is_split_into_words=True, word_labels=[2, 2, 5, 6])
    assert got["labels"] == [2, 5, 6]


NAMES = st.text(CHARS + " ", min_size=1, max_size=4).filter(str.strip)
TRIPLES = st.lists(st.tuples(NAMES, st.sampled_from(["", "在"]), NAMES), min_size=1, max_size=9)
PIECES = st.sampled_from([*CHARS, "苹果", "北京大", " ", "\u3000", "N", "[SEP]", "[CLS]", "[ENT]", "[", "]"])


@settings(max_examples=300, deadline=None)
@given(
    triples=TRIPLES,
    pieces=st.lists(PIECES, max_size=16),
    use_predicate=st.booleans(),
    max_entities=st.integers(0, 3),
    max_length=st.integers(1, 40),
)
@example([("[SEP]", "", "苹")], ["苹", "[SEP]", "果"], False, 2, 12)
@example([("苹果公司", "", "x"), ("苹果", "", "7")], ["苹果", "公", "司"], False, 2, 12)
def test_trees_by_definition(triples, pieces, use_predicate, max_entities, max_length):
    triples = [tuple(part.strip() for part in triple) for triple in triples]
    text = "".join(pieces)
    tree = Tree(text, triples, use_predicate, max_entities, max_length)
    tokenizer = KBertTokenizer(VOCAB, kg=KnowledgeGraph(triples), reference="classification")
    case = {"predicate": use_predicate, "max_entities": max_entities, "max_length": max_length}
    got = inputs_of(tokenizer, text, case, add_special_tokens=False)
    assert got["input_ids"] == [VOCAB.get(token, VOCAB["[UNK]"]) for token in tree.tokens]
    assert got["position_ids"] == tree.positions
    assert got["knowledge_mask"] == tree.tags
    assert got["token_type_ids"] == tree.segments
    assert matrix_of(got["word_index"], got["branch_id"]) == tree.matrix
