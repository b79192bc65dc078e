"""The entry points: what each reads, and how it is called inside a folder of its own."""

import gzip
import importlib
import shutil
import typing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import hf_ptm_ext as ours
from hf_ptm_ext import data
from hf_ptm_ext.cli import main

from .bases import ADAPTERS, CONVERTED, TASK
from .sandbox import OUT, check_output, check_value

FILES_WITHOUT_ENDING = ("shard_token", "shard_entity")


@dataclass(frozen=True)
class EntryPoint:
    """A command, or a function, and the files that it is given.

    Args:
        files: files and folders of the base, each put into the input's folder under the last part of its name; those
            in `=` form are packed or renamed: "texts.jsonl.gz=texts.jsonl".
        words: the command line; none for a function.
        call: the function.
        numbers: options of the command that take numbers.
        damaged: endings of the files in folders that are damaged.
    """

    files: tuple[str, ...]
    words: tuple[str, ...] = ()
    call: Callable[[], Any] | None = None
    numbers: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors")

    def endings(self) -> Iterator[str]:
        """Ends of the names of the files that can be damaged."""
        for name in self.files:
            name = name.partition("=")[0]
            yield from [name] if "." in name or name.endswith(FILES_WITHOUT_ENDING) else self.damaged

    def reads(self, path: Path) -> bool:
        """Whether a file is one of those that can be damaged: by its whole name, or by an ending with a dot."""
        name = path.name
        return path.is_file() and any(name == one or (one[0] == "." and name.endswith(one)) for one in self.endings())

    def place(self, base: Path, folder: Path) -> None:
        """Put sound inputs into a folder."""
        for name in self.files:
            target, _, source = name.rpartition("=")
            made = folder / Path(target or source).name
            if (base / source).is_dir():
                shutil.copytree(base / source, made)
            elif made.suffix == ".gz":
                made.write_bytes(gzip.compress((base / source).read_bytes()))
            else:
                shutil.copyfile(base / source, made)

    def run(self, words: Sequence[str]) -> dict[str, Any]:
        """Call it; the exit code of a command, and what is wrong with what it gave."""
        if self.call is None:
            code = main(list(words))
            return {"code": code, "wrong": check_output(Path(OUT)) if code == 0 else []}
        value = self.call()
        return {"wrong": check_value(value), "value": repr(value)[:2000]}


def flags(**values: Any) -> tuple[str, ...]:
    """Options as words."""
    words: list[str] = []
    for name, value in values.items():
        words += [f"--{name}", *map(str, value if isinstance(value, list) else [value])]
    return tuple(words)


def numbers_of(module: str) -> tuple[str, ...]:
    """Options of a job that take numbers: its own, and the usual ones of training."""
    usual = {
        "learning_rate",
        "weight_decay",
        "warmup_steps",
        "num_train_epochs",
        "max_steps",
        "label_smoothing_factor",
        "max_grad_norm",
        "adam_beta1",
        "adam_beta2",
        "adam_epsilon",
        "per_device_train_batch_size",
        "per_device_eval_batch_size",
        "gradient_accumulation_steps",
        "logging_steps",
        "eval_steps",
        "save_steps",
        "save_total_limit",
        "seed",
        "data_seed",
        "dataloader_num_workers",
        "seeds",
    }
    found = set()
    for group in importlib.import_module(f"hf_ptm_ext.cli.{module}").GROUPS:
        hints = typing.get_type_hints(group)
        own = usual | {name for cls in group.__mro__ if cls.__module__.startswith("hf_ptm") for name in vars(cls)}
        for one in fields(group):
            kinds = {hints[one.name], *typing.get_args(hints[one.name])}
            if one.init and one.name in own and kinds & {int, float, list[int]}:
                found.add(one.name)
    return tuple(sorted(found))


def task(name: str, train: str, test: str | None = None, **more: Any) -> dict[str, Any]:
    return {"task": name, "train_file": train, "test_file": test or train, **TASK, **more}


def job(command: str, module: str, files: Sequence[str], **values: Any) -> EntryPoint:
    return EntryPoint(tuple(files), (command, *flags(output_dir=OUT, **values)), numbers=numbers_of(module))


def _jobs() -> Iterator[tuple[str, EntryPoint]]:
    model = {"model_name_or_path": "bert"}
    for name, train in (
        ("classification", "texts.tsv"),
        ("tagging", "tagged.conll"),
        ("question-answering", "squad.json"),
        ("extraction", "squad.json"),
    ):
        more = {"doc_stride": 4, "max_question_length": 8} if "squad" in train else {}
        test = "test.tsv" if name == "classification" else train
        files = ("bert", *dict.fromkeys((train, test)))
        yield (
            f"finetune {name}",
            job("finetune", "finetune", files, **model, **task(name, train, test, **more)),
        )
    graph = task("classification", "texts.tsv", "test.tsv", kg="graph.spo", baseline=False)
    yield (
        "finetune knowledge",
        job("finetune", "finetune", ("bert", "texts.tsv", "test.tsv", "graph.spo"), **model, **graph),
    )
    for ending in ("yaml", "json"):
        files = ("bert", "texts.tsv", "test.tsv", f"finetune.{ending}")
        words = ("finetune", f"finetune.{ending}")
        yield f"finetune recipe {ending}", EntryPoint(files, words, damaged=())
    one = task("classification", "texts.tsv", "test.tsv")
    yield (
        "adapt",
        job(
            "adapt",
            "adapt",
            ("bert", "texts.tsv", "test.tsv"),
            methods="houlsby",
            reduction_factor=4,
            **model,
            **one,
        ),
    )
    stages = '{"distil": {"preset": "soft-labels", "max_steps": 1}}'
    yield (
        "distill",
        job(
            "distill",
            "distill_arguments",
            ("teacher", "texts.tsv", "test.tsv"),
            teacher_name_or_path="teacher",
            student_layers=1,
            baseline=False,
            stages=stages,
            **one,
        ),
    )
    yield (
        "multitask",
        EntryPoint(
            ("bert", "texts.tsv", "test.tsv", "tagged.jsonl", "multitask.yaml"),
            ("multitask", "multitask.yaml", "--baseline", "false"),
            numbers=numbers_of("multitask_arguments"),
        ),
    )
    yield (
        "stages",
        EntryPoint(("bert", "texts.tsv", "test.tsv", "corpus.txt", "stages.yaml"), ("stages", "stages.yaml")),
    )
    for name, train, test in (("relations", "relations.jsonl", "semeval.txt"), ("typing", "typing.jsonl", None)):
        values = {key: value for key, value in task("", train, test).items() if key != "task"}
        files = ("bert", *dict.fromkeys((train, test or train)))
        yield f"finetune-{name}", job(f"finetune-{name}", "finetune_relations", files, **model, **values)
    run = {name: value for name, value in TASK.items() if name not in ("seeds", "max_seq_length")}
    pairs = {
        "train_file": "pairs.jsonl",
        "validation_file": "pairs.tsv",
        "max_source_length": 24,
        "max_target_length": 8,
    }
    yield (
        "finetune-seq2seq",
        job(
            "finetune-seq2seq",
            "seq2seq_arguments",
            ("seq2seq", "pairs.jsonl", "pairs.tsv"),
            model_name_or_path="seq2seq",
            **pairs,
            **run,
        ),
    )
    small = "hidden_size=8,num_hidden_layers=1,num_attention_heads=2,intermediate_size=16"
    run |= {"max_seq_length": 32, "validation_fraction": 0.3}
    new = {"config_overrides": small, "vocab_size": 90}
    for name, files, values in (
        ("new", ("corpus.txt",), {"train_file": "corpus.txt", **new}),
        ("bert", ("bert", "corpus.jsonl"), {"train_file": "corpus.jsonl", "objective": "mlm", **model}),
        (
            "ernie_thu",
            ("corpus.txt", "entity_table.safetensors"),
            {
                "train_file": "corpus.txt",
                "objective": "ernie_thu",
                "entity_table": "entity_table.safetensors",
                "min_entities": 1,
                **new,
                "config_overrides": f"{small},entity_num_attention_heads=2",
            },
        ),
    ):
        yield f"pretrain {name}", job("pretrain", "pretrain_arguments", files, **values, **run)
    vectors = flags(output_dir=OUT, dimension=4, epochs=1, test_file="triples.tsv", titles="titles.tsv")
    numbers = ("dimension", "epochs", "margin", "negatives", "batch_size", "learning_rate", "seed", "max_test_triples")
    yield (
        "train-entity-vectors",
        EntryPoint(("triples.tsv", "titles.tsv"), ("train-entity-vectors", "triples.tsv", *vectors), numbers=numbers),
    )


def _commands() -> Iterator[tuple[str, EntryPoint]]:
    for family in CONVERTED:
        for source, back in (("originals", ()), ("ours", ("--to-original",))):
            words = ("convert", family, family, OUT, *back)
            damaged = ("config.json", "model.safetensors", ".bin", ".pt", ".pth", ".txt", "codes", "tokenizer.json")
            if family in ADAPTERS:
                damaged = ("adapter_config.json", "adapter_model.safetensors", "pytorch_adapter.bin")
            yield (
                f"convert {family} {'back' if back else ''}".strip(),
                EntryPoint((f"{source}/{family}",), words, damaged=damaged),
            )
    yield "show masks", EntryPoint((), ("show", "masks", "unilm", "--mode", "seq2seq"))
    for graph in ("graph.spo", "graph.csv", "graph.jsonl", "graph.safetensors"):
        words = ("show", "knowledge", "Anna sings", "--kg", graph, "--max_entities", "1")
        yield f"show {graph}", EntryPoint((graph,), words, numbers=("max_entities",))
    yield "systems", EntryPoint((), ("systems", "--json"))


def _listed(call: Callable[..., Any], *arguments: Any, **options: Any) -> Callable[[], Any]:
    return lambda: list(call(*arguments, **options))


def _readers() -> Iterator[tuple[str, EntryPoint]]:
    from hf_ptm_ext.data import name_graphs
    from hf_ptm_ext.data.augmentation import load_word_vectors

    for name, read, files in (
        (
            "labelled texts",
            data.read_labelled_texts,
            (
                "texts.jsonl",
                "texts.tsv",
                "texts.csv",
                "texts.parquet",
                "texts.jsonl.gz=texts.jsonl",
                "texts.tsv.gz=texts.tsv",
            ),
        ),
        ("tagged words", data.read_tagged_words, ("tagged.jsonl", "tagged.conll", "tagged.conll.gz=tagged.conll")),
        ("questions", data.read_question_examples, ("questions.jsonl", "squad.json", "squad.json.gz=squad.json")),
        (
            "documents",
            data.read_documents,
            ("corpus.txt", "corpus.jsonl", "corpus.parquet", "corpus.txt.gz=corpus.txt"),
        ),
        ("source target", data.read_source_target, ("pairs.jsonl", "pairs.tsv")),
        (
            "relations",
            data.read_relation_examples,
            ("relations.jsonl", "semeval.txt", "relations.jsonl.gz=relations.jsonl"),
        ),
        ("typing", data.read_typing_examples, ("typing.jsonl",)),
        ("triples", data.read_triples, ("triples.tsv", "triples.tsv.gz=triples.tsv")),
        ("nouns", lambda path: [data.NounLinker(path)("rivers")], ("senses.tsv", "senses.tsv.gz=senses.tsv")),
        (
            "graph",
            lambda path: [len(ours.KnowledgeGraph.from_files(path))],
            ("graph.spo", "graph.csv", "graph.jsonl", "graph.jsonl.gz=graph.jsonl"),
        ),
        (
            "vectors",
            lambda path: [load_word_vectors(path).table],
            ("vectors.txt", "vectors.txt.gz=vectors.txt"),
        ),
    ):
        for file in files:
            yield (
                f"read {name} {file.partition('=')[0]}",
                EntryPoint((file,), call=_listed(read, file.partition("=")[0])),
            )
    yield (
        "read instances",
        EntryPoint(("instances.idx", "instances.bin"), call=_listed(data.read_instances, "instances")),
    )
    rows = lambda names: [len(name) for name in names]  # noqa: E731
    shard = ("shard_token", "shard_entity")
    yield "read entity documents", EntryPoint(shard, call=_listed(data.read_entity_documents, *shard, rows))
    sides = ("left.txt", "right.txt")
    yield "read parallel", EntryPoint(sides, call=_listed(data.read_parallel, "left.txt", "right.txt"))
    names = ("synsets.tsv", "senses.tsv", "glosses.tsv")
    yield "read wordnet names", EntryPoint(names, call=_listed(name_graphs.wordnet_names, *names))
    names = ("entities.jsonl", "types.jsonl")
    yield "read wikidata names", EntryPoint(names, call=_listed(name_graphs.wikidata_names, *names))
    table = ours.EntityTable
    yield (
        "table kg_embed",
        EntryPoint(
            ("kg_embed",),
            call=lambda: table.from_kg_embed("kg_embed").lookup([1, 2]),
            damaged=("entity2id.txt", ".vec", "entity_map.txt"),
        ),
    )
    yield (
        "table file",
        EntryPoint(
            ("entity_table.safetensors",), call=lambda: table.from_file("entity_table.safetensors").lookup([1, 2])
        ),
    )
    yield (
        "table word2vec",
        EntryPoint(("vectors.txt",), call=lambda: table.from_word2vec("vectors.txt").lookup([1, 2])),
    )
    yield (
        "graph file",
        EntryPoint(("graph.safetensors",), call=lambda: len(ours.KnowledgeGraph.from_file("graph.safetensors"))),
    )


def _folders() -> Iterator[tuple[str, EntryPoint]]:
    from transformers import AutoConfig, AutoProcessor, AutoTokenizer

    from hf_ptm_ext.hub.static_checks import static_problems

    texts = ["Anna sings in the old city", "a river"]
    own = ("ngram.txt", "knowledge_graph.safetensors", "entity_linker.safetensors", "entity_vocab.safetensors")
    for family, auto in (("kbert", AutoTokenizer), ("zen", AutoTokenizer), ("ernie_thu", AutoProcessor)):
        call = lambda auto=auto, family=family: dict(auto.from_pretrained(family)(texts))  # noqa: E731
        yield (
            f"tokenizer {family}",
            EntryPoint((f"ours/{family}",), call=call, damaged=own),
        )
    for family in CONVERTED:
        if family not in ("houlsby", "pfeiffer"):
            call = lambda family=family: AutoConfig.from_pretrained(family).to_dict() and 1  # noqa: E731
            yield f"config {family}", EntryPoint((f"ours/{family}",), call=call, damaged=("config.json",))
    verify = lambda: static_problems(Path("spanbert"), {"model_type": "spanbert"})  # noqa: E731
    yield "verify files", EntryPoint(("ours/spanbert",), call=verify)
    yield (
        "verify",
        EntryPoint(
            ("ours/nezha",),
            ("verify", "nezha", "--timeout", "1"),
            numbers=("timeout", "tolerance"),
            damaged=("config.json",),
        ),
    )


def entry_points() -> dict[str, EntryPoint]:
    """Name -> entry point."""
    return dict([*_jobs(), *_commands(), *_readers(), *_folders()])


__all__ = ["EntryPoint", "entry_points"]
