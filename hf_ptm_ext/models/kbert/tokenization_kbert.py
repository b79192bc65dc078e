"""K-BERT's tokenizer: BERT's, with knowledge spliced in behind the words that a graph knows (Liu et al. 2020,
https://arxiv.org/abs/1909.07606; https://github.com/autoliuweijie/K-BERT).

Three columns join BERT's: `position_ids` (soft positions: the trunk counts as if it stood alone, a branch goes on from
its word), and `word_index` and `branch_id`, from which the model knows who sees whom (see `visibility_kbert`). The
graph travels with the tokenizer as `knowledge_graph.safetensors`; tokenizer_config.json has its sha256, and a file
that is missing or different is an error.

Tokens are the word pieces of BERT: Chinese by characters, English by words. Where the released code does otherwise
(every character a token, capitals unknown, no final [SEP], names lost to its segmenter, branches cut in the middle),
`reference` brings that back, to the token.
"""

import os
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from transformers import BatchEncoding, BertTokenizer
from transformers.processing_utils import TextKwargs
from transformers.utils import PaddingStrategy

from .batch_kbert import (
    FILLERS,
    Batch,
    Limits,
    labels_of,
    make_batch,
    make_reference_batch,
    margins,
    padded,
    read_rows,
    reference_types,
    source_index,
    to_batch_encoding,
    width_of,
)
from .encoding_kbert import KBertEncoding
from .explanation_kbert import sentence_tree
from .files_kbert import tokenizer_files, with_words
from .knowledge_graph_kbert import KNOWLEDGE_GRAPH_FILE, KnowledgeGraph
from .lexicon_kbert import BranchStore, Lexicon, LookupOptions, frozen_predicates
from .options_kbert import (
    GRANULARITIES,
    NO_LABEL,
    REFERENCES,
    SAVED,
    CallOptions,
    as_graph,
    check_choice,
    check_count,
    listed,
    load_graph,
)
from .pickling_kbert import WorkedOut, leaving_the_backend
from .restoration_kbert import KBertRestoring
from .sources_kbert import CharacterTable
from .truncation_kbert import KNOWLEDGE_TRUNCATIONS

# Literal tags of the original project, one token each.
REFERENCE_TAGS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[ENT]", "[SUB]", "[PRE]", "[OBJ]")
KNOWLEDGE_INPUTS = ("position_ids", "word_index", "branch_id")
# What upstream's own callers may pass to any tokenizer, whether it reads it or not.
_UPSTREAM = frozenset((*TextKwargs.__annotations__, "max_target_length", "src_lang", "tgt_lang"))
_DO_NOT = ("do_not_pad", "do_not_truncate")
# How many searches are kept ready; a graph for each call must not fill the memory.
_LEXICONS = 8


class KBertTokenizer(KBertRestoring, BertTokenizer):
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

    Example:
        >>> words = "[PAD] [UNK] [CLS] [SEP] [MASK] 我 在 北 京 首 都".split()
        >>> graph = KnowledgeGraph([("北京", "是", "首都")])
        >>> tokenizer = KBertTokenizer({word: number for number, word in enumerate(words)}, kg=graph)
        >>> inputs = tokenizer("我在北京")
        >>> " ".join(inputs.tokens()), inputs["position_ids"], inputs["branch_id"]
        ('[CLS] 我 在 北 京 首 都 [SEP]', [0, 1, 2, 3, 4, 5, 6, 5], [0, 0, 0, 0, 0, 1, 1, 0])
    """

    vocab_files_names = {**BertTokenizer.vocab_files_names, "knowledge_graph_file": KNOWLEDGE_GRAPH_FILE}
    model_input_names = ["input_ids", "token_type_ids", "attention_mask", *KNOWLEDGE_INPUTS]

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
        check_choice("knowledge_truncation", knowledge_truncation, KNOWLEDGE_TRUNCATIONS)
        if reference is not None:
            check_choice("reference", reference, REFERENCES)
            granularity = "char"
        if pkuseg_compat is None:
            pkuseg_compat = reference is not None
        if pkuseg_compat and granularity != "char":
            raise ValueError(f"`pkuseg_compat` must come with granularity='char', got {granularity!r}.")
        check_count("max_entities", max_entities)
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
        names = kwargs.pop("model_input_names", None) or self.model_input_names
        names = list(dict.fromkeys([*names, *KNOWLEDGE_INPUTS]))
        super().__init__(vocab, do_lower_case, model_input_names=names, **kwargs, **options)
        for name, value in options.items():
            setattr(self, name, value)
        self.matcher_backend = matcher_backend
        if reference == "ner":
            self._pad_token_type_id = 1
        self._caches = WorkedOut()
        self.deprecation_warnings = WorkedOut()
        self.kg = load_graph(kg, knowledge_graph_file, knowledge_graph_sha256)

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *args: Any, **kwargs: Any) -> Any:
        """Load the tokenizer of a BERT or of a K-BERT.

        Args:
            pretrained_model_name_or_path: a folder or a hub id.
            args: as upstream.
            kwargs: as upstream, and the options of the class, `kg` among them.

        Returns:
            The tokenizer.

        Raises:
            FileNotFoundError: there is no triple file of the name in `kg`.
            ValueError: there is no vocabulary (upstream would make a tokenizer without words), or as in the class.
        """
        # Read here, because upstream takes a missing file for one of the vocabulary's.
        if kwargs.get("kg", SAVED) is not SAVED:
            kwargs["kg"] = as_graph(kwargs["kg"])
        tokenizer = super().from_pretrained(pretrained_model_name_or_path, *args, **kwargs)
        return with_words(tokenizer, pretrained_model_name_or_path)

    @classmethod
    def _from_pretrained(  # type: ignore[override]
        cls, resolved_vocab_files: dict[str, Any], source: Any, configuration: Any, *args: Any, **kwargs: Any
    ) -> Any:
        found = tokenizer_files(source, resolved_vocab_files, kwargs, ["kg"])
        kwargs |= {name: as_graph(paths) for name, paths in found.items()}
        return super()._from_pretrained(resolved_vocab_files, source, configuration, *args, **kwargs)

    def _add_tokens(self, new_tokens: Any, special_tokens: bool = False) -> int:
        self._caches = WorkedOut()  # ids of characters and branches are those of the vocabulary before
        return super()._add_tokens(new_tokens, special_tokens)

    def train_new_from_iterator(self, *args: Any, **kwargs: Any) -> Any:
        """As upstream; the graph goes along."""
        tokenizer = super().train_new_from_iterator(*args, **kwargs)
        tokenizer.kg = self.kg
        return tokenizer

    # ---- saving ----

    def save_pretrained(self, save_directory: str | os.PathLike[str], *args: Any, **kwargs: Any) -> tuple[str, ...]:
        """Save the tokenizer and its graph.

        Args:
            save_directory: the folder.
            args: as upstream.
            kwargs: as upstream.

        Returns:
            The files.
        """
        self.init_kwargs["knowledge_graph_sha256"] = None if self.kg is None else self.kg.sha256
        try:
            return super().save_pretrained(save_directory, *args, **kwargs)
        finally:
            del self.init_kwargs["knowledge_graph_sha256"]

    def _save_pretrained(
        self,
        save_directory: str | os.PathLike[str],
        file_names: tuple[str, ...],
        legacy_format: bool | None = None,
        filename_prefix: str | None = None,
    ) -> tuple[str, ...]:
        files = super()._save_pretrained(save_directory, file_names, legacy_format, filename_prefix)
        if self.kg is None:
            return files
        prefix = f"{filename_prefix}-" if filename_prefix else ""
        return (*files, str(self.kg.save(Path(save_directory, prefix + KNOWLEDGE_GRAPH_FILE))))

    # ---- text to inputs ----

    def __call__(  # type: ignore[override]
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
        """Tokenise texts and inject knowledge.

        Args:
            text: a text or a list of texts; with `is_split_into_words` a list of words or a list of such lists.
            text_pair: second texts of pairs, of the same form.
            args: as in `BertTokenizer`.
            kg: another graph for this call; `None` for none.
            max_entities: as in the class, for this call.
            use_predicate: as in the class, for this call.
            predicates: as in the class, for this call.
            knowledge_truncation: as in the class, for this call.
            return_knowledge_mask: add `knowledge_mask`, 1 on injected tokens.
            return_source_index: add `source_index`: the character of its text at which a token begins, or the number
                of its word if the text came as words; -1 for injected and special tokens.
            word_labels: with `is_split_into_words`, a class for each word, for a batch a list for each text; adds
                `labels`.
            knowledge_label: as in the class, for this call.
            padding_label: label of padding (default -100; the original project has a class [PAD], its number 0).
            kwargs: as in `BertTokenizer`: `padding`, `truncation`, `max_length`, `stride`, `is_split_into_words`,
                `return_tensors`, `return_overflowing_tokens`, `return_offsets_mapping`, ... Windows of long texts
                each have the knowledge that fits.

        Returns:
            `input_ids`, `token_type_ids`, `attention_mask`, `position_ids`, `word_index`, `branch_id`, and what was
            asked for, `(batch, seq_len)` each.

        Raises:
            TypeError: something is no text, or an option is of another kind or unknown.
            ValueError: an option is none of its values, `max_length` leaves no room, or labels do not fit words.
        """
        if knowledge_truncation is not None:
            check_choice("knowledge_truncation", knowledge_truncation, KNOWLEDGE_TRUNCATIONS)
        if max_entities is not None:
            check_count("max_entities", max_entities)
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
    def _encode_plus(  # type: ignore[override]
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
        unknown = [name for name in kwargs if name not in _UPSTREAM]
        if unknown:
            raise TypeError(f"`{unknown[0]}` is no argument of a tokenizer's call. Remove it or mend its name.")
        if kwargs.get("sanitize_control_tokens"):
            raise ValueError(
                "`sanitize_control_tokens` must be False: knowledge is looked up in texts as they are, and this marks "
                "them. Mark them for a `BertTokenizer` of the same vocabulary."
            )
        options = kbert_options or self._options()
        rows, batched = read_rows(text, text_pair, is_split_into_words, self.reference is not None)
        truncation = getattr(truncation_strategy, "value", truncation_strategy)
        padding = getattr(padding_strategy, "value", padding_strategy)
        split_tags = self.split_special_tokens if split_special_tokens is None else split_special_tokens
        limit = None if truncation in _DO_NOT else max_length
        frame = self._special_ids() if add_special_tokens else ()
        if self.reference is not None:
            batch, outside = self._reference_batch(rows, is_split_into_words, options, add_special_tokens)
            result = batch.inject((), None)
            result.source[(result.source >= 0) & outside[result.source]] = -2
            if limit is not None:
                result.cut(limit)
            # A [SEP] in the text begins a second segment only where the text is the whole input, or one of a pair.
            counts = np.array([row.second is not None or not add_special_tokens for row in rows], dtype=bool)
            result.token_types = reference_types(result, self.sep_token_id, counts & (self.reference != "ner"))
        else:
            batch = self._batch(rows, is_split_into_words, options, split_tags)
            limits = Limits(
                limit,
                truncation,
                self.truncation_side,
                options.knowledge_truncation,
                return_overflowing_tokens,
                stride,
            )
            batch.limit(limits, (2, 3) if add_special_tokens else (0, 0))
            result = batch.inject(frame, limit)

        sizes = np.diff(result.bounds)
        width = width_of(sizes, padding, max_length, pad_to_multiple_of)
        left = (padding_side or self.padding_side) == "left"
        last = (width or 1) - 1 if self.reference is not None else 0
        ones = np.ones(len(result.ids), dtype=np.int64)
        encodings = [
            KBertEncoding(result, row, batch.source, self, rows[sample], sample, margins(size, width, left))
            for row, (size, sample) in enumerate(zip(sizes.tolist(), batch.samples.tolist(), strict=True))
        ]
        names = self.model_input_names
        flat: dict[str, tuple[np.ndarray, int]] = {"input_ids": (result.ids, self.pad_token_id)}
        if "token_type_ids" in names if return_token_type_ids is None else return_token_type_ids:
            flat["token_type_ids"] = (result.token_types, self.pad_token_type_id)
        if "attention_mask" in names if return_attention_mask is None else return_attention_mask:
            flat["attention_mask"] = (ones, 0)
        if return_special_tokens_mask:
            flat["special_tokens_mask"] = ((result.source < 0).astype(np.int64), 1)
        flat["position_ids"] = (result.positions, last)
        flat["word_index"] = (result.words, FILLERS["word_index"])
        flat["branch_id"] = (result.branches, FILLERS["branch_id"])
        if options.return_knowledge_mask:
            flat["knowledge_mask"] = ((result.branches > 0).astype(np.int64), FILLERS["knowledge_mask"])
        columns: dict[str, Any] = {
            name: padded(values, result.bounds, width, filler, left) for name, (values, filler) in flat.items()
        }
        if return_offsets_mapping:
            columns["offset_mapping"] = [encoding.offsets for encoding in encodings]
        if options.return_source_index:
            columns["source_index"] = [source_index(encoding, is_split_into_words) for encoding in encodings]
        if return_length:
            columns["length"] = [len(encoding) for encoding in encodings]
        if options.word_labels is not None:
            columns["labels"] = labels_of(encodings, rows, options, batched, self.only_label_first_subword)
        if return_overflowing_tokens:
            columns["overflow_to_sample_mapping"] = batch.samples.tolist()
        if verbose:
            self._warn_if_too_long(result.positions, max_length)
        nested = batched or return_overflowing_tokens
        return to_batch_encoding(columns, encodings, nested, return_tensors)

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

    def _special_ids(self) -> tuple[int, int]:
        for name in ("cls_token", "sep_token"):
            if getattr(self, name) is None:
                raise ValueError(f"`{name}` must be set, got None. Set it, or pass add_special_tokens=False.")
        return self.cls_token_id, self.sep_token_id

    def _batch(self, rows: Any, split: bool, options: CallOptions, split_tags: bool) -> Batch:
        table, tags = None, []
        if self.granularity == "char":
            tags = [] if split_tags else list(dict.fromkeys(self.all_special_tokens))
            table = self._cached("table", lambda: CharacterTable(self._character_id))
        lexicon = store = None
        if options.kg is not None:
            lexicon = self._lexicon(options.kg, tags)
            store = self._store(lexicon, options)
        elif tags:
            lexicon = self._lexicon(None, tags)
        tag_ids = self.convert_tokens_to_ids(tags)

        def encode(texts: list[Any]) -> list[Any]:
            self._plain_backend(split_tags)
            return self._tokenizer.encode_batch(texts, add_special_tokens=False, is_pretokenized=split)

        return make_batch(rows, split, lexicon, store, encode, table, tag_ids)

    def _reference_batch(
        self, rows: Any, split: bool, options: CallOptions, add_special_tokens: bool
    ) -> tuple[Batch, np.ndarray]:
        frame = (self.cls_token, self.sep_token) if add_special_tokens and self.reference != "ner" else ("", "")
        if self.reference == "ner" and any(row.second is not None for row in rows):
            raise ValueError("`text_pair` must be None with reference='ner', which reads single texts.")
        tags = list(REFERENCE_TAGS)
        lexicon = self._lexicon(options.kg, tags)
        store = self._store(lexicon, options) if options.kg is not None else None
        table = self._cached("reference table", lambda: CharacterTable(self._reference_character_id))
        vocab = self._vocabulary()
        tag_ids = [vocab.get(tag, self.unk_token_id) for tag in tags]
        return make_reference_batch(rows, split, lexicon, store, table, tag_ids, frame)

    def _cached(self, key: Any, make: Any) -> Any:
        if key not in self._caches:
            self._caches[key] = make()
        return self._caches[key]

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
            options.max_entities,
            options.use_predicate,
            options.predicates,
            "" if self.reference is not None else None,
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
            table = self._cached("table", lambda: CharacterTable(self._character_id))
            return [[token for token in table(text).tolist() if token >= 0] for text in texts]
        self._plain_backend(False)
        return [encoding.ids for encoding in self._tokenizer.encode_batch(texts, add_special_tokens=False)]

    def _plain_backend(self, split_tags: bool) -> None:
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = split_tags

    def _vocabulary(self) -> dict[str, int]:
        return self._cached("vocabulary", self.get_vocab)

    def _character_id(self, char: str) -> int:
        """As BERT would have a text of one character; -1 if that is nothing."""
        normalizer = self._tokenizer.normalizer
        text = (normalizer.normalize_str(char) if normalizer is not None else char).strip()
        return self._vocabulary().get(text, self.unk_token_id) if text else -1

    def _reference_character_id(self, char: str) -> int:
        return -1 if char.isspace() else self._vocabulary().get(char, self.unk_token_id)

    def _warn_if_too_long(self, positions: np.ndarray, max_length: int | None) -> None:
        """Positions are what a model has a table of; a row may have more tokens."""
        if len(positions):
            self._eventual_warn_about_too_long_sequence(range(int(positions.max()) + 1), max_length, True)

    def explain(self, text: Any, text_pair: Any = None, **kwargs: Any) -> str:
        """Draw the sentence tree of one text, to see what is injected where.

        Args:
            text: as in the call, one text.
            text_pair: as in the call.
            kwargs: as in the call.

        Returns:
            A line for each word with knowledge and for the text between, with positions; branches below their word.
        """
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
            **FILLERS,
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


__all__ = ["KBertTokenizer", "KnowledgeGraph"]
