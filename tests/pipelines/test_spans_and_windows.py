"""Spans against a plain search, windows and their labels on real questions, and back from logits to answers."""

import itertools
import sys
import time

import numpy as np
import pytest
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader
from transformers import Trainer, TrainingArguments

from hf_ptm_ext import DataCollatorForQuestionAnswering, KBertTokenizer, KnowledgeGraph, SquadFeatures
from hf_ptm_ext.pipelines import best_spans, postprocess_qa_predictions, question_windows
from hf_ptm_ext.pipelines.windows_question_answering import PART, windows_in_parts
from tests.cli.jobs import run_process
from tests.pipelines.models import random_model, tokenizer_of, vocabulary, xquad, xquad_tokenizer

ROWS = xquad()
SHORT = {"max_seq_len": 128, "doc_stride": 48}


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 3), st.integers(1, 9), st.integers(1, 40), st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_best_spans_are_those_of_a_plain_search(windows, length, n, max_answer_len, seed):
    generator = np.random.default_rng(seed)
    start, end = generator.integers(-3, 4, (2, windows, length)).astype(float)
    answerable = generator.random((windows, length)) < 0.7
    found = best_spans(start, end, answerable, n, max_answer_len)
    for row in range(windows):
        expected = sorted(
            (-(start[row, first] + end[row, last]), first, last)
            for first in range(length)
            for last in range(first, min(first + max_answer_len, length))
            if answerable[row, first] and answerable[row, last]
        )[:n]
        known = np.isfinite(found.scores[row])
        got = zip(-found.scores[row][known], found.starts[row][known], found.ends[row][known], strict=True)
        # Among equal scores any may be among the n, but what is there is in the order of the text.
        got = [tuple(map(float, one)) for one in got]
        assert [one[0] for one in got] == [one[0] for one in expected]
        assert got == sorted(got)
        assert len(set(got)) == len(got)


def columns(rows):
    return {name: [row[name] for row in rows] for name in ("id", "question", "context", "answers")}


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("knowledge", [False, True], ids=["plain", "knowledge"])
def test_labels_point_at_the_answer_and_back(side, knowledge):
    tokenizer = xquad_tokenizer(padding_side=side)
    if knowledge:
        vocab = vocabulary(text for row in ROWS for text in (row["question"], row["context"]))
        graph = KnowledgeGraph([(row["answers"]["text"][0][:2], "是", row["context"][:4]) for row in ROWS])
        tokenizer = KBertTokenizer({word: n for n, word in enumerate(vocab)}, kg=graph, padding_side=side)
    windows = SquadFeatures(tokenizer, **SHORT)(columns(ROWS))
    by_id = {row["id"]: row for row in ROWS}
    assert len(windows["input_ids"]) > 2 * len(ROWS)
    found = set()
    for number, name in enumerate(windows["example_id"]):
        offsets, null = windows["offset_mapping"][number], windows["null_index"][number]
        first, last = windows["start_positions"][number], windows["end_positions"][number]
        if (first, last) == (null, null):
            continue
        row = by_id[name]
        text = row["context"][offsets[first][0] : offsets[last][1]]
        assert text == row["answers"]["text"][0].strip()
        found.add(name)
    assert found == set(by_id)
    # Every window that holds the answer says so.
    for number, name in enumerate(windows["example_id"]):
        start = by_id[name]["answers"]["answer_start"][0]
        covered = [offset for offset in windows["offset_mapping"][number] if offset[1] > offset[0]]
        inside = covered[0][0] <= start and start + len(by_id[name]["answers"]["text"][0]) <= covered[-1][1]
        assert inside == (windows["start_positions"][number] != windows["null_index"][number])


def test_windows_overlap_and_cover_the_passage():
    tokenizer = xquad_tokenizer()
    row = ROWS[0]
    windows = question_windows(tokenizer, [row["question"]], [row["context"]], **SHORT)
    parts = [np.flatnonzero(window.in_context) for window in windows]
    begins = [window.offsets[part[0], 0] for window, part in zip(windows, parts, strict=True)]
    ends = [window.offsets[part[-1], 1] for window, part in zip(windows, parts, strict=True)]
    assert begins[0] == 0
    assert ends[-1] == len(row["context"])
    assert all(len(window.inputs["input_ids"]) <= 128 for window in windows)
    for before, after in zip(range(len(windows)), range(1, len(windows)), strict=False):
        shared = (windows[after].offsets[parts[after], 0] < ends[before]).sum()
        assert shared == 48
    assert [window.is_first for window in windows] == [True, *[False] * (len(windows) - 1)]


def test_a_window_does_not_depend_on_the_questions_beside_it():
    tokenizer = xquad_tokenizer()
    features = SquadFeatures(tokenizer, max_seq_len=100)
    together = features(columns(ROWS[:6]))
    alone = [features(columns([row])) for row in ROWS[:6]]
    assert together["input_ids"] == [ids for one in alone for ids in one["input_ids"]]


def test_features_go_through_map_a_loader_and_a_trainer(tmp_path):
    tokenizer = xquad_tokenizer()
    data = Dataset.from_list(ROWS)
    windows = data.map(SquadFeatures(tokenizer, **SHORT), batched=True, remove_columns=data.column_names)
    collator = DataCollatorForQuestionAnswering(tokenizer, pad_to_multiple_of=8)
    batch = next(iter(DataLoader(windows, batch_size=4, collate_fn=collator)))
    assert batch["input_ids"].shape == batch["attention_mask"].shape == (4, 128)
    assert batch["start_positions"].shape == (4,)
    args = TrainingArguments(
        str(tmp_path), max_steps=2, use_cpu=True, report_to="none", disable_tqdm=True, save_strategy="no"
    )
    model = random_model(len(tokenizer))
    trainer = Trainer(model, args, train_dataset=windows, eval_dataset=windows, data_collator=collator)
    assert trainer.train().global_step == 2
    start, end = trainer.predict(windows).predictions
    answers = postprocess_qa_predictions(data, windows, (start, end), max_answer_length=8)
    assert set(answers) == set(data["id"])
    assert all(row["context"][a["start"] : a["end"]] == a["text"] for row in data for a in [answers[row["id"]]])


def test_positions_stay_where_they_are_whichever_side_the_tokenizer_pads():
    tokenizer = xquad_tokenizer(padding_side="left")
    windows = SquadFeatures(tokenizer, **SHORT)(columns(ROWS))
    rows = [dict(zip(windows, values, strict=True)) for values in zip(*windows.values(), strict=True)]
    batch = DataCollatorForQuestionAnswering(tokenizer, padding="max_length", max_length=160)(rows)
    for number, row in enumerate(rows):
        for name in ("start_positions", "end_positions"):
            place = int(batch[name][number])
            assert int(batch["input_ids"][number, place]) == row["input_ids"][row[name]]


def right_logits(windows, width=128):
    """Logits of a model that knows all labels."""
    start, end = np.zeros((2, len(windows["input_ids"]), width))
    for number in range(len(start)):
        start[number, windows["start_positions"][number]] = 5.0
        end[number, windows["end_positions"][number]] = 5.0
    return start, end


def test_right_logits_give_the_right_answers():
    windows = SquadFeatures(xquad_tokenizer(), **SHORT)(columns(ROWS))
    features = [dict(zip(windows, values, strict=True)) for values in zip(*windows.values(), strict=True)]
    found = postprocess_qa_predictions(ROWS, features, right_logits(windows), max_answer_length=128)
    for row in ROWS:
        answer = found[row["id"]]
        assert answer["text"] == row["answers"]["text"][0]
        assert answer["n_best"][0]["text"] == answer["text"]
        assert len(answer["n_best"]) == 20
        assert sum(one["probability"] for one in answer["n_best"]) < 1
        assert len({(one["start"], one["end"]) for one in answer["n_best"]}) == 20


def test_no_answer_wins_by_its_margin():
    """The rule of run_squad.py: the least "no answer" of all windows, less the best span, is above a threshold."""
    example = {"id": "q", "context": "ab"}
    features = [{"example_id": "q", "offset_mapping": [(0, 0), (0, 1), (1, 2)], "null_index": 0}] * 2
    start, end = np.array([[3.0, 1.0, 0.0], [2.0, 0.0, 0.0]]), np.array([[3.0, 0.0, 1.0], [2.0, 0.0, 0.0]])
    options = {"version_2_with_negative": True}
    found = postprocess_qa_predictions([example], features, (start, end), **options)["q"]
    assert (found["text"], found["null_score_diff"]) == ("", 2.0)
    kept = postprocess_qa_predictions([example], features, (start, end), null_score_diff_threshold=2.0, **options)["q"]
    assert kept["text"] == "ab"
    assert postprocess_qa_predictions([example], features, (start, end))["q"]["text"] == "ab"


def test_questions_without_an_answer_point_at_cls():
    row = {**ROWS[0], "answers": {"text": [], "answer_start": []}}
    windows = SquadFeatures(xquad_tokenizer(), **SHORT)(columns([row, {**row, "answers": []}]))
    assert set(windows["start_positions"]) == set(windows["end_positions"]) == {0}


def test_wrong_data_is_named():
    features = SquadFeatures(xquad_tokenizer())
    row = {**ROWS[0], "answers": {"text": ["nowhere"], "answer_start": [3]}}
    with pytest.raises(ValueError, match=f"question {row['id']}: the passage has .* Correct `answer_start`"):
        features(columns([row]))
    with pytest.raises(ValueError, match="`batch` has no column 'answers'"):
        features({"id": ["1"], "question": ["a"], "context": ["b"]})
    assert "start_positions" not in SquadFeatures(xquad_tokenizer(), training=False)(
        {"id": ["1"], "question": ["a"], "context": ["b"]}
    )
    with pytest.raises(ValueError, match="a row for each of the 0 features, got 1 and 1"):
        postprocess_qa_predictions([], [], (np.zeros((1, 2)), np.zeros((1, 2))))
    feature = {"example_id": "q", "offset_mapping": [(0, 1)], "null_index": 0}
    with pytest.raises(ValueError, match="`examples` must have an id each, got 'q' twice"):
        postprocess_qa_predictions([{"id": "q", "context": "a"}] * 2, [feature], (np.zeros((1, 2)), np.zeros((1, 2))))
    with pytest.raises(ValueError, match="`features` has no window of the example 'q'"):
        postprocess_qa_predictions([{"id": "q", "context": "a"}], [], (np.zeros((0, 2)), np.zeros((0, 2))))


LONG = " ".join(f"w{number % 7} did it in b" for number in range(9000))  # 2 parts of the passage


@pytest.mark.parametrize("question", ["who did it", None])
def test_a_passage_of_several_parts_is_read_whole_and_overlaps_everywhere(question):
    tokenizer = tokenizer_of(vocabulary([LONG, "who"]))
    assert len(LONG) > PART
    windows = list(windows_in_parts(tokenizer, question, LONG, max_seq_len=200, doc_stride=40))
    places = [window.offsets[window.answerable] for window in windows]
    alone = tokenizer(LONG, add_special_tokens=False, return_offsets_mapping=True, verbose=False)["offset_mapping"]
    assert sorted({tuple(place) for one in places for place in one.tolist()}) == alone  # every token, at its place
    shared = [
        len({tuple(place) for place in before.tolist()} & {tuple(place) for place in after.tolist()})
        for before, after in itertools.pairwise(places)
    ]
    assert min(shared) >= 40 - 2  # two pieces of a word may be left where a part ends between words
    assert [window.is_first for window in windows] == [True] + [False] * (len(windows) - 1)
    assert [window.is_last for window in windows] == [False] * (len(windows) - 1) + [True]


def test_windows_of_a_long_passage_are_made_as_they_are_asked_for():
    tokenizer = tokenizer_of(vocabulary([LONG, "who"]))
    endless = LONG * 60
    started = time.process_time()
    next(windows_in_parts(tokenizer, "who", endless))
    assert time.process_time() - started < 5


def test_long_and_short_passages_together_keep_their_order():
    tokenizer = tokenizer_of(vocabulary([LONG, "who"]))
    windows = question_windows(tokenizer, ["who"] * 3, ["it did", LONG, "b did"], max_seq_len=300)
    assert [window.example for window in windows] == sorted(window.example for window in windows)
    assert {window.example for window in windows} == {0, 1, 2}
    alone = list(windows_in_parts(tokenizer, "who", LONG, max_seq_len=300))
    assert [window.inputs for window in windows[1:-1]] == [window.inputs for window in alone]


MEMORY = """
from hf_ptm_ext.collators import SquadFeatures
from tests.memory import peak_megabytes
from tests.pipelines.models import tokenizer_of
words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "who", "jane", "did"]
row = {"id": ["1"], "question": ["who"], "context": [("jane did " * 600_000)[:5_000_000]], "answers": [[]]}
found = SquadFeatures(tokenizer_of(words))(row)
print(len(found["input_ids"]), int(peak_megabytes()))
"""


@pytest.mark.slow
def test_a_passage_of_5_megabytes_needs_little_memory():
    count, megabytes = run_process(sys.executable, "-c", MEMORY, OMP_NUM_THREADS="1").split()
    assert int(count) > 4000
    assert int(megabytes) < 1200
