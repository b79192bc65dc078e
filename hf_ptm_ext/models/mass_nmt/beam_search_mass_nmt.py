"""The reference's beam search, which is XLM's (facebookresearch/XLM; microsoft/MASS, MASS-unsupNMT).

A hypothesis </s> y1 .. yn that ends has the score

    sum log p / len ** length_penalty,   len = n + 1: the leading </s> counts, the final one does not

and the K best of a sentence are kept. It differs from upstream's beam search (`num_beams`) where outputs differ:

- of the 2K best continuations of a step those before the K-th that goes on count, so an end may come from a place
  behind the K-th;
- at the length limit every one of the 2K best ends: its last word is replaced by </s> and keeps its log-probability;
- with `early_stopping` a sentence is over when it has K hypotheses; without, when its worst one is at least as good as
  the best continuation of the next step would be at the length limit.
"""

import heapq
from dataclasses import dataclass
from typing import Any

import torch
from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList
from transformers.generation import ForcedEOSTokenLogitsProcessor
from transformers.utils import ModelOutput

IMPOSSIBLE = -1e9


@dataclass
class MassNmtBeamSearchOutput(ModelOutput):
    """Output of `mass_nmt_beam_search` with `return_dict_in_generate=True`.

    Args:
        sequences: `(batch * num_return_sequences, length)`, padded on the right.
        sequences_scores: `(batch * num_return_sequences,)`, best first in each sentence, length penalty applied.
    """

    sequences: torch.Tensor | None = None
    sequences_scores: torch.Tensor | None = None


class Hypotheses:
    """The K best ended hypotheses of one sentence."""

    def __init__(self, size: int, length_penalty: float, early_stopping: bool, longest: int):
        """Start without any.

        Args:
            size: K.
            length_penalty: exponent of the length.
            early_stopping: whether K hypotheses are enough.
            longest: length by which a sum that may still end is divided at most.
        """
        self.size = size
        self.length_penalty = length_penalty
        self.early_stopping = early_stopping
        self.longest = longest
        self._heap: list[tuple[float, int, list[int]]] = []
        self._added = 0

    def add(self, total: float, tokens: list[int]) -> None:
        """Keep a hypothesis if it is among the K best; of equal ones the earlier."""
        self._added += 1
        entry = (total / len(tokens) ** self.length_penalty, -self._added, tokens)
        if len(self._heap) < self.size:
            heapq.heappush(self._heap, entry)
        elif entry[0] > self._heap[0][0]:
            heapq.heapreplace(self._heap, entry)

    def is_over(self, best_total: float) -> bool:
        """Whether a continuation of this sum of log-probabilities cannot matter any more."""
        if len(self._heap) < self.size:
            return False
        return self.early_stopping or self._heap[0][0] >= best_total / self.longest**self.length_penalty

    def best(self, number: int) -> list[tuple[float, list[int]]]:
        """Scores and tokens, best first."""
        return [(score, tokens) for score, _, tokens in heapq.nlargest(number, self._heap)]


def mass_nmt_beam_search(
    model: Any,
    input_ids: torch.Tensor,
    logits_processor: LogitsProcessorList | None = None,
    stopping_criteria: StoppingCriteriaList | None = None,
    generation_config: GenerationConfig | None = None,
    **model_kwargs: Any,
) -> torch.Tensor | MassNmtBeamSearchOutput:
    """Decode as the reference does: `generate(..., search_beam_size=K)`, or this function as `custom_generate`.

    Args:
        model: the model; this and the following come from `generate`.
        input_ids: `(batch * K, length)` beginnings of the targets.
        logits_processor: upstream's processors, applied to the log-probabilities. A forced end has no say: texts end
            at the limit anyway.
        stopping_criteria: upstream's; those of length and </s> have no say, others end the search when they hold for
            every beam.
        generation_config: gives K (`num_beams`), `max_length`, `length_penalty`, `early_stopping`,
            `num_return_sequences`, the end and padding tokens.
        model_kwargs: what the model's hooks read.

    Returns:
        `(batch * num_return_sequences, length)` texts with their leading and final </s>, padded on the right; with
        `return_dict_in_generate` an output with their scores.

    Raises:
        ValueError: sampling, no end token, or no configuration.

    Example:
        >>> import torch
        >>> from hf_ptm_ext import MassNmtConfig, MassNmtForConditionalGeneration
        >>> config = MassNmtConfig(
        ...     vocab_size=60, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        ...     decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64,
        ... )
        >>> model = MassNmtForConditionalGeneration(config).eval()
        >>> source = torch.tensor([[1, 7, 8, 1]])
        >>> output = model.generate(source, langs=0, decoder_langs=1, search_beam_size=4, max_length=8)
        >>> output[0, 0].item(), output.shape[1] <= 8
        (1, True)
    """
    ends = _check(model, generation_config)
    beams, limit = generation_config.num_beams, generation_config.max_length
    batch, device = len(input_ids) // beams, input_ids.device
    pad = generation_config.pad_token_id if generation_config.pad_token_id is not None else ends[0]
    processors = [one for one in logits_processor or () if not isinstance(one, ForcedEOSTokenLogitsProcessor)]
    sentences = [
        Hypotheses(beams, generation_config.length_penalty, generation_config.early_stopping is True, limit - 1)
        for _ in range(batch)
    ]
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
        vocabulary = log_probs.shape[1]
        sums = (log_probs.view(batch, beams, vocabulary) + totals[..., None]).flatten(1)
        best, places = sums.topk(2 * beams, dim=1)

        last_step = input_ids.shape[1] + 1 == limit
        texts = input_ids.tolist()
        rows, words, kept = [], [], []
        for number, sentence in enumerate(sentences):
            values = best[number].tolist()
            over[number] = over[number] or sentence.is_over(values[0])
            going: list[tuple[float, int, int]] = []
            for value, place in zip(values, places[number].tolist(), strict=True):
                if over[number] or len(going) == beams:
                    break
                beam, word = divmod(place, vocabulary)
                if word in ends or last_step:
                    sentence.add(value, texts[number * beams + beam])
                else:
                    going.append((value, beam, word))
            going += [(0.0, 0, pad)] * (beams - len(going))  # of a sentence that is over
            kept.append([value for value, _, _ in going])
            rows += [number * beams + beam for _, beam, _ in going]
            words += [word for _, _, word in going]
        if last_step:
            break
        totals = torch.tensor(kept, device=device)
        parents = torch.tensor(rows, device=device)
        input_ids = torch.cat([input_ids[parents], torch.tensor(words, device=device)[:, None]], dim=1)
        if model_kwargs.get("cache") is not None:
            model_kwargs["cache"].reorder_cache(parents)
        if _stops(input_ids, stopping_criteria):
            for number, sentence in enumerate(sentences):
                for beam in range(0 if over[number] else beams):
                    sentence.add(kept[number][beam], input_ids[number * beams + beam].tolist())
            break
    return _result(sentences, generation_config, ends[0], pad, device)


def _check(model: Any, generation_config: GenerationConfig | None) -> list[int]:
    """Refuse what the search cannot do; the ids that end a text."""
    if generation_config is None:
        raise ValueError("`generation_config` must be given. Call `model.generate(..., search_beam_size=K)`.")
    if generation_config.do_sample:
        raise ValueError("`do_sample` must be False: the reference's beam search does not sample.")
    ends = generation_config.eos_token_id
    ends = model.config.eos_token_id if ends is None else ends
    if ends is None:
        raise ValueError("`eos_token_id` must be the tokenizer's </s>: it ends a hypothesis. Set it in the config.")
    return [int(end) for end in torch.atleast_1d(torch.as_tensor(ends))]


def _stops(input_ids: torch.Tensor, criteria: StoppingCriteriaList | None) -> bool:
    """Whether a criterion other than length and </s> holds for every beam."""
    others = [one for one in criteria or () if not hasattr(one, "eos_token_id") and not hasattr(one, "max_length")]
    return bool(others) and bool(torch.stack([one(input_ids, None) for one in others]).any(dim=0).all())


def _result(
    sentences: list[Hypotheses], generation_config: GenerationConfig, end: int, pad: int, device: torch.device
) -> torch.Tensor | MassNmtBeamSearchOutput:
    """The best hypotheses of all sentences, with their final </s>, padded."""
    best = [entry for sentence in sentences for entry in sentence.best(generation_config.num_return_sequences)]
    width = max(len(tokens) for _, tokens in best) + 1
    rows = [tokens + [end] + [pad] * (width - len(tokens) - 1) for _, tokens in best]
    sequences = torch.tensor(rows, device=device)
    if not generation_config.return_dict_in_generate:
        return sequences
    return MassNmtBeamSearchOutput(sequences, torch.tensor([score for score, _ in best], device=device))


__all__ = ["MassNmtBeamSearchOutput", "mass_nmt_beam_search"]
