"""Beam search of an encoder-decoder whose ended hypotheses are ranked by sum log p / len ** length_penalty.

len counts the leading token and not the final one. What differs between reference codes is a `CanonicalHypotheses`:
which ends count, which hypotheses are kept, when a sentence is over, and what happens at the length limit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import GenerationConfig, StoppingCriteriaList
from transformers.generation import ForcedEOSTokenLogitsProcessor, StopStringCriteria
from transformers.utils import ModelOutput

IMPOSSIBLE = -1e9


@dataclass
class CanonicalBeamSearchOutput(ModelOutput):
    """Output of `generate(search_beam_size=K, return_dict_in_generate=True)`.

    Args:
        sequences: `(batch * num_return_sequences, length)`, padded on the right.
        sequences_scores: `(batch * num_return_sequences,)`, best first in each sentence, length penalty applied.
    """

    sequences: torch.Tensor | None = None
    sequences_scores: torch.Tensor | None = None


class CanonicalHypotheses:
    """The ended hypotheses of one sentence; a family says which are kept."""

    # At the limit: whether nothing but an end may come; otherwise any last word is replaced by one.
    only_ends_at_limit = False

    def __init__(self, generation_config: GenerationConfig):
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
        raise NotImplementedError

    def is_over(self, best_total: float | None = None) -> bool:
        """Whether no continuation matters any more, the best of them having this sum of log-probabilities."""
        raise NotImplementedError

    def score(self, total: float, length: int) -> float:
        """What hypotheses are ranked by."""
        return total / length**self.length_penalty

    def best(self, number: int) -> list[tuple[float, list[int]]]:
        """Scores and tokens, best first, of equal ones the earlier; nothing but the start where there are too few."""
        ranked = sorted(self.ended, key=lambda entry: -entry[0])[:number]
        return ranked + [(float("-inf"), ranked[0][1][:1] if ranked else [])] * (number - len(ranked))


def search_hypotheses(
    model: Any,
    input_ids: torch.Tensor,
    hypotheses: type[CanonicalHypotheses],
    processors: Sequence[Any],
    criteria: StoppingCriteriaList | None,
    generation_config: GenerationConfig,
    model_kwargs: dict[str, Any],
) -> torch.Tensor | CanonicalBeamSearchOutput:
    """Search, a step at a time, by the model's two hooks.

    Args:
        model: the model.
        input_ids: `(batch * K, length)` beginnings.
        hypotheses: the rule of the reference.
        processors: applied to the log-probabilities; a forced end has no say, texts end at the limit anyway.
        criteria: upstream's; those of length and end have no say, a beam for which another holds ends as it is.
        generation_config: K (`num_beams`), `max_length`, `length_penalty`, `num_return_sequences`, special tokens.
        model_kwargs: what the model's hooks read.

    Returns:
        The best texts with their final end token, padded on the right; with scores under `return_dict_in_generate`.
    """
    ends = end_tokens(model, generation_config)
    beams, limit, device = generation_config.num_beams, generation_config.max_length, input_ids.device
    batch = input_ids.shape[0] // beams
    pad = generation_config.pad_token_id if generation_config.pad_token_id is not None else ends[0]
    processors = [one for one in processors if not isinstance(one, ForcedEOSTokenLogitsProcessor)]
    sentences = [hypotheses(generation_config) for _ in range(batch)]
    over = [False] * batch
    totals = torch.zeros(batch, beams, device=device)
    totals[:, 1:] = IMPOSSIBLE  # all beams are equal at first
    first = True
    while input_ids.shape[1] < limit and not all(over):
        cached = not first and model_kwargs.get("cache") is not None
        inputs = model.prepare_inputs_for_generation(
            input_ids, next_sequence_length=1 if cached else None, is_first_iteration=first, **model_kwargs
        )
        outputs = model(**inputs, return_dict=True)
        model_kwargs = model._update_model_kwargs_for_generation(outputs, model_kwargs, is_encoder_decoder=True)
        first = False
        log_probs = outputs.logits[:, -1].to(dtype=torch.float32, device=device).log_softmax(dim=-1)
        for processor in processors:
            log_probs = processor(input_ids, log_probs)
        last_step = input_ids.shape[1] + 1 == limit
        if last_step and hypotheses.only_ends_at_limit:
            alone = torch.full_like(log_probs, float("-inf"))
            alone[:, ends] = log_probs[:, ends]
            log_probs = alone
        vocabulary = log_probs.shape[1]
        sums = (log_probs.view(batch, beams, vocabulary) + totals[..., None]).flatten(1)
        best, places = sums.topk(2 * beams, dim=1)
        texts = input_ids.tolist()
        rows, words, kept = [], [], []
        for number, sentence in enumerate(sentences):
            values = best[number].tolist()
            over[number] = over[number] or sentence.is_over(values[0])
            going: list[tuple[float, int, int]] = []
            for rank, (value, place) in enumerate(zip(values, places[number].tolist(), strict=True)):
                if over[number] or len(going) == beams:
                    break
                beam, word = divmod(place, vocabulary)
                if word not in ends and not last_step:
                    going.append((value, beam, word))
                elif value > IMPOSSIBLE / 2 and sentence.accepts(rank):
                    sentence.add(value, texts[number * beams + beam])
            over[number] = over[number] or sentence.is_over()
            going += [(IMPOSSIBLE, 0, pad)] * (beams - len(going))  # of a sentence that is over
            kept.append([value for value, _, _ in going])
            rows += [number * beams + beam for _, beam, _ in going]
            words += [word for _, _, word in going]
        if last_step:
            for number in [number for number, sentence in enumerate(sentences) if not sentence.ended]:
                for beam, total in enumerate(totals[number].tolist()):  # no end was allowed: texts as they are
                    sentences[number].add(total, texts[number * beams + beam])
            break
        totals = torch.tensor(kept, device=device)
        parents = torch.tensor(rows, device=device)
        input_ids = torch.cat([input_ids[parents], torch.tensor(words, device=device)[:, None]], dim=1)
        if model_kwargs.get("cache") is not None:
            model_kwargs["cache"].reorder_cache(parents)
        for row in stopped_rows(input_ids, criteria):
            number, beam = divmod(row, beams)
            if not over[number] and kept[number][beam] > IMPOSSIBLE / 2:
                sentences[number].add(kept[number][beam], input_ids[row].tolist())
                totals[number, beam] = IMPOSSIBLE
                over[number] = bool((totals[number] == IMPOSSIBLE).all())
    return result(sentences, generation_config, ends[0], pad, device)


def own_search(search: Any, beams: int, arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments of upstream's `generate` that make it call a search of ours.

    Args:
        search: the function.
        beams: K.
        arguments: the others; `stop_strings` become a criterion, as upstream hands no tokenizer to such a function.

    Returns:
        All of them.
    """
    arguments = {**arguments, "custom_generate": search, "num_beams": beams}
    strings, tokenizer = arguments.pop("stop_strings", None), arguments.pop("tokenizer", None)
    if strings is not None and tokenizer is not None:
        criteria = [*(arguments.get("stopping_criteria") or ()), StopStringCriteria(tokenizer, strings)]
        arguments["stopping_criteria"] = StoppingCriteriaList(criteria)
    return arguments


def refuse_guidance(arguments: dict[str, Any], defaults: GenerationConfig) -> None:
    """Refuse `guidance_scale`: upstream's second pass feeds the target alone, as if it were a source.

    Args:
        arguments: of `generate`.
        defaults: the model's configuration.
    """
    sources = [arguments, *(vars(one) for one in (arguments.get("generation_config"), defaults) if one is not None)]
    scale = next((source["guidance_scale"] for source in sources if source.get("guidance_scale") is not None), 1)
    if scale != 1:
        raise ValueError(
            f"`guidance_scale` must be 1, got {scale}: what it compares with is a text without its source, which an "
            "encoder-decoder cannot continue. Leave it out."
        )


def end_tokens(model: Any, generation_config: GenerationConfig | None) -> list[int]:
    """The ids that end a text.

    Args:
        model: the model.
        generation_config: from `generate`.

    Returns:
        At least one.

    Raises:
        ValueError: sampling, no end token, or no configuration.
    """
    if generation_config is None:
        raise ValueError("`generation_config` must be given. Call `model.generate(..., search_beam_size=K)`.")
    if generation_config.do_sample:
        raise ValueError("`do_sample` must be False: the reference's beam search does not sample.")
    ends = generation_config.eos_token_id
    ends = model.config.eos_token_id if ends is None else ends
    if ends is None:
        raise ValueError(
            "`eos_token_id` must be the tokenizer's end token: it ends a hypothesis. Set it in the config."
        )
    return [int(end) for end in torch.atleast_1d(torch.as_tensor(ends))]


def stopped_rows(input_ids: torch.Tensor, criteria: StoppingCriteriaList | None) -> list[int]:
    """Rows for which a criterion other than length and end holds."""
    others = [one for one in criteria or () if not hasattr(one, "eos_token_id") and not hasattr(one, "max_length")]
    if not others:
        return []
    return torch.stack([one(input_ids, None) for one in others]).any(dim=0).nonzero().flatten().tolist()


def result(
    sentences: Sequence[CanonicalHypotheses],
    generation_config: GenerationConfig,
    end: int,
    pad: int,
    device: torch.device,
) -> torch.Tensor | CanonicalBeamSearchOutput:
    """The best hypotheses of all sentences, with their final end token, padded."""
    best = [entry for sentence in sentences for entry in sentence.best(generation_config.num_return_sequences)]
    width = max(len(tokens) for _, tokens in best) + 1
    rows = [tokens + [end] + [pad] * (width - len(tokens) - 1) for _, tokens in best]
    sequences = torch.tensor(rows, device=device)
    if not generation_config.return_dict_in_generate:
        return sequences
    return CanonicalBeamSearchOutput(sequences, torch.tensor([score for score, _ in best], device=device))
