"""`--extend_vocabulary`: new pieces of a domain for a checkpoint, and how it is measured with and without them."""

from collections.abc import Iterable
from itertools import chain, islice
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from ..data.vocabulary_extension import extend_vocabulary
from ..trainers.word_loss import hidden_word_loss, tokens_per_word
from .console import phase

# Documents of a stream from which pieces are learnt, and sentences in which words are hidden.
STREAM_DOCUMENTS, SENTENCES = 20_000, 1_000


class Extension:
    """Learns the pieces, and measures held-out text by its words.

    Args:
        tokenizer: that of the checkpoint.
        documents: those of the job.
        data: its data arguments.
    """

    def __init__(self, tokenizer: Any, documents: Any, data: Any):
        self.before = self.tokenizer = tokenizer
        self.found = None
        if data.extend_vocabulary:
            training: Iterable[Any] = islice(documents, STREAM_DOCUMENTS) if data.streaming else documents
            with phase("learning new pieces"):
                self.found = extend_vocabulary(tokenizer, training, data.extend_vocabulary)
            self.tokenizer = self.found.tokenizer
        held_out = chain.from_iterable(documents.evaluation or ())
        self.sentences = list(islice((one for one in held_out if one.strip()), SENTENCES))

    def notes(self) -> dict[str, Any]:
        """What is said of the vocabulary: the number of new pieces, and tokens per word of the held-out text."""
        found: dict[str, Any] = {"new_pieces": 0 if self.found is None else len(self.found.sources)}
        if self.sentences:
            found["tokens_per_word_before"] = round(tokens_per_word(self.before, self.sentences), 4)
            found["tokens_per_word"] = round(tokens_per_word(self.tokenizer, self.sentences), 4)
        return found

    def check_checkpoint(self, checkpoint: str) -> None:
        """Refuse to go on with a checkpoint whose pieces were learnt from another text."""
        if (Path(checkpoint) / "tokenizer.json").is_file():
            kept = AutoTokenizer.from_pretrained(checkpoint).get_vocab()
            if kept != self.tokenizer.get_vocab():
                raise ValueError(
                    f"`extend_vocabulary` finds other pieces than {checkpoint} has: {len(self.tokenizer)} and "
                    f"{len(kept)} tokens. Go on with the text of its run, or name the folder as `model_name_or_path`."
                )

    def scores(self, trainer: Any, prefix: str, tokenizer: Any = None) -> dict[str, float]:
        """Loss and accuracy per hidden word of the held-out text; nothing of models that hide no words."""
        model, tokenizer = trainer.saved_model, tokenizer or self.tokenizer
        hides = tokenizer.mask_token_id is not None and model.get_output_embeddings() is not None
        if not self.sentences or model.config.is_encoder_decoder or not hides:
            return {}
        with trainer.whole_model(), phase("hiding words"):
            found = hidden_word_loss(trainer.accelerator.unwrap_model(model), tokenizer, self.sentences)
        return {f"{prefix}_word_{name}": found[name] for name in ("loss", "accuracy", "words")}
