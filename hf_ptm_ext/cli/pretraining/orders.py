"""Objectives about order: XLNet predicts tokens in any, StructBERT puts them into theirs."""

import math
from typing import Any

from transformers import AutoModelForPreTraining

from ...collators import DataCollatorForPermutationLanguageModeling, DataCollatorForWordOrder
from .masking import Masking


class WordOrder(Masking):
    """StructBERT's: shuffled trigrams beside masked tokens; its sentences are `--sentence_pairs structure`."""

    name = "word_order"
    description = "Pre-trained by hf-ptm-ext as StructBERT is: masked tokens, and shuffled ones back in their order."
    family = "bert"
    terms = {"mlm": "masked, shuffled"}
    collator_class = DataCollatorForWordOrder
    given = (*Masking.given, "shuffle_prob", "shuffle_size")

    def collator_options(self, counts: Any) -> dict[str, Any]:
        """BERT's number of masked tokens."""
        return {"budget": "exact"}

    def budgets(self) -> dict[str, int]:
        """The number of labels, with those of shuffled n-grams: no two overlap."""
        room, size = self.data_args.tokens_of_row, self.options.shuffle_size
        shuffled = min(math.ceil(self.options.shuffle_prob * room) * size, room)
        return {"label_budget": super().budgets()["label_budget"] + 8 * -(-shuffled // 8)}


class Permutations(Masking):
    """XLNet's: targets are predicted one after the other, in an order that is drawn for each row."""

    name, family = "permutation", "xlnet"
    description = "Pre-trained by hf-ptm-ext as XLNet is: tokens are predicted in a random order."
    head = "XLNet's permutation language model"
    pairs = False
    terms = {"mlm": "permuted tokens"}
    defaults = {"mlm_probability": 1 / 6}
    collator_class = DataCollatorForPermutationLanguageModeling
    given = ("mlm_probability", "max_ngram_size", "whole_words")

    def check(self) -> None:
        """Refuse arguments that do not go together."""
        super().check()
        if self.data_args.pack_rows:
            raise ValueError(f"`pack_rows` must be off with objective {self.name}: XLNet keeps no sequences apart.")

    def check_config(self, config: Any) -> None:
        """Refuse what is no XLNet."""
        if config.model_type != "xlnet":
            raise ValueError(f"Objective {self.name} trains XLNet models, got a {config.model_type} model.")

    def load(self) -> Any:
        """Load or make the model."""
        return self.upstream(AutoModelForPreTraining, self.check_config)

    def collator_options(self, counts: Any) -> dict[str, Any]:
        """What the words are."""
        return {"word_boundaries": self.options.words}
