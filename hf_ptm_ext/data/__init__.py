"""Text for pre-training: readers, packing, tokenisation, resumable streams, sentence pairs, embedded corpora."""

from .embedded import embedded_corpus, embedded_corpus_path
from .splits import document_digest, held_out_split, is_held_out

__all__ = [
    "document_digest",
    "embedded_corpus",
    "embedded_corpus_path",
    "held_out_split",
    "is_held_out",
]
