"""What generation with MASS needs beside upstream's `generate`: the target's limit, and the end token at it."""

from collections.abc import Mapping
from typing import Any

import torch
from transformers.generation import GenerationConfig, LogitsProcessor


class EndAtLimitLogitsProcessor(LogitsProcessor):
    """At the last step nothing but an end token may come, with its real log-probability.

    fairseq ends every hypothesis that reaches the limit and keeps the end token's own score. Upstream's
    `forced_eos_token_id` gives it the score 0, which favours hypotheses that were cut off.

    Args:
        max_length: tokens of a finished output, the decoder's start token included.
        eos_token_id: the end token, or several.

    Example:
        >>> processor = EndAtLimitLogitsProcessor(max_length=3, eos_token_id=1)
        >>> processor(torch.tensor([[1, 0]]), torch.tensor([[-0.5, -1.5, -2.5]])).tolist()
        [[-inf, -1.5, -inf]]
    """

    def __init__(self, max_length: int, eos_token_id: int | list[int]):
        self.max_length = max_length
        self.eos_token_id = eos_token_id if isinstance(eos_token_id, list) else [eos_token_id]

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Scores `(batch, vocab_size)`, unchanged before the last step."""
        if input_ids.shape[-1] != self.max_length - 1:
            return scores
        ends = torch.full_like(scores, float("-inf"))
        ends[:, self.eos_token_id] = scores[:, self.eos_token_id]
        return ends


class GenerationSettings:
    """What `generate` will go by: its arguments, else the configuration given, else the model's.

    Args:
        arguments: keyword arguments of `generate`.
        defaults: the model's generation configuration.
    """

    def __init__(self, arguments: Mapping[str, Any], defaults: GenerationConfig):
        self.arguments = arguments
        self.configurations = (arguments.get("generation_config"), defaults)

    def __getitem__(self, name: str) -> Any:
        if self.arguments.get(name) is not None:
            return self.arguments[name]
        values = [getattr(source, name, None) for source in self.configurations]
        return next((value for value in values if value is not None), None)

    def max_length(self, start: int | None) -> int:
        """Tokens of a finished output, whatever the decoder is fed first included.

        Args:
            start: `decoder_start_token_id`.

        Returns:
            The limit that upstream will apply.
        """
        prompt = self.arguments.get("decoder_input_ids")
        width = 1 if prompt is None else prompt.shape[1]
        if prompt is not None and start is not None and not (prompt[:, 0] == start).any():
            width += 1  # upstream puts the start token in front
        new = self["max_new_tokens"]
        if new is not None:
            return width + int(new)
        total = self["max_length"]
        return 20 + width - 1 if total is None else int(total)  # upstream's own default

    def check_target(self, start: int | None, positions: int) -> None:
        """Refuse a limit beyond the position table, before the first step.

        Args:
            start: `decoder_start_token_id`.
            positions: tokens that a target may have.

        Raises:
            ValueError: the decoder would be fed more tokens than it has positions.
        """
        fed = self.max_length(start) - 1  # the last token is not fed
        if fed > positions:
            raise ValueError(
                f"A target of {fed} tokens was asked for and the decoder has {positions} positions "
                "(`max_target_positions`, by default `max_position_embeddings`): lower `max_new_tokens`."
            )
