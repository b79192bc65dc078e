"""What the pre-training job asks of an objective.

To add one: write a subclass of `Objective` (of `Masking` for hidden tokens of any encoder, of `Restoring` for
encoder-decoders) in a file of this folder, and name it in `OBJECTIVES` (`__init__.py`) and in `OBJECTIVE_NAMES`
(`pretrain_arguments.py`). Options go into `ObjectiveArguments`, and into its `of` if they are of one objective alone.

| it says | by |
| --- | --- |
| what the card and the Hub are told | `name`, `description`, `template`, `head`, `pipeline_tag` |
| which model it trains | `load`, mostly `self.upstream(AutoModelFor..., check)` for classes of transformers |
| parameters and terms around that model | `wrap`: an `AuxiliaryObjective`, and `trainer_class`, its Trainer; what is |
| | saved is the plain model, with these parameters beside it, from where a next run takes them |
| what the printed table calls its terms | `terms`: name of the term -> words, for those that `TERMS` lacks |
| its rows | `rows` (all of them), `keep` and `add_words` (each); of two texts `pairs`, `pair_rule` or another |
| | builder, `pairs_of`, and `pair_label`, their column |
| its masks | `collator_class`, `given` (the options it takes), `collator_options`; `budgets`, its fixed sizes |
| its own defaults | `defaults`: option -> value, of options that are `None` unless given |
| what it refuses | `check`, before anything is read |
| further folders and files | `processors`; `models_beside` of the wrapper |

For terms of several parts to be exact over an update, the wrapper's forward takes `num_items_in_batch` and
`target_counts`, and its Trainer names the label columns in `target_columns`; `evaluation_sums` gives sums per term.
"""

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from ...collators import DataCollatorWithNgrams
from ...data import (
    PieceWordIds,
    RowPacker,
    SpecialTokens,
    encode_documents,
    jieba_segmenter,
    pretraining_dataset,
    special_tokens_of,
)
from ...data.bad_rows import SKIP
from ...data.packing import FULL_SENTENCES
from ...data.sentence_pairs import NEXT_SENTENCE, PairRule, SentencePair, TokenDocument
from ...trainers import PreTrainingTrainer
from ...trainers.auxiliary import load_beside
from ..arguments import ModelArguments
from ..console import bar
from ..families import takes, upstream_model
from ..pretrain_arguments import DataArguments, ObjectiveArguments
from ..pretrain_data import trained_tokenizer

logger = logging.getLogger(__name__)

# Of options that have another default in some objective.
DEFAULTS = {"mlm_probability": 0.15, "mask_replace_prob": 0.8, "random_replace_prob": 0.1}
PARALLEL = ("source_column", "target_column", "target_train_file", "target_validation_file")


def long_enough(row: dict[str, list[int]], shortest: int) -> bool:
    """Whether a row has so many tokens."""
    return len(row["input_ids"]) >= shortest


def weights_of(option: str, text: str, names: Sequence[str], kind: str, hint: str = "") -> dict[str, float]:
    """Name -> weight, of `basic=1,phrase=2`."""
    try:
        found = {name: float(weight) for name, weight in (part.split("=") for part in text.split(",") if part)}
    except ValueError as error:
        raise ValueError(f"`{option}` must give weights such as {names[0]}=1,{names[-1]}=2, got {text!r}.") from error
    unknown = sorted(set(found) - set(names))
    if unknown or any(not 0 <= weight < math.inf for weight in found.values()) or not sum(found.values()):
        raise ValueError(
            f"`{option}` must give {kind} among {', '.join(names)} weights that are not negative and not all 0, got "
            f"{text!r}.{hint}"
        )
    return found


class Objective(ABC):
    """An objective: what it reads, which model it trains, and what its collator hides.

    Its attributes: `name`, of the option `objective`; `description`, of the card; `template`, of the card (`None`: the
    family's, which speaks of its own objective), and `head`, what it calls the model's; `pipeline_tag`, the Hub's;
    `family`, of a new model; `term`, what the loss of the labels is called; `denoises`, whether the labels are more
    than the hidden tokens; `hides`, whether tokens are hidden at all; `pairs`, whether rows are of two segments
    (`None`: if asked), and `pair_label`, the column that says how these stand to each other; `parallel`, whether it
    reads sentences with translations; `columns`, those with a row's tokens; `collator_class`, what hides them, and
    `given`, the options that it takes; `defaults`, of options that are `None` unless given; `trainer_class`; `terms`,
    what the printed table calls further terms.
    """

    name: ClassVar[str]
    description: ClassVar[str]
    template: ClassVar[str | None] = "encoder"
    head: ClassVar[str] = "a masked-language-model head"
    pipeline_tag: ClassVar[str] = "fill-mask"
    family: ClassVar[str] = "spanbert"
    term: ClassVar[str] = "mlm"
    denoises: ClassVar[bool] = False
    hides: ClassVar[bool] = True
    pairs: ClassVar[bool | None] = False
    pair_variant: ClassVar[str] = "bert"
    parallel: ClassVar[bool] = False
    columns: ClassVar[Sequence[str]] = ("input_ids",)
    pair_label: ClassVar[str] = "next_sentence_label"
    terms: Mapping[str, str] = {}
    trainer_class: type[PreTrainingTrainer] = PreTrainingTrainer
    defaults: ClassVar[Mapping[str, float]] = {}
    collator_class: ClassVar[Any]
    given: ClassVar[Sequence[str]] = ("mlm_probability", "mask_replace_prob", "random_replace_prob")
    tokenizer: Any  # set by `prepare`
    model: Any  # set by `build`

    def __init__(self, model_args: ModelArguments, data_args: DataArguments, options: ObjectiveArguments):
        self.model_args, self.data_args, self.options = model_args, data_args, options
        for name, value in (DEFAULTS | dict(self.defaults)).items():
            if getattr(options, name) is None:
                setattr(options, name, value)

    def check(self) -> None:
        """Complete the arguments, and refuse those that do not go together, before anything is read."""
        data, options = self.data_args, self.options
        options.check()
        if self.model_args.chosen_family is None or self.pairs:
            self.model_args.family = self.family
        if not self.parallel and any(getattr(data, name) is not None for name in PARALLEL):
            raise ValueError(f"{', '.join(f'`{name}`' for name in PARALLEL)} name parallel text: set --objective tlm.")
        if not self.parallel and data.on_bad_rows == SKIP:
            raise ValueError(
                f"`on_bad_rows` = {SKIP} is for rows of parallel text (--objective tlm), got objective {self.name}, "
                "which reads documents."
            )
        if self.pairs is False and options.pair_kind is not None:
            raise ValueError(
                "`sentence_pairs` and `next_sentence_prediction` go with objectives that hide tokens of an encoder, "
                f"got {self.name}."
            )
        if self.pairs and options.pair_kind not in (None, NEXT_SENTENCE):
            raise ValueError(f"`sentence_pairs` = {options.pair_kind} is none of objective {self.name}: leave it out.")
        options.next_sentence_prediction |= bool(self.pairs)
        streamed = type(self).rows is Objective.rows and type(self).pairs_of is Objective.pairs_of
        if data.streaming and options.pair_kind is not None and not streamed:
            raise ValueError(f"Objective {self.name} makes its pairs of all documents at once: set streaming off.")
        if data.block_mode == FULL_SENTENCES and (options.pair_kind is not None or self.denoises or self.parallel):
            made = "a target of each row" if self.denoises and not self.parallel else "rows of two segments"
            raise ValueError(
                f"`block_mode` = {data.block_mode} is for rows of one segment whose tokens are hidden, and objective "
                f"{self.name} makes {made}: leave it out."
            )

    # ---- tokenizer and rows ----

    def train_tokenizer(self, documents: Any) -> Any:
        """A tokenizer of the documents, with what the objective adds to it."""
        return self.fit(trained_tokenizer(self.data_args, documents))

    def fit(self, tokenizer: Any) -> Any:
        """Give a tokenizer that was trained here what the objective needs."""
        return tokenizer

    def own_rows(self, documents: Any, args: Any) -> Any:
        """Rows that are no blocks of documents; `None` for those that are."""
        return None

    def prepare(self, tokenizer: Any) -> None:
        """Take the tokenizer, and read what else the rows are made with."""
        self.tokenizer = tokenizer

    @property
    def processors(self) -> list[Any]:
        """What is saved beside the model."""
        return [self.tokenizer]

    @cached_property
    def specials(self) -> SpecialTokens:
        """The special tokens around a text or a pair."""
        return special_tokens_of(self.tokenizer)

    @property
    def keep(self) -> Any:
        """Which rows are trained on; `None` for all."""
        return None

    @cached_property
    def add_words(self) -> Any:
        """Adds the words of the segmenter to a row, if there is one."""
        if self.options.segmenter is None:
            return None
        return PieceWordIds(self.tokenizer, jieba_segmenter())

    def rows(self, documents: Any, seed: int) -> Any:
        """All rows of the documents, as a `datasets.Dataset`."""
        from datasets import Dataset

        if self.options.pair_kind is not None:
            rows = Dataset.from_list(self._segment_pairs(documents, seed))
        else:
            length, packing = self.data_args.max_seq_length, self.data_args.packing
            rows = pretraining_dataset(documents, self.tokenizer, max_seq_length=length, seed=seed, **packing)
        rows = rows if self.keep is None else rows.filter(self.keep)
        return rows if self.add_words is None else rows.map(self.add_words)

    def _segment_pairs(self, documents: Any, seed: int) -> list[dict[str, Any]]:
        """Two segments with `pair_label`."""
        encoded = list(encode_documents(bar(documents, "documents"), self.tokenizer))
        longest = self.data_args.max_seq_length - self.specials.pair_count
        pairs = self.pairs_of(encoded, longest, np.random.default_rng(seed))
        return self.side_by_side([pair.features(self.specials, self.pair_label) for pair in pairs])

    def side_by_side(self, pairs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The pairs as they are, or packed into rows."""
        if not self.data_args.pack_rows:
            return pairs
        most = {"max_sequences": self.data_args.sequences_of_row}
        packer = RowPacker(self.data_args.tokens_of_row, self.tokenizer.pad_token_id, **most)
        return [row for pair in pairs for row in packer.add(pair)] + packer.flush()

    def pairs_of(
        self, documents: Sequence[TokenDocument], max_tokens: int, generator: np.random.Generator
    ) -> Iterator[SentencePair]:
        """Pairs of segments of at most so many tokens, out of documents of token ids."""
        return self.pair_rule.pairs(documents, max_tokens, generator)  # type: ignore[union-attr]

    @property
    def pair_rule(self) -> PairRule | None:
        """What pairs rows are; `None` for rows of one segment."""
        kind, single = self.options.pair_kind, self.options.single_sentences
        return None if kind is None else PairRule(kind, variant=self.pair_variant, single_sentences=single)

    # ---- model ----

    def upstream(self, auto_class: Any, check: Any = lambda config: None, **fields: Any) -> Any:
        """A checkpoint or a new model under an auto class of transformers; a new one's config is told `fields`."""
        return upstream_model(
            self.model_args, auto_class, self.tokenizer, self.data_args.max_seq_length, check, **fields
        )

    def wrap(self, model: Any) -> Any:
        """What is trained: the model itself, or an `AuxiliaryObjective` around it."""
        return model

    @abstractmethod
    def load(self) -> Any:
        """Load or make the model."""

    def build(self) -> Any:
        """Load or make `model`, and refuse rows that it cannot take; gives what is trained, see `wrap`."""
        data, self.model = self.data_args, self.load()
        trained = self.wrap(self.model)
        positions = getattr(self.model.config, "max_position_embeddings", None)
        if positions is not None and 0 < positions < data.max_seq_length:  # XLNet, which has no table, says -1
            raise ValueError(
                f"`max_seq_length` must not exceed the model's {positions} positions, got {data.max_seq_length}."
            )
        if data.pack_rows and not takes(trained, "sequence_ids"):
            if takes(self.model, "sequence_ids"):
                raise ValueError(f"`pack_rows` must be off with objective {self.name}, got {data.pack_rows}.")
            raise ValueError(
                f"`pack_rows` needs a model that keeps the sequences of a row apart, and {type(self.model).__name__} "
                "does not take `sequence_ids`. Leave it out, or train a family of this package (`hf-ptm-ext systems`)."
            )
        name = self.model_args.model_name_or_path
        if trained is not self.model and name is not None and trained.auxiliary_names():
            found = load_beside(trained, name, self.model_args.model_revision)
            logger.info("%s beside `model_name_or_path` = %s.", "Parameters go on" if found else "None fit", name)
        return trained

    # ---- collator ----

    def collator_options(self, counts: Any) -> dict[str, Any]:
        """What else the collator is told."""
        return {}

    def budgets(self) -> dict[str, int]:
        """The fixed sizes of a batch of rows of a fixed length, beside that length."""
        return {}

    def collator(self, seed: int, counts: Any, fixed_shapes: bool = False) -> Any:
        """The collator; `counts` are those of each token of the training text."""
        length = self.data_args.tokens_of_row
        options = {"tokenizer": self.tokenizer, "seed": seed, **self.options.given(*self.given)}
        if fixed_shapes:
            options |= {"pad_to_multiple_of": length, **self.budgets()}
        collator = self.collator_class(**options, **self.collator_options(counts))
        if not hasattr(self.tokenizer, "ngram_inputs"):
            return collator
        # ZEN: n-grams are those of the masked text.
        return DataCollatorWithNgrams(collator, self.tokenizer, length, fixed_width=fixed_shapes)

    def alike(self, rows: Sequence[Any]) -> list[Sequence[Any]]:
        """Rows that may stand in one batch."""
        return [rows]

    # ---- training ----

    def trainer(self, **options: Any) -> Any:
        """The Trainer, told model, arguments, rows and collators."""
        return self.trainer_class(**options)

    def baselines(self, trainer: Any, rows: Any) -> dict[str, float]:
        """What the majority token and the unigram distribution reach on the evaluation targets of each term."""
        targets: dict[str, list[np.ndarray]] = {}
        for batch in trainer.get_eval_dataloader():
            for term, column in ((self.term, "labels"), ("sbo", "span_labels")):
                if column in batch:
                    values = batch[column].cpu().numpy()
                    targets.setdefault(term, []).append(values[values != -100])
        metrics = {}
        for term, parts in targets.items():
            joined = np.concatenate(parts)
            if joined.size:
                metrics[f"baseline_{term}_accuracy"] = rows.baseline.accuracy(joined)
                metrics[f"baseline_{term}_loss"] = rows.baseline.cross_entropy(joined)
        return metrics
