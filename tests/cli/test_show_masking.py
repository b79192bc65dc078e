"""`show masking`: every objective of `pretrain` is shown by its own collator, without a word about it here."""

import numpy as np
import pytest

from hf_ptm_ext.cli import main
from hf_ptm_ext.cli.pretraining import OBJECTIVES
from hf_ptm_ext.cli.show_masking import KINDS, MEANING, draws_of
from hf_ptm_ext.data import train_wordpiece

TEXT = "The old keeper of the lighthouse saw no ship in the harbour that night. He went to bed early and slept well."
PARALLEL = "The old keeper saw a ship. ||| Der alte Mann sah ein Schiff."
# What some objectives cannot do without, as `--overrides`; of files see below. A new objective that fails here needs
# an entry, or a column of its batch that `show_masking` does not know.
NEEDED = {"unicoder": ['languages=["en","fr"]'], "ernie": ["segmenter=jieba"]}
FILES = {
    "macbert": "similar_words",
    "ernie_thu": "entity_table",
    "sensebert": "supersenses",
    "sentilare": "opinion_words",
    "libert": "lexical_constraints",
}
# Nothing is hidden, so there is nothing to show.
UNMASKED = {name for name, objective in OBJECTIVES.items() if not objective.hides}


@pytest.mark.parametrize("name", sorted(set(OBJECTIVES) - set(FILES) - UNMASKED))
def test_every_objective_is_shown(name, capsys):
    text = PARALLEL if OBJECTIVES[name].parallel else TEXT
    text = "灯塔的老看守人那天晚上在港口没有看到船。他很早就去睡觉了。" if name == "ernie" else text
    words = ["--overrides", *NEEDED[name]] if name in NEEDED else []
    assert main(["show", "masking", "--objective", name, text, "--draws", "2", *words]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"{name}: ")
    assert "draw 2" in printed
    assert "predicted" in printed or "written" in printed
    assert "what is written or predicted" in printed


@pytest.mark.parametrize("name", sorted(FILES))
def test_what_needs_a_file_says_so(name, capsys):
    assert main(["show", "masking", TEXT, "--objective", name]) == 2
    assert f"`{FILES[name]}`" in capsys.readouterr().err


@pytest.mark.parametrize("name", sorted(UNMASKED))
def test_what_hides_nothing_says_so(name, capsys):
    assert main(["show", "masking", TEXT, "--objective", name]) == 2
    error = capsys.readouterr().err
    assert f"Objective {name} hides nothing" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("name", ["mlm", "wwm", "span", "ngram", "electra"])
def test_letters_say_what_happened(name):
    _, draws = draws_of(TEXT, name, draws=12, seed=3)
    seen = set()
    for draw in draws:
        text, shown, predicted = draw.lines
        for was, now, target, kind in zip(text.tokens, shown.tokens, predicted.tokens, shown.kinds, strict=True):
            assert bool(target) == (kind in ("masked", "replaced", "kept"))
            assert not target or target == was
            assert (now == "[MASK]") == (kind == "masked")
            assert (now == was) == (kind in ("kept", "boundary", "special", ""))
            seen.add(kind)
    assert {"masked", "kept"} <= seen
    assert set(MEANING) | {"special", ""} == set(KINDS)


def test_draws_differ_and_a_seed_repeats_them():
    found = [
        [line.tokens for draw in draws_of(TEXT, "mlm", draws=3, seed=seed)[1] for line in draw.lines]
        for seed in (1, 1, 2)
    ]
    assert found[0] == found[1] != found[2]
    assert found[0][1] != found[0][4]


def test_a_permutation_is_told_by_what_each_token_sees():
    _, (draw,) = draws_of(TEXT, "permutation")
    order = next(line for line in draw.lines if line.name == "tokens it sees")
    seen = np.array([int(one) for one in order.tokens])
    assert len(seen) == len(next(line for line in draw.lines if line.name == "input").tokens)
    assert len(set(seen.tolist())) > 1


def test_chinese_words_of_a_segmenter(tmp_path, capsys):
    pytest.importorskip("jieba")
    command = [
        "show",
        "masking",
        "开发者可以使用其他语言来开发应用程式。",
        "--objective",
        "wwm",
        "--segmenter",
        "jieba",
    ]
    assert main([*command, "--png", str(tmp_path / "words.png")]) == 0
    assert "可" in capsys.readouterr().out
    assert (tmp_path / "words.png").read_bytes()[:4] == b"\x89PNG"


def test_a_tokenizer_may_be_named(tmp_path, capsys):
    train_wordpiece([["the old keeper saw a ship"]] * 2, 100).save_pretrained(tmp_path)
    assert main(["show", "masking", "the old keeper saw", "--tokenizer", str(tmp_path)]) == 0
    assert "keeper" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "needs a text"),
        (["a text", "--draws", "0"], "`--draws` must be at least 1, got 0"),
        (["a text", "--objective", "wmm"], "`objective` must be one of"),
        (["a text", "--overrides", "mlm_probability=2"], "`mlm_probability` must be above 0 and at most 1, got 2"),
        (["a text", "another"], "'another' is no argument"),
        (["one", "--objective", "mass"], "gives no row of objective mass"),
    ],
)
def test_mistakes_are_one_line(words, message, capsys):
    assert main(["show", "masking", *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--png", "."], "`--png` must be a .png file in a folder that is there, got ."),
        (["--png", "no/where.png"], "`--png` must be a .png file in a folder that is there, got no/where.png"),
        (["--tokenizer", "/no/where"], "`--tokenizer` = /no/where does not exist"),
        (["--objective", "ngram", "--overrides", "sentence_pairs=order"], "got spanbert: name one by `family`"),
    ],
)
def test_what_cannot_be_is_told(words, told, capsys):
    assert main(["show", "masking", TEXT, *words]) == 2
    assert told in capsys.readouterr().err
