"""`hf-ptm-ext finetune --task triples`: KG-BERT's three tasks on a small graph, and what is wrong with files."""

import json

import numpy as np
import pytest
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from hf_ptm_ext import TripleEncoder, TripleScorer
from hf_ptm_ext.cli import main
from hf_ptm_ext.cli.tasks.triples import TripleTask
from hf_ptm_ext.data import LabelledTriple
from hf_ptm_ext.data.labelled_triples import read_descriptions, read_labelled_triples
from tests.cli.test_finetune import RUN, results_of, save_bert, words_of

COLOURS = ("red", "blue", "green", "black", "white", "grey")
ANIMALS = ("cat", "dog", "horse", "bird", "fish", "snake", "frog", "mouse")


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    """Things of two words, each with its colour and its kind; a ninth of the triples is held out."""
    folder = tmp_path_factory.mktemp("graph")
    texts = {f"c{place}": name for place, name in enumerate(COLOURS)}
    texts |= {f"a{place}": name for place, name in enumerate(ANIMALS)}
    triples = []
    for number, (colour, animal) in enumerate(np.ndindex(len(COLOURS), len(ANIMALS))):
        texts[f"e{number}"] = f"{COLOURS[colour]} {ANIMALS[animal]}"
        triples += [(f"e{number}", "P1", f"c{colour}"), (f"e{number}", "P2", f"a{animal}")]
    draw = np.random.default_rng(0).permutation(len(triples))
    for split, part in (("test", draw[:12]), ("valid", draw[12:20]), ("train", draw[20:])):
        lines = ["\t".join(triples[place]) for place in part]
        (folder / f"{split}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    relations = {"P1": "colour", "P2": "kind"}
    for name, given in (("entity2text", texts), ("relation2text", relations)):
        (folder / f"{name}.txt").write_text("".join(f"{k}\t{v}\n" for k, v in given.items()), encoding="utf-8")
    save_bert(folder / "bert", [*texts.values(), *relations.values()] * 2)
    return folder


def options(graph, output, **values):
    return {
        **{"model_name_or_path": graph / "bert", "output_dir": output, "task": "triples", **RUN, "seeds": 0},
        **{f"{split}_file": graph / f"{name}.tsv" for split, name in (("train", "train"), ("test", "test"))},
        **{"entity_text_file": graph / "entity2text.txt", "relation_text_file": graph / "relation2text.txt"},
        **{"max_seq_length": 16, "num_train_epochs": 1, **values},
    }


def finetune(graph, output, **values):
    given = {name: value for name, value in options(graph, output, **values).items() if value is not None}
    return main(["finetune", *words_of(**given)])


def predictions(folder):
    return [json.loads(line) for line in (folder / "predictions_test.jsonl").read_text(encoding="utf-8").splitlines()]


def test_link_prediction_ranks_as_the_saved_model_does(graph, tmp_path, capsys):
    values = {"triple_task": "link-prediction", "validation_file": graph / "valid.tsv", "eval_strategy": "epoch"}
    assert finetune(graph, tmp_path, **values, load_best_model_at_end=True) == 0
    printed = capsys.readouterr().out
    assert "hits@10" in printed
    assert "random order" in printed
    scores = results_of(tmp_path)["runs"][0]["test"]
    texts = [read_descriptions(graph / f"{name}2text.txt") for name in ("entity", "relation")]
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    encoder = TripleEncoder(AutoTokenizer.from_pretrained(tmp_path), *(list(one.values()) for one in texts), 16)
    place = [{name: number for number, name in enumerate(one)} for one in texts]
    rows = {
        split: [
            (place[0][one.head], place[1][one.relation], place[0][one.tail])
            for one in read_labelled_triples(graph / f"{split}.tsv")
        ]
        for split in ("train", "valid", "test")
    }
    ranks = TripleScorer(model, encoder).rank(rows["test"], [*rows["train"], *rows["valid"], *rows["test"]])
    assert scores == pytest.approx(ranks.scores(), rel=1e-3)
    assert [row["tail_rank"] for row in predictions(tmp_path)] == pytest.approx(ranks.filtered[1].tolist())
    examples = results_of(tmp_path)
    assert examples["majority"]["mrr"] < 0.2
    assert "link prediction" in (tmp_path / "README.md").read_text(encoding="utf-8")


def test_triple_classification_adds_false_triples_and_relation_prediction_ranks_relations(graph, tmp_path):
    assert finetune(graph, tmp_path / "true") == 0
    found = predictions(tmp_path / "true")
    assert [row["label"] for row in found] == ["1"] * 12 + ["0"] * 12
    assert len({row["id"] for row in found}) == 24
    known = {row[:3] for split in ("train", "test") for row in read_labelled_triples(graph / f"{split}.tsv")}
    assert not {(row["head"], row["relation"], row["tail"]) for row in found[12:]} & known
    assert {"accuracy", "macro_f1"} <= set(results_of(tmp_path / "true")["majority"])
    assert finetune(graph, tmp_path / "relation", triple_task="relation-prediction", entity_text_file=None) == 0
    results = results_of(tmp_path / "relation")
    assert results["labels"] == ["P1", "P2"]
    assert {"mrr", "mean_rank", "raw_mean_rank", "hits@1"} <= set(results["runs"][0]["test"])
    assert results["majority"]["mean_rank"] == pytest.approx(1.5, abs=0.5)


def test_labels_of_a_file_are_taken_and_files_of_rows_are_read(graph, tmp_path):
    rows = list(read_labelled_triples(graph / "test.tsv"))
    labelled = "head\trelation\ttail\tlabel\n" + "".join(
        f"{one.head}\t{one.relation}\t{one.tail}\t{1 if number % 2 else -1}\n" for number, one in enumerate(rows)
    )
    (tmp_path / "test.tsv").write_text(labelled, encoding="utf-8")
    (tmp_path / "test.jsonl").write_text(
        "".join(
            json.dumps({"head": o.head, "relation": o.relation, "tail": o.tail, "id": o.tail}) + "\n" for o in rows
        ),
        encoding="utf-8",
    )
    assert next(read_labelled_triples(tmp_path / "test.tsv")) == LabelledTriple(*rows[0][:3], "0")
    assert next(read_labelled_triples(tmp_path / "test.jsonl")) == rows[0]._replace(id=rows[0].tail)
    assert finetune(graph, tmp_path / "out", test_file=tmp_path / "test.tsv") == 0
    assert [row["label"] for row in predictions(tmp_path / "out")] == ["0", "1"] * 6


def test_a_small_graph_has_false_triples_for_evaluation_whatever_training_calls_false(graph):
    names = [f"e{number}" for number in range(4)]
    train = [LabelledTriple("e0", "r", "e1"), LabelledTriple("e2", "r", "e3")]
    task = TripleTask(("0", "1"), "triple-classification", negatives=50)
    made, found = task.completed({"train": train, "test": [LabelledTriple("e1", "r", "e0")]})
    assert list(found.entities) == names
    assert [one.label for one in made["test"]] == ["1", "0"]
    assert made["test"][1][:3] not in {one[:3] for one in [*train, made["test"][0]]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"train_file": "bad.tsv"},
            "2 of 79 rows cannot be used: {folder}/bad.tsv, line 2, line 3: must be head, relat",
        ),
        ({"train_file": "unknown.tsv"}, "`entity_text_file` has no text for 1 of the "),
        ({"entity_text_file": "bad.tsv"}, "{folder}/bad.tsv, line 1: must be a name and a text"),
        ({"entity_text_file": "empty.tsv"}, "`files` must have at least one line with a name and a text, got none"),
        ({"train_file": "."}, "is a folder. Name its files"),
        ({"train_file": "label.tsv"}, "label.tsv, line 1: the label must be 1 (true) or 0 or -1 (false), got 'yes'"),
        ({"train_file": "false.tsv"}, "The training data must have true triples, got 1 false ones."),
        ({"ranking_candidates": "0"}, "`ranking_candidates` must be all, type or a number from 1, got '0'"),
        ({"triple_task": "link_prediction"}, "Did you mean 'link-prediction'"),
        ({"test_file": "false.tsv", "triple_task": "link-prediction"}, "has 1 triples that are labelled false"),
        (
            {"triple_task": "link-prediction", "metric_for_best_model": "mrr", "validation_file": "one.tsv"},
            "`metric_for_best_model` must be one of loss, which an evaluation of this job gives, got 'mrr'",
        ),
    ],
)
def test_mistakes_are_one_line(graph, tmp_path, capsys, change, message):
    one = (graph / "test.tsv").read_text(encoding="utf-8").splitlines()[0]
    texts = {"bad": f"{one}\na\tb\nc\td\n", "unknown": "zebra\tP1\tc0\n", "empty": "\n", "label": f"{one}\tyes\n"}
    for name, text in {**texts, "false": f"{one}\t-1\n", "one": f"{one}\n"}.items():
        (tmp_path / f"{name}.tsv").write_text(text, encoding="utf-8")
    change = {name: tmp_path / value if "_file" in name else value for name, value in change.items()}
    assert finetune(graph, tmp_path / "out", **change) == 2
    error = capsys.readouterr().err
    assert message.format(folder=tmp_path) in error
    assert "Traceback" not in error


@pytest.mark.slow
def test_what_texts_say_is_learnt_and_mixed_up_texts_teach_nothing(graph, tmp_path):
    names = list(read_descriptions(graph / "entity2text.txt"))
    texts = np.random.default_rng(0).permutation(list(read_descriptions(graph / "entity2text.txt").values()))
    mixed = tmp_path / "mixed.txt"
    mixed.write_text("".join(f"{name}\t{text}\n" for name, text in zip(names, texts, strict=True)), encoding="utf-8")
    scores = {}
    for name, file in (("right", graph / "entity2text.txt"), ("mixed", mixed)):
        values = {"triple_task": "link-prediction", "num_train_epochs": 30, "learning_rate": 3e-3}
        assert finetune(graph, tmp_path / name, **values, entity_text_file=file, save_strategy="no") == 0
        results = results_of(tmp_path / name)
        scores[name] = results["runs"][0]["test"]["tail_mrr"]
    print(scores)
    assert scores["right"] > scores["mixed"] + 0.15
