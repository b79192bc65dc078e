"""Answers are cut out of the passage between whole characters and words, whatever a tokenizer's offsets cover."""

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, RobertaConfig, RobertaForQuestionAnswering

from hf_ptm_ext import ExtractiveQuestionAnsweringPipeline, SquadFeatures
from hf_ptm_ext.pipelines import postprocess_qa_predictions
from hf_ptm_ext.pipelines.spans_question_answering import whole_characters
from hf_ptm_ext.pipelines.windows_question_answering import windows_in_parts
from tests.pipelines.models import random_model, tokenizer_of, vocabulary

# (passage, answer), in decomposed form where there is one.
CASES = {
    "accents": ("The poet Jose\u0301 Marti\u0301, of Cuba", "Jose\u0301 Marti\u0301"),
    "accent inside": ("Ange\u0301lica sang.", "Ange\u0301lica"),
    "two marks": ("He lives in Hue\u0302\u0301 now", "Hue\u0302\u0301"),
    "dot below": ("in Viê\u0323t Nam to\u0302i", "Viê\u0323t Nam"),
    "keycap": ("Press 1\ufe0f\u20e3 now", "1\ufe0f\u20e3"),
    "variation selector": ("She sent ❤\ufe0f and left", "❤\ufe0f"),
    "family": ("an emoji 👩\u200d👩\u200d👧 of three", "👩\u200d👩\u200d👧"),
    "skin tone": ("the sign 👍🏽 here", "👍🏽"),
    "flag": ("the flags 🇩🇪 🇫🇷 wave", "🇩🇪"),
    "jamo": ("the city \u1109\u1165\u110b\u116e\u11af is", "\u1109\u1165\u110b\u116e\u11af"),
    "hindi": ("वह हिन्दी में है", "हिन्दी"),
    "thai": ("นี่คือกำลังที่ดี", "กำลังที่"),
    "arabic": ("قرأ كتابًا هنا", "كتابًا"),
    "hebrew": ("אני בְּבַיִת גדול", "בְּבַיִת"),
    "kana": ("これはか\u3099くせいて\u3099す", "か\u3099くせい"),
    "chinese": ("诺曼人在意大利作战", "意大利"),
}
TEXTS = [text for text, _ in CASES.values()]


def byte_level():
    """Every byte a token, so that a letter is of several."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = {word: number for number, word in enumerate(["<pad>", "<s>", *alphabet])}
    backend = Tokenizer(models.BPE(words, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", cls_token="<s>", model_max_length=512)


TOKENIZERS = {
    "accents stripped": lambda: tokenizer_of(vocabulary(TEXTS)),
    "accents kept": lambda: tokenizer_of(vocabulary(TEXTS), do_lower_case=False, strip_accents=False),
    "bytes": byte_level,
}


def logits_at(size, first, last):
    start, end = np.zeros((1, size)), np.zeros((1, size))
    start[0, first], end[0, last] = 9.0, 9.0
    return start, end


def spans_to_try(feature, answer_start, answer):
    """The labels, and the same with tokens of a part of the first or last character."""
    first, last = feature["start_positions"], feature["end_positions"]
    offsets = np.array(feature["offset_mapping"])
    begin = whole_characters(answer, len(answer) - 1, len(answer))[0] + answer_start
    inside = [token for token in range(first, last + 1) if offsets[token, 0] >= begin]
    return {(first, last), *((first, token) for token in inside)}


@pytest.mark.parametrize("kind", TOKENIZERS)
@pytest.mark.parametrize("case", CASES)
def test_right_tokens_give_the_answer_as_it_stands_in_the_passage(case, kind):
    context, answer = CASES[case]
    tokenizer = TOKENIZERS[kind]()
    example = {"id": "q", "question": "a", "context": context}
    answers = [{"text": [answer], "answer_start": [context.index(answer)]}]
    columns = SquadFeatures(tokenizer, max_seq_len=256, doc_stride=8)(
        {**{name: [value] for name, value in example.items()}, "answers": answers}
    )
    (feature,) = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    model = random_model(len(tokenizer), cls=RobertaForQuestionAnswering, config=RobertaConfig)
    read = ExtractiveQuestionAnsweringPipeline(model, tokenizer, device=-1)
    (window,) = windows_in_parts(tokenizer, "a", context, max_seq_len=256, doc_stride=8)
    for first, last in spans_to_try(feature, context.index(answer), answer):
        start, end = logits_at(len(feature["input_ids"]), first, last)
        found = postprocess_qa_predictions([example], [feature], (start, end), max_answer_length=99)["q"]
        assert (found["text"], found["start"]) == (answer, context.index(answer))
        outputs = [{"window": window, "logits": (start[0], end[0]), "context": context}]
        for options in ({"align_to_words": False}, {}, {"decode": "independent"}):
            assert read.postprocess(outputs, max_answer_len=99, **options)["answer"] == answer


def test_words_are_whole_for_tokenizers_that_end_them_at_a_mark():
    context = "In Ange\u0301lica's house"
    tokenizer = byte_level()
    model = random_model(len(tokenizer), cls=RobertaForQuestionAnswering, config=RobertaConfig)
    read = ExtractiveQuestionAnsweringPipeline(model, tokenizer, device=-1)
    (window,) = windows_in_parts(tokenizer, "a", context, max_seq_len=256, doc_stride=8)
    token = int(np.flatnonzero(window.answerable & (window.offsets[:, 0] >= 4))[0])
    start, end = logits_at(len(window.offsets), token, token)
    outputs = [{"window": window, "logits": (start[0], end[0]), "context": context}]
    assert read.postprocess(outputs)["answer"] == "Ange\u0301lica"
    assert read.postprocess(outputs, align_to_words=False)["answer"] == context[4]


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("ab c", {0, 1, 2, 3, 4}),
        ("e\u0301a", {0, 2, 3}),
        ("a \u0301b", {0, 1, 2, 3, 4}),  # a mark that nothing carries does not take the space along
        ("🇩🇪🇫🇷", {0, 2, 4}),
        ("가각", {0, 1, 2}),
        ("क्षत्रिय", {0, 3, 7, 8}),
        ("ខ្មែរ", {0, 4, 5}),
        ("ဓမ္မ", {0, 1, 4}),
        ("ꦏ꧀ꦱꦏ", {0, 3, 4}),
        ("க்க", {0, 2, 3}),
        ("👨🏽\u200d🤝\u200d👨x", {0, 6, 7}),
        ("🏴\U000e0067\U000e0062\U000e007fa", {0, 4, 5}),
    ],
)
def test_characters_as_readers_see_them(text, places):
    for at in range(1, len(text)):
        if not text[at - 1].isspace():
            assert whole_characters(text, 0, at)[1] == min(place for place in places if place >= at)
        if not text[at].isspace():
            assert whole_characters(text, at, len(text))[0] == max(place for place in places if place <= at)
    assert whole_characters("a b ", 1, 4) == (2, 3)
    assert whole_characters(text, 1, 1) == (1, 1)
