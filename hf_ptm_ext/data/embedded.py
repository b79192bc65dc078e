"""The two small real corpora that travel inside the package, the default of the pre-training job.

English: 1,992 abstracts of SciTLDR (Apache-2.0). Chinese: passages of Wikipedia by way of CMRC 2018
(CC BY-SA 4.0). Sources, licences and changes: `corpora/NOTICE.md` beside the files.
"""

import gzip
from pathlib import Path

_FILES = {"en": "english.txt.gz", "zh": "chinese.txt.gz"}


def embedded_corpus_path(language: str) -> Path:
    """Return the path of the embedded corpus, a `.txt.gz` file for `read_documents`.

    Args:
        language (`str`): `"en"` or `"zh"`.

    Returns:
        `Path`: one sentence a line, a blank line between documents, UTF-8.

    Raises:
        ValueError: If there is no embedded corpus of this language.

    Example:

    >>> embedded_corpus_path("zh").name
    'chinese.txt.gz'
    """
    if language not in _FILES:
        raise ValueError(f"`language` must be one of {sorted(_FILES)}, got {language!r}.")
    return Path(__file__).parent / "corpora" / _FILES[language]


def embedded_corpus(language: str) -> list[list[str]]:
    """Read the embedded corpus of a language.

    Args:
        language (`str`): `"en"` or `"zh"`.

    Returns:
        `list[list[str]]`: documents of sentences.

    Raises:
        ValueError: If there is no embedded corpus of this language.

    Example:

    >>> documents = embedded_corpus("en")
    >>> len(documents), documents[0][0][:22]
    (1992, 'Due to the success of ')
    """
    with gzip.open(embedded_corpus_path(language), "rt", encoding="utf-8") as file:
        return [document.split("\n") for document in file.read().strip("\n").split("\n\n")]
