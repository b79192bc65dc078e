"""Shared projections between the weights of teacher and student (Zhao et al. 2019, arXiv 1909.11687, section 3.2).

With one pair of trained matrices for all variables, U from the teacher's width to the student's and V back:

    down = sum over variables || U W_teacher U^T - W_student ||^2      (a vector: || U w_teacher - w_student ||^2)
    up   = sum over variables || W_teacher - V W_student V^T ||^2
"""

from collections.abc import Iterable

import torch

DIRECTIONS = ("down", "up", "both")


def shared_projection_loss(
    pairs: Iterable[tuple[torch.Tensor, torch.Tensor]],
    down: torch.Tensor | None = None,
    up: torch.Tensor | None = None,
    direction: str = "up",
) -> torch.Tensor:
    """How far the student's weights are from the teacher's under the shared projections.

    A side of a variable whose length is the same in both models (a vocabulary, say) is not projected; one that is k
    times the model's width (the inner layer of the feed-forward block) is projected block by block.

    Args:
        pairs: (teacher's variable, student's), each a vector or a matrix.
        down: U, `(student_hidden, teacher_hidden)`, for `"down"`.
        up: V, `(teacher_hidden, student_hidden)`, for `"up"`.
        direction: `"down"`, `"up"` (the paper's better one) or `"both"`.

    Returns:
        A scalar: the sum over variables.

    Raises:
        ValueError: an unknown direction, a projection that it needs is missing, or a variable that does not fit.

    Examples:
        >>> teacher, student = torch.eye(4), torch.eye(2)
        >>> up = torch.tensor([[1.0, 0], [0, 1], [0, 0], [0, 0]])
        >>> shared_projection_loss([(teacher, student)], up=up).item()
        2.0
    """
    if direction not in DIRECTIONS:
        raise ValueError(f"`direction` must be one of {list(DIRECTIONS)}, got {direction!r}.")
    for name, matrix in (("down", down), ("up", up)):
        if direction in (name, "both") and matrix is None:
            raise ValueError(f"`{name}` must be given for `direction` = {direction!r}.")
    losses = []
    for teacher, student in pairs:
        if direction in ("down", "both"):
            losses.append((_project(teacher, student.shape, down) - student).square().sum())
        if direction in ("up", "both"):
            losses.append((teacher - _project(student, teacher.shape, up)).square().sum())
    if not losses:
        raise ValueError(f"`pairs` must have at least one pair of variables, got {pairs!r}.")
    return torch.stack(losses).sum()


def _project(variable: torch.Tensor, shape: torch.Size, matrix: torch.Tensor | None) -> torch.Tensor:
    """A variable brought to another shape, side by side."""
    if matrix is None:
        raise ValueError(f"A projection is missing for a variable of shape {tuple(variable.shape)}.")
    if variable.dim() != len(shape):
        raise ValueError(f"A pair must have as many sides, got {tuple(variable.shape)} and {tuple(shape)}.")
    for side, length in enumerate(shape):
        if variable.shape[side] != length:
            variable = _project_side(variable, side, length, matrix)
    return variable


def _project_side(variable: torch.Tensor, side: int, length: int, matrix: torch.Tensor) -> torch.Tensor:
    out, given = matrix.shape
    blocks, rest = divmod(variable.shape[side], given)
    if rest or blocks * out != length:
        raise ValueError(
            f"A side of {variable.shape[side]} cannot become one of {length} by a projection from {given} to {out}: "
            "both must be the same multiple of the models' widths."
        )
    moved = variable.movedim(side, -1).unflatten(-1, (blocks, given))
    return (moved @ matrix.T).flatten(-2).movedim(-1, side)
