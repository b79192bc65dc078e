"""Checks of attention: implementations agree on every mask, packed rows equal padded ones, graphs are whole."""

import copy
from typing import Any

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch.nn.attention.flex_attention import create_block_mask

from .family import LENGTHS, FamilyCase, Head, assert_same, prediction, trained
from .flash_kernels import FLASH, use_flash_kernels


class AttentionChecks(FamilyCase):
    @pytest.fixture
    def flash_kernels(self, monkeypatch: pytest.MonkeyPatch) -> None:
        use_flash_kernels(monkeypatch)

    def mask_cases(self, head: Head) -> dict[str, dict[str, torch.Tensor]]:
        """Every kind of input that makes a mask, by name."""
        padded = self.inputs(head)
        cases = {"no mask": {name: value for name, value in padded.items() if name != "attention_mask"}}
        cases["right"], cases["left"] = padded, self.inputs(head, "left")
        empty = copy.deepcopy(padded)
        empty["attention_mask"][-1] = 0
        cases["an empty row"] = empty
        if head.packs:
            cases["packed"] = self.packed(padded)
        for name, extra in self.structured_inputs.items() if head.kind != "choice" else ():
            cases[name] = {**padded, **extra(self.config(head), padded)}
        return cases

    @torch.no_grad()
    def test_eager_equals_sdpa(self, head: Head) -> None:
        eager, sdpa = self.model(head, "eager"), self.model(head, "sdpa")
        for name, inputs in self.mask_cases(head).items():
            expected, got = eager(**inputs), sdpa(**inputs)
            for field in head.outputs:
                assert torch.isfinite(got[field]).all(), name
                assert_same(got[field], expected[field], 1e-5, f"{name}: {field}")

    @torch.no_grad()
    def test_an_empty_row_disturbs_no_other(self, row_head: Head) -> None:
        model, inputs = self.model(row_head), self.inputs(row_head)
        expected = model(**inputs)
        inputs["attention_mask"][-1] = 0
        got = model(**inputs)
        for field in row_head.outputs:
            assert torch.isfinite(got[field]).all()
            assert_same(got[field][:-1], expected[field][:-1], 1e-5, field)

    @pytest.mark.slow
    @torch.no_grad()
    @pytest.mark.parametrize("case", ["no mask", "right", "left", "an empty row", "packed"])
    def test_flex_equals_sdpa(self, case: str) -> None:
        if "flex_attention" not in self.attention_implementations:
            return
        torch._dynamo.reset()
        head = self.head("encoder")
        # flex kernels for the CPU want heads of at least 16
        sizes = {"hidden_size": 64, "num_attention_heads": 4}
        inputs = self.mask_cases(head)[case]
        expected = self.model(head, "sdpa", **sizes)(**inputs)
        got = self.model(head, "flex_attention", **sizes)(**inputs)
        # An empty row's scores are rounded to 1e-3 where values can be looked at, as by the reference's constant bias.
        tolerance = 1e-3 if case == "an empty row" else 1e-5
        assert_same(prediction(head, got)[-1], prediction(head, expected)[-1], tolerance)
        assert_same(prediction(head, got)[:-1], prediction(head, expected)[:-1], 1e-5)
        torch._dynamo.reset()

    @torch.no_grad()
    def test_the_attention_implementation_can_be_changed(self, head: Head, tmp_path: Any) -> None:
        model, inputs = self.model(head, "sdpa"), self.inputs(head)
        expected = prediction(head, model(**inputs))
        model.set_attn_implementation("eager")
        assert model.config._attn_implementation == "eager"
        outputs = model(**inputs, output_attentions=True)
        assert outputs.attentions
        assert_same(prediction(head, outputs), expected, 1e-5)
        model.save_pretrained(tmp_path)
        for attention in self.attention_implementations:
            loaded = head.cls.from_pretrained(tmp_path, attn_implementation=attention)
            assert loaded.config._attn_implementation == attention
        assert head.cls.from_pretrained(tmp_path).config._attn_implementation == "sdpa"

    @torch.no_grad()
    def test_flash_attention_is_exact_or_refused(self, head: Head, flash_kernels: None) -> None:
        if not head.cls._supports_flash_attn:
            for name in ("flash_attention_2", "flash_attention_3"):
                with pytest.raises(ValueError, match=f"{head.cls.__name__} has no flash attention.* got '{name}'"):
                    head.cls._from_config(self.config(head), attn_implementation=name)
                with pytest.raises(ValueError, match=r"'sdpa', 'eager'.* got"):
                    self.model(head).set_attn_implementation(name)
            return
        eager, flash = self.model(head, "eager"), self.model(head, FLASH)
        for name, inputs in self.mask_cases(head).items():
            real = inputs.get("attention_mask", inputs.get("sequence_ids", torch.ones_like(inputs["input_ids"]))) != 0
            expected, got = eager(**inputs), flash(**inputs)
            for field in head.outputs:
                first, second = expected[field], got[field]
                if first.shape[:2] == real.shape and head.kind != "choice":
                    first, second = first[real], second[real]
                assert_same(second, first, 1e-5, f"{name}: {field}")
        dense = torch.ones(len(real), real.shape[-1], real.shape[-1], dtype=torch.bool)
        if head.kind == "encoder":
            with pytest.raises(ValueError, match=rf"\(batch, keys\) with .*{FLASH}.* Use 'sdpa'"):
                flash(inputs["input_ids"], attention_mask=dense)

    def test_an_implementation_that_cannot_be_exact_is_refused(self, head: Head) -> None:
        for name in {"eager", "sdpa", "flex_attention"}.difference(self.attention_implementations):
            with pytest.raises(ValueError, match=name):
                head.cls._from_config(self.config(head), attn_implementation=name)

    @torch.no_grad()
    def test_a_finished_mask_goes_through(self) -> None:
        head = self.head("encoder")
        inputs = self.inputs(head)
        mask = inputs["attention_mask"].bool()[:, None, None].expand(-1, -1, mask_width(inputs), -1)
        additive = torch.zeros(mask.shape).masked_fill(~mask, torch.finfo(torch.float32).min)
        for attention, finished in (("sdpa", mask), ("sdpa", additive), ("eager", additive)):
            model = self.model(head, attention)
            got = model(**{**inputs, "attention_mask": finished}).last_hidden_state
            assert_same(got, model(**inputs).last_hidden_state, 1e-5)

    @pytest.mark.slow
    @torch.no_grad()
    def test_a_finished_block_mask_goes_through(self) -> None:
        if "flex_attention" not in self.attention_implementations:
            return
        torch._dynamo.reset()
        head, sizes = self.head("encoder"), {"hidden_size": 64, "num_attention_heads": 4}
        inputs = self.inputs(head)
        ids, real = inputs["input_ids"], inputs["attention_mask"].bool()
        dense = real[:, None, None].expand(-1, -1, real.shape[1], -1)
        shape = (real.shape[0], None, real.shape[1], real.shape[1])
        blocks = create_block_mask(lambda batch, head, q, kv: real[batch, kv], *shape, device="cpu")
        expected = self.model(head, "sdpa", **sizes)(ids, attention_mask=dense).last_hidden_state
        got = self.model(head, "flex_attention", **sizes)(ids, attention_mask=blocks).last_hidden_state
        assert_same(got[real], expected[real], 1e-5)
        torch._dynamo.reset()

    # ---- packing ----

    @pytest.mark.parametrize("attention", ["eager", "sdpa", FLASH])
    def test_packed_rows_equal_padded_rows(self, packed_head: Head, attention: str, flash_kernels: None) -> None:
        """Outputs, loss and every gradient."""
        if attention == FLASH and not packed_head.cls._supports_flash_attn:
            return
        model, padded = self.model(packed_head, attention), self.labelled(packed_head)
        packed = self.packed(padded)
        expected, got = model(**padded), model(**packed)
        mask = padded["attention_mask"]
        for name in packed_head.outputs:
            first, second = expected[name], got[name]
            if first.shape[:2] == mask.shape:
                first, second = first[mask.bool()], torch.cat(self.unpacked(second))
            assert_same(second.reshape(first.shape), first, 1e-5, name)
        if packed_head.labels is None:
            return
        for training in (False, True):
            gradients = []
            model.train(training)
            for batch in (padded, packed):
                model.zero_grad()
                loss = model(**batch).loss
                loss.backward()
                gradients.append({name: value.grad for name, value in trained(model).items()} | {"loss": loss})
            for name, gradient in gradients[0].items():
                other = gradients[1][name]
                assert (gradient is None) == (other is None), name
                if gradient is not None:
                    torch.testing.assert_close(
                        other, gradient, atol=2e-6, rtol=1e-4, msg=lambda text, n=name: f"{n}: {text}"
                    )

    @torch.no_grad()
    def test_sequences_of_a_row_do_not_see_each_other(self, packed_head: Head) -> None:
        model, padded = self.model(packed_head), self.inputs(packed_head)
        packed = self.packed(padded)
        changed = copy.deepcopy(packed)
        changed["input_ids"][0, : LENGTHS[0]] = 7
        changed["input_ids"][0, sum(LENGTHS) :] = 8
        before, after = model(**packed), model(**changed)
        for name in packed_head.outputs:
            first, second = before[name], after[name]
            if first.shape[1] == packed["input_ids"].shape[1]:
                first, second = (torch.cat(self.unpacked(value)[1:]) for value in (first, second))
            else:
                first, second = first[:, 1:], second[:, 1:]
            assert_same(second, first, 1e-6, name)

    @torch.no_grad()
    def test_packed_positions_are_counted_per_sequence(self, packed_head: Head) -> None:
        model, packed = self.model(packed_head), self.packed(self.inputs(packed_head))
        positions = torch.cat([*(torch.arange(length) for length in LENGTHS), torch.zeros(3, dtype=torch.long)])[None]
        assert_same(
            prediction(packed_head, model(**packed, position_ids=positions)),
            prediction(packed_head, model(**packed)),
            1e-6,
        )

    @torch.no_grad()
    def test_packed_rows_may_be_wider_than_the_position_table(self, packed_head: Head) -> None:
        """No sequence is, and padding needs no position."""
        model = self.model(packed_head, max_position_embeddings=max(LENGTHS))
        packed = self.packed(self.inputs(packed_head), width=sum(LENGTHS) + 40)
        assert torch.isfinite(prediction(packed_head, model(**packed))).all()

    def test_a_packed_sequence_longer_than_the_position_table_is_refused(self, packed_head: Head) -> None:
        packed = self.packed(self.inputs(packed_head))
        model = self.model(packed_head, max_position_embeddings=max(LENGTHS) - 1)
        with pytest.raises(ValueError, match=rf"`max_position_embeddings` = {max(LENGTHS) - 1}\), got .*packed"):
            model(**packed)
        with pytest.raises(ValueError, match=r"`max_position_embeddings`.*got -1"):
            model(**packed, position_ids=torch.full_like(packed["input_ids"], -1))

    @torch.no_grad()
    def test_sequence_ids_serve_for_padded_rows_too(self, row_head: Head) -> None:
        model, inputs = self.model(row_head), self.inputs(row_head)
        expected = prediction(row_head, model(**inputs))
        mask = inputs.pop("attention_mask")
        got = prediction(row_head, model(**inputs, sequence_ids=mask))
        if got.shape[:2] == mask.shape:
            got, expected = got[mask.bool()], expected[mask.bool()]
        assert_same(got.reshape(expected.shape), expected, 1e-5)

    # ---- compiling ----

    def compile_cases(self, head: Head) -> list[tuple[str, bool, dict[str, torch.Tensor]]]:
        """Name, training, inputs."""
        padded = self.labelled(head)
        cases = [("padded inference", False, self.inputs(head)), ("padded training", True, padded)]
        if head.packs:
            cases.append(("packed training", True, self.packed(padded)))
        if head.kind == "vocabulary":
            packed = self.packed(padded)
            positions = self.label_positions(packed["labels"], 14)
            cases.append(("packed training at fixed positions", True, {**packed, "label_positions": positions}))
        return cases

    def check_compiled(self, head: Head, backend: str, **sizes: int) -> None:
        for name, training, batch in self.compile_cases(head):
            torch._dynamo.reset()
            model = self.model(head, **sizes).train(training)
            counter = CompileCounterWithBackend(backend)
            compiled = torch.compile(model, backend=counter, fullgraph=True, dynamic=False)
            batches = [batch, self.shuffled(batch)]
            for number, each in enumerate(batches):
                with torch.set_grad_enabled(training):
                    got, expected = compiled(**each), model(**each)
                values = ["loss"] if training and head.labels else list(head.outputs)
                for field in values:
                    assert_same(got[field], expected[field], 2e-5, f"{name}: {field}")
                if training:
                    assert_gradients_equal(model, got.loss, expected.loss, 1e-5, name)
                assert counter.frame_count == 1, f"{name}: call {number} compiled again"
        torch._dynamo.reset()

    def shuffled(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Other values of the same shapes: the rows in reverse order, or other ids in a packed row."""
        other = {name: value.flip(0).contiguous() for name, value in batch.items()}
        other["input_ids"] = (other["input_ids"] + 1) % 90 + 5
        return other

    def test_compiled_graphs_are_whole_and_equal(self) -> None:
        self.check_compiled(self.heads[1], "aot_eager")

    @pytest.mark.slow
    def test_every_head_compiles(self, later_head: Head) -> None:
        """The first one does above, on more layers than a head needs."""
        layers = {"num_hidden_layers": 1} if "num_hidden_layers" in self.config_kwargs else {}
        self.check_compiled(later_head, "aot_eager", **layers)

    @pytest.mark.slow
    def test_inductor(self) -> None:
        self.check_compiled(self.heads[1], "inductor")

    @pytest.mark.slow
    @pytest.mark.parametrize("kind", ["vocabulary", "sequence", "encoder"])
    def test_export_with_dynamic_batch_and_length(self, kind: str) -> None:
        head = self.head(kind)
        model, inputs = self.model(head), self.inputs(head)
        batch, length = torch.export.Dim("batch", min=2), torch.export.Dim("length", min=2, max=16)
        shapes = {name: {0: batch, 1: length} if value.dim() > 1 else {0: batch} for name, value in inputs.items()}
        exported = torch.export.export(model, (), inputs, dynamic_shapes=shapes, strict=False)
        for lengths in (LENGTHS, (5, 3), (11, 2, 7, 7)):
            rows = self.rows(lengths)
            with torch.no_grad():
                expected, got = model(**rows), exported.module()(**rows)
            assert_same(prediction(head, got), prediction(head, expected), 1e-5)


def mask_width(inputs: dict[str, torch.Tensor]) -> int:
    return inputs["input_ids"].shape[-1]


def assert_gradients_equal(
    model: torch.nn.Module, first: torch.Tensor, second: torch.Tensor, tolerance: float, name: str = ""
) -> None:
    """Two losses of one model have the same gradient in every parameter."""
    parameters = trained(model)
    gradients = [
        torch.autograd.grad(loss, list(parameters.values()), allow_unused=True, retain_graph=True)
        for loss in (first, second)
    ]
    for key, left, right in zip(parameters, *gradients, strict=True):
        left, right = (torch.zeros(()) if value is None else value for value in (left, right))
        if left.dim() != right.dim():
            left, right = left.expand(parameters[key].shape), right.expand(parameters[key].shape)
        torch.testing.assert_close(
            left,
            right,
            atol=tolerance,
            rtol=1e-4,
            msg=f"{name}: gradients of {key} differ by {(left - right).abs().max()}",
        )
