"""What the families that look words up in a table share in conversion: vectors from files, a tokenizer of words."""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from ..data.tokenization import word_tokenizer
from ..data.word_vectors import WordVectors
from ..files import read_json
from .layout import Layout
from .tensors import File, Options, State, TokenizerFiles, Words

PAD, UNK = "[PAD]", "[UNK]"
WORDS_FILE = "dictionary.txt"


class WordLayout(Layout):
    """A layout without BERT's parts; sizes are read off the weights."""

    infers_sizes = True
    fields: tuple[str, ...] = ()
    sizes: tuple[str, ...] = ()
    renames: tuple[tuple[str, str, str], ...] = ()
    buffers = r"(?!)"
    stacks: tuple[tuple[str, str], ...] = ()
    dimensions: tuple[tuple[str, int, str], ...] = ()
    heads: Mapping[str, str] = {}
    other_parts: tuple[str, ...] = ()
    needs: Mapping[str, str] = {}
    tied: Mapping[str, str] = {}
    wordpieces = False
    pipeline_tag = "feature-extraction"
    special: Mapping[str, str] = {"pad_token": PAD, "unk_token": UNK}

    def tokenizer_from(
        self, words: Words, config: Any, vocab: File = None, codes: File = None, lower_case: bool = False
    ) -> TokenizerFiles:
        """A tokenizer of the words, if they are known."""
        if not words:
            return {}, []
        special: dict[str, Any] = dict.fromkeys(("pad_token", "mask_token", "unk_token"))
        special |= {name: word for name, word in self.special.items() if word in words}
        marks = {*special.values()}
        lower_case = lower_case or all(word == word.lower() or word in marks or word[0] in "<[" for word in words)
        made = word_tokenizer(sorted(words, key=words.__getitem__), lower_case=lower_case, **special)
        return saved_tokenizer(made), [f"{len(words)} words, {'lower' if lower_case else 'their own'} case"]

    def write_original(
        self, folder: Path, tensors: State, options: Options, source: Path, vocabulary: File = None
    ) -> None:
        """As of every family, and the words, a line each, by their ids."""
        super().write_original(folder, tensors, options, source)
        self.write_words(folder, source)

    def write_words(self, folder: Path, source: Path) -> None:
        """Write the words of our tokenizer."""
        words = words_of(source)
        if words:
            (folder / WORDS_FILE).write_text("".join(f"{word}\n" for word in words), encoding="utf-8")


def saved_tokenizer(tokenizer: Any) -> dict[str, str]:
    """A tokenizer's files, by name."""
    with TemporaryDirectory() as folder:
        tokenizer.save_pretrained(folder)
        return {path.name: path.read_text(encoding="utf-8") for path in Path(folder).iterdir()}


def words_of(folder: Path) -> list[str]:
    """The words of the tokenizer in a folder of ours by their ids, none without it."""
    file = folder / "tokenizer.json"
    vocab = read_json(file)["model"]["vocab"] if file.is_file() else {}
    return sorted(vocab, key=vocab.__getitem__)


def with_specials(vectors: WordVectors) -> tuple[torch.Tensor, dict[str, int]]:
    """A table with rows of zeros for padding and unknown words in front, and the words' ids."""
    table = torch.from_numpy(vectors.table)
    words = [word for word in vectors.words if word not in (PAD, UNK)]
    if len(words) < len(vectors.words):
        table = table[[vectors.index[word] for word in words]]
    rows = torch.cat([torch.zeros(2, table.shape[1]), table])
    return rows, {word: number for number, word in enumerate((PAD, UNK, *words))}
