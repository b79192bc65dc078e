"""The help of a job: its own options in groups, its recipes, examples."""

import shutil
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, Field, fields
from enum import Enum
from inspect import get_annotations
from types import UnionType
from typing import Any, Union, get_args, get_origin

from transformers import TrainingArguments

from .recipes import recipes_of

FLAG_WIDTH = 34
NARROWEST = 118
# Job -> command lines that show what it is for, without the program's name.
EXAMPLES = {
    "pretrain": (
        "pretrain quickstart.yaml --max_steps 300",
        'pretrain spanbert_continue.yaml --model_name_or_path BERT --train_file "corpus/*.txt.gz"',
        "pretrain wwm_zh.yaml --output_dir outputs/wwm-zh",
    ),
    "finetune": (
        "finetune bert_classification.yaml --model_name_or_path BERT --train_file train.tsv --test_file test.tsv",
        "finetune kbert_ner.yaml --model_name_or_path BERT --kg graph.spo --train_file a.tsv --validation_file b.tsv",
        "finetune question_answering.yaml --model_name_or_path BERT --train_file train.json --test_file dev.json",
    ),
    "adapt": (
        "adapt adapt_classification.yaml --model_name_or_path BERT --train_file train.jsonl --test_file test.jsonl",
        "adapt adapt_tagging.yaml --model_name_or_path BERT --train_file train.tsv --test_file test.tsv",
        "adapt adapt_classification.yaml --model_name_or_path BERT --train_file a.tsv --test_file b.tsv --seeds 0",
    ),
    "compress": (
        "compress compress.yaml --model_name_or_path BERT --train_file train.tsv --test_file test.tsv",
        "compress compress.yaml --model_name_or_path BERT --methods prune --sparsity 0.6 --train_file a.tsv "
        "--test_file b.tsv",
        "compress compress.yaml --model_name_or_path BERT --methods layers --layer_keep 0,2,5 --train_file a.tsv "
        "--test_file b.tsv",
    ),
    "distill": (
        "distill distill_tinybert.yaml --teacher_name_or_path TEACHER --train_file a.tsv --test_file b.tsv",
        "distill distill_minilm_v2.yaml --teacher_name_or_path TEACHER --student_layers 3 --train_file a.tsv "
        "--test_file b.tsv",
        "distill distill_distilbert_mlm.yaml --teacher_name_or_path BERT --train_file corpus.txt --test_file held.txt",
    ),
    "multitask": (
        "recipes multitask.yaml > my.yaml",
        "multitask my.yaml --mixing temperature --smart_weight 1",
        "multitask my.yaml --resume_from_checkpoint auto",
    ),
    "stages": (
        "recipes two_stage.yaml > my.yaml",
        "stages my.yaml --output_dir outputs/chain",
        "stages my.yaml --stages.target.seeds 0 1 2",
    ),
    "finetune-relations": (
        "finetune-relations relations.yaml --model_name_or_path BERT --train_file a.jsonl --test_file b.jsonl",
        "finetune-relations relations.yaml --model_name_or_path BERT --entity_table entities.safetensors "
        "--train_file a.jsonl --test_file b.jsonl",
        "train-entity-vectors triples.tsv --output_dir vectors",
    ),
    "finetune-typing": (
        "finetune-typing typing.yaml --model_name_or_path BERT --train_file a.jsonl --test_file b.jsonl",
        "finetune-typing typing.yaml --model_name_or_path BERT --entity_table entities.safetensors "
        "--train_file a.jsonl --test_file b.jsonl",
        "train-entity-vectors triples.tsv --output_dir vectors",
    ),
    "finetune-seq2seq": (
        "convert unilm BERT_FOLDER unilm-bert",
        "finetune-seq2seq unilm_summarization.yaml --model_name_or_path unilm-bert --train_file a.jsonl "
        "--test_file b.jsonl",
        "finetune-seq2seq --model_name_or_path facebook/bart-base --train_file a.csv --source_column article "
        "--target_column highlights --test_file b.csv",
    ),
}


def own_groups(groups: Sequence[type]) -> Iterator[tuple[str, list[Field]]]:
    """The options of our classes under the title of the class that declares them; the last declaration counts."""
    shown: set[str] = set()
    for group in groups:
        known = {one.name: one for one in fields(group)}
        for owner in group.__mro__:
            if not owner.__module__.startswith("hf_ptm_ext"):
                continue
            names = [name for name in get_annotations(owner) if name in known and name not in shown]
            listed = [known[name] for name in names if known[name].init]
            shown |= set(names)
            if listed:
                yield (owner.__doc__ or owner.__name__).strip().splitlines()[0].rstrip("."), listed


def text_of(
    prog: str, usage: str, description: str, groups: Sequence[type], command: str, words: Sequence[str] = ()
) -> str:
    """The whole help; options `of` one choice alone are shown, and no others named, if it is among `words`."""
    chooses: Any = next((group for group in groups if hasattr(group, "of")), None)
    asked, of = (chooses.asked, chooses.of) if chooses else ("", {})
    options = [one for _, listed in own_groups(groups) for one in listed]
    taken: Any = next((one.metadata.get("choices") for one in options if one.name == asked), None) or ()
    shown = {name for choice in words for name in of.get(choice, ())}
    hidden = {name for names in of.values() for name in names} - shown
    width = max(shutil.get_terminal_size().columns, NARROWEST)
    lines = [f"usage: {usage}", "", description[0].upper() + description[1:] + "."]
    for title, options in own_groups(groups):
        lines += ["", f"{title}:"]
        for one in options:
            lines += [] if one.name in hidden else _lines(one, width)
        if not shown and hidden & {one.name for one in options}:
            listed = ", ".join(choice for choice, names in of.items() if hidden & set(names) and choice in taken)
            note = (
                f"`{prog} --{asked} NAME --help` tells of the options that are the own ones of one {asked}: {listed}."
            )
            lines += [f"  {line}" for line in textwrap.wrap(note, width - 2) if listed]
    if any(issubclass(group, TrainingArguments) for group in groups):
        lines += ["", f"Every option of transformers' TrainingArguments works too: `{prog} --help_all`."]
    lines += [
        *textwrap.wrap(
            f"Recipes: {', '.join(recipes_of(command))}. `hf-ptm-ext recipes NAME > my.yaml` copies one.", width
        ),
    ]
    if not shown:  # of one choice, whose own options take the room
        lines += ["Examples:", *(f"  hf-ptm-ext {example}" for example in EXAMPLES.get(command, ()))]
    return "\n".join(lines) + "\n"


def _lines(one: Field, width: int) -> list[str]:
    default = one.default if one.default_factory is MISSING else one.default_factory()
    notes = "" if default in (None, "", MISSING) or default == [] else f" [{_word(default)}]"
    if default is MISSING:
        notes = " [required]"
    flag = f"  --{one.name} {_kind(one)}".rstrip()
    text = one.metadata.get("help", "").rstrip(".") + notes
    first = textwrap.wrap(text, width - FLAG_WIDTH) or [""]
    if len(flag) >= FLAG_WIDTH:
        return [flag, *(" " * FLAG_WIDTH + line for line in first)]
    return [f"{flag:<{FLAG_WIDTH}}{first[0]}", *(" " * FLAG_WIDTH + line for line in first[1:])]


def _kind(one: Field) -> str:
    """What goes behind the flag: choices, or a letter for the type."""
    choices = one.metadata.get("choices")
    if choices:
        return "|".join(map(str, choices)) + (" ..." if one.default_factory is not MISSING else "")
    words = {bool: "BOOL", int: "N", float: "X", str: "TEXT", dict: "MAPPING"}
    hint: Any = one.type
    several = ""
    while get_origin(hint) in (Union, UnionType, list) or hasattr(hint, "__metadata__"):
        if get_origin(hint) is list:
            several = " ..."
        if hasattr(hint, "__metadata__"):
            hint = hint.__origin__
            continue
        hint = next((part for part in get_args(hint) if part is not type(None)), str)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return "TEXT"
    return words.get(getattr(hint, "__supertype__", hint), "TEXT") + several


def _word(value: Any) -> str:
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return " ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
