"""`reference="transformers"` gives the answers of the pipeline that transformers removed in 5.3."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file
from transformers import BertConfig, BertForQuestionAnswering, BertTokenizer, pipeline

from hf_ptm_ext.pipelines import reference_spans
from tests.tolerance import assert_agrees

pytestmark = pytest.mark.golden
GOLDENS = Path(__file__).parents[1] / "goldens"
GOLDEN = json.loads((GOLDENS / "qa-pipeline-a.json").read_text(encoding="utf-8"))
TOLERANCE = GOLDEN["tolerance"]


@pytest.fixture(scope="module")
def answer():
    vocab = {token: number for number, token in enumerate(GOLDEN["vocab"])}
    model = BertForQuestionAnswering(BertConfig(**GOLDEN["bert_config"])).eval()
    weights = load_file(GOLDENS / "qa-pipeline-a.safetensors")
    model.load_state_dict({name.removeprefix("sd."): value for name, value in weights.items()}, strict=False)
    tokenizer = BertTokenizer(vocab, do_lower_case=True, model_max_length=64)
    return pipeline("extractive-question-answering", model=model, tokenizer=tokenizer, device="cpu")


@pytest.mark.parametrize("number", range(len(GOLDEN["pipeline_results"])))
@pytest.mark.parametrize("batch_size", [1, 3])
def test_answers_are_the_references(answer, number, batch_size):
    case = GOLDEN["pipeline_results"][number]
    found = answer(
        question=case["question"],
        context=case["context"],
        reference="transformers",
        batch_size=batch_size,
        **case["kwargs"],
    )
    found = found if isinstance(found, list) else [found]
    assert [one["answer"] for one in found] == [one["answer"] for one in case["answers"]]
    for one, expected in zip(found, case["answers"], strict=True):
        assert (one["start"], one["end"]) == (expected["start"], expected["end"])
        assert_agrees(one["score"], expected["score"], **TOLERANCE)


def test_of_one_window_the_best_answer_is_the_same_without_the_references_faults(answer):
    for case in GOLDEN["pipeline_results"]:
        if len(case["context"]) > 100:
            continue
        found = answer(question=case["question"], context=case["context"], max_seq_len=64)
        assert found["answer"] == case["answers"][0]["answer"]
        assert_agrees(found["score"], case["answers"][0]["score"], **TOLERANCE)


@pytest.mark.parametrize("number", range(len(GOLDEN["decode_cases"])))
def test_spans_of_a_window_are_the_references(number):
    case = GOLDEN["decode_cases"][number]
    logits = (np.array(case[name], dtype=np.float32) for name in ("start_logits", "end_logits"))
    starts, ends, scores, null = reference_spans(
        *logits,
        np.array(case["p_mask"]),
        np.array(case["attention_mask"]),
        top_k=case["top_k"],
        max_answer_len=case["max_answer_len"],
        handle_impossible_answer=case["handle_impossible_answer"],
    )
    assert starts.tolist() == case["starts"]
    assert ends.tolist() == case["ends"]
    assert_agrees(scores, case["scores"], **TOLERANCE)
    assert_agrees(null, case["min_null_score"], **TOLERANCE)
