"""Text for pre-training: readers, packing, tokenisation, resumable streams, sentence pairs, embedded corpora."""

from .embedded import embedded_corpus, embedded_corpus_path
from .packing import BlockPacker, RowPacker, pack_documents, pack_row
from .readers import Document, FileDocuments, expand_files, read_documents
from .splits import document_digest, held_out_split, is_held_out
from .tokenization import SpecialTokens, encode_batch, encode_documents, special_tokens_of
from .tokenizer_training import train_wordpiece

__all__ = [
    "BlockPacker",
    "Document",
    "FileDocuments",
    "RowPacker",
    "SpecialTokens",
    "document_digest",
    "embedded_corpus",
    "embedded_corpus_path",
    "encode_batch",
    "encode_documents",
    "expand_files",
    "held_out_split",
    "is_held_out",
    "pack_documents",
    "pack_row",
    "read_documents",
    "special_tokens_of",
    "train_wordpiece",
]
