"""Checks of the loss: gradients, checkpointing, labels-only logits, denominators, problem types."""

from typing import Any

import pytest
import torch

from .attention import assert_gradients_equal
from .family import FamilyCase, Head, assert_same, trained


class TrainingChecks(FamilyCase):
    def test_every_parameter_gets_a_gradient(self, loss_head: Head) -> None:
        model = self.model(loss_head).train()
        model(**self.labelled(loss_head)).loss.backward()
        assert set(dict(model.named_parameters())) - set(trained(model)) == self.frozen
        without = [name for name, value in trained(model).items() if value.grad is None or not value.grad.any()]
        # Without an effect on the loss by construction: a constant added to all scores of a softmax over positions,
        # choices or keys.
        allowed = {"qa_outputs.bias", "classifier.bias"} if loss_head.kind in ("span", "choice") else set()
        assert [name for name in without if name not in allowed and not name.endswith("self.key.bias")] == []

    def test_heads_without_labels_take_part_with_weight_zero(self, vocabulary_head: Head) -> None:
        """Whichever label column a batch has: distributed training waits for every gradient."""
        batch = self.labelled(vocabulary_head)
        columns = [name for name in self.labels(vocabulary_head, batch) if "label" in name]
        for column in columns:
            model = self.model(vocabulary_head).train()
            alone = {name: value for name, value in batch.items() if name == column or name not in columns}
            output = model(**alone)
            with torch.no_grad():
                assert model(**alone).loss == output.loss
            output.loss.backward()
            without = [name for name, value in trained(model).items() if value.grad is None]
            assert without == [], f"{column} alone"

    def test_terms_that_a_loss_of_the_labels_leaves_out_are_named(
        self, vocabulary_head: Head, warnings_of_transformers: Any
    ) -> None:
        """The Trainer takes `labels` out for label smoothing and own losses."""
        batch = self.labelled(vocabulary_head)
        model = self.model(vocabulary_head)
        model(**batch)
        whole = model.train()(**batch)
        del batch["labels"]
        model.eval()(**batch)
        assert "no `labels`" not in warnings_of_transformers.text
        model.train()(**batch)
        for name in whole:
            if name.endswith("_loss") and name != "mlm_loss":
                assert f"`{name}`" in warnings_of_transformers.text

    def test_one_step_lowers_the_loss(self, loss_head: Head) -> None:
        model, batch = self.model(loss_head).train(), self.labelled(loss_head)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        before = model(**batch).loss
        before.backward()
        optimizer.step()
        assert model(**batch).loss < before

    def test_mixed_precision(self, loss_head: Head) -> None:
        model, batch = self.model(loss_head).train(), self.labelled(loss_head)
        expected = model(**batch).loss
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(**batch).loss
        assert loss.dtype == torch.float32
        torch.testing.assert_close(loss, expected, rtol=0.05, atol=0.05)
        loss.backward()
        assert all(torch.isfinite(value.grad).all() for value in trained(model).values())

    @pytest.mark.parametrize("reentrant", [True, False])
    def test_gradient_checkpointing_changes_nothing(self, loss_head: Head, reentrant: bool) -> None:
        batches = [self.labelled(loss_head)]
        if loss_head.packs:
            batches.append(self.packed(batches[0]))
        for batch in batches:
            results = []
            for checkpointing in (False, True):
                model = self.model(loss_head, **{self.dropout_fields[0]: 0.1}).train()
                if checkpointing:
                    model.activation_checkpointing_enable({"use_reentrant": reentrant})
                    assert model.is_activation_checkpointing
                    model.enable_input_require_grads()
                torch.manual_seed(0)
                loss = model(**batch).loss
                loss.backward()
                results.append({"loss": loss, **{name: value.grad for name, value in trained(model).items()}})
            for name, value in results[0].items():
                assert_same(results[1][name], value, 1e-6, name)
            model.activation_checkpointing_disable()
            assert not model.is_activation_checkpointing

    # ---- logits only where labels are ----

    def test_logits_are_left_out_in_training_only(self, vocabulary_head: Head) -> None:
        model, batch = self.model(vocabulary_head), self.labelled(vocabulary_head)
        inputs = self.inputs(vocabulary_head)
        name = vocabulary_head.outputs[0]
        shape = (*inputs["input_ids"].shape, model.config.vocab_size)
        for training in (True, False):
            model.train(training)
            assert model(**inputs)[name].shape == shape
            assert model(**batch, return_logits=True)[name].shape == shape
            assert model(**batch, return_logits=False).get(name) is None
            assert (model(**batch).get(name) is None) == training

    @pytest.mark.parametrize("packed", [False, True])
    def test_labels_only_loss_equals_full_loss(self, vocabulary_head: Head, packed: bool) -> None:
        model, batch = self.model(vocabulary_head), self.labelled(vocabulary_head)
        if packed:
            batch = self.packed(batch)
        full = model(**batch, return_logits=True).loss
        budget = int((batch["labels"] != -100).sum(1).max()) + 2
        for extra in ({}, {"label_positions": self.label_positions(batch["labels"], budget)}):
            lean = model(**batch, return_logits=False, **extra).loss
            torch.testing.assert_close(lean, full, atol=1e-6, rtol=1e-6)
            assert_gradients_equal(model, lean, full, 1e-6)

    def test_no_target_means_loss_zero_with_a_graph(self, loss_head: Head) -> None:
        if loss_head.kind in ("sequence", "choice"):
            return
        model, batch = self.model(loss_head), self.labelled(loss_head)
        for name in batch:
            if "label" in name or name in ("start_positions", "end_positions"):
                batch[name] = torch.full_like(batch[name], -100)
        for training in (True, False):
            loss = model.train(training)(**batch).loss
            assert loss == 0
            loss.backward()
            for name, value in trained(model).items():
                assert value.grad is not None, f"{name}: distributed training would wait for it"
                assert not value.grad.any(), name
                value.grad = None

    def test_the_loss_ignores_padding_rows(self, vocabulary_head: Head) -> None:
        """A row of padding without labels changes neither loss nor gradient."""
        model, batch = self.model(vocabulary_head), self.labelled(vocabulary_head)
        longer = {}
        for name, value in batch.items():
            row = torch.full_like(value[:1], -100 if "label" in name else 0)
            longer[name] = torch.cat([value, row])
        first, second = model(**batch).loss, model(**longer).loss
        torch.testing.assert_close(first, second, atol=1e-6, rtol=1e-6)
        assert_gradients_equal(model, first, second, 1e-6)

    def test_positions_that_miss_a_label_are_refused(self, vocabulary_head: Head) -> None:
        model, batch = self.model(vocabulary_head).train(), self.main_labels(self.labelled(vocabulary_head))
        positions = torch.zeros(batch["labels"].shape[0], 2, dtype=torch.long)
        with pytest.raises(ValueError, match="`label_positions` must cover every label"):
            model(**batch, label_positions=positions)

    def test_positions_are_compared_not_counted(self, vocabulary_head: Head) -> None:
        """One label named twice and one left out are as many as there are."""
        model, batch = self.model(vocabulary_head).train(), self.main_labels(self.labelled(vocabulary_head))
        labels = torch.full_like(batch["labels"], -100)
        labels[:, 1:3] = 7
        batch["labels"] = labels
        rows = labels.shape[0]
        with pytest.raises(ValueError, match=f"`label_positions` must cover every label: {2 * rows} .* {rows} are"):
            model(**batch, label_positions=torch.tensor([[1, 1]] * rows))
        with pytest.raises(ValueError, match="`label_positions` must name every label once"):
            model(**batch, label_positions=torch.tensor([[1, 2, 2]] * rows))
        for wrong in (-1, labels.shape[1]):
            with pytest.raises(ValueError, match=rf"`label_positions` must be positions in the row.* got {wrong}\."):
                model(**batch, label_positions=torch.tensor([[1, 2, wrong]] * rows))
        assert torch.isfinite(model(**batch, label_positions=torch.tensor([[2, 1, 0]] * rows)).loss)

    def test_a_packed_step_never_waits_for_the_device(self, vocabulary_head: Head) -> None:
        """On the meta device there are no values: whatever has to look at one fails."""
        batch = self.packed(self.labelled(vocabulary_head))
        batch["label_positions"] = self.label_positions(batch["labels"], 14)
        with torch.device("meta"):
            model = vocabulary_head.cls(self.config(vocabulary_head)).train()
        loss = model(**{name: value.to("meta") for name, value in batch.items()}).loss
        loss.backward()
        assert all(value.grad is not None for value in trained(model).values())

    # ---- denominators ----

    def test_token_losses_of_micro_batches_add_up(self, loss_head: Head) -> None:
        """With the number of labels of the whole update, micro-batches of any sizes give the loss of one batch."""
        if loss_head.kind not in ("vocabulary", "token", "sequence", "choice"):
            return
        model, batch = self.model(loss_head).train(), self.main_labels(self.labelled(loss_head))
        items = (batch["labels"] != -100).sum()
        whole = model(**batch).loss
        parts = [
            model(**{name: value[rows] for name, value in batch.items()}, num_items_in_batch=items).loss
            for rows in (slice(0, 1), slice(1, 3))
        ]
        torch.testing.assert_close(sum(parts), whole, atol=1e-6, rtol=1e-6)
        assert_gradients_equal(model, sum(parts), whole, 1e-6)

    def main_labels(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The batch with the labels of the main term alone."""
        return batch

    @pytest.mark.parametrize("as_tensor", [False, True])
    def test_an_update_without_any_label_is_zero(self, loss_head: Head, as_tensor: bool) -> None:
        """Its number of labels is 0: the loss still is 0 with a graph, never NaN."""
        model, batch = self.model(loss_head).train(), self.main_labels(self.labelled(loss_head))
        for name in batch:
            if "label" in name or name in ("start_positions", "end_positions"):
                batch[name] = torch.full_like(batch[name], -100)
        none = torch.tensor(0) if as_tensor else 0
        loss = model(**batch, num_items_in_batch=none).loss
        assert loss == 0
        loss.backward()
        for name, value in model.named_parameters():
            assert value.grad is None or torch.isfinite(value.grad).all(), name

    @pytest.mark.parametrize(
        ("problem", "num_labels", "labels"),
        [
            ("regression", 1, torch.tensor([0.5, -1.0, 2.0])),
            ("regression", 2, torch.tensor([[0.5, 1.0], [-1.0, 0.0], [2.0, 0.1]])),
            ("single_label_classification", 3, torch.tensor([0, 2, 1])),
            ("multi_label_classification", 2, torch.tensor([[0.0, 1.0], [1.0, 1.0], [0.0, 0.0]])),
        ],
    )
    def test_problem_types(self, problem: str, num_labels: int, labels: torch.Tensor) -> None:
        head = self.head("sequence")
        inputs = self.inputs(head)
        losses = []
        for given in (problem, None):
            if given is None and problem == "regression" and num_labels > 1:
                continue
            model = self.model(head, num_labels=num_labels, problem_type=given)
            outputs = model(**inputs, labels=labels)
            assert outputs.logits.shape == (3, num_labels)
            assert model.config.problem_type == problem
            outputs.loss.backward()
            losses.append(outputs.loss)
        logits = outputs.logits
        expected = {
            "regression": lambda: torch.nn.functional.mse_loss(logits.reshape(labels.shape), labels),
            "single_label_classification": lambda: torch.nn.functional.cross_entropy(logits, labels),
            "multi_label_classification": lambda: torch.nn.functional.binary_cross_entropy_with_logits(logits, labels),
        }[problem]()
        for loss in losses:
            torch.testing.assert_close(loss, expected)

    def test_an_unknown_problem_type_is_refused(self) -> None:
        head = self.head("sequence")
        model, batch = self.model(head, problem_type="ranking"), self.labelled(head)
        with pytest.raises(ValueError, match="`problem_type`"):
            model(**batch)
