"""Text for pre-training: readers, packing, tokenisation, resumable streams, sentence pairs, embedded corpora."""

from typing import TYPE_CHECKING, Any

from .annotated_text import (
    Mention,
    RelationExample,
    TypingExample,
    mark_mentions,
    read_relation_examples,
    read_typing_examples,
)
from .bad_rows import BadRows
from .embedded import embedded_corpus, embedded_corpus_path
from .entity_documents import (
    EntitySentence,
    encode_entity_documents,
    entity_pairs,
    read_entity_documents,
    write_entity_documents,
)
from .entity_instances import instances_dataset, read_instances, write_instances
from .entity_records import processor_arguments
from .labelled_text import LabelledText, TextColumns, dataset_labelled_texts, read_labelled_texts
from .map_style import pretraining_dataset
from .packing import BlockPacker, RowPacker, pack_documents, pack_row
from .parallel import read_parallel
from .piece_words import PieceWordIds
from .question_answering import (
    QuestionColumns,
    QuestionExample,
    dataset_question_examples,
    read_question_examples,
)
from .question_generation import question_generation_rows
from .readers import Document, FileDocuments, expand_files, read_documents
from .segmentation import WordIds, jieba_segmenter
from .sentence_pairs import SentencePair, next_sentence_pairs, truncate_pair
from .source_target import SourceTarget, dataset_source_target, read_source_target
from .sources import DatasetDocuments, DocumentSource, ListDocuments, as_document_source, dataset_documents
from .splits import document_digest, held_out_split, is_held_out
from .tag_schemes import detect_scheme, spans_of, tags_of, to_iob2
from .tagged_words import TaggedWords, dataset_tagged_words, read_tagged_words
from .task_shapes import extraction_rows, relation_tagging_rows
from .tokenization import SpecialTokens, encode_batch, encode_documents, special_tokens_of
from .tokenizer_training import train_wordpiece
from .triples import NegativeSampler, Triples, read_triples
from .wordnet import NounLinker
from .zipped_rows import ZippedRows

if TYPE_CHECKING:
    from .streaming import PretrainingStream

__all__ = [
    "BadRows",
    "BlockPacker",
    "DatasetDocuments",
    "Document",
    "DocumentSource",
    "EntitySentence",
    "FileDocuments",
    "LabelledText",
    "ListDocuments",
    "Mention",
    "NegativeSampler",
    "NounLinker",
    "PieceWordIds",
    "PretrainingStream",
    "QuestionColumns",
    "QuestionExample",
    "RelationExample",
    "RowPacker",
    "SentencePair",
    "SourceTarget",
    "SpecialTokens",
    "TaggedWords",
    "TextColumns",
    "Triples",
    "TypingExample",
    "WordIds",
    "ZippedRows",
    "as_document_source",
    "dataset_documents",
    "dataset_labelled_texts",
    "dataset_question_examples",
    "dataset_source_target",
    "dataset_tagged_words",
    "detect_scheme",
    "document_digest",
    "embedded_corpus",
    "embedded_corpus_path",
    "encode_batch",
    "encode_documents",
    "encode_entity_documents",
    "entity_pairs",
    "expand_files",
    "extraction_rows",
    "held_out_split",
    "instances_dataset",
    "is_held_out",
    "jieba_segmenter",
    "mark_mentions",
    "next_sentence_pairs",
    "pack_documents",
    "pack_row",
    "pretraining_dataset",
    "processor_arguments",
    "question_generation_rows",
    "read_documents",
    "read_entity_documents",
    "read_instances",
    "read_labelled_texts",
    "read_parallel",
    "read_question_examples",
    "read_relation_examples",
    "read_source_target",
    "read_tagged_words",
    "read_triples",
    "read_typing_examples",
    "relation_tagging_rows",
    "spans_of",
    "special_tokens_of",
    "tags_of",
    "to_iob2",
    "train_wordpiece",
    "truncate_pair",
    "write_entity_documents",
    "write_instances",
]


def __getattr__(name: str) -> Any:
    """Import the stream when it is asked for: it is the only part that needs torch."""
    if name == "PretrainingStream":
        from .streaming import PretrainingStream

        return PretrainingStream
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
