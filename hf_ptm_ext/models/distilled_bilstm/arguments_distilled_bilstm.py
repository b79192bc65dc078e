# Generated from models/canonical/encoder_canonical.py by scripts/sync_copies.py; change that file.
"""The refusal of unread arguments."""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

import torch

# Keyword arguments that upstream's code hands through every `forward`: decorators of the base model, the Trainer,
# configs with `use_cache`, `generate`, whose loop keeps the tokenizer that `stop_strings` came with.
UPSTREAM_ARGUMENTS = frozenset(
    {
        "output_hidden_states",
        "output_attentions",
        "return_dict",
        "num_items_in_batch",
        "use_cache",
        "is_causal",
        "debug_io",
        "debug_io_dir",
        "prune_layers",
        "tokenizer",
        "assistant_tokenizer",
    }
)


def refuse_unknown_arguments(model: str, unnamed: Mapping[str, Any], named: Iterable[str]) -> None:
    """Refuse keyword arguments that nothing reads: a misspelt mask would be ignored without notice.

    Args:
        model: name of the model class, for the message.
        unnamed: what its `forward` got as `**kwargs`; values of `None` stand for "not given" and pass, and so do the
            zeros that tokenizers give as `token_type_ids`.
        named: the arguments that its `forward` names, to suggest one of them.

    Raises:
        TypeError: a keyword argument is neither upstream's nor `None`.
    """
    unknown = [name for name, value in unnamed.items() if value is not None and name not in UPSTREAM_ARGUMENTS]
    if "token_type_ids" in unknown and torch.is_tensor(types := unnamed["token_type_ids"]) and not types.any():
        unknown.remove("token_type_ids")
    if not unknown:
        return
    known = sorted({*named} - {"self", "kwargs"})
    hints = []
    for name in unknown:
        similar = difflib.get_close_matches(name, known, n=1)
        hints.append(f"`{name}`" + (f" (did you mean `{similar[0]}`?)" if similar else ""))
    raise TypeError(
        f"{model} got keyword arguments that nothing reads: {', '.join(hints)}. The encoder's are "
        f"{', '.join(f'`{name}`' for name in known)}{'' if 'cache' in known else '; it has no cache'}."
    )
