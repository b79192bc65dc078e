"""The original project's records of relation classification and entity typing as arguments of `ErnieThuProcessor`.

FewRel   {"text", "ents": [[id, begin, end, score] of head, of tail], "label"}
TACRED   the same and "ann": [[id, begin, end, score], ...], the linked entities; "ents" only place the markers
typing   {"sent", "start", "end", "ents": [[id, begin, end, score], ...], "labels"}
"""

from collections.abc import Mapping
from typing import Any

from .rows import field_of, typed


def processor_arguments(record: Mapping[str, Any]) -> dict[str, Any]:
    """Name what a record holds.

    Of FewRel records the two gold entities are the entities, whatever their score, and a begin of 1 is read as 0: the
    published files are wrong there, and the reference does the same.

    Args:
        record (`Mapping[str, Any]`): One of the three forms.

    Returns:
        `dict[str, Any]`: `text`, `entities`, `task` and `head`, `tail` or `span`.

    Raises:
        ValueError: If the record has neither "text" nor "sent", or not two "ents" of a relation.

    Example:

    >>> record = {"sent": "He sang.", "start": 0, "end": 2, "ents": [["Q392", 0, 2, 0.9]], "labels": ["person"]}
    >>> processor_arguments(record)
    {'text': 'He sang.', 'entities': [['Q392', 0, 2, 0.9]], 'task': 'typing', 'span': (0, 2)}
    """
    if "sent" in record:
        start, end = (field_of(record, name, "a whole number") for name in ("start", "end"))
        found = list(field_of(record, "ents", "a list"))
        return {"text": field_of(record, "sent", "a text"), "entities": found, "task": "typing", "span": (start, end)}
    if "text" not in record or len(typed(record.get("ents", ()), "a list", "`ents`")) != 2:
        raise ValueError(
            f"`record` must have `sent`, or `text` and two `ents`, got {sorted(record)}. Other data goes to the "
            "processor directly: `processor(text, entities=..., task='relation', head=(0, 9), tail=(16, 35))`."
        )
    mentions = [(begin, end, identifier) for identifier, begin, end, *_ in record["ents"]]
    if "ann" in record:
        entities = list(record["ann"])
    else:
        mentions = [(0 if begin == 1 else begin, end, identifier) for begin, end, identifier in mentions]
        entities = mentions
    head, tail = ((begin, end) for begin, end, _ in mentions)
    return {"text": record["text"], "entities": entities, "task": "relation", "head": head, "tail": tail}
