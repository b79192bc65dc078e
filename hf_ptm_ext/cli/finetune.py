"""`hf-ptm-ext finetune`: fine-tune any encoder for classification, tagging or question answering, by seeds."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..models.configuration_kbert import POOLINGS
from .arguments import CheckpointArguments, SeededArguments, TaskDataArguments, parse_seeded
from .encoder import Encoder
from .options import option
from .ranges import Below1, Size
from .seeded import TaskJob

logger = logging.getLogger(__name__)

WITH, WITHOUT, TEXT_ONLY = "with kg", "kg=None", "fine-tuned"


@dataclass
class FinetuneModelArguments(CheckpointArguments):
    """Which model is fine-tuned."""

    config_overrides: str | None = option(
        None, "Fields of its config, as hidden_dropout_prob=0.2,classifier_dropout=0.3."
    )


@dataclass
class KnowledgeGraphArguments:
    """Knowledge that is put into the text (K-BERT)."""

    kg: list[str] | None = option(
        None,
        "Triple files (.spo, .tsv, .csv, .jsonl, also .gz); the model, any BERT, then reads as a K-BERT. Default: the "
        "text alone.",
    )
    kg_encoding: str = option("utf-8", "Encoding of the triple files.")
    max_entities: Size = option(2, "Most objects that a word gets (K-BERT: 2).")
    use_predicate: bool | None = option(
        None, "Put predicates before objects (default, as K-BERT: in classification, not in tagging)."
    )
    pooling: str | None = option(
        None, "What a K-BERT classifier pools (default: first, if the model says nothing).", choices=POOLINGS
    )
    baseline: bool = option(True, "With kg: also train the same model without knowledge, with each seed.")

    def check(self, training: Any) -> None:
        """Refuse values that contradict each other."""
        for name in ("pooling", "use_predicate"):
            if getattr(self, name) is not None and not self.kg:
                raise ValueError(f"`{name}` needs `kg`, got none. Name the graphs, or leave `{name}` out.")


@dataclass
class FinetuneArguments(SeededArguments):
    """Arguments of training, with K-BERT's values (5 epochs, batches of 32, learning rate 2e-5, 10 % warm-up)."""

    num_train_epochs: float = option(5.0, "Passes over the data (K-BERT: 5).")
    layer_keep: str | None = option(
        None, "Layers of the checkpoint that stay: every-other, how many, or numbers from 0 such as 0,2,5."
    )
    layer_drop: Below1 = option(0.0, "LayerDrop: chance of each layer to be left out of an update (paper: 0.2).")


GROUPS = (FinetuneModelArguments, TaskDataArguments, KnowledgeGraphArguments, FinetuneArguments)


def parse(arguments: list[str]) -> tuple[Any, ...]:
    """Read the options."""
    return parse_seeded(arguments, GROUPS, "finetune")


def run(arguments: list[str]) -> int:
    """Run the job."""
    Finetune(*parse(arguments)).run()
    return 0


class EncoderJob(TaskJob):
    """A job that trains a checkpoint with the head of its task, and with knowledge in the text if it has some."""

    knowledge: Any = None

    def load(self, task: Any) -> Any:
        self.encoder = Encoder(task, self.model_args, self.knowledge)
        return self.encoder.task

    @property
    def tokenizer(self) -> Any:
        """The checkpoint's."""
        return self.encoder.tokenizer

    def model(self, variant: str, args: Any) -> Any:
        """The checkpoint, with a head."""
        return self.encoder.model()


class Finetune(EncoderJob):
    """Fine-tuning, with a knowledge graph in the text and without it if there is one."""

    own_rows = True

    def __init__(self, model_args: Any, data_args: Any, knowledge: KnowledgeGraphArguments, training_args: Any):
        super().__init__(model_args, data_args, knowledge, training_args)
        self.knowledge = knowledge
        self.found: dict[str, dict[str, float]] = {}

    def model(self, variant: str, args: Any) -> Any:
        """The checkpoint with a head, or a part of its layers."""
        from ..compression import keep_layers

        model, kept = super().model(variant, args), self.training_args.layer_keep
        return model if kept is None else keep_layers(model, kept)

    def trainer(self, model: Any, variant: str, args: Any) -> Any:
        """The Trainer of a run, with LayerDrop if asked."""
        from ..compression import LayerDropCallback

        more = {"callbacks": [LayerDropCallback(args.layer_drop)]} if args.layer_drop else {}
        return self.plain_trainer(model, variant, args, **more)

    def look(self) -> None:
        """Count the knowledge that is in the text; the checkpoint's own graph counts too."""
        self.variants = (TEXT_ONLY,)
        if getattr(self.tokenizer, "kg", None) is None:
            return
        self.variants = (WITH, WITHOUT) if self.knowledge.baseline else (WITH,)
        self.found = {split: knowledge_found(self.splits.rows(split, WITH).inputs) for split in self.splits.examples}
        for split, found in self.found.items():
            share, branches = 100 * found["rows_with_knowledge"], found["branches_per_row"]
            logger.info("%.0f %% of the %s rows have knowledge, %.1f branches a row", share, split, branches)
        if not self.found["train"]["branches_per_row"]:
            raise ValueError(
                f"`kg` = {self.knowledge.kg} has no word of the training data, so it would teach nothing. Use a graph "
                "of the same language and domain."
            )

    def encode(self, examples: Sequence[Any], variant: str = "") -> Any:
        options = {"kg": None} if variant == WITHOUT else {}
        return self.task.encode(examples, self.tokenizer, self.data_args.max_seq_length, **options)

    def results(self, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """What `results.json` says; `knowledge`, how much of it was found in the text of each split."""
        return super().results(runs) | ({"knowledge": self.found} if self.found else {})

    def card(self, results: dict[str, Any]) -> dict[str, Any]:
        given = super().card(results)
        if self.knowledge.kg:
            graphs = ", ".join(Path(file).name for file in self.knowledge.kg)
            given["training"] = {"knowledge graphs": graphs, "max_entities": self.knowledge.max_entities}
        layers = {"layers kept": self.training_args.layer_keep, "LayerDrop": self.training_args.layer_drop}
        given["training"] |= {name: value for name, value in layers.items() if value}
        if self.found:
            given["data"] = {
                "branches per row": {split: found["branches_per_row"] for split, found in self.found.items()}
            }
        return given


def knowledge_found(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """How much knowledge is in tokenised rows: worth a look before a gain is expected."""
    branches = [
        {pair for pair in zip(row["word_index"], row["branch_id"], strict=True) if pair[1] > 0} for row in rows
    ]
    return {
        "rows_with_knowledge": sum(map(bool, branches)) / len(rows),
        "branches_per_row": sum(map(len, branches)) / len(rows),
        "knowledge_tokens_per_row": sum(number > 0 for row in rows for number in row["branch_id"]) / len(rows),
    }
