"""Text and entity annotations to model inputs (Zhang et al. 2019; https://github.com/thunlp/ERNIE).

processor("Bob Dylan wrote ...", entities=[{"start": 0, "end": 9, "id": "Q392"}])
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from transformers import AutoTokenizer, BatchEncoding, ProcessorMixin
from transformers.utils import cached_file, logging

from .annotations_ernie_thu import ALIGNMENTS, DictionaryLinker, EntityAnnotation
from .encoding_ernie_thu import ProcessorCall, plain
from .entity_vocab_ernie_thu import POLICIES, EntityVocabulary
from .markers_ernie_thu import add_markers
from .tokenizer_core import WorkedOut, check_choice, leaving_the_backend
from .tokenizer_files_core import check_tokenizer_config, file_inside

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
            "alternate" (the released pre-training data) or "reference" (see `annotations_ernie_thu`).
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

    Examples:
        >>> from hf_ptm_ext import EntityVocabulary
        >>> from transformers import BertTokenizerFast
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
        self.linker: Any = linker
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
        readers: Any = {"entity_vocab": (VOCABULARY_FILE, EntityVocabulary), "linker": (LINKER_FILE, DictionaryLinker)}
        for name, (file, reader) in readers.items():
            if saved.get(f"{name}_file") and name not in own:
                if folder.is_dir():
                    file_inside(folder, file, "The processor")
                options[name] = reader.from_file(cached_file(pretrained_model_name_or_path, file, **hub))
        return cls(tokenizer, **{**options, **own})

    def save_pretrained(self, save_directory: Any, push_to_hub: bool = False, **kwargs: Any) -> Any:
        """Write the tokenizer, the vocabulary, the linker, the options and, as a custom class, the code; or push them.

        `repo_id`, `token` and so on go to `push_to_hub`.
        """
        folder = Path(save_directory)
        folder.mkdir(parents=True, exist_ok=True)
        if self.entity_vocab is not None:
            self.entity_vocab.save(folder / VOCABULARY_FILE)
        if hasattr(self.linker, "save"):
            self.linker.save(folder / LINKER_FILE)
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

    def to_dict(self) -> dict[str, Any]:
        """What `processor_config.json` holds: the options, and which of the two files there are."""
        result: dict[str, Any] = {name: getattr(self, name) for name in _OPTIONS}
        result["markers"] = list(self.markers)
        result["entity_vocab_file"] = None if self.entity_vocab is None else VOCABULARY_FILE
        result["linker_file"] = LINKER_FILE if hasattr(self.linker, "save") else None
        if self.__dict__.get("auto_map"):
            result["auto_map"] = self.__dict__["auto_map"]
        result["processor_class"] = type(self).__name__
        return result

    def add_markers(self, model: Any = None) -> list[str]:
        """Give the vocabulary the `markers` that it lacks, and the model's embeddings a row for each.

        Args:
            model: what is trained or loaded with this processor; left out, its embeddings must be resized later.

        Returns:
            The markers that were added; none with a vocabulary of BERT's.
        """
        return add_markers(self.markers, self.tokenizer, model)

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
        """Pad rows, a list of mappings or a mapping of lists, as the tokenizer does; the entity fields with 0."""
        if isinstance(encoded_inputs, Sequence) and encoded_inputs and isinstance(encoded_inputs[0], Mapping):
            encoded_inputs = {name: [row[name] for row in encoded_inputs] for name in encoded_inputs[0]}
        columns = dict(encoded_inputs)
        extra = {
            name: columns.pop(name) for name in ("entity_ids", "entity_mask", "offset_mapping") if name in columns
        }
        ids = columns.get("input_ids", [])
        batched = len(ids) > 0 and not isinstance(plain(ids[0]), int)
        lengths = [len(row) for row in ids] if batched else [len(ids)]
        kind = kwargs.pop("return_tensors", None)
        if kind is None and len(ids) and not isinstance(ids[0], list | tuple | int):
            kind = "np" if isinstance(ids[0], np.ndarray | np.integer) else "pt"
        self.deprecation_warnings["Asking-to-pad-a-fast-tokenizer"] = True
        padded = self.tokenizer.pad({name: plain(value) for name, value in columns.items()}, padding, **kwargs)
        side = kwargs.get("padding_side") or self.tokenizer.padding_side
        new_ids = padded["input_ids"] if batched else [padded["input_ids"]]
        for name, values in extra.items():
            rows = []
            filler: Any = (0, 0) if name == "offset_mapping" else 0
            for row, length, wide in zip(plain(values) if batched else [plain(values)], lengths, new_ids, strict=True):
                if len(row) != length:
                    raise ValueError(f"`{name}` must have one entry per token, got {len(row)} for {length} tokens.")
                more = [filler] * (len(wide) - length)
                rows.append([*more, *row] if side == "left" else [*row, *more])
            padded[name] = rows if batched else rows[0]
        return BatchEncoding(dict(padded), tensor_type=kind)

    # ---- text to inputs ----

    @leaving_the_backend
    def __call__(
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
        """Tokenise texts and place their entities."""
        given = {"entities": entities, "entities_pair": entities_pair, **(kwargs.pop("text_kwargs", None) or {})}
        given |= kwargs
        if len(more) > len(_BY_PLACE):
            raise TypeError(f"`text` may be followed by {', '.join(_BY_PLACE)}, got {len(more)} more arguments.")
        for name, value in zip(_BY_PLACE, more, strict=False):
            if given.get(name) is not None:
                raise TypeError(f"`{name}` must be given once, got {given[name]!r:.60} by name and one by place.")
            given[name] = value
        own = {name: given.pop(name, None) for name in _OF_A_CALL}
        own = {name: getattr(self, name) if value is None else value for name, value in own.items()}
        text_pair, return_tensors = given.pop("text_pair", None), given.pop("return_tensors", None)
        link, wants_report = given.pop("link", True), given.pop("return_entity_report", False)
        call = ProcessorCall(self, text, text_pair, split=bool(given.pop("is_split_into_words", False)), **own)
        call.read_entities(given.pop("entities"), given.pop("entities_pair"), link)
        spans, marked = {"head": head, "tail": tail, "span": span}, None
        if task is not None:
            marked = call.marked_spans(task, spans)
        elif any(value is not None for value in spans.values()):
            raise ValueError(f"`head`, `tail` and `span` must come with `task`, 'relation' or 'typing', got {spans}.")
        result = call.encode(return_tensors, given, marked)
        call.report()
        if wants_report:
            result["entity_report"] = call.dropped_by_text() if call.batched else call.dropped_by_text()[0]
        return result
