"""InfoWord's objective: hidden tokens, and sentences that are told by their n-grams."""

from typing import Any

from transformers import AutoModelForMaskedLM

from ...collators import DataCollatorForInfoWord
from ...trainers import InfoWordModel, InfoWordTrainer
from .masking import Masking, TokenMasking


class InfoWord(TokenMasking):
    """InfoWord's: the saved model is a plain masked language model."""

    name, family = "infoword", "bert"
    description = "Pre-trained by hf-ptm-ext as InfoWord is: masked tokens, and sentences told by their n-grams."
    pairs = False
    terms = {"dim": "own n-grams"}
    trainer_class = InfoWordTrainer
    collator_class = DataCollatorForInfoWord
    given = (*Masking.given, "sample_alpha", "min_ngram_length", "max_ngram_length", "ngrams_per_row")

    def collator_options(self, counts: Any) -> dict[str, Any]:
        """How many tokens are hidden, and by which counts."""
        return {**super().collator_options(counts), "budget": self.options.budget or "exact"}

    def load(self) -> Any:
        """Load or make the masked language model, of any architecture."""
        return self.upstream(AutoModelForMaskedLM)

    def wrap(self, model: Any) -> Any:
        """The model with InfoWord's term."""
        options = self.options.given("dim_loss_weight", "temperature", "gather_negatives")
        return InfoWordModel(model, **options)
