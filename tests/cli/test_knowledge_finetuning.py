"""The fine-tuning jobs of knowledge models on real sentences: what they learn, write and refuse."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForSequenceClassification,
    AutoProcessor,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
)

from hf_ptm_ext import EntityTable, ErnieThuConfig, ErnieThuForPreTraining, ErnieThuProcessor
from hf_ptm_ext.cli import main
from hf_ptm_ext.cli.finetune_relations import parse
from hf_ptm_ext.cli.tasks import RelationTask, TypingTask
from hf_ptm_ext.data import read_relation_examples, read_typing_examples, train_wordpiece
from hf_ptm_ext.files import resource
from hf_ptm_ext.hub.model_card import validate_model_card

FIXTURES = Path(__file__).parents[1] / "fixtures" / "wikidata"
FAST = ["--max_seq_length", "64", "--use_cpu", "true", "--disable_tqdm", "true", "--report_to", "none"]


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    """A BERT of two layers and width 32 with a vocabulary of the sentences and the markers.

    Its weights are larger than BERT's: at so small a width, 0.02 lets hardly anything through attention.
    """
    folder = tmp_path_factory.mktemp("bert")
    examples = read_relation_examples(FIXTURES / "relations.jsonl")
    examples += read_typing_examples(FIXTURES / "typing.jsonl")
    tokenizer = train_wordpiece([[f"{one.text} # $ 。" for one in examples]], 800, model_max_length=128)
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    model = BertForMaskedLM(
        BertConfig(vocab_size=len(tokenizer), max_position_embeddings=128, initializer_range=0.15, **shape)
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def run(command, recipe, bert, output, name, *more):
    file = str(FIXTURES / f"{name}.jsonl")
    words = [command, recipe, "--model_name_or_path", str(bert), "--train_file", file, "--test_file", file]
    return main([*words, "--output_dir", str(output), *FAST, *more])


def test_relations_are_learnt_and_the_folder_is_complete(bert, tmp_path, capsys):
    options = ["--num_train_epochs", "10", "--learning_rate", "3e-3", "--seeds", "0", "1", "--language", "en"]
    # Upstream then draws evaluation rows in another order too; scores must not notice.
    options += ["--train_sampling_strategy", "group_by_length"]
    assert run("finetune-relations", "relations.yaml", bert, tmp_path / "out", "relations", *options) == 0
    printed = capsys.readouterr().out
    assert "majority" in printed
    assert "entities=None" in printed
    results = json.loads((tmp_path / "out" / "results.json").read_text(encoding="utf-8"))
    scores = results["summary"]["entities=None"]["accuracy"]
    assert scores["mean"] > results["majority"]["accuracy"] + 0.1
    assert [run["seed"] for run in results["runs"]] == [0, 1]
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert f"{100 * scores['mean']:.1f} ± {100 * scores['std']:.1f}" in card
    validate_model_card(tmp_path / "out")

    # What was saved is the model of the first seed: it gives that run's accuracy again.
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out").eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    examples = read_relation_examples(FIXTURES / "relations.jsonl")
    texts = [RelationTask(()).text_of(one) for one in examples]
    batch = tokenizer(texts, padding=True, truncation=True, max_length=64, return_tensors="pt")
    with torch.no_grad():
        predicted = model(**batch).logits.argmax(-1).tolist()
    right = [model.config.id2label[label] == one.label for label, one in zip(predicted, examples, strict=True)]
    assert sum(right) / len(right) == pytest.approx(results["runs"][0]["test"]["accuracy"])


def test_types_run_and_a_full_folder_is_refused(bert, tmp_path, capsys):
    options = ["--num_train_epochs", "1", "--seeds", "0", "--max_train_rows", "64"]
    assert run("finetune-typing", "typing.yaml", bert, tmp_path / "out", "typing", *options) == 0
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    assert model.config.problem_type == "multi_label_classification"
    assert run("finetune-typing", "typing.yaml", bert, tmp_path / "out", "typing", *options) == 2
    assert "--overwrite true" in capsys.readouterr().err


def test_markers_that_the_vocabulary_lacks_are_added(tmp_path, capsys):
    """A vocabulary trained on English has no ideographic full stop; the saved model and tokenizer know it."""
    examples = read_typing_examples(FIXTURES / "typing.jsonl")
    tokenizer = train_wordpiece([[one.text for one in examples]], 300, model_max_length=128)
    assert tokenizer.tokenize("。") == ["[UNK]"]
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    config = ErnieThuConfig(vocab_size=len(tokenizer), entity_hidden_size=8, entity_num_attention_heads=2, **shape)
    ErnieThuForPreTraining(config).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    options = ["--num_train_epochs", "1", "--seeds", "0", "--max_train_rows", "32"]
    assert run("finetune-typing", "typing.yaml", tmp_path / "model", tmp_path / "out", "typing", *options) == 0
    loaded = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert loaded.tokenize("a 。 b。") == ["a", "。", "b", "。"]
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    assert model.config.vocab_size == len(loaded) == len(tokenizer) + 1


def test_a_table_of_other_entities_is_refused(bert, tmp_path, capsys):
    triples = FIXTURES.parent / "wordnet" / "triples.tsv"
    assert main(["train-entity-vectors", str(triples), "--epochs", "1", "--output_dir", str(tmp_path / "table")]) == 0
    table = ["--entity_table", str(tmp_path / "table" / "entity_table.safetensors")]
    assert run("finetune-relations", "relations.yaml", bert, tmp_path / "out", "relations", *table) == 2
    assert "has none of the" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--seeds", "1", "1"], "`seeds` must be different numbers"),
        (["--test_file"], None),
        (["--max_seq_length", "3"], "`max_seq_length` must be at least 8"),
    ],
)
def test_arguments_are_checked(flags, message):
    needed = ["--model_name_or_path", "m", "--train_file", "t"]
    if message is None:
        with pytest.raises(ValueError, match="`validation_file` or `test_file` must be named"):
            parse(needed, "finetune-relations")
        return
    with pytest.raises(ValueError, match=message):
        parse([*needed, "--test_file", "t", *flags], "finetune-relations")


@pytest.mark.parametrize("name", ["relations.yaml", "typing.yaml"])
def test_recipes_parse(name):
    assert resource("configs", name).is_file()
    _, _, training = parse([name, "--model_name_or_path", "m", "--train_file", "t", "--test_file", "t"], "finetune")
    assert training.seeds == [0, 1, 2]
    assert training.learning_rate == 2e-5


def test_scores_are_those_of_the_labels():
    assert RelationTask(("P17", "P361")).shown == ("accuracy", "macro_f1")
    assert RelationTask(("A(e1,e2)", "Other")).shown == ("accuracy", "macro_f1", "semeval_f1")
    assert RelationTask(("NA", "P17")).shown == ("accuracy", "macro_f1", "micro_f1")


def test_types_that_training_never_saw_are_missed_and_not_forgotten():
    (example, *_) = read_typing_examples(FIXTURES / "typing.jsonl")
    unseen = [type(example)(example.text, example.mention, ("person", "of another world"))]
    scores = TypingTask(("location", "person")).scores(torch.tensor([[-1.0, 1.0]]).numpy(), unseen)
    assert scores["accuracy"] == 0.0
    assert scores["micro_recall"] == 0.5


# ---- ERNIE-THU ----


@pytest.fixture(scope="module")
def ernie(bert, tmp_path_factory):
    """The same BERT as an ERNIE-THU whose vectors have 16 numbers."""
    folder = tmp_path_factory.mktemp("ernie")
    model = ErnieThuForPreTraining.from_pretrained(bert, entity_hidden_size=16, fusion_layer_types=["mix", "norm"])
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(bert).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def telling_table(tmp_path_factory):
    """Vectors that give an entity's relation away, in place of a knowledge graph's that hint at it."""
    path = tmp_path_factory.mktemp("table") / "entity_table.safetensors"
    examples = read_relation_examples(FIXTURES / "relations.jsonl")
    labels = sorted({one.label for one in examples})
    vectors = {}
    for one in examples:
        vectors.setdefault(one.tail.id, np.zeros(16, dtype=np.float32))[labels.index(one.label)] = 20.0
    EntityTable.from_arrays(np.stack(list(vectors.values())), list(vectors)).save(path)
    return path


def test_entities_reach_the_model_and_the_baseline_goes_without(ernie, telling_table, tmp_path, capsys):
    options = ["--num_train_epochs", "7", "--learning_rate", "3e-3", "--seeds", "0", "--language", "en"]
    table = ["--entity_table", str(telling_table)]
    assert run("finetune-relations", "relations.yaml", ernie, tmp_path / "out", "relations", *options, *table) == 0
    results = json.loads((tmp_path / "out" / "results.json").read_text(encoding="utf-8"))
    with_entities, without = (
        results["summary"][name]["accuracy"]["mean"] for name in ("with entities", "entities=None")
    )
    assert with_entities > without + 0.2
    assert 0.4 < results["coverage"]["train"] < 1.0  # tails have vectors, heads mostly not

    # The folder carries vectors, vocabulary and code: the processor and the model give the same accuracy again.
    processor = AutoProcessor.from_pretrained(tmp_path / "out")
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out").eval()
    assert model.config.entity_embeddings_in_checkpoint
    examples = read_relation_examples(FIXTURES / "relations.jsonl")
    batch = processor(
        [one.text for one in examples],
        entities=[[(m.start, m.end, m.id) for m in one.entities] for one in examples],
        task="relation",
        head=[one.head.span for one in examples],
        tail=[one.tail.span for one in examples],
        padding=True,
        truncation=True,
        max_length=64,
        return_tensors="pt",
    )
    with torch.no_grad():
        predicted = model(**batch).logits.argmax(-1).tolist()
    right = [model.config.id2label[label] == one.label for label, one in zip(predicted, examples, strict=True)]
    assert sum(right) / len(right) == pytest.approx(results["runs"][0]["test"]["accuracy"])


def test_marks_in_the_text_and_marks_between_tokens_are_the_same_rows(bert):
    tokenizer = AutoTokenizer.from_pretrained(bert)
    processor = ErnieThuProcessor(tokenizer)
    relations = read_relation_examples(FIXTURES / "relations.jsonl")
    types = read_typing_examples(FIXTURES / "typing.jsonl")
    for task, examples in ((RelationTask(("a", "b")), relations), (TypingTask(("a", "b")), types)):
        marked = processor([one.text for one in examples], task=task.name, **task.markers(examples))
        plain = tokenizer([task.text_of(one) for one in examples])
        assert marked["input_ids"] == plain["input_ids"]


def test_types_with_entities_use_the_typing_head(ernie, tmp_path):
    examples = read_typing_examples(FIXTURES / "typing.jsonl")
    ids = sorted({one.mention.id for one in examples})
    vectors = np.random.default_rng(0).normal(size=(len(ids), 16)).astype(np.float32)
    path = EntityTable.from_arrays(vectors, ids).save(tmp_path / "table.safetensors")
    options = ["--num_train_epochs", "1", "--seeds", "0", "--max_train_rows", "64", "--entity_table", str(path)]
    assert run("finetune-typing", "typing.yaml", ernie, tmp_path / "out", "typing", *options) == 0
    config = json.loads((tmp_path / "out" / "config.json").read_text(encoding="utf-8"))
    assert config["architectures"] == ["ErnieThuForEntityTyping"]
    results = json.loads((tmp_path / "out" / "results.json").read_text(encoding="utf-8"))
    assert set(results["summary"]) == {"with entities", "entities=None"}
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "| entity table | table.safetensors |" in card
    assert results["coverage"]["train"] == 1.0


def test_a_bert_with_a_table_becomes_an_ernie(bert, telling_table, tmp_path):
    table = ["--entity_table", str(telling_table), "--max_steps", "1", "--seeds", "0", "--max_train_rows", "32"]
    assert run("finetune-relations", "relations.yaml", bert, tmp_path / "out", "relations", *table) == 0
    config = json.loads((tmp_path / "out" / "config.json").read_text(encoding="utf-8"))
    assert config["architectures"] == ["ErnieThuForSequenceClassification"]
    assert config["entity_hidden_size"] == 16


def test_a_table_needs_a_model_that_takes_entities(bert, telling_table, tmp_path, capsys):
    shutil.copytree(bert, tmp_path / "other")
    config = json.loads((bert / "config.json").read_text(encoding="utf-8"))
    (tmp_path / "other" / "config.json").write_text(json.dumps({**config, "model_type": "electra"}), encoding="utf-8")
    table = ["--entity_table", str(telling_table)]
    assert run("finetune-relations", "relations.yaml", tmp_path / "other", tmp_path / "out", "relations", *table) == 2
    assert "a BERT, which becomes one, got a electra model" in capsys.readouterr().err
