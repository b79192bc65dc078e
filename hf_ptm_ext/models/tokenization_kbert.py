"""K-BERT's tokenizer: BERT's, with knowledge spliced in behind the words that a graph knows (Liu et al. 2020,
https://arxiv.org/abs/1909.07606; https://github.com/autoliuweijie/K-BERT).

Three columns join BERT's: `position_ids` (soft positions), `word_index` and `branch_id` (see `visibility_kbert`).
Where the released code does otherwise (every character a token, capitals unknown, no final [SEP], names lost to its
segmenter, branches cut in the middle), `reference` brings that back, to the token.
"""

import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from transformers import BatchEncoding, BertTokenizer
from transformers.processing_utils import TextKwargs
from transformers.utils import PaddingStrategy

from .encoding_kbert import (
    NO_LABEL,
    KBertEncoding,
    KBertRestoring,
    labels_of,
    margins,
    padded_column,
    sentence_tree,
    source_index,
    width_of,
)
from .injection_kbert import KNOWLEDGE_TRUNCATIONS, Batch, Limits, Rows
from .knowledge_graph_kbert import KNOWLEDGE_GRAPH_FILE, KnowledgeGraph
from .lexicon_kbert import (
    BranchStore,
    Characters,
    CharacterTable,
    Lexicon,
    LookupOptions,
    Row,
    WordPieces,
    framed_texts,
    separate_texts,
)
from .matcher_core import Match
from .tokenizer_core import SAVED, OwnFile, TokenizerWithFile, check_choice, leaving_the_backend, plain_backend

GRANULARITIES = ("wordpiece", "char")
REFERENCES = ("classification", "ner")
# Literal tags of the original project, one token each.
REFERENCE_TAGS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[ENT]", "[SUB]", "[PRE]", "[OBJ]")
KNOWLEDGE_INPUTS = ("position_ids", "word_index", "branch_id")
# What upstream's own callers may pass to any tokenizer, whether it reads it or not.
_UPSTREAM = frozenset((*TextKwargs.__annotations__, "max_target_length", "src_lang", "tgt_lang"))
# How each column is padded; positions and token types of padding depend on the style.
_FILLERS: dict[str, Any] = {"word_index": -1, "branch_id": -1, "knowledge_mask": 0, "source_index": -1}
# How many searches are kept ready; a graph for each call must not fill the memory.
_LEXICONS = 8


@dataclass(frozen=True)
class CallOptions:
    """What a call of the tokenizer may change; each is the tokenizer's option of the same name, or described there."""

    kg: KnowledgeGraph | None
    max_entities: int
    use_predicate: bool | frozenset[str]
    predicates: frozenset[str] | None
    knowledge_truncation: str
    knowledge_label: int
    return_knowledge_mask: bool = False
    return_source_index: bool = False
    word_labels: Any = None
    padding_label: int = NO_LABEL

    def __post_init__(self) -> None:
        check_choice("knowledge_truncation", self.knowledge_truncation, KNOWLEDGE_TRUNCATIONS)
        if isinstance(self.max_entities, bool) or not isinstance(self.max_entities, int) or self.max_entities < 0:
            raise ValueError(f"`max_entities` must be 0 or more, a whole number, got {self.max_entities!r}.")


class KBertTokenizer(KBertRestoring, TokenizerWithFile):
    """A BERT tokenizer with a knowledge graph.

    Args:
        vocab: as in `BertTokenizer`; so are all arguments not named here.
        kg: `KnowledgeGraph`, or path or paths of triple files; `None` for none: then it is exactly a `BertTokenizer`,
            with three more columns. Default: the graph that was saved with the tokenizer, if one was.
        max_entities: how many objects of a word are injected at most (default 2, as in the original project).
        use_predicate: whether the predicate stands before the object (default False, as for tagging in the original
            project; True as for classification), or a list of the predicates that do.
        predicates: allow-list of predicates (default `None`, all).
        granularity: "wordpiece" (default), or "char" for every character a token.
        ignore_case: whether words are found in upper and lower case alike (default False).
        whole_words: whether a word of a script with spaces is found only as a whole (default True).
        knowledge_truncation: what gives way where text and knowledge do not both fit: "keep_text" (default) drops
            whole branches, the last ones first; "keep_knowledge" cuts the text where it no longer fits with its
            knowledge; "only_knowledge" is "keep_text", but a text that is too long by itself is an error.
        knowledge_label: label of injected tokens when words have labels (default -100, ignored; the original project
            has a class [ENT], its number 1, that counts in the loss).
        only_label_first_subword: whether only the first piece of a word has its label (default True).
        reference: "classification" or "ner" for the input of the original project's two scripts, to the token; `None`
            (default) for BERT's own. Both: every character a token, without lower case; white space vanishes; tags
            in the text are tokens; names are lost as by pkuseg; rows are cut anywhere; padding has the last position.
            "classification" puts [CLS] in front (pairs: and [SEP] behind each text; with add_special_tokens=False the
            text has its own) and numbers segments 1 and 2, padding 0; "ner" adds nothing and has 1 everywhere.
        pkuseg_compat: whether names are lost as by pkuseg (default `None`: if `reference` is set); takes "char".
        matcher_backend: "auto" (default: ahocorasick-rs if it is installed), "rust" or "python"; not saved.
        knowledge_graph_file: path of the saved graph; `from_pretrained` fills it in.
        knowledge_graph_sha256: what that file must have; from tokenizer_config.json.
        kwargs: as in `BertTokenizer`.

    Raises:
        TypeError: an option is of another kind.
        ValueError: an option is none of its values, or the saved graph is missing or different.

    Examples:
        >>> words = "[PAD] [UNK] [CLS] [SEP] [MASK] 我 在 北 京 首 都".split()
        >>> graph = KnowledgeGraph([("北京", "是", "首都")])
        >>> tokenizer = KBertTokenizer({word: number for number, word in enumerate(words)}, kg=graph)
        >>> inputs = tokenizer("我在北京")
        >>> " ".join(inputs.tokens()), inputs["position_ids"], inputs["branch_id"]
        ('[CLS] 我 在 北 京 首 都 [SEP]', [0, 1, 2, 3, 4, 5, 6, 5], [0, 0, 0, 0, 0, 1, 1, 0])
    """

    vocab_files_names = {**BertTokenizer.vocab_files_names, "knowledge_graph_file": KNOWLEDGE_GRAPH_FILE}
    model_input_names = ["input_ids", "token_type_ids", "attention_mask", *KNOWLEDGE_INPUTS]
    own_file = OwnFile(
        KNOWLEDGE_GRAPH_FILE, "knowledge_graph_sha256", argument="kg", attribute="kg", nothing=None, several=True
    )

    def __init__(
        self,
        vocab: str | dict[str, int] | None = None,
        do_lower_case: bool = True,
        *,
        kg: Any = SAVED,
        max_entities: int = 2,
        use_predicate: bool | Collection[str] = False,
        predicates: Collection[str] | None = None,
        granularity: str = "wordpiece",
        ignore_case: bool = False,
        whole_words: bool = True,
        knowledge_truncation: str = "keep_text",
        knowledge_label: int = NO_LABEL,
        only_label_first_subword: bool = True,
        reference: str | None = None,
        pkuseg_compat: bool | None = None,
        matcher_backend: str = "auto",
        knowledge_graph_file: str | None = None,
        knowledge_graph_sha256: Any = SAVED,
        **kwargs: Any,
    ):
        check_choice("granularity", granularity, GRANULARITIES)
        if reference is not None:
            check_choice("reference", reference, REFERENCES)
            granularity = "char"
        if pkuseg_compat is None:
            pkuseg_compat = reference is not None
        if pkuseg_compat and granularity != "char":
            raise ValueError(f"`pkuseg_compat` must come with granularity='char', got {granularity!r}.")
        options = {
            "max_entities": max_entities,
            "use_predicate": listed(use_predicate),
            "predicates": listed(predicates),
            "granularity": granularity,
            "ignore_case": ignore_case,
            "whole_words": whole_words,
            "knowledge_truncation": knowledge_truncation,
            "knowledge_label": knowledge_label,
            "only_label_first_subword": only_label_first_subword,
            "reference": reference,
            "pkuseg_compat": pkuseg_compat,
        }
        super().__init__(vocab, do_lower_case, options, **kwargs)
        self.matcher_backend = matcher_backend
        if reference == "ner":
            self._pad_token_type_id = 1
        self.kg = load_graph(kg, knowledge_graph_file, knowledge_graph_sha256)
        self._options()  # which checks those that a call may change

    @classmethod
    def read_argument(cls, value: Any) -> Any:
        """Read a graph, because upstream takes a missing file for one of the vocabulary's."""
        return value if value is SAVED else as_graph(value)

    def own_sha256(self) -> str | None:
        """Of the graph's file."""
        return None if self.kg is None else self.kg.sha256

    def save_own_file(self, path: Path) -> None:
        """Write the graph."""
        if self.kg is not None:
            self.kg.save(path)

    # ---- text to inputs ----

    def __call__(
        self,
        text: Any = None,
        text_pair: Any = None,
        *args: Any,
        kg: Any = SAVED,
        max_entities: int | None = None,
        use_predicate: bool | Collection[str] | None = None,
        predicates: Collection[str] | None = None,
        knowledge_truncation: str | None = None,
        return_knowledge_mask: bool = False,
        return_source_index: bool = False,
        word_labels: Any = None,
        knowledge_label: int | None = None,
        padding_label: int = NO_LABEL,
        **kwargs: Any,
    ) -> BatchEncoding:
        """Tokenise texts and inject knowledge."""
        options = self._options(
            kg=self.kg if kg is SAVED else as_graph(kg),
            max_entities=max_entities,
            use_predicate=frozen_predicates(use_predicate),
            predicates=frozen_predicates(predicates),
            knowledge_truncation=knowledge_truncation,
            return_knowledge_mask=return_knowledge_mask,
            return_source_index=return_source_index,
            word_labels=word_labels,
            knowledge_label=knowledge_label,
            padding_label=padding_label,
        )
        return super().__call__(text, text_pair, *args, kbert_options=options, **kwargs)

    @leaving_the_backend
    def _encode_plus(
        self,
        text: Any,
        text_pair: Any = None,
        add_special_tokens: bool = True,
        padding_strategy: Any = "do_not_pad",
        truncation_strategy: Any = "do_not_truncate",
        max_length: int | None = None,
        stride: int = 0,
        is_split_into_words: bool = False,
        pad_to_multiple_of: int | None = None,
        padding_side: str | None = None,
        return_tensors: Any = None,
        return_token_type_ids: bool | None = None,
        return_attention_mask: bool | None = None,
        return_overflowing_tokens: bool = False,
        return_special_tokens_mask: bool = False,
        return_offsets_mapping: bool = False,
        return_length: bool = False,
        verbose: bool = True,
        split_special_tokens: bool | None = None,
        kbert_options: Any = None,
        **kwargs: Any,
    ) -> BatchEncoding:
        _check_keywords(kwargs)
        options = kbert_options or self._options()
        rows, batched = read_rows(text, text_pair, is_split_into_words, self.reference is not None)
        truncation = getattr(truncation_strategy, "value", truncation_strategy)
        padding = getattr(padding_strategy, "value", padding_strategy)
        split_tags = self.split_special_tokens if split_special_tokens is None else split_special_tokens
        limits = None
        if truncation != "do_not_truncate" and max_length is not None:
            policy = options.knowledge_truncation
            limits = Limits(max_length, truncation, self.truncation_side, policy, return_overflowing_tokens, stride)
        frame = self._special_ids() if add_special_tokens else ()
        batch = self._batch(rows, is_split_into_words, options, add_special_tokens, split_tags)
        if self.reference is None:
            if limits is not None:
                batch.limit(limits, (2, 3) if add_special_tokens else (0, 0))
            result = batch.inject(frame, None if limits is None else max_length)
        else:
            result = self._rows_as_the_original(batch, limits, add_special_tokens)

        sizes = np.diff(result.bounds)
        width = width_of(sizes, padding, max_length, pad_to_multiple_of)
        left = (padding_side or self.padding_side) == "left"
        encodings: list[Any] = [
            KBertEncoding(result, row, batch.source, self, rows[sample], sample, margins(size, width, left))
            for row, (size, sample) in enumerate(zip(sizes.tolist(), batch.samples.tolist(), strict=True))
        ]
        flat = self._flat_columns(
            result, width, options, return_token_type_ids, return_attention_mask, return_special_tokens_mask
        )
        columns: dict[str, Any] = {
            name: padded_column(values, result.bounds, width, filler, left) for name, (values, filler) in flat.items()
        }
        if return_offsets_mapping:
            columns["offset_mapping"] = [encoding.offsets for encoding in encodings]
        if options.return_source_index:
            columns["source_index"] = [source_index(encoding, is_split_into_words) for encoding in encodings]
        if return_length:
            columns["length"] = [len(encoding) for encoding in encodings]
        if options.word_labels is not None:
            word_labels = options.word_labels if batched else [options.word_labels]
            kinds = (self.only_label_first_subword, options.knowledge_label, options.padding_label)
            columns["labels"] = labels_of(encodings, rows, word_labels, *kinds)
        if return_overflowing_tokens:
            columns["overflow_to_sample_mapping"] = batch.samples.tolist()
        if verbose and len(result.positions):
            # Positions are what a model has a table of; a row may have more tokens.
            longest: Any = range(int(result.positions.max()) + 1)
            self._eventual_warn_about_too_long_sequence(longest, max_length, True)
        if return_tensors is None:
            columns = {
                name: values.tolist() if isinstance(values, np.ndarray) else values for name, values in columns.items()
            }
            if not batched and not return_overflowing_tokens:
                columns = {name: values[0] for name, values in columns.items()}
        return BatchEncoding(columns, encodings, tensor_type=return_tensors)

    def _options(self, **given: Any) -> CallOptions:
        """The options of a call: what it gives, else the tokenizer's."""
        own = CallOptions(
            kg=self.kg,
            max_entities=self.max_entities,
            use_predicate=frozen_predicates(self.use_predicate),
            predicates=frozen_predicates(self.predicates),
            knowledge_truncation=self.knowledge_truncation,
            knowledge_label=self.knowledge_label,
        )
        return replace(own, **{name: value for name, value in given.items() if name == "kg" or value is not None})

    def _batch(
        self, rows: Sequence[Row], split: bool, options: CallOptions, add_special_tokens: bool, split_tags: bool
    ) -> Batch:
        """The rows as tokens, and the words with knowledge among them."""
        if self.reference == "ner" and any(row.second is not None for row in rows):
            raise ValueError(f"`text_pair` must be None with reference={self.reference!r}, which reads single texts.")
        by_characters = self.granularity == "char"
        tag_ids: Any
        if self.reference is not None:
            vocab, tags = self._vocabulary(), list(REFERENCE_TAGS)
            tag_ids = [vocab.get(tag, self.unk_token_id) for tag in tags]
            framed = add_special_tokens and self.reference == "classification"
            texts = framed_texts(rows, split, *((self.cls_token, self.sep_token) if framed else ("", "")))
        else:
            tags = list(dict.fromkeys(self.all_special_tokens)) if by_characters and not split_tags else []
            tag_ids = self.convert_tokens_to_ids(tags)
            texts = separate_texts(rows, split)
        store = None
        matches: list[list[Match]] = [[] for _ in texts.searched]
        if options.kg is not None or tags:
            lexicon = self._lexicon(options.kg, tags)
            store = self._store(lexicon, options) if options.kg is not None else None
            matches = lexicon.find(texts.searched)
        source: WordPieces | Characters
        if by_characters:
            source = Characters(texts, self._table(), matches, tag_ids)
            if self.reference is None:  # there, a tag may be a word of the graph as well
                matches = [[match for match in found if match[2] >= len(tags)] for found in matches]
        else:
            backend = plain_backend(self, split_tags)
            encodings = backend.encode_batch(texts.given, add_special_tokens=False, is_pretokenized=split)
            source = WordPieces(texts, encodings)
        return Batch(source, matches, texts.of_row, store)

    def _special_ids(self) -> tuple[int, int]:
        for name in ("cls_token", "sep_token"):
            if getattr(self, name) is None:
                raise ValueError(f"`{name}` must be set, got None. Set it, or pass add_special_tokens=False.")
        return self.cls_token_id, self.sep_token_id

    def _rows_as_the_original(self, batch: Batch, limits: Limits | None, add_special_tokens: bool) -> Rows:
        rows, source = batch.inject((), None), cast(Characters, batch.source)
        rows.source[(rows.source >= 0) & source.is_outside()[rows.source]] = -2
        if limits is not None:
            rows.cut(limits.max_length)
        # A [SEP] in the text begins a second segment only where the text is the whole input, or one of a pair.
        has_second = (source.has_second | (not add_special_tokens)) & (self.reference != "ner")
        rows.number_segments(self.sep_token_id, has_second)
        return rows

    def _flat_columns(
        self,
        rows: Rows,
        width: int | None,
        options: CallOptions,
        token_types: bool | None,
        attention_mask: bool | None,
        special_tokens_mask: bool,
    ) -> dict[str, tuple[np.ndarray, int]]:
        """The columns with a number for each token, and what each is padded with."""
        names = self.model_input_names
        flat: dict[str, tuple[np.ndarray, int]] = {"input_ids": (rows.ids, self.pad_token_id)}
        if "token_type_ids" in names if token_types is None else token_types:
            flat["token_type_ids"] = (rows.token_types, self.pad_token_type_id)
        if "attention_mask" in names if attention_mask is None else attention_mask:
            flat["attention_mask"] = (np.ones(len(rows.ids), dtype=np.int64), 0)
        if special_tokens_mask:
            flat["special_tokens_mask"] = ((rows.source < 0).astype(np.int64), 1)
        flat["position_ids"] = (rows.positions, 0 if self.reference is None else (width or 1) - 1)
        flat["word_index"] = (rows.words, _FILLERS["word_index"])
        flat["branch_id"] = (rows.branches, _FILLERS["branch_id"])
        if options.return_knowledge_mask:
            flat["knowledge_mask"] = ((rows.branches > 0).astype(np.int64), _FILLERS["knowledge_mask"])
        return flat

    def _cached(self, key: Any, make: Callable[[], Any]) -> Any:
        if key not in self._worked_out:
            self._worked_out[key] = make()
        return self._worked_out[key]

    def _lexicon(self, graph: KnowledgeGraph | None, tags: Sequence[str]) -> Lexicon:
        compat = self.pkuseg_compat
        anywhere = compat or self.reference is not None
        options = {
            "ignore_case": self.ignore_case and not anywhere,
            "whole_words": self.whole_words and not anywhere,
            "pkuseg_compat": compat,
            "backend": self.matcher_backend,
        }
        lexicons = self._cached("lexicons", dict)
        # A lexicon keeps its graph, so that an id is not used again for another one.
        key = (id(graph), tuple(tags), *options.values())
        lexicon = lexicons.pop(key, None) or Lexicon(graph, tags, **options)
        lexicons[key] = lexicon  # the one used last stands last
        if len(lexicons) > _LEXICONS:
            del lexicons[next(iter(lexicons))]
        return lexicon

    def _store(self, lexicon: Lexicon, options: CallOptions) -> BranchStore:
        lookup = LookupOptions(
            options.max_entities, options.use_predicate, options.predicates, "" if self.reference is not None else None
        )
        key = (lookup, self.granularity)
        if key not in lexicon.stores:
            lexicon.stores[key] = BranchStore(lexicon, lookup, self._branch_ids)
        return lexicon.stores[key]

    def _branch_ids(self, texts: list[str]) -> list[Sequence[int]]:
        """Objects as tokens."""
        if self.reference is not None:
            vocab, unknown = self._vocabulary(), self.unk_token_id
            return [[vocab.get(char, unknown) for char in text] for text in texts]
        if self.granularity == "char":
            table = self._table()
            return [[token for token in table(text).tolist() if token >= 0] for text in texts]
        return [encoding.ids for encoding in plain_backend(self).encode_batch(texts, add_special_tokens=False)]

    def _table(self) -> CharacterTable:
        resolve = self._character_id if self.reference is None else self._reference_character_id
        return self._cached(("table", self.reference is None), lambda: CharacterTable(resolve))

    def _vocabulary(self) -> dict[str, int]:
        return self._cached("vocabulary", self.get_vocab)

    def _character_id(self, char: str) -> int:
        """As BERT would have a text of one character; -1 if that is nothing."""
        normalizer = self.backend_tokenizer.normalizer
        text = (normalizer.normalize_str(char) if normalizer is not None else char).strip()
        return self._vocabulary().get(text, self.unk_token_id) if text else -1

    def _reference_character_id(self, char: str) -> int:
        return -1 if char.isspace() else self._vocabulary().get(char, self.unk_token_id)

    def explain(self, text: Any, text_pair: Any = None, **kwargs: Any) -> str:
        """Draw the sentence tree of one text: a line for each word with knowledge, its branches below it."""
        row = self(text, text_pair, **kwargs)
        return sentence_tree(row.tokens(), row["position_ids"], row["word_index"], row["branch_id"])

    # ---- padding ----

    def _pad(
        self,
        encoded_inputs: Any,
        max_length: int | None = None,
        padding_strategy: PaddingStrategy = PaddingStrategy.DO_NOT_PAD,
        pad_to_multiple_of: int | None = None,
        padding_side: str | None = None,
        return_attention_mask: bool | None = None,
    ) -> dict[str, Any]:
        size = len(encoded_inputs["input_ids"])
        result = super()._pad(
            encoded_inputs, max_length, padding_strategy, pad_to_multiple_of, padding_side, return_attention_mask
        )
        width = len(result["input_ids"])
        fillers = {
            **_FILLERS,
            "position_ids": width - 1 if self.reference is not None else 0,
            "offset_mapping": (0, 0),
            "labels": NO_LABEL,
        }
        for name, filler in fillers.items():
            values = result.get(name)
            if values is None or (name == "labels" and (not isinstance(values, list | tuple) or len(values) != size)):
                continue  # labels of the text, not of its tokens
            if len(values) != size:
                raise ValueError(f"`{name}` must have a value for each token, got {len(values)} for {size} tokens.")
            more = [filler] * (width - size)
            side = padding_side or self.padding_side
            result[name] = [*more, *values] if side == "left" else [*values, *more]
        return result


def _check_keywords(keywords: dict[str, Any]) -> None:
    """Refuse what no tokenizer's call takes, and what cannot be done here."""
    unknown = [name for name in keywords if name not in _UPSTREAM]
    if unknown:
        raise TypeError(f"`{unknown[0]}` is no argument of a tokenizer's call. Remove it or mend its name.")
    if keywords.get("sanitize_control_tokens"):
        raise ValueError(
            f"`sanitize_control_tokens` must be False, got {keywords['sanitize_control_tokens']!r}: knowledge is "
            "looked up in texts as they are, and this marks them. Mark them for a `BertTokenizer` of the same "
            "vocabulary."
        )


def read_rows(text: Any, text_pair: Any, split: bool, empty_pairs: bool = False) -> tuple[list[Row], bool]:
    """Bring the forms in which a tokenizer takes texts into one, and say whether they are a batch."""
    # As upstream: of words, an empty list is one text without any.
    batched = isinstance(text, list | tuple) and (not split or (len(text) > 0 and isinstance(text[0], list | tuple)))
    if not batched:
        rows = [Row(text, text_pair if empty_pairs else text_pair or None)]
    elif text_pair is not None:
        if isinstance(text_pair, str) or len(text_pair) != len(text):
            size = f"{len(text_pair)} texts" if not isinstance(text_pair, str) else "one text"
            raise ValueError(f"`text_pair` must have a text for each of the {len(text)} of `text`, got {size}.")
        rows = [Row(*pair) for pair in zip(text, text_pair, strict=True)]
    else:
        rows = [Row(*one) if _is_pair(one, split) else Row(one, None) for one in text]
    for first, second in rows:
        for one in (first,) if second is None else (first, second):
            if not _is_text(one, split):
                form = "a list of words" if split else "a text"
                raise TypeError(f"`text` must be {form}, or a list of such, got {one!r}.")
    return rows, batched


def _is_pair(value: Any, split: bool) -> bool:
    return isinstance(value, list | tuple) and len(value) == 2 and (not split or isinstance(value[0], list | tuple))


def _is_text(value: Any, split: bool) -> bool:
    if not split:
        return isinstance(value, str)
    return isinstance(value, list | tuple) and all(isinstance(word, str) for word in value)


# ---- options ----


def frozen_predicates(value: Any) -> Any:
    """A collection of predicates as a frozen set; anything else as it is."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str) or not isinstance(value, Collection):
        raise TypeError(
            f"`use_predicate` and `predicates` must be lists of predicates if they name some, got {value!r}."
        )
    return frozenset(value)


def listed(value: Any) -> Any:
    """An option as tokenizer_config.json can hold it: predicates as a sorted list."""
    value = frozen_predicates(value)
    return sorted(value) if isinstance(value, frozenset) else value


def as_graph(kg: Any) -> KnowledgeGraph | None:
    """A graph, or what one is read from."""
    # Graphs are told by what they can do, because a checkpoint's copy of the class is another class.
    if kg is None or hasattr(kg, "lookup"):
        return kg
    if isinstance(kg, str | os.PathLike):
        return KnowledgeGraph.from_files(kg)
    if isinstance(kg, list | tuple):
        return KnowledgeGraph.from_files(*kg)
    raise TypeError(
        f"`kg` must be a `KnowledgeGraph`, a path or paths of triple files, or None, got {type(kg).__name__}. Make "
        "one with `KnowledgeGraph.from_dict` or `.from_triples`."
    )


def load_graph(kg: Any, file: str | None, sha256: Any) -> KnowledgeGraph | None:
    """The graph that a tokenizer was given, or the one that it was saved with."""
    if kg is not SAVED:
        return as_graph(kg)
    if sha256 is None or (sha256 is SAVED and file is None):
        return None
    if file is None or not os.path.isfile(file):
        raise ValueError(
            f"`{KNOWLEDGE_GRAPH_FILE}` must be beside tokenizer_config.json, which names its sha256 {sha256}; it is "
            "missing. Restore it, pass the graph as `kg`, or pass kg=None for a tokenizer without knowledge."
        )
    return KnowledgeGraph.from_file(file, sha256=None if sha256 is SAVED else sha256)


__all__ = ["KBertTokenizer", "KnowledgeGraph"]
