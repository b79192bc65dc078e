"""Distilled BiLSTM (Tang et al. 2019, https://arxiv.org/abs/1903.12136; the authors' code is castorini/d-bert).

A one-layer bidirectional LSTM over word vectors, a fully connected layer with ReLU and a classifier:

    h = [last forward state; last backward state]         logits = W2 relu(W1 h + b1) + b2

For a pair of texts both are read by the same LSTM and W1 reads [h1; h2; h1*h2; |h1-h2|] (the paper's order; the code
has the last two the other way round). Dropout is behind the ReLU, as in the code, for pairs too (there: none). The
student learns the teacher's logits by their squared distance (preset `bilstm` of `hf_ptm_ext.distillation`), on
augmented texts.

What differs from an encoder here: no attention, no positions (any length), nothing to pack; padding on either side
changes nothing. The two texts come in one row, told apart by `token_type_ids` as a BERT's tokenizer makes them, or in
two, `second_input_ids` beside `input_ids`.
"""

import inspect
from typing import Any

import torch
from torch import nn
from transformers import initialization as init
from transformers.activations import ACT2FN
from transformers.modeling_outputs import BaseModelOutputWithPooling, SequenceClassifierOutput
from transformers.modeling_utils import PreTrainedModel
from transformers.utils.generic import can_return_tuple

from .arguments_distilled_bilstm import refuse_unknown_arguments
from .configuration_distilled_bilstm import AUTO_MAP, HF_PTM_EXT_VERSION, DistilledBiLstmConfig
from .encoder_distilled_bilstm import DistilledBiLstmEmbeddings, DistilledBiLstmEncoder
from .loading_distilled_bilstm import DistilledBiLstmLoading
from .losses_distilled_bilstm import problem_type_loss
from .mask_contract_distilled_bilstm import read_attention_mask
from .recording_distilled_bilstm import kept_states


class DistilledBiLstmPreTrainedModel(DistilledBiLstmLoading, PreTrainedModel):
    """Loading, saving, initialisation and resizing shared by both classes."""

    config: DistilledBiLstmConfig
    config_class = DistilledBiLstmConfig
    base_model_prefix = "bilstm"
    _no_split_modules = ["DistilledBiLstmEncoder"]
    _auto_map = AUTO_MAP
    _has_converter = False
    _code_version = HF_PTM_EXT_VERSION
    _layer_stacks = ()
    _input_parts = ("embeddings.", "encoder.")

    @classmethod
    def from_pretrained(cls, *args: Any, **kwargs: Any) -> Any:
        """Load as every family here does; the static word vectors stay frozen, which upstream's loading forgets.

        Args:
            args: as upstream.
            kwargs: as upstream.

        Returns:
            The model or, with `output_loading_info=True`, the model and the loading information.
        """
        loaded = super().from_pretrained(*args, **kwargs)
        model = loaded[0] if isinstance(loaded, tuple) else loaded
        static = model.base_model.embeddings.static_embeddings
        if static is not None:
            static.requires_grad_(False)
        return loaded

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, nn.LSTM):
            bound = module.hidden_size**-0.5
            for parameter in module.parameters():
                init.uniform_(parameter, -bound, bound)

    def _resize_token_embeddings(
        self, new_num_tokens: int | None, pad_to_multiple_of: int | None = None, mean_resizing: bool = True
    ) -> nn.Module:
        resized = super()._resize_token_embeddings(new_num_tokens, pad_to_multiple_of, mean_resizing)
        embeddings = self.base_model.embeddings
        if embeddings.static_embeddings is not None:
            static = self._get_resized_embeddings(
                embeddings.static_embeddings, resized.weight.shape[0], mean_resizing=mean_resizing
            )
            embeddings.static_embeddings = static.requires_grad_(False)
        return resized

    @torch.no_grad()
    def set_word_vectors(self, tokenizer: Any, vectors: Any) -> int:
        """Start from word vectors, in both channels.

        Args:
            tokenizer: the model's; each of its tokens is looked up as it is written. Special tokens and pieces within
                a word have no vectors and keep theirs.
            vectors: word -> vector of `embedding_size`: gensim's `KeyedVectors`, `hf_ptm_ext.data.augmentation`'s
                `WordVectors`, a dictionary.

        Returns:
            Number of tokens that got a vector.

        Raises:
            ValueError: the vectors are of another width, or no token has one.

        Example:
            >>> import torch
            >>> from hf_ptm_ext import DistilledBiLstmConfig, DistilledBiLstmModel
            >>> from hf_ptm_ext.data import train_wordpiece
            >>> tokenizer = train_wordpiece([["low lower"]] * 2, vocab_size=30)
            >>> model = DistilledBiLstmModel(DistilledBiLstmConfig(vocab_size=len(tokenizer), embedding_size=2))
            >>> model.set_word_vectors(tokenizer, {"low": [0.5, 1.0], "table": [0.0, 1.0]})
            1
        """
        embeddings = self.base_model.embeddings
        special = set(tokenizer.all_special_tokens)
        found = {
            number: torch.as_tensor(vectors[token], dtype=torch.float32)
            for token, number in tokenizer.get_vocab().items()
            if token not in special and token in vectors
        }
        if not found:
            raise ValueError(
                "`vectors` must have a vector for some token of the tokenizer, got none: are they of this language, "
                "and of words in the tokenizer's case?"
            )
        width = self.config.embedding_size
        wrong = {tuple(vector.shape) for vector in found.values()} - {(width,)}
        if wrong:
            raise ValueError(f"`vectors` must be of `embedding_size` = {width} numbers, got shape {min(wrong)}.")
        for table in (embeddings.word_embeddings, embeddings.static_embeddings):
            if table is not None:
                values = torch.stack(list(found.values())).to(table.weight)
                table.weight[torch.tensor(list(found), device=table.weight.device)] = values
        return len(found)


class DistilledBiLstmModel(DistilledBiLstmPreTrainedModel):
    """The encoder of one text or of a pair.

    Args:
        config: the configuration.

    Example:
        >>> import torch
        >>> from hf_ptm_ext import DistilledBiLstmConfig, DistilledBiLstmModel
        >>> model = DistilledBiLstmModel(DistilledBiLstmConfig(vocab_size=60, embedding_size=8, lstm_size=5))
        >>> output = model(torch.tensor([[2, 7, 8, 3]]))
        >>> output.last_hidden_state.shape, output.pooler_output.shape
        (torch.Size([1, 4, 10]), torch.Size([1, 10]))
    """

    def __init__(self, config: DistilledBiLstmConfig):
        super().__init__(config)
        self.embeddings = DistilledBiLstmEmbeddings(config)
        self.encoder = DistilledBiLstmEncoder(config)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.embeddings.word_embeddings

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.embeddings.word_embeddings = value

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        second_input_ids: torch.Tensor | None = None,
        second_attention_mask: torch.Tensor | None = None,
        output_hidden_states: bool | int | list[int] | None = None,
        output_attentions: bool | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPooling:
        """Encode.

        Args:
            input_ids: `(batch, seq_len)`.
            attention_mask: `(batch, seq_len)`, 1 real and 0 padding, on either side (default: no padding).
            token_type_ids: `(batch, seq_len)`; with `config.pairs` 0 and 1 are the first and the second text, without
                they are not read.
            second_input_ids: `(batch, second_len)`: the second text in a row of its own, with `config.pairs`.
            second_attention_mask: `(batch, second_len)`.
            output_hidden_states: whether the word vectors and the states are returned, or which of the two (default:
                the configuration's).
            output_attentions: refused: nothing attends here.
            kwargs: `return_dict` and the like as upstream; others are refused.

        Returns:
            `last_hidden_state` `(batch, seq_len [+ second_len], 2 * lstm_size)`, 0 at padding, and `pooler_output`:
            the last states `(batch, 2 * lstm_size)` or, for pairs, their comparison `(batch, 8 * lstm_size)`.

        Raises:
            ValueError: no `input_ids`, a second text without `config.pairs`, or a pair without its second text, or
                attentions are asked for.
            TypeError: a keyword argument that nothing reads, a misspelt name say.
        """
        if not torch.compiler.is_compiling():
            refuse_unknown_arguments(type(self).__name__, kwargs, ENCODER_ARGUMENTS)
        if input_ids is None:
            raise ValueError("`input_ids` must be given: word vectors are looked up in two tables.")
        if self.config.output_attentions if output_attentions is None else output_attentions:
            raise ValueError("`output_attentions` must be False: an LSTM has no attentions. Ask for hidden states.")
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        real = _real(self.config, input_ids, attention_mask, "attention_mask")
        words = self.embeddings(input_ids)
        if not self.config.pairs:
            if second_input_ids is not None:
                raise ValueError("`second_input_ids` needs `config.pairs` = True: it would not be read.")
            states, final = self.encoder(words, real)
            kept = kept_states((words, states), output_hidden_states)
            return BaseModelOutputWithPooling(last_hidden_state=states, pooler_output=final, hidden_states=kept)
        if second_input_ids is not None:
            states, first = self.encoder(words, real)
            second_real = _real(self.config, second_input_ids, second_attention_mask, "second_attention_mask")
            second_words = self.embeddings(second_input_ids)
            second_states, second = self.encoder(second_words, second_real)
            words, states = torch.cat([words, second_words], dim=1), torch.cat([states, second_states], dim=1)
        elif token_type_ids is not None:
            states, first = self.encoder(words, real & (token_type_ids == 0))
            second_states, second = self.encoder(words, real & (token_type_ids == 1))
            states = states + second_states
        else:
            raise ValueError(
                "A pair needs its second text: pass `token_type_ids` (0 and 1) or `second_input_ids`, or set "
                "`config.pairs` to False."
            )
        compared = torch.cat([first, second, first * second, (first - second).abs()], dim=-1)
        kept = kept_states((words, states), output_hidden_states)
        return BaseModelOutputWithPooling(last_hidden_state=states, pooler_output=compared, hidden_states=kept)


ENCODER_ARGUMENTS = tuple(inspect.signature(DistilledBiLstmModel.forward).parameters)


class DistilledBiLstmForSequenceClassification(DistilledBiLstmPreTrainedModel):
    """Classification or regression of texts or pairs of texts.

    Example:
        >>> import torch
        >>> from hf_ptm_ext import DistilledBiLstmConfig, DistilledBiLstmForSequenceClassification
        >>> config = DistilledBiLstmConfig(vocab_size=60, embedding_size=8, lstm_size=5, pairs=True, num_labels=3)
        >>> model = DistilledBiLstmForSequenceClassification(config)
        >>> ids, types = torch.tensor([[2, 7, 8, 3, 9, 3]]), torch.tensor([[0, 0, 0, 0, 1, 1]])
        >>> model(ids, token_type_ids=types, labels=torch.tensor([2])).logits.shape
        torch.Size([1, 3])
    """

    def __init__(self, config: DistilledBiLstmConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.bilstm = DistilledBiLstmModel(config)
        self.dense = nn.Linear(config.hidden_size * (4 if config.pairs else 1), config.classifier_size)
        self.activation = ACT2FN[config.hidden_act]
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.classifier = nn.Linear(config.classifier_size, config.num_labels)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        second_input_ids: torch.Tensor | None = None,
        second_attention_mask: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutput:
        """Classify.

        Args:
            input_ids: `(batch, seq_len)`; this and the next four as in `DistilledBiLstmModel`.
            attention_mask: `(batch, seq_len)`.
            token_type_ids: `(batch, seq_len)`.
            second_input_ids: `(batch, second_len)`.
            second_attention_mask: `(batch, second_len)`.
            labels: `(batch,)` classes or regression targets, `(batch, num_labels)` for several labels.
            num_items_in_batch: number of labels over all micro-batches of one update.
            kwargs: as in `DistilledBiLstmModel`.

        Returns:
            `loss` and `logits` `(batch, num_labels)`.
        """
        outputs = self.bilstm(
            input_ids,
            attention_mask,
            token_type_ids,
            second_input_ids,
            second_attention_mask,
            **{**kwargs, "return_dict": True},
        )
        states = self.activation(self.dense(outputs.pooler_output))
        logits = self.classifier(self.dropout(states))
        loss = None if labels is None else problem_type_loss(self.config, logits, labels, num_items_in_batch)
        return SequenceClassifierOutput(loss=loss, logits=logits, hidden_states=outputs.hidden_states)


def _real(config: Any, input_ids: torch.Tensor, mask: torch.Tensor | None, name: str) -> torch.Tensor:
    """Which positions are tokens, as bool."""
    if mask is None:
        return torch.ones_like(input_ids, dtype=torch.bool)
    if torch.is_tensor(mask) and mask.dim() != 2:
        raise ValueError(f"`{name}` must be (batch, seq_len): nothing attends here, got shape {tuple(mask.shape)}.")
    return read_attention_mask(config, mask, input_ids, name=name)


__all__ = ["DistilledBiLstmForSequenceClassification", "DistilledBiLstmModel", "DistilledBiLstmPreTrainedModel"]
