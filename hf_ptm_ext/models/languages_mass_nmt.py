"""What MASS-NMT has of each language: ids of rows, and projections of the cross-attention."""

from typing import Any

import torch
from torch import nn

from .configuration_mass_nmt import MassNmtConfig
from .losses_core import values_can_be_read
from .seq2seq_core import Seq2SeqAttention

# `attention_setting` -> the projections of the cross-attention that each target language has to itself.
OWN_PROJECTIONS = {"v1": ("out_proj",), "v2": ("q_proj", "k_proj", "v_proj", "out_proj")}


class MassNmtLanguageLinear(nn.ModuleList):
    """One linear map per language; all are computed and each row's is taken: fixed shapes, gradients for all."""

    def __init__(self, config: MassNmtConfig):
        super().__init__([nn.Linear(config.d_model, config.d_model) for _ in range(config.n_langs)])

    def forward(self, hidden_states: torch.Tensor, language: torch.Tensor) -> torch.Tensor:
        """`(batch, seq_len, hidden)` and `(batch,)` ids to `(batch, seq_len, hidden)`."""
        result = self[0](hidden_states)
        for number in range(1, len(self)):
            result = torch.where((language == number)[:, None, None], self[number](hidden_states), result)
        return result


class MassNmtCrossAttention(Seq2SeqAttention):
    """Attention over the source, with projections of the target's language."""

    def new_projection(self, name: str) -> nn.Module:
        own = name in OWN_PROJECTIONS[self.config.attention_setting]
        return MassNmtLanguageLinear(self.config) if own else super().new_projection(name)

    def project(
        self, states: torch.Tensor, *names: str, language: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, ...]:
        if names[0] not in OWN_PROJECTIONS[self.config.attention_setting]:
            return super().project(states, *names)
        return tuple(getattr(self, name)(states, language) for name in names)


def languages(
    config: MassNmtConfig, langs: torch.Tensor | None, batch: int, device: torch.device, name: str
) -> torch.Tensor:
    """Check language ids, as `(batch,)` or `(batch, seq_len)`."""
    known = f"the languages are {config.lang2id}" if config.lang2id else f"`n_langs` is {config.n_langs}"
    if langs is None:
        if config.n_langs > 1:
            raise ValueError(
                f"`{name}` must be given: a `(batch,)` tensor with the language id of each row ({known}), got none."
            )
        return torch.zeros(batch, dtype=torch.long, device=device)
    if not torch.is_tensor(langs) or langs.dim() not in (1, 2) or langs.shape[0] != batch:
        got = f"the shape {tuple(langs.shape)}" if torch.is_tensor(langs) else repr(langs)
        raise ValueError(f"`{name}` must be a tensor of language ids, `(batch,)` with batch = {batch}, got {got}.")
    if values_can_be_read(langs):
        wrong = langs[(langs < 0) | (langs >= config.n_langs)]
        if wrong.numel():
            raise ValueError(f"`{name}` must be ids of languages, {known}, got {sorted(set(wrong.tolist()))}.")
    return langs.to(device)


def language_ids(
    config: MassNmtConfig, langs: torch.Tensor | int | str | None, batch: int, device: torch.device, name: str
) -> torch.Tensor:
    """Language ids of rows from what `generate` takes."""
    if isinstance(langs, str):
        ids = config.lang2id or {}
        if langs not in ids:
            known = ", ".join(ids) or "none: `config.lang2id` is not set, pass an id"
            raise ValueError(f"`{name}` must be a language of the model ({known}), got {langs!r}.")
        langs = ids[langs]
    if isinstance(langs, int):
        langs = torch.full((batch,), langs, device=device)
    return row_languages(languages(config, langs, batch, device, name))


def row_languages(langs: torch.Tensor) -> torch.Tensor:
    """The language of each row, `(batch,)`: as the reference takes a batch's, the largest id of its tokens."""
    return langs if langs.dim() == 1 else langs.amax(dim=1)


def number_of_rows(source: torch.Tensor | None, options: dict[str, Any]) -> int:
    """Rows of a batch of sources, in whatever form they came."""
    encoded = options.get("encoder_outputs")
    given = (source, options.get("inputs_embeds"), None if encoded is None else encoded[0])
    return next((value.shape[0] for value in given if value is not None), 1)
