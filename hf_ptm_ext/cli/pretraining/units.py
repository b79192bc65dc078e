"""Baidu's ERNIE 1.0: tokens, phrases of a segmenter, and entities of a dictionary are hidden as wholes."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from ...collators import DataCollatorForErnieMasking
from ...collators.ernie_masking import BASIC
from ...conversion.entity_tables import read_titles
from ...data import PieceWordIds, jieba_segmenter
from ...models.annotations_ernie_thu import DictionaryLinker
from ..console import phase
from .base import weights_of
from .masking import Masking

COLUMNS = {"phrase": "phrase_ids", "entity": "entity_unit_ids"}


class Titles:
    """A segmenter: titles of a dictionary, the longest from the left, are units, and all other characters."""

    def __init__(self, linker: DictionaryLinker):
        self.linker = linker

    def __call__(self, text: str) -> list[str]:
        units, at = [], 0
        for found in self.linker([text])[0]:
            units += [*text[at : found.start], text[found.start : found.end]]
            at = found.end
        return [unit for unit in (*units, *text[at:]) if not unit.isspace()]


class UnitColumns:
    """Adds the column of each level to a row of token ids."""

    def __init__(self, columns: Mapping[str, PieceWordIds]):
        self.columns = columns

    def __call__(self, row: Mapping[str, Any]) -> dict[str, Any]:
        return {**row, **{name: words(row)["word_ids"] for name, words in self.columns.items()}}


NEEDS = "levels", " Phrases need `segmenter`, entities `entity_titles`."


class UnitMasking(Masking):
    """Baidu's ERNIE's: the level of a row's units is drawn."""

    name = family = "ernie"
    description = "Pre-trained by hf-ptm-ext as Baidu's ERNIE 1.0 is: masked tokens, phrases and entities."
    collator_class = DataCollatorForErnieMasking

    def check(self) -> None:
        """Refuse arguments that do not go together."""
        super().check()
        options = self.options
        if not self.levels:
            raise ValueError(
                f"Objective {self.name} hides phrases of `segmenter` or entities of `entity_titles`, got "
                f"{options.segmenter} and {options.entity_titles}. For tokens alone use --objective mlm."
            )
        self.weights()

    @property
    def levels(self) -> dict[str, str]:
        """Level -> its column, of those that the options give units."""
        given = {"phrase": self.options.segmenter, "entity": self.options.entity_titles}
        return {level: COLUMNS[level] for level, source in given.items() if source is not None}

    def weights(self) -> dict[str, Any]:
        """The weights of the levels, and when they change."""
        options, levels = self.options, (BASIC, *self.levels)
        found: dict[str, Any] = {}
        if options.level_weights is not None:
            found["level_weights"] = weights_of("level_weights", ",".join(options.level_weights), levels, *NEEDS)
        if options.level_schedule is not None:
            stages = [stage.partition(":") for stage in options.level_schedule]
            begins = [int(begin) if begin.isdecimal() else -1 for begin, _, _ in stages]
            if begins != sorted(set(begins)) or min(begins, default=-1) < 0:
                raise ValueError(
                    "`level_schedule` must be batches in order, each with weights, such as 0:basic=1 "
                    f"5000:basic=1,phrase=1, got {' '.join(options.level_schedule)}."
                )
            parts = [weights_of("level_schedule", text, levels, *NEEDS) for _, _, text in stages]
            found["schedule"] = tuple(zip(begins, parts, strict=True))
        return found

    @cached_property
    def add_words(self) -> Any:
        """Adds the units of each level to a row."""
        columns = {}
        if "phrase" in self.levels:
            columns[COLUMNS["phrase"]] = PieceWordIds(self.tokenizer, jieba_segmenter())
        if "entity" in self.levels:
            with phase("reading the titles"):
                titles = read_titles(str(self.options.entity_titles))
                # The rows spell what the tokenizer keeps of a text.
                lower = self.options.ignore_title_case or getattr(self.tokenizer, "do_lower_case", False)
                linker = DictionaryLinker(titles, ignore_case=bool(lower))
            columns[COLUMNS["entity"]] = PieceWordIds(self.tokenizer, Titles(linker))
        return UnitColumns(columns)

    def collator_options(self, counts: Any) -> dict[str, Any]:
        """The levels, and how often each is drawn."""
        return {"levels": self.levels, "budget": self.options.unit_budget, **self.weights()}

    def budgets(self) -> dict[str, int]:
        """The number of labels, of which only a budget for each row knows less than all."""
        if self.options.unit_budget == "exact":
            return super().budgets()
        return {"label_budget": 8 * -(-self.data_args.tokens_of_row // 8)}
