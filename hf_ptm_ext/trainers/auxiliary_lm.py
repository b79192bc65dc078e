"""SiATL's auxiliary language-model loss for any Trainer (Chronopoulou et al., NAACL 2019).

The paper adds a recurrent layer on a language model; here the model is any causal one with a head, whose next-token
logits are its last hidden states times its input embeddings. `SequentialUnfreezingCallback` is the other half.
"""

from typing import Any

import torch
from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.utils import ModelOutput

from ..objectives import annealed_weight, next_token_loss
from ..objectives.token_losses import END_WEIGHT, START_WEIGHT


class AuxiliaryLanguageModelCallback(TrainerCallback):
    """Adds the next-token loss of the text to the loss of a causal model with a head, while it is trained.

    The term is computed inside the model's forward, so it works in several processes; the output has it as `lm_loss`.
    Evaluation and the saved model are as they would be without it. As upstream's class losses are, it is a mean over
    the batch (reference: over its tokens): a Trainer that accumulates batches must know it by
    `loss_is_scaled_for_ga = False` on its class; upstream's own does not divide such means.

    Args:
        start: weight in the first epoch (reference: exp(-1.6), about 0.2).
        end: weight at the end of the annealing (reference: exp(-2.3), about 0.1).
        epochs: number of epochs in which it falls (reference: 15).

    Raises:
        ValueError: a weight or `epochs` is not positive; when training begins: the model sees later tokens, or its
            hidden states are not as wide as its embeddings.

    Examples:
        >>> callback = AuxiliaryLanguageModelCallback(epochs=3)  # Trainer(..., callbacks=[callback])
    """

    def __init__(self, start: float = START_WEIGHT, end: float = END_WEIGHT, epochs: int = 15):
        annealed_weight(0, start, end, epochs)
        self.start, self.end, self.epochs = start, end, epochs
        self.weight = start
        self._hooks: list[Any] = []
        self._states: list[torch.Tensor] = []

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Check the model and begin to add the term."""
        model = kwargs["model"]
        _check_causal(model)
        self._hooks = [
            model.base_model.register_forward_hook(self._remember_states),
            model.register_forward_hook(self._add_term, with_kwargs=True),
        ]
        self._anneal(state)

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Set the weight of this epoch."""
        self._anneal(state)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Leave the model as it was found."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def _anneal(self, state: TrainerState) -> None:
        self.weight = annealed_weight(int((state.epoch or 0.0) + 1e-6), self.start, self.end, self.epochs)

    def _remember_states(self, module: Any, inputs: Any, output: Any) -> None:
        if module.training:
            self._states = [output[0]]

    def _add_term(self, module: Any, inputs: Any, keywords: dict[str, Any], output: Any) -> Any:
        if not module.training or not self._states:
            return output
        states = self._states.pop()
        input_ids = keywords["input_ids"]
        logits = nn.functional.linear(states, module.get_input_embeddings().weight)
        lm_loss = next_token_loss(logits, input_ids, keywords.get("attention_mask"))
        if output.get("loss") is not None:
            output["loss"] = output["loss"] + self.weight * lm_loss
        # A class of outputs of its own fields could not be put together again by DistributedDataParallel.
        return ModelOutput(**output, lm_loss=lm_loss)


def _check_causal(model: Any) -> None:
    """Refuse a model for which the next token is no secret."""
    embeddings = model.get_input_embeddings()
    if not hasattr(embeddings, "weight"):
        raise ValueError(f"`model` must have one table of embeddings, {type(model).__name__} has several clusters.")
    width = embeddings.weight.shape[1]
    ids = torch.tensor([[1, 1], [1, 2]], device=embeddings.weight.device)
    training = model.training
    with torch.no_grad():
        states = model.eval().base_model(input_ids=ids)[0]
    model.train(training)
    if states.shape[-1] != width:
        raise ValueError(
            f"`model` must have hidden states as wide as its embeddings, got {states.shape[-1]} and {width}: its "
            "embeddings are the auxiliary language model's projection."
        )
    if not torch.allclose(states[0, 0], states[1, 0], atol=1e-5):
        raise ValueError(
            f"`model` must be causal, {type(model).__name__} sees the tokens that the auxiliary loss would have it "
            "predict. Take a causal model with a head, such as `GPT2ForSequenceClassification`."
        )
