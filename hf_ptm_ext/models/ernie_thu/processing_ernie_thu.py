"""Text and entity annotations to model inputs (Zhang et al. 2019; https://github.com/thunlp/ERNIE).

    processor("Bob Dylan wrote ...", entities=[{"start": 0, "end": 9, "id": "Q392"}])

The text is tokenised once, unchanged; annotations in characters (or words) are placed on its tokens (`alignment_`),
and two fields join what the tokenizer gives, of the same length: `entity_ids` (0 = none) and `entity_mask` (1 where an
entity is, and at the first token, as in the released code). Without annotations a linker can find them.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from transformers import AutoTokenizer, BatchEncoding, ProcessorMixin
from transformers.utils import cached_file, logging

from .alignment_ernie_thu import ALIGNMENTS
from .annotations_ernie_thu import EntityAnnotation
from .call_ernie_thu import ProcessorCall, check_choice
from .entity_vocab_ernie_thu import POLICIES, EntityVocabulary
from .files_ernie_thu import check_tokenizer_config, path_inside
from .linker_ernie_thu import DictionaryLinker
from .pickling_ernie_thu import WorkedOut, leaving_the_backend

logger = logging.get_logger(__name__)

VOCABULARY_FILE = "entity_vocab.safetensors"
LINKER_FILE = "entity_linker.safetensors"
Linker = Callable[[list[str]], list[list[EntityAnnotation]]]
# Options that a call may set for itself, and arguments that may stand behind the text.
_OF_A_CALL = ("alignment", "min_score", "on_unknown_entity", "on_dropped_entity")
_OPTIONS = (*_OF_A_CALL, "markers")
_BY_PLACE = ("text_pair", "entities", "entities_pair")
_HUB_OPTIONS = ("cache_dir", "force_download", "local_files_only", "token", "revision", "subfolder")


class ErnieThuProcessor(ProcessorMixin):
    """A fast BERT tokenizer, an entity vocabulary and, if wanted, a linker.

    Args:
        tokenizer: a fast tokenizer.
        entity_vocab: `EntityVocabulary` or `EntityTable` that turns external ids into `entity_ids`; `None` if the
            annotations' ids are `entity_ids` already (integers).
        linker: function from a list of texts to a list of lists of annotations, for calls without `entities`. A
            `DictionaryLinker` is saved with the processor; any other function is the user's to pass again.
        alignment: which tokens of a mention carry the entity: "first" (default; the fine-tuning code), "all",
            "alternate" (the released pre-training data) or "reference" (see `alignment_ernie_thu`).
        min_score: annotations count if their score is greater (0.3, as in the reference's typing script; 0.4 in its
            TACRED command); annotations without a score count.
        on_unknown_entity: what to do about ids that the vocabulary lacks: "ignore", "warn" (default: a line in the
            log) or "error". They count as no entity in any case.
        on_dropped_entity: the same for annotations that overlap with a longer one, start inside a token, or have no
            token.
        markers: of head, tail and typed mention; the reference's "#", "$" and "。" are ordinary symbols of the
            vocabulary. New ones are added with `tokenizer.add_tokens`.

    Attributes:
        entity_counts: how many annotations were given, placed, dropped by reason, since the processor was made.

    Raises:
        ValueError: the tokenizer is slow, or an option is none of its values.

    Example:
        >>> from transformers import BertTokenizerFast
        >>> from .entity_vocab_ernie_thu import EntityVocabulary
        >>> vocab = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "bob": 5, "dylan": 6, "##s": 7}
        >>> processor = ErnieThuProcessor(BertTokenizerFast(vocab=vocab), EntityVocabulary.from_ids(["Q392"]))
        >>> inputs = processor("Bob Dylan", entities=[(0, 9, "Q392")])
        >>> inputs["input_ids"], inputs["entity_ids"], inputs["entity_mask"]
        ([2, 5, 6, 3], [0, 1, 0, 0], [1, 1, 0, 0])
    """

    def __init__(
        self,
        tokenizer: Any,
        entity_vocab: Any = None,
        linker: Linker | None = None,
        alignment: str = "first",
        min_score: float = 0.3,
        on_unknown_entity: str = "warn",
        on_dropped_entity: str = "warn",
        markers: Sequence[str] = ("#", "$", "。"),
    ):
        super().__init__(tokenizer)
        if not tokenizer.is_fast:
            raise ValueError(
                f"`tokenizer` must be a fast one, which knows the characters of its tokens, got "
                f"{type(tokenizer).__name__}. Load it with `AutoTokenizer.from_pretrained`."
            )
        if entity_vocab is not None and not hasattr(entity_vocab, "rows"):
            raise TypeError(
                f"`entity_vocab` must be an `EntityVocabulary` or `EntityTable`, got {type(entity_vocab).__name__}. "
                "Make one with `EntityVocabulary.from_ids(ids)` or `.from_entity2id(mapping)`."
            )
        if linker is not None and not callable(linker):
            raise TypeError(f"`linker` must be a function of a list of texts, got {linker!r}.")
        check_choice("alignment", alignment, ALIGNMENTS)
        check_choice("on_unknown_entity", on_unknown_entity, POLICIES)
        check_choice("on_dropped_entity", on_dropped_entity, POLICIES)
        if isinstance(markers, str) or len(markers) != 3 or not all(isinstance(one, str) and one for one in markers):
            raise ValueError(f"`markers` must be three texts, for head, tail and typed mention, got {markers!r}.")
        # An entity table keeps its ids in a vocabulary of its own, which is all that the processor needs.
        self.entity_vocab = getattr(entity_vocab, "vocabulary", entity_vocab)
        self.linker = linker
        self.alignment = alignment
        self.min_score = min_score
        self.on_unknown_entity = on_unknown_entity
        self.on_dropped_entity = on_dropped_entity
        self.markers = tuple(markers)
        self.entity_counts: Counter[str] = Counter()
        # Which warnings were given changes in use, and is no part of what the processor is.
        tokenizer.deprecation_warnings = WorkedOut(tokenizer.deprecation_warnings)

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the counts: a copy begins to count anew."""
        return {**self.__dict__, "entity_counts": Counter()}

    # ---- saving and loading ----

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, **kwargs: Any) -> "ErnieThuProcessor":  # type: ignore[override]
        """Load the tokenizer, the vocabulary, the linker and the options.

        Args:
            pretrained_model_name_or_path: a folder or Hub id; one with a tokenizer alone is enough.
            kwargs: the arguments of the class, in place of what was saved; the others are passed on to
                `AutoTokenizer.from_pretrained` (`revision`, `token`, ...).

        Returns:
            The processor.

        Raises:
            ValueError: tokenizer_config.json names a file outside the checkpoint, or a file is a link out of it.
        """
        own = {name: kwargs.pop(name) for name in ("entity_vocab", "linker", *_OPTIONS) if name in kwargs}
        hub = {name: kwargs[name] for name in _HUB_OPTIONS if kwargs.get(name) is not None}
        folder = Path(pretrained_model_name_or_path, hub.get("subfolder", ""))
        check_tokenizer_config(folder)
        saved, _ = cls.get_processor_dict(pretrained_model_name_or_path, **hub)
        tokenizer = AutoTokenizer.from_pretrained(pretrained_model_name_or_path, **kwargs)
        files = {"tokenizer.json", *tokenizer.vocab_files_names.values()}
        # Without its vocabulary upstream makes one of five pieces, to which every word is unknown.
        if folder.is_dir() and not any((folder / file).is_file() for file in files):
            raise ValueError(f"{folder} has no vocabulary: none of {', '.join(sorted(files))} is a file there.")
        options = {name: saved[name] for name in _OPTIONS if name in saved}
        readers = {"entity_vocab": (VOCABULARY_FILE, EntityVocabulary), "linker": (LINKER_FILE, DictionaryLinker)}
        for name, (file, reader) in readers.items():
            if saved.get(f"{name}_file") and name not in own:
                if folder.is_dir():
                    path_inside(folder, file, "The processor")
                options[name] = reader.from_file(cached_file(pretrained_model_name_or_path, file, **hub))
        return cls(tokenizer, **{**options, **own})

    def save_pretrained(self, save_directory: Any, push_to_hub: bool = False, **kwargs: Any) -> Any:
        """Write the tokenizer, the vocabulary, the linker, the options and, as a custom class, the code.

        Args:
            save_directory: the folder.
            push_to_hub: whether to upload it too; `repo_id`, `token` and so on go to `push_to_hub`.
            kwargs: as upstream.

        Returns:
            What upstream's method returns.
        """
        folder = Path(save_directory)
        folder.mkdir(parents=True, exist_ok=True)
        if self.entity_vocab is not None:
            self.entity_vocab.save(folder / VOCABULARY_FILE)
        if self._linker_is_saved:
            self.linker.save(folder / LINKER_FILE)  # type: ignore[union-attr]
        elif self.linker is not None:
            logger.warning(
                f"The linker {self.linker!r} is a function of yours and is not saved. Pass `linker` again to load."
            )
        mapped, named = "auto_map" in self.__dict__, self.tokenizer._processor_class
        try:
            files = super().save_pretrained(str(save_directory), **({} if push_to_hub else kwargs))
        finally:  # what upstream notes for the files is no part of what the processor is
            self.tokenizer._processor_class = named
            if not mapped:
                self.__dict__.pop("auto_map", None)
        if push_to_hub:
            repo_id = kwargs.pop("repo_id", folder.name)
            self.push_to_hub(repo_id, **kwargs)
        return files

    @property
    def _linker_is_saved(self) -> bool:
        return hasattr(self.linker, "save")

    def to_dict(self) -> dict[str, Any]:
        """What `processor_config.json` holds.

        Returns:
            The options, and which of the two files there are.
        """
        result: dict[str, Any] = {name: getattr(self, name) for name in _OPTIONS}
        result["markers"] = list(self.markers)
        result["entity_vocab_file"] = None if self.entity_vocab is None else VOCABULARY_FILE
        result["linker_file"] = LINKER_FILE if self._linker_is_saved else None
        if getattr(self, "auto_map", None):
            result["auto_map"] = self.auto_map
        result["processor_class"] = type(self).__name__
        return result

    # ---- what collators of tokenizers ask for ----

    @property
    def model_input_names(self) -> list[str]:
        """The tokenizer's names, `entity_ids` and `entity_mask`."""
        return [*self.tokenizer.model_input_names, "entity_ids", "entity_mask"]

    @property
    def padding_side(self) -> str:
        """The tokenizer's."""
        return self.tokenizer.padding_side

    @property
    def pad_token_id(self) -> int | None:
        """The tokenizer's."""
        return self.tokenizer.pad_token_id

    @property
    def deprecation_warnings(self) -> dict[str, bool]:
        """The tokenizer's."""
        return self.tokenizer.deprecation_warnings

    def pad(self, encoded_inputs: Any, padding: Any = True, **kwargs: Any) -> BatchEncoding:
        """Pad rows as the tokenizer does, the entity fields with 0.

        Args:
            encoded_inputs: rows as a list of mappings or a mapping of lists.
            padding: as in the tokenizer.
            kwargs: as in the tokenizer's `pad`.

        Returns:
            The batch.

        Raises:
            ValueError: an entity field is not as long as its row.
        """
        if isinstance(encoded_inputs, Sequence) and encoded_inputs and isinstance(encoded_inputs[0], Mapping):
            encoded_inputs = {name: [row[name] for row in encoded_inputs] for name in encoded_inputs[0]}
        columns = dict(encoded_inputs)
        extra = {
            name: columns.pop(name) for name in ("entity_ids", "entity_mask", "offset_mapping") if name in columns
        }
        ids = columns.get("input_ids", [])
        batched = len(ids) > 0 and not isinstance(_plain(ids[0]), int)
        lengths = [len(row) for row in ids] if batched else [len(ids)]
        kind = kwargs.pop("return_tensors", None)
        if kind is None and len(ids) and not isinstance(ids[0], list | tuple | int):
            kind = "np" if isinstance(ids[0], np.ndarray | np.integer) else "pt"
        self.deprecation_warnings["Asking-to-pad-a-fast-tokenizer"] = True
        padded = self.tokenizer.pad({name: _plain(value) for name, value in columns.items()}, padding, **kwargs)
        side = kwargs.get("padding_side") or self.tokenizer.padding_side
        new_ids = padded["input_ids"] if batched else [padded["input_ids"]]
        for name, values in extra.items():
            rows = []
            filler: Any = (0, 0) if name == "offset_mapping" else 0
            for row, length, wide in zip(
                _plain(values) if batched else [_plain(values)], lengths, new_ids, strict=True
            ):
                if len(row) != length:
                    raise ValueError(f"`{name}` must have one entry per token, got {len(row)} for {length} tokens.")
                more = [filler] * (len(wide) - length)
                rows.append([*more, *row] if side == "left" else [*row, *more])
            padded[name] = rows if batched else rows[0]
        return BatchEncoding(dict(padded), tensor_type=kind)

    # ---- text to inputs ----

    @leaving_the_backend
    def __call__(  # type: ignore[override]
        self,
        text: Any = None,
        *more: Any,
        entities: Any = None,
        entities_pair: Any = None,
        task: str | None = None,
        head: Any = None,
        tail: Any = None,
        span: Any = None,
        **kwargs: Any,
    ) -> BatchEncoding:
        """Tokenise texts and place their entities.

        Args:
            text: a text or a list of texts; with `is_split_into_words` a list of words or a list of such lists.
            more: `text_pair`, `entities` and `entities_pair` by place.
            entities: annotations of `text`, for a batch one list per text: mappings with `start`, `end`, `id` and
                perhaps `score`, or (start, end, id[, score]), or (id, start, end[, score]). `start` and `end` count
                characters of the original text (words with `is_split_into_words`), end exclusive. `None`: the linker
                finds them, if there is one.
            entities_pair: annotations of `text_pair`.
            task: "relation" puts markers around `head` and `tail`, "typing" around `span`; all three are (start, end)
                in `text` or annotations, for a batch one per text.
            head: see `task`.
            tail: see `task`.
            span: see `task`.
            kwargs: `min_score`, `alignment`, `on_unknown_entity` and `on_dropped_entity` as in the class, for this
                call; `link` (default True), whether the linker may be asked; `return_entity_report` (default False) to
                add `entity_report`, for each text the list of its `DroppedEntity`; and those of the tokenizer, by
                themselves or as `text_kwargs`: `text_pair` (second texts of pairs, of the same form as `text`),
                `is_split_into_words`, `return_tensors`, `padding`, `truncation`, `max_length`, `stride`,
                `return_overflowing_tokens`, `return_offsets_mapping`, ... Truncation and windows cut entities together
                with their tokens. With alignment "reference" and a task the offsets are those of the text with
                markers.

        Returns:
            What the tokenizer gives, `entity_ids` and `entity_mask`.

        Raises:
            TypeError: an annotation or option is not of a known form.
            ValueError: an annotation lies outside its text, an option is none of its values, a marker is not in the
                vocabulary, or an entity is unknown or dropped under the policy "error".
        """
        given = {"entities": entities, "entities_pair": entities_pair, **(kwargs.pop("text_kwargs", None) or {})}
        given |= kwargs
        if len(more) > len(_BY_PLACE):
            raise TypeError(f"`text` may be followed by {', '.join(_BY_PLACE)}, got {len(more)} more arguments.")
        for name, value in zip(_BY_PLACE, more, strict=False):
            if given.get(name) is not None:
                raise TypeError(f"`{name}` must be given once, got it by place and by name.")
            given[name] = value
        own = {name: given.pop(name, None) for name in _OF_A_CALL}
        own = {name: getattr(self, name) if value is None else value for name, value in own.items()}
        text_pair, return_tensors = given.pop("text_pair", None), given.pop("return_tensors", None)
        link, wants_report = given.pop("link", True), given.pop("return_entity_report", False)
        split = bool(given.pop("is_split_into_words", False))
        call = ProcessorCall(self, text, text_pair, split=split, **own)
        call.read_entities(given.pop("entities"), given.pop("entities_pair"), link)
        spans = {"head": head, "tail": tail, "span": span}
        if task is not None:
            result = call.encode_with_markers(task, spans, return_tensors, given)
        elif any(value is not None for value in spans.values()):
            raise ValueError("`head`, `tail` and `span` must come with `task`, got none. Pass 'relation' or 'typing'.")
        else:
            result = call.encode(text, text_pair, return_tensors, given)
        call.report()
        if wants_report:
            result["entity_report"] = call.dropped_by_text() if call.batched else call.dropped_by_text()[0]
        return result


def _plain(value: Any) -> Any:
    """Arrays and tensors as lists."""
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value] if value and hasattr(value[0], "tolist") else value
    return value.tolist() if hasattr(value, "tolist") else value
