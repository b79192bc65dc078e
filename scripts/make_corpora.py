"""Build the two embedded corpora of `hf_ptm_ext/data/corpora` from their sources, byte for byte the same each time.

    python scripts/make_corpora.py --english scitldr_abstracts.txt.gz --chinese wikipedia_cmrc.txt.gz

The English source has one sentence a line and a blank line between documents (the SciTLDR-A training abstracts).
The Chinese source has one paragraph a line (the CMRC 2018 contexts): each paragraph becomes a document, cut into
sentences here, and as many paragraphs are kept as the size budget allows.
"""

import argparse
import gzip
import io
import re
import sys
from pathlib import Path

MAX_BYTES = 1_000_000  # both files together, compressed
TARGET = Path(__file__).parents[1] / "hf_ptm_ext" / "data" / "corpora"

# A sentence ends at the mark and any further marks, closing quotes or brackets behind it.
_CHINESE_SENTENCE = re.compile(r"[^。！？；!?]*[。！？；!?][。！？；!?」』”’）)》]*|[^。！？；!?]+$")


def chinese_sentences(paragraph: str) -> list[str]:
    """Cut a Chinese paragraph behind its sentence marks.

    >>> chinese_sentences("他说：「好。」我走了！再见")
    ['他说：「好。」', '我走了！', '再见']
    """
    return [sentence.strip() for sentence in _CHINESE_SENTENCE.findall(paragraph) if sentence.strip()]


def clean(text: str) -> str:
    """One line of text with single spaces and no soft hyphens or byte-order marks."""
    return " ".join(text.replace("\u00ad", "").replace("\ufeff", "").replace("\u200b", "").split())


def english_documents(source: Path) -> list[list[str]]:
    """The documents of a file with one sentence a line, without lines that have no letter and without repetitions."""
    with gzip.open(source, "rt", encoding="utf-8") as file:
        blocks = re.split(r"\n\s*\n", file.read())
    documents = [[clean(line) for line in block.splitlines() if re.search(r"[A-Za-z]", line)] for block in blocks]
    unique = dict.fromkeys(tuple(document) for document in documents if document)
    return [list(document) for document in unique]


def chinese_documents(source: Path) -> list[list[str]]:
    """The documents of a file with one paragraph a line, in an order independent of the source's sorting by title."""
    with gzip.open(source, "rt", encoding="utf-8") as file:
        paragraphs = [clean(line) for line in file if line.strip()]
    step = 7  # the source is sorted by title: walk through it in strides, so that a prefix is a fair sample
    order = [index for start in range(step) for index in range(start, len(paragraphs), step)]
    return [chinese_sentences(paragraphs[index]) for index in order]


def compress(documents: list[list[str]]) -> bytes:
    """One sentence a line, a blank line between documents, gzip without name and time."""
    buffer = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=buffer, compresslevel=9, mtime=0) as file:
        file.write("\n\n".join("\n".join(document) for document in documents).encode("utf-8") + b"\n")
    return buffer.getvalue()


def largest_prefix(documents: list[list[str]], max_bytes: int) -> bytes:
    """The most documents from the front whose compressed form has at most `max_bytes` (bisection)."""
    low, high = 1, len(documents)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if len(compress(documents[:middle])) <= max_bytes else (low, middle - 1)
    return compress(documents[:low])


def main() -> int:
    """Write `english.txt.gz` and `chinese.txt.gz` and say their sizes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--english", type=Path, required=True, help="SciTLDR-A abstracts, .txt.gz")
    parser.add_argument("--chinese", type=Path, required=True, help="CMRC 2018 contexts, .txt.gz")
    arguments = parser.parse_args()
    english = compress(english_documents(arguments.english))
    chinese = largest_prefix(chinese_documents(arguments.chinese), MAX_BYTES - len(english) - 8192)
    for name, content in (("english.txt.gz", english), ("chinese.txt.gz", chinese)):
        (TARGET / name).write_bytes(content)
        print(f"{name}: {len(content):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
