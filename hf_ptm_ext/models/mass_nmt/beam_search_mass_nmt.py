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

from typing import Any

import torch
from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList

from .search_mass_nmt import MassNmtBeamSearchOutput, MassNmtHypotheses, end_tokens, search_hypotheses


class BestHypotheses(MassNmtHypotheses):
    """The K best ended hypotheses of one sentence."""

    def add(self, total: float, tokens: list[int]) -> None:
        self.ended.append((self.score(total, len(tokens)), tokens))
        self.ended = self.best(min(len(self.ended), self.size))

    def is_over(self, best_total: float | None = None) -> bool:
        if len(self.ended) < self.size:
            return False
        if self.early_stopping or best_total is None:
            return self.early_stopping
        return self.ended[-1][0] >= self.score(best_total, self.longest)


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
        stopping_criteria: upstream's; those of length and </s> have no say, a beam for which another holds ends.
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
    end_tokens(model, generation_config)
    return search_hypotheses(
        model, input_ids, BestHypotheses, logits_processor or (), stopping_criteria, generation_config, model_kwargs
    )


__all__ = ["MassNmtBeamSearchOutput", "mass_nmt_beam_search"]
