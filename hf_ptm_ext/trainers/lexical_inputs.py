"""Encoders that read what a lexicon says about their words: vectors added to the word embeddings.

The encoder stays a plain one, saved under its own class; the tables lie beside it, and `LexicalInputModel` puts them
around any model of the family again, such as a classifier. What is unknown adds nothing, so that the plain encoder is
the same model as one whose every word is unknown.
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import torch
from safetensors.torch import load_file
from torch import nn

from ..objectives import allowed_senses
from .auxiliary import AUXILIARY_FILE, AuxiliaryObjective, PlainModelCheckpoints

PREFIX = "lexical."
INIT_STD = 0.02


class LexicalEmbeddings(nn.Module, ABC):
    """Base of what is added; a subclass has `columns`, the inputs it reads, and `width`."""

    columns: ClassVar[tuple[str, ...]] = ()
    width: int

    @abstractmethod
    def forward(self, input_ids: torch.Tensor, columns: dict[str, torch.Tensor | None]) -> torch.Tensor | None:
        """What is added to the word embeddings, `(batch, seq_len, width)`; None for nothing."""

    @classmethod
    @abstractmethod
    def _of(cls, state: dict[str, torch.Tensor]) -> Any:
        """A module of the sizes of saved tables."""

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> Any:
        """Load the tables of a checkpoint that a pre-training wrote."""
        path = Path(folder) / AUXILIARY_FILE
        if not path.is_file():
            raise ValueError(
                f"`folder` = {folder} has no {AUXILIARY_FILE}: no lexical embeddings lie beside the model."
            )
        state = {name[len(PREFIX) :]: value for name, value in load_file(path).items() if name.startswith(PREFIX)}
        try:
            module = cls._of(state)
            module.load_state_dict(state)
        except (KeyError, RuntimeError) as error:
            raise ValueError(f"{path} must have the tables of a {cls.__name__}, got {sorted(state)}.") from error
        return module


class SentimentEmbeddings(LexicalEmbeddings):
    """SentiLARE's tables: 5 parts of speech, 3 polarities of a word, 6 ratings of a text.

    The last row of each means unknown and is never added; as a class of the tied heads it is an ordinary one. In the
    reference it is a padding row, which those heads move all the same, so that "unknown" adds a vector there.

    Args:
        width: of the word embeddings.

    Examples:
        >>> tables = SentimentEmbeddings(8)
        >>> unknown = {"pos_tag_ids": torch.tensor([[4]]), "word_polarity_ids": torch.tensor([[2]])}
        >>> tables(torch.tensor([[5]]), unknown).abs().sum().item()
        0.0
    """

    columns = ("pos_tag_ids", "word_polarity_ids", "sentence_polarity_ids")

    def __init__(self, width: int):
        super().__init__()
        self.width = width
        self.tables: Any = nn.ModuleList(nn.Embedding(rows, width) for rows in (5, 3, 6))
        for table in self.tables:
            nn.init.normal_(table.get_parameter("weight"), std=INIT_STD)

    @classmethod
    def _of(cls, state: dict[str, torch.Tensor]) -> "SentimentEmbeddings":
        return cls(state["tables.0.weight"].shape[1])

    def forward(self, input_ids: torch.Tensor, columns: dict[str, torch.Tensor | None]) -> torch.Tensor | None:
        added = None
        for name, table in zip(self.columns, self.tables, strict=True):
            ids = columns.get(name)
            if ids is not None:
                part = table(ids) * (ids != table.num_embeddings - 1).unsqueeze(-1)
                added = part if added is None else added + part
        return added


class SupersenseEmbeddings(LexicalEmbeddings):
    """SenseBERT's S: a vector for each supersense; a token adds those of all senses that it may have.

    Args:
        width: of the word embeddings.
        token_senses: the senses of each token as bits, `(vocab_size,)` (`collators.token_supersenses`): the matrix M.
        num_senses: number of supersenses (WordNet: 45).

    Examples:
        >>> tables = SupersenseEmbeddings(8, torch.tensor([0, 3]), num_senses=2)
        >>> torch.allclose(tables(torch.tensor([[1]]), {})[0, 0], tables.senses.weight.sum(0))
        True
    """

    def __init__(self, width: int, token_senses: Any, num_senses: int = 45):
        super().__init__()
        self.width = width
        bits = torch.as_tensor(token_senses, dtype=torch.long)
        if bits.dim() != 1 or (bits < 0).any() or (bits >> num_senses).any():
            raise ValueError(
                f"`token_senses` must be bits of {num_senses} senses, one integer a token, got shape "
                f"{tuple(bits.shape)}, largest {int(bits.max())}. Use `token_supersenses(tokenizer, table)`."
            )
        self.senses = nn.Embedding(num_senses, width)
        nn.init.normal_(self.senses.weight, std=INIT_STD)
        self.token_senses: torch.Tensor
        self.register_buffer("token_senses", bits)

    @classmethod
    def _of(cls, state: dict[str, torch.Tensor]) -> "SupersenseEmbeddings":
        return cls(state["senses.weight"].shape[1], state["token_senses"], len(state["senses.weight"]))

    def forward(self, input_ids: torch.Tensor, columns: dict[str, torch.Tensor | None]) -> torch.Tensor:
        weight = self.senses.weight
        return allowed_senses(self.token_senses[input_ids], len(weight)).to(weight.dtype) @ weight


class LexicalInputs(AuxiliaryObjective):
    """A model around which lexical embeddings lie, `lexical`; they are added where `adding` says so."""

    lexical: Any

    def __init__(self, model: Any, lexical: LexicalEmbeddings):
        super().__init__(model)
        words = self.model.get_input_embeddings().weight
        if words.shape[1] != lexical.width:
            raise ValueError(
                f"`lexical` must be as wide as the word embeddings, {words.shape[1]}, got {lexical.width}."
            )
        bits = getattr(lexical, "token_senses", None)
        if bits is not None and len(bits) > len(words):
            raise ValueError(
                f"`token_senses` must have no more than the model's {len(words)} tokens, got {len(bits)}: another "
                "tokenizer's."
            )
        self.lexical = lexical

    @contextmanager
    def adding(self, input_ids: torch.Tensor, **columns: torch.Tensor | None) -> Iterator[None]:
        """In the block the word embeddings of the model have the lexicon's vectors added."""
        added = self.lexical(input_ids, columns)

        def add(module: nn.Module, arguments: Any, output: torch.Tensor) -> torch.Tensor:
            return output if added is None else output + added.to(output.dtype)

        hook = self.model.get_input_embeddings().register_forward_hook(add)
        try:
            yield
        finally:
            hook.remove()


class LexicalInputModel(LexicalInputs):
    """Any model of upstream's or ours whose word embeddings get a lexicon's vectors; what it returns is the model's.

    | input | read by |
    | --- | --- |
    | `pos_tag_ids`, `word_polarity_ids`, `sentence_polarity_ids` | `SentimentEmbeddings`; what is missing is unknown |
    | `input_ids` | `SupersenseEmbeddings` |
    | all others | the model |

    Relations: columns come from `collators.LexiconColumns`; train with `LexicalInputTrainer`, which saves the plain
    model and the tables beside it. `SentiLareModel` and `SupersenseModel` pre-train it.

    Args:
        model: such as upstream's `BertForSequenceClassification`, or the folder or repository of one.
        lexical: `SentimentEmbeddings` or `SupersenseEmbeddings`, new or `from_pretrained(folder)`.

    Raises:
        ValueError: the tables are of another width, or of another vocabulary.

    Examples:
        >>> from transformers import BertConfig, BertForSequenceClassification
        >>> config = BertConfig(
        ...     vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
        ... )
        >>> model = LexicalInputModel(BertForSequenceClassification(config), SentimentEmbeddings(8)).eval()
        >>> ids = torch.tensor([[2, 5, 6, 3]])
        >>> plain = model.model(input_ids=ids).logits
        >>> torch.equal(model(input_ids=ids, word_polarity_ids=torch.tensor([[2, 2, 2, 2]])).logits, plain)
        True
        >>> torch.equal(model(input_ids=ids, word_polarity_ids=torch.tensor([[2, 1, 0, 2]])).logits, plain)
        False
    """

    def __init__(self, model: Any, lexical: LexicalEmbeddings):
        super().__init__(model, lexical)
        # The loss is the model's: upstream's classifiers give the mean of a micro-batch, whatever they are told.
        self.accepts_loss_kwargs = "num_items_in_batch" in inspect.signature(self.model.forward).parameters

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        pos_tag_ids: torch.Tensor | None = None,
        word_polarity_ids: torch.Tensor | None = None,
        sentence_polarity_ids: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> Any:
        """Run the model.

        Args:
            input_ids: `(batch, seq_len)`.
            attention_mask: `(batch, seq_len)`.
            token_type_ids: `(batch, seq_len)`.
            labels: as the model's.
            pos_tag_ids: verb 0, adjective 1, adverb 2, noun 3, unknown 4, `(batch, seq_len)`.
            word_polarity_ids: negative 0, positive 1, neither 2, `(batch, seq_len)`.
            sentence_polarity_ids: stars less one, unknown 5, `(batch, seq_len)`; for fine-tuning leave it out.
            kwargs: further inputs of the model.

        Returns:
            What the model returns.
        """
        given = {"attention_mask": attention_mask, "token_type_ids": token_type_ids, "labels": labels, **kwargs}
        with self.adding(
            input_ids,
            pos_tag_ids=pos_tag_ids,
            word_polarity_ids=word_polarity_ids,
            sentence_polarity_ids=sentence_polarity_ids,
        ):
            return self.model(input_ids=input_ids, **{name: v for name, v in given.items() if v is not None})


class LexicalInputTrainer(PlainModelCheckpoints):
    """`PtmTrainer` of a `LexicalInputModel`: checkpoints are the plain model's, with the tables beside it."""
