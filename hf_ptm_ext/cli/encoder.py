"""The checkpoint of a job: any encoder as it is, or any BERT as a K-BERT with knowledge in its text."""

from functools import cached_property
from typing import Any

import transformers
from transformers import AutoConfig

from .arguments import CheckpointArguments
from .checkpoint_names import load_tokenizer, tokenizer_of
from .console import phase
from .loading import load_model, own_classes, with_order_of
from .recipes import parse_overrides

READ_AS_KBERT = ("bert", "kbert")


class Encoder:
    """The checkpoint that is fine-tuned, with the knowledge that goes with it (`finetune`'s arguments, or none).

    Its `task` has the labels in the checkpoint's order, if they are the same.
    """

    def __init__(self, task: Any, model_args: CheckpointArguments, knowledge: Any = None):
        self.arguments = model_args
        self.knowledge: Any = knowledge if knowledge is not None and knowledge.kg else None
        self.name, self.source = model_args.model_name_or_path, model_args.source
        config = AutoConfig.from_pretrained(self.name, **self.source)
        self.task, self.classes = with_order_of(task, config), own_classes(config)
        if self.knowledge is not None and config.model_type not in READ_AS_KBERT:
            raise ValueError(
                f"`kg` needs a checkpoint that reads as a K-BERT ({', '.join(READ_AS_KBERT)}), got a "
                f"{config.model_type}. Name such a one, or leave the graphs out."
            )
        self.concepts: Any = knowledge if knowledge is not None and knowledge.concepts else None
        self.of_concepts = self.concepts is not None or config.model_type == "ktnet"
        self.bases = list(getattr(config, "knowledge_base_names", ())) if config.model_type == "ktnet" else []
        if self.concepts is not None and task.head != "QuestionAnswering":
            raise ValueError(
                f"`concepts` (KT-NET) serve question answering, got `task` = {task.name}: leave them out."
            )
        self.freeze = knowledge is not None and knowledge.freeze_encoder
        if self.freeze and not self.of_concepts:
            raise ValueError(
                f"`freeze_encoder` is of a KT-NET, got a {config.model_type} and no `concepts`: leave it out."
            )

    @cached_property
    def known(self) -> Any:
        """Knowledge base -> name -> rows of its table, and the tables."""
        from .concepts import read_concepts

        with phase("reading the concepts"):
            rows, tables = read_concepts(self.concepts)
        if list(rows) != (self.bases or list(rows)):
            raise ValueError(
                f"`concepts` must name the knowledge bases of {self.name} in their order, {', '.join(self.bases)}, "
                f"got {', '.join(rows)}."
            )
        return rows, tables

    @cached_property
    def tokenizer(self) -> Any:
        """The tokenizer, with its graph if there is one."""
        tokenizer = load_tokenizer(self.arguments) if self.knowledge is None else self._knowledge_tokenizer()
        if self.task.name != "tagging" or hasattr(tokenizer, "characters_of"):  # ELMo's, to which words are tokens
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
        from ..models.tokenization_kbert import KBertTokenizer, KnowledgeGraph

        given, predicate = self.knowledge, self.knowledge.use_predicate
        with phase("reading the graph"):
            graph = KnowledgeGraph.from_files(*given.kg, encoding=given.kg_encoding)
        return KBertTokenizer.from_pretrained(
            self.name,
            revision=self.source["revision"],
            kg=graph,
            max_entities=given.max_entities,
            use_predicate=self.task.name == "classification" if predicate is None else predicate,
        )

    def model(self) -> Any:
        """The checkpoint with the head of the task, see `load_model`."""
        if self.knowledge is None:
            source, config = self.source, AutoConfig.from_pretrained(self.name, **self.source)
            cls: Any = getattr(transformers, f"AutoModelFor{self.task.head}")
        else:
            from ..models import modeling_kbert

            source = {"revision": self.source["revision"]}
            config = modeling_kbert.KBertConfig.from_pretrained(self.name, **source)
            config.pooling = self.knowledge.pooling or config.pooling
            cls = getattr(modeling_kbert, f"KBertFor{self.task.head}")
        if not f"{(config.architectures or [''])[0]}".endswith(f"For{self.task.head}"):
            config.architectures = []  # else the auto class may take one for another task, with inputs of its own
        overrides = getattr(self.arguments, "config_overrides", None)
        fields = parse_overrides(overrides, config.to_dict(), type(config).__name__)
        config = type(config).from_dict({**config.to_dict(), **fields}) if fields else config
        self.task.configure(config)
        classes = {"labels": self.task.labels, "theirs": self.classes}
        if config.model_type == "ktnet":
            config.freeze_encoder = self.freeze
        model = load_model(cls, self.name, config=config, tokenizer=self.tokenizer, **classes, **source)
        return model if self.concepts is None else self._with_concepts(model)

    def _with_concepts(self, model: Any) -> Any:
        """A KT-NET on a model's encoder, or a KT-NET with other concepts."""
        from ..models.modeling_ktnet import KtNetForQuestionAnswering

        rows, tables = self.known
        if not isinstance(model, KtNetForQuestionAnswering):
            sizes = {base: [len(table), table.dim] for base, table in tables.items()}
            options: dict[str, Any] = {"knowledge_bases": sizes, "freeze_encoder": self.freeze}
            model = KtNetForQuestionAnswering.from_encoder(model.base_model, **options)
        for base, table in tables.items():
            model.set_concept_table(base, table)
        model.concepts = rows
        return model
