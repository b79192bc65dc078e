"""`pretrain --block_mode`: RoBERTa's packings, from the command line to rows and labels, all at once and streamed."""

from itertools import islice, pairwise
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_ptm_ext.cli.arguments import ModelArguments
from hf_ptm_ext.cli.pretrain import parse
from hf_ptm_ext.cli.pretrain_arguments import DataArguments, ObjectiveArguments
from hf_ptm_ext.cli.pretrain_data import build_rows, read_documents
from hf_ptm_ext.cli.pretraining import OBJECTIVES
from hf_ptm_ext.data import encode_documents, train_wordpiece
from hf_ptm_ext.data.streaming import separator_of

WORDS = [f"w{number}" for number in range(30)]
TOKENIZER = train_wordpiece([[" ".join(WORDS)]] * 2, 400)
LENGTH = 16


def objective_of(documents, tmp_path, name="mlm", **data):
    """An objective on a file of these documents, and what it read."""
    file = tmp_path / "text.txt"
    file.write_text("\n\n".join("\n".join(document) for document in documents), encoding="utf-8")
    arguments = DataArguments(train_file=[str(file)], max_seq_length=LENGTH, validation_fraction=0, **data)
    options = ObjectiveArguments(objective=name)
    objective = OBJECTIVES[name](ModelArguments(family="spanbert"), arguments, options)
    objective.check()
    objective.prepare(TOKENIZER)
    return objective, read_documents(arguments)


def blocks_of(rows):
    """Rows without what stands around a text."""
    return [list(row["input_ids"][1:-1]) for row in rows]


sentence = st.lists(st.sampled_from(WORDS), min_size=1, max_size=9).map(" ".join)
documents_of_words = st.lists(st.lists(sentence, min_size=1, max_size=5), min_size=1, max_size=12)


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("block_mode", ["doc_sentences", "full_sentences"])
@settings(max_examples=10, deadline=None)
@given(documents=documents_of_words)
def test_rows_hold_all_documents_and_cross_them_only_if_asked(tmp_path_factory, documents, block_mode, streaming):
    options = {"block_mode": block_mode, "streaming": streaming, "shuffle_buffer_size": 1}
    objective, read = objective_of(documents, tmp_path_factory.mktemp("text"), **options)
    rows, expected = build_rows(objective, read, 0).train, list(encode_documents(documents, TOKENIZER))
    texts = [[token for sentence in document for token in sentence] for document in expected]
    separator, total = TOKENIZER.sep_token_id, sum(map(len, texts))
    blocks, seen = [], 0
    for block in blocks_of(islice(rows, total)):  # a stream has no end
        blocks.append(block)
        seen += len(block) - block.count(separator)
        if seen >= total:
            break
    assert [token for block in blocks for token in block if token != separator] == [t for one in texts for t in one]
    ends = {sum(map(len, texts[: number + 1])) for number in range(len(texts))}
    place = 0
    for block in blocks:
        assert 0 < len(block) <= LENGTH - 2
        assert separator not in (block[0], block[-1])
        inside = []
        for token in block:
            if token == separator:
                inside.append(place)
            place += token != separator
        first = place - len(block) + block.count(separator)
        assert inside == [end for end in sorted(ends) if first < end < place], "one between two documents, no other"
    if block_mode == "doc_sentences":
        assert not any(separator in block for block in blocks)
    else:
        sentences = [len(ids) for document in expected for ids in document]
        for one, other in pairwise(blocks):  # the next sentence and a separator had no room
            assert len(one) + 1 + min(len(other), max(sentences)) > LENGTH - 2


@pytest.mark.parametrize("name", ["mlm", "wwm", "ngram", "span"])
@pytest.mark.parametrize("pack_rows", [False, True])
def test_labels_of_many_short_documents_have_room_in_fixed_shapes(tmp_path, name, pack_rows):
    """Documents of one token are the most blocks that a row can have."""
    packed = {"pack_rows": True, "row_length": 64} if pack_rows else {}
    documents = [[word] for word in WORDS] * 8
    objective, read = objective_of(documents, tmp_path, name, block_mode="full_sentences", **packed)
    rows = build_rows(objective, read, 0)
    objective.model = SimpleNamespace(config=SimpleNamespace(max_pair_targets=4))
    collator = objective.collator(0, rows.baseline.counts, fixed_shapes=True)
    batch = collator([rows.train[number] for number in range(len(rows.train))])
    labels = batch["labels"] != -100
    assert labels.any(dim=1).all()
    assert not labels[(batch["input_ids"] == TOKENIZER.sep_token_id)].any()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--objective", "unilm"], "rows of two segments"),
        (["--objective", "span", "--next_sentence_prediction", "true"], "rows of two segments"),
        (["--objective", "tlm", "--languages", "en", "de"], "rows of two segments"),
        (["--objective", "mass"], "a target of each row"),
    ],
)
def test_rows_of_other_kinds_refuse_full_sentences(words, message):
    with pytest.raises(ValueError, match=message) as raised:
        parse([*words, "--block_mode", "full_sentences"])
    assert "`block_mode` = full_sentences" in str(raised.value)


def test_tokenizers_without_a_separator_put_their_end_between_documents():
    assert separator_of(SimpleNamespace(sep_token_id=None, eos_token_id=1)) == 1
    assert separator_of(SimpleNamespace(sep_token_id=0, eos_token_id=1)) == 0
