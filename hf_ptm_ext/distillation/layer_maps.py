"""Which layer of the student learns from which layer of the teacher.

A map is a list of pairs (student, teacher). For hidden states the numbers are those of upstream's `hidden_states`, 0
for the embeddings; for attention they are layers, counted from 0. M and L are the numbers of layers.
"""

from collections.abc import Sequence

LayerMap = list[tuple[int, int]]
Layers = str | Sequence[Sequence[int]]


def ratio(student: int, teacher: int) -> int:
    """How many teacher layers there are to each of the student's."""
    if teacher % student:
        divisors = [str(number) for number in range(1, teacher + 1) if teacher % number == 0]
        raise ValueError(
            f"`layers` = 'uniform' needs a teacher whose number of layers is a multiple of the student's, got "
            f"{teacher} and {student}. Take a student of {', '.join(divisors)} layers, or name the pairs: "
            "`layers` = [[student, teacher], ...]."
        )
    return teacher // student


def hidden_map(layers: Layers, student: int, teacher: int) -> LayerMap:
    """Pairs of hidden states."""
    if layers == "uniform":
        step = ratio(student, teacher)
        return [(state, state * step) for state in range(student + 1)]
    if layers == "skip":
        step = ratio(student, teacher)
        return _not_empty([(state, state * step) for state in range(1, student)], layers, student)
    if layers == "last":
        if student > teacher:
            raise ValueError(
                f"`layers` = {layers!r} needs a student with no more layers than the teacher, got {student} and "
                f"{teacher}."
            )
        return _not_empty([(state, teacher - student + state) for state in range(1, student)], layers, student)
    if layers == "final":
        return [(student, teacher)]
    if layers == "same":
        _equal(student, teacher)
        return [(state, state) for state in range(1, student + 1)]
    return _pairs(layers, student + 1, teacher + 1, ("uniform", "skip", "last", "final", "same"))


def attention_map(layers: Layers, student: int, teacher: int) -> LayerMap:
    """Pairs of layers."""
    if layers == "uniform":
        step = ratio(student, teacher)
        return [(layer, layer * step + step - 1) for layer in range(student)]
    if layers == "final":
        return [(student - 1, teacher - 1)]
    if layers == "same":
        _equal(student, teacher)
        return [(layer, layer) for layer in range(student)]
    return _pairs(layers, student, teacher, ("uniform", "final", "same"))


def _not_empty(pairs: LayerMap, layers: Layers, student: int) -> LayerMap:
    if not pairs:
        raise ValueError(
            f"`layers` = {layers!r} leaves out the last layer, and the student has {student}: nothing is left. Name "
            "the pairs: `layers` = [[student, teacher], ...]."
        )
    return pairs


def _equal(student: int, teacher: int) -> None:
    if student != teacher:
        raise ValueError(
            "`layers` = 'same' needs a student with as many layers as the teacher, got "
            f"{student} and {teacher}. Build one with make_student(teacher, layers={teacher}, ...), or take 'uniform' "
            "or pairs."
        )


def _pairs(layers: Layers, students: int, teachers: int, names: tuple[str, ...]) -> LayerMap:
    if isinstance(layers, str) or not layers:
        raise ValueError(
            f"`layers` must be one of {', '.join(names)} or a list of pairs [student, teacher], got {layers!r}."
        )
    pairs = []
    for pair in layers:
        if not isinstance(pair, Sequence) or len(pair) != 2:
            raise ValueError(f"`layers` must be a list of pairs [student, teacher], got {pair!r} in it.")
        (of_student, of_teacher) = (int(pair[0]), int(pair[1]))
        if not (-students <= of_student < students and -teachers <= of_teacher < teachers):
            raise ValueError(
                f"`layers` has the pair {list(pair)}, but the student ends with {students - 1} and the teacher with "
                f"{teachers - 1}."
            )
        pairs.append((of_student % students, of_teacher % teachers))
    return pairs
