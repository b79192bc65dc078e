"""`hf-ptm-ext finetune --task question-answering`: from passages to a folder that answers, with the evidence."""

import json
import random
import shutil

import pytest
import torch
from transformers import (
    AutoModelForQuestionAnswering,
    AutoTokenizer,
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BertForMaskedLM,
    pipeline,
)

from hf_ptm_ext import ExtractiveQuestionAnsweringPipeline
from hf_ptm_ext.cli import main
from hf_ptm_ext.cli.finetune import parse
from hf_ptm_ext.cli.tasks.question_answering import QuestionAnsweringTask, SpanLabels
from hf_ptm_ext.data import QuestionExample, read_question_examples, train_wordpiece
from hf_ptm_ext.hub import validate_model_card
from hf_ptm_ext.metrics import question_answering_scores
from tests.cli.jobs import recipes_of
from tests.hub.checkpoints import run_script
from tests.pipelines.models import SHAPE, random_model, xquad, xquad_tokenizer

RUN = {
    "task": "question-answering",
    "seeds": 0,
    "num_train_epochs": 1,
    "learning_rate": 1e-3,
    "max_seq_length": 96,
    "doc_stride": 32,
    "max_answer_length": 12,
    "per_device_train_batch_size": 8,
    "use_cpu": True,
    "disable_tqdm": True,
    "report_to": "none",
    "language": "en",
}


def finetune(output, model, train, test, **values):
    given = {
        "model_name_or_path": model,
        "train_file": train,
        "test_file": test,
        "output_dir": output,
        **RUN,
        **values,
    }
    words = []
    for name, value in given.items():
        words += [f"--{name}", *(str(item) for item in (value if isinstance(value, list) else [value]))]
    assert main(["finetune", *words]) == 0
    return json.loads((output / "results.json").read_text(encoding="utf-8"))


def lines_of(file):
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Short passages of who lives where: the answer is the place behind the name that is asked for."""
    folder = tmp_path_factory.mktemp("questions")
    names = ["anna", "ben", "carl", "dora", "emil", "fred", "gina", "hans"]
    places = ["bern", "rome", "oslo", "lima", "cairo", "paris"]
    rows, chance = [], random.Random(0)
    for _ in range(400):
        who, where = chance.sample(names, 2), chance.sample(places, 2)
        context = " . ".join(f"{a} lives in {b}" for a, b in zip(who, where, strict=True)) + " ."
        asked = chance.randrange(2)
        answers = {"text": [where[asked]], "answer_start": [context.index(where[asked])]}
        rows.append(
            {"id": "same", "question": f"where does {who[asked]} live ?", "context": context, "answers": answers}
        )
    for name, part in (("train", rows[:340]), ("test", rows[340:])):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part), encoding="utf-8")
    tokenizer = train_wordpiece([[row["question"], row["context"]] for row in rows], 120, model_max_length=128)
    torch.manual_seed(0)
    config = BertConfig(vocab_size=len(tokenizer), max_position_embeddings=128, num_labels=5, **SHAPE)
    BertForMaskedLM(config).save_pretrained(folder / "bert")  # five labels of another task
    tokenizer.save_pretrained(folder / "bert")
    return folder


USE = """
import json, sys
from transformers import pipeline
answer = pipeline(model={folder!r}, trust_remote_code=True, device="cpu")
examples = [json.loads(line) for line in open({file!r}, encoding="utf-8")]
found = answer([dict(question=one["question"], context=one["context"]) for one in examples], max_seq_len=96)
assert "hf_ptm_ext" not in sys.modules
print(json.dumps([one["answer"] for one in found]))
"""


def test_a_reader_is_trained_and_its_folder_answers_without_the_package(data, tmp_path):
    output = tmp_path / "out"
    results = finetune(output, data / "bert", data / "train.jsonl", data / "test.jsonl", seeds=[0, 1])
    assert results["simple_baseline"] == "word overlap"
    assert set(results["summary"]["fine-tuned"]) == {"exact_match", "f1"}
    assert results["labels"] == []
    validate_model_card(output)
    card = (output / "README.md").read_text(encoding="utf-8")
    assert "| word overlap |" in card
    assert 'pipeline(\n    "extractive-question-answering"' in card
    # The first seed's predictions are those of the folder, and give its score.
    rows, predictions = lines_of(data / "test.jsonl"), lines_of(output / "predictions_test.jsonl")
    assert [row["question"] for row in rows] == [one["question"] for one in predictions]
    for row, one in zip(rows, predictions, strict=True):
        assert row["context"][one["start"] : one["end"]] == one["prediction"] == one["n_best"][0]["text"]
    golds = [row["answers"]["text"] for row in rows]
    scores = question_answering_scores([one["prediction"] for one in predictions], golds)
    assert scores["f1"] == pytest.approx(results["runs"][0]["test"]["f1"])
    found = json.loads(run_script(USE.format(folder=str(output), file=str(data / "test.jsonl"))).splitlines()[-1])
    same = sum(one["prediction"] == other for one, other in zip(predictions, found, strict=True))
    assert same > 0.8 * len(rows)  # the pipeline gives whole words, the job the model's own spans
    assert AutoModelForQuestionAnswering.from_pretrained(output).config.num_labels == 2


def test_a_resumed_job_gives_the_very_same(data, tmp_path, monkeypatch):
    from hf_ptm_ext.trainers import ResumableTrainer

    files = data / "bert", data / "train.jsonl", data / "test.jsonl"
    options = {"num_train_epochs": 2, "save_strategy": "steps", "save_steps": 5, "gradient_accumulation_steps": 2}
    whole = finetune(tmp_path / "whole", *files, **options)
    step = ResumableTrainer.training_step
    seen = []

    def stopped(self, *args, **kwargs):
        seen.append(1)
        if len(seen) > 15:
            raise KeyboardInterrupt
        return step(self, *args, **kwargs)

    monkeypatch.setattr(ResumableTrainer, "training_step", stopped)
    values = {**RUN, **options, "model_name_or_path": files[0], "train_file": files[1], "test_file": files[2]}
    words = [word for name, value in values.items() for word in (f"--{name}", str(value))]
    assert main(["finetune", *words, "--output_dir", str(tmp_path / "part")]) == 130
    monkeypatch.undo()
    again = finetune(tmp_path / "part", *files, resume_from_checkpoint="auto", **options)
    assert again["runs"] == whole["runs"]
    assert (tmp_path / "part" / "model.safetensors").read_bytes() == (
        tmp_path / "whole" / "model.safetensors"
    ).read_bytes()
    shutil.rmtree(tmp_path / "part")


def test_chinese_is_scored_by_characters_and_long_passages_are_read_in_windows(tmp_path):
    rows = [row for row in xquad() if not row["question"].isascii()][:12]
    (tmp_path / "rows.jsonl").write_text(
        "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8"
    )
    tokenizer = xquad_tokenizer(padding_side="left")
    random_model(len(tokenizer)).save_pretrained(tmp_path / "bert")
    tokenizer.save_pretrained(tmp_path / "bert")
    file = tmp_path / "rows.jsonl"
    results = finetune(tmp_path / "out", tmp_path / "bert", file, file, language="zh", save_strategy="no")
    predictions = lines_of(tmp_path / "out" / "predictions_test.jsonl")
    scores = question_answering_scores(
        [one["prediction"] for one in predictions], [one["answers"] for one in predictions], "cmrc"
    )
    assert results["runs"][0]["test"] == pytest.approx(scores)
    assert 0 < results["majority"]["f1"] < 1


def test_questions_without_an_answer_are_learnt_and_scored(data, tmp_path):
    rows = lines_of(data / "train.jsonl")[:40]
    for row in rows[::2]:
        row["question"], row["answers"] = "where does zoe live ?", {"text": [], "answer_start": []}
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    file = tmp_path / "rows.jsonl"
    results = finetune(tmp_path / "out", data / "bert", file, file, num_train_epochs=8, save_strategy="no")
    scores = results["runs"][0]["test"]
    assert {"has_answer_f1", "no_answer_accuracy"} < set(scores)
    assert scores["no_answer_accuracy"] > 0.9  # told by one word
    predictions = lines_of(tmp_path / "out" / "predictions_test.jsonl")
    assert any(not one["prediction"] for one in predictions)
    # Half of the questions have none, which to say is more than copied words are worth.
    assert (results["simple_baseline"], results["majority"]["f1"]) == ("no answer", 0.5)
    assert all("null_score_diff" in one for one in predictions)


def test_the_validation_data_choose_when_to_answer(data, tmp_path):
    rows = lines_of(data / "train.jsonl")[:40]
    for row in rows[::3]:
        row["question"], row["answers"] = "where does zoe live ?", {"text": [], "answer_start": []}
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    given = {"train": tmp_path / "rows.jsonl", "test": tmp_path / "rows.jsonl", "save_strategy": "no"}
    given |= {"validation_file": tmp_path / "rows.jsonl", "best_null_threshold": True}
    scores = finetune(tmp_path / "out", data / "bert", **given)["runs"][0]["test"]
    found = lines_of(tmp_path / "out" / "predictions_test.jsonl")

    def f1(threshold):
        texts = [one["n_best"][0]["text"] if one["null_score_diff"] <= threshold else "" for one in found]
        return question_answering_scores(texts, [one["answers"] for one in found])["f1"]

    best = max(f1(one["null_score_diff"] + shift) for one in found for shift in (0, -1e-9))
    assert scores["f1"] == pytest.approx(best)
    assert scores["f1"] == pytest.approx(f1(scores["null_threshold"]))
    assert {one["null_threshold"] for one in found} == {scores["null_threshold"]}
    assert "| null_score_diff_threshold, from the validation data |" in (tmp_path / "out" / "README.md").read_text(
        "utf-8"
    )


def test_an_encoder_decoder_reads_too(data, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(data / "bert")
    config = BartConfig(
        vocab_size=len(tokenizer),
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        max_position_embeddings=128,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.cls_token_id,
        eos_token_id=tokenizer.sep_token_id,
        decoder_start_token_id=tokenizer.sep_token_id,
        forced_eos_token_id=tokenizer.sep_token_id,
    )
    BartForConditionalGeneration(config).save_pretrained(tmp_path / "bart")
    tokenizer.save_pretrained(tmp_path / "bart")
    file = data / "test.jsonl"
    finetune(tmp_path / "out", tmp_path / "bart", file, file, save_strategy="no")
    answer = pipeline(
        "extractive-question-answering",
        model=str(tmp_path / "out"),
        pipeline_class=ExtractiveQuestionAnsweringPipeline,
        device="cpu",
    )
    assert answer(question="where does anna live ?", context="anna lives in bern .")["answer"]


def test_knowledge_is_read_and_never_answered(data, tmp_path):
    (tmp_path / "places.spo").write_text("bern\tis\tlima\nrome\tis\tcairo\n", encoding="utf-8")
    file = data / "test.jsonl"
    options = {"kg": tmp_path / "places.spo", "save_strategy": "no"}
    results = finetune(tmp_path / "out", data / "bert", file, file, **options)
    assert [run["variant"] for run in results["runs"]] == ["with kg", "kg=None"]
    assert results["knowledge"]["test"]["branches_per_row"] > 0
    rows = lines_of(file)
    for row, one in zip(rows, lines_of(tmp_path / "out" / "predictions_test.jsonl"), strict=True):
        assert all(answer["text"] in row["context"] for answer in one["n_best"])
    found = json.loads(run_script(USE.format(folder=str(tmp_path / "out"), file=str(file))).splitlines()[-1])
    assert all(text in row["context"] for text, row in zip(found, rows, strict=True))


def test_windows_are_counted_as_one_update(data):
    """The loss of an update is the mean over its windows, however they fall into micro-batches."""
    tokenizer = AutoTokenizer.from_pretrained(data / "bert")
    model = AutoModelForQuestionAnswering.from_pretrained(data / "bert", num_labels=2).eval()
    _, args, *_ = parse(["--model_name_or_path", "m", "--train_file", "a", "--test_file", "b", *task_flags()])
    examples = list(read_question_examples(data / "train.jsonl"))[:6]
    task = QuestionAnsweringTask.of(examples, args)
    rows = task.encode(task.prepare(examples), tokenizer, 96).inputs
    collate = SpanLabels(tokenizer)

    def loss(part, count=None):
        batch = collate(part)
        labels = batch.pop("labels")
        return task.loss(model(**batch), labels, count)

    with torch.no_grad():
        whole = loss(rows)
        parts = loss(rows[:1], 2 * len(rows)) + loss(rows[1:], 2 * len(rows))
        positions = {name: torch.tensor([row[name] for row in rows]) for name in ("start_positions", "end_positions")}
        inputs = collate(rows)
        inputs.pop("labels")
        upstream = model(**inputs, **positions).loss
    assert whole.item() == pytest.approx(parts.item(), rel=1e-5)
    assert whole.item() == pytest.approx(upstream.item(), rel=1e-5)


def task_flags():
    return [word for name, value in RUN.items() if name != "seeds" for word in (f"--{name}", str(value))]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--answer_metric", "bleu"], "`answer_metric` must be one of auto, squad, cmrc"),
        (["--best_null_threshold", "true"], "needs `validation_file`"),
        (["--max_answer_length", "0"], "`max_answer_length` must be at least 1"),
        (["--task", "reading"], "`task` must be one of classification, tagging, question-answering, extraction"),
    ],
)
def test_wrong_arguments_are_named(flags, message):
    with pytest.raises(ValueError, match=message):
        parse(["--model_name_or_path", "m", "--train_file", "a", "--test_file", "b", *task_flags(), *flags])


def test_training_data_needs_an_answer():
    example = QuestionExample("1", "who ?", "nobody", ())
    _, args, *_ = parse(["--model_name_or_path", "m", "--train_file", "a", "--test_file", "b", *task_flags()])
    with pytest.raises(ValueError, match="at least one question with an answer"):
        QuestionAnsweringTask.of([example], args)


def test_recipes_are_those_of_their_data():
    recipes = recipes_of("finetune")
    for name, language, scoring in (("question_answering", "en", "squad"), ("question_answering_zh", "zh", "cmrc")):
        _, args, _, training = parse([f"{name}.yaml", *recipes[f"{name}.yaml"]])
        assert (args.task, args.language, len(training.seeds)) == ("question-answering", language, 3)
        examples = [QuestionExample("1", "q", "an answer", (("answer", 3),))]
        assert QuestionAnsweringTask.of(examples, args).scoring == scoring


@pytest.mark.slow
def test_the_reader_learns_to_copy_the_answer(data, tmp_path):
    """Real learning: the place behind the asked name, in passages that name two; the baseline cannot tell them."""
    values = {"num_train_epochs": 60, "learning_rate": 2e-3, "save_strategy": "no", "warmup_steps": 0.1}
    results = finetune(tmp_path / "out", data / "bert", data / "train.jsonl", data / "test.jsonl", **values)
    assert results["summary"]["fine-tuned"]["f1"]["mean"] > results["majority"]["f1"] + 0.2
