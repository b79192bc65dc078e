"""Mentions, their candidates and where they are: the generator, the processor and the collator."""

import gzip

import numpy as np
import pytest
import torch
from transformers import AutoProcessor, AutoTokenizer, BertTokenizerFast, DataCollatorWithPadding

from hf_ptm_ext import (
    DataCollatorForEntityCandidates,
    DataCollatorForMaskedLanguageModeling,
    EntityCandidateGenerator,
    EntityTable,
    KnowBertProcessor,
)
from hf_ptm_ext.data import read_entity_candidates
from hf_ptm_ext.models.entity_vocab_ernie_thu import read_arrays, write_arrays

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "in", "par", "##is", ",", "texas", "london", "is", "big"]
PLACES = {"Paris": {"Q90": 9, "Q830149": 1}, "paris": {"Q167646": 2}, "Texas": ["Q1439"]}


@pytest.fixture
def tokenizer():
    return BertTokenizerFast(vocab={word: number for number, word in enumerate(WORDS)})


@pytest.fixture
def processor(tokenizer):
    senses = EntityCandidateGenerator.from_senses({"big": ["s1", "s2"]}, null_prior=0.25)
    return KnowBertProcessor(tokenizer, {"wiki": EntityCandidateGenerator(PLACES), "wordnet": senses})


def test_candidates_have_their_priors():
    find = EntityCandidateGenerator(PLACES, max_candidates=2)
    ((mention,),) = find(["in PARIS"])
    assert (mention.start, mention.end, find.ids_of(mention.entities)) == (3, 8, ["Q90", "Q167646"])
    assert mention.priors == (9 / 11, 2 / 11)
    assert (find.row_of("Q1439"), find.row_of("Q0"), find.entity_vocab_size) == (7, 1, 8)
    with pytest.raises(ValueError, match="`entities` must have every entity of `mentions`, and lacks"):
        EntityCandidateGenerator(PLACES, ["Q90"])
    with pytest.raises(ValueError, match="weights must be above 0, got 0 for 'a' of 'b'"):
        EntityCandidateGenerator({"b": {"a": 0}})


def test_permuted_entities_are_others_at_the_same_places():
    find = EntityCandidateGenerator({str(number): [f"Q{number}"] for number in range(50)})
    other = find.permuted(seed=0)
    own, swapped = find(["7 and 9"])[0], other(["7 and 9"])[0]
    assert [one[:2] for one in own] == [one[:2] for one in swapped]
    assert [one.entities for one in own] != [one.entities for one in swapped]
    assert sorted(rows for rows, _ in find.candidates) == sorted(rows for rows, _ in other.candidates)


def test_of_a_table_with_titles():
    table = EntityTable.from_arrays(
        torch.ones(2, 3).numpy(), ["Q90", "Q830149"], titles=[("Paris", "Q90"), ("Paris", "Q830149")]
    )
    ((mention,),) = EntityCandidateGenerator.from_table(table)(["Paris"])
    assert (sorted(mention.entities), mention.priors) == ([4, 5], (0.5, 0.5))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("candidate_rows", None, "it lacks candidate_rows"),
        ("candidate_rows", np.array([9, 4], np.int32), "its candidates are none of its 6 rows"),
        ("candidate_priors", np.array([np.nan, 1], np.float32), "or have no priors"),
        ("candidate_offsets", np.array([0, 9]), "do not fit each other"),
        ("null_prior", None, "it lacks null_prior"),
    ],
)
def test_damaged_dictionaries_are_refused(tmp_path, name, value, message):
    arrays, said = read_arrays(EntityCandidateGenerator({"Paris": {"Q90": 3, "Q1": 1}}).save(tmp_path / "one"))
    arrays = {key: np.asarray(one) for key, one in arrays.items() if key != name}
    options = {key: one for key, one in said.items() if key != name}
    write_arrays(tmp_path / "two", arrays if value is None else {**arrays, name: value}, options)
    with pytest.raises(ValueError, match=f"is damaged: .*{message}.* Write it again"):
        EntityCandidateGenerator.from_file(tmp_path / "two")


def test_mentions_without_lists_or_weights_are_refused():
    with pytest.raises(ValueError, match="must map to lists of entities, got 'Q90' for 'Paris'"):
        EntityCandidateGenerator({"Paris": "Q90"})
    with pytest.raises(ValueError, match="weights must be above 0, got inf"):
        EntityCandidateGenerator({"Paris": {"Q90": float("inf")}})


def test_files(tmp_path):
    with gzip.open(tmp_path / "mentions.tsv.gz", "wt", encoding="utf-8") as file:
        file.write("Paris\tQ90\t3\nParis\tQ830149\t1\nTexas\tQ1439\n")
    find = EntityCandidateGenerator(read_entity_candidates(tmp_path / "mentions.tsv.gz"))
    assert find(["Paris"])[0][0].priors == (0.75, 0.25)
    find.save(tmp_path / "one.safetensors")
    again = EntityCandidateGenerator.from_file(tmp_path / "one.safetensors")
    assert again(["in Paris, Texas"]) == find(["in Paris, Texas"])
    (tmp_path / "senses.tsv").write_text("ice_cream\tn\t07614500 07614501\n", encoding="utf-8")
    wordnet = EntityCandidateGenerator(read_entity_candidates(tmp_path / "senses.tsv"), null_prior=0.1)
    ((mention,),) = wordnet(["ice cream"])
    assert wordnet.ids_of(mention.entities) == ["07614500", "07614501", "@@NULL@@"]
    for text, message in (
        ("Paris\n", "line 1 must be"),
        ("a\tb\t-1\n", "a weight above 0, got '-1'"),
        ("\n", "got none"),
    ):
        (tmp_path / "bad.tsv").write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match=message):
            read_entity_candidates(tmp_path / "bad.tsv")


def test_places_are_those_of_the_tokens(processor):
    row = processor("in paris , texas", "big")
    assert row["candidate_spans"] == [[[2, 3], [5, 5]], [[7, 7], [-1, -1]]]
    words = processor([["in", "Paris", ",", "texas"]], [["big"]], is_split_into_words=True)
    assert words["candidate_spans"] == [row["candidate_spans"]]
    assert words.word_ids(0) == [None, 0, 1, 1, 2, 3, None, 0, None]
    cut = processor("in paris , texas", truncation=True, max_length=5)
    assert cut["candidate_spans"] == [[[2, 3]], [[-1, -1]]]
    assert "candidate_spans" in processor(["big"], candidates=False)
    windows = processor(
        "in paris , texas big", truncation=True, max_length=5, stride=1, return_overflowing_tokens=True
    )
    assert len(windows["candidate_spans"]) == len(windows["input_ids"]) > 1
    assert windows["candidate_spans"][0][0] == [[2, 3]]


@pytest.mark.parametrize("side", ["right", "left"])
def test_rows_are_padded(processor, side):
    processor.tokenizer.padding_side = side
    texts = ["in paris , texas", "big"]
    together = processor(texts, padding=True, return_tensors="pt")
    apart = DataCollatorWithPadding(processor)([processor(text) for text in texts])
    assert together.keys() == apart.keys()
    assert all(torch.equal(together[name], apart[name]) for name in together)
    assert together["candidate_spans"][1, 1].tolist() == [[5, 5] if side == "left" else [1, 1], [-1, -1]]
    assert together["candidate_entities"].shape == (2, 2, 2, 3)
    with_end = processor("big", return_tensors="pt")
    assert with_end["candidate_spans"].shape == (1, 2, 1, 2)


def test_it_is_saved_with_its_dictionaries(processor, tmp_path):
    processor.save_pretrained(tmp_path)
    loaded = AutoProcessor.from_pretrained(tmp_path)
    assert loaded("in Paris, big Texas") == processor("in Paris, big Texas")
    assert len(loaded) == len(WORDS)
    assert type(AutoTokenizer.from_pretrained(tmp_path)).__name__.startswith("Bert")


def test_candidates_of_masked_mentions_are_masked(processor, tokenizer):
    rows = [{**processor("in paris , texas"), "gold_entities": [[5, 4], [-100, -100]]} for _ in range(2000)]
    masked = DataCollatorForMaskedLanguageModeling(tokenizer, mlm_probability=0.3, seed=0)
    batch = DataCollatorForEntityCandidates(masked, seed=0)(rows)
    hidden = (batch["labels"] != -100)[:, 2:4].any(1)
    first = batch["candidate_entities"][:, 0, 0]
    whole = torch.tensor(rows[0]["candidate_entities"][0][0])
    assert (first[~hidden] == whole).all()
    is_mask = (first[hidden] == torch.tensor([3, *[0] * (len(whole) - 1)])).all(1).float().mean()
    assert abs(is_mask - 0.8) < 0.05
    priors = batch["candidate_priors"][:, 0, 0]
    assert torch.allclose(priors.sum(1), torch.ones(()))
    gold = batch["gold_entities"][:, 0, 0]
    assert torch.equal(gold != -100, (first == 5).any(1))
    alone = batch["labels"][:, 5] == -100
    assert (batch["gold_entities"][alone, 0, 1] == -100).all()  # no candidate of Texas
    assert (batch["candidate_entities"][:, 1] == 0).all()
    with pytest.raises(ValueError, match="Row 0 has no `candidate_spans`"):
        DataCollatorForEntityCandidates(masked)([tokenizer("in")])
