"""Checks of what `generate` gets, before the first step."""

from collections.abc import Mapping
from typing import Any

import torch
from transformers.generation import GenerationConfig

from .configuration_mass_nmt import MassNmtConfig
from .inputs_mass_nmt import check_length


def number_of_rows(source: torch.Tensor | None, options: Mapping[str, Any]) -> int:
    """Rows of a batch of sources, in whatever form they came.

    Args:
        source: `(batch, source_len)` ids, or `None`.
        options: the keyword arguments of `generate`.

    Returns:
        The number; 1 without a source, when upstream reads `bos_token_id`.
    """
    if source is not None:
        return len(source)
    if options.get("inputs_embeds") is not None:
        return len(options["inputs_embeds"])
    if options.get("encoder_outputs") is not None:
        return len(options["encoder_outputs"][0])
    return 1


def check_generation(
    config: MassNmtConfig,
    source: torch.Tensor | None,
    options: Mapping[str, Any],
    defaults: GenerationConfig | None = None,
) -> None:
    """Refuse sources and targets that are longer than the position tables.

    Args:
        config: has the size of the tables.
        source: `(batch, source_len)` ids, or `None`.
        options: the keyword arguments of `generate`.
        defaults: the model's own generation configuration, for what the arguments leave out.

    Raises:
        ValueError: source or target have more tokens than there are positions.
    """

    def setting(name: str) -> Any:
        """What upstream will go by: an argument, the configuration given, the model's."""
        values = [options.get(name)]
        values += [getattr(place, name, None) for place in (options.get("generation_config"), defaults)]
        return next((value for value in values if value is not None), None)

    given = source if source is not None else options.get("inputs_embeds")
    if given is not None:
        check_length(config, given.shape[1], "source")
    prompt = options.get("decoder_input_ids")
    begun = 1
    if prompt is not None:
        start = config.decoder_start_token_id
        # Upstream puts the start token in front of prompts that lack it.
        begun = prompt.shape[1] + int(start is not None and start not in prompt[:, 0].tolist())
    new, total = setting("max_new_tokens"), setting("max_length")
    if new is not None:
        total = begun + new
    fed = max(total or 0, begun + 1) - 1  # the last token is not fed
    if fed > config.max_position_embeddings:
        raise ValueError(
            f"The target needs {fed} positions and `max_position_embeddings` is {config.max_position_embeddings}: "
            "lower `max_new_tokens` or `max_length`."
        )
