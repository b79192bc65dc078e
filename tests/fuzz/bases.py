"""The sound inputs that are damaged: tiny checkpoints of every family both ways, data in every form, recipes."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM, BertForSequenceClassification

import hf_ptm_ext as ours
from hf_ptm_ext.cli import main
from hf_ptm_ext.data import train_wordpiece, write_entity_documents, write_instances
from hf_ptm_ext.data.entity_documents import EntitySentence
from tests.cli.test_convert_adapters import library_folder
from tests.conversion.test_mass_nmt import CODES, original

WORDS = ("Paris", "river", "bright", "dark", "city", "house", "café", "light", "old", "wide", "Anna", "sings")
SHAPE = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
BART = {f"{side}_{name}": SHAPE[size] for side in ("encoder", "decoder") for name, size in (
    ("layers", "num_hidden_layers"), ("attention_heads", "num_attention_heads"), ("ffn_dim", "intermediate_size")
)}  # fmt: skip
POSITIONS = {"max_position_embeddings": 48}
# family -> class and its own sizes; the others come as files of the original.
FAMILIES: dict[str, tuple[Any, dict[str, Any]]] = {
    "spanbert": (ours.SpanBertForPreTraining, {}),
    "unilm": (ours.UniLMForPreTraining, {"mask_token_id": 4}),
    "nezha": (ours.NezhaForPreTraining, {"max_relative_position": 3}),
    "zen": (ours.ZenForPreTraining, {"word_vocab_size": 4, "num_hidden_word_layers": 1}),
    "kbert": (ours.KBertForPreTraining, {}),
    "ib_bert": (ours.IBBertForPreTraining, {"embedding_size": 4, "intra_bottleneck_size": 16}),
    "ernie_thu": (ours.ErnieThuForPreTraining, {"entity_hidden_size": 4, "entity_num_attention_heads": 2}),
    "tinybert": (BertForSequenceClassification, {}),
    "mass": (ours.MassForConditionalGeneration, {"d_model": 8, **BART}),
}
ADAPTERS = ("houlsby", "pfeiffer")
CONVERTED = (*FAMILIES, "mass_nmt", *ADAPTERS)
TASK = {
    "max_seq_length": 32,
    "max_steps": 1,
    "seeds": [0],
    "per_device_train_batch_size": 4,
    "use_cpu": True,
    "disable_tqdm": True,
    "report_to": "none",
    "save_strategy": "no",
    "language": "en",
}


def sentences(number: int) -> list[str]:
    """Texts with a word that decides their class, each of them another one."""
    return [
        f"{WORDS[index % 12]} has a {('bright', 'dark')[index % 2]} {WORDS[(index * 5 + 4) % 12]} number {index}"
        for index in range(number)
    ]


def write_lines(path: Path, rows: Iterable[Any]) -> None:
    """Text as it is, anything else as JSON, a line each."""
    lines = [row if isinstance(row, str) else json.dumps(row, ensure_ascii=False) for row in rows]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def make(base: Path) -> None:
    """Write everything into an empty folder."""
    write_data(base)
    write_models(base)
    write_originals(base)
    write_recipes(base)


def write_data(base: Path) -> None:
    """One file of each form that a reader reads."""
    import pyarrow
    import pyarrow.parquet

    texts = sentences(12)
    labels = [("good", "bad")[index % 2] for index in range(12)]
    rows = [{"text": text, "label": label} for text, label in zip(texts, labels, strict=True)]
    tagged = [{"tokens": text.split(), "tags": ["B-X", *["O"] * (len(text.split()) - 1)]} for text in texts]
    questions = [
        {
            "id": str(index),
            "question": "what is it ?",
            "context": text,
            "answers": {"text": [text.split()[2]], "answer_start": [text.index(f" {text.split()[2]} ") + 1]},
        }
        for index, text in enumerate(texts)
    ]
    squad = [
        {**one, "answers": [{"text": one["answers"]["text"][0], "answer_start": one["answers"]["answer_start"][0]}]}
        for one in questions
    ]
    squad_data = [
        {"title": "t", "paragraphs": [{"context": one.pop("context"), "qas": [one]}]} for one in map(dict, squad)
    ]
    head, tail = {"id": "Q1", "name": "a", "pos": [0, 1]}, {"id": "Q2", "name": "b", "pos": [4, 5]}
    spans = [
        {"tokens": text.split(), "head": head, "relation": label, "tail": tail}
        for text, label in zip(texts, labels, strict=True)
    ]
    types = [{"tokens": one["tokens"], "pos": [0, 1], "id": "Q1", "labels": [one["relation"]]} for one in spans]
    pairs = [{"source": text, "target": " ".join(text.split()[:3])} for text in texts]
    lines = {
        "texts.jsonl": rows,
        "texts.tsv": ["text\tlabel", *(f"{row['text']}\t{row['label']}" for row in rows)],
        "texts.csv": ["text,label", *(f'"{row["text"]}",{row["label"]}' for row in rows)],
        "test.tsv": ["text\tlabel", *(f"{row['text']}\t{row['label']}" for row in rows[:4])],
        "tagged.jsonl": tagged,
        "tagged.conll": [
            line
            for one in tagged
            for line in (*(f"{w} {t}" for w, t in zip(one["tokens"], one["tags"], strict=True)), "")
        ],
        "questions.jsonl": questions,
        "squad.json": [{"version": "1.1", "data": squad_data}],
        "corpus.txt": [line for text in texts for line in (text, f"It is {text} .", "")],
        "corpus.jsonl": [{"text": text} for text in texts],
        "pairs.jsonl": pairs,
        "pairs.tsv": ["source\ttarget", *(f"{one['source']}\t{one['target']}" for one in pairs)],
        "left.txt": texts,
        "right.txt": texts[::-1],
        "relations.jsonl": spans,
        "typing.jsonl": types,
        "semeval.txt": [
            line
            for index, text in enumerate(texts)
            for line in (
                f'{index + 1}\t"<e1>{text.split()[0]}</e1> has <e2>a thing</e2>."',
                "Other",
                "Comment:",
                "",
            )
        ],
        "triples.tsv": [f"e{index % 7}\tr{index % 2}\te{(index * 3 + 1) % 7}" for index in range(20)],
        "titles.tsv": [f"{word}\te{index % 7}" for index, word in enumerate(WORDS)],
        "graph.spo": [f"{word}\tis a\tthing{index}" for index, word in enumerate(WORDS)],
        "graph.csv": [f"{word},is a,thing{index}" for index, word in enumerate(WORDS)],
        "graph.jsonl": [{"subject": word, "predicate": "is a", "object": ["thing", "word"]} for word in WORDS],
        "senses.tsv": [f"{word.lower()}\tn\t0000000{index % 9},00000099" for index, word in enumerate(WORDS)],
        "glosses.tsv": [f"0000000{index}\t{word}, a thing" for index, word in enumerate(WORDS[:9])],
        "synsets.tsv": [f"0000000{index}\t_instance_hypernym\t0000000{index + 1}" for index in range(8)],
        "entities.jsonl": [{"id": f"Q{n}", "name": word.lower(), "types": ["T1"]} for n, word in enumerate(WORDS)],
        "types.jsonl": [{"id": "T1", "label": "thing"}],
        "vectors.txt": [f"{word} {index}.5 -1.0 0.25" for index, word in enumerate(WORDS)],
        "ngram.txt": ["b r,3", "d a r,2", "l i,1"],
    }
    for name, rows_of in lines.items():
        write_lines(base / name, rows_of)
    for name, content in (("texts", rows), ("corpus", lines["corpus.jsonl"])):
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(content), base / f"{name}.parquet")
    instances = [{"input_ids": [2, 5, 6, 3], "labels": [-100, 5, -100, -100], "entity_ids": [0, 1, 0, 0]}] * 3
    write_instances(instances, base / "instances", 8)
    document = [EntitySentence([7, 8, 9], [1, 1, 0]), EntitySentence([7, 6], [0, 2])]
    write_entity_documents([document] * 4, base / "shard_token", base / "shard_entity", lambda one: f"Q{one}")
    kg = base / "kg_embed"
    kg.mkdir()
    write_lines(kg / "entity2id.txt", ["7", *(f"e{index}\t{index}" for index in range(7))])
    write_lines(kg / "entity2vec.vec", [f"{index}.5\t-1.0\t0.25\t1e-3" for index in range(7)])
    write_lines(kg / "entity_map.txt", lines["titles.tsv"])


def write_models(base: Path) -> None:
    """Checkpoints of ours under their families' names, BERTs, an entity table."""
    pieces = train_wordpiece([sentences(40)], 120, model_max_length=48)
    sizes = {"vocab_size": len(pieces), **SHAPE, **POSITIONS}
    torch.manual_seed(0)
    labels = {"id2label": {0: "bad", 1: "good"}, "label2id": {"bad": 0, "good": 1}}
    BertForMaskedLM(BertConfig(**sizes)).save_pretrained(base / "bert")
    BertForSequenceClassification(BertConfig(**sizes, **labels)).save_pretrained(base / "teacher")
    for folder in ("bert", "teacher"):
        pieces.save_pretrained(base / folder)
    special = {"eos_token_id": pieces.sep_token_id, "bos_token_id": pieces.cls_token_id}
    for family, (cls, more) in FAMILIES.items():
        given = {"vocab_size": sizes["vocab_size"], **POSITIONS} if family == "mass" else sizes
        options = {**given, **(special if family in ("mass", "unilm") else {}), **more}
        options |= {"decoder_start_token_id": pieces.sep_token_id} if family == "mass" else {}
        cls(cls.config_class(**options)).save_pretrained(base / "ours" / family)
        pieces.save_pretrained(base / "ours" / family)
    vocabulary = pieces.get_vocab()
    ours.ZenTokenizer(vocab=vocabulary, ngrams=str(base / "ngram.txt")).save_pretrained(base / "ours" / "zen")
    graph = ours.KnowledgeGraph.from_files(base / "graph.spo")
    ours.KBertTokenizer(vocab=vocabulary, kg=graph).save_pretrained(base / "ours" / "kbert")
    graph.save(base / "graph.safetensors")
    vectors = np.random.default_rng(0).normal(size=(7, 4)).astype(np.float32)
    titles = [(word, f"e{index % 7}") for index, word in enumerate(WORDS)]
    table = ours.EntityTable.from_arrays(vectors, [f"e{index}" for index in range(7)], titles)
    table.save(base / "entity_table.safetensors")
    linker = ours.DictionaryLinker.from_vocabulary(table.vocabulary)
    processor = ours.ErnieThuProcessor(pieces, table.vocabulary, linker=linker)
    processor.save_pretrained(base / "ours" / "ernie_thu")
    ours.UniLMForConditionalGeneration.from_pretrained(base / "ours" / "unilm").save_pretrained(base / "seq2seq")
    AutoTokenizer.from_pretrained(base / "ours" / "unilm").save_pretrained(base / "seq2seq")


def write_originals(base: Path) -> None:
    """Files as the original projects leave them, and what becomes of those that only they have."""
    for family in FAMILIES:
        source, target = str(base / "ours" / family), str(base / "originals" / family)
        if main(["convert", family, source, target, "--to-original"]):
            raise RuntimeError(f"{family} cannot be converted to its original.")
    (base / "originals" / "zen" / "ngram.txt").write_bytes((base / "ngram.txt").read_bytes())
    for family in ("mass_nmt", *ADAPTERS):
        source = base / "originals" / family
        if family in ADAPTERS:
            library_folder(source, family)
            (source / "pytorch_model_head.bin").unlink()
        else:
            source.mkdir()
            torch.save(original(), source / "checkpoint.pth")
            write_lines(source / "codes", CODES)
        if main(["convert", family, str(source), str(base / "ours" / family)]):
            raise RuntimeError(f"{family} cannot be converted.")


def write_recipes(base: Path) -> None:
    """Recipes of jobs, in YAML and JSON."""
    one = {"task": "classification", "train_file": "texts.tsv", "test_file": "test.tsv"}
    simple = {"model_name_or_path": "bert", "output_dir": "out", **one, **TASK}
    (base / "finetune.yaml").write_text(yaml.safe_dump(simple), encoding="utf-8")
    (base / "finetune.json").write_text(json.dumps(simple, indent=1), encoding="utf-8")
    tags = {"task": "tagging", "train_file": "tagged.jsonl", "test_file": "tagged.jsonl"}
    many = {"model_name_or_path": "bert", "output_dir": "out", **TASK, "tasks": {"a": one, "b": tags}}
    (base / "multitask.yaml").write_text(yaml.safe_dump(many), encoding="utf-8")
    stages = {
        "first": {"job": "pretrain", "objective": "mlm", "train_file": "corpus.txt", "validation_fraction": 0.3},
        "second": {"job": "finetune", "seeds": [0], **one},
    }
    common = {name: value for name, value in TASK.items() if name != "seeds"}
    content = {"model_name_or_path": "bert", "output_dir": "out", "stages": stages, "common": common}
    (base / "stages.yaml").write_text(yaml.safe_dump({**content, "baseline": False}), encoding="utf-8")


__all__ = ["ADAPTERS", "CONVERTED", "FAMILIES", "TASK", "make"]
