"""Which positions are corrupted and what replaces them: pure functions, arrays in, arrays out.

Every function works on a whole batch `(batch, seq_len)` of numpy arrays and draws from one `numpy.random.Generator`
that the caller passes; nothing here knows a tokenizer. The usual order of calls:

    candidate_mask -> block_starts -> word_starts -> a selection (tokens, whole_word, ngrams, spans) -> replace_tokens

Objectives that change the length of a text (`sentences`, `infilling`, `span_corruption`) or take fragments out of it
work on rows laid end to end, see `ragged`.
"""

from .candidates import block_starts, candidate_mask, check_sequences, sequence_groups
from .checks import check_probability
from .entities import check_entity_fate, corrupt_entities, entity_candidates
from .fragments import (
    LENGTH_RULES,
    at_least_one_token,
    fragment_lengths,
    fragment_windows,
    sample_fragments,
    sample_pieces,
)
from .infilling import (
    REPLACE_LENGTHS,
    InfillingSpans,
    infill,
    insert_tokens,
    poisson_length_probabilities,
    sample_infilling_spans,
)
from .lexical import replace_words, word_totals, words_by_polarity, words_by_senses
from .ngrams import (
    inverse_size_probabilities,
    ngram_size_probabilities,
    sample_ngrams,
    sample_ngrams_of_rows,
    sample_word_ngrams,
)
from .pairs import boundary_pairs, fixed_label_positions, pack_pairs
from .permutation import permutation_mask, sample_context_ngrams
from .ragged import (
    append_to_rows,
    index_ranges,
    pad_ragged,
    random_subsets,
    rank_within_groups,
    row_index,
    row_offsets,
    row_positions,
    shuffled_within_groups,
)
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
from .sentences import find_sentences, permuted_sentences, rotated
from .span_corruption import (
    check_span_corruption,
    noise_tokens_and_spans,
    random_parts,
    sample_span_corruption,
    sentinel_sequences,
    span_corruption_lengths,
)
from .spans import sample_spans, span_length_probabilities
from .tokens import (
    bernoulli_items,
    bernoulli_tokens,
    bert_budget,
    drawn_tokens,
    exact_tokens,
    roberta_budget,
    span_budget,
    weighted_tokens,
)
from .whole_word import (
    bernoulli_words,
    cover_chosen,
    exact_units,
    exact_words,
    groups_of,
    word_starts,
    word_starts_from_ids,
)

__all__ = [
    "IGNORE_INDEX",
    "LENGTH_RULES",
    "REPLACE_LENGTHS",
    "InfillingSpans",
    "RandomTokens",
    "Segments",
    "append_to_rows",
    "at_least_one_token",
    "bernoulli_items",
    "bernoulli_tokens",
    "bernoulli_words",
    "bert_budget",
    "block_starts",
    "boundary_pairs",
    "candidate_mask",
    "check_entity_fate",
    "check_fate",
    "check_probability",
    "check_sequences",
    "check_span_corruption",
    "corrupt_entities",
    "count_tokens",
    "cover",
    "cover_chosen",
    "drawn_tokens",
    "entity_candidates",
    "exact_tokens",
    "exact_units",
    "exact_words",
    "find_segments",
    "find_sentences",
    "first_positions",
    "fixed_label_positions",
    "fragment_lengths",
    "fragment_windows",
    "groups_of",
    "index_ranges",
    "infill",
    "insert_tokens",
    "inverse_size_probabilities",
    "ngram_size_probabilities",
    "noise_tokens_and_spans",
    "pack_pairs",
    "pad_ragged",
    "permutation_mask",
    "permuted_sentences",
    "poisson_length_probabilities",
    "previous",
    "random_parts",
    "random_subsets",
    "rank_within_groups",
    "replace_tokens",
    "replace_words",
    "roberta_budget",
    "rotated",
    "row_index",
    "row_offsets",
    "row_positions",
    "sample_context_ngrams",
    "sample_fragments",
    "sample_infilling_spans",
    "sample_ngrams",
    "sample_ngrams_of_rows",
    "sample_pieces",
    "sample_span_corruption",
    "sample_spans",
    "sample_word_ngrams",
    "segment_index",
    "selected_labels",
    "sentinel_sequences",
    "sequence_groups",
    "shuffled_within_groups",
    "span_budget",
    "span_corruption_lengths",
    "span_length_probabilities",
    "uniform_tokens",
    "unigram_tokens",
    "weighted_tokens",
    "word_starts",
    "word_starts_from_ids",
    "word_totals",
    "words_by_polarity",
    "words_by_senses",
]
