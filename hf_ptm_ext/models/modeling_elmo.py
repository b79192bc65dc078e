"""ELMo (Peters et al., NAACL 2018, https://arxiv.org/abs/1802.05365; allenai/bilm-tf and allenai/allennlp).

    word vector x = W [max over time of each convolution over its characters], through highways
    i, g, f, o = W [x_t; h_(t-1)] + b      c = clip(sig(i) tanh(g) + sig(f + 1) c)      h = clip(P (sig(o) tanh(c)))

One language model reads forwards and one backwards; they share the word vectors and the softmax. Sentences are put
between `<S>` and `</S>` inside the model. Both directions run as one batch, on real words alone: padding on either
side changes nothing. Weights keep the original's order of gates, and its forget bias is added when they are used.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import initialization as init
from transformers.activations import ACT2FN
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils import ModelOutput
from transformers.utils.generic import can_return_tuple

from .characters_elmo import BEGIN_SENTENCE, BEGIN_WORD, BEHIND_WORD, CHARACTERS, END_SENTENCE, END_WORD
from .composite_core import kept_states
from .configuration_elmo import AUTO_MAP, HF_PTM_EXT_VERSION, ElmoConfig
from .losses_core import share_of_update, summed_cross_entropy, target_sums
from .recurrent_core import RecurrentPreTrainedModel, masked_mean, reading_of, rearranged
from .task_heads_core import SequenceClassificationHead, TaskHead, TokenClassificationHead

FORGET_BIAS = 1.0
# A new highway passes its input on: sig(-2) = 0.12.
CARRY_BIAS = -2.0

States = list[tuple[torch.Tensor, ...]]


class ElmoLinear(nn.Linear):
    """A projection whose new weights are normal with 1 / sqrt(inputs), and whose biases begin at `first_bias`."""

    def __init__(self, inputs: int, outputs: int, first_bias: float = 0.0):
        super().__init__(inputs, outputs)
        self.first_bias = first_bias


class ElmoHighway(nn.Module):
    """g relu(transform x) + (1 - g) x, where g = sigmoid(carry x): the original's carry gate lets the transform
    through.
    """

    def __init__(self, width: int):
        super().__init__()
        self.transform, self.carry = ElmoLinear(width, width), ElmoLinear(width, width, CARRY_BIAS)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        gate = self.carry(states).sigmoid()
        return gate * self.transform(states).relu() + (1 - gate) * states


class CharCNNEmbeddings(nn.Module):
    """Word vectors of characters, also for models of your own.

    Args:
        config: an `ElmoConfig`, of which sizes and activation of the character network are read.

    Examples:
        >>> import torch
        >>> from hf_ptm_ext import CharCNNEmbeddings, ElmoConfig
        >>> embeddings = CharCNNEmbeddings(ElmoConfig(filters=[[1, 4], [2, 8]], projection_dim=16))
        >>> embeddings(torch.ones(1, 5, 50, dtype=torch.long)).shape
        torch.Size([1, 5, 16])
    """

    def __init__(self, config: ElmoConfig):
        super().__init__()
        self.characters = nn.Embedding(CHARACTERS, config.char_embedding_dim, padding_idx=0)
        sizes = [(number, width) for width, number in config.filters]
        self.convolutions = nn.ModuleList(nn.Conv1d(config.char_embedding_dim, *size) for size in sizes)
        self.activation = ACT2FN[config.activation]
        total = sum(number for number, _ in sizes)
        self.highways = nn.ModuleList(ElmoHighway(total) for _ in range(config.n_highway))
        self.projection = ElmoLinear(total, config.projection_dim)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Read words.

        Args:
            input_ids: `(batch, seq_len, max_characters_per_token)` ids of characters, as `ElmoTokenizer` makes them.

        Returns:
            `(batch, seq_len, projection_dim)`.
        """
        characters = self.characters(input_ids.flatten(0, 1)).transpose(1, 2)
        found = [self.activation(convolution(characters).amax(-1)) for convolution in self.convolutions]
        words = torch.cat(found, dim=-1)
        for highway in self.highways:
            words = highway(words)
        return self.projection(words).unflatten(0, input_ids.shape[:2])


class ElmoCell(nn.Module):
    """The weights of one direction of an LSTM layer, in the original's order of gates."""

    def __init__(self, config: ElmoConfig):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(4 * config.cell_size, 2 * config.projection_dim))
        self.bias = nn.Parameter(torch.zeros(4 * config.cell_size))
        self.projection = nn.Parameter(torch.zeros(config.projection_dim, config.cell_size))


class ElmoLayer(nn.Module):
    """An LSTM layer of both directions."""

    def __init__(self, config: ElmoConfig):
        super().__init__()
        self.forward_cell, self.backward_cell = ElmoCell(config), ElmoCell(config)
        self.width, self.cell_size = config.projection_dim, config.cell_size
        self.cell_clip, self.proj_clip = config.cell_clip or None, config.proj_clip or None

    def both(self, name: str) -> torch.Tensor:
        """A weight of both directions."""
        return torch.stack([getattr(cell, name) for cell in (self.forward_cell, self.backward_cell)])

    def forward(
        self, words: torch.Tensor, real: torch.Tensor, states: tuple[torch.Tensor, ...] | None
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        """`(2, batch, seq_len, width)` to the same; states stay as they are where no word is."""
        weight, projection, size = self.both("weight"), self.both("projection").mT, self.cell_size
        one = torch.ones(size, dtype=words.dtype, device=words.device)
        bias = self.both("bias") + FORGET_BIAS * torch.cat([0 * one, 0 * one, one, 0 * one])
        flat = words.flatten(1, 2) @ weight[..., : self.width].mT + bias[:, None]
        inputs = flat.unflatten(1, words.shape[1:3]).unbind(2)
        recurrent = weight[..., self.width :].mT
        if states is None:
            state, memory = words.new_zeros(*words.shape[:2], self.width), words.new_zeros(*words.shape[:2], size)
        else:
            state, memory = states
        found = []
        for gates, here in zip(inputs, real[:, :, None].unbind(1), strict=True):
            let_in, content, forget, out = torch.baddbmm(gates, state, recurrent).chunk(4, dim=-1)
            new = let_in.sigmoid() * content.tanh() + forget.sigmoid() * memory
            new = new if self.cell_clip is None else new.clamp(-self.cell_clip, self.cell_clip)
            output = torch.bmm(out.sigmoid() * new.tanh(), projection)
            output = output if self.proj_clip is None else output.clamp(-self.proj_clip, self.proj_clip)
            state, memory = torch.where(here, output, state), torch.where(here, new, memory)
            found.append(output * here)
        return torch.stack(found, dim=2), (state, memory)


class ElmoEncoder(nn.Module):
    """The language models of both directions."""

    def __init__(self, config: ElmoConfig):
        super().__init__()
        self.layers = nn.ModuleList(ElmoLayer(config) for _ in range(config.n_layers))
        self.dropout = nn.Dropout(config.dropout)
        self.residual = config.use_skip_connections

    def forward(
        self, words: torch.Tensor, real: torch.Tensor, states: States | None = None
    ) -> tuple[list[torch.Tensor], States]:
        """States `(batch, seq_len, 2 * width)` of every layer, word vectors first, and where each layer ended."""
        turned = reading_of(real).turned
        current = torch.stack([words, rearranged(words, turned)])
        found, ends = [torch.cat([words, words], dim=-1) * real[..., None]], []
        for number, layer in enumerate(self.layers):
            dropped = self.dropout(current)
            current, end = layer(dropped, real, None if states is None else states[number])
            if number and self.residual:
                current = current + dropped
            ends.append(end)
            ahead, back = current.unbind(0)
            found.append(torch.cat([ahead, rearranged(back, turned)], dim=-1) * real[..., None])
        return found, ends


class ElmoPreTrainedModel(RecurrentPreTrainedModel):
    """Loading, saving and initialisation shared by all ELMo classes."""

    config: ElmoConfig
    config_class = ElmoConfig
    base_model_prefix = "elmo"
    _no_split_modules = ["CharCNNEmbeddings", "ElmoLayer"]
    _auto_map = AUTO_MAP
    _code_version = HF_PTM_EXT_VERSION
    _layer_stacks = ("encoder.layers",)
    _prediction_heads = {"softmax": "softmax over words"}
    _example_sizes = "vocab_size=60, filters=[[1, 8], [2, 8]], cell_size=24, projection_dim=16"

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """As bilm-tf: TensorFlow's defaults for LSTMs, and what it says for the rest."""
        super()._init_weights(module)
        if isinstance(module, ElmoCell):
            for weight in (module.weight, module.projection):
                init.xavier_uniform_(weight)
            init.zeros_(module.bias)
        elif isinstance(module, ElmoLinear):
            init.normal_(module.weight, std=module.in_features**-0.5)
            init.constant_(module.bias, module.first_bias)
        elif isinstance(module, nn.Embedding):
            init.uniform_(module.weight, -1.0, 1.0)
            if not getattr(module.weight, "_is_hf_initialized", False):
                module.weight[0] = 0.0
        elif isinstance(module, nn.Conv1d):
            if self.config.activation == "relu":
                init.uniform_(module.weight, -0.05, 0.05)
            else:
                init.normal_(module.weight, std=module.weight[0].numel() ** -0.5)
            init.zeros_(module.get_parameter("bias"))

    def get_input_embeddings(self) -> nn.Module:
        return self.base_model.embeddings.characters

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.base_model.embeddings.characters = value

    def resize_token_embeddings(self, new_num_tokens: int | None = None, *args: Any, **kwargs: Any) -> nn.Embedding:
        """Refused: words are made of characters, and the words of the softmax are those that it was trained with."""
        raise ValueError(
            f"An ELMo has {CHARACTERS} characters, bytes and marks, and reads every word, got `new_num_tokens` = "
            f"{new_num_tokens}: leave the tokenizer's words as they are."
        )


class ElmoModel(ElmoPreTrainedModel):
    """The word vectors and the states of both language models.

    Examples:
        >>> import torch
        >>> from hf_ptm_ext import ElmoConfig, ElmoModel, ElmoTokenizer
        >>> model = ElmoModel(ElmoConfig(filters=[[1, 8], [2, 8]], cell_size=24, projection_dim=16)).eval()
        >>> output = model(**ElmoTokenizer()(["The cat sat .", "Hello"], return_tensors="pt", padding=True))
        >>> output.last_hidden_state.shape
        torch.Size([2, 4, 32])
    """

    def __init__(self, config: ElmoConfig):
        super().__init__(config)
        self.embeddings = CharCNNEmbeddings(config)
        self.encoder = ElmoEncoder(config)
        self.states: States | None = None
        self.post_init()

    def reset_states(self) -> None:
        """Begin anew, of a model with `config.stateful`: the next batch follows on none."""
        self.states = None

    def real_words(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None) -> torch.Tensor:
        """Which positions are words, as bool: those that the mask says, else those with a character."""
        return self.real_tokens(input_ids, (input_ids > 0).any(-1) if attention_mask is None else attention_mask)

    def bounded(self, input_ids: torch.Tensor, real: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Words between `<S>` and `</S>`, at the front of rows of two more words, and which of them are there."""
        reading = reading_of(real)
        room = torch.full_like(input_ids[:, :1], BEHIND_WORD)
        room[..., 0], room[..., 2] = BEGIN_WORD, END_WORD
        begin, end = room.clone(), room
        begin[..., 1], end[..., 1] = BEGIN_SENTENCE, END_SENTENCE
        words = torch.cat([begin, rearranged(input_ids, reading.first), 0 * end], dim=1)
        places = torch.arange(words.shape[1], device=words.device)[None]
        words = torch.where((places == reading.lengths + 1)[..., None], end, words)
        there = places < reading.lengths + 2
        return words * there[..., None], there

    def _carried(self, batch: int, like: torch.Tensor) -> States | None:
        """The states of the batch before for as many rows; new rows begin with zeros."""
        if self.states is None:
            return None
        pad = nn.functional.pad
        return [
            tuple(pad(one[:, :batch], (0, 0, 0, max(batch - one.shape[1], 0))).to(like) for one in pair)
            for pair in self.states
        ]

    def _carry(self, ends: States) -> None:
        """Remember where each row ended; rows that this batch lacked stay as they were."""
        pairs = [zip(*both, strict=True) for both in zip(ends, self.states or ends, strict=True)]
        self.states = [
            tuple(torch.cat([end.detach(), kept[:, end.shape[1] :].to(end)], dim=1) for end, kept in pair)
            for pair in pairs
        ]

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        keep_boundaries: bool = False,
        output_hidden_states: bool | int | list[int] | None = None,
        output_attentions: bool | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPooling:
        """Encode.

        Args:
            input_ids: `(batch, seq_len, max_characters_per_token)` ids of characters (`ElmoTokenizer`), 0 = padding.
            attention_mask: `(batch, seq_len)`, 1 real and 0 padding, on either side (default: words without
                a character are padding).
            keep_boundaries: whether states are those of `(batch, seq_len + 2)` words with `<S>` and `</S>`, each row
                at its front, as AllenNLP has them inside (default: of the words given, at their places).
            output_hidden_states: whether the word vectors (twice side by side) and every layer's states are returned,
                or which of them (default: the configuration's).
            output_attentions: refused: nothing attends here.
            kwargs: `return_dict` as upstream; others are refused.

        Returns:
            `last_hidden_state` `(batch, seq_len, 2 * projection_dim)`, forwards and backwards side by side, 0 at
            padding, and `pooler_output`, their mean over a row's words, `(batch, 2 * projection_dim)`.

        Raises:
            ValueError: no `input_ids` or none of characters, a mask that is not of words, or attentions are asked for.
            TypeError: a keyword argument that nothing reads, a misspelt name say.
        """
        width = self.config.max_characters_per_token
        if input_ids is None or input_ids.dim() != 3 or input_ids.shape[-1] != width:
            got = None if input_ids is None else tuple(input_ids.shape)
            raise ValueError(
                f"`input_ids` must be ids of characters, (batch, seq_len, {width}), as `ElmoTokenizer` makes them, "
                f"got {got}."
            )
        if attention_mask is None:
            attention_mask = (input_ids > 0).any(-1)
        real = self.checked(input_ids, attention_mask, output_attentions, kwargs)
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        ids, there = self.bounded(input_ids, real)
        words = self.embeddings(ids)
        states, ends = self.encoder(words, there, self._carried(len(ids), words) if self.config.stateful else None)
        if self.config.stateful:
            self._carry(ends)
        mask = there
        if not keep_boundaries:
            states, mask = [self.without_boundaries(state, real) for state in states], real
        return BaseModelOutputWithPooling(
            last_hidden_state=states[-1],
            pooler_output=masked_mean(states[-1], mask),
            hidden_states=kept_states(states, output_hidden_states),
        )

    def without_boundaries(self, states: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
        """States of the given words, at their places, from those with `<S>` and `</S>`."""
        inner = rearranged(states[:, 1:-1], reading_of(real).back)
        return inner * real[..., None].to(inner.dtype)


@dataclass
class ElmoForPreTrainingOutput(ModelOutput):
    """What the language models of both directions say.

    Args:
        loss: the mean of both directions' cross entropies.
        forward_loss: cross entropy of each word, and of `</S>`, given the words before it.
        backward_loss: cross entropy of each word, and of `<S>`, given the words behind it.
        forward_logits: `(batch, seq_len, vocab_size)` of each word from those before it.
        backward_logits: `(batch, seq_len, vocab_size)` of each word from those behind it.
        hidden_states: as in `ElmoModel`.
    """

    loss: torch.Tensor | None = None
    forward_loss: torch.Tensor | None = None
    backward_loss: torch.Tensor | None = None
    forward_logits: torch.Tensor | None = None
    backward_logits: torch.Tensor | None = None
    hidden_states: tuple[torch.Tensor, ...] | None = None


class ElmoForPreTraining(TaskHead, ElmoPreTrainedModel, encoder=ElmoModel, columns=("input_ids", "attention_mask")):
    """Language models of both directions with one softmax over words, sampled in training (log-uniform, so words must
    be numbered from the most frequent on), over all words in evaluation.

    Examples:
        >>> import torch
        >>> from hf_ptm_ext import ElmoConfig, ElmoForPreTraining
        >>> config = ElmoConfig(vocab_size=60, filters=[[1, 8], [2, 8]], cell_size=24, projection_dim=16)
        >>> model = ElmoForPreTraining(config).eval()
        >>> ids = torch.randint(1, 262, (2, 4, 50))
        >>> model(ids, labels=torch.tensor([[4, 5, 6, 7], [8, 9, 4, 5]])).loss.shape, model(ids).forward_logits.shape
        (torch.Size([]), torch.Size([2, 4, 60]))
    """

    loss_weights = {"forward": 0.5, "backward": 0.5}

    def __init__(self, config: ElmoConfig):
        super().__init__(config)
        self.add_encoder(pooled=False)
        self.dropout = nn.Dropout(config.dropout)
        self.softmax = ElmoLinear(config.projection_dim, config.vocab_size)
        self.post_init()

    def get_output_embeddings(self) -> nn.Module:
        return self.softmax

    @staticmethod
    def count_targets(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Targets of each direction: a row's words and one end."""
        return {"words": (batch["labels"] != -100).sum() + len(batch["labels"])}

    def predicted(self, labels: torch.Tensor, real: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """What the states of `<S>` and the words predict forwards, and those of the words and `</S>` backwards."""
        reading = reading_of(real)
        words = labels.masked_fill(~real, -100).gather(1, reading.first)
        places = torch.arange(words.shape[1] + 1, device=words.device)[None]
        ahead = nn.functional.pad(words, (0, 1), value=-100)
        ahead = ahead.masked_fill(places == reading.lengths, self.config.eos_token_id)  # type: ignore[arg-type]
        return ahead, nn.functional.pad(words, (1, 0), value=self.config.bos_token_id)

    def forward(
        self,
        labels: torch.Tensor | None = None,
        target_counts: dict[str, torch.Tensor] | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **inputs: Any,
    ) -> ElmoForPreTrainingOutput:
        """Predict words from those before, and from those behind.

        Args:
            labels: `(batch, seq_len)` ids of the words in the softmax' vocabulary, -100 ignored.
            target_counts: targets of a direction over all micro-batches of an update; `PtmTrainer` passes it.
            num_items_in_batch: number of labels over all micro-batches of one update, for other Trainers.
            inputs: as in `ElmoModel`, without `keep_boundaries`.

        Returns:
            Losses with labels, else logits of each word from both sides.
        """
        outputs = self.encode(**inputs, keep_boundaries=True)
        states = self.dropout(outputs.last_hidden_state)
        ahead, back = states.chunk(2, dim=-1)
        real = self.elmo.real_words(inputs["input_ids"], inputs.get("attention_mask"))
        if labels is None:
            places = reading_of(real).back
            forwards, backwards = rearranged(ahead[:, :-2], places), rearranged(back[:, 2:], places)
            logits = {"forward_logits": self.softmax(forwards), "backward_logits": self.softmax(backwards)}
            return ElmoForPreTrainingOutput(**logits, hidden_states=outputs.hidden_states)
        targets = torch.stack(self.predicted(labels, real))
        sums = self.loss_sums(torch.stack([ahead[:, :-1], back[:, 1:]]), targets)
        own = (targets != -100).flatten(1).sum(1).clamp(min=1)
        if target_counts is not None:
            losses = sums / target_counts["words"].to(sums.device).clamp(min=1)
        else:
            losses = sums / own
            if num_items_in_batch is not None:
                losses = losses * share_of_update((labels != -100).sum(), num_items_in_batch)
        return ElmoForPreTrainingOutput(losses.mean(), losses[0], losses[1], hidden_states=outputs.hidden_states)

    def loss_sums(self, states: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Summed cross entropies of both directions, of a sample of the words in training."""
        number, words = self.config.n_negative_samples_batch, self.config.vocab_size
        if not self.training or not 0 < number < words:
            return torch.stack(
                [
                    summed_cross_entropy(self.softmax(one).flatten(0, 1), wanted.flatten())
                    for one, wanted in zip(states.unbind(), targets.unbind(), strict=True)
                ]
            )
        sampled, expected = log_uniform_sample(number, words, targets.device)
        chosen = targets.clamp(min=0)
        weight, bias = self.softmax.weight, self.softmax.bias
        own = (states * weight[chosen]).sum(-1) + bias[chosen] - expected[chosen].log()
        others = nn.functional.linear(states, weight[sampled], bias[sampled]) - expected[sampled].log()
        others = others.masked_fill(chosen[..., None] == sampled, torch.finfo(others.dtype).min)
        losses = torch.cat([own[..., None], others], dim=-1).float().logsumexp(-1) - own.float()
        return losses.masked_fill(targets == -100, 0.0).flatten(1).sum(1)

    def evaluation_sums(self, labels: torch.Tensor, **inputs: Any) -> dict[str, torch.Tensor]:
        """Cross entropy, right words and targets of each direction, without the logits of a batch in memory."""
        states = self.encode(**inputs, keep_boundaries=True).last_hidden_state
        ahead, back = states.chunk(2, dim=-1)
        wanted = self.predicted(labels, self.elmo.real_words(inputs["input_ids"], inputs.get("attention_mask")))
        found = {}
        for name, one, targets in zip(("forward", "backward"), (ahead[:, :-1], back[:, 1:]), wanted, strict=True):
            there = targets != -100
            found[name] = target_sums(self.softmax, one[there], targets[there])
        return found


def log_uniform_sample(number: int, words: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Different words, by P(k) = log((k + 2) / (k + 1)) / log(words + 1), and how often each word was to be expected.

    Each word has an exponential clock of its rate; the first `number` to ring are drawn, and a word was to be expected
    with 1 - exp(-rate * the next ring), TensorFlow's formula with that ring for its number of tries.
    """
    ranks = torch.arange(1, words + 1, device=device, dtype=torch.float32)
    rates = torch.log1p(1 / ranks) / torch.log(torch.tensor(words + 1.0, device=device))
    rings = torch.empty_like(rates).exponential_() / rates
    first, chosen = rings.topk(number + 1, largest=False)
    return chosen[:-1], -torch.expm1(-rates * first[-1])


class ElmoForSequenceClassification(SequenceClassificationHead, ElmoPreTrainedModel, encoder=ElmoModel):
    """A class for a text, from the mean of the top layer; for a mixture of layers see `WeightedLayersModel`."""

    _example = """
        >>> model(torch.randint(1, 262, (2, 4, 50)), labels=torch.tensor([2, 0])).logits.shape
        torch.Size([2, 3])
    """


class ElmoForTokenClassification(TokenClassificationHead, ElmoPreTrainedModel, encoder=ElmoModel):
    """A class for every word."""

    _example = """
        >>> model(torch.randint(1, 262, (1, 4, 50)), labels=torch.tensor([[-100, 0, 2, -100]])).logits.shape
        torch.Size([1, 4, 3])
    """
