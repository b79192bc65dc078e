"""The eight task types of the documentation: every recipe that it names runs, on rows of the shape that it is for."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM

from hf_ptm_ext.cli import main
from hf_ptm_ext.cli.finetune import parse
from hf_ptm_ext.cli.tasks import TaggingTask
from hf_ptm_ext.data import (
    TaggedWords,
    extraction_rows,
    read_question_examples,
    read_tagged_words,
    relation_tagging_rows,
    train_wordpiece,
)
from tests.cli.jobs import ROOT, recipes_of
from tests.pipelines.models import FIXTURES, SHAPE

PAGE = (ROOT / "docs/how-to/classification_and_tagging.md").read_text(encoding="utf-8")
TABLE = PAGE.partition("<!-- tasks -->")[2].partition("<!-- /tasks -->")[0]
TYPES = [
    (*(cell.strip() for cell in line.split("|")[1:3]), re.search(r"`(\w+\.yaml)`", line)[1])
    for line in TABLE.strip().splitlines()[2:]
]
QUICK = {
    "max_steps": 2,
    "per_device_train_batch_size": 4,
    "per_device_eval_batch_size": 8,
    "save_strategy": "no",
    "use_cpu": "true",
    "disable_tqdm": "true",
    "report_to": "none",
}


def rows_of(name):
    return [json.loads(line) for line in (FIXTURES / name).read_text(encoding="utf-8").splitlines()]


def test_there_are_one_and_several_inputs_for_each_of_four_outputs():
    kinds = [(given, wanted) for given, wanted, _ in TYPES]
    assert len(set(kinds)) == len(kinds) == 8
    assert {given for given, _ in kinds} == {"one text", "several texts"}
    assert {wanted for _, wanted in kinds} == {"one class", "a class for each word", "copy from the input", "any text"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Rows for every recipe under its name, and a small BERT that knows their words."""
    folder = tmp_path_factory.mktemp("types")
    typed = rows_of("wikidata/typing.jsonl")[:24]
    related = rows_of("wikidata/relations.jsonl")[:24]
    summaries = [{**row, "targets": [row["target"]]} for row in rows_of("scitldr_64.jsonl")[:16]]
    questions = [row for row in rows_of("xquad_24.jsonl") if row["question"].isascii()]

    def tags(row):
        first, behind = row["pos"]
        inside = [f"{'B' if place == first else 'I'}-{row['coarse'][0]}" for place in range(first, behind)]
        return ["O"] * first + inside + ["O"] * (len(row["tokens"]) - behind)

    texts = [{"text": " ".join(row["tokens"]), "label": row["coarse"][0], "name": row["name"]} for row in typed]
    data = {
        "bert_classification": texts,
        "tagging": [{"tokens": row["tokens"], "tags": tags(row)} for row in typed],
        "extraction": list(extraction_rows(summaries)),
        "unilm_summarization_small": summaries,
        "pair_classification": [
            {"premise": row["text"], "hypothesis": row["name"], "label": row["label"]} for row in texts
        ],
        "pair_tagging": list(relation_tagging_rows(related, {"P177": "crosses"})),
        "question_answering": questions,
        "unilm_question_generation": questions,
    }
    for name, rows in data.items():
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    tokenizer = train_wordpiece([[row["text"] for row in texts]], 800, model_max_length=512)
    BertForMaskedLM(BertConfig(vocab_size=len(tokenizer), **SHAPE)).save_pretrained(folder / "bert")
    tokenizer.save_pretrained(folder / "bert")
    assert main(["convert", "unilm", str(folder / "bert"), str(folder / "unilm")]) == 0
    return folder


@pytest.mark.parametrize("recipe", [recipe for _, _, recipe in TYPES])
def test_every_recipe_of_the_table_runs(folder, recipe, tmp_path):
    name = recipe.removesuffix(".yaml")
    command = next(job for job in ("finetune", "finetune-seq2seq") if recipe in recipes_of(job))
    values = {"model_name_or_path": folder / "bert", "train_file": folder / f"{name}.jsonl", **QUICK}
    if command == "finetune":
        values |= {"test_file": values["train_file"], "seeds": 0}
    else:
        values |= {"validation_file": values["train_file"], "max_eval_rows": 4, "num_beams": 1, "max_new_tokens": 6}
        values |= {"model_name_or_path": folder / "unilm", "gradient_accumulation_steps": 1}
    words = [word for key, value in values.items() for word in (f"--{key}", str(value))]
    output = tmp_path / name
    assert main([command, recipe, *words, "--output_dir", str(output)]) == 0
    assert (output / "README.md").is_file()
    (predictions,) = output.glob("predictions_*.jsonl")
    assert all("prediction" in json.loads(line) for line in predictions.read_text(encoding="utf-8").splitlines())
    config = json.loads((output / "config.json").read_text(encoding="utf-8"))
    model = next(line for line in TABLE.splitlines() if recipe in line).split("|")[4]
    if "AutoModelFor" in model:
        assert config["architectures"][0].endswith(re.search(r"AutoModel(For\w+)", model)[1])


# ---- a part of one text ----


def test_the_sentence_that_is_most_like_the_summary_is_to_be_copied():
    record = {"id": "x", "source": "We thank all. A new net is fast.  It is ours!", "targets": ["ours", "a fast net"]}
    (row,) = extraction_rows([record])
    text, start = row["answers"]["text"][0], row["answers"]["answer_start"][0]
    assert text == record["source"][start : start + len(text)] == "A new net is fast."
    with pytest.raises(ValueError, match="record 1: lacks `targets`"):
        list(extraction_rows([{"source": "a"}]))
    for row in extraction_rows(rows_of("scitldr_64.jsonl"), "source", "target"):
        assert row["context"][row["answers"]["answer_start"][0] :].startswith(row["answers"]["text"][0])


# ---- a class for every word, beside a second text ----


def test_only_words_of_the_first_text_are_tagged(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder / "bert")
    example = TaggedWords(("anna", "sings"), ("B-HEAD", "O"), ("a", "second", "text"))
    flags = ["--model_name_or_path", "m", "--task", "tagging", "--train_file", "a", "--test_file", "b"]
    _, args, *_ = parse([*flags, "--pair_column", "relation"])
    rows = TaggingTask.of([example], args).encode([example], tokenizer, 64)
    labels = rows.inputs[0]["labels"]
    assert [label for label in labels if label != -100] == [1, 0]
    second = [place for place, kind in enumerate(rows.inputs[0]["token_type_ids"]) if kind == 1]
    assert second
    assert all(labels[place] == -100 for place in second)


def test_relations_become_tags_beside_their_name(folder):
    (first, *_) = read_tagged_words(folder / "pair_tagging.jsonl", pair_column="relation")
    assert first.pair == ("crosses",)
    heads = [word for word, tag in zip(first.words, first.tags, strict=True) if tag.endswith("HEAD")]
    assert heads == ["Shelby", "Rhinehart", "Bridge"]
    overlapping = {"tokens": ["a", "b"], "relation": "r", "head": {"pos": [0, 2]}, "tail": {"pos": [1, 2]}}
    with pytest.raises(ValueError, match="record 1: spans must lie in the 2 words without overlap"):
        list(relation_tagging_rows([overlapping]))
    conll = folder / "words.conll"
    conll.write_text("anna B-PER\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"`pair_column` = 'relation': .* is a CoNLL file"):
        list(read_tagged_words(conll, pair_column="relation"))


def test_the_script_writes_both_kinds_of_rows(tmp_path):
    names = tmp_path / "relations.json"
    names.write_text(json.dumps({"P177": {"name": "crosses"}}), encoding="utf-8")
    script = ROOT / "scripts" / "make_task_rows.py"
    for kind, source, more in (
        ("extraction", FIXTURES / "scitldr_64.jsonl", []),
        ("pair-tagging", FIXTURES / "wikidata" / "relations.jsonl", ["--relations", str(names)]),
    ):
        if kind == "extraction":
            rows = [{**row, "targets": [row["target"]]} for row in rows_of("scitldr_64.jsonl")]
            source = tmp_path / "summaries.jsonl"
            source.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        target = tmp_path / f"{kind}.jsonl"
        words = [sys.executable, str(script), kind, str(source), str(target), *more]
        subprocess.run(words, check=True, cwd=ROOT, timeout=600, capture_output=True)
        assert Path(target).read_text(encoding="utf-8").count("\n") in (64, 160)
    assert len(list(read_tagged_words(tmp_path / "pair-tagging.jsonl", pair_column="relation"))) == 160
    assert json.loads((tmp_path / "extraction.jsonl").read_text(encoding="utf-8").splitlines()[0])["answers"]["text"]
    with pytest.raises(ValueError, match="no column 'question'"):
        list(read_question_examples(tmp_path / "extraction.jsonl"))
