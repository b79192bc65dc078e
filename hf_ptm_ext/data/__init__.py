"""Text for pre-training: readers, packing, tokenisation, resumable streams, sentence pairs, embedded corpora."""

from typing import TYPE_CHECKING, Any

from .annotated_text import (
    Mention,
    RelationExample,
    TypingExample,
    mark_mentions,
    processor_arguments,
    read_relation_examples,
    read_typing_examples,
)
from .bad_rows import BadRows
from .contiguous import ContiguousStreams
from .cross_lingual import alternated_documents, hard_negatives, sentence_vectors, unicoder_rows
from .entity_candidates import read_entity_candidates
from .entity_documents import (
    EntitySentence,
    encode_entity_documents,
    entity_pairs,
    instances_dataset,
    read_entity_documents,
    read_instances,
    write_entity_documents,
    write_instances,
)
from .ernie_tasks import (
    DISCOURSE_MARKERS,
    DISCOURSE_RELATIONS,
    capitalization_rows,
    discourse_pairs,
    relevance_pairs,
    reordering_class,
    reordering_classes,
    reordering_order,
    reordering_rows,
    text_pair_rows,
    token_document_rows,
)
from .labelled_text import LabelledText, TextColumns, dataset_labelled_texts, read_labelled_texts
from .labelled_triples import (
    LabelledTriple,
    TripleEncoder,
    dataset_labelled_triples,
    read_descriptions,
    read_labelled_triples,
)
from .lexical_relations import lexical_relation_rows, mine_lexical_negatives, read_lexical_constraints
from .lexicons import (
    SUPERSENSES,
    SentimentWords,
    SentiWordNet,
    SupersenseTable,
    nltk_tagger,
    read_opinion_lexicon,
    read_supersense_vocab,
)
from .name_graphs import NounLinker
from .packing import BlockPacker, RowPacker, pack_documents, pack_row
from .question_answering import (
    QuestionColumns,
    QuestionExample,
    dataset_question_examples,
    read_question_examples,
)
from .readers import Document, FileDocuments, embedded_corpus, embedded_corpus_path, read_documents
from .rows import expand_files
from .segmentation import PieceWordIds, WordIds, jieba_segmenter
from .sentence_pairs import (
    PairPacker,
    PairRule,
    SentencePair,
    next_sentence_pairs,
    sentence_distance_pairs,
    sentence_order_pairs,
    structural_pairs,
    truncate_pair,
)
from .source_target import SourceTarget, dataset_source_target, read_parallel, read_source_target
from .sources import (
    DatasetDocuments,
    DocumentSource,
    ListDocuments,
    as_document_source,
    dataset_documents,
    document_digest,
    held_out_split,
    is_held_out,
)
from .tag_schemes import detect_scheme, spans_of, tags_of, to_iob2
from .tagged_words import TaggedWords, dataset_tagged_words, read_tagged_words
from .task_shapes import extraction_rows, question_generation_rows, relation_tagging_rows
from .tokenization import (
    SpecialTokens,
    encode_batch,
    encode_documents,
    special_tokens_of,
    train_wordpiece,
    word_tokenizer,
)
from .triples import NegativeSampler, Triples, ZippedRows, read_triples
from .vocabulary_extension import VocabularyExtension, extend_vocabulary

if TYPE_CHECKING:
    from .streaming import PretrainingStream, pretraining_dataset

__all__ = [
    "DISCOURSE_MARKERS",
    "DISCOURSE_RELATIONS",
    "SUPERSENSES",
    "BadRows",
    "BlockPacker",
    "ContiguousStreams",
    "DatasetDocuments",
    "Document",
    "DocumentSource",
    "EntitySentence",
    "FileDocuments",
    "LabelledText",
    "LabelledTriple",
    "ListDocuments",
    "Mention",
    "NegativeSampler",
    "NounLinker",
    "PairPacker",
    "PairRule",
    "PieceWordIds",
    "PretrainingStream",
    "QuestionColumns",
    "QuestionExample",
    "RelationExample",
    "RowPacker",
    "SentencePair",
    "SentiWordNet",
    "SentimentWords",
    "SourceTarget",
    "SpecialTokens",
    "SupersenseTable",
    "TaggedWords",
    "TextColumns",
    "TripleEncoder",
    "Triples",
    "TypingExample",
    "VocabularyExtension",
    "WordIds",
    "ZippedRows",
    "alternated_documents",
    "as_document_source",
    "capitalization_rows",
    "dataset_documents",
    "dataset_labelled_texts",
    "dataset_labelled_triples",
    "dataset_question_examples",
    "dataset_source_target",
    "dataset_tagged_words",
    "detect_scheme",
    "discourse_pairs",
    "document_digest",
    "embedded_corpus",
    "embedded_corpus_path",
    "encode_batch",
    "encode_documents",
    "encode_entity_documents",
    "entity_pairs",
    "expand_files",
    "extend_vocabulary",
    "extraction_rows",
    "hard_negatives",
    "held_out_split",
    "instances_dataset",
    "is_held_out",
    "jieba_segmenter",
    "lexical_relation_rows",
    "mark_mentions",
    "mine_lexical_negatives",
    "next_sentence_pairs",
    "nltk_tagger",
    "pack_documents",
    "pack_row",
    "pretraining_dataset",
    "processor_arguments",
    "question_generation_rows",
    "read_descriptions",
    "read_documents",
    "read_entity_candidates",
    "read_entity_documents",
    "read_instances",
    "read_labelled_texts",
    "read_labelled_triples",
    "read_lexical_constraints",
    "read_opinion_lexicon",
    "read_parallel",
    "read_question_examples",
    "read_relation_examples",
    "read_source_target",
    "read_supersense_vocab",
    "read_tagged_words",
    "read_triples",
    "read_typing_examples",
    "relation_tagging_rows",
    "relevance_pairs",
    "reordering_class",
    "reordering_classes",
    "reordering_order",
    "reordering_rows",
    "sentence_distance_pairs",
    "sentence_order_pairs",
    "sentence_vectors",
    "spans_of",
    "special_tokens_of",
    "structural_pairs",
    "tags_of",
    "text_pair_rows",
    "to_iob2",
    "token_document_rows",
    "train_wordpiece",
    "truncate_pair",
    "unicoder_rows",
    "word_tokenizer",
    "write_entity_documents",
    "write_instances",
]


def __getattr__(name: str) -> Any:
    """Import the stream when it is asked for: it is the only part that needs torch."""
    if name in ("PretrainingStream", "pretraining_dataset"):
        from . import streaming

        return getattr(streaming, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
