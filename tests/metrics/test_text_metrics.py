"""ROUGE and BLEU are those of the libraries themselves, offline, for spaced and unspaced text."""

import sys
from collections import Counter

import pytest
import sacrebleu
from rouge_score.rouge_scorer import RougeScorer

from hf_ptm_ext.metrics import Rouge, SacreBleu
from hf_ptm_ext.metrics.rouge import ROUGE_TYPES, characters, tokenizer_for

PREDICTIONS = ["The cats sat on a mat.\nIt rained.", "we propose a method", "", "a b c a b c"]
REFERENCES = [
    ["A cat sat on the mat.\nIt was raining.", "Rain, and a cat."],
    ["We propose new methods for training."],
    ["nothing was said"],
    ["c b a", "a b c d", "x"],
]
CHINESE = (["今天天气很好，我们去公园。", "BERT 模型"], ["今天天气好，我们都去公园了。", "BERT 是模型"])


@pytest.mark.parametrize("use_stemmer", [False, True])
def test_rouge_is_the_librarys_best_reference_averaged(use_stemmer):
    scorer = RougeScorer(list(ROUGE_TYPES), use_stemmer=use_stemmer)
    expected = dict.fromkeys(ROUGE_TYPES, 0.0)
    for prediction, references in zip(PREDICTIONS, REFERENCES, strict=True):
        for name in ROUGE_TYPES:
            best = max(scorer.score(reference, prediction)[name].fmeasure for reference in references)
            expected[name] += best / len(PREDICTIONS)
    scores = Rouge().compute(predictions=PREDICTIONS, references=REFERENCES, use_stemmer=use_stemmer)
    assert scores == pytest.approx(expected)
    assert 0 < scores["rouge2"] < scores["rouge1"] < 1


def test_one_reference_may_be_a_plain_text_and_scores_may_be_single():
    single = [references[0] for references in REFERENCES]
    lists = [[reference] for reference in single]
    one = Rouge().compute(predictions=PREDICTIONS, references=single, use_aggregator=False)
    other = Rouge().compute(predictions=PREDICTIONS, references=lists)
    assert len(one["rouge1"]) == len(PREDICTIONS)
    assert sum(one["rougeL"]) / len(PREDICTIONS) == pytest.approx(other["rougeL"])


def test_chinese_rouge_counts_characters():
    scores = Rouge().compute(predictions=CHINESE[0], references=CHINESE[1], tokenizer="character")

    def f1(prediction, reference):
        same = (Counter(prediction) & Counter(reference)).total()
        return 2 * same / (len(prediction) + len(reference))

    assert characters("今天，好") == ["今", "天", "好"]
    weather = f1("今天天气很好我们去公园", "今天天气好我们都去公园了")
    model = f1(["bert", "模", "型"], ["bert", "是", "模", "型"])
    assert scores["rouge1"] == pytest.approx((weather + model) / 2)


OTHER_SCRIPTS = {
    "Chinese": ("苹果发布新款 iPhone 手机", "分析师看好 iPhone 明年销量"),
    "Russian": ("Мама мыла раму", "Папа мыл машину"),
    "Greek": ("Η γάτα κάθισε στο χαλί", "Ο σκύλος έφυγε από το σπίτι"),
    "Arabic": ("ذهب الولد إلى المدرسة", "قرأت البنت كتابا"),
    "Hindi": ("हिन्दी भाषा सुंदर है", "मेरा नाम राम है"),
    "Thai": ("แมวนั่งบนเสื่อ", "หมาวิ่งในสวน"),
    "Japanese": ("これはペンです", "あれは本でした"),
    "Korean": ("고양이가 매트에 앉았다", "개가 공원에서 뛰었다"),
}


@pytest.mark.parametrize("script", OTHER_SCRIPTS)
def test_every_script_is_read(script):
    first, second = OTHER_SCRIPTS[script]
    assert tokenizer_for([first, second]) == "character"
    same = Rouge().compute(predictions=[first], references=[first], tokenizer="character")
    other = Rouge().compute(predictions=[second], references=[first], tokenizer="character")
    assert same == dict.fromkeys(ROUGE_TYPES, pytest.approx(1.0))
    assert other["rouge1"] < 0.6
    assert other["rouge2"] < 0.4
    with pytest.raises(ValueError, match="character"):
        Rouge().compute(predictions=[second], references=[first])


def test_words_keep_their_signs():
    assert characters("हिन्दी भाषा") == ["हिन्दी", "भाषा"]
    assert characters("Мама, мыла раму!") == ["мама", "мыла", "раму"]
    assert characters("cafe\u0301") == ["caf\u00e9"]
    assert tokenizer_for(["A naïve approach to Zürich's problem. " * 3 + "plain words " * 60]) == "word"
    assert tokenizer_for(["L'été dernier était très sec"]) == "character"


def test_bleus_tokenizer_follows_the_script():
    prediction, reference = ["今天天气很好，我们去公园玩。"], ["今天天气很好，我们都去公园玩。"]
    result = SacreBleu().compute(predictions=prediction, references=reference)
    assert "tok:zh" in result["signature"]
    assert result["score"] > 50
    for script, tokenizer in (("Chinese", "zh"), ("Japanese", "char"), ("Thai", "char"), ("Russian", "13a")):
        first, second = OTHER_SCRIPTS[script]
        result = SacreBleu().compute(predictions=[first], references=[[first, second]])
        assert f"tok:{tokenizer}" in result["signature"]
        assert result["score"] == pytest.approx(100) or script == "Russian"  # three words have no 4-gram


def test_words_refuse_text_that_they_cannot_see():
    with pytest.raises(ValueError, match="character"):
        Rouge().compute(predictions=["今天"], references=["今天"])
    assert Rouge().compute(predictions=["今天"], references=["今天"], tokenizer=list)["rougeL"] == 1.0


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"tokenizer": "words"}, "tokenizer"),
        ({"rouge_types": ["rouge"]}, "rouge_types"),
        ({"tokenizer": "character", "use_stemmer": True}, "use_stemmer"),
    ],
)
def test_wrong_rouge_options_are_named(options, name):
    with pytest.raises(ValueError, match=f"`{name}`"):
        Rouge().compute(predictions=["a"], references=["a"], **options)


@pytest.mark.parametrize("options", [{}, {"lowercase": True}, {"tokenize": "char"}, {"smooth_method": "add-k"}])
def test_bleu_is_the_librarys(options):
    single = [references[0] for references in REFERENCES]
    expected = sacrebleu.BLEU(**options).corpus_score(PREDICTIONS, [single])
    scores = SacreBleu().compute(predictions=PREDICTIONS, references=single, **options)
    assert (scores["score"], scores["bp"]) == (expected.score, expected.bp)
    assert scores["counts"] == expected.counts


def test_bleu_with_several_references_of_different_number():
    streams = [
        [row[0] for row in REFERENCES],
        [row[1] if len(row) > 1 else None for row in REFERENCES],
        [row[2] if len(row) > 2 else None for row in REFERENCES],
    ]
    expected = sacrebleu.BLEU().corpus_score(PREDICTIONS, streams).score
    assert SacreBleu().compute(predictions=PREDICTIONS, references=REFERENCES)["score"] == expected


def test_chinese_bleu_ignores_the_blanks_that_word_pieces_leave():
    plain = SacreBleu().compute(predictions=CHINESE[0], references=CHINESE[1], tokenize="zh")
    spaced = [" ".join(text.replace(" ", "")) if number == 0 else text for number, text in enumerate(CHINESE[0])]
    assert SacreBleu().compute(predictions=spaced, references=CHINESE[1], tokenize="zh")["score"] == plain["score"]
    assert "tok:zh" in plain["signature"]


@pytest.mark.parametrize(
    ("options", "name"), [({"tokenize": "chinese"}, "tokenize"), ({"smooth_method": "laplace"}, "smooth_method")]
)
def test_wrong_bleu_options_are_named(options, name):
    with pytest.raises(ValueError, match=f"`{name}`"):
        SacreBleu().compute(predictions=["a"], references=["a"], **options)


def test_a_text_without_reference_is_named():
    with pytest.raises(ValueError, match="number 1"):
        SacreBleu().compute(predictions=["a", "b"], references=[["a"], []])


@pytest.mark.parametrize(("metric", "library"), [(Rouge, "rouge_score.rouge_scorer"), (SacreBleu, "sacrebleu")])
def test_a_missing_library_is_named_with_what_to_install(metric, library, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ImportError, match=r"hf-ptm-ext\[metrics\]"):
        metric()
