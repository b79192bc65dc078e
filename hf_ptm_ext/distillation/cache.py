"""A teacher's outputs for every training row, computed once and kept in a file, keyed by a number of the row.

Each row is recognised by a digest of its tokens: a file of other texts, teachers or objectives is refused. Kept is one
vector a row: hidden states of all tokens are larger than the time that running a teacher takes is worth.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from ..files import file_aside
from .teachers import TEACHER_PREFIX

ROW_OUTPUTS = ("logits", "first")
_IDS = "sample_ids"
_DIGESTS = "row_digests"
_OUTPUT = "output."
# Odd, so that multiplying by it loses nothing modulo 2^64 (Knuth's MMIX).
_MULTIPLIER = 6364136223846793005


def row_digests(inputs: Mapping[str, Any]) -> torch.Tensor:
    """A number for each row's tokens and token types, the same whatever the row is padded to."""
    prefix = TEACHER_PREFIX if f"{TEACHER_PREFIX}input_ids" in inputs else ""
    ids = inputs[f"{prefix}input_ids"].cpu()
    mask = inputs.get(f"{prefix}attention_mask")
    mask = torch.ones_like(ids) if mask is None else mask.cpu().long()
    types = inputs.get(f"{prefix}token_type_ids")
    values = ids + 1 if types is None else ids + 1 + (types.cpu() << 40)
    powers = torch.cumprod(torch.full((ids.shape[-1] + 1,), _MULTIPLIER), 0)
    ranks = (torch.cumsum(mask, -1) * mask).long()
    digests = (values * mask * powers[ranks]).reshape(ids.shape[0], -1)
    return digests.sum(-1)


def check_cacheable(names: Iterable[str]) -> None:
    """Refuse outputs that are not one vector a row."""
    wrong = sorted(name for name in names if name.partition(".")[0] not in ROW_OUTPUTS)
    if wrong:
        raise ValueError(
            f"`teacher_cache` keeps one vector a row (logits of a classifier, states of the first position), but the "
            f"objectives need {', '.join(wrong)}. Leave `teacher_cache` out: the teacher then runs with each batch."
        )


class TeacherCache:
    """Outputs by row number."""

    def __init__(
        self, ids: torch.Tensor, digests: torch.Tensor, outputs: dict[str, torch.Tensor], path: str | Path = ""
    ):
        self.ids, order = ids.sort()
        self.digests = digests[order]
        self.outputs = {name: values[order] for name, values in outputs.items()}
        self.path = path
        twice = self.ids[1:][self.ids[1:] == self.ids[:-1]]
        if len(twice):
            raise ValueError(f"Sample ids must be different for all rows, {int(twice[0])} occurs twice.")

    @classmethod
    def collect(cls, batches: Iterable[tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]]) -> "TeacherCache":
        """Put together what the teacher gave."""
        ids, digests, outputs = [], [], {}  # type: ignore[var-annotated]
        for numbers, row_numbers, values in batches:
            ids.append(numbers.cpu().long().reshape(-1))
            digests.append(row_numbers)
            for name, value in values.items():
                if value.dim() != 2:
                    raise ValueError(
                        f"`teacher_cache` keeps one vector a row, but {name!r} of the teacher is "
                        f"{tuple(value.shape)}: predictions for every token are not cached."
                    )
                outputs.setdefault(name, []).append(value.float().cpu())
        joined = {name: torch.cat(values) for name, values in outputs.items()}
        return cls(torch.cat(ids), torch.cat(digests), joined)

    def save(self, path: str | Path, teacher: str) -> None:
        """Write the file, aside first."""
        tensors = {f"{_OUTPUT}{name}": values.contiguous() for name, values in self.outputs.items()}
        metadata = {"teacher": teacher, "names": json.dumps(sorted(self.outputs))}
        with file_aside(path) as partial:
            save_file({**tensors, _IDS: self.ids, _DIGESTS: self.digests}, str(partial), metadata=metadata)

    @classmethod
    def load(cls, path: str | Path, teacher: str, names: Iterable[str]) -> "TeacherCache":
        """Read the file."""
        with safe_open(str(path), "pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        advice = "Delete the file, or name another, to compute it anew."
        if metadata.get("teacher") != teacher:
            raise ValueError(f"`teacher_cache` = {path} was written by another teacher than this one. {advice}")
        missing = sorted(name for name in names if f"{_OUTPUT}{name}" not in tensors)
        if missing:
            raise ValueError(f"`teacher_cache` = {path} was written for other objectives: no {missing}. {advice}")
        outputs = {name.removeprefix(_OUTPUT): value for name, value in tensors.items() if name.startswith(_OUTPUT)}
        return cls(tensors[_IDS], tensors[_DIGESTS], outputs, path)

    def look_up(self, ids: torch.Tensor, digests: torch.Tensor) -> dict[str, torch.Tensor]:
        """The outputs of a batch."""
        wanted = ids.cpu().long().reshape(-1)
        at = torch.searchsorted(self.ids, wanted).clamp_max(len(self.ids) - 1)
        advice = "Delete the file to compute it anew."
        unknown = wanted[self.ids[at] != wanted]
        if len(unknown):
            raise ValueError(f"`teacher_cache` = {self.path} has no row {int(unknown[0])}. {advice}")
        stale = wanted[self.digests[at] != digests]
        if len(stale):
            raise ValueError(
                f"`teacher_cache` = {self.path} is stale: row {int(stale[0])} has other tokens than the teacher saw. "
                f"{advice}"
            )
        return {name: values[at] for name, values in self.outputs.items()}
