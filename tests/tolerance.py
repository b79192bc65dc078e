"""How near a number must come to a reference's: one measure for every golden and every parity test."""

import os

import torch

# Set where torch computes as on another kind of processor than this one.
OTHER_PROCESSOR = "TEST_OTHER_PROCESSOR"


def assert_agrees(ours, reference, atol, rtol=None, *, double=None, name="ours"):
    """Fail unless |ours - reference| <= atol + rtol * |reference| in every element.

    Args:
        ours: tensor, number or list.
        reference: the same of the reference.
        atol: the golden's tolerance t, which means t * (1 + |reference|).
        rtol: for a golden that gives the share of |reference| separately.
        double: ours in double precision, for a comparison where the rounding of single precision alone takes more than
            half of the tolerance: it, the same on every processor, must keep the tolerance as well. As another
            kind of processor computes, ours must be that near to it instead, since the reference has its own rounding.
        name: what is compared, for the message.

    Returns:
        The margin: how many times smaller the worst difference is than what is allowed.
    """
    if double is not None:
        assert double.dtype == torch.float64
        assert_agrees(double, reference, atol, rtol, name=f"{name} in double precision")
        if OTHER_PROCESSOR in os.environ:
            reference, name = double, f"{name}, beside double precision"
    got, expected = (torch.as_tensor(each, dtype=torch.float64).detach().cpu() for each in (ours, reference))
    assert got.shape == expected.shape, f"{name} has shape {tuple(got.shape)}, the reference {tuple(expected.shape)}"
    if got.numel() == 0:
        return float("inf")
    allowed = atol + (atol if rtol is None else rtol) * expected.abs()
    share = torch.where(got == expected, 0.0, ((got - expected).abs() / allowed).nan_to_num(nan=torch.inf))
    worst, place = share.max().item(), torch.unravel_index(share.argmax(), share.shape)
    if worst > 1:
        place = tuple(int(index) for index in place)
        raise AssertionError(
            f"{name}: {int((share > 1).sum())} of {share.numel()} elements disagree; the worst, at {place}, is off by "
            f"{worst:.3g} times what is allowed: {got[place].item()!r}, the reference {expected[place].item()!r}"
        )
    return 1 / worst if worst else float("inf")
