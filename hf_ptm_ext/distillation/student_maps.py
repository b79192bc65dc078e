"""Which teacher layers a student starts from, and what they are called in classes of another family.

Names here are taken apart into the encoder's and the heads': `base/encoder.layer.0.output.dense.weight`,
`head/cls.predictions.bias`, so that the prefix of the encoder inside a head's class plays no part.
"""

import re
from collections.abc import Callable, Sequence

Init = str | Sequence[int]

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

Translate = Callable[[str], str | None]


def chosen_layers(init: Init, student: int | None, teacher: int) -> list[int] | None:
    """Which teacher layer each of the student's starts from.

    Args:
        init: `every-other`: spread evenly from the first layer to the last, which for 6 of 12 are DistilBERT's 0, 2,
            4, 7, 9, 11; `first` (PKD, Theseus); `last`; `none`: nothing is copied; or the layers themselves, counted
            from 0, negative numbers from the last.
        student: number of layers of the student; `None`: as many as `init` lists, or as the teacher has.
        teacher: number of layers of the teacher.

    Returns:
        One teacher layer for each layer of the student; `None` for `none`.

    Raises:
        ValueError: an unknown name, more layers than the teacher has, a list of another length or a layer outside.

    Example:
        >>> chosen_layers("every-other", 6, 12), chosen_layers("last", 2, 4), chosen_layers([0, -1], None, 12)
        ([0, 2, 4, 7, 9, 11], [2, 3], [0, 11])
    """
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
        raise ValueError("`init` must name at least one layer of the teacher, got an empty list.")
    return [layer % teacher for layer in layers]


def same_family(stack: str, chosen: Sequence[int]) -> Translate:
    """Names of a student of the teacher's family: only the numbers of layers differ.

    Args:
        stack: path of the list of layers, from the base model.
        chosen: what `chosen_layers` gave.

    Returns:
        Student's name -> teacher's.

    Example:
        >>> same_family("encoder.layer", [0, 3])("base/encoder.layer.1.output.dense.weight")
        'base/encoder.layer.3.output.dense.weight'
    """
    return lambda name: renumbered(name, stack, chosen)


def other_family(renames: Sequence[tuple[str, str]], stack: str, chosen: Sequence[int]) -> Translate:
    """Names of a student of another family than the teacher's.

    Args:
        renames: (pattern of a student's name, what of it stands in the teacher's).
        stack: path of the list of layers, from the teacher's base model.
        chosen: what `chosen_layers` gave.

    Returns:
        Student's name -> teacher's, `None` where the teacher has nothing for it.

    Example:
        >>> translate = other_family(DISTILBERT_FROM_BERT, "encoder.layer", [0, 3])
        >>> translate("base/transformer.layer.1.ffn.lin1.bias"), translate("head/pre_classifier.bias")
        ('base/encoder.layer.3.intermediate.dense.bias', None)
    """

    def translate(name: str) -> str | None:
        for pattern, replacement in renames:
            renamed, found = re.subn(f"^{pattern}", replacement, name)
            if found:
                return renumbered(renamed, stack, chosen)
        return None

    return translate


def renumbered(name: str, stack: str, chosen: Sequence[int]) -> str:
    """A name with the number of its layer replaced.

    Args:
        name: as the student has it.
        stack: path of the list of layers, from the base model.
        chosen: student's layer -> teacher's.
    """
    match = re.match(rf"(base/{re.escape(stack)}\.)(\d+)(\..*)", name)
    return name if match is None else f"{match[1]}{chosen[int(match[2])]}{match[3]}"


__all__ = [
    "DISTILBERT_FROM_BERT",
    "MOBILEBERT_FROM_IB_BERT",
    "NAMED",
    "Init",
    "chosen_layers",
    "other_family",
    "same_family",
]
