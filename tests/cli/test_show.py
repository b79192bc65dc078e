"""`hf-ptm-ext show` draws what the models use."""

import pytest

from hf_ptm_ext.cli import main


def test_all_four_modes_are_drawn(capsys):
    assert main(["show", "masks", "unilm"]) == 0
    printed = capsys.readouterr().out
    for mode in ("bidirectional", "left-to-right", "right-to-left", "seq2seq"):
        assert mode in printed


def test_seq2seq_shows_the_source_to_all_and_the_past_to_the_target(capsys):
    assert main(["show", "masks", "unilm", "--mode", "seq2seq"]) == 0
    rows = [line.split()[1:] for line in capsys.readouterr().out.splitlines() if line[:1] in "[st" and "■" in line]
    rows = [row for row in rows if len(row) == 8]
    assert ["".join(row) for row in rows] == ["■■■■■···"] * 5 + ["■■■■■■··", "■■■■■■■·", "■■■■■■■■"]


def test_the_picture_is_written(tmp_path):
    pytest.importorskip("matplotlib")
    assert main(["show", "masks", "unilm", "--png", str(tmp_path / "masks.png")]) == 0
    assert (tmp_path / "masks.png").read_bytes()[:4] == b"\x89PNG"


def test_other_families_have_no_modes(capsys):
    assert main(["show", "masks", "spanbert"]) == 2
    assert "unilm" in capsys.readouterr().err


@pytest.fixture
def graph(tmp_path):
    path = tmp_path / "graph.spo"
    path.write_text("北京\t是\t首都\n北京\t有\t故宫\nTim Cook\tCEO of\tApple\none field\n", encoding="utf-8")
    return path


def test_a_text_with_knowledge_is_a_tree_and_a_matrix(graph, capsys):
    assert main(["show", "knowledge", "Tim Cook在北京", "--kg", str(graph)]) == 0
    lines = capsys.readouterr().out.split("\n")
    assert [line.split("    ")[-1] for line in lines[:7]] == [
        "[CLS]", "Tim Cook", "└── Apple", "在", "北 京", "├── 首 都", "└── 故 宫",
    ]  # fmt: skip
    matrix = {line.split()[-1]: line.split()[:-1] for line in lines if "·" in line}
    assert "".join(matrix["Apple"]) == "·■■■········", "Apple sees both words of Tim Cook and itself"
    assert "".join(matrix["宫"]) == "·····■■··■■·", "the word and the own branch, not the other one"
    assert "".join(matrix["在"]) == "■■■·■■■····■", "the text, and no branch"


def test_options_and_own_tokenizers(graph, capsys, tmp_path):
    from hf_ptm_ext import KBertTokenizer, KnowledgeGraph

    assert main(["show", "knowledge", "北京", "--kg", str(graph), "--use_predicate", "--max_entities", "1"]) == 0
    printed = capsys.readouterr().out
    assert "└── 是 首 都" in printed
    assert "故" not in printed
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "北", "京"]
    KBertTokenizer({word: n for n, word in enumerate(words)}, kg=KnowledgeGraph.from_files(graph)).save_pretrained(
        tmp_path
    )
    assert main(["show", "knowledge", "北京", "--tokenizer", str(tmp_path), "--granularity", "char"]) == 0
    assert "├── [UNK] [UNK]" in capsys.readouterr().out


def test_a_tokenizer_is_shown_as_it_works(graph, capsys, tmp_path):
    """Its own options count unless the command line names others."""
    from hf_ptm_ext import KBertTokenizer, KnowledgeGraph

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"北京是首都有故宫"]
    own = {"granularity": "char", "pkuseg_compat": True, "max_entities": 1, "use_predicate": True}
    knowledge = KnowledgeGraph.from_files(graph)
    KBertTokenizer({word: n for n, word in enumerate(words)}, kg=knowledge, **own).save_pretrained(tmp_path)
    shown = ["show", "knowledge", "北京", "--tokenizer", str(tmp_path)]
    assert main(shown) == 0
    printed = capsys.readouterr().out
    assert "└── 是 首 都" in printed
    assert "├──" not in printed
    assert main([*shown, "--no-use_predicate", "--max_entities", "2"]) == 0
    printed = capsys.readouterr().out
    assert "├── 首 都" in printed
    assert "└── 故 宫" in printed


def test_a_graph_is_counted(graph, capsys):
    assert main(["show", "knowledge", "--kg", str(graph)]) == 0
    printed = capsys.readouterr().out
    assert "4 lines, 3 kept, 0 duplicates, 1 malformed (line 4: 1 field), 0 empty" in printed
    assert "3 triples of 2 subjects, 3 predicates" in printed


def test_knowledge_needs_a_graph(capsys):
    assert main(["show", "knowledge", "北京"]) == 2
    assert "`--kg`" in capsys.readouterr().err


def test_a_text_without_knowledge_says_so(graph, capsys):
    assert main(["show", "knowledge", "上海", "--kg", str(graph)]) == 0
    assert "nothing is injected" in capsys.readouterr().out


def test_a_text_behind_the_files_is_told_from_a_file(graph, capsys):
    assert main(["show", "knowledge", "--kg", str(graph), "在北京"]) == 2
    assert "A text stands before the options: hf-ptm-ext show knowledge TEXT --kg FILE" in capsys.readouterr().err
    assert main(["show", "knowledge", "--kg", str(graph), "missing.spo"]) == 2
    assert "There is no triple file missing.spo" in capsys.readouterr().err


def test_a_tokenizer_without_words_is_refused(graph, capsys):
    assert main(["show", "knowledge", "北京", "--kg", str(graph), "--tokenizer", "no/such"]) == 2
    assert "no/such has no vocabulary" in capsys.readouterr().err


def test_the_tree_is_written_as_a_picture(graph, tmp_path):
    pytest.importorskip("matplotlib")
    assert main(["show", "knowledge", "在北京", "--kg", str(graph), "--png", str(tmp_path / "tree.png")]) == 0
    assert (tmp_path / "tree.png").read_bytes()[:4] == b"\x89PNG"


def test_a_font_for_the_picture_may_be_named(graph, tmp_path, capsys):
    font_manager = pytest.importorskip("matplotlib.font_manager")
    font = font_manager.findfont("DejaVu Sans Mono")
    command = ["show", "knowledge", "在北京", "--kg", str(graph), "--png", str(tmp_path / "tree.png"), "--font"]
    assert main([*command, font]) == 0
    assert "no font" not in capsys.readouterr().out
    assert (tmp_path / "tree.png").is_file()
    assert main([*command, str(graph)]) == 2
    assert "`--font` must be a font's file" in capsys.readouterr().err
