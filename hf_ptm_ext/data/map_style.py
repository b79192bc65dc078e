"""All rows of a corpus at once, as a `datasets.Dataset`: the easy way for corpora that are prepared before training.

Only tokenising and packing happen here. Masks belong into the collator: made here they would be frozen.
"""

import tempfile
from collections.abc import Iterator
from os import PathLike
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedTokenizerBase


def pretraining_dataset(
    documents: Any,
    tokenizer: "PreTrainedTokenizerBase",
    *,
    cache_dir: str | PathLike[str] | None = None,
    **options: Any,
) -> "Dataset":
    """Tokenise and pack all documents into the rows of a `datasets.Dataset`.

    Args:
        documents (`DocumentSource`, `Dataset`, `IterableDataset` or `list[list[str]]`): See `as_document_source`.
        tokenizer (`PreTrainedTokenizerBase`): Fast or slow.
        cache_dir (`str` or `PathLike`, *optional*): Folder for the rows, which are then memory-mapped. By default they
            are kept in memory and nothing stays on disk.
        **options: Those of `PretrainingStream`, such as `max_seq_length` and `packed`. The order is kept
            (`shuffle_buffer_size=1`) unless asked otherwise.

    Returns:
        `datasets.Dataset`: the columns that `PretrainingStream` yields.

    Raises:
        ValueError: As `PretrainingStream`.

    Example:

    >>> from transformers import BertTokenizer
    >>> vocab = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "a": 5, "b": 6}
    >>> rows = pretraining_dataset([["a b", "a"], ["b"]], BertTokenizer(vocab=vocab), max_seq_length=16)
    >>> rows["input_ids"][:]
    [[2, 5, 6, 5, 3], [2, 6, 3]]
    """
    from datasets import Dataset
    from datasets.exceptions import DatasetGenerationError

    from .streaming import PretrainingStream

    stream = PretrainingStream(documents, tokenizer, **{"shuffle_buffer_size": 1, **options})
    if stream.num_epochs is None:
        raise ValueError("`num_epochs` must be a number to prepare all rows, got None. Iterate a PretrainingStream.")

    faults: list[Exception] = []

    def rows() -> Iterator[dict[str, list[int]]]:
        try:
            yield from stream
        except (ValueError, TypeError, OSError) as error:
            faults.append(error)
            raise

    with tempfile.TemporaryDirectory() as folder:
        try:
            return Dataset.from_generator(rows, cache_dir=str(cache_dir or folder), keep_in_memory=cache_dir is None)
        except DatasetGenerationError as error:
            # The readers' own errors name the file; the wrapper hides them.
            raise (faults[0] if faults else error) from None
