"""`hf-ptm-ext finetune`: from labelled texts and tagged words to a folder that loads, with the evidence by seeds."""

import json
import random
import sys
from pathlib import Path

import pytest
import torch
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    DistilBertConfig,
    DistilBertModel,
    PreTrainedTokenizerFast,
    pipeline,
)

from hf_ptm_ext.cli import main
from hf_ptm_ext.cli.finetune import parse
from hf_ptm_ext.cli.tasks import TASKS, ClassificationTask, TaggingTask
from hf_ptm_ext.data import LabelledText, TaggedWords, spans_of, tags_of, train_wordpiece
from hf_ptm_ext.hub import validate_model_card
from hf_ptm_ext.metrics import entity_scores
from hf_ptm_ext.objectives.token_losses import update_loss
from hf_ptm_ext.trainers import ResumableTrainer
from tests.cli.jobs import recipes_of, run_process
from tests.hub.loopback_hub import running

FIXTURES = Path(__file__).parents[1] / "fixtures"
SHAPE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
RUN = {
    "seeds": [0, 1],
    "num_train_epochs": 4,
    "learning_rate": 5e-3,
    "max_seq_length": 64,
    "per_device_train_batch_size": 16,
    "use_cpu": True,
    "disable_tqdm": True,
    "report_to": "none",
    "language": "en",
}


def words_of(**values):
    words = []
    for name, value in values.items():
        words += [f"--{name}", *(str(item) for item in (value if isinstance(value, list) else [value]))]
    return words


def finetune(output, model, train, test, **values):
    given = {"model_name_or_path": model, "train_file": train, "test_file": test, "output_dir": output}
    assert main(["finetune", *words_of(**{**given, **RUN, **values})]) == 0
    return results_of(output)


def results_of(folder):
    return json.loads((Path(folder) / "results.json").read_text(encoding="utf-8"))


def save_bert(folder, texts, **config):
    tokenizer = train_wordpiece([texts], 1500, model_max_length=128)
    torch.manual_seed(0)
    BertForMaskedLM(BertConfig(vocab_size=len(tokenizer), max_position_embeddings=128, **SHAPE)).save_pretrained(
        folder
    )
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Sentences with one typed mention each: as classes of the mention, and as tags in IOB1."""
    folder = tmp_path_factory.mktemp("data")
    lines = (FIXTURES / "wikidata" / "typing.jsonl").read_text(encoding="utf-8").splitlines()
    kinds: dict[str, list] = {"person": [], "sport": []}
    for row in map(json.loads, lines):
        kinds.setdefault(row["coarse"][0], []).append(row)
    rows = [row for pair in zip(kinds["person"], kinds["sport"], strict=False) for row in pair]
    texts, tagged = ["text\tmention\tlabel\n"], []
    for row in rows:
        first, behind = row["pos"]
        mention = " ".join(row["tokens"][first:behind])
        texts.append(f"{' '.join(row['tokens'])}\t{mention}\t{row['coarse'][0]}\n")
        tags = tags_of([(row["coarse"][0], first, behind)], len(row["tokens"]), "iob1")
        tagged.append("".join(f"{word} {tag}\n" for word, tag in zip(row["tokens"], tags, strict=True)))
    (folder / "texts.tsv").write_text("".join(texts), encoding="utf-8")
    (folder / "tagged.conll").write_text("\n".join(tagged), encoding="utf-8")
    save_bert(folder / "bert", [" ".join(row["tokens"]) for row in rows])
    return folder


def test_a_classifier_is_trained_and_the_folder_is_complete(data, tmp_path, capsys):
    file = data / "texts.tsv"
    results = finetune(tmp_path / "out", data / "bert", file, file, task="classification", pair_column="mention")
    printed = capsys.readouterr().out
    assert "majority" in printed
    assert "matthews_correlation" in printed
    scores = results["summary"]["fine-tuned"]
    assert scores["accuracy"]["mean"] > results["majority"]["accuracy"] + 0.1
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert f"{100 * scores['accuracy']['mean']:.1f} ± {100 * scores['accuracy']['std']:.1f}" in card
    validate_model_card(tmp_path / "out")
    # What was saved is the model of the first seed: it gives that run's accuracy again.
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out").eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    rows = [line.split("\t") for line in file.read_text(encoding="utf-8").splitlines()[1:]]
    texts, mentions, labels = zip(*rows, strict=True)
    batch = tokenizer(list(texts), list(mentions), padding=True, truncation=True, max_length=64, return_tensors="pt")
    with torch.no_grad():
        predicted = model(**batch).logits.argmax(-1).tolist()
    right = [model.config.id2label[one] == label for one, label in zip(predicted, labels, strict=True)]
    assert sum(right) / len(right) == pytest.approx(results["runs"][0]["test"]["accuracy"])


def test_a_part_of_the_layers_is_trained_with_layer_drop(data, tmp_path, capsys):
    file = data / "texts.tsv"
    values = {"task": "classification", "layer_keep": "every-other", "layer_drop": 0.2, "max_steps": 2, "seeds": 0}
    finetune(tmp_path / "out", data / "bert", file, file, **values)
    loaded, info = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert (loaded.config.num_hidden_layers, info["missing_keys"]) == (1, set())
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "layers kept" in card
    assert "LayerDrop" in card
    words = {**RUN, "model_name_or_path": data / "bert", "train_file": file, "test_file": file, "layer_keep": "0,7"}
    words |= {"task": "classification", "output_dir": tmp_path / "other"}
    assert main(["finetune", *words_of(**words)]) == 2
    assert "rising numbers from 0 to 1, got [0, 7]" in capsys.readouterr().err


def test_a_tagger_is_trained_and_its_pipeline_finds_the_entities(data, tmp_path):
    file = data / "tagged.conll"
    values = {"task": "tagging", "num_train_epochs": 25, "learning_rate": 2e-3, "per_device_train_batch_size": 8}
    values |= {"seeds": 0, "parity_metric": "kbert", "save_strategy": "no"}
    results = finetune(tmp_path / "out", data / "bert", file, file, **values)
    assert results["labels"] == ["O", "B-person", "I-person", "B-sport", "I-sport"]  # IOB1 became IOB2
    scores = results["runs"][0]["test"]
    assert scores["f1"] > results["majority"]["f1"] + 0.05
    assert scores["kbert_f1"] >= scores["f1"]  # without types more is right
    assert "most frequent tag of the word" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    tagger = pipeline("token-classification", str(tmp_path / "out"), aggregation_strategy="simple", device="cpu")
    sentences = [block.splitlines() for block in file.read_text(encoding="utf-8").split("\n\n")]
    found, true = [], []
    for lines in sentences[:40]:
        words, tags = zip(*(line.split(" ") for line in lines), strict=True)
        starts = {sum(len(word) + 1 for word in words[:number]): number for number in range(len(words))}
        true.append([(kind, first) for kind, first, _ in spans_of(tags, "iob1")])
        found.append([(one["entity_group"], starts.get(one["start"])) for one in tagger(" ".join(words))])
    hits = sum(len(set(a) & set(b)) for a, b in zip(found, true, strict=True))
    assert hits > 0.5 * sum(map(len, true))


def test_the_best_validation_epoch_is_kept(data, tmp_path):
    file = data / "texts.tsv"
    values = {"eval_strategy": "epoch", "load_best_model_at_end": True, "metric_for_best_model": "accuracy"}
    values |= {"validation_file": file, "task": "classification", "seeds": 0, "learning_rate": 2e-2}
    results = finetune(tmp_path / "out", data / "bert", file, file, **values)
    run = results["runs"][0]
    assert run["validation"] == run["test"]
    assert run["validation"]["accuracy"] >= results["majority"]["accuracy"]
    assert not list((tmp_path / "out" / "_runs").glob("seed*/"))


class Interrupted(Exception):
    """Stands for the end of a machine."""


@pytest.mark.parametrize(
    "place",
    ["in training", *(pytest.param(place, marks=pytest.mark.slow) for place in ("in the evaluation", "between runs"))],
)
def test_an_interrupted_job_goes_on_to_the_same_results(data, tmp_path, monkeypatch, place):
    """Two seeds; the second one is interrupted after an epoch, behind its last one, or the job before it."""
    file = data / "texts.tsv"
    values = {"task": "classification", "max_train_rows": 64, "num_train_epochs": 2, "seeds": [0, 1]}
    whole = finetune(tmp_path / "whole", data / "bert", file, file, **values)

    method = {"in training": "training_step", "in the evaluation": "predict", "between runs": "train"}[place]
    calls = {"in training": 14, "in the evaluation": 2, "between runs": 2}[place]  # 4 updates an epoch, 2 epochs a run
    original, count = getattr(ResumableTrainer, method), []

    def interrupted(self, *args, **kwargs):
        count.append(None)
        if len(count) == calls:
            raise Interrupted
        return original(self, *args, **kwargs)

    monkeypatch.setattr(ResumableTrainer, method, interrupted)
    with pytest.raises(Interrupted):
        finetune(tmp_path / "parts", data / "bert", file, file, **values)
    monkeypatch.setattr(ResumableTrainer, method, original)
    resumed = finetune(tmp_path / "parts", data / "bert", file, file, resume_from_checkpoint="auto", **values)
    assert resumed == whole
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "parts")]
    assert weights[0] == weights[1]


def test_seeds_are_added_and_other_jobs_refused(data, tmp_path, capsys, monkeypatch):
    file = data / "texts.tsv"
    values = {"task": "classification", "max_train_rows": 32, "num_train_epochs": 1, "save_strategy": "no"}
    finetune(tmp_path / "out", data / "bert", file, file, **{**values, "seeds": 0})
    trained = []
    original = ResumableTrainer.train
    monkeypatch.setattr(
        ResumableTrainer, "train", lambda self, **kwargs: trained.append(self.args.seed) or original(self, **kwargs)
    )
    more = finetune(
        tmp_path / "out",
        data / "bert",
        file,
        file,
        seeds=[0, 5],
        resume_from_checkpoint="auto",
        **values,
    )
    assert trained == [5]
    assert [run["seed"] for run in more["runs"]] == [0, 5]
    words = words_of(
        **{
            **RUN,
            **values,
            "learning_rate": 1e-4,
            "output_dir": tmp_path / "out",
            "train_file": file,
            "test_file": file,
        },
        model_name_or_path=data / "bert",
    )
    assert main(["finetune", *words]) == 2
    assert "is not empty. Pass --resume_from_checkpoint auto" in capsys.readouterr().err
    assert main(["finetune", *words, "--resume_from_checkpoint", "auto"]) == 2
    assert "runs of another job" in (error := capsys.readouterr().err)
    assert "learning_rate = 0.0001 (was 0.005)" in error


def test_an_encoder_without_token_types_is_trained_too(data, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(data / "bert")
    config = DistilBertConfig(vocab_size=len(tokenizer), dim=32, n_layers=1, n_heads=2, hidden_dim=64)
    DistilBertModel(config).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    file = data / "tagged.conll"
    values = {"task": "tagging", "num_train_epochs": 1, "seeds": 0, "max_train_rows": 16}
    finetune(tmp_path / "out", tmp_path / "model", file, file, **values)
    assert AutoModelForTokenClassification.from_pretrained(tmp_path / "out").config.model_type == "distilbert"


def test_a_family_of_this_package_is_trained_too(data, tmp_path):
    from hf_ptm_ext import SpanBertConfig, SpanBertForPreTraining

    tokenizer = AutoTokenizer.from_pretrained(data / "bert")
    SpanBertForPreTraining(SpanBertConfig(vocab_size=len(tokenizer), **SHAPE)).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    file = data / "texts.tsv"
    values = {"task": "classification", "num_train_epochs": 1, "seeds": 0, "max_train_rows": 16}
    finetune(tmp_path / "out", tmp_path / "model", file, file, **values)
    config = AutoConfig.from_pretrained(tmp_path / "out")
    assert config.model_type == "spanbert"
    assert "AutoModelForTokenClassification" in config.auto_map
    assert "Code files in this repository" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_job_pushes_model_card_and_results_in_one_commit(data, tmp_path):
    file, folder = data / "texts.tsv", tmp_path / "reviews"
    values = {**RUN, "task": "classification", "seeds": 0, "num_train_epochs": 1, "max_train_rows": 16}
    values |= {"model_name_or_path": data / "bert", "train_file": file, "test_file": file, "output_dir": folder}
    values |= {"push_to_hub": True, "hub_model_id": "tester/reviews"}
    with running() as hub:
        words = (sys.executable, "-m", "hf_ptm_ext", "finetune", *words_of(**values))
        run_process(*words, **hub.environment(tmp_path / "home"))
        files = hub.files("tester/reviews")
        assert not [line for line in hub.state.log if line.startswith("UNHANDLED")]
    assert {"config.json", "model.safetensors", "tokenizer.json", "README.md", "results.json"} <= set(files)
    assert not [name for name in files if name.startswith("_")]
    assert 'from_pretrained("tester/reviews"' in files["README.md"].decode("utf-8")


# ---- rows ----


def test_the_first_piece_of_a_word_has_its_label(data):
    tokenizer = AutoTokenizer.from_pretrained(data / "bert")
    example = TaggedWords(("unhappiness", "\u3000", "in", "Rome"), ("O", "O", "O", "B-LOC"))
    task = TaggingTask(("O", "B-LOC", "I-LOC"), "iob2")
    rows = task.encode([example], tokenizer, 32)
    row, (places,) = rows.inputs[0], rows.places
    tokens = tokenizer.convert_ids_to_tokens(row["input_ids"])
    assert places[0] == 1
    assert places[1] is None  # white space has no token
    assert tokens[places[2]] == "in"
    assert [label for label in row["labels"] if label != -100] == [0, 0, 1]
    assert row["labels"][places[3]] == 1
    # Words that were cut off count as untagged.
    cut = task.encode([example], tokenizer, places[3] + 1)
    scores = task.scores(torch.ones(1, 32, dtype=torch.long).numpy(), [example], cut)
    assert cut.places[0][3] is None
    assert scores["recall"] == 0.0


def test_byte_level_pieces_of_words_are_those_of_the_text():
    special = {"unk_token": "<unk>", "pad_token": "<pad>", "mask_token": "<mask>"}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(FIXTURES / "byte_bpe.json"), add_prefix_space=True, **special
    )
    example = TaggedWords(("The", "model"), ("O", "B-X"))
    rows = TaggingTask(("O", "B-X", "I-X"), "iob2").encode([example], tokenizer, 32)
    assert [label for label in rows.inputs[0]["labels"] if label != -100] == [0, 1]


def test_answers_are_ranked_by_question():
    examples = [LabelledText("q", label, "a", group) for label, group in (("0", "1"), ("1", "1"), ("1", "2"))]
    task = ClassificationTask(("0", "1"), groups=True)
    logits = torch.tensor([[0.0, 3.0], [0.0, 2.0], [1.0, 0.0]]).numpy()
    assert task.shown[0] == "mrr"
    assert task.scores(logits, examples, None)["mrr"] == pytest.approx((1 / 2 + 1) / 2)


def test_numbers_are_ordered_as_numbers():
    class Columns:
        group_column = None

    examples = [LabelledText("a", label) for label in ("10", "9", "2")]
    assert ClassificationTask.of(examples, Columns()).labels == ("2", "9", "10")


def test_tags_that_no_training_sentence_has_are_missed_and_not_forgotten():
    task = TaggingTask(("O", "B-X", "I-X"), "iob2")
    examples = [TaggedWords(("a", "b"), ("B-X", "B-Y"))]
    scores = task.scores_of_tags([["B-X", "O"]], examples)
    assert (scores["precision"], scores["recall"]) == (1.0, 0.5)
    assert scores["f1"] == entity_scores([[("X", 0, 1)]], [[("X", 0, 1), ("Y", 1, 2)]])["f1"]


def test_the_loss_of_an_update_does_not_depend_on_its_parts():
    torch.manual_seed(0)
    logits, labels = torch.randn(4, 6, 3), torch.randint(0, 3, (4, 6))
    labels[0, 2:] = -100
    count = (labels != -100).sum()
    parts = [update_loss({"logits": logits[i : i + 1]}, labels[i : i + 1], count) for i in range(4)]
    assert torch.allclose(sum(parts), update_loss({"logits": logits}, labels))


# ---- mistakes ----

NEEDED = ["--model_name_or_path", "m", "--train_file", "t", "--test_file", "t", "--task", "tagging"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--task", "translation"], "`task` must be one of classification, tagging"),
        (["--tag_scheme", "bilou"], "`tag_scheme` must be one of auto, iob2, iob1, bioes, plain"),
        (["--parity_metric", "conll"], "`parity_metric` must be one of kbert"),
        (["--dataset_name", "d"], "`train_file` or `dataset_name`; got both"),
        (["--max_seq_length", "3"], "`max_seq_length` must be at least 8"),
        (["--max_entities", "0"], "`max_entities` must be at least 1"),
        (["--kg", "g.spo", "--pooling", "men"], "`pooling` must be one of first, mean, max, last"),
        (["--pooling", "mean"], "`pooling` needs `kg`"),
        (["--use_predicate", "true"], "`use_predicate` needs `kg`"),
        (["--eval_strategy", "epoch"], "needs `validation_file`"),
        (["--seeds", "1", "1"], "`seeds` must be different numbers"),
        (["--resume_from_checkpoint", "checkpoint-5"], "`resume_from_checkpoint` must be auto"),
    ],
)
def test_arguments_are_checked(flags, message):
    with pytest.raises(ValueError, match=message):
        parse([*NEEDED, *flags])


def test_nothing_to_measure_is_refused():
    with pytest.raises(ValueError, match="without it nothing is measured"):
        parse(["--model_name_or_path", "m", "--train_file", "t", "--task", "tagging"])


@pytest.mark.parametrize(
    ("task", "text", "message"),
    [
        ("classification", "text\tlabel\nx\t1\ny\t1\n", "must have at least two labels, got ['1']"),
        ("classification", "text\tlabel\n", "`train_file` or `train_split` has no example"),
        ("tagging", "tokens\ttags\na\tO\n", "must have at least two tags, got ['O']"),
        ("tagging", "tokens\ttags\na b\tB-X NN\n", "must all mark spans"),
        ("tagging", "tokens\ttags\na b\tB-X\n", "got 2 words and 1 tags"),
    ],
)
def test_bad_data_are_refused_before_anything_is_loaded(tmp_path, capsys, task, text, message):
    file = tmp_path / "x.tsv"
    file.write_text(text, encoding="utf-8")
    words = ["--model_name_or_path", "nowhere", "--train_file", str(file), "--test_file", str(file), "--task", task]
    assert main(["finetune", *words, "--output_dir", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_recipes_parse():
    recipes = recipes_of("finetune")
    assert {"kbert_classification.yaml", "kbert_ner.yaml", "kbert_ner_en.yaml", "bert_classification.yaml"} <= set(
        recipes
    )
    for name, flags in recipes.items():
        _, data, knowledge, training = parse([name, *flags])
        assert len(training.seeds) == 3, name
        assert data.task in TASKS
        if name.startswith("kbert"):  # the published settings
            assert (training.learning_rate, training.warmup_steps, knowledge.max_entities) == (2e-5, 0.1, 2)
            assert training.load_best_model_at_end
            assert training.per_device_train_batch_size == (32 if data.task == "classification" else 16)


# ---- knowledge ----


@pytest.fixture(scope="module")
def cities(tmp_path_factory):
    """Names that only a graph tells apart: those of the test are in no training text."""
    folder = tmp_path_factory.mktemp("cities")
    syllables = [first + second for first in "bdgklmnprst" for second in "aeiou"]
    names = [(a + b + "r").capitalize() for a in syllables[::3] for b in syllables[1::4]][:160]
    kinds = random.Random(0).choices(["river", "king"], k=len(names))  # nothing in a name tells
    triples = "".join(f"{name}\tis a\t{kind}\n" for name, kind in zip(names, kinds, strict=True))
    (folder / "names.spo").write_text(triples, encoding="utf-8")
    for split, part in (("train", slice(0, 120)), ("test", slice(120, 160))):
        texts, tagged = ["label\ttext\n"], []
        for name, kind in zip(names[part], kinds[part], strict=True):
            texts.append(f"{kind}\twe saw {name} today\n")
            tagged.append(json.dumps({"tokens": ["we", "saw", name, "today"], "tags": ["O", "O", f"B-{kind}", "O"]}))
        (folder / f"{split}.tsv").write_text("".join(texts), encoding="utf-8")
        (folder / f"{split}.jsonl").write_text("\n".join(tagged) + "\n", encoding="utf-8")
    save_bert(folder / "bert", ["we saw the river today", "the king is a king", *names[:40]])
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "ending", "score"), [("classification", "tsv", "accuracy"), ("tagging", "jsonl", "f1")]
)
def test_knowledge_tells_names_apart_that_training_never_saw(cities, tmp_path, task, ending, score):
    files = [cities / f"{split}.{ending}" for split in ("train", "test")]
    values = {"task": task, "kg": cities / "names.spo", "seeds": 0, "num_train_epochs": 20, "learning_rate": 2e-3}
    values |= {"save_strategy": "no", "max_seq_length": 32, "per_device_train_batch_size": 8}
    results = finetune(tmp_path / "out", cities / "bert", *files, **values)
    means = {variant: scores[score]["mean"] for variant, scores in results["summary"].items()}
    assert list(means) == ["with kg", "kg=None"]
    assert means["with kg"] > 0.9
    assert means["kg=None"] < 0.8
    assert results["knowledge"]["test"]["rows_with_knowledge"] == 1.0
    # The folder is a K-BERT with its graph: loaded again, it knows what the graph knows.
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "| kg=None |" in card
    assert "names.spo" in card
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    auto = AutoModelForSequenceClassification if task == "classification" else AutoModelForTokenClassification
    model = auto.from_pretrained(tmp_path / "out").eval()
    name, _, kind = (cities / "names.spo").read_text(encoding="utf-8").splitlines()[-1].split("\t")
    with torch.no_grad():
        inputs = tokenizer(f"we saw {name} today", return_tensors="pt")
        logits = model(**inputs).logits
        plain = model(**tokenizer(f"we saw {name} today", kg=None, return_tensors="pt")).logits
    labels = [model.config.id2label[number] for number in logits.argmax(-1).flatten().tolist()]
    assert kind in labels or f"B-{kind}" in labels
    assert logits.shape != plain.shape or not torch.allclose(logits, plain)


def test_a_checkpoint_with_a_graph_brings_its_knowledge_along(cities, tmp_path):
    files = [cities / f"{split}.tsv" for split in ("train", "test")]
    values = {"task": "classification", "seeds": 0, "num_train_epochs": 1, "max_train_rows": 16, "save_strategy": "no"}
    finetune(tmp_path / "first", cities / "bert", *files, kg=cities / "names.spo", baseline=False, **values)
    again = finetune(tmp_path / "again", tmp_path / "first", *files, **values)
    assert list(again["summary"]) == ["with kg", "kg=None"]
    assert (tmp_path / "again" / "knowledge_graph.safetensors").is_file()


def test_knowledge_that_fits_nothing_is_refused(cities, data, tmp_path, capsys):
    files = [cities / f"{split}.tsv" for split in ("train", "test")]
    other = tmp_path / "other.spo"
    other.write_text("Xyzzy\tis a\triver\n", encoding="utf-8")
    words = words_of(
        task="classification", train_file=files[0], test_file=files[1], output_dir=tmp_path / "out", use_cpu=True
    )
    assert main(["finetune", *words, *words_of(model_name_or_path=cities / "bert", kg=other)]) == 2
    assert "has no word of the training data" in capsys.readouterr().err
    config = DistilBertConfig(vocab_size=100, dim=32, n_layers=1, n_heads=2, hidden_dim=64)
    DistilBertModel(config).save_pretrained(tmp_path / "distilbert")
    assert main(["finetune", *words, *words_of(model_name_or_path=tmp_path / "distilbert", kg=other)]) == 2
    assert "`kg` needs a checkpoint that reads as a K-BERT (bert, kbert), got a distilbert" in capsys.readouterr().err
