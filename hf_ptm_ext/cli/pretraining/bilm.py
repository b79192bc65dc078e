"""ELMo's objective: each word from those before it, and from those behind it; rows are sentences."""

import logging
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from transformers import AutoModelForPreTraining

from ...collators import DataCollatorForBidirectionalLanguageModeling
from ...metrics import UnigramBaseline
from ..families import load_checkpoint
from .base import Objective

logger = logging.getLogger(__name__)


class BidirectionalLM(Objective):
    """ELMo's: rows are sentences, and the tokenizer's vocabulary are the most frequent words of the text."""

    name, family = "bilm", "elmo"
    description = "Pre-trained by hf-ptm-ext as ELMo is: words from those before them, and from those behind them."
    template, head, pipeline_tag = None, "a softmax over words", "feature-extraction"
    hides = False
    columns = ("labels",)
    terms = {"forward": "next word", "backward": "word before"}
    defaults: ClassVar[Mapping[str, Any]] = {"mlm_probability": None}
    collator_class, given = DataCollatorForBidirectionalLanguageModeling, ()

    def check(self) -> None:
        """Refuse what rows of sentences cannot be."""
        super().check()
        data = self.data_args
        wrong = [
            name
            for name in ("pack_rows", "streaming", "extend_vocabulary", "transfer_vocabulary")
            if getattr(data, name) not in (None, False)
        ]
        if wrong:
            raise ValueError(
                f"`{wrong[0]}` = {getattr(data, wrong[0])} is none of objective {self.name}, whose rows are sentences "
                "of words: leave it out."
            )

    # ---- tokenizer and rows ----

    def train_tokenizer(self, documents: Any) -> Any:
        """The most frequent words."""
        from ...models.tokenization_elmo import ElmoTokenizer

        data = self.data_args
        return ElmoTokenizer.train(documents, data.vocab_size, do_lower_case=data.lowercase)

    def prepare(self, tokenizer: Any) -> None:
        """Take the tokenizer, which must know words by their characters."""
        if not hasattr(tokenizer, "characters_of"):
            raise ValueError(
                f"Objective {self.name} needs an `ElmoTokenizer`, got {type(tokenizer).__name__}: name the folder of "
                "one, or leave `tokenizer_name` out to make one of the text's words."
            )
        super().prepare(tokenizer)

    def rows(self, documents: Any, seed: int) -> Any:
        """Sentences of at most `max_seq_length` words, and the ids of the words."""
        from datasets import Dataset

        split, length = self.tokenizer.words_of, self.data_args.max_seq_length
        sentences = [split(sentence) for document in documents for sentence in document]
        words = [row[start : start + length] for row in sentences for start in range(0, len(row), length)]
        return Dataset.from_dict(
            {"words": words, "labels": [self.tokenizer.convert_tokens_to_ids(row) for row in words]}
        )

    # ---- model ----

    def check_config(self, config: Any) -> None:
        """Refuse what is no ELMo."""
        if config.model_type != "elmo":
            raise ValueError(f"Objective {self.name} trains ELMo models, got a {config.model_type} model.")

    def load(self) -> Any:
        """Load or make the model; a softmax over other words is new."""
        args = self.model_args
        if args.model_name_or_path is None:
            model = self.upstream(AutoModelForPreTraining, self.check_config)
            if args.config_name is None and "cell_size" not in (args.config_overrides or ""):
                size, cells = sum(value.numel() for value in model.parameters()), model.config.cell_size
                logger.warning(
                    "ELMo is made in its published size, with cells of %d and %s weights. The recipe elmo.yaml has a "
                    "small one; `--config_overrides cell_size=256,projection_dim=128` names sizes.",
                    *(cells, f"{size:,}"),
                )
            return model
        words = {"vocab_size": len(self.tokenizer)}
        return load_checkpoint(self.model_args, AutoModelForPreTraining, None, self.check_config, **words)

    def collator(self, seed: int, counts: Any, fixed_shapes: bool = False) -> Any:
        """The collator, which draws nothing."""
        length = self.data_args.max_seq_length if fixed_shapes else None
        return self.collator_class(self.tokenizer, pad_to_multiple_of=length)

    # ---- training ----

    def baselines(self, trainer: Any, rows: Any) -> dict[str, float]:
        """What the most frequent word and the words' frequencies reach, each sentence's end among the targets."""
        metrics = {}
        for term, end in (("forward", self.tokenizer.eos_token_id), ("backward", self.tokenizer.bos_token_id)):
            counts = np.array(rows.baseline.counts)
            counts[end] = len(rows.train)
            baseline = UnigramBaseline(counts)
            targets = np.concatenate([np.append(row, end) for row in rows.evaluation["labels"]])
            metrics[f"baseline_{term}_accuracy"] = baseline.accuracy(targets)
            metrics[f"baseline_{term}_loss"] = baseline.cross_entropy(targets)
        return metrics
