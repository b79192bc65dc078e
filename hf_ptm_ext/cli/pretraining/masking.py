"""Objectives of encoders: hidden tokens are predicted, and what a family adds to them."""

import math
from collections.abc import Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from transformers import AutoModelForMaskedLM, AutoModelForPreTraining, PreTrainedConfig

from ...collators import (
    DataCollatorForDenoisingEntities,
    DataCollatorForMacBertMasking,
    DataCollatorForMaskedLanguageModeling,
    DataCollatorForNgramMasking,
    DataCollatorForSpanMasking,
    DataCollatorForUniLMPreTraining,
    DataCollatorForWholeWordMasking,
)
from ...collators.unilm import LM_MODES
from ...conversion.entity_tables import EntityTable, read_titles
from ...conversion.unilm_tokenizer import unilm_tokenizer
from ...data import encode_entity_documents, entity_pairs
from ...data.augmentation import load_word_vectors
from ...data.packing import FULL_SENTENCES
from ...data.sentence_pairs import NEXT_SENTENCE, SENTENCE_ORDER, STRUCTURE
from ...models.annotations_ernie_thu import DictionaryLinker
from ...models.processing_ernie_thu import ErnieThuProcessor
from ...trainers.sentence_pairs import SentencePairModel, SentencePairTrainer
from ..console import bar, phase
from ..families import OWN_FAMILIES, attention, family_class, load_checkpoint, named_config, overrides
from .base import Objective, weights_of

# Name of the entity table inside the trained folder, where the config points to.
TABLE_FILE = "entity_table.safetensors"
# Families whose masked language models have a head for next sentences beside them, and architectures of upstream.
WITH_NEXT_SENTENCES = ("ib_bert", "kbert", "nezha", "zen")
WITH_PAIRS = ("albert", "bert", "big_bird", "ernie", "megatron-bert", "mobilebert")
PAIR_TERMS = {"nsp": "next sentence", "sop": "sentence order", "structure": "sentence structure"}


class Masking(Objective):
    """Hidden tokens are predicted; trains any masked language model under its own class.

    `own_class`: trains the pre-training class of its family instead, which takes any BERT checkpoint.
    """

    own_class: ClassVar[bool] = False
    pairs: ClassVar[bool | None] = None
    looked_up: ClassVar[Mapping[str, int]] = {}  # column of what files say -> its value where they say nothing

    def fields(self) -> dict[str, Any]:
        """What the model's config is told."""
        return {}

    def load(self) -> Any:
        """Load or make the encoder."""
        model, fields = self.model_args, {**attention(self.model_args), **self.fields()}
        paired = self.own_class or self.options.pair_kind is not None
        ours = model.family in OWN_FAMILIES
        if not self.own_class and (model.model_name_or_path is not None or not ours):
            auto = AutoModelForPreTraining if paired else AutoModelForMaskedLM
            return self.upstream(auto, lambda config: self._check_pairs(config.model_type), **fields)
        if model.model_name_or_path is None:
            cls = family_class(model.family, "AutoModelForPreTraining" if paired else "AutoModelForMaskedLM")
            return cls._from_config(self._new_config(fields))
        cls = family_class(model.family, "AutoModelForPreTraining")
        config, _ = PreTrainedConfig.get_config_dict(model.model_name_or_path, revision=model.model_revision)
        model_type = config.get("model_type", "bert")
        if model_type not in ("bert", model.family):
            raise ValueError(
                f"`model_name_or_path` is a {model_type} model; this objective trains {model.family}, which reads "
                "BERT checkpoints. Use --objective mlm or --objective wwm for this one."
            )
        return load_checkpoint(model, cls, self.tokenizer, **fields)

    def check(self) -> None:
        """Refuse arguments that do not go together."""
        super().check()
        model = self.model_args
        if self.own_class and model.family != self.family:
            raise ValueError(
                f"Objective {self.name} trains {self.family}, got `family` = {model.family}. Leave it out, or take an "
                f"objective of that family (`hf-ptm-ext systems {model.family}`)."
            )
        if model.model_name_or_path is None and model.family in OWN_FAMILIES:
            family_class(model.family, "AutoModelForMaskedLM")
        if model.model_name_or_path is None or self.own_class:
            self._check_pairs(model.family)

    def _check_pairs(self, kind: Any) -> None:
        """Refuse sentence pairs for what has no head for them."""
        asked = self.options.pair_kind
        known = WITH_PAIRS if asked == STRUCTURE else (*WITH_NEXT_SENTENCES, *WITH_PAIRS)
        if self.own_class and asked not in (None, NEXT_SENTENCE):
            raise ValueError(
                f"`sentence_pairs` = {asked} is none of objective {self.name}, which trains {self.family}."
            )
        if asked is not None and not self.own_class and kind not in known:
            raise ValueError(
                f"`sentence_pairs` = {asked} goes with {', '.join(known)}"
                f"{'; next with objective span too' if asked == NEXT_SENTENCE else ''}; got {kind}: name one by "
                "`family` or `model_name_or_path`."
            )

    def wrap(self, model: Any) -> Any:
        """The model; of sentence pairs upstream's with both terms as exact means."""
        kind = self.options.pair_kind
        if kind is None or self.own_class or model.config.model_type not in WITH_PAIRS:
            self.terms = {**self.terms, "nsp": PAIR_TERMS["sop" if kind == SENTENCE_ORDER else "nsp"]}
            return model
        self.trainer_class, self.terms = SentencePairTrainer, {**self.terms, **PAIR_TERMS}
        return SentencePairModel(model, kind)

    def trainer(self, **options: Any) -> Any:
        """The Trainer; refuses files that know nothing of the text, of which a stream's rows cannot be told."""
        rows = options["train_dataset"]
        for column, unknown in self.looked_up.items() if hasattr(rows, "column_names") else ():
            if not any(value != unknown for row in rows[column] for value in row):
                named = {name: value for name in self.options.files if (value := getattr(self.options, name))}
                given = ", ".join(f"`{name}` = {value}" for name, value in named.items())
                raise ValueError(
                    f"{given}: none of its words is in the training text ({len(rows)} rows). Is it of "
                    "another language, or are there other columns on its lines?"
                )
        return super().trainer(**options)

    def _new_config(self, fields: dict[str, Any]) -> Any:
        """Configuration of a new encoder: a given one or the family's, overridden, fitted to the tokenizer."""
        model, tokenizer = self.model_args, self.tokenizer
        cls = family_class(model.family, "AutoConfig")
        values: dict[str, Any] = {} if model.config_name is None else named_config(model).to_dict()
        values.pop("model_type", None)
        values |= overrides(model, cls().to_dict(), cls.__name__)
        values |= {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
        if hasattr(tokenizer, "lexicon"):  # ZEN's: a row for each n-gram, and one for padding
            values["word_vocab_size"] = len(tokenizer.lexicon) + 1
        values.setdefault("max_position_embeddings", max(self.data_args.max_seq_length, 512))
        return cls(**{**values, **fields})

    @property
    def blocks(self) -> int:
        """Most content blocks of a row whose numbers of labels are rounded."""
        return self.data_args.sequences_of_row * (1 if self.options.pair_kind is None else 2)

    def budgets(self) -> dict[str, int]:
        """The number of labels; each content block of a row rounds its own up."""
        labels = float(self.options.mlm_probability or 0) * self.data_args.tokens_of_row + self.blocks
        return {"label_budget": 8 * math.ceil(labels / 8)}


class TokenMasking(Masking):
    """BERT's and RoBERTa's masked language model."""

    name = "mlm"
    description = "Pre-trained by hf-ptm-ext with dynamic token masking (BERT, RoBERTa)."
    collator_class = staticmethod(partial(DataCollatorForMaskedLanguageModeling, budget="exact"))
    given = (*Masking.given, "budget", "sample_alpha")

    def collator_options(self, counts: Any) -> dict[str, Any]:
        """How often each token is in the text, where positions or random tokens are drawn by it."""
        random = {"random_token_counts": counts} if self.options.random_by_frequency else {}
        return random | ({"token_counts": counts} if self.options.sample_alpha else {})


class WholeWordMasking(Masking):
    """BERT-WWM's."""

    name = "wwm"
    description = "Pre-trained by hf-ptm-ext with whole-word masking (BERT-WWM; Cui et al. 2019 for Chinese)."
    collator_class = DataCollatorForWholeWordMasking

    def collator_options(self, counts: Any) -> dict[str, Any]:
        """What the words are."""
        return {"word_boundaries": self.options.words}


class NgramMasking(WholeWordMasking):
    """ALBERT's: n-grams of words."""

    name = "ngram"
    description = "Pre-trained by hf-ptm-ext with masked n-grams of words (ALBERT)."
    collator_class = DataCollatorForNgramMasking
    given = (*Masking.given, "max_ngram_size", "favor_shorter_ngrams")


class SimilarWords(WholeWordMasking):
    """MacBERT's: similar words in the place of n-grams."""

    name = "macbert"
    description = "Pre-trained by hf-ptm-ext with similar words in the place of n-grams (MacBERT)."
    collator_class = DataCollatorForMacBertMasking

    def check(self) -> None:
        """Refuse arguments that do not go together."""
        super().check()
        if self.options.similar_words is None:
            raise ValueError(
                f"`similar_words` must name word vectors for objective {self.name}, got {self.options.similar_words}. "
                "Without such use --objective ngram."
            )

    @cached_property
    def vectors(self) -> Any:
        """The words' vectors."""
        with phase("reading the word vectors"):
            return load_word_vectors(str(self.options.similar_words))

    def collator_options(self, counts: Any) -> dict[str, Any]:
        """What the words are, and which are similar."""
        return super().collator_options(counts) | {"similar_words": self.vectors}


class SpanMasking(Masking):
    """SpanBERT's: spans, and each of their tokens from the boundaries."""

    name = "span"
    description = (
        "Pre-trained with SpanBERT's objectives by hf-ptm-ext: masked spans, and spans from their boundaries."
    )
    template = None
    pair_variant = "spanbert"
    own_class = True
    collator_class = DataCollatorForSpanMasking
    given = (*Masking.given, "geometric_p", "max_span_length")

    def fields(self) -> dict[str, Any]:
        """What the model's config is told: without next sentences nothing trains a pooler."""
        paired = self.options.pair_kind is not None
        return {
            **self.options.given("max_pair_targets", "sbo_loss_weight"),
            "next_sentence_prediction": paired,
            "add_pooling_layer": paired,
        }

    @property
    def blocks(self) -> int:
        """Most content blocks of a row; documents that share one are a block each, behind its separator."""
        data = self.data_args
        return data.tokens_of_row // 2 if data.block_mode == FULL_SENTENCES else super().blocks

    def budgets(self) -> dict[str, int]:
        """The number of labels, of tokens and of boundary pairs."""
        return super().budgets() | {"pair_budget": super().budgets()["label_budget"]}

    def collator_options(self, counts: Any) -> dict[str, Any]:
        """What the words are, which tokens are drawn, and how many of a span have a boundary loss."""
        return {
            "word_boundaries": self.options.words,
            "random_token_counts": counts,
            "max_pair_targets": self.model.config.max_pair_targets,
        }


class UniLMMasking(Masking):
    """UniLM's: pairs in four attention modes, with next-sentence prediction."""

    name = family = "unilm"
    description = "Pre-trained by hf-ptm-ext as UniLM is: masked tokens in four attention modes, next sentences."
    pairs = True
    own_class = True
    collator_class = DataCollatorForUniLMPreTraining

    def prepare(self, tokenizer: Any) -> None:
        """Take the tokenizer, which is saved with the model so that it pads for generation there too."""
        self.tokenizer = unilm_tokenizer(tokenizer)

    def fields(self) -> dict[str, Any]:
        """What the model's config is told: a converted encoder may have no head for next sentences."""
        heads = {"next_sentence_prediction": True, "add_pooling_layer": True}
        return {"mask_token_id": self.tokenizer.mask_token_id, "eos_token_id": self.tokenizer.sep_token_id, **heads}

    @cached_property
    def modes(self) -> dict[str, Any]:
        """How often each attention mode is drawn, if that is asked for."""
        if (asked := self.options.mode_probabilities) is None:
            return {}
        weights = weights_of("mode_probabilities", ",".join(asked), LM_MODES, "modes")
        return {"mode_probabilities": {name: one / sum(weights.values()) for name, one in weights.items()}}

    def check(self) -> None:
        """Refuse arguments that do not go together."""
        super().check()
        _ = self.modes

    def collator_options(self, counts: Any) -> dict[str, Any]:
        """The attention modes."""
        return self.modes


class EntityDenoising(Masking):
    """ERNIE-THU's: tokens, next sentences, and which entity stands where."""

    name = family = "ernie_thu"
    description = "Pre-trained by hf-ptm-ext as ERNIE-THU is: masked tokens, next sentences, denoised entities."
    template = None
    pairs = True
    own_class = True
    table: Any
    processor: Any

    def check(self) -> None:
        """Refuse arguments that do not go together."""
        super().check()
        if self.options.entity_table is None:
            raise ValueError(
                f"`entity_table` goes with objective ernie_thu, which needs one, got {self.options.entity_table}. "
                "Make one with `hf-ptm-ext train-entity-vectors`."
            )

    def prepare(self, tokenizer: Any) -> None:
        """Take the tokenizer, and open table and dictionary."""
        super().prepare(tokenizer)
        path = Path(str(self.options.entity_table))
        with phase("opening the entity table"):
            self.table = table = EntityTable.from_file(path)
        titles, any_case = self.options.entity_titles, self.options.ignore_title_case
        if titles is not None:
            with phase("reading the titles"):
                pairs = read_titles(titles)
                known = np.zeros(len(pairs)) if table.vocabulary is None else table.rows([name for _, name in pairs])
            linker = DictionaryLinker(
                [pair for pair, row in zip(pairs, known, strict=True) if row], ignore_case=any_case
            )
        elif table.vocabulary is not None and table.vocabulary.num_titles:
            linker = DictionaryLinker.from_vocabulary(table.vocabulary, ignore_case=any_case)
        else:
            raise ValueError(
                f"`entity_titles` must be named: the entity table {path} has no titles to find its entities in text "
                "by. The file has a title, a tab and an entity on each line."
            )
        if not len(linker):
            raise ValueError(f"`entity_titles` = {titles} names none of the entities of {path}.")
        with phase(f"indexing {len(linker):,} titles"):
            linker([""])  # makes the index
        self.processor = ErnieThuProcessor(tokenizer, entity_vocab=table, linker=linker, on_dropped_entity="ignore")

    @property
    def processors(self) -> list[Any]:
        """What is saved beside the model."""
        return [self.tokenizer, self.processor]

    def rows(self, documents: Any, seed: int) -> Any:
        """Rows of two segments with entities and `next_sentence_label`, as ERNIE-THU's own data."""
        from datasets import Dataset

        linker, fewest = self.processor.linker, self.options.min_entities
        shown = bar(documents, "documents")
        annotated = (list(zip(document, linker(list(document)), strict=True)) for document in shown)
        encoded = list(encode_entity_documents(annotated, self.processor))
        random = np.random.default_rng(seed)
        length = self.data_args.max_seq_length
        rows = list(entity_pairs(encoded, length, self.specials, random, min_entities=fewest))
        if not rows:
            raise ValueError(
                f"`min_entities` = {fewest} leaves no row. Lower it, raise `max_seq_length`, or give more titles."
            )
        return Dataset.from_list(self.side_by_side(rows))

    def fields(self) -> dict[str, Any]:
        """What the model's config is told."""
        return {"entity_hidden_size": self.table.dim}

    def load(self) -> Any:
        """Load or make the encoder, with the entities' vectors."""
        model = super().load()
        model.set_entity_table(self.table, source={"path": TABLE_FILE})
        return model

    def collator_class(self, tokenizer: Any, seed: int, **options: Any) -> Any:
        """Entities are hidden beside tokens."""
        return DataCollatorForDenoisingEntities(
            tokenizer,
            replace_prob=self.options.entity_replace_prob,
            mask_prob=self.options.entity_mask_prob,
            mlm=DataCollatorForMaskedLanguageModeling(tokenizer, budget="exact", seed=seed, **options),
            seed=seed,
        )
