"""Context2Vec (Melamud et al. 2016, https://aclanthology.org/K16-1006; the authors' code is orenmel/context2vec).

    context of i = W4 relu(W3 [left state of w0 .. w(i-1); right state of w(n-1) .. w(i+1)] + b3) + b4

A context never sees the word in its place, so every word of a row is a target, and words that fit a gap are those
whose vectors are near its context.
"""

from typing import Any, cast

import torch
from torch import nn
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPooling, MaskedLMOutput
from transformers.utils.generic import can_return_tuple

from .composite_core import kept_states
from .configuration_context2vec import AUTO_MAP, HF_PTM_EXT_VERSION, Context2VecConfig
from .losses_core import mean_over_targets
from .recurrent_core import RecurrentPreTrainedModel, masked_mean, reading_of, rearranged
from .task_heads_core import TaskHead


class Context2VecEmbeddings(nn.Module):
    """One table of words for each direction."""

    def __init__(self, config: Context2VecConfig):
        super().__init__()
        sizes = config.vocab_size, config.embedding_size, config.pad_token_id
        self.word_embeddings, self.backward_embeddings = nn.Embedding(*sizes), nn.Embedding(*sizes)


class Context2VecEncoder(nn.Module):
    """Both LSTMs and what joins their states."""

    def __init__(self, config: Context2VecConfig):
        super().__init__()
        size, target = config.lstm_size, config.target_size
        self.forward_lstm = nn.LSTM(config.embedding_size, size, batch_first=True)
        self.backward_lstm = nn.LSTM(config.embedding_size, size, batch_first=True)
        if config.deep:
            layers = nn.Linear(2 * size, 2 * size), nn.ReLU(), nn.Dropout(config.dropout), nn.Linear(2 * size, target)
            self.joint = nn.Sequential(*layers)
        else:
            self.forward_projection = nn.Linear(size, target // 2)
            self.backward_projection = nn.Linear(size, target // 2)
        self.deep, self.dropout = config.deep, nn.Dropout(config.dropout)

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """States of the LSTMs, each in its own order of reading."""
        return self.forward_lstm(self.dropout(left))[0], self.backward_lstm(self.dropout(right))[0]

    def joined(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """Contexts from the states on both sides of each word."""
        left, right = self.dropout(left), self.dropout(right)
        if self.deep:
            context: torch.Tensor = self.joint(torch.cat([left, right], dim=-1))
            return context
        return torch.cat([self.forward_projection(left), self.backward_projection(right)], dim=-1)


class Context2VecTargets(nn.Module):
    """Vectors of target words, and the counts by which negatives are drawn."""

    def __init__(self, config: Context2VecConfig, rows: int | None = None):
        super().__init__()
        rows = rows or config.vocab_size
        self.weight = nn.Parameter(torch.empty(rows, config.target_size))
        self.counts = nn.Parameter(torch.ones(rows, dtype=torch.float32), requires_grad=False)
        self.power = float(config.ns_power)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """Counts stay in float32, whatever the vectors become: half precision ends at 65,504."""
        counts = self.counts.detach()
        super()._apply(fn, recurse)
        if self.counts.dtype != counts.dtype:
            self.counts.data = counts.to(self.counts.device)
        return self

    def sampling_probabilities(self) -> torch.Tensor:
        """How probable each word is as a negative, `(vocab_size,)`."""
        shares = self.counts.detach().float() ** self.power
        return shares / shares.sum()


class Context2VecPreTrainedModel(RecurrentPreTrainedModel):
    """Loading, saving and initialisation shared by all Context2Vec classes."""

    config: Context2VecConfig
    config_class = Context2VecConfig
    base_model_prefix = "context2vec"
    _no_split_modules = ["Context2VecEncoder"]
    _keep_in_fp32_modules_strict = ["targets.counts"]
    _auto_map = AUTO_MAP
    _code_version = HF_PTM_EXT_VERSION
    _prediction_heads = {"targets": "target words' vectors"}

    def freeze(self) -> None:
        """Take the gradient from one of torch's two biases: the authors' LSTM has one."""
        for name, parameter in self.named_parameters():
            if name.endswith(("bias_hh_l0", "targets.counts")):
                parameter.requires_grad_(False)

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, nn.LSTM):
            init.zeros_(module.get_parameter("bias_hh_l0"))
        if isinstance(module, Context2VecTargets):
            init.zeros_(module.weight)
            init.ones_(module.counts)


class Context2VecModel(Context2VecPreTrainedModel):
    """The encoder: a vector for the context of each word.

    Examples:
        >>> import torch
        >>> from hf_ptm_ext import Context2VecConfig, Context2VecModel
        >>> model = Context2VecModel(Context2VecConfig(vocab_size=60, embedding_size=8, lstm_size=5, target_size=6))
        >>> model(torch.tensor([[5, 7, 8, 3]])).last_hidden_state.shape
        torch.Size([1, 4, 6])
    """

    def __init__(self, config: Context2VecConfig):
        super().__init__(config)
        self.embeddings = Context2VecEmbeddings(config)
        self.encoder = Context2VecEncoder(config)
        self.post_init()
        self.freeze()

    def word_tables(self) -> list[tuple[nn.Module, str]]:
        """The table of the LSTM that reads backwards."""
        return [(self.embeddings, "backward_embeddings")]

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        output_hidden_states: bool | int | list[int] | None = None,
        output_attentions: bool | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPooling:
        """Encode.

        Args:
            input_ids: `(batch, seq_len)` words of sentences, without boundaries: those are put around each row here.
            attention_mask: `(batch, seq_len)`, 1 real and 0 padding, on either side (default: no padding).
            output_hidden_states: whether left states, right states and contexts are returned, or which of them.
            output_attentions: refused: nothing attends here.
            kwargs: `return_dict` as upstream; others are refused.

        Returns:
            `last_hidden_state` `(batch, seq_len, target_size)`, the contexts, 0 at padding, and `pooler_output`,
            their mean.

        Raises:
            ValueError: no `input_ids`, or attentions are asked for.
            TypeError: a keyword argument that nothing reads, a misspelt name say.
        """
        real = self.checked(input_ids, attention_mask, output_attentions, kwargs)
        reading = reading_of(real)
        words = cast(torch.Tensor, input_ids).gather(1, reading.first)
        left, right = self.encoder(
            self.embeddings.word_embeddings(_behind(self.config.bos_token_id, words)),
            self.embeddings.backward_embeddings(_behind(self.config.eos_token_id, words.gather(1, reading.turned))),
        )
        left = rearranged(left, reading.back)
        right = rearranged(rearranged(right, reading.turned), reading.back)
        contexts = self.encoder.joined(left, right) * real[..., None].to(left.dtype)
        wanted = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        return BaseModelOutputWithPooling(
            last_hidden_state=contexts,
            pooler_output=masked_mean(contexts, real),
            hidden_states=kept_states((left, right, contexts), wanted),
        )


def _behind(boundary: int | None, words: torch.Tensor) -> torch.Tensor:
    """Rows with a boundary in front, without their last word."""
    return torch.cat([torch.full_like(words[:, :1], boundary or 0), words[:, :-1]], dim=1)


class Context2VecForMaskedLM(TaskHead, Context2VecPreTrainedModel, encoder=Context2VecModel):
    """Words that fit a context, by target vectors trained with negative sampling.

    Examples:
        >>> import torch
        >>> from hf_ptm_ext import Context2VecConfig, Context2VecForMaskedLM
        >>> config = Context2VecConfig(vocab_size=60, embedding_size=8, lstm_size=5, target_size=6)
        >>> model, ids = Context2VecForMaskedLM(config), torch.tensor([[5, 7, 8, 3]])
        >>> model(ids).logits.shape, model.fill_slot(ids, torch.tensor([1]), topn=3)[1].shape
        (torch.Size([1, 4, 60]), torch.Size([1, 3]))
    """

    _optional_labels = ()

    def __init__(self, config: Context2VecConfig):
        super().__init__(config)
        self.add_encoder(pooled=False)
        self.targets = Context2VecTargets(config)
        self.post_init()
        self.freeze()

    def _resize_token_embeddings(self, *args: Any, **kwargs: Any) -> nn.Module:
        """As upstream; target words come and go too, and new ones begin as all did."""
        resized, old = super()._resize_token_embeddings(*args, **kwargs), self.targets
        number = len(resized.get_parameter("weight"))
        self.targets = Context2VecTargets(self.config, number).to(old.weight)
        self._init_weights(self.targets)
        with torch.no_grad():
            for name, kept in old.named_parameters():
                rows = min(len(kept), number)
                self.targets.get_parameter(name)[:rows] = kept[:rows]
        self.freeze()
        return resized

    @torch.no_grad()
    def set_counts(self, counts: Any) -> None:
        """Say how often each word occurs, `(vocab_size,)`: negatives are drawn by it."""
        self.targets.counts.copy_(torch.as_tensor(counts))

    def forward(
        self,
        labels: torch.Tensor | None = None,
        negatives: torch.Tensor | None = None,
        return_logits: bool | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **inputs: Any,
    ) -> MaskedLMOutput:
        """Score target words in their contexts.

        Args:
            labels: `(batch, seq_len)` target words, the input itself as a rule; -100 is ignored.
            negatives: `(batch, seq_len, negative_samples)` words instead of drawn ones.
            return_logits: whether to score every word; `None` (default) means yes, except in training with labels.
            num_items_in_batch: number of targets over all micro-batches of one update.
            inputs: the encoder's inputs.

        Returns:
            `loss`, softplus(-context . target) + sum softplus(context . negative) as a mean over targets, and
            `logits` `(batch, seq_len, vocab_size)`, context . target.
        """
        outputs = self.encode(**inputs)
        contexts, weight = outputs.last_hidden_state, self.targets.weight
        wanted = not (self.training and labels is not None) if return_logits is None else return_logits
        loss = None
        if labels is not None:
            real = labels != -100
            losses = self.losses(contexts, labels.masked_fill(~real, 0), negatives)
            loss = mean_over_targets((losses * real).sum(), labels, num_items_in_batch)
        logits = nn.functional.linear(contexts, weight) if wanted else None
        return self.head_output(MaskedLMOutput, outputs, loss=loss, logits=logits)

    def losses(
        self, contexts: torch.Tensor, targets: torch.Tensor, negatives: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Loss of each target, `(batch, seq_len)`; negatives are drawn by the words' counts if none are given."""
        if negatives is None:
            number = self.config.negative_samples
            drawn = self.targets.sampling_probabilities().multinomial(targets.numel() * number, replacement=True)
            negatives = drawn.view(*targets.shape, number)
        weight, contexts = self.targets.weight.float(), contexts.float()
        positive = torch.einsum("bsh,bsh->bs", contexts, weight[targets])
        negative = torch.einsum("bsh,bskh->bsk", contexts, weight[negatives])
        return nn.functional.softplus(-positive) + nn.functional.softplus(negative).sum(-1)

    @torch.no_grad()
    def fill_slot(
        self,
        input_ids: torch.Tensor,
        positions: torch.Tensor,
        topn: int = 10,
        attention_mask: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The words that fit best.

        Args:
            input_ids: `(batch, seq_len)`; any word may stand in the gap.
            positions: `(batch,)` place of the gap.
            topn: how many words.
            attention_mask: `(batch, seq_len)`.

        Returns:
            Cosines and words, `(batch, topn)`, the best first.
        """
        contexts = self.encode(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        chosen = contexts[torch.arange(contexts.shape[0], device=contexts.device), positions.to(contexts.device)]
        near = nn.functional.normalize(chosen, dim=-1) @ nn.functional.normalize(self.targets.weight, dim=-1).T
        cosines, words = near.topk(min(topn, near.shape[1]), dim=-1)
        return cosines, words
