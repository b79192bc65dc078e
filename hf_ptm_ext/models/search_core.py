"""The beam searches of reference codes: one way through the steps (`Search`), and each reference's rules.

Those of MASS and MASS-NMT are one, `HypothesisSearch`: ended hypotheses are ranked by sum log p / len **
length_penalty, where len counts the leading token and not the final one; the rest is a `Hypotheses`, fairseq's or
XLM's.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import GenerationConfig, StoppingCriteriaList
from transformers.generation import ForcedEOSTokenLogitsProcessor, StopStringCriteria
from transformers.utils import ModelOutput

IMPOSSIBLE = -1e9


@dataclass
class BeamSearchOutput(ModelOutput):
    """Sequences `(batch * num_return_sequences, length)`, padded on the right, and scores; best first."""

    sequences: torch.Tensor | None = None
    sequences_scores: torch.Tensor | None = None


class Search:
    """Texts, and the steps by which they grow, by the model's two hooks of generation."""

    def __init__(
        self, model: Any, input_ids: torch.Tensor, criteria: StoppingCriteriaList | None, model_kwargs: dict[str, Any]
    ):
        self.model = model
        self.texts = input_ids
        self.model_kwargs = model_kwargs
        self.criteria = [
            one for one in criteria or () if not (hasattr(one, "eos_token_id") or hasattr(one, "max_length"))
        ]
        self.is_first_step = True

    def next_logits(self) -> torch.Tensor:
        """Logits `(rows, vocab_size)` of what comes next, in float32."""
        cached = not self.is_first_step and self.model_kwargs.get("cache") is not None
        inputs = self.model.prepare_inputs_for_generation(
            self.texts,
            next_sequence_length=1 if cached else None,
            is_first_iteration=self.is_first_step,
            **self.model_kwargs,
        )
        outputs = self.model(**inputs, return_dict=True)
        self.model_kwargs = self.model._update_model_kwargs_for_generation(
            outputs, self.model_kwargs, is_encoder_decoder=self.model.config.is_encoder_decoder
        )
        self.is_first_step = False
        return outputs.logits[:, -1].to(dtype=torch.float32, device=self.texts.device)

    def extend(self, parents: torch.Tensor, words: torch.Tensor) -> None:
        """Rows become these rows of the step before, with a word behind them."""
        self.texts = torch.cat([self.texts[parents], words[:, None]], dim=1)

    def follow_cache(self, parents: torch.Tensor) -> None:
        """Give each row the keys and values of the row that it continues."""
        if self.model_kwargs.get("cache") is not None:
            self.model_kwargs["cache"].reorder_cache(parents)

    def stopped(self) -> torch.Tensor | None:
        """`(rows,)` boolean, the texts for which a criterion holds; `None` without criteria."""
        if not self.criteria:
            return None
        return torch.stack([one(self.texts, None) for one in self.criteria]).any(dim=0)


class Hypotheses:
    """The ended hypotheses of one sentence."""

    # At the limit: whether nothing but an end may come; otherwise any last word is replaced by one.
    only_ends_at_limit = False

    def __init__(self, generation_config: Any):
        self.size = generation_config.num_beams
        self.length_penalty = generation_config.length_penalty
        self.early_stopping = generation_config.early_stopping is True
        self.longest = generation_config.max_length - 1
        self.ended: list[tuple[float, list[int]]] = []

    def accepts(self, rank: int) -> bool:
        """Whether an end counts that is the `rank`-th best continuation of its step."""
        return True

    def add(self, total: float, tokens: list[int]) -> None:
        """Take a hypothesis, if it is kept."""
        raise NotImplementedError(f"{type(self).__name__} must say which hypotheses are kept.")

    def is_over(self, best_total: float | None = None) -> bool:
        """Whether no continuation matters any more, the best of them having this sum of log-probabilities."""
        raise NotImplementedError(f"{type(self).__name__} must say when a sentence is over.")

    def score(self, total: float, length: int) -> float:
        """What hypotheses are ranked by."""
        return total / length**self.length_penalty

    def best(self, number: int) -> list[tuple[float, list[int]]]:
        """Scores and tokens, best first, of equal ones the earlier; nothing but the start where there are too few."""
        ranked = sorted(self.ended, key=lambda entry: -entry[0])[:number]
        return ranked + [(float("-inf"), ranked[0][1][:1] if ranked else [])] * (number - len(ranked))


class FairseqHypotheses(Hypotheses):
    """fairseq 0.8: the first K ended hypotheses; of the 2K best continuations of a step an end counts among the first
    K.

    At the limit nothing but an end may come, at its own log-probability.
    """

    only_ends_at_limit = True

    def accepts(self, rank: int) -> bool:
        return rank < self.size

    def add(self, total: float, tokens: list[int]) -> None:
        if len(self.ended) < self.size:
            self.ended.append((self.score(total, len(tokens)), tokens))

    def is_over(self, best_total: float | None = None) -> bool:
        return len(self.ended) == self.size


class XlmHypotheses(Hypotheses):
    """XLM: the K best ended hypotheses.

    Of the 2K best continuations of a step those before the K-th that goes on count, so an end may come from a place
    behind the K-th. At the limit every one of the 2K ends: its last word is replaced by the end and keeps its
    log-probability. With `early_stopping` a sentence is over when it has K hypotheses; without, when its worst one is
    at least as good as the best continuation of the next step would be at the limit.
    """

    def add(self, total: float, tokens: list[int]) -> None:
        self.ended.append((self.score(total, len(tokens)), tokens))
        self.ended = self.best(min(len(self.ended), self.size))

    def is_over(self, best_total: float | None = None) -> bool:
        if len(self.ended) < self.size:
            return False
        if self.early_stopping or best_total is None:
            return self.early_stopping
        return self.ended[-1][0] >= self.score(best_total, self.longest)


class HypothesisSearch(Search):
    """Beam search of an encoder-decoder: K texts of each sentence go on, and `hypotheses` keep those that end."""

    def __init__(
        self,
        model: Any,
        input_ids: torch.Tensor,
        hypotheses: type[Hypotheses],
        processors: Sequence[Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] | None,
        criteria: StoppingCriteriaList | None,
        generation_config: GenerationConfig | None,
        model_kwargs: dict[str, Any],
    ):
        super().__init__(model, input_ids, criteria, model_kwargs)
        self.settings: Any = given_config(generation_config)
        self.ends = end_tokens(model, self.settings)
        self.beams = self.settings.num_beams
        self.pad = self.settings.pad_token_id if self.settings.pad_token_id is not None else self.ends[0]
        self.processors = [one for one in processors or () if not isinstance(one, ForcedEOSTokenLogitsProcessor)]
        batch = input_ids.shape[0] // self.beams
        self.sentences = [hypotheses(self.settings) for _ in range(batch)]
        self.over = [False] * batch
        self.totals = torch.zeros(batch, self.beams, device=input_ids.device)
        self.totals[:, 1:] = IMPOSSIBLE  # all beams are equal at first

    def run(self) -> torch.Tensor | BeamSearchOutput:
        """Search, and give the best hypotheses."""
        while self.texts.shape[1] < self.settings.max_length and not all(self.over):
            if self.texts.shape[1] + 1 == self.settings.max_length:
                self.make_last_step()
            else:
                self.make_step()
        return self.result()

    def best_continuations(self, only_ends: bool = False) -> tuple[list[list[float]], list[list[int]], int]:
        """Sums and places of the 2K best continuations of each sentence, and the vocabulary's size."""
        log_probs = self.next_logits().log_softmax(dim=-1)
        for processor in self.processors:
            log_probs = processor(self.texts, log_probs)
        if only_ends:
            alone = torch.full_like(log_probs, float("-inf"))
            alone[:, self.ends] = log_probs[:, self.ends]
            log_probs = alone
        batch, vocabulary = self.totals.shape[0], log_probs.shape[1]
        sums = (log_probs.view(batch, self.beams, vocabulary) + self.totals[..., None]).flatten(1)
        best, places = sums.topk(2 * self.beams, dim=1)
        return best.tolist(), places.tolist(), vocabulary

    def make_step(self) -> None:
        """Continue every sentence by a word."""
        best, places, vocabulary = self.best_continuations()
        texts = self.texts.tolist()
        rows: list[int] = []
        words: list[int] = []
        kept: list[list[float]] = []
        for number, sentence in enumerate(self.sentences):
            self.over[number] = self.over[number] or sentence.is_over(best[number][0])
            going: list[tuple[float, int, int]] = []
            for rank, (value, place) in enumerate(zip(best[number], places[number], strict=True)):
                if self.over[number] or len(going) == self.beams:
                    break
                beam, word = divmod(place, vocabulary)
                if word not in self.ends:
                    going.append((value, beam, word))
                elif value > IMPOSSIBLE / 2 and sentence.accepts(rank):
                    sentence.add(value, texts[number * self.beams + beam])
            self.over[number] = self.over[number] or sentence.is_over()
            going += [(IMPOSSIBLE, 0, self.pad)] * (self.beams - len(going))  # of a sentence that is over
            kept.append([value for value, _, _ in going])
            rows += [number * self.beams + beam for _, beam, _ in going]
            words += [word for _, _, word in going]
        parents = torch.tensor(rows, device=self.texts.device)
        self.totals = torch.tensor(kept, device=self.texts.device)
        self.extend(parents, torch.tensor(words, device=self.texts.device))
        self.follow_cache(parents)
        self.end_stopped(kept)

    def make_last_step(self) -> None:
        """End every sentence at the length limit."""
        best, places, vocabulary = self.best_continuations(self.sentences[0].only_ends_at_limit)
        texts = self.texts.tolist()
        for number, sentence in enumerate(self.sentences):
            is_over = self.over[number] or sentence.is_over(best[number][0])
            for rank, (value, place) in enumerate(zip(best[number], places[number], strict=True)):
                if not is_over and value > IMPOSSIBLE / 2 and sentence.accepts(rank):
                    sentence.add(value, texts[number * self.beams + place // vocabulary])
            if not sentence.ended:  # no end was allowed: texts as they are
                for beam, total in enumerate(self.totals[number].tolist()):
                    sentence.add(total, texts[number * self.beams + beam])
            self.over[number] = True

    def end_stopped(self, kept: list[list[float]]) -> None:
        """Take the texts for which a criterion holds for hypotheses."""
        stopped = self.stopped()
        for row in () if stopped is None else stopped.nonzero().flatten().tolist():
            number, beam = divmod(row, self.beams)
            if not self.over[number] and kept[number][beam] > IMPOSSIBLE / 2:
                self.sentences[number].add(kept[number][beam], self.texts[row].tolist())
                self.totals[number, beam] = IMPOSSIBLE
                self.over[number] = bool((self.totals[number] == IMPOSSIBLE).all())

    def result(self) -> torch.Tensor | BeamSearchOutput:
        """The best hypotheses of all sentences, with their final end token, padded."""
        best = [entry for sentence in self.sentences for entry in sentence.best(self.settings.num_return_sequences)]
        width = max(len(tokens) for _, tokens in best) + 1
        rows = [tokens + [self.ends[0]] + [self.pad] * (width - len(tokens) - 1) for _, tokens in best]
        sequences = torch.tensor(rows, device=self.texts.device)
        if not self.settings.return_dict_in_generate:
            return sequences
        return BeamSearchOutput(sequences, torch.tensor([score for score, _ in best], device=self.texts.device))


class GenerationSettings:
    """What `generate` will go by: its arguments, else the configuration given, else the model's."""

    def __init__(self, arguments: Mapping[str, Any], defaults: GenerationConfig | None):
        self.arguments = arguments
        self.configurations = (arguments.get("generation_config"), defaults)

    def __getitem__(self, name: str) -> Any:
        values = [self.arguments.get(name), *(getattr(source, name, None) for source in self.configurations)]
        return next((value for value in values if value is not None), None)


def own_search(search: Callable[..., Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments of upstream's `generate` that make it call a search of ours, with its stop strings."""
    arguments = {**arguments, "custom_generate": search}
    if arguments.get("stop_strings") is not None and arguments.get("tokenizer") is not None:
        # Upstream hands such a function no tokenizer.
        stop = StopStringCriteria(arguments.pop("tokenizer"), arguments.pop("stop_strings"))
        arguments["stopping_criteria"] = StoppingCriteriaList([*(arguments.get("stopping_criteria") or ()), stop])
    return arguments


def refuse_guidance(settings: GenerationSettings) -> None:
    """Refuse `guidance_scale`: upstream's second pass feeds the target alone, as if it were a source."""
    scale = settings["guidance_scale"]
    if scale is not None and scale != 1:
        raise ValueError(
            f"`guidance_scale` must be 1, got {scale}: what it compares with is a text without its source, which an "
            "encoder-decoder cannot continue. Leave it out."
        )


def given_config(generation_config: GenerationConfig | None) -> GenerationConfig:
    """What `generate` hands a search; it must be given, and not sample."""
    if generation_config is None:
        raise ValueError(
            f"`generation_config` must be given, got {generation_config}. Call `model.generate(..., "
            "search_beam_size=K)`, which prepares it."
        )
    if generation_config.do_sample:
        raise ValueError(
            f"`do_sample` must be False, got {generation_config.do_sample}: the reference's beam search does not "
            "sample."
        )
    return generation_config


def end_tokens(model: Any, generation_config: GenerationConfig) -> list[int]:
    """The ids that end a text."""
    ends = generation_config.eos_token_id
    ends = model.config.eos_token_id if ends is None else ends
    if ends is None:
        raise ValueError(
            f"`eos_token_id` must be the tokenizer's end token, got {ends}: it ends a text. Set it in the config."
        )
    return [int(end) for end in torch.atleast_1d(torch.as_tensor(ends))]
