"""ELECTRA's objective: a generator fills hidden tokens, the model tells which ones it replaced."""

from typing import Any

from transformers import AutoModelForPreTraining

from ...collators import DataCollatorForMaskedLanguageModeling
from ...trainers.replaced_token_detection import (
    ElectraForReplacedTokenDetection,
    ReplacedTokenDetectionTrainer,
    make_electra_generator,
)
from ..checkpoint_names import check_name
from .masking import Masking


class ReplacedTokens(Masking):
    """ELECTRA's: the saved model is the plain discriminator, with the folder `generator` inside its own."""

    name = family = "electra"
    description = "Pre-trained by hf-ptm-ext as ELECTRA is: which tokens has a small generator replaced?"
    head = "a head that tells replaced tokens"
    pipeline_tag = "feature-extraction"
    pairs = False
    terms = {
        "rtd": "replaced or not",
        "replaced": "of the replaced",
        "flagged": "of those called so",
    }
    trainer_class = ReplacedTokenDetectionTrainer
    defaults = {"mask_replace_prob": 0.85, "random_replace_prob": 0.0}
    collator_class = DataCollatorForMaskedLanguageModeling

    def collator_options(self, counts: Any) -> dict[str, Any]:
        """Whether a token may be drawn twice, and the most draws, by the length of a row as in ELECTRA's code."""
        most = int((float(self.options.mlm_probability or 0) + 0.005) * self.data_args.max_seq_length)
        budget = "electra" if self.options.with_replacement else "exact"
        return {"budget": budget, "max_predictions": max(most, 1)}

    def check(self) -> None:
        """Refuse arguments that do not go together, and a generator that can be none."""
        super().check()
        if self.options.generator_name_or_path is not None:
            check_name("generator_name_or_path", self.options.generator_name_or_path)

    def check_config(self, config: Any) -> None:
        """Refuse what is no ELECTRA."""
        if config.model_type != "electra":
            raise ValueError(f"Objective {self.name} trains ELECTRA models, got a {config.model_type} model.")

    def load(self) -> Any:
        """Load or make the discriminator."""
        return self.upstream(AutoModelForPreTraining, self.check_config)

    def wrap(self, model: Any) -> Any:
        """The discriminator with its generator: the named one, a new one, or that beside a checkpoint of this job."""
        options = self.options
        given = options.generator_name_or_path
        generator = given or make_electra_generator(model, options.generator_size, options.generator_layers)
        weights = options.given("generator_loss_weight", "discriminator_loss_weight")
        return ElectraForReplacedTokenDetection(model, generator, **weights)
