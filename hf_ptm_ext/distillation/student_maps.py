"""Which teacher layers a student starts from, and what they are called in classes of another family.

Names are `base/...` inside the encoder and `head/...` outside, so that its prefix in a head's class plays no part.
"""

import re
from collections.abc import Sequence

Init = str | Sequence[int]
Renames = Sequence[tuple[str, str]]

NAMED = ("every-other", "first", "last", "none")

# DistilBERT's name -> BERT's (huggingface/transformers research projects, distillation/scripts/extract.py). What is
# in neither column starts anew: DistilBERT has no segments and no pooler, its classifier reads another layer.
DISTILBERT_FROM_BERT = (
    (r"base/embeddings\.(word_embeddings|position_embeddings|LayerNorm)\.", r"base/embeddings.\1."),
    (r"base/transformer\.layer\.(\d+)\.attention\.q_lin\.", r"base/encoder.layer.\1.attention.self.query."),
    (r"base/transformer\.layer\.(\d+)\.attention\.k_lin\.", r"base/encoder.layer.\1.attention.self.key."),
    (r"base/transformer\.layer\.(\d+)\.attention\.v_lin\.", r"base/encoder.layer.\1.attention.self.value."),
    (r"base/transformer\.layer\.(\d+)\.attention\.out_lin\.", r"base/encoder.layer.\1.attention.output.dense."),
    (r"base/transformer\.layer\.(\d+)\.sa_layer_norm\.", r"base/encoder.layer.\1.attention.output.LayerNorm."),
    (r"base/transformer\.layer\.(\d+)\.ffn\.lin1\.", r"base/encoder.layer.\1.intermediate.dense."),
    (r"base/transformer\.layer\.(\d+)\.ffn\.lin2\.", r"base/encoder.layer.\1.output.dense."),
    (r"base/transformer\.layer\.(\d+)\.output_layer_norm\.", r"base/encoder.layer.\1.output.LayerNorm."),
    (r"head/vocab_transform\.", "head/cls.predictions.transform.dense."),
    (r"head/vocab_layer_norm\.", "head/cls.predictions.transform.LayerNorm."),
    (r"head/vocab_projector\.weight$", "head/cls.predictions.decoder.weight"),
    (r"head/vocab_projector\.bias$", "head/cls.predictions.bias"),
    (r"head/qa_outputs\.", "head/qa_outputs."),
)
# The same of MobileBERT and its teacher: embeddings and pre-training heads; layers of the two differ inside.
MOBILEBERT_FROM_IB_BERT = ((r"base/embeddings\.", "base/embeddings."), (r"head/cls\.", "head/cls."))
OTHER_FAMILIES: dict[str, Renames] = {"distilbert": DISTILBERT_FROM_BERT, "mobilebert": MOBILEBERT_FROM_IB_BERT}


def chosen_layers(init: Init, student: int | None, teacher: int) -> list[int] | None:
    """Which teacher layer each of the student's starts from."""
    if student is not None and student < 1:
        raise ValueError(f"`layers` must be at least 1, got {student}.")
    if not isinstance(init, str):
        return _listed(list(init), student, teacher)
    if init not in NAMED:
        raise ValueError(
            f"`init` must be one of {', '.join(NAMED)}, or a list of teacher layers counted from 0, got {init!r}."
        )
    if init == "none":
        return None
    count = teacher if student is None else student
    if count > teacher:
        raise ValueError(
            f"`layers` must not be more than the teacher's {teacher} under `init` = {init!r}, got {count}. Take "
            "fewer, name a teacher layer for each (one may occur twice), or set `init` to 'none'."
        )
    if init == "first":
        return list(range(count))
    if init == "last":
        return list(range(teacher - count, teacher))
    if count == 1:
        return [0]
    # i * (L - 1) / (M - 1), rounded half up, in whole numbers
    return [(2 * layer * (teacher - 1) + count - 1) // (2 * (count - 1)) for layer in range(count)]


def _listed(layers: list[int], student: int | None, teacher: int) -> list[int]:
    if student is not None and len(layers) != student:
        raise ValueError(
            f"`init` must name one teacher layer for each layer of the student, got {len(layers)} for `layers` = "
            f"{student}."
        )
    for layer in layers:
        if isinstance(layer, bool) or not isinstance(layer, int) or not -teacher <= layer < teacher:
            raise ValueError(
                f"`init` must name layers of the teacher, 0 to {teacher - 1} (negative numbers count from the last), "
                f"got {layer!r}."
            )
    if not layers:
        raise ValueError(f"`init` must name at least one layer of the teacher, got {layers!r}.")
    return [layer % teacher for layer in layers]


def teacher_name(name: str, renames: Renames | None, stack: str, chosen: Sequence[int] | None) -> str | None:
    """The teacher's name of a student's weight; `chosen` is None where all layers are one."""
    if renames is not None:
        found = (re.subn(f"^{pattern}", replacement, name) for pattern, replacement in renames)
        name = next((renamed for renamed, changed in found if changed), "")
    match = re.match(rf"(base/{re.escape(stack)}\.)(\d+)(\..*)", name)
    if match is None or chosen is None:
        return name or None
    return f"{match[1]}{chosen[int(match[2])]}{match[3]}"
