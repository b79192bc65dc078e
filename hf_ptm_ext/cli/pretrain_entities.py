"""Entities in the pre-training job: a table of vectors, a dictionary that finds their names, rows with entities."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..data import encode_entity_documents, entity_pairs, special_tokens_of
from ..models.ernie_thu.entity_sources_ernie_thu import read_titles
from ..models.ernie_thu.entity_table_ernie_thu import EntityTable
from ..models.ernie_thu.linker_ernie_thu import DictionaryLinker
from ..models.ernie_thu.processing_ernie_thu import ErnieThuProcessor
from .pretrain_arguments import ObjectiveArguments

# Name of the table inside the trained folder, where the config points to.
TABLE_FILE = "entity_table.safetensors"


@dataclass
class Entities:
    """What the job knows about entities.

    Args:
        table: the vectors.
        processor: tokenizer, vocabulary and dictionary.
    """

    table: EntityTable
    processor: ErnieThuProcessor

    def place_in(self, model: Any) -> None:
        """Give the model the table, which its config names as a file of its folder, where saving writes it."""
        model.set_entity_table(self.table, source={"path": TABLE_FILE})

    def save(self, folder: Path) -> None:
        """Write the processor into the trained model's folder."""
        self.processor.save_pretrained(folder)


def open_entities(objective: ObjectiveArguments, tokenizer: Any) -> Entities | None:
    """Open table and dictionary; `None` for objectives without entities.

    Args:
        objective: names the files.
        tokenizer: a fast one.

    Raises:
        ValueError: there are no titles to find entities by.
        FileNotFoundError: a file is missing.
    """
    if objective.objective != "ernie_thu":
        return None
    path = Path(str(objective.entity_table))
    table = EntityTable.from_file(path)
    if objective.entity_titles is not None:
        vocabulary = table.vocabulary
        pairs = read_titles(objective.entity_titles)
        rows = table.rows([name for _, name in pairs]) if vocabulary is not None else np.zeros(len(pairs))
        linker = DictionaryLinker(
            [pair for pair, row in zip(pairs, rows, strict=True) if row], ignore_case=objective.ignore_title_case
        )
    elif table.vocabulary is not None and table.vocabulary.num_titles:
        linker = DictionaryLinker.from_vocabulary(table.vocabulary, ignore_case=objective.ignore_title_case)
    else:
        raise ValueError(
            f"`entity_titles` must be named: the entity table {path} has no titles to find its entities in text by. "
            "The file has a title, a tab and an entity on each line."
        )
    if not len(linker):
        raise ValueError(f"`entity_titles` = {objective.entity_titles} names none of the entities of {path}.")
    processor = ErnieThuProcessor(tokenizer, entity_vocab=table, linker=linker, on_dropped_entity="ignore")
    return Entities(table, processor)


def entity_rows(
    documents: Iterable[Sequence[str]], entities: Entities, max_seq_length: int, min_entities: int, seed: int
) -> list[dict[str, Any]]:
    """Rows of two segments with entities and `next_sentence_label`, as ERNIE-THU's own data.

    Args:
        documents: documents of sentences.
        entities: finds and places the entities.
        max_seq_length: most tokens of a row.
        min_entities: rows with fewer entities are left out.
        seed: of the pairs.

    Raises:
        ValueError: no row is left.
    """
    linker, processor = entities.processor.linker, entities.processor
    annotated = (list(zip(document, linker(list(document)), strict=True)) for document in documents)
    rows = entity_pairs(
        list(encode_entity_documents(annotated, processor)),
        max_seq_length,
        special_tokens_of(processor.tokenizer),
        np.random.default_rng(seed),
        min_entities=min_entities,
    )
    kept = list(rows)
    if not kept:
        raise ValueError(
            f"`min_entities` = {min_entities} leaves no row. Lower it, raise `max_seq_length`, or give more titles."
        )
    return kept


__all__ = ["TABLE_FILE", "Entities", "entity_rows", "open_entities"]
