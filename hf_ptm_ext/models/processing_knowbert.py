"""Text to KnowBERT's inputs: a tokenizer, and for each knowledge base what finds mentions and their candidates."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from transformers import AutoTokenizer, BatchEncoding, ProcessorMixin
from transformers.utils import cached_file

from .annotations_ernie_thu import TextTokens, WordTokens
from .generator_knowbert import CandidateMention, EntityCandidateGenerator
from .tokenizer_files_core import check_tokenizer_config, file_inside

FILE = "entity_candidates_{}.safetensors"
# Column -> what pads it.
COLUMNS = {"candidate_spans": -1, "candidate_entities": 0, "candidate_priors": 0.0, "gold_entities": -100}
_HUB_OPTIONS = ("cache_dir", "force_download", "local_files_only", "token", "revision", "subfolder")
Found = list[tuple[range, CandidateMention]]


class KnowBertProcessor(ProcessorMixin):
    """A fast tokenizer, and what finds candidates for each knowledge base of the model, in the order of its config.

    It stands in for its tokenizer: whatever it has not itself is the tokenizer's. A saved processor is found by
    `AutoProcessor`, its tokenizer by `AutoTokenizer`.

    Args:
        tokenizer: a fast tokenizer.
        generators: name of the knowledge base -> `EntityCandidateGenerator`, or another function from texts to lists
            of `CandidateMention`, which is not saved.

    Raises:
        ValueError: the tokenizer is slow.

    Examples:
        >>> from hf_ptm_ext import EntityCandidateGenerator
        >>> from transformers import BertTokenizerFast
        >>> vocab = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "in": 5, "par": 6, "##is": 7}
        >>> find = EntityCandidateGenerator({"Paris": {"Q90": 3, "Q830149": 1}})
        >>> inputs = KnowBertProcessor(BertTokenizerFast(vocab=vocab), {"wiki": find})("in Paris")
        >>> inputs["candidate_spans"], inputs["candidate_entities"], inputs["candidate_priors"]
        ([[[2, 3]]], [[[4, 5]]], [[[0.75, 0.25]]])
    """

    def __init__(self, tokenizer: Any, generators: Mapping[str, Any] | None = None):
        super().__init__(tokenizer)
        if not tokenizer.is_fast:
            raise ValueError(
                f"`tokenizer` must be a fast one, which knows the characters of its tokens, got "
                f"{type(tokenizer).__name__}. Load it with `AutoTokenizer.from_pretrained`."
            )
        self.generators: dict[str, Any] = dict(generators or {})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "tokenizer" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.__dict__["tokenizer"], name)

    def __len__(self) -> int:
        """Tokens of the vocabulary."""
        return len(self.tokenizer)

    @property
    def model_input_names(self) -> list[str]:
        """The tokenizer's names and those of the candidates."""
        return [*self.tokenizer.model_input_names, *list(COLUMNS)[:3]]

    # ---- saving and loading ----

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, **kwargs: Any) -> "KnowBertProcessor":  # type: ignore[override]
        """Load the tokenizer and the dictionaries of candidates.

        Args:
            pretrained_model_name_or_path: a folder or Hub id; one with a tokenizer alone is enough.
            kwargs: `generators` in place of what was saved; others go to `AutoTokenizer.from_pretrained`.
        """
        given = kwargs.pop("generators", None)
        hub = {name: kwargs[name] for name in _HUB_OPTIONS if kwargs.get(name) is not None}
        folder = Path(pretrained_model_name_or_path, hub.get("subfolder", ""))
        check_tokenizer_config(folder)
        saved, _ = cls.get_processor_dict(pretrained_model_name_or_path, **hub)
        tokenizer = AutoTokenizer.from_pretrained(pretrained_model_name_or_path, **kwargs)
        tokenizer = getattr(tokenizer, "tokenizer", tokenizer)
        if given is None:
            names = saved.get("knowledge_bases") or []
            if not isinstance(names, list) or not all(isinstance(one, str) and one.isidentifier() for one in names):
                raise ValueError(f"`knowledge_bases` of the processor's file must be a list of names, got {names!r}.")
            given = {}
            for name in names:
                if folder.is_dir():
                    file_inside(folder, FILE.format(name), "The processor")
                file: Any = cached_file(pretrained_model_name_or_path, FILE.format(name), **hub)
                given[name] = EntityCandidateGenerator.from_file(file)
        return cls(tokenizer, given)

    def save_pretrained(self, save_directory: Any, push_to_hub: bool = False, **kwargs: Any) -> Any:
        """Write the tokenizer, the dictionaries and, as a custom class, the code; or push them."""
        folder = Path(save_directory)
        folder.mkdir(parents=True, exist_ok=True)
        for name, one in self.generators.items():
            if hasattr(one, "save"):
                one.save(folder / FILE.format(name))
        mapped, named = "auto_map" in self.__dict__, self.tokenizer._processor_class
        try:
            files = super().save_pretrained(str(save_directory), **({} if push_to_hub else kwargs))
        finally:  # what upstream notes for the files is no part of what the processor is
            self.tokenizer._processor_class = named
            if not mapped:
                self.__dict__.pop("auto_map", None)
        if push_to_hub:
            self.push_to_hub(kwargs.pop("repo_id", folder.name), **kwargs)
        return files

    def to_dict(self) -> dict[str, Any]:
        """What `processor_config.json` holds: the names of the knowledge bases that are saved."""
        result: dict[str, Any] = {"knowledge_bases": [n for n, one in self.generators.items() if hasattr(one, "save")]}
        if self.__dict__.get("auto_map"):
            result["auto_map"] = self.__dict__["auto_map"]
        return {**result, "processor_class": type(self).__name__}

    # ---- text to inputs ----

    def __call__(
        self,
        text: Any,
        text_pair: Any = None,
        *,
        candidates: bool = True,
        return_tensors: str | None = None,
        **kwargs: Any,
    ) -> BatchEncoding:
        """Tokenise texts and find their candidates.

        Args:
            text: a text or a list of them; with `is_split_into_words` of words.
            text_pair: the second texts of pairs.
            candidates: whether mentions are looked for; without, all rows have none.
            return_tensors: "pt" or "np"; the rows must have one length then (`padding=True`).
            kwargs: the tokenizer's.

        Returns:
            The tokenizer's columns, and for each text `candidate_spans` `(K, spans, 2)`, `candidate_entities` and
            `candidate_priors` `(K, spans, candidates)`: first and last token, rows of the table, priors.
        """
        split = bool(kwargs.get("is_split_into_words"))
        padding = kwargs.pop("padding", False)
        batched = isinstance(text, list | tuple) and (
            not split or (len(text) > 0 and isinstance(text[0], list | tuple))
        )
        sides = [list(side) if batched else [side] for side in (text, text_pair) if side is not None]
        encoded = self.tokenizer(*sides, **kwargs)
        owners = encoded.get("overflow_to_sample_mapping") or range(len(sides[0]))
        found = {
            name: [one([" ".join(each) if split else each for each in side]) for side in sides]
            for name, one in (self.generators.items() if candidates else ())
        }
        rows = []
        for number, owner in enumerate(owners):
            bases: list[Found] = []
            for name in self.generators:
                placed: Found = []
                for sequence, side in enumerate(sides):
                    mentions = found[name][sequence][owner] if candidates else []
                    placed += self._placed(encoded.encodings[number], side[owner], sequence, mentions, split)
                bases.append(placed)
            rows.append(columns_of(bases))
        columns = (
            {**encoded, **{name: [row[name] for row in rows] for name in rows[0]}} if self.generators else encoded
        )
        if not batched and not kwargs.get("return_overflowing_tokens"):
            columns = {name: value[0] for name, value in columns.items()}
        result = BatchEncoding(dict(columns), encoding=encoded.encodings)
        if padding or return_tensors:
            limits = {"max_length": kwargs.get("max_length")} if padding == "max_length" else {}
            padded = self.pad(dict(result), padding, return_tensors=return_tensors, **limits)
            result = BatchEncoding(dict(padded), encoding=encoded.encodings)
        return result

    @staticmethod
    def _placed(encoding: Any, text: Any, sequence: int, mentions: Sequence[CandidateMention], split: bool) -> Found:
        """The tokens of each mention that the encoding has."""
        finder: Any = WordTokens(encoding, sequence) if split else TextTokens(encoding, text, sequence)
        ends = np.cumsum([len(word) + 1 for word in text]) if split else None
        placed: Found = []
        for one in mentions:
            first, last = one.start, one.end - 1
            if ends is not None:  # places in the joined words
                first, last = (int(place) for place in np.searchsorted(ends, (first, last), side="right"))
            tokens = finder.tokens((first, last + 1))
            if tokens:
                placed.append((tokens, one))
        return placed

    def pad(
        self, encoded_inputs: Any, padding: Any = True, return_tensors: str | None = None, **kwargs: Any
    ) -> BatchEncoding:
        """Pad rows, a list of mappings or a mapping of lists, as the tokenizer does, and their candidates."""
        if isinstance(encoded_inputs, Sequence) and encoded_inputs and isinstance(encoded_inputs[0], Mapping):
            encoded_inputs = {name: [row[name] for row in encoded_inputs] for name in encoded_inputs[0]}
        columns = dict(encoded_inputs)
        own = {name: columns.pop(name) for name in COLUMNS if name in columns}
        ids = columns["input_ids"]
        single = not len(ids) or not hasattr(ids[0], "__len__")
        lengths = [len(ids)] if single else [len(row) for row in ids]
        padded = self.tokenizer.pad(columns, padding, return_tensors=None if single else return_tensors, **kwargs)
        if (kwargs.get("padding_side") or self.tokenizer.padding_side) == "left" and "candidate_spans" in own:
            wide = [len(padded["input_ids"])] if single else [len(row) for row in padded["input_ids"]]
            rows = [own["candidate_spans"]] if single else own["candidate_spans"]
            moved = [
                np.where((spans := np.asarray(row)) < 0, spans, spans + width - length).tolist()
                for row, width, length in zip(rows, wide, lengths, strict=True)
            ]
            own["candidate_spans"] = moved[0] if single else moved
        result = {**padded, **({name: own[name] for name in own} if single else pad_candidates(own))}
        return BatchEncoding(
            result, tensor_type=return_tensors, prepend_batch_axis=single and return_tensors is not None
        )


def columns_of(bases: Sequence[Found]) -> dict[str, Any]:
    """The columns of one row: `(K, spans, 2)` and `(K, spans, candidates)`, at least one span, padded."""
    spans = [[[tokens.start, tokens.stop - 1] for tokens, _ in found] or [[-1, -1]] for found in bases]
    rows = [[list(one.entities) for _, one in found] or [[0]] for found in bases]
    priors = [[list(one.priors) for _, one in found] or [[0.0]] for found in bases]
    columns = {"candidate_spans": spans, "candidate_entities": rows, "candidate_priors": priors}
    return {name: filled(values, COLUMNS[name]).tolist() for name, values in columns.items()}


def pad_candidates(columns: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Columns of candidates of several rows as arrays of one shape each."""
    return {name: filled(values, COLUMNS[name]) for name, values in columns.items()}


def filled(values: Any, filler: float) -> np.ndarray:
    """Nested lists of any lengths as one array."""
    shape: list[int] = []
    level = [values]
    while level and hasattr(level[0], "__len__"):
        shape.append(max(len(one) for one in level))
        level = [item for one in level for item in one]
    array = np.full(shape, filler, dtype=np.float32 if isinstance(filler, float) else np.int64)

    def put(place: tuple[int, ...], part: Any) -> None:
        if len(place) == len(shape) - 1:
            array[place][: len(part)] = part
        else:
            for number, one in enumerate(part):
                put((*place, number), one)

    put((), values)
    return array
