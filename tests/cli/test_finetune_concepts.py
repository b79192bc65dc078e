"""`hf-ptm-ext finetune --concepts`: a KT-NET on any BERT, that learns from concepts and answers by itself."""

import json
import random

import pytest
import torch
from transformers import AutoModelForQuestionAnswering, AutoTokenizer, BertConfig, BertForMaskedLM, pipeline

from hf_ptm_ext import DataCollatorForConcepts, ExtractiveQuestionAnsweringPipeline, KtNetForQuestionAnswering
from hf_ptm_ext.cli import main
from hf_ptm_ext.data import train_wordpiece
from hf_ptm_ext.hub import validate_model_card
from tests.cli.test_finetune_questions import RUN
from tests.pipelines.models import SHAPE

KINDS = {"city": ["bern", "rome", "oslo", "lima"], "metal": ["iron", "gold", "zinc", "lead"]}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """What is asked for is of a kind that the concepts alone tell: held-out words were never an answer."""
    folder = tmp_path_factory.mktemp("concepts")
    chance = random.Random(0)

    def row(cities, metals):
        kind, (city, metal) = chance.choice(list(KINDS)), (chance.choice(cities), chance.choice(metals))
        context = f"we saw {city} and {metal}" if chance.random() < 0.5 else f"we saw {metal} and {city}"
        answer = city if kind == "city" else metal
        answers = {"text": [answer], "answer_start": [context.index(answer)]}
        return {"question": f"which {kind} ?", "context": context, "answers": answers}

    train = [row(KINDS["city"][:2], KINDS["metal"][:2]) for _ in range(240)]
    test = [row(KINDS["city"][2:], KINDS["metal"][2:]) for _ in range(60)]
    for name, rows in (("train", train), ("test", test)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows), encoding="utf-8")
    words = "\n".join(f"{word}\tkind:{kind}\tkind:unknown" for kind, listed in KINDS.items() for word in listed)
    (folder / "words.tsv").write_text(f"{words}\ncity\tkind:city\nmetal\tkind:metal\n", encoding="utf-8")
    (folder / "vectors.txt").write_text(
        "kind:city 2 0 0 1\nkind:metal 0 2 1 0\nkind:other 0 0 1 1\n", encoding="utf-8"
    )
    tokenizer = train_wordpiece([[one["question"], one["context"]] for one in (*train, *test)], 200)
    tokenizer.model_max_length = 64
    torch.manual_seed(0)
    BertForMaskedLM(BertConfig(vocab_size=len(tokenizer), max_position_embeddings=64, **SHAPE)).save_pretrained(
        folder / "bert"
    )
    tokenizer.save_pretrained(folder / "bert")
    return folder


def finetune(data, output, model, **values):
    given = {**RUN, "max_seq_length": 32, "doc_stride": 8, "train_file": data / "train.jsonl", **values}
    given |= {"test_file": data / "test.jsonl", "output_dir": output, "model_name_or_path": model}
    words = [
        word
        for name, value in given.items()
        for word in (f"--{name}", *(str(one) for one in (value if isinstance(value, list) else [value])))
    ]
    return main(["finetune", *words])


def concepts_of(data):
    return {"concepts": f"wn={data / 'words.tsv'}", "concept_vectors": f"wn={data / 'vectors.txt'}"}


def results_of(output):
    return json.loads((output / "results.json").read_text(encoding="utf-8"))


def test_a_bert_becomes_a_kt_net_that_answers_with_its_concepts(data, tmp_path, caplog):
    one, two = tmp_path / "one", tmp_path / "two"
    options = concepts_of(data) | {"freeze_encoder": True, "baseline": False, "ema_decay": 0.9}
    assert finetune(data, one, data / "bert", **options) == 0
    # The second stage goes on with the first one's folder, which has concepts and tables.
    assert finetune(data, two, one, num_train_epochs=6, learning_rate=3e-3, ema_decay=0.9) == 0
    results = results_of(two)
    assert set(results["summary"]) == {"with concepts", "concepts=None"}
    assert results["knowledge"]["train"]["tokens_with_concepts"] > 0.2
    found = {name: scores["exact_match"]["mean"] for name, scores in results["summary"].items()}
    assert found["with concepts"] > found["concepts=None"] + 0.2, found
    validate_model_card(two)
    assert "average of weights" in (two / "README.md").read_text(encoding="utf-8")
    # The folder answers as the job predicted, with the concepts that lie in it.
    tokenizer = AutoTokenizer.from_pretrained(two)
    model = AutoModelForQuestionAnswering.from_pretrained(two)
    assert model.concepts["wn"]["bern"] == [1]
    assert not model.config.freeze_encoder
    classes = {"pipeline_class": ExtractiveQuestionAnsweringPipeline}
    ask = pipeline("extractive-question-answering", str(two), device="cpu", **classes)
    lines = [json.loads(line) for line in (data / "test.jsonl").read_text(encoding="utf-8").splitlines()]
    predicted = (two / "predictions_test.jsonl").read_text(encoding="utf-8").splitlines()
    for row, line in list(zip(lines, predicted, strict=True))[:20]:
        got = ask(question=row["question"], context=row["context"], max_answer_len=12, align_to_words=False)
        assert got["answer"] == json.loads(line)["prediction"]
    batch = DataCollatorForConcepts(tokenizer, model.concepts)([dict(tokenizer("which city ?"))])
    assert batch["concept_ids"][0, :, 0, 0].count_nonzero() >= 1
    (one / "concepts.json").unlink()
    assert finetune(data, tmp_path / "three", one, max_train_rows=16, layer_keep=1) == 0
    assert "is a KT-NET without the concepts of words" in caplog.text
    assert list(results_of(tmp_path / "three")["summary"]) == ["fine-tuned"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"concepts": "words.tsv"}, "`concepts` must be NAME=FILE"),
        ({"concept_vectors": "nell=vectors.txt"}, "must name the knowledge bases of `concepts`, wn, in their order"),
        ({"concepts": "wn=nothing.tsv"}, "names a file that does not exist"),
        ({"concepts": "wn=vectors.txt"}, "must be a word and its concepts, separated by tabs"),
        (
            {"task": "classification", "text_column": "context", "label_column": "question"},
            "`concepts` (KT-NET) serve question",
        ),
        ({"kg": "graph.spo"}, "exclude each other"),
    ],
)
def test_what_does_not_fit_is_refused(data, tmp_path, capsys, monkeypatch, change, message):
    monkeypatch.chdir(data)
    given = {"concepts": "wn=words.tsv", "concept_vectors": "wn=vectors.txt", **change}
    assert finetune(data, tmp_path / "out", data / "bert", **given) == 2
    assert message in capsys.readouterr().err


def test_a_kt_net_keeps_the_order_of_its_knowledge_bases(data, tmp_path, capsys):
    bases = {"wn": [4, 4], "nell": [4, 4]}
    KtNetForQuestionAnswering.from_encoder(str(data / "bert"), knowledge_bases=bases).save_pretrained(tmp_path / "kt")
    AutoTokenizer.from_pretrained(data / "bert").save_pretrained(tmp_path / "kt")
    files = {"concepts": "words.tsv", "concept_vectors": "vectors.txt"}
    given = {option: [f"{base}={data / file}" for base in ("nell", "wn")] for option, file in files.items()}
    assert finetune(data, tmp_path / "out", tmp_path / "kt", **given) == 2
    assert "in their order, wn, nell, got nell, wn" in capsys.readouterr().err
