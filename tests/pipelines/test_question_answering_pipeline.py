"""The question-answering pipeline: comparable scores, the answers asked for, any model, anywhere."""

import json

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import (
    AlbertConfig,
    AlbertForQuestionAnswering,
    AutoTokenizer,
    BartConfig,
    BartForQuestionAnswering,
    BertForQuestionAnswering,
    DistilBertConfig,
    DistilBertForQuestionAnswering,
    ElectraConfig,
    ElectraForQuestionAnswering,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForQuestionAnswering,
    XLNetConfig,
    XLNetForQuestionAnsweringSimple,
    pipeline,
)

from hf_ptm_ext import (
    ErnieThuConfig,
    ErnieThuForQuestionAnswering,
    ExtractiveQuestionAnsweringPipeline,
    KBertConfig,
    KBertForQuestionAnswering,
    KBertTokenizer,
    KnowledgeGraph,
    NezhaConfig,
    NezhaForQuestionAnswering,
    SpanBertConfig,
    SpanBertForQuestionAnswering,
    UniLMConfig,
    UniLMForQuestionAnswering,
    ZenConfig,
    ZenForQuestionAnswering,
    ZenTokenizer,
)
from hf_ptm_ext.hub import add_question_answering_pipeline, verify
from hf_ptm_ext.hub.static_checks import pipeline_code
from hf_ptm_ext.pipelines import question_windows
from tests.hub.checkpoints import run_script
from tests.hub.loopback_hub import running
from tests.pipelines.models import FIXTURES, random_model, tokenizer_of, vocabulary, xquad, xquad_tokenizer

ROWS = xquad()
PARTS = ("pipeline", "spans", "windows")
ENGLISH, CHINESE = ROWS[0], ROWS[-1]
SHORT = {"max_seq_len": 96, "doc_stride": 16}


def pair(row):
    return {"question": row["question"], "context": row["context"]}


@pytest.fixture(scope="module")
def answer():
    tokenizer = xquad_tokenizer()
    return pipeline(
        "extractive-question-answering", model=random_model(len(tokenizer)), tokenizer=tokenizer, device="cpu"
    )


def test_answers_are_spans_of_the_passage(answer):
    for row in (ENGLISH, CHINESE):
        found = answer(**pair(row), top_k=20, **SHORT)
        assert len(found) == 20
        assert len({one["answer"].lower() for one in found}) == 20
        assert all(one["answer"] == row["context"][one["start"] : one["end"]] != "" for one in found)
        scores = [one["score"] for one in found]
        assert scores == sorted(scores, reverse=True)
        assert 0 < sum(scores) <= 1  # of all windows together


def test_scores_are_probabilities_over_all_windows(answer):
    """Against all spans of all windows, one by one."""
    question, context = pair(ENGLISH).values()
    windows = question_windows(answer.tokenizer, [question], [context], **SHORT)
    assert len(windows) > 3
    weights, total = {}, 0.0
    for window in windows:
        with torch.no_grad():
            output = answer.model(**{name: torch.tensor([values]) for name, values in window.inputs.items()})
        start, end = output.start_logits[0].double().numpy(), output.end_logits[0].double().numpy()
        counted = [window.null_index, *np.flatnonzero(window.answerable)]
        total += np.exp(start[counted]).sum() * np.exp(end[counted]).sum()
        for first in counted[1:]:
            for last in range(first, min(first + 3, len(start))):
                if window.answerable[last]:
                    text = context[window.offsets[first, 0] : window.offsets[last, 1]].lower()
                    weights[text] = weights.get(text, 0.0) + np.exp(start[first] + end[last])
    expected = sorted(weights.items(), key=lambda item: -item[1])[:3]
    # Everything is looked at when all are asked for, so that equal texts are added up completely.
    found = answer(
        question=question, context=context, top_k=len(weights), max_answer_len=3, align_to_words=False, **SHORT
    )
    assert [one["answer"].lower() for one in found[:3]] == [text for text, _ in expected]
    assert found[0]["score"] == pytest.approx(expected[0][1] / total, rel=1e-4)


@pytest.mark.parametrize("options", [{}, {"reference": "transformers"}], ids=["own", "reference"])
def test_batches_and_padding_change_nothing(answer, options):
    examples = [pair(row) for row in (ENGLISH, CHINESE, ROWS[1])]
    alone = [answer(example, top_k=3, **SHORT, **options) for example in examples]
    for more in ({"batch_size": 4}, {"padding": "max_length"}, {"batch_size": 3, "padding": "max_length"}):
        together = answer(examples, top_k=3, **SHORT, **more, **options)
        for one, other in zip(alone, together, strict=True):
            assert [found["answer"] for found in one] == [found["answer"] for found in other]
            assert [found["score"] for found in one] == pytest.approx([f["score"] for f in other], rel=1e-3)


def test_every_way_to_ask_gives_the_same(answer):
    question, context = pair(ENGLISH).values()
    expected = answer(question=question, context=context)
    assert answer(question, context) == answer({"question": question, "context": context}) == expected
    assert answer([pair(ENGLISH)]) == answer(question=[question], context=context) == [expected]
    assert answer(question=[question], context=[context]) == [expected]
    assert list(answer(example for example in [pair(ENGLISH)])) == [expected]
    assert list(answer(Dataset.from_list([pair(ENGLISH)]))) == [expected]
    assert answer([]) == []


def test_words_are_whole_in_english_and_characters_stay_in_chinese(answer):
    """A tokenizer may take a Chinese sentence for one word; an answer does not become the sentence."""
    for one in answer(**pair(ENGLISH), top_k=10):
        around = ENGLISH["context"][max(one["start"] - 1, 0) : one["end"] + 1]
        assert not (around[0].isalnum() and one["answer"][0].isalnum() and one["start"]), around
        assert not (around[-1].isalnum() and one["answer"][-1].isalnum()), around
    byte_level = PreTrainedTokenizerFast(tokenizer_file=str(FIXTURES / "byte_bpe.json"), cls_token="<s>")
    byte_level.pad_token = byte_level.pad_token or byte_level.convert_ids_to_tokens(0)
    model = random_model(len(byte_level), cls=RobertaForQuestionAnswering, config=RobertaConfig)
    read = ExtractiveQuestionAnsweringPipeline(model, byte_level, device=-1)
    found = read(question="谁", context="诺曼人在意大利作战", max_answer_len=1, max_seq_len=64, doc_stride=8)
    assert len(found["answer"]) <= 1


def test_no_answer_is_offered_only_when_asked_for(answer):
    example = pair(ENGLISH)
    assert all(one["answer"] for one in answer(example, top_k=5))
    with_null = answer(example, top_k=5000, max_answer_len=4, handle_impossible_answer=True)
    (null,) = [one for one in with_null if not one["answer"]]
    assert null["start"] == null["end"] == 0
    assert 0 < null["score"] < 1
    model = random_model(len(answer.tokenizer))
    with torch.no_grad():
        model.qa_outputs.weight.zero_()
    flat = ExtractiveQuestionAnsweringPipeline(model, answer.tokenizer, device=-1)
    # All pairs are equally likely, no answer as any other one.
    tokens = int(question_windows(answer.tokenizer, ["Who?"], ["So it is."])[0].answerable.sum())
    found = flat(question="Who?", context="So it is.", top_k=100, handle_impossible_answer=True, align_to_words=False)
    assert [one["score"] for one in found if not one["answer"]] == [pytest.approx(1 / (tokens + 1) ** 2)]


def test_a_long_question_is_cut_and_a_passage_without_tokens_has_no_answer(answer):
    long = ENGLISH["question"] * 40
    assert answer(question=long, context=ENGLISH["context"])["answer"]
    windows = question_windows(answer.tokenizer, [long], [ENGLISH["context"]], max_question_len=10)
    assert (windows[0].sequences == 0).sum() == 10
    nothing = {"score": 0.0, "start": 0, "end": 0, "answer": ""}
    assert answer(question="Who?", context="  \n") == nothing
    assert answer(question="Who?", context=" ", decode="independent") == nothing
    assert answer(question="Who?", context=" ", top_k=3) == []


@pytest.mark.parametrize("side", ["right", "left"])
def test_without_a_question_the_text_is_read_alone(side):
    tokenizer = xquad_tokenizer(padding_side=side)
    windows = question_windows(tokenizer, None, [ENGLISH["context"]], **SHORT)
    assert len(windows) > 3
    assert all((window.sequences[1:-1] == 0).all() and window.answerable.any() for window in windows)
    extract = ExtractiveQuestionAnsweringPipeline(random_model(len(tokenizer)), tokenizer, device=-1)
    found = extract(question=None, context=ENGLISH["context"], **SHORT)
    assert found["answer"] == ENGLISH["context"][found["start"] : found["end"]] != ""
    assert extract(question=None, context=[ENGLISH["context"]], **SHORT) == [found]
    assert found != extract(question="Who?", context=ENGLISH["context"], **SHORT)


def test_independent_decoding_takes_the_likeliest_start_and_end(answer):
    windows = question_windows(answer.tokenizer, ["Who?"], ["Jane did it then."])
    with torch.no_grad():
        output = answer.model(**{name: torch.tensor([values]) for name, values in windows[0].inputs.items()})
    allowed = torch.from_numpy(windows[0].answerable)
    first, last = (
        int(logits[0].masked_fill(~allowed, -torch.inf).argmax())
        for logits in (output.start_logits, output.end_logits)
    )
    found = answer(question="Who?", context="Jane did it then.", decode="independent")
    expected = "Jane did it then."[windows[0].offsets[first, 0] : windows[0].offsets[last, 1]] if first <= last else ""
    assert found["answer"] == expected


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"top_k": 0}, ValueError, "`top_k` must be at least 1, got 0"),
        ({"max_answer_len": 0}, ValueError, "`max_answer_len` must be at least 1"),
        ({"max_answer_length": 3}, TypeError, "`max_answer_length` is no option of this pipeline"),
        ({"topk": 3}, TypeError, "`topk` is spelt `top_k`"),
        ({"decode": "greedy"}, ValueError, "`decode` must be one of 'joint', 'independent', got 'greedy'"),
        ({"decode": "independent", "top_k": 2}, ValueError, "has one answer"),
        ({"reference": "squad"}, ValueError, "`reference` must be one of None, 'transformers'"),
        ({"max_seq_len": 20, "doc_stride": 30}, ValueError, "less than `max_seq_len` = 20, got 30"),
        ({"max_seq_len": 30, "doc_stride": 25}, ValueError, "`doc_stride` must be less than the .* tokens"),
        ({"max_seq_len": 8}, ValueError, "has no room for a part of the passage behind a question of"),
        ({"context": ""}, ValueError, "`context` cannot be empty"),
        ({"context": None}, TypeError, "`context` must be a text, got NoneType"),
        ({"question": None, "reference": "transformers"}, ValueError, "needs a question, got None"),
    ],
)
def test_what_cannot_be_is_said(answer, options, error, message):
    given = {"question": "Who and where?", "context": ENGLISH["context"], **options}
    example = {name: given.pop(name) for name in ("question", "context")}
    with pytest.raises(error, match=message):
        answer(example, **given)


def test_lists_must_match(answer):
    with pytest.raises(ValueError, match="must be as many, got 2 and 1"):
        answer(question=["a", "b"], context=["c"])
    with pytest.raises(TypeError, match="`question` and `context` go together"):
        answer(question="a")
    with pytest.raises(TypeError, match="`question` must be a text, got nothing"):
        answer({"context": "a"})
    with pytest.raises(TypeError, match="must be a dictionary"):
        answer(["a"])


def test_a_tokenizer_without_offsets_is_refused(answer):
    from transformers import ByT5Tokenizer

    with pytest.raises(ValueError, match="`tokenizer` must be a fast tokenizer"):
        question_windows(ByT5Tokenizer(), ["a"], ["b"])


# ---- any model ----

FAMILIES = {
    "spanbert": (SpanBertForQuestionAnswering, SpanBertConfig),
    "unilm": (UniLMForQuestionAnswering, UniLMConfig),
    "nezha": (NezhaForQuestionAnswering, NezhaConfig),
    "zen": (ZenForQuestionAnswering, ZenConfig),
    "kbert": (KBertForQuestionAnswering, KBertConfig),
    "ernie_thu": (ErnieThuForQuestionAnswering, ErnieThuConfig),
    "roberta": (RobertaForQuestionAnswering, RobertaConfig),
    "albert": (AlbertForQuestionAnswering, AlbertConfig),
    "electra": (ElectraForQuestionAnswering, ElectraConfig),
    "bart": (BartForQuestionAnswering, BartConfig),
    "xlnet": (XLNetForQuestionAnsweringSimple, XLNetConfig),
}
BART_SIZES = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 4}
BART_SIZES |= {"decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "pad_token_id": 0}
OPTIONS = {
    "zen": {"ngram_vocab_size": 8},
    "roberta": {"pad_token_id": 0},
    "albert": {"embedding_size": 32},
    "electra": {"embedding_size": 32},
    "bart": {**BART_SIZES, "eos_token_id": 3, "decoder_start_token_id": 3},
    "xlnet": {"d_model": 32, "n_layer": 1, "n_head": 4, "d_inner": 64, "pad_token_id": 0},
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("side", ["right", "left"])
def test_every_family_answers_alone_as_in_batches(family, side):
    words = vocabulary([CHINESE["context"], CHINESE["question"]])
    if family == "kbert":
        graph = KnowledgeGraph([(CHINESE["context"][:2], "是", CHINESE["context"][4:8])])
        tokenizer = KBertTokenizer({w: n for n, w in enumerate(words)}, kg=graph, model_max_length=512)
    elif family == "zen":
        tokenizer = ZenTokenizer({w: n for n, w in enumerate(words)}, ngrams=[CHINESE["context"][:2]])
    else:
        tokenizer = tokenizer_of(words)
    tokenizer.padding_side = side
    cls, config = FAMILIES[family]
    model = random_model(len(tokenizer), cls=cls, config=config, **OPTIONS.get(family, {}))
    read = ExtractiveQuestionAnsweringPipeline(model, tokenizer, device=-1)
    examples = [pair(CHINESE), {"question": CHINESE["question"], "context": CHINESE["context"][:30]}]
    alone = [read(example, top_k=3, max_seq_len=96, doc_stride=16) for example in examples]
    together = read(examples, top_k=3, max_seq_len=96, doc_stride=16, batch_size=4)
    for one, other, example in zip(alone, together, examples, strict=True):
        assert [found["answer"] for found in one] == [found["answer"] for found in other]
        assert [found["score"] for found in one] == pytest.approx([found["score"] for found in other], rel=1e-3)
        assert all(found["answer"] in example["context"] for found in one)


def test_knowledge_is_never_an_answer():
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"谁在北京首都"]
    graph = KnowledgeGraph([("北京", "是", "首都")])
    tokenizer = KBertTokenizer({word: number for number, word in enumerate(words)}, kg=graph, model_max_length=64)
    (window,) = question_windows(tokenizer, ["谁"], ["在北京"])
    tokens = tokenizer.convert_ids_to_tokens(window.inputs["input_ids"])
    assert [token for token, allowed in zip(tokens, window.answerable, strict=True) if allowed] == list("在北京")
    assert {"首", "都"} < set(tokens)
    model = random_model(len(words), cls=KBertForQuestionAnswering, config=KBertConfig)
    read = ExtractiveQuestionAnsweringPipeline(model, tokenizer, device=-1)
    found = read(question="谁", context="在北京", top_k=50)
    assert {one["answer"] for one in found} == {"在", "北", "京", "在北", "北京", "在北京"}
    plain = ExtractiveQuestionAnsweringPipeline(
        model, KBertTokenizer({word: number for number, word in enumerate(words)}, kg=None), device=-1
    )
    assert plain(question="谁", context="在北京")["score"] != pytest.approx(found[0]["score"])


def test_inputs_that_a_model_does_not_take_are_left_out():
    tokenizer = xquad_tokenizer()  # gives token_type_ids, which DistilBERT has not
    torch.manual_seed(0)
    model = DistilBertForQuestionAnswering(
        DistilBertConfig(vocab_size=len(tokenizer), dim=32, n_layers=1, n_heads=2, hidden_dim=64)
    )
    read = ExtractiveQuestionAnsweringPipeline(model.eval(), tokenizer, device=-1)
    assert read(**pair(ENGLISH))["answer"] in ENGLISH["context"]


# ---- anywhere ----

USE = """
import json, sys
from transformers import pipeline
example = json.loads({example!r})
answers = []
for folder in ({first!r}, {second!r}):
    answer = pipeline("extractive-question-answering", model=folder, trust_remote_code=True, device="cpu")
    assert type(answer).__module__.startswith("transformers_modules."), type(answer)
    answers.append(answer(example, top_k=2, max_seq_len=96, doc_stride=16))
answer.save_pretrained({copy!r})
again = pipeline(model={copy!r}, trust_remote_code=True, device="cpu")
answers.append(again(example, top_k=2, max_seq_len=96, doc_stride=16))
assert "hf_ptm_ext" not in sys.modules
print(json.dumps(answers))
"""


def test_the_pipeline_travels_with_any_checkpoint(answer, tmp_path):
    """Saved by the pipeline, added to a folder, saved again where the package is not: upstream's model and ours."""
    answer.save_pretrained(tmp_path / "saved")
    tokenizer = answer.tokenizer
    ours = random_model(len(tokenizer), cls=SpanBertForQuestionAnswering, config=SpanBertConfig)
    ours.save_pretrained(tmp_path / "added")
    tokenizer.save_pretrained(tmp_path / "added")
    assert add_question_answering_pipeline(tmp_path / "added") == [f"{kind}_question_answering.py" for kind in PARTS]
    code = USE.format(
        example=json.dumps(pair(ENGLISH)),
        first=str(tmp_path / "saved"),
        second=str(tmp_path / "added"),
        copy=str(tmp_path / "copy"),
    )
    saved, added, again = json.loads(run_script(code).splitlines()[-1])
    assert [one["answer"] for one in saved] == [one["answer"] for one in answer(pair(ENGLISH), top_k=2, **SHORT)]
    local = ExtractiveQuestionAnsweringPipeline(ours, AutoTokenizer.from_pretrained(tmp_path / "added"), device=-1)
    for found in (added, again):
        assert [one["answer"] for one in found] == [one["answer"] for one in local(pair(ENGLISH), top_k=2, **SHORT)]
    assert BertForQuestionAnswering.from_pretrained(tmp_path / "saved").config.model_type == "bert"
    assert pipeline_code(tmp_path / "added") == {f"{kind}_question_answering.py" for kind in PARTS}


@pytest.mark.slow
def test_a_checkpoint_with_the_pipeline_is_verified(tmp_path):
    """Saving the model alone leaves a pipeline's code behind, upstream's too: no fault of the checkpoint."""
    tokenizer = xquad_tokenizer()
    random_model(len(tokenizer), cls=SpanBertForQuestionAnswering, config=SpanBertConfig).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    add_question_answering_pipeline(tmp_path)
    assert verify(tmp_path).ok  # all code is the installed package's, so that no trust is needed


PUSH = """
from transformers import pipeline
from hf_ptm_ext import ExtractiveQuestionAnsweringPipeline as answers
pipeline("extractive-question-answering", model="{folder}", pipeline_class=answers).push_to_hub("tester/reader")
"""
ASK = """
import json, sys
from transformers import pipeline
answer = pipeline(model="tester/reader", trust_remote_code=True, device="cpu")
example = json.loads({example!r})
print(json.dumps(answer(example, max_seq_len=96, doc_stride=16)))
assert "hf_ptm_ext" not in sys.modules
"""


@pytest.mark.slow
def test_the_pipeline_is_pushed_to_a_hub_and_used_by_its_id(answer, tmp_path):
    answer.save_pretrained(tmp_path / "reader")
    with running() as server:
        environment = server.environment(tmp_path / "home")
        run_script(PUSH.format(folder=tmp_path / "reader"), hidden=False, **environment)
        found = json.loads(run_script(ASK.format(example=json.dumps(pair(ENGLISH))), **environment).splitlines()[-1])
    expected = answer(pair(ENGLISH), **SHORT)
    assert found.pop("score") == pytest.approx(expected.pop("score"), rel=1e-5)
    assert found == expected


def test_the_installed_class_serves_a_folder_without_trust(answer, tmp_path):
    answer.save_pretrained(tmp_path)
    again = pipeline(
        "extractive-question-answering",
        model=str(tmp_path),
        pipeline_class=ExtractiveQuestionAnsweringPipeline,
        device="cpu",
    )
    assert again(pair(ENGLISH)) == answer(pair(ENGLISH))
    with pytest.raises(ValueError, match="trust_remote_code=True"):
        pipeline("extractive-question-answering", model=str(tmp_path))
