"""The reference's beam search, which is fairseq 0.8's sequence generator (microsoft/MASS, MASS-summarization).

A hypothesis [SEP] y1 .. yn [SEP] that ends has the score sum log p / len ** length_penalty, where len = n + 1 counts
the final [SEP]. It differs from upstream's beam search (`num_beams`) where outputs differ:

- a sentence keeps the first K hypotheses that end and is over with the K-th, however good a later one would be; of one
  step the better come first;
- of the 2K best continuations of a step an end counts among the first K alone, and the K best others go on;
- at the length limit nothing but [SEP] may come, at its own log-probability; padding never comes.
"""

from typing import Any

import torch
from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList

from .search_mass import MassBeamSearchOutput, MassHypotheses, end_tokens, search_hypotheses


class FirstHypotheses(MassHypotheses):
    """The first K ended hypotheses of one sentence."""

    only_ends_at_limit = True

    def accepts(self, rank: int) -> bool:
        return rank < self.size

    def add(self, total: float, tokens: list[int]) -> None:
        if len(self.ended) < self.size:
            self.ended.append((self.score(total, len(tokens)), tokens))

    def is_over(self, best_total: float | None = None) -> bool:
        return len(self.ended) == self.size


def mass_beam_search(
    model: Any,
    input_ids: torch.Tensor,
    logits_processor: LogitsProcessorList | None = None,
    stopping_criteria: StoppingCriteriaList | None = None,
    generation_config: GenerationConfig | None = None,
    **model_kwargs: Any,
) -> torch.Tensor | MassBeamSearchOutput:
    """Decode as the reference does: `generate(..., search_beam_size=K)`, or this function as `custom_generate`.

    fairseq's `min_len` is `min_new_tokens`, its `max_len_b` is `max_new_tokens - 1`, `lenpen` is `length_penalty`,
    `nbest` is `num_return_sequences`, `unkpen` is `sequence_bias={(unk_token_id,): -unkpen}`; `no_repeat_ngram_size`
    counts the leading [SEP] as there.

    Args:
        model: the model; this and the following come from `generate`.
        input_ids: `(batch * K, length)` beginnings of the targets.
        logits_processor: upstream's processors, applied to the log-probabilities. A forced end has no say: texts end
            at the limit anyway.
        stopping_criteria: upstream's; those of length and [SEP] have no say, a beam for which another holds ends.
        generation_config: gives K (`num_beams`), `max_length`, `length_penalty`, `num_return_sequences`, the end and
            padding tokens.
        model_kwargs: what the model's hooks read.

    Returns:
        `(batch * num_return_sequences, length)` texts with their leading and final [SEP], padded on the right; with
        `return_dict_in_generate` an output with their scores.

    Raises:
        ValueError: sampling, no end token, or no configuration.

    Example:
        >>> import torch
        >>> from hf_ptm_ext import MassConfig, MassForConditionalGeneration
        >>> config = MassConfig(
        ...     vocab_size=60, d_model=32, encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=64,
        ...     decoder_layers=2, decoder_attention_heads=4, decoder_ffn_dim=64, bos_token_id=2, eos_token_id=3,
        ...     decoder_start_token_id=3,
        ... )
        >>> model = MassForConditionalGeneration(config).eval()
        >>> output = model.generate(torch.tensor([[7, 8, 3]]), search_beam_size=4, max_new_tokens=6, min_new_tokens=5)
        >>> output.shape, output[0, [0, -1]].tolist()
        (torch.Size([1, 7]), [3, 3])
    """
    pad, ends = model.config.pad_token_id, end_tokens(model, generation_config)

    def without_padding(ids: torch.Tensor, log_probs: torch.Tensor) -> torch.Tensor:
        return log_probs if pad in ends else log_probs.index_fill(1, ids.new_tensor([pad]), float("-inf"))

    processors = [without_padding, *(logits_processor or ())]
    return search_hypotheses(
        model, input_ids, FirstHypotheses, processors, stopping_criteria, generation_config, model_kwargs
    )


__all__ = ["MassBeamSearchOutput", "mass_beam_search"]
