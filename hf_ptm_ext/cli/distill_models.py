"""Teachers, students and the speed of both, for `hf-ptm-ext distill`."""

import logging
import time
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
import transformers
from transformers import AutoConfig, set_seed

from ..data.word_vectors import load_word_vectors
from ..distillation import make_student
from .checkpoint_names import tokenizer_of
from .distill_arguments import BILSTM, StudentArguments
from .loading import NoTrainedHead, in_order, load_model, own_classes, set_labels, with_order_of
from .options import naming

logger = logging.getLogger(__name__)

COSTS = ("parameters", "rows_per_second")
TIMED_ROWS = 256
TIMED_BATCH = 32


class Pair:
    """The teachers and what makes students of them."""

    def __init__(self, task: Any, args: StudentArguments, needs_head: bool = True):
        self.args, self.needs_head = args, needs_head
        self.headless: set[str] = set()
        self.source = args.source
        # The first teacher's order of classes is the task's.
        self.task = with_order_of(task, AutoConfig.from_pretrained(args.teacher_name_or_path[0], **self.source))

    @cached_property
    def tokenizer(self) -> Any:
        """The first teacher's tokenizer, which is the student's too."""
        return tokenizer_of(self.args.teacher_name_or_path[0], "teacher_name_or_path", **self.source)

    @cached_property
    def teachers(self) -> list[Any]:
        """The teachers, in evaluation mode, each with a trained head and the data's classes if it needs one."""
        return [self.teacher(name) for name in self.args.teacher_name_or_path]

    def teacher(self, name: str) -> Any:
        """A teacher, in evaluation mode."""
        head = getattr(transformers, f"AutoModelFor{self.task.head}")
        options = {"argument": "teacher_name_or_path", "tokenizer": self.tokenizer, **self.source}
        try:
            model = load_model(head, name, new_head=False, kind=self.task.kind, **options)
        except NoTrainedHead:
            if self.needs_head:
                raise
            logger.warning("`teacher_name_or_path` = %s has no trained head, and none is read: no score of it.", name)
            self.headless.add(name)
            if self.task.labels:
                options["num_labels"] = len(self.task.labels)
            model = load_model(head, name, **options)
        if self.task.labels and name not in self.headless:
            self._check_labels(name, model.config)
        return model.eval()

    def _check_labels(self, name: str, config: Any) -> None:
        theirs = own_classes(config)
        numbered = theirs is None and self.task.labels == tuple(str(number) for number in range(config.num_labels))
        if not numbered and in_order(self.task.labels, theirs) != self.task.labels:
            raise ValueError(
                f"`teacher_name_or_path` = {name} has the classes {[*config.id2label.values()][:8]}, the task "
                f"{list(self.task.labels)[:8]}: they must be the same, in the same order."
            )

    def named(self, name: str, argument: str) -> Any:
        """A checkpoint as the task's model, with a new head if its classes are others."""
        labels = self.task.labels
        options: dict[str, Any] = {"trust_remote_code": self.args.trust_remote_code}
        theirs = own_classes(AutoConfig.from_pretrained(name, **options))
        options |= {"num_labels": len(labels), "labels": labels, "theirs": theirs} if labels else {}
        head = getattr(transformers, f"AutoModelFor{self.task.head}")
        return load_model(head, name, argument=argument, tokenizer=self.tokenizer, **options)

    def baseline(self, seed: int) -> Any:
        """The student without a teacher as it is before training, as `baseline_init` says."""
        start = self.args.baseline_checkpoint
        if start is not None:
            set_seed(seed)
            model = self.named(start, "baseline_init")
            own, wanted = (getattr(one.config, "vocab_size", None) for one in (model, self.teachers[0]))
            if own != wanted:
                raise ValueError(
                    f"`baseline_init` = {start} has a vocabulary of {own}, the teacher one of {wanted}: name a "
                    "checkpoint of the teacher's vocabulary."
                )
            with naming(f"`baseline_init` = {start}"):
                return self.student(seed, model)
        student = self.student(seed)
        if self.args.baseline_init == "none":
            set_seed(seed)
            student = type(student)(student.config)
        return student

    def check_baseline(self, seed: int) -> None:
        """Make the student without a teacher, whose turn comes late; say if it is not of the other one's size."""
        own, other = (sum(map(torch.numel, one.parameters())) for one in (self.baseline(seed), self.student(seed)))
        if own != other:
            logger.warning(
                "`baseline_init` = %s makes a student without the teacher of %d parameters, the other one has %d: for "
                "a fair comparison name the student's sizes, or a checkpoint of its size.",
                self.args.baseline_init,
                own,
                other,
            )

    def student(self, seed: int, origin: Any = None) -> Any:
        """A student of the first teacher, or of another model, before training: the same for the same seed."""
        args = self.args
        set_seed(seed)
        if args.student_name_or_path is not None:
            model = self.named(args.student_name_or_path, "student_name_or_path") if origin is None else origin
        elif args.student_class == BILSTM:
            model = self._bilstm()
        else:
            origin = self.teachers[0] if origin is None else origin
            model = make_student(
                origin,
                layers=args.student_layers,
                hidden_size=args.student_hidden_size,
                intermediate_size=args.student_intermediate_size,
                num_attention_heads=args.student_num_attention_heads,
                init=_init(args.student_init),
                model_class=None if origin.config.model_type == args.student_class else args.student_class,
                size=args.student_size,
            )
        if self.task.labels:
            set_labels(model.config, self.task.labels)
        return model

    def _bilstm(self) -> Any:
        from .. import DistilledBiLstmConfig, DistilledBiLstmForSequenceClassification

        if self.task.head != "SequenceClassification":
            raise ValueError(f"`student_class` = {BILSTM} is a classifier of texts, got `task` = {self.task.name}.")
        args = self.args
        given = {
            "lstm_size": args.student_hidden_size and args.student_hidden_size // 2,  # of each direction
            "classifier_size": args.student_intermediate_size,
        }
        more: dict[str, Any] = {name: size for name, size in given.items() if size is not None}
        more["num_labels"] = len(self.task.labels)
        vectors = args.student_vectors_file and load_word_vectors(args.student_vectors_file)
        if vectors:
            more["embedding_size"] = vectors.width
        config = DistilledBiLstmConfig(
            vocab_size=len(self.tokenizer),
            pad_token_id=self.tokenizer.pad_token_id,
            **more,
        )
        model = DistilledBiLstmForSequenceClassification(config)
        if vectors:
            found = model.set_word_vectors(self.tokenizer, vectors)
            logger.info("%d of %d pieces begin with a vector", found, config.vocab_size)
        return model


def _init(text: str) -> Any:
    """A name, or layers by number."""
    parts = text.split(",")
    return [int(part) for part in parts] if all(part.strip().isdecimal() for part in parts) else text


@torch.no_grad()
def costs(model: Any, rows: Sequence[dict[str, Any]], collator: Any) -> dict[str, float]:
    """Size and speed of a model."""
    training, device = model.training, next(model.parameters()).device
    model.eval()
    taken = list(rows[:TIMED_ROWS])
    batches = [collator(taken[start : start + TIMED_BATCH]) for start in range(0, len(taken), TIMED_BATCH)]
    batches = [{name: value.to(device) for name, value in batch.items() if name != "labels"} for batch in batches]
    model(**batches[0])
    _wait(device)
    start = time.perf_counter()
    for batch in batches:
        model(**batch)
    _wait(device)
    seconds = time.perf_counter() - start
    model.train(training)
    parameters = float(sum(value.numel() for value in model.parameters()))
    return dict(zip(COSTS, (parameters, len(taken) / seconds), strict=True))


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
