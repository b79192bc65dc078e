"""MT-DNN's stochastic answer network for pairs of texts (Liu et al., ACL 2018 and 2019; namisan/mt-dnn).

Over K turns, with h the tokens of the first text, s_0 a self-attentive sum of those of the second:

    x_k = sum_j softmax_j(h_j (W s_k + b)) h_j
    p_k = softmax(V [s_k; x_k; |s_k - x_k|; s_k * x_k])
    s_(k+1) = GRU(x_k, s_k)
    p   = mean over k of p_k; in training some turns are left out, at random, but never one drawn for each pair

As in the released code the score of a turn is taken before the state is updated, and dropout is on what scores and the
GRU read, the tokens' the same at every place of a text, not on the tokens that are summed.
"""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoModel
from transformers.modeling_outputs import SequenceClassifierOutput

HEAD_FILE = "answer_head.safetensors"


class StochasticAnswerHead(nn.Module):
    """The answer network on the states of an encoder.

    Args:
        hidden_size: width of the states.
        num_labels: number of classes; 1 is regression, of which turns are averaged as they are.
        turns: K (reference: 5).
        turn_dropout: probability that a turn is left out of the mean in training (reference: 0.1).
        dropout: on what is scored (reference: 0.1).

    Raises:
        ValueError: `turns` is not positive.
    """

    def __init__(
        self, hidden_size: int, num_labels: int, turns: int = 5, turn_dropout: float = 0.1, dropout: float = 0.1
    ):
        super().__init__()
        if turns < 1:
            raise ValueError(f"`turns` must be at least 1, got {turns}.")
        self.num_labels, self.turns, self.turn_dropout = num_labels, turns, turn_dropout
        self.dropout = nn.Dropout(dropout)
        self.query = nn.Linear(hidden_size, 1)
        self.attention = nn.Linear(hidden_size, hidden_size)
        self.score = nn.Linear(4 * hidden_size, num_labels)
        self.update = nn.GRUCell(hidden_size, hidden_size)

    def forward(
        self,
        states: torch.Tensor,
        first: torch.Tensor,
        second: torch.Tensor,
    ) -> torch.Tensor:
        """Answer for each pair.

        Args:
            states: `(batch, seq_len, hidden)`.
            first: which tokens are the first text's, bool `(batch, seq_len)`.
            second: which are the second text's, bool `(batch, seq_len)`.

        Returns:
            Logarithms of the mean probabilities, `(batch, num_labels)`, which are logits; for one label the mean.
        """
        dropped = self._drop_tokens(states)
        state = _weighted_sum(self.query(dropped).squeeze(-1), second, dropped)
        answers = []
        for _ in range(self.turns):
            asked = self.attention(self.dropout(state))
            found = _weighted_sum(torch.einsum("bh,bsh->bs", asked, self._drop_tokens(states)), first, states)
            features = torch.cat([state, found, (state - found).abs(), state * found], dim=-1)
            answers.append(self.score(self.dropout(features)).float())
            state = self.update(found, self.dropout(state))
        scores = torch.stack(answers)
        keep = self._kept_turns(scores)
        if self.num_labels == 1:
            return (scores * keep).sum(0) / keep.sum(0)
        # log of the mean of probabilities, without leaving the logarithms
        kept = scores.log_softmax(-1).masked_fill(keep == 0, torch.finfo(scores.dtype).min)
        return kept.logsumexp(0) - keep.sum(0).log()

    def _drop_tokens(self, states: torch.Tensor) -> torch.Tensor:
        """Dropout of the same features in all tokens of a text."""
        return states * self.dropout(torch.ones_like(states[:, :1]))

    def _kept_turns(self, scores: torch.Tensor) -> torch.Tensor:
        """1 for each turn and text that counts, `(turns, batch, 1)`; one that is drawn always does."""
        keep = torch.ones_like(scores[..., :1])
        if not self.training or not self.turn_dropout:
            return keep
        keep = (torch.rand_like(keep) >= self.turn_dropout).to(keep.dtype)
        drawn = torch.randint(self.turns, keep.shape[1:], device=keep.device)
        return keep.scatter(0, drawn[None], 1.0)


def _weighted_sum(scores: torch.Tensor, mask: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
    """Sum of the states under a softmax of the scores over the tokens of the mask, `(batch, hidden)`."""
    weights = scores.float().masked_fill(~mask, torch.finfo(torch.float32).min).softmax(-1).to(states.dtype)
    return torch.einsum("bs,bsh->bh", weights * mask, states)


class StochasticAnswerClassifier(nn.Module):
    """An encoder with the answer network: a task's model for pairs, to be trained in a `MultiTaskModel`.

    The texts are told apart by `token_type_ids`.

    Args:
        encoder: a base model, such as upstream's `BertModel`.
        num_labels: number of classes, or 1 for regression.
        head_options: further arguments of `StochasticAnswerHead`.

    Raises:
        ValueError: the encoder knows no second segment.

    Example:
        >>> from transformers import BertConfig, BertModel
        >>> config = BertConfig(
        ...     vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
        ... )
        >>> model = StochasticAnswerClassifier(BertModel(config), num_labels=3)
        >>> ids, segments = torch.tensor([[2, 5, 3, 6, 3]]), torch.tensor([[0, 0, 0, 1, 1]])
        >>> model(input_ids=ids, token_type_ids=segments, labels=torch.tensor([1])).logits.shape
        torch.Size([1, 3])
    """

    base_model_prefix = "encoder"

    def __init__(self, encoder: nn.Module, num_labels: int, **head_options: Any):
        super().__init__()
        if (getattr(encoder.config, "type_vocab_size", 0) or 0) < 2:
            raise ValueError(
                "`encoder` must have two segments (`type_vocab_size` of 2), by which the answer network tells the "
                f"texts of a pair apart; {type(encoder).__name__} has not."
            )
        self.encoder = encoder
        self.num_labels, self.head_options = num_labels, head_options
        self.classifier = StochasticAnswerHead(encoder.config.hidden_size, num_labels, **head_options)

    @property
    def config(self) -> Any:
        """The encoder's configuration."""
        return self.encoder.config

    @property
    def base_model(self) -> nn.Module:
        """The encoder."""
        return self.encoder

    def get_input_embeddings(self) -> nn.Module:
        """The encoder's word embeddings.

        Returns:
            The module.
        """
        return self.encoder.get_input_embeddings()

    def save_pretrained(self, folder: str | Path, state_dict: dict[str, torch.Tensor] | None = None) -> None:
        """Write the encoder as a plain checkpoint, and the answer network beside it.

        Args:
            folder: where to.
            state_dict: tensors to write instead of the model's own.
        """
        state = self.state_dict() if state_dict is None else state_dict
        parts: dict[str, dict[str, torch.Tensor]] = {"encoder": {}, "classifier": {}}
        for name, value in state.items():
            part, _, rest = name.partition(".")
            parts[part][rest] = value.detach().cpu().contiguous()
        self.encoder.save_pretrained(folder, state_dict=parts["encoder"])
        partial = Path(folder) / f"{HEAD_FILE}.partial"
        options = {name: json.dumps(value) for name, value in self.head_options.items()}
        save_file(parts["classifier"], str(partial), metadata={"num_labels": str(self.num_labels), **options})
        partial.replace(Path(folder) / HEAD_FILE)

    @classmethod
    def from_pretrained(cls, folder: str | Path, **kwargs: Any) -> "StochasticAnswerClassifier":
        """Read what `save_pretrained` wrote.

        Args:
            folder: where from.
            kwargs: for `AutoModel.from_pretrained`.

        Returns:
            The model, in evaluation mode.

        Raises:
            ValueError: the folder has no answer network.
        """
        path = Path(folder) / HEAD_FILE
        if not path.is_file():
            raise ValueError(f"`folder` = {folder} has no {HEAD_FILE}: it was not saved from such a model.")
        with safe_open(str(path), framework="pt") as file:
            options = {name: json.loads(value) for name, value in file.metadata().items()}
        model = cls(AutoModel.from_pretrained(folder, **kwargs), options.pop("num_labels"), **options)
        model.classifier.load_state_dict(load_file(str(path)))
        return model.eval()

    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
    ) -> SequenceClassifierOutput:
        """Classify pairs.

        Args:
            input_ids: `(batch, seq_len)`.
            attention_mask: `(batch, seq_len)`.
            token_type_ids: 0 = first text, 1 = second, `(batch, seq_len)`.
            labels: classes, or numbers for regression, `(batch,)`.
            inputs_embeds: `(batch, seq_len, hidden)` instead of ids.

        Returns:
            `loss` if there are labels, and `logits` `(batch, num_labels)`.

        Raises:
            ValueError: a row has no second text.
        """
        if token_type_ids is None or not bool((token_type_ids == 1).any(dim=-1).all()):
            raise ValueError("`token_type_ids` must mark a second text by 1 in every row: the task is on pairs.")
        states = self.encoder(
            input_ids=input_ids,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
            inputs_embeds=inputs_embeds,
        )[0]
        real = torch.ones_like(token_type_ids) if attention_mask is None else attention_mask
        logits = self.classifier(states, (token_type_ids == 0) & real.bool(), (token_type_ids == 1) & real.bool())
        loss = None
        if labels is not None and self.num_labels == 1:
            loss = nn.functional.mse_loss(logits.squeeze(-1), labels.float())
        elif labels is not None:
            loss = nn.functional.cross_entropy(logits, labels)
        return SequenceClassifierOutput(loss=loss, logits=logits)


__all__ = ["StochasticAnswerClassifier", "StochasticAnswerHead"]
