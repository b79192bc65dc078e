"""`hf-ptm-ext finetune-relations`, `finetune-typing`: fine-tune an encoder, with entities and without them, by seeds.

Each seed trains the model with its entities and once more, from the same weights, with `entities=None`.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from transformers import AutoConfig, AutoModelForSequenceClassification

from ..data import NounLinker
from ..models.markers_ernie_thu import add_markers
from .arguments import CheckpointArguments, RowArguments, SeededArguments, parse_seeded
from .checkpoint_names import load_tokenizer
from .console import phase
from .loading import load_model, own_classes, with_order_of
from .options import REQUIRED, option
from .seeded import TaskJob
from .tasks import read_splits
from .tasks.mentions import behind_the_cut

logger = logging.getLogger(__name__)

WITH, WITHOUT = "with entities", "entities=None"
TAKE_ENTITIES = ("ernie_thu", "bert")


@dataclass
class KnowledgeModelArguments(CheckpointArguments):
    """Which model is fine-tuned."""

    model_name_or_path: str = option(
        REQUIRED, "Checkpoint: ERNIE-THU (with or without entities), or any encoder of upstream's."
    )
    entity_table: str | None = option(
        None, "Entity vectors (`train-entity-vectors`, `EntityTable.save`). Default: no entities."
    )
    baseline: bool = option(True, "With a table: also train the same model without entities, with each seed.")


@dataclass
class KnowledgeDataArguments(RowArguments):
    """What it is fine-tuned on."""

    train_file: str = option(REQUIRED, ".json, .jsonl or SemEval's .txt, also .gz (see data.annotated_text).")
    validation_file: str | None = option(None, "Examples for evaluation.")
    test_file: str | None = option(None, "Examples for the final test.")
    wordnet_senses: str | None = option(
        None, "lemma, part of speech, synsets: link mentions to their first noun sense by name."
    )
    labels_field: str | None = option(None, "Field with the types (entity typing).")
    always_one_type: bool = option(False, "Always predict the likeliest type too, as for FIGER (entity typing).")

    def check(self, training: Any) -> None:
        """Refuse to measure nothing, or to choose a model by nothing."""
        if self.validation_file is None and self.test_file is None:
            raise ValueError(
                f"`validation_file` or `test_file` must be named, got {self.test_file}: without either nothing is "
                "measured."
            )
        if training.eval_strategy != "no" and self.validation_file is None:
            raise ValueError(
                f"`eval_strategy` = {training.eval_strategy.value} needs `validation_file`: the test data must not "
                "choose the model."
            )


# With ERNIE-THU's values: 10 epochs, batches of 32, learning rate 2e-5.
GROUPS = (KnowledgeModelArguments, KnowledgeDataArguments, SeededArguments)


def parse(arguments: list[str], command: str = "finetune-relations") -> tuple[Any, ...]:
    """Read the options."""
    return parse_seeded(arguments, GROUPS, command)


def run(arguments: list[str]) -> int:
    """Run the job."""
    MentionJob("relation", *parse(arguments)).run()
    return 0


class MentionJob(TaskJob):
    """Fine-tuning on marked mentions, with a table of entities and without it if there is one.

    Args:
        name: of the task, `"relation"` or `"typing"`.
        groups: the three dataclasses of arguments.
    """

    own_rows = True

    def __init__(self, name: str, *groups: Any):
        super().__init__(*groups)
        self.name = name
        self.processors: dict[str, Any] = {}

    def read(self) -> tuple[dict[str, list[Any]], Any]:
        """The examples, linked to WordNet if asked, and the task that they set."""
        data = self.data_args
        examples, task = read_splits(self.name, data)
        if len(task.labels) < 2:
            raise ValueError(f"{data.train_file} must have at least two labels, got {list(task.labels)}.")
        if data.wordnet_senses is not None:
            with phase("linking"):
                link = NounLinker(data.wordnet_senses, data.encoding)
                for found in examples.values():
                    found[:] = [
                        replace(
                            one, entities=tuple(replace(m, id=link(one.text[slice(*m.span)])) for m in one.entities)
                        )
                        for one in found
                    ]
        return examples, task

    def load(self, task: Any) -> Any:
        return with_order_of(task, self._config())

    def _config(self) -> Any:
        return AutoConfig.from_pretrained(self.model_args.model_name_or_path, **self.model_args.source)

    def look(self) -> None:
        """Open the table, and count mentions that the model will not see."""
        with phase("opening the entity table"):
            self.table = open_table(self.model_args.entity_table, self.splits.examples)
        self.variants = (WITHOUT,)
        if self.table is not None:
            self.variants = (WITH, WITHOUT) if self.model_args.baseline else (WITH,)
        tokenizer, limit = load_tokenizer(self.model_args), self.data_args.max_seq_length
        tokenizer = getattr(tokenizer, "tokenizer", tokenizer)
        for split, found in self.splits.examples.items():
            cut = behind_the_cut(self.task, found, tokenizer, limit)
            if cut:
                self.splits.notes.setdefault("mentions_behind_the_cut", {})[split] = cut
                logger.warning(
                    "%d of %d %s rows have a mention behind the cut at %d tokens, which the model does not see: raise "
                    "`max_seq_length`.",
                    *(cut, len(found), split, limit),
                )

    def signature(self) -> dict[str, Any]:
        return super().signature() | {"task": self.name}

    def encode(self, examples: Sequence[Any], variant: str = "") -> Any:
        limit = self.data_args.max_seq_length
        return self.task.encode(examples, self.processors[variant], limit, with_entities=variant == WITH)

    def model(self, variant: str, args: Any) -> Any:
        """The checkpoint with a head, and with the table; its tokenizer and processor are kept."""
        table: Any = self.table if variant == WITH else None
        name = self.model_args.model_name_or_path
        config, source = self._config(), self.model_args.source
        theirs = own_classes(config)
        if table is not None and config.model_type not in TAKE_ENTITIES:
            raise ValueError(
                f"`entity_table` needs an ERNIE-THU model, or a BERT, which becomes one, got a {config.model_type} "
                "model. Leave the table out."
            )
        cls: Any = AutoModelForSequenceClassification
        if config.model_type == "ernie_thu" or table is not None:
            from ..models import modeling_ernie_thu

            source = {"revision": source["revision"]}
            cls = getattr(modeling_ernie_thu, self.task.ernie_thu_head)
            if config.model_type == "bert":
                config = cls.config_class.from_pretrained(name, entity_hidden_size=table.dim, **source)
        self.task.configure(config)
        self.tokenizer = load_tokenizer(self.model_args)
        classes = {"labels": self.task.labels, "theirs": theirs}
        model = load_model(cls, name, config=config, tokenizer=self.tokenizer, **classes, **source)
        add_markers(self.task.symbols, getattr(self.tokenizer, "tokenizer", self.tokenizer), model)
        self.processors[variant] = self.tokenizer
        if config.model_type == "ernie_thu":
            from ..models.processing_ernie_thu import ErnieThuProcessor

            self.tokenizer = getattr(self.tokenizer, "tokenizer", self.tokenizer)
            self.processors[variant] = ErnieThuProcessor(
                self.tokenizer, entity_vocab=table, min_score=-1.0, on_unknown_entity="ignore"
            )
            if table is not None:
                model.set_entity_table(table)
                model.prune_entity_table()
        return model

    def trainer_options(self, variant: str, args: Any) -> dict[str, Any]:
        """What the Trainer is given: the processor pads, the tokenizer is saved with checkpoints."""
        options = self.splits.trainer_options(args, self.processors[variant], variant)
        return {**options, "processing_class": self.tokenizer}

    def build(self, variant: str, args: Any) -> tuple[Any, Any]:
        trainer, _ = super().build(variant, args)
        return trainer, self.processors[variant]

    def results(self, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """What `results.json` says; `coverage`, the share of mentions whose entity has a vector."""
        return super().results(runs) | {"coverage": coverage(self.splits.examples, self.table)}

    def card(self, results: dict[str, Any]) -> dict[str, Any]:
        given = super().card(results)
        if self.table is not None:
            given["training"] = {"entity table": Path(self.model_args.entity_table).name}
            given["data"] = {"mentions with a vector": results["coverage"]}
        return given


def open_table(file: str | None, examples: dict[str, list[Any]]) -> Any:
    """The entity table, pruned to the entities of the data so that the model can carry it; `None` without one."""
    if file is None:
        return None
    from ..conversion.entity_tables import EntityTable

    table = EntityTable.from_file(file)
    names = sorted({m.id for split in examples.values() for one in split for m in one.entities if m.id is not None})
    rows = np.unique(table.rows(names)) if names else np.zeros(0, dtype=np.int64)
    if not rows.any():
        raise ValueError(
            f"`entity_table` = {file} has none of the {len(names)} entities of the data, such as {names[:3]}. Use a "
            "table of the same ids, or `wordnet_senses` for nouns."
        )
    return table.prune(rows)


def coverage(examples: dict[str, list[Any]], table: Any) -> dict[str, float]:
    """Share of annotated mentions whose entity has a vector, by split."""
    if table is None:
        return {}
    shares = {}
    for split, ones in examples.items():
        known = [m.id is not None and bool(table.rows([m.id])[0]) for one in ones for m in one.entities]
        shares[split] = sum(known) / len(known) if known else 0.0
    return shares
