"""Plain kernels in the place of flash-attn's, which run on no CPU; transformers' code around them runs as it is."""

from typing import Any

import pytest
import torch
from transformers import PreTrainedModel
from transformers import modeling_flash_attention_utils as flash_utils

FLASH = "flash_attention_2"


@torch.compiler.disable
def dense_kernel(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
) -> torch.Tensor:
    """Attention of `(batch, tokens, heads, head size)` without any mask."""
    assert not causal
    heads_first = (value.transpose(1, 2) for value in (q, k, v))
    attended = torch.nn.functional.scaled_dot_product_attention(*heads_first, dropout_p=dropout_p, scale=softmax_scale)
    return attended.transpose(1, 2)


@torch.compiler.disable
def varlen_kernel(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    **options: Any,
) -> torch.Tensor:
    """Attention of `(tokens, heads, head size)` within each piece; what a true kernel would not check is checked."""
    assert cu_seqlens_q.dtype == cu_seqlens_k.dtype == torch.int32
    assert torch.equal(cu_seqlens_q, cu_seqlens_k)
    assert cu_seqlens_q[0] == 0
    assert cu_seqlens_q[-1] == len(q)
    lengths = cu_seqlens_q.diff()
    assert lengths.min() >= 0
    assert lengths.max() <= max_seqlen_q == max_seqlen_k
    pieces = zip(*(value.split(lengths.tolist()) for value in (q, k, v)), strict=True)
    return torch.cat(
        [dense_kernel(*(value[None] for value in piece), **options)[0] for piece in pieces if len(piece[0])]
    )


def use_flash_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `attn_implementation=FLASH` run these kernels, on the CPU too."""
    monkeypatch.setattr(PreTrainedModel, "_flash_attn_can_dispatch", lambda *args, **kwargs: True)
    found = (dense_kernel, varlen_kernel, None, flash_utils._pad_input, flash_utils._unpad_input)
    monkeypatch.setattr(flash_utils, "_lazy_imports", lambda *args, **kwargs: found)
    monkeypatch.setattr(flash_utils, "_loaded_implementation", None)
