"""Models and tokenizers of `hf-ptm-ext finetune`: any encoder as it is, or any BERT as a K-BERT."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import transformers
from transformers import AutoConfig

from .checkpoint_names import load_tokenizer, tokenizer_of
from .finetune_arguments import FinetuneModelArguments, KnowledgeGraphArguments
from .loading import load_model, own_classes, with_order_of

WITH, WITHOUT, TEXT_ONLY = "with kg", "kg=None", "fine-tuned"
READ_AS_KBERT = ("bert", "kbert")


class Encoder:
    """The checkpoint that is fine-tuned, with the knowledge that goes with it.

    Its `task` has the labels in the checkpoint's order, if they are the same.

    Args:
        task: its labels and its head.
        model_args: which checkpoint.
        knowledge_args: which graphs, and what is taken from them.

    Raises:
        ValueError: graphs are named and the checkpoint is no BERT, or the tokenizer does not fit the task.
    """

    def __init__(self, task: Any, model_args: FinetuneModelArguments, knowledge_args: KnowledgeGraphArguments):
        self.name, self.knowledge = model_args.model_name_or_path, knowledge_args
        self.arguments = model_args
        self.source = {"revision": model_args.model_revision, "trust_remote_code": model_args.trust_remote_code}
        config = AutoConfig.from_pretrained(self.name, **self.source)
        self.task, self.classes = with_order_of(task, config), own_classes(config)
        model_type = config.model_type
        if knowledge_args.kg and model_type not in READ_AS_KBERT:
            raise ValueError(
                f"`kg` needs a checkpoint that reads as a K-BERT ({', '.join(READ_AS_KBERT)}), got a {model_type}. "
                "Name such a one, or leave the graphs out."
            )

    @cached_property
    def tokenizer(self) -> Any:
        """The tokenizer, with its graph if there is one."""
        tokenizer = self._knowledge_tokenizer() if self.knowledge.kg else load_tokenizer(self.arguments)
        if self.task.name != "tagging":
            return tokenizer
        if not tokenizer.is_fast:
            raise ValueError(
                "`task` = tagging needs a fast tokenizer, which tells the word of each token, got "
                f"{type(tokenizer).__name__}."
            )
        # Byte-level pieces of a word need the blank before it.
        if "ByteLevel" in repr(tokenizer.backend_tokenizer.pre_tokenizer) and not tokenizer.add_prefix_space:
            tokenizer = tokenizer_of(self.name, "model_name_or_path", add_prefix_space=True, **self.source)
        return tokenizer

    def _knowledge_tokenizer(self) -> Any:
        from ..models.kbert.tokenization_kbert import KBertTokenizer, KnowledgeGraph

        predicate = self.knowledge.use_predicate
        return KBertTokenizer.from_pretrained(
            self.name,
            revision=self.source["revision"],
            kg=KnowledgeGraph.from_files(*(self.knowledge.kg or ()), encoding=self.knowledge.kg_encoding),
            max_entities=self.knowledge.max_entities,
            use_predicate=self.task.name == "classification" if predicate is None else predicate,
        )

    @property
    def variants(self) -> tuple[str, ...]:
        """With knowledge and without it, or the text alone; the checkpoint's own graph counts too."""
        if getattr(self.tokenizer, "kg", None) is None:
            return (TEXT_ONLY,)
        return (WITH, WITHOUT) if self.knowledge.baseline else (WITH,)

    def tokenizer_options(self, variant: str) -> dict[str, Any]:
        """What a call of the tokenizer is told.

        Args:
            variant: one of `variants`.
        """
        return {"kg": None} if variant == WITHOUT else {}

    def model(self) -> Any:
        """The checkpoint with the head of the task, see `load_model`."""
        options: dict[str, Any] = {"revision": self.source["revision"]}
        if self.knowledge.kg:
            from ..models.kbert import modeling_kbert
            from ..models.kbert.configuration_kbert import KBertConfig

            config: Any = KBertConfig.from_pretrained(self.name, revision=self.source["revision"])
            if self.knowledge.pooling is not None:
                config.pooling = self.knowledge.pooling
            cls: Any = getattr(modeling_kbert, f"KBertFor{self.task.head}")
        else:
            config = AutoConfig.from_pretrained(self.name, **self.source)
            cls = getattr(transformers, f"AutoModelFor{self.task.head}")
            options["trust_remote_code"] = self.source["trust_remote_code"]
        self.task.configure(config)
        return load_model(
            cls,
            self.name,
            config=config,
            labels=self.task.labels,
            theirs=self.classes,
            tokenizer=self.tokenizer,
            **options,
        )


def knowledge_found(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """How much knowledge is in tokenised rows: worth a look before a gain is expected.

    Args:
        rows: with `word_index` and `branch_id`.

    Returns:
        `rows_with_knowledge`, a share; `branches_per_row` and `knowledge_tokens_per_row`, means.

    Example:
        >>> rows = [{"word_index": [0, 1, 1, 1], "branch_id": [0, 0, 1, 1]}, {"word_index": [0], "branch_id": [0]}]
        >>> knowledge_found(rows)
        {'rows_with_knowledge': 0.5, 'branches_per_row': 0.5, 'knowledge_tokens_per_row': 1.0}
    """
    branches = [
        {pair for pair in zip(row["word_index"], row["branch_id"], strict=True) if pair[1] > 0} for row in rows
    ]
    return {
        "rows_with_knowledge": sum(map(bool, branches)) / len(rows),
        "branches_per_row": sum(map(len, branches)) / len(rows),
        "knowledge_tokens_per_row": sum(number > 0 for row in rows for number in row["branch_id"]) / len(rows),
    }


__all__ = ["TEXT_ONLY", "WITH", "WITHOUT", "Encoder", "knowledge_found"]
