"""Objectives of lexicons: SentiLARE's words of sentiment, SenseBERT's supersenses, LIBERT's related words."""

from abc import abstractmethod
from functools import cached_property, partial
from typing import Any

import numpy as np
from transformers import AutoModelForMaskedLM

from ...collators import (
    DataCollatorForLexicalRelations,
    DataCollatorForMaskedLanguageModeling,
    DataCollatorForSentimentMasking,
    DataCollatorForSupersenseMasking,
    LexiconColumns,
    token_supersenses,
)
from ...data import (
    SUPERSENSES,
    SentimentWords,
    SentiWordNet,
    SupersenseTable,
    held_out_split,
    lexical_relation_rows,
    mine_lexical_negatives,
    nltk_tagger,
    read_lexical_constraints,
    read_opinion_lexicon,
    read_supersense_vocab,
)
from ...data.lexicons import NEUTRAL
from ...data.sentence_pairs import NEXT_SENTENCE
from ...data.word_vectors import WordVectors
from ...metrics import UnigramBaseline
from ...trainers import (
    AuxiliaryObjectiveTrainer,
    LexicalRelationModel,
    LexicalRelationTrainer,
    SentiLareModel,
    SupersenseModel,
)
from ..console import phase
from .masking import Masking


def in_turn(first: Any, second: Any, row: Any) -> Any:
    """Change a row by two functions, one after the other."""
    return second(first(row))


class Lexical(Masking):
    """What both have: a lexicon that is read once, its columns in every row, any masked language model."""

    family = "bert"
    pairs = False
    trainer_class = AuxiliaryObjectiveTrainer
    lexicon: Any  # set by `prepare`

    @abstractmethod
    def read_lexicon(self) -> Any:
        """Read what the options name."""

    def prepare(self, tokenizer: Any) -> None:
        """Take the tokenizer, and read the lexicon."""
        super().prepare(tokenizer)
        with phase("reading the lexicon"):
            self.lexicon = self.read_lexicon()

    @cached_property
    def add_words(self) -> Any:
        """Adds the words of the segmenter, if there is one, and what the lexicon says of the words."""
        columns = LexiconColumns(self.tokenizer, self.lexicon, self.options.words)
        segmented = super().add_words
        return columns if segmented is None else partial(in_turn, segmented, columns)

    def collator_options(self, counts: Any) -> dict[str, Any]:
        """What the words are."""
        return {"word_boundaries": self.options.words}

    def load(self) -> Any:
        """Load or make the masked language model, of any architecture."""
        return self.upstream(AutoModelForMaskedLM)


class SentimentMasking(Lexical):
    """SentiLARE's: the saved model is a plain masked language model, its tables and heads beside it."""

    name = "sentilare"
    description = "Pre-trained by hf-ptm-ext as SentiLARE is: masked words, their parts of speech and polarity."
    terms = {"pos_tag": "parts of speech", "word_polarity": "polarity of words"}
    looked_up = {"word_polarity_ids": NEUTRAL}
    collator_class = DataCollatorForSentimentMasking
    given = (*Masking.given, "sentiment_probability")

    def check(self) -> None:
        """Refuse arguments that do not go together."""
        super().check()
        options = self.options
        words, senses = options.opinion_words, options.sentiwordnet
        if (words is None) == (senses is None) or (words is not None and len(words) != 2):
            raise ValueError(
                f"`opinion_words` must name two files, of positive and of negative words, or `sentiwordnet` one for "
                f"objective {self.name}, got {words} and {senses}."
            )
        if senses is not None and options.tagger is None:
            raise ValueError(f"`sentiwordnet` = {senses} knows words by their part of speech: set --tagger nltk.")

    def read_lexicon(self) -> SentimentWords:
        """Opinion words or SentiWordNet, with a tagger if one is named."""
        options = self.options
        tagger = nltk_tagger() if options.tagger == "nltk" else None
        if options.sentiwordnet is not None:
            return SentimentWords(SentiWordNet.read(options.sentiwordnet), tagger)
        positive, negative = options.opinion_words or ("", "")
        return SentimentWords(read_opinion_lexicon(positive, negative, encoding=self.data_args.encoding), tagger)

    def budgets(self) -> dict[str, int]:
        """Slots for labels, whose number is not fixed: far more than rows have of them."""
        options, length = self.options, self.data_args.tokens_of_row
        share = max(float(options.mlm_probability or 0), options.sentiment_probability)
        return {"label_budget": min(length, 8 * round((share + 0.2) * length / 8) + 8)}

    def wrap(self, model: Any) -> Any:
        """The model with SentiLARE's tables and heads."""
        return SentiLareModel(model)


class SupersenseMasking(Lexical):
    """SenseBERT's: the saved model is a plain masked language model, the senses' table beside it."""

    name = "sensebert"
    description = "Pre-trained by hf-ptm-ext as SenseBERT is: masked words and their supersenses."
    terms = {"supersense": "supersenses"}
    defaults = {"mask_replace_prob": 0.9, "random_replace_prob": 0.0}
    looked_up = SupersenseTable.unknown
    collator_class = DataCollatorForSupersenseMasking

    def check(self) -> None:
        """Refuse arguments that do not go together."""
        super().check()
        if self.options.supersenses is None:
            raise ValueError(
                f"`supersenses` must name WordNet's folder, or a file of words and supersenses, for objective "
                f"{self.name}, got {self.options.supersenses}."
            )

    def read_lexicon(self) -> SupersenseTable:
        """WordNet, or a table of words."""
        names = self.options.supersense_vocab
        return SupersenseTable.read(
            str(self.options.supersenses), SUPERSENSES if names is None else read_supersense_vocab(names)
        )

    def wrap(self, model: Any) -> Any:
        """The model with SenseBERT's table."""
        senses = token_supersenses(self.tokenizer, self.lexicon)
        weight = self.options.supersense_loss_weight
        return SupersenseModel(model, senses, len(self.lexicon.names), supersense_loss_weight=weight)


class LexicalRelations(Masking):
    """LIBERT's: masked text and pairs of words take turns; the saved model is plain, the classifier beside it."""

    name, family = "libert", "bert"
    description = "Pre-trained by hf-ptm-ext as LIBERT is: masked text, and related words told from others, in turn."
    terms = {"nsp": "next sentence", "relation": "related words"}
    trainer_class = LexicalRelationTrainer
    collator_class = DataCollatorForMaskedLanguageModeling
    relations: dict[str, list[Any]]  # rows of pairs for training and evaluation, set by `prepare`

    def check(self) -> None:
        """Refuse arguments that do not go together."""
        super().check()
        options, kind = self.options, self.options.pair_kind
        for name in ("lexical_constraints", "word_vectors"):
            if getattr(options, name) is None:
                raise ValueError(f"`{name}` must be named for objective {self.name}, got {getattr(options, name)}.")
        if kind not in (None, NEXT_SENTENCE):
            raise ValueError(f"`sentence_pairs` = {kind} is none of objective {self.name}: {NEXT_SENTENCE} is.")
        if self.data_args.streaming:
            raise ValueError(
                f"Objective {self.name} takes turns with pairs of words: set streaming off, got "
                f"{self.data_args.streaming}."
            )

    def prepare(self, tokenizer: Any) -> None:
        """Take the tokenizer, read the pairs and find those that are near and not related."""
        super().prepare(tokenizer)
        options, fraction = self.options, self.data_args.validation_fraction
        with phase("reading the pairs of words"):
            pairs = read_lexical_constraints(*(options.lexical_constraints or ()), encoding=self.data_args.encoding)
            names = {word for pair in pairs for term in pair for word in term.split()}
            vectors = WordVectors.load(str(options.word_vectors), restrict_to=names | {name.title() for name in names})
            split: Any = held_out_split(pairs, fraction) if fraction and len(pairs) > 1 else (pairs, [])
            parts: dict[str, list[Any]] = dict(zip(("train", "evaluation"), split, strict=True))
            self.relations = {
                part: lexical_relation_rows(found, mine_lexical_negatives(found, vectors, known=pairs))
                for part, found in parts.items()
                if found
            }

    def wrap(self, model: Any) -> Any:
        """The model with the classifier of pairs."""
        return LexicalRelationModel(model)

    def collator(self, seed: int, counts: Any, fixed_shapes: bool = False) -> Any:
        """That of the text, or of pairs."""
        text = super().collator(seed, counts, fixed_shapes)
        return DataCollatorForLexicalRelations(
            self.tokenizer, text, self.data_args.max_seq_length, fixed_length=fixed_shapes
        )

    def trainer(self, **options: Any) -> Any:
        """The Trainer, told the pairs too."""
        held_out = self.relations.get("evaluation") if options.get("eval_dataset") is not None else None
        return super().trainer(**options, relation_rows=self.relations["train"], relation_eval_rows=held_out)

    def baselines(self, trainer: Any, rows: Any) -> dict[str, float]:
        """As others; of pairs what the share of negatives reaches."""
        metrics = super().baselines(trainer, rows)
        held_out = self.relations.get("evaluation")
        if held_out:
            counts = np.bincount([row["relation_label"] for row in self.relations["train"]], minlength=2)
            targets, guess = np.array([row["relation_label"] for row in held_out]), UnigramBaseline(counts)
            metrics["baseline_relation_accuracy"] = guess.accuracy(targets)
            metrics["baseline_relation_loss"] = guess.cross_entropy(targets)
        return metrics
