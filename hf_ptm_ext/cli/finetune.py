"""`hf-ptm-ext finetune`: fine-tune any encoder for classification, tagging or question answering, by seeds."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..models.concepts_ktnet import ConceptFinder
from ..models.configuration_kbert import POOLINGS
from ..trainers import WeightAverageCallback
from .arguments import CheckpointArguments, SeededArguments, TaskDataArguments, parse_seeded
from .encoder import Encoder
from .options import option
from .ranges import Below1, Size
from .seeded import TaskJob
from .tasks.question_answering import CONCEPTS

logger = logging.getLogger(__name__)

WITH, WITHOUT, TEXT_ONLY = "with kg", "kg=None", "fine-tuned"
WITH_CONCEPTS, WITHOUT_CONCEPTS = "with concepts", "concepts=None"


@dataclass
class FinetuneModelArguments(CheckpointArguments):
    """Which model is fine-tuned."""

    config_overrides: str | None = option(
        None, "Fields of its config, as hidden_dropout_prob=0.2,classifier_dropout=0.3."
    )


@dataclass
class KnowledgeGraphArguments:
    """Knowledge that is put into the text (K-BERT), or given to its tokens (KT-NET)."""

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
    concepts: list[str] | None = option(
        None,
        "Questions: NAME=FILE for each knowledge base, lines word<TAB>concept<TAB>concept...; the model, any of word "
        "pieces, then becomes a KT-NET.",
    )
    concept_vectors: list[str] | None = option(
        None, "Questions: NAME=FILE with the concepts' vectors, lines `concept v1 v2 ...` or an entity table."
    )
    max_concepts: Size = option(20, "Questions: most concepts of a word.")
    freeze_encoder: bool = option(False, "Questions: leave the encoder of a KT-NET as it is (its first stage).")
    baseline: bool = option(True, "With kg or concepts: also train the same model without knowledge, with each seed.")

    def check(self, training: Any) -> None:
        """Refuse values that contradict each other."""
        for name in ("pooling", "use_predicate"):
            if getattr(self, name) is not None and not self.kg:
                raise ValueError(f"`{name}` needs `kg`, got none. Name the graphs, or leave `{name}` out.")
        if self.kg and self.concepts:
            raise ValueError(f"`kg` and `concepts` exclude each other, got {self.kg} and {self.concepts}.")
        if self.concept_vectors and not self.concepts:
            raise ValueError(f"`concept_vectors` needs `concepts`, got none beside {self.concept_vectors}.")


@dataclass
class FinetuneArguments(SeededArguments):
    """Arguments of training, with K-BERT's values (5 epochs, batches of 32, learning rate 2e-5, 10 % warm-up)."""

    num_train_epochs: float = option(5.0, "Passes over the data (K-BERT: 5).")
    layer_keep: str | None = option(
        None, "Layers of the checkpoint that stay: every-other, how many, or numbers from 0 such as 0,2,5."
    )
    layer_drop: Below1 = option(0.0, "LayerDrop: chance of each layer to be left out of an update (paper: 0.2).")
    ema_decay: Below1 = option(
        0.0, "Judge and save a moving average of the weights with this decay (KT-NET: 0.9999; default 0: none)."
    )


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
        self.told: dict[str, Any] = {}

    def model(self, variant: str, args: Any) -> Any:
        """The checkpoint with a head, or a part of its layers."""
        from ..compression import keep_layers

        model, kept = super().model(variant, args), self.training_args.layer_keep
        return model if kept is None else keep_layers(model, kept)

    def trainer(self, model: Any, variant: str, args: Any) -> Any:
        """The Trainer of a run, with LayerDrop and averaged weights if asked."""
        from ..compression import LayerDropCallback

        callbacks: list[Any] = [LayerDropCallback(args.layer_drop)] if args.layer_drop else []
        callbacks += [WeightAverageCallback(args.ema_decay)] if args.ema_decay else []
        return self.plain_trainer(model, variant, args, callbacks=callbacks)

    def look(self) -> None:
        """Count the knowledge that is in the text; the checkpoint's own graph or concepts count too."""
        self.variants = (TEXT_ONLY,)
        if self.encoder.of_concepts:
            self._look_for_concepts()
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

    def _look_for_concepts(self) -> None:
        known = self.encoder.known[0] if self.encoder.concepts else self.encoder.model().concepts
        if known is None:
            logger.warning(
                "%s is a KT-NET without the concepts of words, so it is trained without any: name them by `concepts` "
                "and `concept_vectors`.",
                self.model_args.model_name_or_path,
            )
            return
        self.finder = ConceptFinder(self.tokenizer, known)
        self.told = {"concepts": {base: len(names) for base, names in known.items()}}
        self.variants = (WITH_CONCEPTS, WITHOUT_CONCEPTS) if self.knowledge.baseline else (WITH_CONCEPTS,)
        for split in self.splits.examples:
            rows = [row[CONCEPTS] for row in self.splits.rows(split, WITH_CONCEPTS).inputs]
            share = sum(any(map(len, token)) for row in rows for token in row) / sum(map(len, rows))
            self.found[split] = {"tokens_with_concepts": share}
            logger.info("%.1f %% of the tokens of the %s rows have concepts", 100 * share, split)
        if not self.found["train"]["tokens_with_concepts"]:
            raise ValueError(
                f"`concepts` of {self.told['concepts']} words name none of the training data, so they would teach "
                "nothing. Use those of its language, and an encoder of word pieces."
            )

    def encode(self, examples: Sequence[Any], variant: str = "") -> Any:
        options = {"kg": None} if variant == WITHOUT else {}
        rows = self.task.encode(examples, self.tokenizer, self.data_args.max_seq_length, **options)
        if variant == WITH_CONCEPTS:
            for row in rows.inputs:
                row[CONCEPTS] = self.finder.of_row(row["input_ids"])
        return rows

    def results(self, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """What `results.json` says; `knowledge`, how much of it was found in the text of each split."""
        return super().results(runs) | ({"knowledge": self.found} if self.found else {})

    def card(self, results: dict[str, Any]) -> dict[str, Any]:
        given = super().card(results)
        if self.knowledge.kg:
            graphs = ", ".join(Path(file).name for file in self.knowledge.kg)
            given["training"] = {"knowledge graphs": graphs, "max_entities": self.knowledge.max_entities}
        given["training"] |= self.told | ({"encoder": "frozen"} if self.knowledge.freeze_encoder else {})
        layers = {"layers kept": self.training_args.layer_keep, "LayerDrop": self.training_args.layer_drop}
        layers["average of weights"] = self.training_args.ema_decay
        given["training"] |= {name: value for name, value in layers.items() if value}
        if self.found:
            name = "tokens_with_concepts" if self.encoder.of_concepts else "branches_per_row"
            given["data"] = {name.replace("_", " "): {split: found[name] for split, found in self.found.items()}}
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
