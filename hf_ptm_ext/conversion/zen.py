"""ZEN checkpoints of the original code (sinovation/ZEN) to ours and back; names are BERT's and ours.

The lexicon `ngram.txt` goes into the folder unchanged: an n-gram's id is the number of its line.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..models.configuration_zen import ZenConfig
from ..models.lexicon_zen import LEXICON_FILE, read_lexicon
from .layout import BERT_FIELDS, DIMENSIONS, ENCODER, LAYER_NORMS, PREFIX, Layout, functions_of


class ZenLayout(Layout):
    title, family, prefix = "ZEN", "zen", "Zen"
    config_class = ZenConfig
    fields = (
        *BERT_FIELDS,
        "word_vocab_size",
        "num_hidden_word_layers",
        "tie_word_embeddings",
        "is_decoder",
        "position_embedding_type",
    )
    theirs = {"word_size": "word_vocab_size"}
    own = ("word_vocab_size", "pad_token_id", "tie_word_embeddings", "is_decoder", "position_embedding_type")
    renames = (
        PREFIX,
        (r"^(embeddings|word_embeddings|encoder|pooler)\.", r"bert.\1.", ENCODER[2]),
        *LAYER_NORMS,
    )
    stacks = (("bert.encoder.layer", "num_hidden_layers"), ("bert.encoder.word_layers", "num_hidden_word_layers"))
    dimensions = (
        *DIMENSIONS,
        (r"bert\.word_embeddings\.word_embeddings\.weight", 0, "word_vocab_size"),
        (r".*", -1, "hidden_size"),
    )
    tokenizer_files = {"ngram_file": LEXICON_FILE}
    original_files = ("pytorch_model.bin", "config.json")

    def wordpiece_tokenizer(self, vocab: Mapping[str, int], config: Any, do_lower_case: bool, **files: Path) -> Any:
        from ..models.tokenization_zen import ZenTokenizer

        ngrams, length = files["ngram_file"], config.max_position_embeddings
        tokenizer = ZenTokenizer(dict(vocab), do_lower_case, ngrams=ngrams, model_max_length=length)
        if len(tokenizer.lexicon) >= config.word_vocab_size:
            raise ValueError(
                f"{ngrams} has {len(tokenizer.lexicon)} n-grams, and the table of the weights `word_vocab_size` = "
                f"{config.word_vocab_size} rows, one of them for padding. Is it another model's file?"
            )
        return tokenizer

    def check_tokenizer_file(self, file: Path) -> None:
        read_lexicon(file)


LAYOUT = ZenLayout()
globals().update(functions_of(LAYOUT))
