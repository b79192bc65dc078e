"""The stream: rows before and after any stop are the rows of a run without stop, each once."""

import json
import subprocess
import sys
from itertools import chain, islice

import pytest
from datasets import Dataset, DatasetDict, Features, IterableDataset, Value
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from hf_ptm_ext.data import (
    DatasetDocuments,
    FileDocuments,
    ListDocuments,
    PretrainingStream,
    as_document_source,
    dataset_documents,
    encode_documents,
    pretraining_dataset,
    train_wordpiece,
)
from hf_ptm_ext.data.sentence_pairs import PairRule
from hf_ptm_ext.data.sources import FilteredDocuments
from hf_ptm_ext.data.streaming import WeightedStream

DOCUMENTS = [[f"number {index}." + " and more" * (index % 5), "end"][: 1 + index % 2] for index in range(24)]
TOKENIZER = train_wordpiece(DOCUMENTS, 120)
MODES = {
    "plain": {},
    "kept order": {"shuffle_buffer_size": 0},
    "two epochs": {"num_epochs": 2},
    "packed": {"packed": True, "max_seq_length": 40, "open_rows": 3, "max_sequences": 4},
    "across documents": {"block_mode": "full_sentences", "max_seq_length": 17, "short_seq_prob": 0.3},
    "short, packed": {"packed": True, "max_seq_length": 24, "short_seq_prob": 0.5, "num_epochs": 2},
    "pairs": {"pairs": PairRule("structure", short_seq_prob=0.3, buffer_size=3), "num_epochs": 2},
    "pairs, packed": {"pairs": PairRule("order"), "packed": True, "max_seq_length": 40, "max_sequences": 4},
    "second of two processes": {"rank": 1, "world_size": 2},
}


def as_dataset(documents=DOCUMENTS):
    return Dataset.from_dict({"text": ["\n".join(document) for document in documents]})


def source_of(kind, folder):
    """The 24 documents as a list, files, a dataset or a streaming dataset in 3 shards."""
    if kind == "list":
        return DOCUMENTS
    if kind == "dataset":
        return as_dataset()
    if kind == "streaming":
        return as_dataset().to_iterable_dataset(num_shards=3)
    for part in range(3):
        texts = ["\n".join(document) for document in DOCUMENTS[8 * part : 8 * part + 8]]
        (folder / f"{part}.txt").write_text("\n\n".join(texts) + "\n", encoding="utf-8")
    return FileDocuments(folder / "*.txt")


def build(documents=DOCUMENTS, **options):
    return PretrainingStream(documents, TOKENIZER, **{"max_seq_length": 32, "shuffle_buffer_size": 6, **options})


def run_with_stops(make, stops):
    """Rows of a run that stops after each given number of rows and goes on in a fresh stream, through JSON."""
    rows, state = [], None
    for stop in [*stops, None]:
        stream = make()
        if state is not None:
            stream.load_state_dict(json.loads(state))
        rows += islice(iter(stream), stop)
        state = json.dumps(stream.state_dict())
    return rows


@pytest.mark.parametrize("kind", ["list", "files", "dataset", "streaming"])
@pytest.mark.parametrize("mode", MODES)
def test_two_stops_change_nothing(tmp_path, kind, mode):
    """7 rows, stop, 5 more, stop, the rest (datasets alone gives 21 of 24 rows and one twice)."""
    rows = list(build(source_of(kind, tmp_path), **MODES[mode]))
    assert len(rows) >= 6
    for stops in ([7, 5], [3, 2], [1], [0, 2, 0], [len(rows)], [len(rows) - 1, 1]):
        assert run_with_stops(lambda: build(source_of(kind, tmp_path), **MODES[mode]), stops) == rows


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(sorted(MODES)), st.lists(st.integers(0, 9), max_size=5), st.integers(0, 30))
def test_any_stops_change_nothing(mode, stops, buffer):
    options = {**MODES[mode], "shuffle_buffer_size": buffer}
    assert run_with_stops(lambda: build(**options), stops) == list(build(**options))


def weighted(weights=(3, 1), num_epochs=None):
    streams = [build(documents, num_epochs=num_epochs) for documents in (DOCUMENTS, [["other"], ["end"]])]
    return WeightedStream(streams, weights, seed=2)


def test_corpora_are_drawn_by_their_weights_and_a_stop_changes_nothing():
    rows = list(islice(iter(weighted()), 400))
    of_first = sum(TOKENIZER.decode(row["input_ids"][1:2]) == "number" for row in rows)
    assert abs(of_first - 300) < 4 * (400 * 0.75 * 0.25) ** 0.5
    assert (few := list(weighted(num_epochs=2))) == rows[: len(few)]
    assert run_with_stops(lambda: weighted(num_epochs=2), [7, 5, 0, 1]) == few
    with pytest.raises(ValueError, match="weights"):
        weighted((1, 1)).load_state_dict(weighted().state_dict())


def test_every_document_comes_once_in_an_order_of_its_own_in_each_epoch():
    stream = build(num_epochs=3)
    rows = [tuple(row["input_ids"]) for row in stream]
    epochs = [rows[:24], rows[24:48], rows[48:]]
    expected = sorted(tuple(row["input_ids"]) for row in build(shuffle_buffer_size=0))
    assert [sorted(epoch) for epoch in epochs] == [expected] * 3
    assert epochs[0] != epochs[1] != epochs[2]
    assert [tuple(row["input_ids"]) for row in build(seed=1)] != epochs[0]
    assert [tuple(row["input_ids"]) for row in stream] == rows  # a new iteration starts from the beginning


def test_packed_rows_hold_the_tokens_of_the_plain_rows():
    plain = sorted(row["input_ids"] for row in build())
    packed = []
    for row in build(packed=True, max_seq_length=32):
        for number in range(1, max(row["sequence_ids"]) + 1):
            places = [at for at, value in enumerate(row["sequence_ids"]) if value == number]
            packed.append([row["input_ids"][at] for at in places])
    assert sorted(packed) == plain


def test_an_endless_stream_goes_on_and_resumes_in_a_later_epoch():
    rows = list(islice(iter(build(num_epochs=None)), 100))
    assert rows[:72] == list(build(num_epochs=3))
    resumed = run_with_stops(lambda: build(num_epochs=4), [50, 20])
    assert resumed[:96] == rows[:96]


def test_the_ranks_share_the_documents():
    every = sorted(row["input_ids"] for row in build())
    shares = [[row["input_ids"] for row in build(rank=rank, world_size=3)] for rank in range(3)]
    assert sorted(chain(*shares)) == every
    assert [len(share) for share in shares] == [8, 8, 8]


def test_a_data_loader_without_workers_is_never_ahead_of_its_last_batch():
    rows = list(build())
    stream = build()
    batches = iter(DataLoader(stream, batch_size=4, num_workers=0, collate_fn=list))
    seen = [row for _ in range(3) for row in next(batches)]
    resumed = build()
    resumed.load_state_dict(stream.state_dict())
    assert seen + list(resumed) == rows


@pytest.mark.parametrize("kind", ["list", "streaming"])
def test_workers_share_the_documents_but_cannot_resume_exactly(tmp_path, kind):
    stream = build(source_of(kind, tmp_path))
    rows = DataLoader(stream, batch_size=None, num_workers=2, collate_fn=dict)
    assert sorted(row["input_ids"] for row in rows) == sorted(row["input_ids"] for row in build())
    assert stream.resume_problems(num_workers=0) == []
    (problem,) = stream.resume_problems(num_workers=2)
    assert "`dataloader_num_workers` is 2" in problem


def test_a_new_process_goes_on(tmp_path):
    rows = list(build())
    stream = build()
    before = list(islice(iter(stream), 7))
    (tmp_path / "state.json").write_text(json.dumps(stream.state_dict()), encoding="utf-8")
    TOKENIZER.save_pretrained(tmp_path)
    (tmp_path / "documents.json").write_text(json.dumps(DOCUMENTS), encoding="utf-8")
    code = (
        "import json, sys\n"
        "from pathlib import Path\n"
        "from transformers import AutoTokenizer\n"
        "from hf_ptm_ext.data import PretrainingStream\n"
        "read = lambda name: json.loads((Path(sys.argv[1]) / name).read_text(encoding='utf-8'))\n"
        "stream = PretrainingStream(read('documents.json'), AutoTokenizer.from_pretrained(sys.argv[1]),\n"
        "                           max_seq_length=32, shuffle_buffer_size=6)\n"
        "stream.load_state_dict(read('state.json'))\n"
        "print(json.dumps(list(stream)))\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=True)
    assert before + json.loads(run.stdout) == rows


def test_states_of_other_settings_tokenizers_and_documents_are_refused():
    stream = build()
    next(iter(stream))
    state = stream.state_dict()
    with pytest.raises(ValueError, match=r"`seed` was 0, is 1, `rank` was 0, is 1, `world_size` was 1, is 2"):
        build(seed=1, rank=1, world_size=2).load_state_dict(state)
    other = PretrainingStream(DOCUMENTS, train_wordpiece(DOCUMENTS, 30), max_seq_length=32, shuffle_buffer_size=6)
    with pytest.raises(ValueError, match=r"`tokenizer` was '\w+', is '\w+'"):
        other.load_state_dict(state)
    with pytest.raises(ValueError, match=r"`documents` are not those of the saved state"):
        build(DOCUMENTS[1:]).load_state_dict(state)
    place = as_document_source(as_dataset()).state_dict()
    for other in (as_dataset(DOCUMENTS[1:]), as_dataset().to_iterable_dataset()):
        with pytest.raises(ValueError, match=r"`dataset` is not the one of the saved state"):
            DatasetDocuments(other).load_state_dict(place)
    with pytest.raises(ValueError, match=r"`version`"):
        build().load_state_dict({})


def test_the_state_is_not_touched_by_going_on():
    stream = build(packed=True)
    iterator = iter(stream)
    next(iterator)
    state = stream.state_dict()
    frozen = json.dumps(state)
    list(iterator)
    resumed = build(packed=True)
    resumed.load_state_dict(state)
    list(resumed)
    assert json.dumps(state) == frozen


def test_chinese_text_streams(chinese_documents, chinese_tokenizer):
    def make():
        return PretrainingStream(chinese_documents, chinese_tokenizer, max_seq_length=64, packed=True)

    rows = list(make())
    assert run_with_stops(make, [10, 10]) == rows
    tokens = sum(len(s) for document in encode_documents(chinese_documents, chinese_tokenizer) for s in document)
    specials = {chinese_tokenizer.cls_token_id, chinese_tokenizer.sep_token_id, chinese_tokenizer.pad_token_id}
    assert sum(token not in specials for row in rows for token in row["input_ids"]) == tokens


# --- sources -------------------------------------------------------------------------------------------------------


def test_a_shuffled_streaming_dataset_is_refused_also_behind_other_steps():
    shuffled = as_dataset().to_iterable_dataset(num_shards=3).shuffle(seed=0, buffer_size=6)
    for dataset in (shuffled, shuffled.map(lambda row: row), shuffled.filter(lambda row: True).take(9)):
        with pytest.raises(ValueError, match=r"must not be a shuffled IterableDataset.*`shuffle_buffer_size`"):
            as_document_source(dataset)
    assert len(list(as_document_source(as_dataset().shuffle(seed=0)))) == 24


def test_mapped_streaming_datasets_resume():
    def make():
        dataset = as_dataset().to_iterable_dataset(num_shards=3)
        return build(dataset.map(lambda batch: {"text": [text.upper() for text in batch["text"]]}, batched=True))

    assert run_with_stops(make, [7, 5]) == list(make())


def test_columns_splits_and_types_are_checked():
    with pytest.raises(ValueError, match=r"`dataset`: no column 'content', only \['text'\]"):
        DatasetDocuments(as_dataset(), "content")
    with pytest.raises(TypeError, match=r"got DatasetDict of \['train'\]\. Choose a split"):
        DatasetDocuments(DatasetDict(train=as_dataset()))
    unknown = IterableDataset.from_generator(lambda: iter([{"content": "a"}]))
    with pytest.raises(ValueError, match=r"row 0: no column 'text', only \['content'\]"):
        list(DatasetDocuments(unknown))
    numbers = Dataset.from_dict({"text": [1]}, features=Features({"text": Value("int64")}))
    with pytest.raises(ValueError, match=r"row 0, column 'text': the text must be a string or a list"):
        list(DatasetDocuments(numbers))
    with pytest.raises(TypeError, match=r"so that its place can be saved; got generator"):
        as_document_source(document for document in DOCUMENTS)


@pytest.mark.parametrize("streaming", [True, False])
def test_local_folders_open_as_datasets(tmp_path, streaming):
    as_dataset().to_parquet(tmp_path / "files" / "train-0.parquet")
    DatasetDict(train=as_dataset(), test=as_dataset(DOCUMENTS[:2])).save_to_disk(tmp_path / "dict")
    opened = dataset_documents(tmp_path / "files", streaming=streaming)
    assert opened.streaming is streaming
    assert list(opened) == DOCUMENTS
    assert list(dataset_documents(tmp_path / "dict", split="test", streaming=streaming)) == DOCUMENTS[:2]
    with pytest.raises(ValueError, match=r"`split` must be one of \['train', 'test'\]"):
        dataset_documents(tmp_path / "dict", split="dev")


@pytest.mark.parametrize("kind", ["list", "dataset", "streaming"])
def test_a_source_knows_its_place_before_during_and_after(tmp_path, kind):
    for stop in (0, 1, 24):
        source = as_document_source(source_of(kind, tmp_path))
        before = list(islice(source, stop))
        resumed = as_document_source(source_of(kind, tmp_path))
        resumed.load_state_dict(source.state_dict())
        again = as_document_source(source_of(kind, tmp_path))
        again.load_state_dict(resumed.state_dict())  # loaded, but not iterated yet
        assert before + list(again) == DOCUMENTS
        assert list(again) == DOCUMENTS


# --- all rows at once, and options ---------------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [False, True])
def test_the_map_style_dataset_has_the_rows_of_the_stream_in_order(tmp_path, packed):
    rows = list(build(shuffle_buffer_size=1, packed=packed))
    for cache_dir in (None, tmp_path):
        dataset = pretraining_dataset(DOCUMENTS, TOKENIZER, max_seq_length=32, packed=packed, cache_dir=cache_dir)
        assert list(dataset) == rows
        assert bool(dataset.cache_files) is (cache_dir is not None)


def test_too_few_documents_for_the_processes_are_an_error_not_an_endless_loop():
    with pytest.raises(ValueError, match=r"give rank 3 of 4 no row: 2 documents were read"):
        next(iter(build(DOCUMENTS[:2], num_epochs=None, rank=3, world_size=4)))
    with pytest.raises(ValueError, match=r"give rank 0 of 1 no row: 0 documents were read"):
        next(iter(build(ListDocuments([]))))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_seq_length": 2}, "`max_seq_length` must exceed the tokenizer's 2 special tokens, got 2"),
        ({"rank": 2, "world_size": 2}, "`rank` must be at least 0 and below `world_size` = 2, got 2"),
        ({"shuffle_buffer_size": -1}, "`shuffle_buffer_size` and `seed` must not be negative, got -1 and 0"),
        ({"num_epochs": 0}, "`num_epochs` must be at least 1, or None for no end, got 0"),
        ({"block_mode": "doc"}, "`mode` must be one of"),
    ],
)
def test_impossible_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        build(**options)


@pytest.mark.parametrize("kind", ["list", "files", "dataset", "streaming"])
def test_a_source_that_was_read_before_is_read_from_its_beginning(kind, tmp_path):
    source = as_document_source(source_of(kind, tmp_path))
    expected = list(build(as_document_source(source_of(kind, tmp_path))))
    assert len(list(source)) == 24
    assert list(build(source)) == expected
    next(iter(source))
    assert list(build(source)) == expected
    assert list(build(FilteredDocuments(source, lambda document: True))) == expected
