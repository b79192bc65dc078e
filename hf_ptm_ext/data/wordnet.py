"""Link English nouns to WordNet synsets by lemma and first sense: the simplest linker with a knowledge graph."""

from pathlib import Path

from .lines import iter_lines

# ending -> what may stand in its place (WordNet's own rules of detachment for nouns)
ENDINGS = (
    ("s", ""),
    ("ses", "s"),
    ("xes", "x"),
    ("zes", "z"),
    ("ches", "ch"),
    ("shes", "sh"),
    ("men", "man"),
    ("ies", "y"),
)


class NounLinker:
    """From a noun phrase to the first noun sense of the phrase, or of its last word.

    Args:
        path: `lemma<TAB>part of speech<TAB>synsets in the order of their senses` lines, also `.gz`.
        encoding: of the file.

    Raises:
        ValueError: a line is of another form, or no noun is in the file.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder, "senses.tsv")
        ...     _ = file.write_text("story\\tn\\t06369829 07221094\\nstory book\\tn\\t06420000\\n", encoding="utf-8")
        ...     link = NounLinker(file)
        >>> link("Two Stories"), link("story books"), link("xyzzy")
        ('06369829', '06420000', None)
    """

    def __init__(self, path: str | Path, encoding: str = "utf-8"):
        path = Path(path)
        self._senses: dict[str, str] = {}
        for line in iter_lines(path, encoding):
            fields = line.text.split("\t")
            if len(fields) != 3 or not fields[2].replace(",", " ").split():
                raise ValueError(f"{path}, line {line.number}, must be a lemma, a part of speech and synsets.")
            if fields[1] == "n":
                self._senses.setdefault(fields[0].replace("_", " "), fields[2].replace(",", " ").split()[0])
        if not self._senses:
            raise ValueError(f"{path} must have nouns (part of speech n), got none.")

    def __call__(self, phrase: str) -> str | None:
        """Link a phrase.

        Args:
            phrase: a noun or a phrase that ends in one.

        Returns:
            The synset, or `None`.
        """
        words = phrase.lower().split()
        for start in dict.fromkeys((0, max(len(words) - 1, 0))):
            for lemma in self._lemmas(" ".join(words[start:])):
                if lemma in self._senses:
                    return self._senses[lemma]
        return None

    @staticmethod
    def _lemmas(noun: str) -> list[str]:
        return [noun, *(noun[: -len(end)] + other for end, other in ENDINGS if noun.endswith(end))]


__all__ = ["NounLinker"]
