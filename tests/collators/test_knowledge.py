"""Batches of KEPLER and WKLM: what is read for a triple, what is replaced in a text."""

import pickle

import numpy as np
import pytest

from hf_ptm_ext.collators import (
    DataCollatorForEntityReplacement,
    DataCollatorForKnowledgeEmbedding,
    DataCollatorForMaskedLanguageModeling,
    EntityCatalogue,
)

DESCRIPTIONS = ["the lighthouse keepers", "the harbour", "houses", "nights", "the lights"]
TRIPLES = [[0, 0, 1], [2, 1, 3], [0, 0, 3]]


def knowledge(tokenizer, **options):
    arguments = {"descriptions": DESCRIPTIONS, "num_relations": 2, "known_triples": TRIPLES, "seed": 0, **options}
    return DataCollatorForKnowledgeEmbedding(tokenizer, **arguments)


def text_of(tokenizer, batch, triple, role):
    ids, mask = batch["description_input_ids"][triple, role], batch["description_attention_mask"][triple, role]
    return tokenizer.convert_ids_to_tokens(ids[mask.bool()].tolist())


def pieces(tokenizer, *texts):
    tokens = [tokenizer.cls_token]
    for number, text in enumerate(texts):
        tokens += [tokenizer.sep_token] * (number > 0) + tokenizer.tokenize(text)
    return tokens


@pytest.mark.parametrize("variant", ["plain", "cond", "rel"])
@pytest.mark.parametrize("negatives", [1, 3])
def test_roles_of_a_triple(wordpiece, variant, negatives):
    relations = ["near the harbour", "nights"]
    collator = knowledge(wordpiece, variant=variant, relation_descriptions=relations, num_negatives=negatives)
    batch = collator([{"triple": triple} for triple in TRIPLES])
    own = {"plain": [], "cond": [(0, 0), (1, 0)], "rel": [None]}[variant]
    assert batch["description_input_ids"].shape[:2] == (3, 2 + 2 * negatives + len(own))
    assert batch["relation_ids"].tolist() == [0, 1, 0]
    for number, (head, relation, tail) in enumerate(TRIPLES):
        ends = (head, tail)
        for role, entity in enumerate(ends):
            assert text_of(wordpiece, batch, number, role) == pieces(wordpiece, DESCRIPTIONS[entity])
        for role in range(2, 2 + 2 * negatives):
            drawn = text_of(wordpiece, batch, number, role)
            entity = next(n for n, text in enumerate(DESCRIPTIONS) if pieces(wordpiece, text) == drawn)
            corrupted = [entity, relation, tail] if role < 2 + negatives else [head, relation, entity]
            assert corrupted not in TRIPLES
        for place, _ in enumerate(own):
            expected = {"cond": (DESCRIPTIONS[ends[place]], relations[relation]), "rel": (relations[relation],)}
            assert text_of(wordpiece, batch, number, 2 + 2 * negatives + place) == pieces(
                wordpiece, *expected[variant]
            )


def test_text_and_triples_come_in_one_batch_and_go_on_after_a_resume(wordpiece):
    def collator():
        return knowledge(wordpiece, mlm_collator=DataCollatorForMaskedLanguageModeling(wordpiece, seed=3))

    rows = [{**wordpiece("keepers near the harbour"), "triple": triple} for triple in TRIPLES]
    first = collator()
    batches = [first(rows) for _ in range(3)]
    assert {"input_ids", "labels", "attention_mask", "description_input_ids", "relation_ids"} <= set(batches[0])
    assert "triple" not in batches[0]
    assert (batches[0]["description_input_ids"] != batches[1]["description_input_ids"]).any()
    resumed = pickle.loads(pickle.dumps(collator()))
    resumed.load_state_dict({**resumed.state_dict(), "calls": 2})
    again = resumed(rows)
    for name in batches[2]:
        assert (again[name] == batches[2][name]).all(), name
    assert set(first.input_columns) >= {"triple", "word_ids"}


def test_descriptions_are_cut_and_may_be_token_ids(wordpiece):
    ids = [wordpiece(text, add_special_tokens=False)["input_ids"] for text in DESCRIPTIONS]
    options = {
        "variant": "cond",
        "relation_descriptions": ["near", "nights"],
        "max_description_length": 6,
        "max_relation_length": 3,
    }
    texts, numbers = (knowledge(wordpiece, descriptions=given, **options) for given in (DESCRIPTIONS, ids))
    batch = texts([{"triple": [0, 0, 1]}])
    assert (batch["description_input_ids"] == numbers([{"triple": [0, 0, 1]}])["description_input_ids"]).all()
    assert batch["description_input_ids"].shape[-1] == 6
    together = text_of(wordpiece, batch, 0, 4)
    assert together[3:] == [wordpiece.sep_token, *wordpiece.tokenize("near")[:2]]  # the relation is never cut away
    with pytest.raises(ValueError, match="`max_description_length` must leave room beside the 4 tokens"):
        knowledge(wordpiece, **{**options, "max_relation_length": 64})([{"triple": [0, 0, 1]}])


@pytest.mark.parametrize(
    ("options", "row", "message"),
    [
        ({"variant": "hyper"}, None, "`variant` must be one of"),
        ({"variant": "rel"}, None, "`relation_descriptions` must be given"),
        ({"relation_descriptions": ["one"]}, None, "one entry for each of the 2 relations, got 1"),
        ({"num_negatives": 0}, None, "`num_negatives`"),
        ({}, {"input_ids": [1]}, "`triple` must be in every feature.*remove_unused_columns=False"),
        ({}, {"triple": [0, 2, 1]}, "entities below 5 and relations below 2"),
    ],
)
def test_knowledge_errors(wordpiece, options, row, message):
    with pytest.raises(ValueError, match=message):
        knowledge(wordpiece, **options)([row])


# ---- entity replacement ----

NAMES = [["harbour"], ["the lighthouse", "lighthouse keepers"], ["nights"], ["lights"]]
TYPES = [["place"], ["place", "thing"], ["time"], ["thing"]]


def replacement(tokenizer, **options):
    return DataCollatorForEntityReplacement(
        tokenizer, catalogue=EntityCatalogue(NAMES, TYPES, tokenizer), **{"seed": 0, **options}
    )


def row_of(tokenizer, *parts):
    """A row from text and entity numbers in turn."""
    ids, spans, entities = [tokenizer.cls_token_id], [], []
    for part in parts:
        name = NAMES[part][0] if isinstance(part, int) else part
        new = tokenizer(name, add_special_tokens=False)["input_ids"]
        if isinstance(part, int):
            spans.append([len(ids), len(ids) + len(new)])
            entities.append(part)
        ids += new
    return {"input_ids": [*ids, tokenizer.sep_token_id], "mention_spans": spans, "mention_entities": entities}


def test_replacements_share_a_type_and_never_neighbour(wordpiece):
    rows = [row_of(wordpiece, "near", 0, "and", 1, "near", 3, 2, "near", 0, "house"), row_of(wordpiece, 1)] * 40
    collator = replacement(wordpiece, mlm_probability=0.0, replace_probability=0.7)
    batch = collator(rows)
    ids, labels = batch["input_ids"], batch["entity_labels"]
    shares = {"place": {0, 1}, "thing": {1, 3}}
    seen = set()
    for number, row in enumerate(rows):
        mine = labels[number][: len(row["mention_entities"])]
        assert (labels[number][len(mine) :] == -100).all()
        assert not ((mine[1:] == 0) & (mine[:-1] == 0)).any()
        for place, entity in enumerate(row["mention_entities"]):
            start, end = int(batch["entity_start"][number, place]), int(batch["entity_end"][number, place])
            name = wordpiece.decode(ids[number, start:end])
            others = {e for members in shares.values() if entity in members for e in members if e != entity}
            allowed = NAMES[entity][:1] if mine[place] == 1 else [text for e in others for text in NAMES[e]]
            assert name in allowed, (entity, name)
            seen.add((entity, name))
        before = wordpiece.decode(row["input_ids"]).split()
        kept = [w for w in wordpiece.decode(ids[number]).replace("[PAD]", "").split() if w in ("near", "and", "house")]
        assert kept == [word for word in before if word in ("near", "and", "house")]
    assert (2, "nights") in seen  # alone of its type: never replaced
    assert {(0, "the lighthouse"), (0, "lighthouse keepers")} <= seen  # every name of the other place is drawn
    assert not any(entity == 2 and name != "nights" for entity, name in seen)


def test_the_rate_of_replacement_is_the_sequential_rule(wordpiece):
    """With p = 0.5, mention k of a row is replaced with r_k = p (1 - r_(k-1)): 1/2, 1/4, 3/8."""
    rows = [row_of(wordpiece, 0, "near", 0, "near", 0)] * 6000
    labels = replacement(wordpiece, mlm_probability=0.0)(rows)["entity_labels"]
    rates = (labels == 0).float().mean(dim=0)
    # Standard deviation below 0.0065; bound at 4.6 of it.
    assert (rates - rates.new_tensor([0.5, 0.25, 0.375])).abs().max() < 0.03


@pytest.mark.parametrize("side", ["right", "left"])
def test_mentions_are_never_masked_and_the_rest_at_the_reduced_rate(wordpiece, side):
    wordpiece.padding_side = side
    try:
        rows = [
            row_of(wordpiece, "near the houses and nights", 1, "near the night"),
            row_of(wordpiece, "houses", 0),
        ] * 300
        batch = replacement(wordpiece, mlm_probability=0.3)(rows)
    finally:
        wordpiece.padding_side = "right"
    masked = batch["labels"] != -100
    inside = np.zeros(masked.shape, dtype=bool)
    for number, place in zip(*np.nonzero(batch["entity_labels"].numpy() != -100), strict=True):
        inside[number, batch["entity_start"][number, place] : batch["entity_end"][number, place]] = True
    assert not (masked.numpy() & inside).any()
    ordinary = (batch["attention_mask"].bool().numpy() & ~inside).sum() - 2 * len(rows)
    # ceil(0.3 n) of the n tokens of a row, less those that fall into mentions.
    assert 0.28 < masked.sum().item() / ordinary < 0.42
    assert (batch["input_ids"][batch["attention_mask"] == 0] == wordpiece.pad_token_id).all()


def test_long_rows_are_cut_before_their_end_and_lose_the_cut_mentions(wordpiece):
    row = row_of(wordpiece, "near", 0, "houses", 0)
    collator = replacement(wordpiece, mlm_probability=0.0, replace_probability=1.0, max_length=6)
    batch = collator([row])
    assert batch["input_ids"].shape[1] == 6
    assert batch["input_ids"][0, -1] == wordpiece.sep_token_id
    ends = batch["entity_end"][batch["entity_labels"] != -100]
    assert (ends < 6).all()


def test_rows_without_mentions_and_padded_rows(wordpiece):
    bare = {"input_ids": wordpiece("near the harbour")["input_ids"]}
    assert replacement(wordpiece)([bare])["entity_labels"].tolist() == [[-100]]
    row = row_of(wordpiece, "near", 0, "houses")
    padded = {name: list(value) for name, value in row.items()}
    padded["attention_mask"] = [1] * len(row["input_ids"]) + [0] * 4
    padded["input_ids"] = row["input_ids"] + [wordpiece.pad_token_id] * 4
    options = {"replace_probability": 1.0, "mlm_probability": 0.0}
    with_padding, without = (replacement(wordpiece, **options)([r]) for r in (padded, row))
    for name in without:
        assert (with_padding[name] == without[name]).all(), name


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mention_spans": [[1, 1]]}, r"row 0 has \[1, 1\]"),
        ({"mention_spans": [[1, 99]]}, r"row 0 has \[1, 99\]"),
        ({"mention_spans": [[1, 3], [2, 4]], "mention_entities": [0, 1]}, "without overlap"),
        ({"mention_entities": [9]}, "below 4, the catalogue's size"),
        ({"mention_entities": []}, "must have one entity per span, row 0 has 0 for 1"),
        ({"word_ids": [1, 2, 3]}, "`word_ids` cannot follow a row whose length changes"),
    ],
)
def test_replacement_errors(wordpiece, change, message):
    row = {**row_of(wordpiece, "near", 0), **change}
    with pytest.raises(ValueError, match=message):
        replacement(wordpiece)([row])


def test_catalogue_errors(wordpiece):
    with pytest.raises(ValueError, match="one entry per entity, got 1 and 2"):
        EntityCatalogue([["a"]], [["x"], ["y"]], wordpiece)
    with pytest.raises(ValueError, match="got none for entity 1"):
        EntityCatalogue([["house"], []], [[], []], wordpiece)
    with pytest.raises(ValueError, match="of which nothing is left"):
        EntityCatalogue([[""]], [[]], wordpiece)
    with pytest.raises(TypeError, match="`catalogue` must be an EntityCatalogue"):
        DataCollatorForEntityReplacement(wordpiece)


def test_names_in_byte_level_text_carry_their_blank(byte_level):
    catalogue = EntityCatalogue([["lighthouse"], ["harbour"]], [["x"], ["x"]], byte_level)
    assert byte_level.decode(catalogue.tokens).startswith(" lighthouse")
