"""Which positions are corrupted and what replaces them: pure functions, arrays in, arrays out.

Every function works on a whole batch `(batch, seq_len)` of numpy arrays and draws from one `numpy.random.Generator`
that the caller passes; nothing here knows a tokenizer. The usual order of calls:

    candidate_mask -> block_starts -> word_starts -> a selection (tokens, whole_word, ngrams, spans) -> replace_tokens
"""

from ._checks import check_probability
from .budget import bert_budget, span_budget
from .candidates import block_starts, candidate_mask, check_sequences, sequence_groups
from .label_positions import fixed_label_positions
from .ngrams import ngram_size_probabilities, sample_ngrams
from .order import rank_within_groups, shuffled_within_groups
from .pairs import boundary_pairs, pack_pairs
from .replacement import (
    IGNORE_INDEX,
    RandomTokens,
    check_fate,
    count_tokens,
    replace_tokens,
    selected_labels,
    uniform_tokens,
    unigram_tokens,
)
from .segments import Segments, cover, find_segments, first_positions, previous, segment_index
from .spans import sample_spans, span_length_probabilities
from .tokens import bernoulli_items, bernoulli_tokens, exact_tokens
from .whole_word import bernoulli_words, cover_chosen, exact_units, exact_words, groups_of
from .words import word_starts, word_starts_from_ids

__all__ = [
    "IGNORE_INDEX",
    "RandomTokens",
    "Segments",
    "bernoulli_items",
    "bernoulli_tokens",
    "bernoulli_words",
    "bert_budget",
    "block_starts",
    "boundary_pairs",
    "candidate_mask",
    "check_fate",
    "check_probability",
    "check_sequences",
    "count_tokens",
    "cover",
    "cover_chosen",
    "exact_tokens",
    "exact_units",
    "exact_words",
    "find_segments",
    "first_positions",
    "fixed_label_positions",
    "groups_of",
    "ngram_size_probabilities",
    "pack_pairs",
    "previous",
    "rank_within_groups",
    "replace_tokens",
    "sample_ngrams",
    "sample_spans",
    "segment_index",
    "selected_labels",
    "sequence_groups",
    "shuffled_within_groups",
    "span_budget",
    "span_length_probabilities",
    "uniform_tokens",
    "unigram_tokens",
    "word_starts",
    "word_starts_from_ids",
]
