"""The conformance suite of encoder-decoders: what every such family of ours passes.

    class TestMass(EncoderDecoderConformance):
        config_class, base_class, heads, config_kwargs = ...

    class TestMassGeneration(EncoderDecoderGenerationChecks):
        the same

Heads are of the kinds "encoder" (the bare model), "vocabulary" (labels as long as the decoder's input) and
"sequence". `rows` makes a batch: sources padded on either side, targets fed to the decoder, padded on the right; a
family with inputs of its own extends it.
"""

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from transformers import (
    CompileConfig,
    DataCollatorForSeq2Seq,
    DynamicCache,
    EncoderDecoderCache,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
)

from .attention import assert_gradients_equal
from .embeddings import EmbeddingChecks
from .family import LENGTHS, FamilyCase, Head, assert_same, assert_same_outputs, prediction
from .forward import ForwardChecks
from .generation import NEW_TOKENS, GenerationChecks
from .loading import ConfigChecks, LoadingChecks
from .masks import bad_forms, query_forms, token_forms
from .parts import PeftChecks, RemoteChecks
from .trainer import TrainerChecks, arguments

START, END = 3, 3


def target_labels(config: Any, inputs: dict[str, torch.Tensor], generator: torch.Generator) -> dict[str, torch.Tensor]:
    """What comes next at every real token of the decoder's input, the end token last."""
    fed = inputs["decoder_input_ids"]
    lengths = inputs["decoder_attention_mask"].sum(1) if "decoder_attention_mask" in inputs else (fed != 0).sum(1)
    labels = torch.cat([fed[:, 1:], torch.zeros_like(fed[:, :1])], dim=1)
    columns = torch.arange(fed.shape[1])[None]
    labels = torch.where(columns == lengths[:, None] - 1, END, labels)
    return {"labels": labels.masked_fill(columns >= lengths[:, None], -100)}


class EncoderDecoderCase(FamilyCase):
    """Inputs, names and sizes of encoder-decoders."""

    dropout_fields = ("dropout", "attention_dropout", "activation_dropout")
    embeddings_name = "shared"
    one_layer = "decoder.layers.1."
    one_weight = "encoder.layers.0.self_attn.q_proj.weight"
    lora_targets = ("q_proj", "v_proj")
    query_name = "self_attn.q_proj"
    classifier_name = "classification_head.out_proj"
    fresh_in_base = ()
    unread_fields = frozenset({"hf_ptm_ext_version", "bos_token_id", "eos_token_id", "use_cache"})
    # Configuration fields of the limits of source and target, for the checks of too long ones.
    position_fields: tuple[str, str] = ("max_position_embeddings", "max_position_embeddings")
    # Parameters that have no effect on the loss by construction: a constant added to all scores of a softmax.
    without_gradient: tuple[str, ...] = ("k_proj.bias",)

    def config(self, head: Head | None = None, **overrides: Any) -> Any:
        """Without a cache, so that outputs are tensors; checks of generation ask for one."""
        return super().config(head, **{"use_cache": False, **overrides})

    def rows(self, lengths: tuple[int, ...] = LENGTHS, seed: int = 0, padding: str = "right") -> dict:
        """Sources of these lengths ending with the end token, and what the decoder is fed, padded on the right."""
        config, generator = self.config(), self.generator(seed)
        width = max(lengths)
        mask = (torch.arange(width)[None] < torch.tensor(lengths)[:, None]).long()
        ids = torch.randint(5, config.vocab_size, mask.shape, generator=generator)
        ids[torch.arange(len(lengths)), torch.tensor(lengths) - 1] = END
        targets = torch.tensor([max(2, 8 - length // 2) for length in lengths])
        fed_mask = (torch.arange(int(targets.max()))[None] < targets[:, None]).long()
        fed = torch.randint(5, config.vocab_size, fed_mask.shape, generator=generator).masked_fill(fed_mask == 0, 0)
        fed[:, 0] = START
        pad = config.pad_token_id
        rows = {"input_ids": ids.masked_fill(mask == 0, pad), "attention_mask": mask}
        if padding == "left":
            rows = {name: self.moved(value, mask) for name, value in rows.items()}
        return {**rows, "decoder_input_ids": fed.masked_fill(fed_mask == 0, pad)}

    def inputs(
        self, head: Head, padding: str = "right", seed: int = 0, lengths: tuple[int, ...] = LENGTHS
    ) -> dict[str, torch.Tensor]:
        """A batch; the source alone for classification, which feeds it to both sides."""
        rows = self.rows(lengths, seed=seed, padding=padding)
        if head.kind == "sequence":
            rows = {name: value for name, value in rows.items() if not name.startswith("decoder_")}
        return rows

    def table(self, model: nn.Module, side: str) -> nn.Module:
        """The token embeddings of a side, "" or "decoder_"."""
        return model.get_input_embeddings()

    @staticmethod
    def moved(value: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Right-padded rows, padded on the left."""
        shifts = mask.shape[1] - mask.sum(1)
        return torch.stack([row.roll(int(by), 0) for row, by in zip(value, shifts, strict=True)])

    def left_padded(self, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The same batch with the padding of sources on the left."""
        mask = inputs["attention_mask"]
        return {
            name: value if name.startswith("decoder_") or value.shape != mask.shape else self.moved(value, mask)
            for name, value in inputs.items()
        }

    def single(self, inputs: dict[str, torch.Tensor], row: int, length: int) -> dict[str, torch.Tensor]:
        """One row without its padding on the source's side."""
        width = inputs["input_ids"].shape[1]
        return {
            name: value[row : row + 1, :length]
            if value.dim() > 1 and value.shape[1] == width and not name.startswith("decoder_")
            else value[row : row + 1]
            for name, value in inputs.items()
        }

    def compared(self, head: Head, outputs: Any, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """What the head predicts, at real tokens."""
        pad, values = self.config().pad_token_id, {}
        for name in head.outputs:
            side = "input" if name.startswith("encoder_") else "decoder_input"
            if outputs[name].dim() == 2:  # one prediction a row
                values[name] = outputs[name]
                continue
            mask = inputs.get(f"{side}_ids", inputs["input_ids"]) != pad
            if side == "input" and "attention_mask" in inputs:
                mask = inputs["attention_mask"].bool()
            values[name] = outputs[name][mask]
        return values


class EncoderDecoderForwardChecks(EncoderDecoderCase):
    test_the_same_input_gives_the_same_output = ForwardChecks.test_the_same_input_gives_the_same_output
    test_tuples_hold_the_same_as_the_output_object = ForwardChecks.test_tuples_hold_the_same_as_the_output_object
    test_arguments_of_upstreams_code_pass = ForwardChecks.test_arguments_of_upstreams_code_pass
    test_models_can_be_pickled_and_copied = ForwardChecks.test_models_can_be_pickled_and_copied

    @torch.no_grad()
    @pytest.mark.parametrize("attention", ["eager", "sdpa"])
    def test_padding_changes_nothing_right_or_left(self, head: Head, attention: str) -> None:
        model, right = self.model(head, attention), self.inputs(head)
        left = self.left_padded(right)
        expected = self.compared(head, model(**right), right)
        assert_same_outputs(self.compared(head, model(**left), left), expected, 1e-5)
        for row, length in enumerate(LENGTHS):
            alone = self.single(right, row, length)
            got = self.compared(head, model(**alone), alone)
            batch = {name: value[row : row + 1] for name, value in right.items()}
            assert_same_outputs(got, self.compared(head, model(**batch), batch), 1e-5)

    @torch.no_grad()
    def test_targets_padded_on_the_left_with_a_mask(self, head: Head) -> None:
        if head.kind == "sequence":
            return
        model, inputs = self.model(head), self.inputs(head)
        expected = self.compared(head, model(**inputs), inputs)
        mask = (inputs["decoder_input_ids"] != self.config().pad_token_id).long()
        for name, value in list(inputs.items()):
            if name.startswith("decoder_") and value.dim() > 1:
                inputs[name] = self.moved(value, mask)
        inputs["decoder_attention_mask"] = self.moved(mask, mask)
        assert_same_outputs(self.compared(head, model(**inputs), inputs), expected, 1e-5)

    @torch.no_grad()
    def test_padding_ids_are_not_read(self, head: Head) -> None:
        model, inputs = self.model(head), self.inputs(head)
        changed = copy.deepcopy(inputs)
        changed["input_ids"][inputs["attention_mask"] == 0] = 7
        expected, got = model(**inputs), model(**changed)
        assert_same_outputs(self.compared(head, got, inputs), self.compared(head, expected, inputs), 1e-6)

    @torch.no_grad()
    def test_without_a_mask_it_is_read_off_the_padding(self, head: Head) -> None:
        model, inputs = self.model(head), self.inputs(head)
        expected = self.compared(head, model(**inputs), inputs)
        for batch in (inputs, self.left_padded(inputs)):
            without = {name: value for name, value in batch.items() if name != "attention_mask"}
            assert_same_outputs(self.compared(head, model(**without), without), expected, 1e-5)

    @torch.no_grad()
    @pytest.mark.parametrize("attention", ["eager", "sdpa"])
    def test_masks_mean_the_same_in_every_form(self, attention: str) -> None:
        """Of the source, by tokens; of the target, by tokens and by queries."""
        head = self.head("encoder")
        model, inputs = self.model(head, attention), self.inputs(head)
        fed = inputs["decoder_input_ids"] != self.config().pad_token_id
        width = fed.shape[1]
        inputs["decoder_attention_mask"] = fed.long()
        expected = self.compared(head, model(**inputs), inputs)
        causal = fed[:, None] & torch.ones(width, width, dtype=torch.bool).tril()
        forms = {
            "attention_mask": token_forms(inputs["attention_mask"]),
            "decoder_attention_mask": {**token_forms(inputs["decoder_attention_mask"]), **query_forms(causal)},
        }
        for argument, masks in forms.items():
            for name, mask in masks.items():
                got = self.compared(head, model(**{**inputs, argument: mask}), inputs)
                for field, value in expected.items():
                    assert_same(got[field], value, 1e-5, f"{argument}, {name}: {field}")

    @torch.no_grad()
    @pytest.mark.parametrize("argument", ["attention_mask", "decoder_attention_mask"])
    def test_what_is_no_mask_is_refused(self, argument: str) -> None:
        head = self.head("encoder")
        model, inputs = self.model(head), self.inputs(head)
        fed = (inputs["decoder_input_ids"] != self.config().pad_token_id).long()
        for name, form in bad_forms(inputs["attention_mask"] if argument == "attention_mask" else fed).items():
            with pytest.raises((ValueError, TypeError), match=f"`{argument}`"):
                pytest.fail(f"{name}: {model(**{**inputs, argument: form})}")
        by_source = inputs["attention_mask"].bool()[:, None].expand(-1, inputs["attention_mask"].shape[1], -1)
        with pytest.raises(ValueError, match="`attention_mask`"):
            model(**{**inputs, "attention_mask": by_source})

    @torch.no_grad()
    def test_a_target_sees_nothing_later(self) -> None:
        head = self.head("vocabulary")
        model, inputs = self.model(head), self.inputs(head)
        changed = copy.deepcopy(inputs)
        changed["decoder_input_ids"][:, 2:] = 9
        first, second = prediction(head, model(**inputs)), prediction(head, model(**changed))
        assert_same(first[:, :2], second[:, :2], 1e-6)
        assert (first[:, 2:] - second[:, 2:]).abs().max() > 1e-3

    @torch.no_grad()
    def test_hidden_states_and_attentions(self, head: Head) -> None:
        model, inputs = self.model(head, "eager"), self.inputs(head)
        config, (rows, source) = model.config, inputs["input_ids"].shape
        target = inputs["decoder_input_ids"].shape[1] if "decoder_input_ids" in inputs else source
        plain = model(**inputs)
        assert not {"decoder_hidden_states", "encoder_attentions", "cross_attentions"} & set(plain)
        outputs = model(**inputs, output_hidden_states=True, output_attentions=True)
        for side, length in (("encoder", source), ("decoder", target)):
            layers, heads = (getattr(config, f"{side}_{what}") for what in ("layers", "attention_heads"))
            states = [tuple(state.shape) for state in outputs[f"{side}_hidden_states"]]
            assert states == [(rows, length, config.hidden_size)] * (layers + 1)
            weights = outputs[f"{side}_attentions"]
            assert [tuple(value.shape) for value in weights] == [(rows, heads, length, length)] * layers
            if side == "decoder":
                shapes = [tuple(value.shape) for value in outputs.cross_attentions]
                assert shapes == [(rows, heads, target, source)] * layers
        assert_same(outputs.encoder_hidden_states[-1], outputs.encoder_last_hidden_state, 0.0)
        assert_same_outputs(self.compared(head, outputs, inputs), self.compared(head, plain, inputs), 1e-6)
        model.config.output_hidden_states = True
        assert_same(model(**inputs).decoder_hidden_states, outputs.decoder_hidden_states)

    @torch.no_grad()
    def test_embedded_inputs_equal_ids(self, head: Head) -> None:
        model, inputs = self.model(head), self.inputs(head)
        if head.kind == "sequence":
            with pytest.raises(ValueError, match="`decoder_inputs_embeds`"):
                model(
                    inputs_embeds=model.get_input_embeddings()(inputs["input_ids"]),
                    attention_mask=inputs["attention_mask"],
                )
            return
        embedded = dict(inputs)
        for side in ("", "decoder_"):
            embedded[f"{side}inputs_embeds"] = self.table(model, side)(embedded.pop(f"{side}input_ids"))
        expected = self.compared(head, model(**inputs), inputs)
        assert_same_outputs(self.compared(head, model(**embedded), inputs), expected)

    @torch.no_grad()
    def test_encoder_outputs_can_be_used_again(self, head: Head) -> None:
        model, inputs = self.model(head), self.inputs(head)
        expected = model(**inputs)
        source = {name: value for name, value in inputs.items() if not name.startswith("decoder_")}
        encoded = model.get_encoder()(**source)
        for given in (encoded, encoded.to_tuple(), (expected.encoder_last_hidden_state,)):
            assert_same_outputs(model(**inputs, encoder_outputs=given), expected, 1e-6)

    def test_exactly_one_of_ids_and_embeddings(self) -> None:
        head = self.head("encoder")
        model, inputs = self.model(head), self.inputs(head)
        fed = {"decoder_input_ids": inputs["decoder_input_ids"]}
        with pytest.raises(ValueError, match="`input_ids`"):
            model(attention_mask=inputs["attention_mask"], **fed)
        embeddings = model.get_input_embeddings()
        with pytest.raises(ValueError, match="`inputs_embeds`"):
            model(**inputs, inputs_embeds=embeddings(inputs["input_ids"]))
        with pytest.raises(ValueError, match="`decoder_inputs_embeds`"):
            model(**inputs, decoder_inputs_embeds=embeddings(inputs["decoder_input_ids"]))

    def test_more_tokens_than_positions_are_refused(self) -> None:
        head = self.head("encoder")
        model = self.model(head, **dict.fromkeys(self.position_fields, 8))
        short, long = self.rows((6,)), self.rows((9,))
        for source, fed in ((long, short["decoder_input_ids"]), (short, torch.full((1, 9), 5))):
            with pytest.raises(ValueError, match="max_position_embeddings"):
                model(**{**source, "decoder_input_ids": fed})

    def test_arguments_that_nothing_reads_are_refused(self, head: Head) -> None:
        model, inputs = self.model(head), self.inputs(head)
        with torch.no_grad(), pytest.raises(TypeError, match=r"`attention_maks`.*did you mean `attention_mask`"):
            model(input_ids=inputs["input_ids"], attention_maks=inputs["attention_mask"])
        for name in ("encoder_hidden_states", "token_type_ids", "cu_seq_lens_q"):
            with torch.no_grad(), pytest.raises(TypeError, match=f"`{name}`"):
                model(**inputs, **{name: torch.ones(1)})

    @torch.no_grad()
    def test_the_zeros_that_tokenizers_give_as_token_types_pass(self, head: Head) -> None:
        model, inputs = self.model(head), self.inputs(head)
        zeros = {"token_type_ids": torch.zeros_like(inputs["input_ids"])}
        assert_same_outputs(model(**inputs, **zeros), model(**inputs), 0.0)

    @torch.no_grad()
    def test_a_cache_continues_where_it_stopped(self) -> None:
        """Token by token, in pieces of two, and all at once."""
        head = self.head("vocabulary")
        model = self.model(head)
        inputs = self.left_padded(self.inputs(head))
        fed = inputs.pop("decoder_input_ids")
        own = {name: inputs.pop(name) for name in list(inputs) if name.startswith("decoder_")}
        expected = model(**inputs, **own, decoder_input_ids=fed).logits
        for step in (1, 2):
            cache, pieces = EncoderDecoderCache(DynamicCache(), DynamicCache()), []
            for first in range(0, fed.shape[1], step):
                columns = slice(first, first + step)
                part = {name: value[:, columns] if value.dim() > 1 else value for name, value in own.items()}
                output = model(**inputs, **part, decoder_input_ids=fed[:, columns], cache=cache, use_cache=True)
                assert output.cache is cache
                pieces.append(output.logits)
            real = fed != self.config().pad_token_id
            assert_same(torch.cat(pieces, dim=1)[real], expected[real], 1e-5)
        assert isinstance(model(**inputs, **own, decoder_input_ids=fed, use_cache=True).cache, EncoderDecoderCache)


class EncoderDecoderAttentionChecks(EncoderDecoderCase):
    def mask_cases(self, head: Head) -> dict[str, dict[str, torch.Tensor]]:
        """Every kind of input that makes a mask, by name."""
        padded = self.inputs(head)
        empty = copy.deepcopy(padded)
        empty["attention_mask"][-1] = 0
        full = self.inputs(head, lengths=(6, 6, 6))
        return {"no padding": full, "right": padded, "left": self.left_padded(padded), "an empty row": empty}

    @torch.no_grad()
    def test_eager_equals_sdpa(self, head: Head) -> None:
        eager, sdpa = self.model(head, "eager"), self.model(head, "sdpa")
        for name, inputs in self.mask_cases(head).items():
            expected, got = (self.compared(head, model(**inputs), inputs) for model in (eager, sdpa))
            for field in expected:
                rows = slice(None)
                if name == "an empty row":  # its own outputs mean nothing, but are numbers
                    assert torch.isfinite(got[field]).all()
                    rows = slice(0, 2)
                assert_same(got[field][rows], expected[field][rows], 1e-5, f"{name}: {field}")

    @pytest.mark.slow
    @torch.no_grad()
    @pytest.mark.parametrize("case", ["no padding", "right", "left"])
    def test_flex_equals_sdpa(self, case: str) -> None:
        torch._dynamo.reset()
        head = self.head("encoder")
        sizes = {"d_model": 64, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
        inputs = self.mask_cases(head)[case]
        expected = self.compared(head, self.model(head, "sdpa", **sizes)(**inputs), inputs)
        got = self.compared(head, self.model(head, "flex_attention", **sizes)(**inputs), inputs)
        assert_same_outputs(got, expected, 1e-5)
        torch._dynamo.reset()

    @torch.no_grad()
    def test_the_attention_implementation_can_be_changed(self, head: Head, tmp_path: Path) -> None:
        model, inputs = self.model(head, "sdpa"), self.inputs(head)
        expected = self.compared(head, model(**inputs), inputs)
        model.set_attn_implementation("eager")
        outputs = model(**inputs, output_attentions=True)
        assert outputs.cross_attentions
        assert_same_outputs(self.compared(head, outputs, inputs), expected, 1e-5)
        model.save_pretrained(tmp_path)
        for attention in ("eager", "sdpa", "flex_attention"):
            loaded = head.cls.from_pretrained(tmp_path, attn_implementation=attention)
            assert loaded.config._attn_implementation == attention

    def test_flash_attention_is_refused(self, head: Head) -> None:
        for name in ("flash_attention_2", "flash_attention_3"):
            with pytest.raises(ValueError, match=f"{head.cls.__name__} has no flash attention.* got '{name}'"):
                head.cls._from_config(self.config(head), attn_implementation=name)

    def check_compiled(self, head: Head, backend: str) -> None:
        """One graph for inference and one for training, equal to the model, not compiled again for other values."""
        for training, batch in ((False, self.inputs(head)), (True, self.labelled(head))):
            torch._dynamo.reset()
            model = self.model(head).train(training)
            counter = CompileCounterWithBackend(backend)
            compiled = torch.compile(model, backend=counter, fullgraph=True, dynamic=False)
            for each in (batch, {name: value.flip(0).contiguous() for name, value in batch.items()}):
                with torch.set_grad_enabled(training):
                    got, expected = compiled(**each), model(**each)
                if not training:
                    assert_same_outputs(self.compared(head, got, each), self.compared(head, expected, each), 2e-5)
                elif head.labels is not None:
                    assert_same(got.loss, expected.loss, 2e-5)
                    assert_gradients_equal(model, got.loss, expected.loss, 1e-5)
                assert counter.frame_count == 1
        torch._dynamo.reset()

    def test_compiled_graphs_are_whole_and_equal(self) -> None:
        self.check_compiled(self.head("vocabulary"), "aot_eager")

    @pytest.mark.slow
    def test_every_head_compiles(self, head: Head) -> None:
        self.check_compiled(head, "aot_eager")

    @pytest.mark.slow
    def test_inductor(self) -> None:
        self.check_compiled(self.head("vocabulary"), "inductor")


class EncoderDecoderTrainingChecks(EncoderDecoderCase):
    def test_every_parameter_gets_a_gradient(self, loss_head: Head) -> None:
        model = self.model(loss_head).train()
        model(**self.labelled(loss_head)).loss.backward()
        without = [
            name for name, value in model.named_parameters() if value.grad is None or not value.grad.abs().sum() > 0
        ]
        assert [name for name in without if not name.endswith(self.without_gradient)] == []

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
        assert all(torch.isfinite(value.grad).all() for value in model.parameters())

    @pytest.mark.parametrize("reentrant", [True, False])
    def test_gradient_checkpointing_changes_nothing(self, loss_head: Head, reentrant: bool) -> None:
        results = []
        for checkpointing in (False, True):
            model = self.model(loss_head, **{self.dropout_fields[0]: 0.1}).train()
            if checkpointing:
                model.activation_checkpointing_enable({"use_reentrant": reentrant})
                assert model.is_activation_checkpointing
                model.enable_input_require_grads()
            torch.manual_seed(0)
            loss = model(**self.labelled(loss_head)).loss
            loss.backward()
            results.append({"loss": loss, **{name: value.grad for name, value in model.named_parameters()}})
        for name, value in results[0].items():
            assert_same(results[1][name], value, 1e-6, name)

    def test_logits_are_left_out_in_training_only(self, vocabulary_head: Head) -> None:
        model, batch = self.model(vocabulary_head), self.labelled(vocabulary_head)
        inputs = self.inputs(vocabulary_head)
        shape = (*inputs["decoder_input_ids"].shape, model.config.vocab_size)
        for training in (True, False):
            model.train(training)
            assert model(**inputs).logits.shape == shape
            assert model(**batch, return_logits=True).logits.shape == shape
            assert model(**batch, return_logits=False).logits is None
            assert (model(**batch).logits is None) == training

    @pytest.mark.parametrize("smoothing", [0.0, 0.1])
    def test_labels_only_loss_equals_full_loss(self, vocabulary_head: Head, smoothing: float) -> None:
        model, batch = self.model(vocabulary_head), self.labelled(vocabulary_head)
        if smoothing:
            if not hasattr(model.config, "label_smoothing"):
                return
            model.config.label_smoothing = smoothing
        full = model(**batch, return_logits=True)
        lean = model(**batch, return_logits=False).loss
        torch.testing.assert_close(lean, full.loss, atol=1e-6, rtol=1e-6)
        assert_gradients_equal(model, lean, full.loss, 1e-6)
        flat = full.logits.flatten(0, 1).log_softmax(-1)[batch["labels"].flatten() != -100]
        gold = batch["labels"][batch["labels"] != -100]
        plain = -flat.gather(1, gold[:, None]).mean()
        torch.testing.assert_close(full.loss, (1 - smoothing) * plain - smoothing * flat.mean())

    def test_the_decoders_input_is_made_from_labels(self, vocabulary_head: Head) -> None:
        """With right and left padding of labels, for both the loss and upstream's collator."""
        model, batch = self.model(vocabulary_head), self.labelled(vocabulary_head)
        expected = model(**batch).loss
        fed = batch.pop("decoder_input_ids")
        mask = batch["labels"] != -100
        assert torch.equal(model.prepare_decoder_input_ids_from_labels(batch["labels"]), fed)
        torch.testing.assert_close(model(**batch).loss, expected, atol=1e-6, rtol=1e-6)
        left = {**batch, "labels": self.moved(batch["labels"], mask.long())}
        assert torch.equal(model.prepare_decoder_input_ids_from_labels(left["labels"]), self.moved(fed, mask.long()))
        torch.testing.assert_close(model(**left).loss, expected, atol=1e-6, rtol=1e-6)

    def test_training_without_labels_and_targets_is_refused(self, vocabulary_head: Head) -> None:
        """What the Trainer's label smoothing does without upstream's collator: it would train on the source."""
        model, batch = self.model(vocabulary_head).train(), self.inputs(vocabulary_head)
        del batch["decoder_input_ids"]
        with pytest.raises(ValueError, match=r"`decoder_input_ids`.*DataCollatorForSeq2Seq"):
            model(**batch)

    def test_no_target_means_loss_zero_with_a_graph(self, vocabulary_head: Head) -> None:
        model, batch = self.model(vocabulary_head), self.labelled(vocabulary_head)
        batch["labels"] = torch.full_like(batch["labels"], -100)
        for training in (True, False):
            loss = model.train(training)(**batch).loss
            assert loss == 0
            loss.backward()
            for name, value in model.named_parameters():
                assert value.grad is not None, f"{name}: distributed training would wait for it"
                assert not value.grad.any(), name
                value.grad = None

    def test_ignored_labels_and_rows_change_nothing(self, vocabulary_head: Head) -> None:
        model, batch = self.model(vocabulary_head), self.labelled(vocabulary_head)
        longer = {}
        for name, value in batch.items():
            row = torch.full_like(value[:1], -100 if name == "labels" else 0)
            longer[name] = torch.cat([value, row])
        first, second = model(**batch).loss, model(**longer).loss
        torch.testing.assert_close(first, second, atol=1e-6, rtol=1e-6)
        assert_gradients_equal(model, first, second, 1e-6)

    def test_losses_of_micro_batches_add_up(self, loss_head: Head) -> None:
        model, batch = self.model(loss_head).train(), self.labelled(loss_head)
        items = (batch["labels"] != -100).sum()
        whole = model(**batch).loss
        parts = [
            model(**{name: value[rows] for name, value in batch.items()}, num_items_in_batch=items).loss
            for rows in (slice(0, 1), slice(1, 3))
        ]
        torch.testing.assert_close(sum(parts), whole, atol=1e-6, rtol=1e-6)
        assert_gradients_equal(model, sum(parts), whole, 1e-6)


class EncoderDecoderEmbeddingChecks(EncoderDecoderCase):
    decoders = EmbeddingChecks.decoders
    tied_table = EmbeddingChecks.tied_table
    test_embeddings_can_be_read_and_replaced = EmbeddingChecks.test_embeddings_can_be_read_and_replaced
    test_tied_weights_are_one_tensor_and_saved_once = EmbeddingChecks.test_tied_weights_are_one_tensor_and_saved_once
    test_untied_weights_are_separate = EmbeddingChecks.test_untied_weights_are_separate
    test_resizing_frozen_embeddings_keeps_them_frozen = (
        EmbeddingChecks.test_resizing_frozen_embeddings_keeps_them_frozen
    )
    test_resizing_without_a_vocabulary_head = EmbeddingChecks.test_resizing_without_a_vocabulary_head

    @pytest.mark.parametrize("tied", [True, False])
    def test_resizing_keeps_every_table_in_step(self, vocabulary_head: Head, tied: bool, tmp_path: Path) -> None:
        model = self.model(vocabulary_head, vocab_size=149, tie_word_embeddings=tied)
        before = model.get_output_embeddings().weight[:149].detach().clone()
        for size in (152, 150):
            model.resize_token_embeddings(size)
            assert model.config.vocab_size == size
            tables = [module.weight for module in model.modules() if isinstance(module, nn.Embedding)]
            assert {len(table) for table in tables} & {149, 152, 150} == {size}
            assert (model.get_output_embeddings().weight is self.tied_table(model).weight) == tied
            assert_same(model.get_output_embeddings().weight[:149], before, 0.0)
            batch = self.labelled(vocabulary_head)
            batch["labels"][:, 0] = batch["input_ids"][:, 0] = batch["decoder_input_ids"][:, 1] = size - 1
            loss = model.train()(**batch).loss
            loss.backward()
            assert model.get_output_embeddings().weight.grad[size - 1].abs().sum() > 0
            model.zero_grad()
            del loss
        model.eval().save_pretrained(tmp_path)
        loaded, info = vocabulary_head.cls.from_pretrained(tmp_path, output_loading_info=True)
        assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
        with torch.no_grad():
            assert_same_outputs(loaded(**batch), model(**batch), 1e-6)


class EncoderDecoderTrainerChecks(EncoderDecoderCase, TrainerChecks):
    def test_training_evaluation_and_generation_by_upstreams_trainer(
        self, vocabulary_head: Head, tmp_path: Path
    ) -> None:
        """`Seq2SeqTrainer` with upstream's collator, generating for the metrics."""
        model = self.model(vocabulary_head, use_cache=True)
        rows = self.rows((9, 4, 6, 9, 5, 7, 3, 8))
        labels = target_labels(model.config, rows, self.generator())["labels"]
        dataset = Dataset.from_list(
            [
                {
                    **{name: value[row].tolist() for name, value in rows.items() if name != "decoder_input_ids"},
                    "labels": labels[row][labels[row] != -100].tolist(),
                }
                for row in range(8)
            ]
        )
        seen: list[Any] = []
        trainer = Seq2SeqTrainer(
            model=model,
            args=Seq2SeqTrainingArguments(
                **{**arguments(tmp_path).to_dict(), "max_steps": 2, "eval_strategy": "steps", "eval_steps": 1},
                predict_with_generate=True,
                generation_max_length=6,
                generation_num_beams=2,
            ),
            train_dataset=dataset,
            eval_dataset=dataset,
            data_collator=DataCollatorForSeq2Seq(PaddingTokenizer(model.config.pad_token_id), model=model),
            compute_metrics=lambda result: seen.append(result) or {"answered": float(len(result.predictions))},
        )
        trainer.train()
        history = trainer.state.log_history
        assert all(np.isfinite(entry["eval_loss"]) for entry in history if "eval_loss" in entry)
        assert [entry["eval_answered"] for entry in history if "eval_answered" in entry] == [8.0, 8.0]
        assert len(seen[0].predictions) == 8
        assert set(seen[0].predictions[:, 6:].flatten().tolist()) <= {model.config.pad_token_id}

    def test_smoothing_of_the_trainer_is_smoothing_of_the_model(self, vocabulary_head: Head, tmp_path: Path) -> None:
        model = self.model(vocabulary_head)
        if not hasattr(model.config, "label_smoothing"):
            return
        dataset = self.dataset(vocabulary_head)
        model.config.label_smoothing = 0.1
        with torch.no_grad():
            expected = model.train()(**self.whole(dataset)).loss.item()
        _, logged = self.run_step(vocabulary_head, tmp_path, dataset, label_smoothing_factor=0.1)
        assert logged == pytest.approx(expected, rel=1e-5)


class PaddingTokenizer:
    """As much of a tokenizer as upstream's collator needs."""

    padding_side = "right"

    def __init__(self, pad_token_id: int):
        self.pad_token_id = pad_token_id

    def pad(self, features: Any, return_tensors: str = "pt", **kwargs: Any) -> dict[str, torch.Tensor]:
        rows = {name: [feature[name] for feature in features] for name in features[0] if name != "labels"}
        return {name: torch.tensor(values) for name, values in rows.items()}


class EncoderDecoderPeftChecks(EncoderDecoderCase, PeftChecks):
    def attentions(self, config: Any) -> int:
        """One in an encoder layer, two in a decoder layer."""
        return config.encoder_layers + 2 * config.decoder_layers


class EncoderDecoderLoadingChecks(EncoderDecoderCase, LoadingChecks):
    @torch.no_grad()
    @pytest.mark.parametrize("form", ["plain", "module.", "encoder without prefix"])
    def test_older_names_load(self, form: str, tmp_path: Path) -> None:
        """`gamma` and `beta` were BERT's names, never BART's."""
        self.check_older_names(form, tmp_path)


class EncoderDecoderConformance(
    EncoderDecoderForwardChecks,
    EncoderDecoderAttentionChecks,
    EncoderDecoderTrainingChecks,
    EncoderDecoderEmbeddingChecks,
    EncoderDecoderTrainerChecks,
    EncoderDecoderPeftChecks,
    ConfigChecks,
    EncoderDecoderLoadingChecks,
    RemoteChecks,
):
    """All checks that apply to an encoder-decoder family, generation aside."""


class EncoderDecoderGenerationChecks(EncoderDecoderCase, GenerationChecks):
    """Generation: upstream's strategies, caches, limits."""

    returns_prompt = False
    start_tokens = 1
    refused_options: dict[str, Any] = {}

    def generator_model(self, attention: str = "sdpa", **overrides: Any) -> Any:
        return super().generator_model(attention, **{"use_cache": True, **overrides})

    def test_more_tokens_than_positions_are_refused_before_the_first_step(
        self, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Source and target have limits of their own."""
        model = self.generator_model(**dict.fromkeys(self.position_fields, 16))
        fits, long = self.prompts((16,)), self.prompts((17,))
        assert model.generate(**fits, **options, max_new_tokens=16).shape == (1, 17)

        def never(*args: Any, **kwargs: Any) -> None:
            raise AssertionError("a step was made")

        monkeypatch.setattr(model, "forward", never)
        for prompts, limit in ((fits, {"max_new_tokens": 17}), (fits, {"max_length": 18}), (long, {"max_length": 3})):
            with pytest.raises(ValueError, match="max_position_embeddings"):
                model.generate(**prompts, **options, **limit)

    def test_the_old_name_of_the_cache_is_not_swallowed(self, options: dict[str, Any]) -> None:
        model, prompts = self.generator_model(), self.prompts((7,))
        cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        with pytest.warns(FutureWarning, match="past_key_values"):
            got = model.generate(**prompts, **options, past_key_values=cache, max_new_tokens=3)
        assert cache.get_seq_length() > 0
        assert torch.equal(got, model.generate(**prompts, **options, max_new_tokens=3))

    def test_a_static_cache_gives_the_same(self, options: dict[str, Any]) -> None:
        model, prompts = self.generator_model(), self.prompts()
        expected = model.generate(**prompts, **options, max_new_tokens=NEW_TOKENS, do_sample=False)
        got = model.generate(
            **prompts,
            **options,
            max_new_tokens=NEW_TOKENS,
            do_sample=False,
            cache_implementation="static",
            disable_compile=True,
        )
        assert torch.equal(got, expected)

    def test_a_compiled_step_is_one_graph_and_gives_the_same(self, options: dict[str, Any]) -> None:
        model, prompts = self.generator_model(), self.prompts()
        compiled = CompileConfig(fullgraph=True, dynamic=False, backend="aot_eager")
        compiled._compile_all_devices = True  # the CPU too
        settings = {"max_new_tokens": 4, "do_sample": False, "cache_implementation": "static"}
        got = model.generate(**prompts, **options, **settings, compile_config=compiled)
        assert hasattr(model, "_compiled_call")
        assert torch.equal(got, model.generate(**prompts, **options, **settings, disable_compile=True))

    def test_nothing_given_begins_with_the_token_that_begins_texts(self, options: dict[str, Any]) -> None:
        model, prompts = self.generator_model(), self.prompts((1,))
        others = {name: value for name, value in prompts.items() if name not in ("input_ids", "attention_mask")}
        begin = torch.tensor([[model.config.bos_token_id]])
        expected = model.generate(begin, **others, **options, max_new_tokens=3)
        assert torch.equal(model.generate(**others, **options, max_new_tokens=3), expected)

    def test_what_the_decoder_is_given_is_continued(self, options: dict[str, Any]) -> None:
        model, prompts = self.generator_model(), self.prompts()
        whole = model.generate(**prompts, **options, max_new_tokens=NEW_TOKENS, do_sample=False)
        more = model.generate(
            **prompts, **options, decoder_input_ids=whole[:, :4], max_new_tokens=NEW_TOKENS - 3, do_sample=False
        )
        assert torch.equal(more, whole)

    def test_assisted_decoding_gives_the_same(self, options: dict[str, Any]) -> None:
        model, prompts = self.generator_model(), self.prompts((7,))
        assistant = self.generator_model(seed=1)
        expected = model.generate(**prompts, **options, max_new_tokens=NEW_TOKENS, do_sample=False)
        got = model.generate(
            **prompts, **options, max_new_tokens=NEW_TOKENS, do_sample=False, assistant_model=assistant
        )
        assert torch.equal(got, expected)

    def test_generation_settings_survive_saving(self, options: dict[str, Any], tmp_path: Path) -> None:
        model = self.generator_model()
        model.generation_config.num_beams = 3
        model.save_pretrained(tmp_path)
        stored = json.loads((tmp_path / "generation_config.json").read_text(encoding="utf-8"))
        assert stored["num_beams"] == 3
        loaded = type(model).from_pretrained(tmp_path)
        prompts = self.prompts()
        torch.testing.assert_close(
            loaded.generate(**prompts, **options, max_new_tokens=4),
            model.generate(**prompts, **options, max_new_tokens=4),
        )


__all__ = [
    "END",
    "START",
    "EncoderDecoderConformance",
    "EncoderDecoderGenerationChecks",
    "target_labels",
]
