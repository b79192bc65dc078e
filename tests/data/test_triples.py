"""Triple files are read whatever editor wrote them; corrupted triples are never true."""

import gzip

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_ptm_ext.data.triples import NegativeSampler, ZippedRows, read_triples


def test_files_share_their_numbers_and_survive_windows_editors(tmp_path):
    plain, zipped = tmp_path / "train.tsv", tmp_path / "test.tsv.gz"
    plain.write_bytes("\ufeff北京\t是\t首都\r\n\r\n new york \tis\tcity\r\n".encode())
    with gzip.open(zipped, "wt", encoding="utf-8") as file:
        file.write("new york\tis\t首都\n")
    train, test = read_triples(plain, zipped)
    assert set(train.entities) == {"北京", "首都", "new york", "city"}
    assert train.entities == test.entities == tuple(sorted(train.entities))
    names = [(test.entities[h], test.relations[r], test.entities[t]) for h, r, t in test.rows]
    assert names == [("new york", "is", "首都")]


def test_malformed_lines_are_named(tmp_path):
    path = tmp_path / "bad.tsv"
    path.write_text("a\tr\tb\na r b\na\t\tb\na\tr\tb\tc\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"bad\.tsv .*3 lines have not: 2, 3, 4"):
        read_triples(path)
    path.write_text("\n", encoding="utf-8")
    with pytest.raises(ValueError, match="at least one triple"):
        read_triples(path)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(3, 8), st.integers(1, 3), st.integers(1, 40))
def test_corruptions_are_false_and_change_one_side(seed, entities, relations, number):
    rng = np.random.default_rng(seed)
    limits = [entities, relations, entities]
    known = np.unique(rng.integers(0, limits, size=(number, 3)), axis=0)
    sampler = NegativeSampler(known, entities, relations)
    true = {tuple(row) for row in known.tolist()}
    for side, column in (("head", 0), ("tail", 2)):
        others = [
            {*true} & {(e, *row[1:]) if side == "head" else (*row[:2], e) for e in range(entities)} for row in known
        ]
        drawable = np.array([len(found) < entities for found in others])
        repeated = np.repeat(known[drawable], 5, axis=0)
        corrupted = repeated.copy()
        corrupted[:, column] = sampler.draw(repeated, side, rng)
        assert not true & {tuple(row) for row in corrupted.tolist()}


def test_replacements_are_uniform_over_what_is_false():
    known = np.array([[0, 0, 1], [0, 0, 2]])
    drawn = NegativeSampler(known, 6, 1).draw(np.repeat(known[:1], 8000, axis=0), "tail", np.random.default_rng(0))
    counts = np.bincount(drawn, minlength=6)
    assert counts[[1, 2]].sum() == 0
    # Four equal cells of 2,000: standard deviation 39, bound at 5 of them.
    assert abs(counts[[0, 3, 4, 5]] - 2000).max() < 195


def test_sides_can_differ_within_a_call():
    known = np.array([[0, 0, 1], [1, 0, 0]])
    drawn = NegativeSampler(known, 2, 1).draw(known, np.array([True, False]), np.random.default_rng(0))
    assert drawn.tolist() == [1, 1]


def test_a_triple_without_a_false_neighbour_is_named():
    known = np.array([[0, 0, 0], [1, 0, 0]])
    with pytest.raises(ValueError, match=r"false head; for \[0, 0, 0\] all 2 entities are true"):
        NegativeSampler(known, 2, 1).draw(known[:1], "head", np.random.default_rng(0))


@pytest.mark.parametrize(("entities", "relations"), [(2, 1), (3, 0), (2**31, 2**31)])
def test_sizes_that_do_not_fit_are_refused(entities, relations):
    with pytest.raises(ValueError, match=r"`known`|`num_entities`"):
        NegativeSampler(np.array([[2, 0, 1]]), entities, relations)


def test_the_shorter_set_starts_again():
    rows = ZippedRows([{"input_ids": [n]} for n in range(5)], np.array([[0, 0, 1], [1, 0, 0]]), "triple")
    assert [rows[n]["triple"][0] for n in range(len(rows))] == [0, 1, 0, 1, 0]
    assert [rows[n]["input_ids"][0] for n in range(-5, 0)] == [0, 1, 2, 3, 4]
    with pytest.raises(IndexError):
        rows[5]
    with pytest.raises(ValueError, match="`others` must have at least one row"):
        ZippedRows([{"a": 1}], [], "triple")
