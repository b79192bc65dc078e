"""Skip-thought vectors (Kiros et al. 2015, https://arxiv.org/abs/1506.06726; the authors' code is
ryankiros/skip-thoughts).

A GRU reads a sentence, and its last state is the sentence's vector; two GRUs that begin with it predict the sentences
in front of it and behind it. The bias inside the candidate's reset gate, which torch has and the authors have not,
stays 0.
"""

from typing import Any

import torch
from torch import nn
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPooling, CausalLMOutput
from transformers.utils.generic import can_return_tuple

from .composite_core import kept_states
from .configuration_skip_thought import AUTO_MAP, HF_PTM_EXT_VERSION, SkipThoughtConfig
from .losses_core import mean_over_targets
from .recurrent_core import RecurrentPreTrainedModel, read_both_ways
from .task_heads_core import SequenceClassificationHead, TaskHead

LEAST = 1e-8  # added to probabilities, as in the authors' cost


class SkipThoughtEncoder(nn.Module):
    """Word vectors and one GRU, or one for each direction."""

    def __init__(self, config: SkipThoughtConfig, size: int, both_ways: bool):
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.embedding_size)
        self.forward_gru = nn.GRU(config.embedding_size, size, batch_first=True)
        self.backward_gru = nn.GRU(config.embedding_size, size, batch_first=True) if both_ways else None

    def forward(self, input_ids: torch.Tensor, chosen: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Vectors and states of the words, and the sentence's."""
        words = self.word_embeddings(input_ids)
        return words, *read_both_ways(self.forward_gru, self.backward_gru, words, chosen)


class SkipThoughtPreTrainedModel(RecurrentPreTrainedModel):
    """Loading, saving and initialisation shared by all Skip-thought classes."""

    config: SkipThoughtConfig
    config_class = SkipThoughtConfig
    base_model_prefix = "skip_thought"
    _no_split_modules = ["SkipThoughtEncoder"]
    _auto_map = AUTO_MAP
    _code_version = HF_PTM_EXT_VERSION
    _input_parts = ("uni_encoder.", "bi_encoder.")
    _prediction_heads = {"decoders": "decoders of the sentences around", "output": "decoders' output layer"}
    _example_sizes = "vocab_size=60, embedding_size=8, gru_size=5"

    def get_input_embeddings(self) -> nn.Module:
        return self.base_model.encoders()[0].word_embeddings

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.base_model.encoders()[0].word_embeddings = value

    def freeze(self) -> None:
        """Take the gradient from torch's second bias."""
        for name, parameter in self.named_parameters():
            if name.endswith("bias_hh_l0"):
                parameter.requires_grad_(False)

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, nn.GRU):
            init.zeros_(module.get_parameter("bias_hh_l0"))


class SkipThoughtModel(SkipThoughtPreTrainedModel):
    """The encoder of sentences.

    Examples:
        >>> import torch
        >>> from hf_ptm_ext import SkipThoughtConfig, SkipThoughtModel
        >>> sizes = dict(vocab_size=60, embedding_size=8, gru_size=5, bi_gru_size=3)
        >>> model = SkipThoughtModel(SkipThoughtConfig(encoder_type="combine", **sizes))
        >>> model(torch.tensor([[5, 7, 8, 3]])).pooler_output.shape
        torch.Size([1, 11])
    """

    def __init__(self, config: SkipThoughtConfig):
        super().__init__(config)
        kind = config.encoder_type
        self.uni_encoder = None if kind == "bi" else SkipThoughtEncoder(config, config.gru_size, False)
        self.bi_encoder = None if kind == "uni" else SkipThoughtEncoder(config, config.bi_gru_size, True)
        self.post_init()
        self.freeze()

    def encoders(self) -> list[SkipThoughtEncoder]:
        """The encoders that there are."""
        return [encoder for encoder in (self.uni_encoder, self.bi_encoder) if encoder is not None]

    def word_tables(self) -> list[tuple[nn.Module, str]]:
        """The table of the second encoder."""
        return [(encoder, "word_embeddings") for encoder in self.encoders()[1:]]

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
            input_ids: `(batch, seq_len)` words of a sentence each.
            attention_mask: `(batch, seq_len)`, 1 real and 0 padding, on either side (default: no padding).
            output_hidden_states: whether word vectors and states are returned, or which of the two.
            output_attentions: refused: nothing attends here.
            kwargs: `return_dict` as upstream; others are refused.

        Returns:
            `last_hidden_state` `(batch, seq_len, hidden_size)`, 0 at padding, and `pooler_output`, the sentences'
            vectors, each encoder's of length 1 if `config.normalize`.

        Raises:
            ValueError: no `input_ids`, or attentions are asked for.
            TypeError: a keyword argument that nothing reads, a misspelt name say.
        """
        real = self.checked(input_ids, attention_mask, output_attentions, kwargs)
        read = [encoder(input_ids, real) for encoder in self.encoders()]
        words, states, sentences = zip(*read, strict=True)
        if self.config.normalize:
            sentences = tuple(nn.functional.normalize(sentence, dim=-1) for sentence in sentences)
        state = torch.cat(states, dim=-1)
        wanted = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        first = words[0] if len(words) == 1 else torch.cat(words, dim=-1)
        return BaseModelOutputWithPooling(
            last_hidden_state=state,
            pooler_output=torch.cat(sentences, dim=-1),
            hidden_states=kept_states((first, state), wanted),
        )


class SkipThoughtForPreTraining(TaskHead, SkipThoughtPreTrainedModel, encoder=SkipThoughtModel):
    """The encoder and the decoders of the sentences around.

    Examples:
        >>> import torch
        >>> from hf_ptm_ext import SkipThoughtConfig, SkipThoughtForPreTraining
        >>> model = SkipThoughtForPreTraining(SkipThoughtConfig(vocab_size=60, embedding_size=8, gru_size=5))
        >>> ids = torch.tensor([[5, 7, 8, 3]])
        >>> model(ids, next_labels=torch.tensor([[9, 0]]), previous_labels=torch.tensor([[6, 7, 0]])).logits.shape
        torch.Size([1, 5, 60])
    """

    def __init__(self, config: SkipThoughtConfig):
        super().__init__(config)
        if config.encoder_type == "combine":
            raise ValueError(
                f"`encoder_type` must be uni or bi, got {config.encoder_type!r}: its encoders are trained one by one."
            )
        self.add_encoder(pooled=True)
        grus = [nn.GRU(config.embedding_size, config.hidden_size, batch_first=True) for _ in range(2)]
        self.decoders = nn.ModuleDict({"next": grus[0], "previous": grus[1]})
        self.output = nn.Linear(config.hidden_size, config.vocab_size)
        self.post_init()
        self.freeze()

    def get_output_embeddings(self) -> nn.Module:
        return self.output

    def set_output_embeddings(self, new_embeddings: Any) -> None:
        self.output = new_embeddings

    def forward(
        self,
        next_labels: torch.Tensor | None = None,
        previous_labels: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **inputs: Any,
    ) -> CausalLMOutput:
        """Predict the sentences around.

        Args:
            next_labels: `(batch, next_len)` words of the next sentence and one end, -100 at padding.
            previous_labels: `(batch, previous_len)` those of the previous sentence.
            num_items_in_batch: number of target words over all micro-batches of one update.
            inputs: the encoder's inputs.

        Returns:
            `loss`, -log(p + 1e-8) of both decoders as a mean over target words, and `logits` of the next, then of
            the previous sentence, `(batch, next_len + previous_len, vocab_size)`.

        Raises:
            ValueError: neither labels are given.
        """
        given = {"next": next_labels, "previous": previous_labels}
        labels = {name: value for name, value in given.items() if value is not None}
        if not labels:
            raise ValueError(
                f"`next_labels` or `previous_labels` must be given, got {given}; SkipThoughtModel needs none."
            )
        encoder = self.base_model.encoders()[0]
        texts, asked = inputs.pop("input_ids", None), inputs.pop("output_attentions", None)
        real = self.base_model.checked(texts, inputs.pop("attention_mask", None), asked, inputs)
        wanted = inputs.pop("output_hidden_states", None)
        wanted = self.config.output_hidden_states if wanted is None else wanted
        words, state, sentence = encoder(texts, real)
        hidden = kept_states((words, state), wanted)
        logits = []
        for name, targets in labels.items():
            words = encoder.word_embeddings(targets[:, :-1].clamp(min=0))
            read = nn.functional.pad(words, (0, 0, 1, 0))  # a vector of zeros first
            logits.append(self.output(self.decoders[name](read, sentence[None].contiguous())[0]))
        scores, targets = torch.cat(logits, dim=1), torch.cat(list(labels.values()), dim=1)
        chosen = scores.float().softmax(-1).gather(-1, targets.clamp(min=0)[..., None])[..., 0]
        total = -((chosen + LEAST).log() * (targets != -100)).sum()
        loss = mean_over_targets(total, targets, num_items_in_batch)
        return CausalLMOutput(loss=loss, logits=scores, hidden_states=hidden)


class SkipThoughtForSequenceClassification(
    SequenceClassificationHead, SkipThoughtPreTrainedModel, encoder=SkipThoughtModel
):
    """Skip-thought with a classification or regression head on the sentence's vector."""
