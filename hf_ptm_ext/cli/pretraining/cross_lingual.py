"""Unicoder's objective: what sentences and their translations say of each other."""

from typing import Any

import numpy as np

from ...collators import DataCollatorForUnicoder
from ...collators.unicoder import TASKS
from ...data import encode_documents, unicoder_rows
from ...trainers import UnicoderModel, UnicoderTrainer
from ..console import bar
from ..families import takes
from .denoising import TranslationMasking


class Unicoder(TranslationMasking):
    """Unicoder's: the saved model is a plain masked language model, what the tasks add lies beside it."""

    name, family = "unicoder", "xlm"
    description = (
        "Pre-trained by hf-ptm-ext as Unicoder is: masked tokens of translations and of documents in two languages, "
        "words recovered from translations, translations told from similar sentences."
    )
    trains = "a masked language model"
    needed = "inputs_embeds"
    terms = {"recovery": "recovered words", "paraphrase": "translation or not", "mixed": "mixed documents"}
    trainer_class = UnicoderTrainer
    collator_class = DataCollatorForUnicoder

    def rows(self, documents: Any, seed: int) -> Any:
        """A row for each pair, with a similar sentence and the document around it: the pairs beside it in its file."""
        from datasets import Dataset

        encoded = encode_documents(bar(documents, "pairs"), self.tokenizer)
        pairs = [(pair[0], pair[1]) for pair in encoded if len(pair) == 2]
        length, draws = self.data_args.max_seq_length, np.random.default_rng(seed)
        return Dataset.from_list(unicoder_rows([pairs], len(self.tokenizer), length, draws))

    def check_languages(self, built: Any) -> None:
        """Refuse languages that a model with such does not have; others know none."""
        if takes(built, "langs"):
            super().check_languages(built)

    def wrap(self, model: Any) -> Any:
        """The model with Unicoder's tasks."""
        return UnicoderModel(model, **self.options.given(*(f"{task}_loss_weight" for task in TASKS)))

    def collator_options(self, counts: Any) -> dict[str, Any]:
        """The languages and their ids, and the tasks that have a weight."""
        tasks = tuple(task for task in TASKS if getattr(self.options, f"{task}_loss_weight"))
        return {**super().collator_options(counts), "tasks": tasks}
