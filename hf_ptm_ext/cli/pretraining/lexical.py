"""Objectives of lexicons: SentiLARE's words of sentiment, SenseBERT's supersenses."""

from abc import abstractmethod
from functools import cached_property, partial
from typing import Any

from transformers import AutoModelForMaskedLM

from ...collators import (
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
    nltk_tagger,
    read_opinion_lexicon,
    read_supersense_vocab,
)
from ...trainers import AuxiliaryObjectiveTrainer, SentiLareModel, SupersenseModel
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
        return SentimentWords(read_opinion_lexicon(positive, negative), tagger)

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
