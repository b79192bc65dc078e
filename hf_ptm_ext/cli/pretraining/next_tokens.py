"""The objective of language models with a state: the next token of streams of text, batch after batch."""

from itertools import chain, islice
from typing import Any

import numpy as np
from tokenizers.processors import TemplateProcessing
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from ...collators import DataCollatorForBackpropagationThroughTime
from ...data import ContiguousStreams, encode_documents
from ...metrics import UnigramBaseline
from ...models.tokenization_awd_lstm import AwdLstmTokenizer
from ...trainers import BpttTrainer
from ..console import bar
from ..pretrain_data import Documents, Rows
from .base import Objective


class CausalLM(Objective):
    """Each token is predicted from those before it; the state of a batch goes on in the next one."""

    name, family, term = "causal_lm", "awd_lstm", "lm"
    description = "Trained by hf-ptm-ext as a language model whose state is carried from batch to batch."
    template = None
    head = "a language-model head"
    pipeline_tag = "text-generation"
    terms = {"lm": "next tokens"}
    trainer_class = BpttTrainer
    given = ()

    def check(self) -> None:
        """Refuse what streams of text have not."""
        super().check()
        data = self.data_args
        for name, value in (("pack_rows", data.pack_rows), ("streaming", data.streaming)):
            if value:
                raise ValueError(f"`{name}` must be off with objective {self.name}, got {value}.")
        for name in ("max_train_rows", "corpus_weights", "extend_vocabulary"):
            if getattr(data, name) is not None:
                raise ValueError(f"`{name}` is nothing of objective {self.name}, got {getattr(data, name)}.")

    def train_tokenizer(self, documents: Any) -> Any:
        """fastai's tokenizer for an AWD-LSTM, word pieces for others."""
        if self.model_args.family != "awd_lstm":
            trained = super().train_tokenizer(documents)
            backend, mark = trained.backend_tokenizer, trained.cls_token
            # One mark in front of each text is the end of the one before too, as GPT-2's.
            backend.post_processor = TemplateProcessing(f"{mark} $A", special_tokens=[(mark, trained.cls_token_id)])
            marks = {
                "bos_token": mark,
                "eos_token": mark,
                "unk_token": trained.unk_token,
                "pad_token": trained.pad_token,
            }
            inputs = ["input_ids", "attention_mask"]
            return PreTrainedTokenizerFast(tokenizer_object=backend, model_input_names=inputs, **marks)
        texts = ("\n".join(document) for document in documents)
        return AwdLstmTokenizer.train(texts, max_vocab=self.data_args.vocab_size)

    def load(self) -> Any:
        """A checkpoint or a new model."""
        model = self.upstream(AutoModelForCausalLM)
        if getattr(model, "carried_state", None) is None:
            raise ValueError(
                f"Objective {self.name} trains models that carry a state (awd_lstm, transfo_xl), got "
                f"{type(model).__name__}. Transformers without one are trained by transformers' own Trainer."
            )
        return model

    def streams(self, documents: Any, batch_size: int, seed: int, **options: Any) -> ContiguousStreams:
        """The streams of a batch, special tokens around each document."""
        encoded = encode_documents(bar(documents, "documents"), self.tokenizer)
        rows = (self.specials.single([*chain.from_iterable(document)])["input_ids"] for document in encoded)
        length = self.data_args.max_seq_length
        return ContiguousStreams(rows, batch_size, length, seed=seed, **options)

    def rows(self, documents: Any, seed: int) -> Any:
        """One stream of all documents, to be looked at."""
        return self.streams(documents, 1, seed)

    def own_rows(self, documents: Documents, args: Any) -> Rows:
        """Streams of the training text, drawn in another order each epoch, and of the held-out text."""
        options = {"variable": self.options.variable_lengths, "shuffle": True}
        train = self.streams(documents, args.per_device_train_batch_size * args.world_size, args.seed, **options)
        evaluation = None
        if documents.evaluation is not None:
            held_out = islice(documents.evaluation, self.data_args.max_eval_rows)
            evaluation = self.streams(held_out, args.per_device_eval_batch_size * args.world_size, args.seed)
        counted = (train[row]["labels"][train[row]["labels"] >= 0] for row in range(len(train)))
        return Rows(train, evaluation, UnigramBaseline.from_rows(counted, len(self.tokenizer), set()))

    def collator(self, seed: int, counts: Any, fixed_shapes: bool = False) -> Any:
        """One segment of every stream."""
        return DataCollatorForBackpropagationThroughTime()

    def alike(self, rows: Any) -> Any:
        """Rows of one segment."""
        return [rows[:1]]

    def trainer(self, **options: Any) -> Any:
        """The Trainer; rates follow lengths that vary."""
        return self.trainer_class(**options, scale_learning_rate=self.options.variable_lengths)

    def baselines(self, trainer: Any, rows: Any) -> dict[str, float]:
        """What the majority token and the unigrams reach on the held-out text."""
        targets = np.concatenate([batch["shift_labels"].numpy().ravel() for batch in trainer.get_eval_dataloader()])
        targets = targets[targets >= 0]
        accuracy, loss = rows.baseline.accuracy(targets), rows.baseline.cross_entropy(targets)
        return {"baseline_lm_accuracy": accuracy, "baseline_lm_loss": loss}
