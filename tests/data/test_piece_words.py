"""Words of rows that have lost their text: what the pieces spell, in which scripts, of which tokenizers."""

import pytest
from tokenizers import Tokenizer, models
from transformers import BertTokenizerFast, CanineTokenizer, PreTrainedTokenizerFast
from transformers.models.bert.tokenization_bert_legacy import BertTokenizerLegacy

from hf_ptm_ext.data import PieceWordIds
from hf_ptm_ext.data.segmentation import word_ids_from_offsets

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = ["나는", "학교", "##에", "간다", "武", "汉", "是", "ไทย", "ดี", "light", "##s", "on", "の", "カ"]
VOCAB = {piece: number for number, piece in enumerate([*SPECIAL, *PIECES])}


def spelled(*pieces):
    """The text that the segmenter gets, and the words that come of cutting it at spaces."""
    texts = []

    def segmenter(text):
        texts.append(text)
        return text.split()

    row = {"input_ids": [VOCAB[piece] for piece in pieces], "labels": [1]}
    added = PieceWordIds(BertTokenizerFast(vocab=VOCAB), segmenter)(row)
    assert added["labels"] == [1]
    return texts, added["word_ids"]


@pytest.mark.parametrize(
    ("pieces", "text", "words"),
    [
        (["나는", "학교", "##에", "간다"], "나는 학교에 간다", [0, 1, 1, 2]),
        (["light", "##s", "on"], "lights on", [0, 0, 1]),
        (["武", "汉", "是"], "武汉是", [0, 0, 0]),
        (["ไทย", "ดี"], "ไทยดี", [0, 0]),
        (["カ", "の", "武"], "カの武", [0, 0, 0]),
        (["武", "light", "나는", "汉"], "武light 나는汉", [0, 0, 1, 1]),
    ],
    ids=["Korean", "English", "Chinese", "Thai", "Japanese", "mixed"],
)
def test_spaces_are_where_the_script_has_them(pieces, text, words):
    texts, word_ids = spelled(*pieces)
    assert texts == [text]
    assert word_ids == words


def test_special_tokens_part_the_text_and_have_no_word():
    texts, word_ids = spelled("[CLS]", "나는", "간다", "[SEP]", "武", "汉", "[SEP]", "[PAD]")
    assert texts == ["나는 간다", "武汉"]
    assert word_ids == [-1, 0, 1, -1, 2, 2, -1, -1]


def test_korean_words_are_kept_whole_by_offsets_as_latin_ones_are():
    assert word_ids_from_offsets("학교에", [(0, 2), (2, 3)], ["학교", "에"]) == [0, 0]
    assert word_ids_from_offsets("武汉是", [(0, 1), (1, 2), (2, 3)], ["武汉", "是"]) == [0, 0, 1]


class TestTokenizers:
    def test_slow_wordpiece_is_taken(self, tmp_path):
        (tmp_path / "vocab.txt").write_text("\n".join(VOCAB), encoding="utf-8")
        add = PieceWordIds(BertTokenizerLegacy(str(tmp_path / "vocab.txt")), str.split)
        assert add({"input_ids": [VOCAB["light"], VOCAB["##s"]]})["word_ids"] == [0, 0]

    def test_pieces_that_mark_spaces_are_taken(self):
        pieces = ["<unk>", "▁", "▁学", "校", "武汉", "▁light", "s", "▁on"]
        unigram = Tokenizer(models.Unigram([(piece, 0.0) for piece in pieces], unk_id=0))
        texts = []
        add = PieceWordIds(
            PreTrainedTokenizerFast(tokenizer_object=unigram, unk_token="<unk>"),
            lambda text: texts.append(text) or ["学校", "武汉", "lights", "on", "□"],
        )
        assert add({"input_ids": [2, 3, 4, 5, 6, 7, 0]})["word_ids"] == [0, 0, 1, 2, 2, 3, 4]
        assert texts == [" 学校武汉 lights on□"]

    @pytest.mark.parametrize(
        "tokenizer",
        [
            PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE(vocab={"a": 0}, merges=[]))),
            PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.Unigram([("a", 0.0)], unk_id=0))),
            PreTrainedTokenizerFast(
                tokenizer_object=Tokenizer(models.WordPiece({"a": 0}, continuing_subword_prefix="@@", unk_token="a"))
            ),
            CanineTokenizer(),
        ],
        ids=["BPE", "unigram", "another mark", "characters"],
    )
    def test_others_are_refused(self, tokenizer):
        with pytest.raises(ValueError, match="`tokenizer` must be a WordPiece tokenizer"):
            PieceWordIds(tokenizer, str.split)
