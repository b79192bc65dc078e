"""KG-BERT against its reference: rows, logits, losses, candidate scores, ranks; and that nothing is scored twice."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast, RobertaTokenizerFast

from hf_ptm_ext.data.labelled_triples import TripleEncoder
from hf_ptm_ext.kg_bert import TripleScorer
from hf_ptm_ext.metrics import relation_ranks, triple_ranks
from tests.tolerance import assert_agrees

GOLDENS = Path(__file__).parent / "goldens"
FACTS = json.loads((GOLDENS / "kgbert-a.json").read_text(encoding="utf-8"))
TENSORS = load_file(GOLDENS / "kgbert-a.safetensors")
TOKENIZER = BertTokenizerFast(vocab={word: number for number, word in enumerate(FACTS["vocab"])})
ENTITIES, RELATIONS = list(FACTS["entities"]), list(FACTS["relations"])
TEXTS = (list(FACTS["entities"].values()), list(FACTS["relations"].values()))


def numbers(split):
    return np.array([[ENTITIES.index(h), RELATIONS.index(r), ENTITIES.index(t)] for h, r, t in FACTS[split]])


TEST, EVERY = numbers("test"), np.concatenate([numbers(split) for split in ("train", "dev", "test")])


def encoder(max_length=FACTS["max_seq_length"], **options):
    return TripleEncoder(TOKENIZER, *TEXTS, max_length, **options)


def model(prefix, num_labels):
    made = BertForSequenceClassification(BertConfig(**FACTS["bert_config"], num_labels=num_labels)).eval()
    made.load_state_dict({key.removeprefix(prefix): value for key, value in TENSORS.items() if key.startswith(prefix)})
    return made


def tolerance():
    return FACTS["tolerance"]["atol"]


@pytest.mark.golden
@pytest.mark.parametrize(("form", "prefix", "labels"), [("triple", "param.", 2), ("relation", "param_relation.", 3)])
def test_rows_logits_and_loss_are_the_references(form, prefix, labels):
    made = encoder(with_relation=form == "triple")
    batch = TOKENIZER.pad(made.rows(TEST), padding="max_length", max_length=16, return_tensors="pt")
    for name in ("input_ids", "attention_mask", "token_type_ids"):
        assert torch.equal(batch[name], TENSORS[f"{form}.{name}"])
    output = model(prefix, labels)(**batch, labels=TENSORS[f"{form}.labels"])
    assert_agrees(output.logits, TENSORS[f"{form}.logits"], tolerance())
    assert_agrees(output.loss, torch.tensor(FACTS["scalars"][f"{form}_loss"]), tolerance())


@pytest.mark.golden
def test_candidate_scores_and_ranks_are_the_references():
    scorer = TripleScorer(model("param.", 2), encoder(), batch_size=4)
    known = {tuple(row) for row in EVERY.tolist()}
    for side, column in (("left", 0), ("right", 2)):
        for row, expected in zip(TEST, FACTS["candidate_scores"][side], strict=True):
            asked = [row.tolist()]
            for entity in range(len(ENTITIES)):
                other = row.copy()
                other[column] = entity
                asked += [other.tolist()] if tuple(other.tolist()) not in known else []
            assert_agrees(torch.from_numpy(scorer(asked)), torch.tensor(expected), tolerance())
    for ties in ("optimistic", "realistic", "pessimistic"):
        ranks = scorer.rank(TEST, EVERY, ties=ties)
        assert ranks.filtered.tolist() == [FACTS["scalars"]["left_ranks"], FACTS["scalars"]["right_ranks"]]
    scores = ranks.scores()
    for name, theirs in {"mean_rank": "mean_rank", "mrr": "mrr", "hits@1": "hits1", "hits@10": "hits10"}.items():
        assert scores[name] == pytest.approx(FACTS["scalars"][theirs])
    raw, filtered = relation_ranks(
        TENSORS["relation.logits"].numpy(),
        TEST[:, 1],
        [[r for h, r, t in EVERY.tolist() if (h, t) == (row[0], row[2])] for row in TEST.tolist()],
    )
    assert raw.tolist() == FACTS["scalars"]["relation_rank_raw"]
    assert filtered.tolist() == FACTS["scalars"]["relation_rank_filtered"]


def reference_cut(parts, room):
    """The reference's loop over lists of pieces."""
    parts = [list(part) for part in parts]
    while sum(map(len, parts)) > room:
        longest = [part for part in parts if len(part) == max(map(len, parts))]
        (longest[0] if len(longest) == 1 else parts[-1]).pop()
    return [len(part) for part in parts]


@pytest.mark.parametrize("with_relation", [True, False])
@pytest.mark.parametrize("max_length", [7, 9, 12, 40])
def test_texts_are_cut_as_the_reference_cuts_them(with_relation, max_length):
    draw = np.random.default_rng(max_length)
    texts = [" ".join(["a"] * number) for number in draw.integers(1, 30, 40)]
    made = TripleEncoder(TOKENIZER, texts, texts[:5], max_length, with_relation)
    triples = np.stack([draw.integers(0, limit, 300) for limit in (40, 5, 40)], axis=1)
    kept = made.cut(made.texts_of(triples))
    for row, found in zip(triples, kept, strict=True):
        parts = [texts[row[0]].split(), texts[row[1]].split(), texts[row[2]].split()]
        try:
            expected = reference_cut(parts if with_relation else parts[::2], made.room)
        except IndexError:  # an empty text cannot lose more; here the longest one does
            assert found[-1] == 0
            assert found.sum() == made.room
            continue
        assert found.tolist() == expected


@pytest.mark.parametrize("candidates", ["all", "type", 4])
def test_ranks_are_those_of_a_loop_and_nothing_is_scored_twice(candidates):
    draw = np.random.default_rng(0)
    for seed in range(10):
        triples = np.unique(np.stack([draw.integers(0, limit, 30) for limit in (9, 2, 9)], axis=1), axis=0)
        known, table, scored = triples[:20], draw.integers(0, 3, (9, 2, 9)).astype(float), []

        def score(rows, table=table, scored=scored):
            scored.extend(map(tuple, rows.tolist()))
            return table[tuple(rows.T)]

        asked = triples[15:]
        ranks = triple_ranks(asked, known, 9, score, candidates=candidates, seed=seed)
        assert len(set(scored)) == len(scored), "a triple was scored twice"
        true = set(map(tuple, triples[:].tolist()))
        pool = sorted(np.random.default_rng(seed).permutation(9)[:4].tolist()) if candidates == 4 else range(9)
        for side, column in ((0, 0), (1, 2)):
            for place, row in enumerate(asked.tolist()):
                if candidates == "type":
                    others = {tuple(one) for one in known.tolist()} - {tuple(one) for one in asked.tolist()}
                    pool = {one[column] for one in others if one[1] == row[1]}
                every = {entity: table[tuple(_with(row, column, entity))] for entity in {*pool, row[column]}}
                mine = every.pop(row[column])
                left = {e: s for e, s in every.items() if tuple(_with(row, column, e)) not in true}
                for found, scores in ((ranks.raw, every), (ranks.filtered, left)):
                    better = sum(s > mine for s in scores.values())
                    assert found[side, place] == 1 + better + sum(s == mine for s in scores.values()) / 2
                assert ranks.candidates[side, place] == len(left) + 1


def _with(row, column, entity):
    return [*row[:column], entity, *row[column + 1 :]]


def test_ties_count_as_asked_and_equal_texts_are_one():
    same = TripleEncoder(TOKENIZER, ["apple", "apple", "google", "apple"], ["is"], 10)
    scorer = TripleScorer(model("param.", 2), same)
    places = {ties: scorer.rank([[0, 0, 2]], ties=ties).raw[0, 0] for ties in ("optimistic", "pessimistic")}
    assert places["pessimistic"] - places["optimistic"] == 2, "two entities read as the true one does"
    passes = []
    scorer.on_scored = passes.append
    assert len(set(scorer([[0, 0, 2], [1, 0, 2], [3, 0, 2], [2, 0, 2]]).tolist())) == sum(passes) == 2


def test_a_row_of_a_tokenizer_without_segments_has_none():
    vocab = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "<mask>": 4, "a": 5, "b": 6}
    made = TripleEncoder(RobertaTokenizerFast(vocab=vocab, merges=[]), ["a", "b"], ["b"], 12)
    assert made.rows([[0, 0, 1]]) == [{"input_ids": [0, 5, 2, 6, 2, 6, 2], "attention_mask": [1] * 7}]


def test_mistakes_are_one_line():
    scorer = TripleScorer(model("param.", 2), encoder())
    with pytest.raises(ValueError, match=r"`triples` must name entities below 7 .* got numbers up to \[9, 0, 0\]"):
        scorer([[9, 0, 0]])
    with pytest.raises(ValueError, match=r"`ties` must be one of realistic, .* got 'best'"):
        scorer.rank(TEST, ties="best")
    with pytest.raises(ValueError, match="`candidates` must be all, type or a number, got 'some'"):
        scorer.rank(TEST, candidates="some")
    with pytest.raises(ValueError, match="`model` must have two classes, false and true, got 3"):
        TripleScorer(model("param_relation.", 3), encoder())
    with pytest.raises(ValueError, match="`max_length` must leave room for a piece of each text, got 6"):
        encoder(6)
