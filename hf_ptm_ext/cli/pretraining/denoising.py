"""Objectives that restore a text: those of encoder-decoders, and XLM's of sentence pairs."""

from functools import partial
from typing import Any, ClassVar

from transformers import AutoModelForMaskedLM, AutoModelForSeq2SeqLM

from ...collators import (
    MASS_VARIANTS,
    DataCollatorForMassPreTraining,
    DataCollatorForSpanCorruption,
    DataCollatorForTextInfilling,
    DataCollatorForTranslationLanguageModeling,
)
from ...conversion.mass import LAYOUT as MASS
from ...data import encode_documents
from ...models.configuration_mass import MassConfig
from ..console import bar
from ..families import takes
from .base import Objective, long_enough

SENTINELS = [f"<extra_id_{number}>" for number in range(100)]


class Restoring(Objective):
    """A text is restored by an encoder-decoder of any architecture.

    Its attributes: `auto_class`, which loads its models; `trains`, what it trains, in words; `needed`, an input of a
    model's forward without which the objective would not be what it says.
    """

    template: ClassVar[str | None] = "denoising"
    pipeline_tag = "text-generation"
    term = "denoising"
    denoises = True
    auto_class: ClassVar[Any] = AutoModelForSeq2SeqLM
    trains: ClassVar[str] = "an encoder-decoder"
    needed: ClassVar[str | None] = None

    def check(self) -> None:
        """Refuse arguments that do not go together."""
        super().check()
        if self.data_args.pack_rows:
            raise ValueError(f"Objective {self.name} makes a target of each row: leave `pack_rows` out.")

    @property
    def keep(self) -> Any:
        """Rows that can be corrupted: two tokens of text, and special ones."""
        return partial(long_enough, shortest=self.specials.single_count + 2)

    def check_config(self, config: Any) -> None:
        """Refuse an encoder where an encoder-decoder is needed, and the reverse."""
        if config.is_encoder_decoder != (self.auto_class is AutoModelForSeq2SeqLM):
            raise ValueError(
                f"Objective {self.name} trains {self.trains}, got a {config.model_type} model. Choose another one."
            )

    def new_fields(self) -> dict[str, Any]:
        """What the config of a new model is told."""
        return {}

    def load(self) -> Any:
        """Load or make the model."""
        built = self.upstream(self.auto_class, self.check_config, **self.new_fields())
        if self.needed is not None and not takes(built, self.needed):
            raise ValueError(
                f"Objective {self.name} gives `{self.needed}`, which {type(built).__name__} does not take. Train a "
                f"{self.family} model."
            )
        return built

    def collator_options(self, counts: Any) -> dict[str, Any]:
        """What the decoder is fed first."""
        return {"decoder_start_token_id": self.model.config.decoder_start_token_id}


class Mass(Restoring):
    """MASS's: the decoder writes fragments that the encoder does not see."""

    name = family = term = "mass"
    description = "Pre-trained by hf-ptm-ext as MASS is: the decoder writes fragments that the encoder does not see."
    template = None
    needed = "decoder_position_ids"
    collator_class = DataCollatorForMassPreTraining
    given = ("mask_replace_prob", "random_replace_prob")

    def fit(self, tokenizer: Any) -> Any:
        """A tokenizer that marks texts as MASS's does."""
        config = MassConfig(max_position_embeddings=tokenizer.model_max_length)
        return MASS.wordpiece_tokenizer(tokenizer.get_vocab(), config, self.data_args.lowercase)

    def collator_options(self, counts: Any) -> dict[str, Any]:
        """The rule of the variant, its share of hidden tokens as asked."""
        return {**MASS_VARIANTS[self.options.mass_variant], **self.options.given("mask_prob")}


class TextInfilling(Restoring):
    """BART's: sentences in another order, and spans behind one mask."""

    name, family = "text_infilling", "bart"
    description = "Pre-trained by hf-ptm-ext as BART is: shuffled sentences and masked spans are restored."
    collator_class = DataCollatorForTextInfilling
    given = ("mask_ratio", "poisson_lambda", "permute_sentence_ratio", "rotate_ratio")

    def collator_options(self, counts: Any) -> dict[str, Any]:
        """What the words are, and what the decoder is fed first."""
        return {"word_boundaries": self.options.words, **super().collator_options(counts)}


class SpanCorruption(Restoring):
    """T5's: spans are written in place of their sentinels."""

    name, family = "span_corruption", "t5"
    description = "Pre-trained by hf-ptm-ext as T5 is: spans are written in place of their sentinels."
    collator_class = DataCollatorForSpanCorruption
    given = ("noise_density", "mean_noise_span_length")

    def fit(self, tokenizer: Any) -> Any:
        """A tokenizer with sentinels."""
        tokenizer.add_tokens(SENTINELS, special_tokens=True)
        return tokenizer


class TranslationMasking(Restoring):
    """XLM's: hidden tokens of sentences and their translations."""

    name, family, term = "tlm", "xlm", "mlm"
    description = "Pre-trained by hf-ptm-ext as XLM is: masked tokens of sentences and their translations."
    template, pipeline_tag = "encoder", "fill-mask"
    parallel = True
    columns = ("source_ids", "target_ids")
    keep = None
    auto_class = AutoModelForMaskedLM
    trains = "a masked language model with languages, such as XLM"
    needed = "langs"
    collator_class = DataCollatorForTranslationLanguageModeling
    given = (*Objective.given, "sample_alpha")

    def check(self) -> None:
        """Complete the arguments, and refuse those that do not go together."""
        super().check()
        data, languages = self.data_args, self.options.languages or []
        if len(languages) != 2 or len(set(languages)) != 2:
            raise ValueError(
                f"`languages` must be two languages for objective {self.name}, got {self.options.languages}."
            )
        if data.corpus is not None:
            raise ValueError(
                f"Objective {self.name} needs parallel text, got `corpus` = {data.corpus}: name `train_file` or "
                "`dataset_name`."
            )
        if data.streaming:
            raise ValueError(f"Objective {self.name} reads all pairs at once: set streaming off.")
        if bool(data.validation_file) != bool(data.target_validation_file) and data.target_train_file:
            raise ValueError(
                f"`validation_file` and `target_validation_file` go together, got {data.validation_file} and "
                f"{data.target_validation_file}: name both or none."
            )
        data.source_column = data.source_column or languages[0]
        data.target_column = data.target_column or languages[1]

    def rows(self, documents: Any, seed: int) -> Any:
        """`source_ids` and `target_ids`, each with its special tokens not longer than half of `max_seq_length`."""
        from datasets import Dataset

        specials, length = 2, self.data_args.max_seq_length
        limit = length // 2 - specials
        if limit < 1:
            raise ValueError(
                f"`max_seq_length` must have room for two sentences with {specials} special tokens each, got {length}."
            )
        encoded = encode_documents(bar(documents, "pairs"), self.tokenizer)
        pairs = [pair for pair in encoded if len(pair) == 2]
        return Dataset.from_list([{"source_ids": pair[0][:limit], "target_ids": pair[1][:limit]} for pair in pairs])

    def new_fields(self) -> dict[str, Any]:
        """What the config of a new model is told."""
        languages = self.options.languages or ()
        return {
            "mask_token_id": self.tokenizer.mask_token_id,
            "mask_index": self.tokenizer.mask_token_id,
            "unk_index": self.tokenizer.unk_token_id,
            "n_langs": len(languages),
            "lang2id": {language: number for number, language in enumerate(languages)},
        }

    def load(self) -> Any:
        """Load or make the model, and refuse languages that it does not have."""
        built = super().load()
        self.check_languages(built)
        return built

    def check_languages(self, built: Any) -> None:
        """Refuse languages that the model does not have."""
        if max(self.language_ids(built.config).values()) >= built.config.n_langs:
            raise ValueError(
                f"`languages` must be among the model's {built.config.n_langs}, got {self.options.languages}. Name "
                f"them as its `lang2id` does: {sorted(getattr(built.config, 'lang2id', None) or {}) or 'none'}."
            )

    def language_ids(self, config: Any) -> dict[str, int]:
        """Ids of the two languages: those of the model's config, or their places in the argument."""
        languages, known = self.options.languages or [], getattr(config, "lang2id", None) or {}
        if all(language in known for language in languages):
            return {language: known[language] for language in languages}
        return {language: number for number, language in enumerate(languages)}

    def collator_options(self, counts: Any) -> dict[str, Any]:
        """The languages and their ids."""
        ids = self.language_ids(self.model.config)
        counted = {"token_counts": counts} if self.options.sample_alpha else {}
        return {"languages": tuple(ids), "language_ids": ids, **counted}
