"""What student and teacher must have in common."""


def same_heads(student: int, teacher: int) -> None:
    """Refuse losses that compare head by head if there are not as many.

    Args:
        student: the student's number of attention heads.
        teacher: the teacher's.

    Raises:
        ValueError: they differ.

    Example:
        >>> same_heads(12, 12)
    """
    if student != teacher:
        raise ValueError(
            f"Student and teacher must have as many attention heads for this loss, got {student} and {teacher}. Give "
            "the student as many, or take MiniLM v2's relations (preset `minilm-v2`), whose heads are free."
        )


__all__ = ["same_heads"]
