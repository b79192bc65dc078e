"""Extractive question answering as a pipeline: from a question and a passage to the passage's words that answer it.

transformers removed its own in 5.3; the model classes stayed. Start and end of the answer are two softmaxes over the
tokens (Devlin et al. 2019, https://arxiv.org/abs/1810.04805, 4.2), and a passage that is too long is read in windows
that overlap. What the removed pipeline got wrong (scores of different windows compared though each had a softmax of
its own, empty answers with score 0, fewer answers than asked for, questions never cut) is right here;
`reference="transformers"` brings its behaviour back.
"""

import inspect
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from types import GeneratorType
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForQuestionAnswering
from transformers.pipelines.base import ChunkPipeline

from .spans_question_answering import NO_NULL_SCORE, best_spans, log_partition, reference_spans, whole_characters
from .windows_question_answering import MAX_QUESTION_LEN, Window, windows_in_parts

TASK = "extractive-question-answering"
DECODES = ("joint", "independent")
REFERENCES = (None, "transformers")
Logits = tuple[np.ndarray, np.ndarray]
# Scripts whose text runs on without spaces: what has only letters may be a whole sentence there.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\uff66-\uff9f\U00020000-\U000323af]"
)


class ExtractiveQuestionAnsweringPipeline(ChunkPipeline):
    """Finds answers in passages with any `...ForQuestionAnswering`.

    Registered as `pipeline("extractive-question-answering")` when the package is imported. `save_pretrained` writes
    its code beside the model, so that `pipeline(model=folder, trust_remote_code=True)` works without the package.

    Args:
        model: a model with `start_logits` and `end_logits`.
        tokenizer: its fast tokenizer.
        kwargs: as in `Pipeline`; also every option of the call, as a default.

    Examples:
        >>> from transformers import BertConfig, BertForQuestionAnswering, BertTokenizer
        >>> words = "[PAD] [UNK] [CLS] [SEP] [MASK] who wrote emma ? jane austen did .".split()
        >>> tokenizer = BertTokenizer({word: number for number, word in enumerate(words)}, model_max_length=32)
        >>> config = BertConfig(
        ...     vocab_size=len(words), hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64
        ... )
        >>> answer = ExtractiveQuestionAnsweringPipeline(BertForQuestionAnswering(config).eval(), tokenizer, device=-1)
        >>> found = answer(question="Who wrote Emma?", context="Jane Austen did.", max_answer_len=1)
        >>> found["answer"] in ("Jane", "Austen", "did", "."), sorted(found)
        (True, ['answer', 'end', 'score', 'start'])
    """

    tokenizer: Any
    default_input_names: Any = "question,context"
    _load_processor: Any = False
    _load_image_processor: Any = False
    _load_feature_extractor: Any = False
    _load_tokenizer: Any = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Answer questions."""
        inputs = _examples(args, kwargs)
        if kwargs.get("reference", self._postprocess_params.get("reference")) == "transformers":
            inputs = inputs[0] if isinstance(inputs, list) and len(inputs) == 1 else inputs
        if isinstance(inputs, list) and not inputs:
            return []
        return super().__call__(inputs, **kwargs)

    def _sanitize_parameters(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        if "topk" in options:
            raise TypeError(f"`topk` is spelt `top_k`: top_k={options['topk']!r}.")
        known = tuple(dict.fromkeys((*_PREPROCESS, *_POSTPROCESS)))
        unknown = [name for name in options if name not in known]
        if unknown:
            raise TypeError(f"`{unknown[0]}` is no option of this pipeline. Its options are {', '.join(known)}.")
        for name in ("top_k", "max_answer_len", "max_seq_len", "max_question_len"):
            if options.get(name) is not None and options[name] < 1:
                raise ValueError(f"`{name}` must be at least 1, got {options[name]}.")
        for name, known_values in (("decode", DECODES), ("reference", REFERENCES)):
            if name in options and options[name] not in known_values:
                shown = ", ".join(map(repr, known_values))
                raise ValueError(f"`{name}` must be one of {shown}, got {options[name]!r}.")
        if options.get("decode") == "independent" and options.get("top_k", 1) > 1:
            raise ValueError(f"`decode` = 'independent' has one answer, got `top_k` = {options['top_k']}.")
        given = {name: value for name, value in options.items() if value is not None}
        preprocess = {name: given[name] for name in _PREPROCESS if name in given}
        return preprocess, {}, {name: given[name] for name in _POSTPROCESS if name in given}

    def preprocess(  # type: ignore[override]
        self,
        example: Mapping[str, Any],
        max_seq_len: int | None = None,
        doc_stride: int | None = None,
        max_question_len: int | None = MAX_QUESTION_LEN,
        padding: Any = "do_not_pad",
        reference: str | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Windows of one question; the options are those of the call."""
        example = _checked(example)
        if reference is not None and example["question"] is None:
            raise ValueError(f"`reference` = {reference!r} needs a question, got None. Leave `reference` out.")
        if max_seq_len is None and padding == "max_length":
            max_seq_len = min(self.tokenizer.model_max_length, 384)
        windows = windows_in_parts(
            self.tokenizer,
            example["question"],
            example["context"],
            max_seq_len=max_seq_len,
            doc_stride=doc_stride,
            max_question_len=None if reference else max_question_len,
        )
        for window in windows:
            yield {
                "is_last": window.is_last,
                "window": window,
                "context": example["context"],
                "width": max_seq_len if padding == "max_length" else None,
            }

    def _forward(self, model_inputs: dict[str, Any]) -> dict[str, Any]:  # type: ignore[override]
        windows = model_inputs["window"]
        if not isinstance(windows, list):
            found = self._logits([windows], model_inputs["width"])
            return {**model_inputs, "logits": found[0]}
        return {**model_inputs, "logits": self._logits(windows, model_inputs["width"][0])}

    def _logits(self, windows: list[Window], width: int | None) -> list[Logits]:
        """Start and end logits of each window without its padding, `(seq_len,)` each."""
        rows = [window.inputs for window in windows]
        sizes = [len(row["input_ids"]) for row in rows]
        if width is None and len(rows) == 1:  # also for tokenizers without a padding token
            batch = {name: torch.tensor([values]) for name, values in rows[0].items()}
        else:
            padding = {"padding": True} if width is None else {"padding": "max_length", "max_length": width}
            # On the right, wherever the tokenizer pads: absolute positions do not depend on the batch then.
            batch = dict(self.tokenizer.pad(rows, return_tensors="pt", padding_side="right", **padding))
        beside: Any = getattr(self.model, "inputs_beside", None)
        if beside is not None:  # KT-NET's concepts
            batch |= beside(batch["input_ids"], self.tokenizer)
        taken = inspect.signature(self.model.forward).parameters
        inputs: dict[str, Any] = {name: values.to(self.device) for name, values in batch.items() if name in taken}
        if "use_cache" in taken:
            inputs["use_cache"] = False
        output = self.model(**inputs, return_dict=True)
        logits = torch.stack([output["start_logits"], output["end_logits"]], dim=1).float().cpu().numpy()
        # Tuples: upstream would give single arrays a batch dimension.
        return [(row[0, :size], row[1, :size]) for row, size in zip(logits, sizes, strict=True)]

    def postprocess(  # type: ignore[override]
        self,
        model_outputs: list[dict[str, Any]],
        top_k: int = 1,
        max_answer_len: int = 15,
        handle_impossible_answer: bool = False,
        align_to_words: bool = True,
        decode: str = "joint",
        reference: str | None = None,
    ) -> dict[str, Any] | list[dict[str, Any]]:
        """Answers of one question from its windows with their logits; the options are those of the call."""
        windows = [output["window"] for output in model_outputs]
        logits = [output["logits"] for output in model_outputs]
        context = model_outputs[0]["context"]
        if reference is not None:
            limits = (top_k, max_answer_len, handle_impossible_answer, align_to_words)
            answers = _reference_answers(windows, logits, context, self.tokenizer.cls_token_id, *limits)
            return answers[0] if len(answers) == 1 else answers
        start, end, answerable, counted = _stacked(windows, logits)
        total = log_partition(start, end, counted)
        if decode == "independent":
            return _independent_answer(windows, start, end, answerable, total, context)
        wanted = top_k
        while True:
            candidates = 2 * wanted + 10  # some are of one word, or of one wording
            spans = best_spans(start, end, answerable, candidates, max_answer_len)
            answers = _merged(windows, spans, total, candidates, context, align_to_words)
            if len(answers) >= top_k or candidates >= np.isfinite(spans.scores).sum():
                break
            wanted *= 4
        if handle_impossible_answer:
            rows, nulls = np.arange(len(windows)), [window.null_index for window in windows]
            null = (start[rows, nulls] + end[rows, nulls]).min()
            answers.append(_answer(float(np.exp(null - total)), 0, 0, context))
        answers = sorted(answers, key=lambda answer: -answer["score"])[:top_k]
        if top_k > 1:
            return answers
        return answers[0] if answers else _answer(0.0, 0, 0, context)  # a passage without any token

    def save_pretrained(self, save_directory: Any, **kwargs: Any) -> None:
        """Save model and tokenizer with the code of this pipeline, also if that came from another checkpoint."""
        self._registered_impl = {TASK: {"impl": type(self), "pt": (AutoModelForQuestionAnswering,)}}
        super().save_pretrained(save_directory, **kwargs)


_PREPROCESS = ("max_seq_len", "doc_stride", "max_question_len", "padding", "reference")
_POSTPROCESS = ("top_k", "max_answer_len", "handle_impossible_answer", "align_to_words", "decode", "reference")


# ---- what is asked ----


def _examples(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The questions of a call; takes `question` and `context` out of its keyword arguments."""
    if "question" in kwargs or "context" in kwargs:
        if args or not {"question", "context"} <= set(kwargs):
            raise TypeError(
                f"`question` and `context` go together, both by name or both by place, got {sorted(kwargs)} by name "
                f"and {len(args)} by place."
            )
        args = (kwargs.pop("question"), kwargs.pop("context"))
    if len(args) == 2:
        return _paired(*args)
    if len(args) != 1:
        raise TypeError(f"A question and a passage are needed, or one list of such pairs, got {len(args)} arguments.")
    inputs = args[0]
    if isinstance(inputs, tuple):
        inputs = list(inputs)
    if isinstance(inputs, list):
        return [_checked(example) for example in inputs]
    if isinstance(inputs, Mapping):
        return _checked(inputs)
    if isinstance(inputs, GeneratorType | torch.utils.data.Dataset):
        return inputs
    if isinstance(inputs, Iterable) and not isinstance(inputs, str):
        return (example for example in inputs)
    raise TypeError(f"A question must be a dictionary with `question` and `context`, got {type(inputs).__name__}.")


def _paired(questions: Any, contexts: Any) -> Any:
    if (questions is None or isinstance(questions, str)) and isinstance(contexts, str):
        return _checked({"question": questions, "context": contexts})
    if isinstance(questions, str | Mapping):
        raise TypeError(f"`question` must be a list when `context` is one, got a {type(questions).__name__}.")
    questions = [None] * len(contexts) if questions is None else list(questions)
    contexts = [contexts] * len(questions) if isinstance(contexts, str) else list(contexts)
    if len(questions) != len(contexts):
        raise ValueError(
            f"`question` and `context` must be as many, got {len(questions)} and {len(contexts)}. One context for all "
            "questions may be a text."
        )
    return [_checked({"question": q, "context": c}) for q, c in zip(questions, contexts, strict=True)]


def _checked(example: Any) -> dict[str, Any]:
    if not isinstance(example, Mapping):
        raise TypeError(
            f"A question must be a dictionary with `question` and `context`, got {type(example).__name__}."
        )
    for name in ("question", "context"):
        if name == "question" and name in example and example[name] is None:
            continue
        if not isinstance(example.get(name), str):
            got = type(example[name]).__name__ if name in example else "nothing"
            raise TypeError(f"`{name}` must be a text, got {got}.")
        if not example[name]:
            raise ValueError(f"`{name}` cannot be empty. Give it some text, or leave the pair out.")
    return {"question": example["question"], "context": example["context"]}


# ---- what is answered ----


def _stacked(windows: list[Window], logits: list[Logits]) -> tuple[np.ndarray, ...]:
    """Start logits, end logits, answerable tokens, and these with "no answer": `(windows, seq_len)` each."""
    width = max(len(row) for row, _ in logits)
    both = np.zeros((2, len(windows), width))
    answerable = np.zeros((len(windows), width), dtype=bool)
    for number, (window, row) in enumerate(zip(windows, logits, strict=True)):
        both[:, number, : len(row[0])] = row
        answerable[number, : len(row[0])] = window.answerable
    counted = answerable.copy()
    counted[np.arange(len(windows)), [window.null_index for window in windows]] = True
    return both[0], both[1], answerable, counted


def _answer(score: float, start: int, end: int, context: str) -> dict[str, Any]:
    return {"score": score, "start": start, "end": end, "answer": context[start:end]}


def _add(answers: dict[str, dict[str, Any]], answer: dict[str, Any]) -> None:
    """Add an answer, or its score to that of an equal text."""
    known = answers.setdefault(answer["answer"].lower(), answer)
    if known is not answer:
        known["score"] += answer["score"]


def _merged(
    windows: list[Window], spans: Any, total: float, candidates: int, context: str, align_to_words: bool
) -> list[dict[str, Any]]:
    """The best spans of all windows as texts; equal texts are one answer, at the place of the best."""
    flat = np.argsort(-spans.scores, axis=None, kind="stable")[:candidates]
    answers: dict[str, dict[str, Any]] = {}
    for row, column in zip(*np.unravel_index(flat, spans.scores.shape), strict=True):
        if not np.isfinite(spans.scores[row, column]):
            break
        window, first, last = windows[row], int(spans.starts[row, column]), int(spans.ends[row, column])
        start, end = int(window.offsets[first, 0]), int(window.offsets[last, 1])
        if align_to_words:
            start, end = _whole_words(context, start, end)
        start, end = whole_characters(context, start, end)
        _add(answers, _answer(float(np.exp(spans.scores[row, column] - total)), start, end, context))
    return list(answers.values())


def _whole_words(context: str, start: int, end: int) -> tuple[int, int]:
    """Widen a span to whole words, whatever its tokenizer takes for one; not in scripts without spaces."""
    while start > 0 and _in_word(context[start]) and _in_word(context[start - 1]):
        start -= 1
    while end < len(context) and _in_word(context[end - 1]) and _in_word(context[end]):
        end += 1
    return start, end


def _in_word(char: str) -> bool:
    """Letters, digits, their marks and joiners, of scripts with spaces."""
    if _UNSPACED.match(char):
        return False
    return char.isalnum() or char in "\u200c\u200d" or unicodedata.category(char)[0] == "M"


def _independent_answer(
    windows: list[Window], start: np.ndarray, end: np.ndarray, answerable: np.ndarray, total: float, context: str
) -> dict[str, Any]:
    if not answerable.any():
        return _answer(0.0, 0, 0, context)
    start, end = (np.where(answerable, logits, -np.inf) for logits in (start, end))
    row = int((start.max(axis=1) + end.max(axis=1)).argmax())
    first, last = int(start[row].argmax()), int(end[row].argmax())
    score = float(np.exp(start[row, first] + end[row, last] - total))
    begin, behind = int(windows[row].offsets[first, 0]), int(windows[row].offsets[last, 1])
    return _answer(score, *whole_characters(context, begin, behind if last >= first else begin), context)


def _reference_answers(
    windows: list[Window],
    logits: list[Logits],
    context: str,
    cls_token_id: int | None,
    top_k: int,
    max_answer_len: int,
    handle_impossible_answer: bool,
    align_to_words: bool,
) -> list[dict[str, Any]]:
    """Answers as the removed pipeline gave them."""
    answers: dict[str, dict[str, Any]] = {}
    null = NO_NULL_SCORE
    for window, (start_logits, end_logits) in zip(windows, logits, strict=True):
        p_mask = ~window.in_context
        if window.context == 0:  # with the passage first nothing was masked
            p_mask[:] = False
        if cls_token_id is not None:
            p_mask[np.array(window.inputs["input_ids"]) == cls_token_id] = False
        starts, ends, scores, null = reference_spans(
            start_logits,
            end_logits,
            p_mask,
            top_k=2 * top_k + 10 if align_to_words else top_k,
            max_answer_len=max_answer_len,
            handle_impossible_answer=handle_impossible_answer,
            min_null_score=null,
        )
        for first, last, score in zip(starts.tolist(), ends.tolist(), scores.tolist(), strict=True):
            start, end = int(window.offsets[first, 0]), int(window.offsets[last, 1])
            words = (window.word_characters(first), window.word_characters(last)) if align_to_words else (None, None)
            if words[0] is not None and words[1] is not None:
                start, end = words[0][0], words[1][1]
            _add(answers, _answer(score, start, end, context))
    found = list(answers.values())
    if handle_impossible_answer:
        found.append(_answer(null, 0, 0, context))
    return sorted(found, key=lambda answer: -answer["score"])[:top_k]
