"""Start the input embeddings of any model from word vectors."""

import copy
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from .collators.vocabulary import piece_texts, word_boundary_style
from .data.word_vectors import WordVectors

OPTIONS = {
    "pieces": ("exact", "compose"),
    "oov": ("keep", "mean", "normal", "zero"),
    "case": ("exact", "lower"),
    "scale": ("match", "none"),
    "project": ("none", "pca", "linear"),
}
_AT_ONCE = 10_000


@dataclass(frozen=True)
class CoverageReport:
    """How many pieces of a vocabulary got a vector, and how.

    Args:
        exact: Words that have a vector.
        lowered: Words whose lower case has one.
        composed: Parts of words, and words without one, made of vectors of which they are a part.
        missing: Pieces without a vector, made as `oov` says.
        special: Special and added tokens, left as they were.
        scale: What every vector was multiplied by.

    Examples:
        >>> print(CoverageReport(exact=6, lowered=1, composed=2, missing=1, special=5, scale=0.5))
        9 of 10 pieces (90.0 %) have a vector: 6 words, 1 in lower case, 2 composed. Scaled by 0.5.
    """

    exact: int
    lowered: int
    composed: int
    missing: int
    special: int
    scale: float

    @property
    def covered(self) -> int:
        """Pieces that have a vector."""
        return self.exact + self.lowered + self.composed

    @property
    def share(self) -> float:
        """The same as a share of all but special tokens."""
        return self.covered / max(1, self.covered + self.missing)

    def __str__(self) -> str:
        return (
            f"{self.covered:,} of {self.covered + self.missing:,} pieces ({self.share:.1%}) have a vector: "
            f"{self.exact:,} words, {self.lowered:,} in lower case, {self.composed:,} composed. "
            f"Scaled by {self.scale:.3g}."
        ).replace("%)", " %)")


class ProjectedEmbedding(nn.Embedding):
    """An embedding of a narrower or wider table behind a trained projection; `folded` makes it a plain one.

    Args:
        table: `(pieces, width)`.
        hidden_size: Width that the model reads.
        padding_idx: As of `nn.Embedding`.
        freeze: Whether only the projection is trained.

    Examples:
        >>> embedding = ProjectedEmbedding(torch.ones(5, 3), hidden_size=8)
        >>> embedding(torch.tensor([[1, 4]])).shape, embedding.folded().weight.shape
        (torch.Size([1, 2, 8]), torch.Size([5, 8]))
    """

    def __init__(self, table: torch.Tensor, hidden_size: int, padding_idx: int | None = None, freeze: bool = False):
        rows, width = table.shape
        super().__init__(rows, width, padding_idx, device=table.device, dtype=table.dtype)
        with torch.no_grad():
            self.weight.copy_(table)
        self.weight.requires_grad_(not freeze)
        self.projection = nn.Linear(width, hidden_size, bias=False, device=table.device, dtype=table.dtype)
        nn.init.normal_(self.projection.weight, std=width**-0.5)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Ids to projected rows."""
        projected: torch.Tensor = self.projection(super().forward(input))
        return projected

    @torch.no_grad()
    def folded(self) -> nn.Embedding:
        """The plain embedding with the same rows, which the model's class can save and load."""
        rows = self.projection(self.weight)
        return nn.Embedding.from_pretrained(rows.clone(), freeze=False, padding_idx=self.padding_idx)


def init_input_embeddings(
    model: Any,
    tokenizer: Any,
    vectors: Any,
    *,
    pieces: str = "exact",
    oov: str = "keep",
    case: str = "exact",
    scale: str = "match",
    project: str = "none",
    freeze: bool = False,
    seed: int = 0,
) -> CoverageReport:
    """Start a model's input embeddings from word vectors.

    Special and added tokens keep their rows. A tied output layer stays tied: the same parameter is filled.

    Args:
        model: Any model of transformers.
        tokenizer: Its tokenizer.
        vectors: `WordVectors`, or gensim's `KeyedVectors`.
        pieces: "exact" (default) gives vectors to whole words alone, "compose" also to parts of words and to unknown
            words: of fastText the mean of the n-grams of the piece, `<` only before what begins a word; of others the
            mean of the words that the tokenizer cuts into it, weighted by 1 / (rank + 1).
        oov: Of the rest: "keep" (the model's own row; of "linear" a drawn one), "mean" or "normal" (of the rows that
            have a vector), "zero".
        case: "lower" looks words that are unknown up in lower case too; "exact" (default) does not.
        scale: "match" (default) multiplies all by one number, so that their mean length is that of the rows they
            replace: models with a LayerNorm behind the embeddings train badly on others. "none" does not.
        project: Where the widths differ: "none" refuses, "pca" keeps the principal components of the vectors in use
            (fills up with zeros where the model is wider), "linear" puts a trained projection behind a table of the
            vectors' width (`ProjectedEmbedding`; `fold_input_embeddings` before the model is saved).
        freeze: Whether the table is left out of training.
        seed: Of "normal".

    Returns:
        How many pieces have a vector. Print it: a vocabulary of another language or case shows at once.

    Raises:
        ValueError: an option is unknown, the widths differ, or no piece has a vector.

    Examples:
        >>> from transformers import BertConfig, BertModel, BertTokenizerFast
        >>> words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "film", "##s"]
        >>> tokenizer = BertTokenizerFast(vocab={word: number for number, word in enumerate(words)})
        >>> sizes = dict(hidden_size=4, num_hidden_layers=1, num_attention_heads=1, intermediate_size=4)
        >>> model = BertModel(BertConfig(vocab_size=8, **sizes))
        >>> vectors = WordVectors(["good", "films"], [[1.0, 0, 0, 0], [0, 1.0, 0, 0]])
        >>> report = init_input_embeddings(model, tokenizer, vectors, pieces="compose", scale="none")
        >>> report.exact, report.composed, model.get_input_embeddings().weight[7].tolist()
        (1, 2, [0.0, 1.0, 0.0, 0.0])
    """
    source, embedding = WordVectors.of(vectors), model.get_input_embeddings()
    _check(model, embedding, source.width, pieces=pieces, oov=oov, case=case, scale=scale, project=project)
    old = embedding.weight.detach().float().cpu()
    texts = {number: text for number, text in piece_texts(tokenizer).items() if number < len(old)}
    rows, lowered = _lookup(texts, source, case)
    exact = len(rows) - lowered
    if pieces == "compose":
        rows |= _composed(tokenizer, texts, set(texts) - set(rows), source)
    if not rows:
        raise ValueError(
            f"`vectors` have a vector for none of the {len(texts)} pieces of the tokenizer: are they of its language?"
        )
    missing = sorted(set(texts) - set(rows))
    new, factor = _table(old, rows, missing if oov != "keep" else [], oov, scale, project, seed)
    if project == "linear":
        table = new.to(embedding.weight)
        model.set_input_embeddings(ProjectedEmbedding(table, old.shape[1], embedding.padding_idx, freeze))
    else:
        embedding.weight.data.copy_(new)
        embedding.weight.requires_grad_(embedding.weight.requires_grad and not freeze)
    return CoverageReport(exact, lowered, len(rows) - exact - lowered, len(missing), len(old) - len(texts), factor)


def fold_input_embeddings(model: Any) -> None:
    """Make projected embeddings plain ones, which the model's class saves and loads; others are left as they are."""
    embedding = model.get_input_embeddings()
    if isinstance(embedding, ProjectedEmbedding):
        model.set_input_embeddings(embedding.folded())


def _check(model: Any, embedding: nn.Module, width: int, **given: str) -> None:
    """Refuse options that are none, and vectors that do not go into a model."""
    for name, value in given.items():
        if value not in OPTIONS[name]:
            raise ValueError(f"`{name}` must be one of {', '.join(OPTIONS[name])}, got {value!r}.")
    if isinstance(embedding, ProjectedEmbedding):
        raise ValueError(
            f"`model`, a {type(model).__name__}, has projected embeddings. Fold them first (`fold_input_embeddings`)."
        )
    expected = cast(nn.Embedding, embedding).weight.shape[1]
    if given["project"] == "none" and width != expected:
        raise ValueError(
            f"`vectors` have {width} numbers and the model's embeddings {expected}: set `project` to 'pca' or "
            "'linear'."
        )
    output = model.get_output_embeddings()
    if given["project"] == "linear" and output is not None and output.weight is embedding.weight:
        raise ValueError(
            f"`project` = 'linear' cannot go with the tied output layer of {type(model).__name__}. Use 'pca', or "
            "untie it."
        )


def _table(
    old: torch.Tensor, rows: dict[int, Any], unknown: list[int], oov: str, scale: str, project: str, seed: int
) -> tuple[torch.Tensor, float]:
    """The new table, and what the vectors in it were multiplied by."""
    ids = torch.tensor(sorted(rows))
    values = np.stack([rows[number] for number in ids.tolist()])
    if not np.isfinite(values).all():
        raise ValueError(f"`vectors` must be finite numbers, got {values[~np.isfinite(values)][0]}.")
    if project == "pca" and values.shape[1] != old.shape[1]:
        values = _principal(values, old.shape[1])
    length = float(np.linalg.norm(values, axis=1).mean())
    factor = float(old[ids].norm(dim=1).mean()) / length if scale == "match" and length else 1.0
    values = values * factor
    new = torch.from_numpy(_unknown("normal", len(old), values, seed)).float() if project == "linear" else old.clone()
    new[ids] = torch.from_numpy(values).float()
    if unknown:
        new[torch.tensor(unknown)] = torch.from_numpy(_unknown(oov, len(unknown), values, seed)).float()
    return new, factor


def _lookup(texts: dict[int, tuple[str, bool]], source: WordVectors, case: str) -> tuple[dict[int, Any], int]:
    """The vectors of pieces that begin words, as they are; and how many were looked up in lower case."""
    rows: dict[int, Any] = {}
    lowered = 0
    for number, (text, begins) in texts.items():
        if begins and text in source:
            rows[number] = source.vector(text)
        elif begins and case == "lower" and text.lower() in source:
            rows[number] = source.vector(text.lower())
            lowered += 1
    return rows, lowered


def _composed(
    tokenizer: Any, texts: dict[int, tuple[str, bool]], wanted: set[int], source: WordVectors
) -> dict[int, Any]:
    """Vectors of pieces that have none of their own."""
    if source.subwords is not None:
        found = {}
        for number in wanted:
            places = source.subwords.rows(texts[number][0], begins=texts[number][1], ends=False)
            if places:
                found[number] = np.asarray(source.subwords.table[places], dtype=np.float32).mean(axis=0)
        return found
    sums: dict[int, Any] = defaultdict(lambda: np.zeros(source.width))
    weights: dict[int, float] = defaultdict(float)
    for rank, ids in enumerate(_cut(tokenizer, source.words)):
        for number in set(ids) & wanted:
            sums[number] += source.table[rank] / (rank + 1)
            weights[number] += 1 / (rank + 1)
    return {number: (sums[number] / weights[number]).astype(np.float32) for number in sums}


def _cut(tokenizer: Any, words: list[str]) -> Iterator[list[int]]:
    """The pieces of each word, as behind a blank."""
    blank = " " if word_boundary_style(tokenizer) == "byte_level" else ""
    for start in range(0, len(words), _AT_ONCE):
        part = [blank + word for word in words[start : start + _AT_ONCE]]
        yield from tokenizer(part, add_special_tokens=False, return_attention_mask=False)["input_ids"]


def _principal(values: np.ndarray, width: int) -> np.ndarray:
    """The first principal components, filled up with zeros."""
    centred = values - values.mean(axis=0)
    _, directions = np.linalg.eigh(centred.T @ centred)
    found = centred @ directions[:, ::-1][:, :width]
    return np.pad(found, ((0, 0), (0, width - found.shape[1])))


def _unknown(oov: str, number: int, values: np.ndarray, seed: int) -> np.ndarray:
    """Rows for pieces without a vector."""
    shape = (number, values.shape[1])
    if oov == "zero":
        return np.zeros(shape)
    mean = np.tile(values.mean(axis=0), (number, 1))
    return mean if oov == "mean" else mean + np.random.default_rng(seed).normal(size=shape) * values.std(axis=0)


@torch.no_grad()
def expand_vocabulary(model: Any, tokenizer: Any, vectors: Any) -> Any:
    """Give an encoder the words of word vectors: a linear regression from the words that both know makes their rows.

    As Skip-thought does (Kiros et al. 2015, section 2.2). Words that the encoder was trained with keep their rows.

    Args:
        model: An encoder without output embeddings, `SkipThoughtModel` say; each table of words is expanded.
        tokenizer: Its tokenizer, of whole words (`data.word_tokenizer`).
        vectors: `WordVectors`, or gensim's `KeyedVectors`.

    Returns:
        The tokenizer of the larger vocabulary; new words are behind the old ones.

    Raises:
        ValueError: the model has output embeddings, the tokenizer cuts words, or they share no word.

    Examples:
        >>> from hf_ptm_ext import SkipThoughtConfig, SkipThoughtModel
        >>> from hf_ptm_ext.data import word_tokenizer
        >>> tokenizer = word_tokenizer(["good", "bad"])
        >>> model = SkipThoughtModel(SkipThoughtConfig(vocab_size=4, embedding_size=3, gru_size=2))
        >>> vectors = WordVectors(["good", "bad", "fine"], [[1.0, 0], [-1.0, 0], [0.8, 0]])
        >>> expand_vocabulary(model, tokenizer, vectors)("fine film")["input_ids"]
        [4, 1]
    """
    source, kind = WordVectors.of(vectors), type(model).__name__
    backend = json.loads(tokenizer.backend_tokenizer.to_str())
    if backend["model"]["type"] != "WordLevel":
        raise ValueError(f"`tokenizer` must be one of whole words, got a {backend['model']['type']} tokenizer.")
    if model.get_output_embeddings() is not None:
        raise ValueError(f"`model` must predict no words, got a {kind}: its output layer has no row for new ones.")
    vocab = backend["model"]["vocab"]
    shared = [word for word in source.words if word in vocab]
    new = [word for word in source.words if word not in vocab]
    if not shared:
        raise ValueError(f"`vectors` must share words with the tokenizer, got none of its {len(vocab)}.")
    known, ids = np.c_[source.vectors(shared), np.ones(len(shared))], [vocab[word] for word in shared]
    old = model.get_input_embeddings().weight.shape[0]
    tables = [model.get_input_embeddings()]
    tables += [getattr(module, name) for module, name in model.base_model.word_tables()]
    rows = [table.weight[ids].double().cpu().numpy() for table in tables]
    maps = [np.linalg.lstsq(known, each, rcond=None)[0] for each in rows]
    model.resize_token_embeddings(old + len(new), mean_resizing=False)
    wide = np.c_[source.vectors(new), np.ones(len(new))]
    tables = [model.get_input_embeddings()]
    tables += [getattr(module, name) for module, name in model.base_model.word_tables()]
    for table, found in zip(tables, maps, strict=True):
        table.weight[old:] = torch.from_numpy(wide @ found).to(table.weight)
    vocab.update({word: old + number for number, word in enumerate(new)})
    larger = copy.deepcopy(tokenizer)
    larger._tokenizer = type(tokenizer.backend_tokenizer).from_str(json.dumps(backend))
    return larger
