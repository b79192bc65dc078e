"""E-BERT (Poerner et al. 2020, https://arxiv.org/abs/1911.03681): entity vectors among the pieces of any encoder.

    W      = argmin sum over shared words ||x W - y||^2     x: their word vector, y: their row of the encoder
    concat = the mention's entity, "/", its pieces;  replace = the entity instead of its pieces

The encoder is not trained. Entities are read through `inputs_embeds`, or become pieces of its own vocabulary.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from .collators.vocabulary import piece_texts
from .data.tokenization import special_tokens_of
from .data.word_vectors import WordVectors

METHODS = ("lstsq", "procrustes")
FORMS = ("concat", "replace")
PREFIX = "ENTITY/"  # Wikipedia2Vec's


def fit_linear_map(source: Any, target: Any, weights: Any = None, method: str = "lstsq") -> np.ndarray:
    """Fit `W` so that `source @ W` comes near `target`; NPoe/ebert saves the same as `.npy`.

    Args:
        source: `(pairs, source width)`.
        target: `(pairs, target width)`.
        weights: How much each pair counts, `(pairs,)`, not negative; all alike by default.
        method: `"lstsq"`, least squares; `"procrustes"`, an orthogonal map of the source filled up with zeros.

    Returns:
        `(source width, target width)`; of `"procrustes"` `(target width, target width)`.

    Raises:
        ValueError: the numbers of pairs differ, a weight is negative, or the source is wider (`"procrustes"`).

    Examples:
        >>> source = np.array([[1.0, 0.0], [0.0, 2.0]])
        >>> fit_linear_map(source, source @ np.array([[2.0], [3.0]])).round(6).tolist()
        [[2.0], [3.0]]
    """
    source, target = np.asarray(source, dtype=np.float64), np.asarray(target, dtype=np.float64)
    if method not in METHODS:
        raise ValueError(f"`method` must be one of {', '.join(METHODS)}, got {method!r}.")
    if source.ndim != 2 or target.ndim != 2 or len(source) != len(target) or not len(source):
        raise ValueError(f"`source` and `target` must be rows of the same pairs, got {source.shape}, {target.shape}.")
    if not (np.isfinite(source).all() and np.isfinite(target).all()):
        broken = sum(int((~np.isfinite(values)).sum()) for values in (source, target))
        raise ValueError(f"`source` and `target` must be finite numbers, got NaN or infinity in {broken} places.")
    if weights is not None:
        weights = np.asarray(weights, dtype=np.float64)
        if weights.shape != (len(source),) or (weights < 0).any():
            raise ValueError(f"`weights` must be {len(source)} numbers from 0, got {weights.shape}: {weights}.")
        source, target = (values * np.sqrt(weights)[:, None] for values in (source, target))
    if method == "lstsq":
        return np.asarray(np.linalg.lstsq(source, target, rcond=None)[0])
    left, _, right = np.linalg.svd(_widened(source, target.shape[1]).T @ target)
    return np.asarray(left @ right)


def _widened(source: np.ndarray, width: int) -> np.ndarray:
    if source.shape[1] > width:
        raise ValueError(f"`source` must be no wider than the target, {width}, for procrustes, got {source.shape[1]}.")
    return np.pad(source, ((0, 0), (0, width - source.shape[1])))


class EBertEntities:
    """Entities as rows among an encoder's input embeddings, and the texts that hold them.

    Ids of entities begin behind the tokenizer's, so that a text with them is the same before and after `add_to`.

    Args:
        tokenizer: Of the encoder, a fast one.
        names: Of the entities.
        vectors: `(entities, hidden)`, as the encoder's rows are.
        linear_map: `W`, if one was fitted.

    Examples:
        >>> from transformers import BertConfig, BertModel, BertTokenizerFast
        >>> words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "/", "jean", "mara", "##is", "acts"]
        >>> tokenizer = BertTokenizerFast(vocab={word: number for number, word in enumerate(words)})
        >>> sizes = dict(hidden_size=4, num_hidden_layers=1, num_attention_heads=1, intermediate_size=4)
        >>> model = BertModel(BertConfig(vocab_size=len(words), **sizes))
        >>> vectors = WordVectors(["jean", "acts", "ENTITY/Jean_Marais"], [[1.0, 0], [0, 1.0], [1.0, 1.0]])
        >>> entities = EBertEntities.fit(model, tokenizer, vectors)
        >>> batch = entities.encode(["jean marais acts"], [[(0, 11, "Jean Marais")]])
        >>> batch["input_ids"].tolist()  # 10 is the entity
        [[2, 10, 5, 6, 7, 8, 9, 3]]
        >>> entities.inputs(model, batch)["inputs_embeds"].shape
        torch.Size([1, 8, 4])
    """

    def __init__(self, tokenizer: Any, names: Sequence[str], vectors: Any, linear_map: np.ndarray | None = None):
        self.tokenizer, self.names, self.linear_map = tokenizer, list(names), linear_map
        self.vectors = torch.as_tensor(np.asarray(vectors), dtype=torch.float32)
        if self.vectors.ndim != 2 or len(self.vectors) != len(self.names) or not len(self.names):
            raise ValueError(
                f"`vectors` must be a row for each of {len(self.names)} `names`, at least one, got "
                f"{tuple(self.vectors.shape)}."
            )
        if not getattr(tokenizer, "is_fast", False):
            raise ValueError(f"`tokenizer` must be a fast one, which tells places, got {type(tokenizer).__name__}.")
        self.first_id = len(tokenizer)
        self._ids = {name: self.first_id + place for place, name in enumerate(self.names)}

    @classmethod
    def fit(
        cls,
        model: Any,
        tokenizer: Any,
        words: Any,
        entities: Any = None,
        *,
        prefix: str = PREFIX,
        weights: Mapping[str, float] | None = None,
        method: str = "lstsq",
    ) -> "EBertEntities":
        """Fit the map on the words that vectors and vocabulary share, and send the entities through it.

        Args:
            model: Any encoder.
            tokenizer: Its tokenizer.
            words: `WordVectors` (or gensim's) of words, and of entities if their names begin with `prefix`, such as
                Wikipedia2Vec's text file.
            entities: `EntityTable` of vectors in the same space, if `words` has none; names are its titles or ids.
            prefix: What names of entities begin with among the words.
            weights: How much a word counts (default: 1).
            method: See `fit_linear_map`.

        Raises:
            ValueError: no word is shared, there is no entity, or widths differ.
        """
        words = WordVectors.of(words)
        pieces = {text: number for number, (text, begins) in piece_texts(tokenizer).items() if begins}
        shared = [word for word in pieces if word in words.index and not word.startswith(prefix)]
        if not shared:
            raise ValueError(
                f"`words` must share words with the tokenizer, got none of its {len(pieces)}: are they of its "
                "language and case?"
            )
        rows = model.get_input_embeddings().weight.detach().float().cpu().numpy()
        source, target = words.vectors(shared), rows[[pieces[word] for word in shared]]
        counts = None if weights is None else [weights.get(word, 1.0) for word in shared]
        linear_map = fit_linear_map(source, target, counts, method)
        if entities is None:
            own = [word for word in words.words if word.startswith(prefix)]
            names = [word.removeprefix(prefix) for word in own]
            vectors = words.vectors(own) if own else source[:0]
        else:
            rows_of = range(1, len(entities))  # row 0 is no entity
            names, vectors = entities.vocabulary.ids_of(rows_of), entities.lookup(rows_of).numpy()
        if not names or vectors.shape[1] != source.shape[1]:
            raise ValueError(
                f"`entities` must be at least one vector of {source.shape[1]} numbers, got {vectors.shape}; among "
                f"`words` their names begin with {prefix!r}."
            )
        if method == "procrustes":
            vectors = _widened(np.asarray(vectors), target.shape[1])
        made = cls(tokenizer, names, np.asarray(vectors, dtype=np.float64) @ linear_map, linear_map)
        for title, row in () if entities is None else entities.vocabulary.titles():
            made._ids.setdefault(title, made.first_id + row - 1)
        return made

    def id_of(self, name: str) -> int | None:
        """Id of an entity, blanks of a title as they are or as `_`; `None` if it has no vector."""
        return self._ids.get(name, self._ids.get(name.replace(" ", "_")))

    def encode(
        self,
        texts: Sequence[str],
        mentions: Sequence[Sequence[tuple[int, int, str]]],
        form: str = "concat",
        max_length: int = 512,
    ) -> dict[str, torch.Tensor]:
        """Cut texts into pieces, with entities at their mentions, padded.

        Args:
            texts: The texts, whose pieces stay as they are.
            mentions: Of each text first character, the one behind the last, and name; where a name has no vector the
                plain text stands.
            form: `"concat"`: entity, `/`, pieces of the mention; `"replace"`: the entity alone.
            max_length: Most tokens of a row.

        Returns:
            `input_ids`, `attention_mask` and, if the tokenizer has them, `token_type_ids` of one segment.

        Raises:
            ValueError: `form` is unknown, the lists are not as long, mentions overlap or have no piece.
        """
        if form not in FORMS:
            raise ValueError(f"`form` must be one of {', '.join(FORMS)}, got {form!r}.")
        if len(texts) != len(mentions):
            raise ValueError(f"`mentions` must be a list for each of the {len(texts)} texts, got {len(mentions)}.")
        slash = self.tokenizer("/", add_special_tokens=False)["input_ids"] if form == "concat" else []
        cut = self.tokenizer(list(texts), add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        special = special_tokens_of(self.tokenizer)
        room = max_length - special.single_count
        rows = []
        for ids, places, found in zip(cut["input_ids"], cut["offset_mapping"], mentions, strict=True):
            row, behind = list[int](), 0
            for start, end, name in sorted(found):
                inside = [place for place, (first, last) in enumerate(places) if first < end and last > start]
                number = self.id_of(name)
                if not inside or inside[0] < behind:
                    raise ValueError(f"`mentions` must have pieces and not overlap, got {(start, end, name)}.")
                if number is None:
                    continue
                pieces = ids[inside[0] : inside[-1] + 1]
                row += [*ids[behind : inside[0]], number, *([*slash, *pieces] if slash else [])]
                behind = inside[-1] + 1
            made = special.single([*row, *ids[behind:]][:room])
            rows.append({name: values for name, values in made.items() if name in self.tokenizer.model_input_names})
        return dict(self.tokenizer.pad(rows, return_tensors="pt"))

    def inputs(self, model: Any, batch: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """`inputs_embeds` and the other columns of `encode`, for the encoder as it is."""
        embedding, ids = model.get_input_embeddings(), batch["input_ids"]
        entity = ids >= self.first_id
        rows = embedding(ids.masked_fill(entity, 0).to(embedding.weight.device))
        given = self.vectors.to(rows)[(ids[entity] - self.first_id).to(rows.device)]
        mask = entity.to(rows.device)[..., None].expand_as(rows)
        others = {name: values.to(rows.device) for name, values in batch.items() if name != "input_ids"}
        return {"inputs_embeds": rows.masked_scatter(mask, given), **others}

    def add_to(self, model: Any) -> None:
        """Make the entities pieces `ENTITY/name` of model and tokenizer, which then save and load as plain ones."""
        tokens = [PREFIX + name.replace(" ", "_") for name in self.names]
        if len(self.tokenizer) != self.first_id or self.tokenizer.add_tokens(tokens) != len(tokens):
            raise ValueError(f"`tokenizer` must have none of the entities, got {len(self.tokenizer)} tokens.")
        size = max(len(self.tokenizer), model.get_input_embeddings().weight.shape[0])
        model.resize_token_embeddings(size, mean_resizing=False)
        weight = model.get_input_embeddings().weight
        with torch.no_grad():
            weight[self.first_id : len(self.tokenizer)] = self.vectors.to(weight)
