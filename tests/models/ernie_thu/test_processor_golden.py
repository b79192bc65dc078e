"""The reference's alignment (thunlp/ERNIE), example by example."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hf_ptm_ext.data.annotated_text import processor_arguments

FIELDS = ("input_ids", "attention_mask", "token_type_ids", "entity_mask")


def of_kind(golden, *kinds):
    found = [example for example in golden["examples"] if example["kind"] in kinds]
    assert found
    return found


def test_plain_texts(reference, golden):
    for example in of_kind(golden, "plain"):
        inputs = reference(example["text"], entities=example["annotations"], add_special_tokens=False)
        assert reference.tokenizer.convert_ids_to_tokens(inputs["input_ids"]) == example["tokens"]
        names = [reference.entity_vocab.id_of(entity) or "UNK" for entity in inputs["entity_ids"]]
        assert names == example["entities"]


def test_rows_with_markers(reference, golden):
    for example in of_kind(golden, "relation_fewrel", "relation_tacred", "typing"):
        if example.get("rejected"):
            continue
        inputs = reference(
            **processor_arguments(example["input"]),
            min_score=example["threshold"],
            padding="max_length",
            truncation=True,
            max_length=example["max_seq_length"],
        )
        for field in FIELDS:
            assert inputs[field] == example[field], (example["kind"], field)
        assert [entity - 1 for entity in inputs["entity_ids"]] == example["entity_ids"]


def test_the_record_that_aborts_the_reference_is_an_error_under_the_strict_policies(reference, golden):
    (example,) = [one for one in of_kind(golden, "relation_fewrel") if one.get("rejected")]
    arguments = processor_arguments(example["input"])
    with pytest.raises(ValueError, match="no token begins there"):
        reference(**arguments, on_dropped_entity="error")
    report = reference(**arguments, return_entity_report=True)["entity_report"]
    assert [(one.annotation.id, one.reason) for one in report] == [("Q999", "unknown"), ("Q90", "no_token")]


@pytest.mark.parametrize("length", range(3, 22))
def test_truncation_cuts_tokens_and_entities_in_lockstep(reference, golden, length):
    for example in of_kind(golden, "relation_tacred", "typing"):
        arguments = processor_arguments(example["input"])
        whole = reference(**arguments)
        cut = reference(**arguments, truncation=True, max_length=length)
        kept = min(length, len(whole["input_ids"])) - 1
        assert cut["input_ids"] == [*whole["input_ids"][:kept], reference.tokenizer.sep_token_id]
        assert cut["entity_ids"] == [*whole["entity_ids"][:kept], 0]


def test_the_last_annotation_of_a_place_counts_even_if_it_is_unknown(reference):
    inputs = reference("paris is", entities=[["Q90", 0, 5, 0.9], ["Q60", 0, 5, 0.8]])
    assert inputs["entity_ids"] == [0, 5, 0, 0]
    inputs = reference("paris is", entities=[["Q90", 0, 5, 0.9], ["Q5", 0, 5, 0.8]])
    assert inputs["entity_ids"] == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("text", "start", "attached"),
    [
        ("(paris) is", 1, False),
        ("londoner", 0, True),
        ("\u200bparis", 0, True),
        ("\u200bparis", 1, True),
        ("is\u00a0paris", 3, True),
        ("is\ufffd paris", 4, True),
        ("is\ufffdparis", 3, False),
        ("is paris", 2, False),
    ],
)
def test_a_word_between_spaces_must_start_where_the_annotation_does(reference, text, start, attached):
    inputs = reference(text, entities=[["Q90", start, start + 1, 0.9]])
    assert any(inputs["entity_ids"]) is attached


def test_a_score_must_be_greater_than_the_threshold(reference):
    for score, counts in ((0.3, False), (0.31, True)):
        inputs = reference("paris", entities=[["Q90", 0, 5, score]])
        assert any(inputs["entity_ids"]) is counts


@pytest.mark.parametrize(("length", "kept"), [(6, (2, 1)), (7, (2, 2)), (8, (3, 2)), (9, (4, 2)), (20, (4, 2))])
def test_pairs_lose_tokens_one_by_one_from_the_longer_text(reference, length, kept):
    inputs = reference("bob dylan wrote paris", "he is", truncation=True, max_length=length)
    types = inputs["token_type_ids"]
    assert (types.count(0) - 2, types.count(1) - 1) == kept


def test_bits_of_the_reference_that_a_record_carries():
    fewrel = {"text": "Paris is in France", "ents": [["Q90", 1, 5, 0.1], ["Q142", 12, 18, 0.1]], "label": "x"}
    arguments = processor_arguments(fewrel)
    assert (arguments["head"], arguments["tail"]) == ((0, 5), (12, 18))
    assert arguments["entities"] == [(0, 5, "Q90"), (12, 18, "Q142")]
    tacred = {**fewrel, "ann": [["Q142", 12, 18, 0.5]]}
    assert processor_arguments(tacred)["head"] == (1, 5)
    with pytest.raises(ValueError, match="two `ents`"):
        processor_arguments({"text": "Paris", "ents": []})


# ---- places outside the text ----

OFTEN = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
PLACES = st.integers(-30, 60)
LINKED = st.lists(st.tuples(st.sampled_from(["Q90", "Q142", "Q392"]), PLACES, PLACES), max_size=4)
TEXT = "paris is the capital city of france ."


def words_and_entities(text, annotations):
    """A port of the rule: words between spaces, and the last annotation that begins where the word does."""
    by_begin = {begin: identifier for identifier, begin, _ in annotations}
    found, begin = [], 0
    for word in text.split(" "):
        if word:
            found.append((word, by_begin.get(begin, "UNK")))
        begin += len(word) + 1
    return found


def expected_row(reference, text, annotations):
    tokens, entities = [], []
    for word, entity in words_and_entities(text, annotations):
        pieces = reference.tokenizer.tokenize(word)
        tokens += pieces
        entities += [entity] + ["UNK"] * (len(pieces) - 1)
    return tokens, entities


def read_row(reference, inputs):
    names = [reference.entity_vocab.id_of(entity) or "UNK" for entity in inputs["entity_ids"]]
    return reference.tokenizer.convert_ids_to_tokens(inputs["input_ids"])[1:-1], names[1:-1]


@settings(OFTEN, max_examples=60)
@given(annotations=LINKED)
def test_annotations_outside_the_text_are_read_as_the_reference_reads_them(reference, annotations):
    inputs = reference(TEXT, entities=[[*one, 0.9] for one in annotations])
    assert read_row(reference, inputs) == expected_row(reference, TEXT, annotations)


@settings(OFTEN, max_examples=150)
@given(head=st.tuples(PLACES, PLACES), tail=st.tuples(PLACES, PLACES), linked=st.one_of(st.none(), LINKED))
def test_relations_outside_the_text_are_sliced_as_the_reference_slices_them(reference, head, tail, linked):
    (h, h_end), (t, t_end) = head, tail
    if h < t:
        text = f"{TEXT[:h]}# {TEXT[h:h_end]} #{TEXT[h_end:t]}$ {TEXT[t:t_end]} ${TEXT[t_end:]}"
    else:
        text = f"{TEXT[:t]}$ {TEXT[t:t_end]} ${TEXT[t_end:h]}# {TEXT[h:h_end]} #{TEXT[h_end:]}"
    if linked is None:  # FewRel: the mentions are the entities
        moves = (2, 6) if h < t else (6, 2)
        annotations = [("Q90", h + moves[0], 0), ("Q142", t + moves[1], 0)]
        entities = [("Q90", *head), ("Q142", *tail)]
    else:
        annotations = [(name, x + 2 * ((x > h_end) + (x >= h) + (x >= t) + (x > t_end)), 0) for name, x, _ in linked]
        entities = [[*one, 0.9] for one in linked]
        if [(begin, end) for _, begin, end in linked] == [head, tail]:
            return
    inputs = reference(TEXT, entities=entities, task="relation", head=head, tail=tail)
    assert read_row(reference, inputs) == expected_row(reference, text, annotations)


@settings(OFTEN, max_examples=100)
@given(span=st.tuples(PLACES, PLACES), linked=LINKED)
def test_typing_outside_the_text_is_sliced_as_the_reference_slices_it(reference, span, linked):
    begin, end = span
    if begin == end:
        with pytest.raises(ValueError, match="leaves such records out"):
            reference(TEXT, entities=[], task="typing", span=span)
        return
    text = f"{TEXT[:begin]}。 {TEXT[begin:end]} 。{TEXT[end:]}"
    annotations = [(name, x + (4 if x > end else 2 if x >= begin else 0), 0) for name, x, _ in linked]
    inputs = reference(TEXT, entities=[[*one, 0.9] for one in linked], task="typing", span=span)
    assert read_row(reference, inputs) == expected_row(reference, text, annotations)


def test_a_line_separator_is_no_space_to_the_reference(reference):
    assert not any(reference("is\u2028paris", entities=[["Q90", 3, 8, 0.9]])["entity_ids"])
