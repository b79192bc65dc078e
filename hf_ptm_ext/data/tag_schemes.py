"""How tags mark spans of words: IOB2, IOB1 and BIOES (also spelled BILOU, BMES), and what each becomes in IOB2.

    words   Anna Lee met   Bo    Paris's ...
    iob2    B-PER I-PER O  B-PER B-LOC         every span begins with B
    iob1    I-PER I-PER O  I-PER I-LOC         B only where a span follows one of the same type at once
    bioes   B-PER E-PER O  S-PER S-LOC         last words and single words have marks of their own

Spans are `(type, first, behind)`: words `first` up to `behind`, exclusive.
"""

import logging
import re
from collections.abc import Iterable, Sequence

logger = logging.getLogger(__name__)

SCHEMES = ("iob2", "iob1", "bioes")
PLAIN = "plain"
OUTSIDE = "O"
# Marks of last and single words in the spellings BIOES, BILOU and BMES; M is BMES' I.
_MARKS = {"B": "B", "I": "I", "M": "I", "E": "E", "L": "E", "S": "S", "U": "S"}
_TAG = re.compile(r"([BIMELSU])(?:[-_](.+))?")
# Other ways in which people write the same, by what tells them.
_OTHER_WRITINGS = {
    "in lower case ('b-per')": re.compile(r"([bimelsu])(?:[-_./:|](.+))?"),
    "type first ('PER-B')": re.compile(r"(.+)[-_./:|]([BIMELSUbimelsu])"),
    "with another sign ('B:PER')": re.compile(r"([BIMELSU])[./:|](.+)"),
    "with whole words ('Begin-PER')": re.compile(
        r"(?i:begin|inside|in|intermediate|end|last|single|unit)[-_./:|](.+)"
    ),
    "with brackets ('(PER*')": re.compile(r"[(\[][^()\[\]*]*\*?[)\]]?|\*?[)\]]"),
}

Span = tuple[str, int, int]


def split_tag(tag: str) -> tuple[str, str]:
    """Split a tag into its mark and its type."""
    if tag == OUTSIDE:
        return OUTSIDE, ""
    match = _TAG.fullmatch(tag)
    if match is None:
        raise ValueError(
            f"`tag` must be O or a mark (B, I, E, S, or L, U, M) with a type, such as 'B-PER', got {tag!r}."
        )
    return _MARKS[match[1]], match[2] or ""


def marked_types(tags: Iterable[str]) -> set[str]:
    """Types of the spans that tags mark; tags without a type and a sign before it count for nothing."""
    return {match[2] for tag in set(tags) if (match := _TAG.fullmatch(tag)) and match[2]}


def _refuse_other_writing(tags: set[str]) -> None:
    """Raise if tags mark spans in a way that is none of the schemes: as plain tags they would be scored as nothing."""
    outside = {tag for tag in tags if tag.lower() in ("o", "*", "out", "outside", "other", "_")}
    for name, writing in _OTHER_WRITINGS.items():
        marks = {tag for tag in tags - outside if writing.fullmatch(tag)}
        if marks and marks == tags - outside and (outside or len(marks) > 1):
            raise ValueError(
                f"`tags` such as {sorted(marks)[:3]} seem to mark spans {name}. Write them as 'B-PER', 'I-PER' and "
                "'O', or say `plain` to tag words without spans."
            )


def spans_of(tags: Sequence[str], scheme: str = "iob2", strict: bool = False) -> list[Span]:
    """Read the spans (type, first word, word behind the last) out of the tags of one sentence.

    Args:
        tags: One a word.
        scheme: `"iob2"`, `"iob1"` or `"bioes"`.
        strict: Leave out what breaks the scheme (`seqeval`'s strict mode); otherwise a span begins wherever a tag does
            not continue the one before (`conlleval`).

    Examples:
        >>> spans_of(["B-PER", "I-PER", "O", "I-LOC"])
        [('PER', 0, 2), ('LOC', 3, 4)]
        >>> spans_of(["B-PER", "I-PER", "O", "I-LOC"], strict=True)
        [('PER', 0, 2)]
    """
    _check_scheme(scheme)
    spans: list[Span] = []
    open_type, first = None, 0

    def close(behind: int, complete: bool = True) -> None:
        if open_type is not None and (not strict or complete):
            spans.append((open_type, first, behind))

    marks = [split_tag(tag) for tag in tags]
    for number, ((mark, kind), before) in enumerate(zip(marks, [(OUTSIDE, ""), *marks], strict=False)):
        continues = open_type == kind and mark in "IE" and mark != OUTSIDE
        if continues:
            if mark == "E":
                close(number + 1)
                open_type = None
            continue
        # In BIOES a span that was opened by B is complete with its E only; in IOB1 B follows its own type.
        misplaced = mark == before[0] == "B" and kind != before[1]
        close(number, complete=scheme != "bioes" and not (scheme == "iob1" and misplaced))
        open_type = None
        touches = mark == "B" and before[0] != OUTSIDE and before[1] == kind
        begins = {"iob2": mark == "B", "iob1": mark == "I" or touches, "bioes": mark in "BS"}[scheme]
        if mark == OUTSIDE or (strict and not begins):
            continue
        open_type, first = kind, number
        if mark in "ES":
            close(number + 1)
            open_type = None
    close(len(tags), complete=scheme != "bioes")
    return spans


def tags_of(spans: Iterable[Span], length: int, scheme: str = "iob2") -> list[str]:
    """Write disjoint spans of a sentence of so many words as tags.

    Examples:
        >>> tags_of([("PER", 0, 2), ("LOC", 3, 4)], 5, "bioes")
        ['B-PER', 'E-PER', 'O', 'S-LOC', 'O']
    """
    _check_scheme(scheme)
    tags = [OUTSIDE] * length
    before: Span | None = None
    for kind, first, behind in sorted(spans, key=lambda span: span[1]):
        if not (0 if before is None else before[2]) <= first < behind <= length:
            raise ValueError(f"`spans` must be disjoint spans of {length} words, got {(kind, first, behind)}.")
        marks = ["I"] * (behind - first)
        if scheme != "iob1" or (before is not None and before[2] == first and before[0] == kind):
            marks[0] = "B"
        if scheme == "bioes":
            marks[-1] = "E" if len(marks) > 1 else "S"
        tags[first:behind] = [f"{mark}-{kind}" if kind else mark for mark in marks]
        before = (kind, first, behind)
    return tags


def to_iob2(tags: Sequence[str], scheme: str) -> list[str]:
    """Rewrite the tags of one sentence in IOB2; what breaks their scheme is read as `conlleval` reads it.

    Examples:
        >>> to_iob2(["I-PER", "I-PER", "O", "I-LOC", "B-LOC"], "iob1")
        ['B-PER', 'I-PER', 'O', 'B-LOC', 'B-LOC']
    """
    return tags_of(spans_of(tags, scheme), len(tags))


def scheme_breaks(tags: Sequence[str], scheme: str) -> int:
    """Count the tags that would read otherwise if the sentence kept to a scheme."""
    marks = [f"{mark}-{kind}" if kind else mark for mark, kind in map(split_tag, tags)]
    return sum(a != b for a, b in zip(marks, tags_of(spans_of(tags, scheme), len(tags), scheme), strict=True))


def detect_scheme(sentences: Iterable[Sequence[str]]) -> str:
    """Tell the scheme of a data set from all its tags.

    Returns:
        The scheme that the fewest tags break, IOB2 if in doubt; `"plain"` if the tags mark no spans (parts of speech).

    Examples:
        >>> detect_scheme([["I-PER", "I-PER", "O"]]), detect_scheme([["NN", "VBZ"]])
        ('iob1', 'plain')
    """
    sentences = list(sentences)
    tags = {tag for sentence in sentences for tag in sentence} - {OUTSIDE}
    marked = {tag for tag in tags if _TAG.fullmatch(tag)}
    if not any("-" in tag or "_" in tag for tag in marked) and marked != tags:
        _refuse_other_writing({tag for sentence in sentences for tag in sentence})
        if any(OUTSIDE in sentence for sentence in sentences):
            logger.warning(
                "The tags have O beside names without marks, such as %s: words are scored one by one, not entities. "
                "Write B-%s and I-%s for that.",
                *sorted(tags)[:1] * 3,
            )
        return PLAIN  # single letters among parts of speech
    if marked != tags:
        raise ValueError(
            f"`tags` must all mark spans (O, B-PER, I-PER...) or none may; got {sorted(marked)[:3]} beside "
            f"{sorted(tags - marked)[:3]}. Mend the data, or say `plain` to tag words without spans."
        )
    if any(split_tag(tag)[0] in "ES" for tag in tags):
        return "bioes"
    breaks = {scheme: sum(scheme_breaks(sentence, scheme) for sentence in sentences) for scheme in ("iob2", "iob1")}
    return min(breaks, key=breaks.__getitem__)


def _check_scheme(scheme: str) -> None:
    if scheme not in SCHEMES:
        raise ValueError(f"`scheme` must be one of {', '.join(SCHEMES)}, got {scheme!r}.")
