"""Checks with the real `transformers.Trainer`: accumulation, columns, evaluation, smoothing."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import Trainer, TrainingArguments

from tests.tolerance import assert_agrees

from .family import FamilyCase, Head, prediction

ROW_LENGTHS = (9, 4, 6, 9, 5, 7, 3, 8)


def arguments(folder: Path, **overrides: Any) -> TrainingArguments:
    """One plain SGD step on the CPU, logged, nothing saved."""
    defaults = {
        "output_dir": str(folder),
        "max_steps": 1,
        "per_device_train_batch_size": 8,
        "per_device_eval_batch_size": 4,
        "learning_rate": 0.1,
        "optim": "sgd",
        "lr_scheduler_type": "constant",
        "max_grad_norm": 0.0,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "use_cpu": True,
        "dataloader_pin_memory": False,
    }
    return TrainingArguments(**{**defaults, **overrides})


class TrainerChecks(FamilyCase):
    def dataset(self, head: Head) -> Dataset:
        """Eight labelled rows of different lengths, as lists, every special input included."""
        inputs = self.inputs(head, lengths=ROW_LENGTHS)
        batch = {**inputs, **self.labels(head, inputs), **self.extra_columns(head, inputs)}
        return Dataset.from_dict({name: value.tolist() for name, value in batch.items()})

    def extra_columns(self, head: Head, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Special inputs of the head, beyond what `rows` and `labels` make."""
        return {}

    def whole(self, dataset: Dataset) -> dict[str, torch.Tensor]:
        return {name: torch.tensor(dataset[name][:]) for name in dataset.column_names}

    def run_step(self, head: Head, folder: Path, dataset: Any, **overrides: Any) -> tuple[dict, float]:
        """Parameters after one update, and the logged loss."""
        model = self.model(head)
        trainer = Trainer(model=model, args=arguments(folder, **overrides), train_dataset=dataset)
        trainer.train()
        logged = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        return {name: value.detach() for name, value in model.named_parameters()}, logged[0]

    def test_accumulation_equals_one_large_batch(self, loss_head: Head, tmp_path: Path) -> None:
        dataset = self.dataset(loss_head)
        names = [name for name in dataset.column_names if name in self.main_columns(loss_head, dataset)]
        dataset = dataset.select_columns(names)
        start = dict(self.model(loss_head).named_parameters())
        whole, loss = self.run_step(loss_head, tmp_path, dataset)
        assert any((whole[name] != value).any() for name, value in start.items())
        for size, steps in ((2, 4), (1, 8)):
            parts, logged = self.run_step(
                loss_head,
                tmp_path,
                dataset,
                per_device_train_batch_size=size,
                gradient_accumulation_steps=steps,
            )
            assert logged == pytest.approx(loss, rel=1e-4)
            for name, value in whole.items():
                torch.testing.assert_close(parts[name], value, atol=2e-6, rtol=1e-5, msg=lambda t, n=name: f"{n}: {t}")

    def main_columns(self, head: Head, dataset: Dataset) -> list[str]:
        """Columns of the terms for which plain `Trainer` alone can be exact."""
        return dataset.column_names

    def test_special_inputs_reach_the_model(self, loss_head: Head, tmp_path: Path) -> None:
        """`remove_unused_columns` at its default keeps what the head names, and drops what it does not."""
        dataset = self.dataset(loss_head)
        seen: list[set[str]] = []

        def collate(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
            seen.append(set(rows[0]))
            return {name: torch.tensor([row[name] for row in rows]) for name in rows[0]}

        model = self.model(loss_head)
        with torch.no_grad():
            expected = model.train()(**self.whole(dataset)).loss.item()
        trainer = Trainer(
            model=model,
            args=arguments(tmp_path),
            train_dataset=dataset.add_column("unrelated", list(range(len(dataset)))),
            data_collator=collate,
        )
        trainer.train()
        assert seen[0] == set(dataset.column_names)
        logged = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        assert logged[0] == pytest.approx(expected, rel=1e-4)

    def test_metrics_see_the_logits_only(self, loss_head: Head, tmp_path: Path) -> None:
        dataset, seen = self.dataset(loss_head), []
        model = self.model(loss_head)
        model.config.output_hidden_states = True
        trainer = Trainer(
            model=model,
            args=arguments(tmp_path),
            eval_dataset=dataset,
            compute_metrics=lambda result: seen.append(result) or {},
        )
        metrics = trainer.evaluate()
        with torch.no_grad():
            expected = model.eval()(**self.whole(dataset), output_hidden_states=False)
        predictions, labels = seen[0].predictions, seen[0].label_ids
        if loss_head.kind == "span":
            assert [part.shape for part in predictions] == [(8, 9), (8, 9)]
            assert len(labels) == 2
            predictions = predictions[0]
        assert isinstance(predictions, np.ndarray)
        assert isinstance(labels, (np.ndarray, tuple))
        assert_agrees(predictions, prediction(loss_head, expected), 1e-5)
        assert np.isfinite(metrics["eval_loss"])

    def test_the_loss_is_evaluated_without_optional_labels(self, loss_head: Head, tmp_path: Path) -> None:
        dataset = self.dataset(loss_head)
        trainer = Trainer(model=self.model(loss_head), args=arguments(tmp_path), eval_dataset=dataset)
        needed = ["start_positions", "end_positions"] if loss_head.kind == "span" else ["labels"]
        assert [str(name) for name in trainer.label_names] == needed
        columns = [name for name in self.needed_inputs if name in dataset.column_names]
        trainer.eval_dataset = dataset.select_columns([*columns, *needed])
        assert np.isfinite(trainer.evaluate()["eval_loss"])

    def test_smoothing_own_losses_and_evaluation_in_between(self, loss_head: Head, tmp_path: Path) -> None:
        """What needs logits in training gets them, although the head leaves them out when it has labels.

        The Trainer takes `labels` out and reads `logits`: its loss has the main term alone. Without `labels` (question
        answering) it smooths nothing.
        """
        dataset = self.dataset(loss_head)
        whole = self.whole(dataset)
        with torch.no_grad():
            plain = self.model(loss_head).train()(**whole).loss.item()
        if "labels" not in whole:
            cases = [(plain, {"label_smoothing_factor": 0.1}, {})]
            logits = None
        else:
            labels = whole.pop("labels")
            with torch.no_grad():
                logits = self.model(loss_head)(**whole).logits
            flat = logits.reshape(-1, logits.shape[-1]), labels.reshape(-1)
            smoothed = torch.nn.functional.cross_entropy(*flat, label_smoothing=0.1).item()
            token_loss = torch.nn.functional.cross_entropy(*flat).item()
            cases = [
                (smoothed, {"label_smoothing_factor": 0.1}, {}),
                (token_loss, {}, {"compute_loss_func": own_loss}),
            ]
        cases.append((plain, {}, {}))
        evaluated = []
        for expected, extra, options in cases:
            trainer = Trainer(
                model=self.model(loss_head),
                args=arguments(tmp_path, eval_strategy="steps", eval_steps=1, max_steps=2, **extra),
                train_dataset=dataset,
                eval_dataset=dataset,
                compute_metrics=lambda result: evaluated.append(result.predictions) or {},
                **options,
            )
            trainer.train()
            logged = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
            assert logged[0] == pytest.approx(expected, rel=1e-4)
        assert len(evaluated) == 2 * len(cases)
        for predictions in evaluated:
            if logits is None:
                assert [part.shape for part in predictions] == [(8, 9), (8, 9)]
            else:
                assert predictions.shape == tuple(logits.shape)


def own_loss(outputs: Any, labels: torch.Tensor, num_items_in_batch: Any = None) -> torch.Tensor:
    """A loss function as users hand it to the Trainer."""
    values = outputs.logits.reshape(-1, outputs.logits.shape[-1])
    return torch.nn.functional.cross_entropy(values, labels.reshape(-1))
