"""Checks of embeddings: access, tying, resizing."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from .family import FamilyCase, Head, assert_same, assert_same_outputs, trained


class EmbeddingChecks(FamilyCase):
    def decoders(self, model: nn.Module) -> dict[str, nn.Linear]:
        """All vocabulary projections of a model, by name."""
        size = model.config.vocab_size
        return {
            name: module
            for name, module in model.named_modules()
            if isinstance(module, nn.Linear) and module.weight.shape[0] == size
        }

    def tied_table(self, model: nn.Module) -> nn.Module:
        """The embeddings whose matrix the vocabulary projection is."""
        return model.get_input_embeddings()

    def test_embeddings_can_be_read_and_replaced(self, head: Head) -> None:
        model = self.model(head)
        assert model.get_input_embeddings() is model.base_model.get_submodule(self.embeddings_name)
        new = nn.Embedding(model.config.vocab_size, model.config.hidden_size)
        model.set_input_embeddings(new)
        assert model.base_model.get_submodule(self.embeddings_name) is new
        output = model.get_output_embeddings()
        if head.kind != "vocabulary":
            assert output is None
            return
        linear = nn.Linear(model.config.hidden_size, model.config.vocab_size)
        model.set_output_embeddings(linear)
        assert model.get_output_embeddings() is linear
        model.tie_weights()
        assert linear.weight is self.tied_table(model).weight

    def test_tied_weights_are_one_tensor_and_saved_once(self, vocabulary_head: Head, tmp_path: Path) -> None:
        model = self.model(vocabulary_head)
        embedding = self.tied_table(model).weight
        decoders = self.decoders(model)
        assert decoders
        for decoder in decoders.values():
            assert decoder.weight is embedding
        model.save_pretrained(tmp_path)
        saved = load_file(tmp_path / "model.safetensors")
        assert not any(f"{name}.weight" in saved for name in decoders)
        loaded, info = vocabulary_head.cls.from_pretrained(tmp_path, output_loading_info=True)
        assert not info["missing_keys"]
        for decoder in self.decoders(loaded).values():
            assert decoder.weight is self.tied_table(loaded).weight

    def test_untied_weights_are_separate(self, vocabulary_head: Head, tmp_path: Path) -> None:
        model = self.model(vocabulary_head, tie_word_embeddings=False)
        assert all(decoder.weight is not self.tied_table(model).weight for decoder in self.decoders(model).values())
        model(**self.labelled(vocabulary_head)).loss.backward()
        for name, value in trained(model).items():
            assert value.grad is not None, f"{name} is in the checkpoint but in no forward"
        model.save_pretrained(tmp_path)
        loaded, info = vocabulary_head.cls.from_pretrained(tmp_path, output_loading_info=True)
        assert not info["missing_keys"]
        for name, value in model.state_dict().items():
            assert_same(loaded.state_dict()[name], value, 0.0, name)

    @pytest.mark.parametrize("tied", [True, False])
    def test_resizing_keeps_every_decoder_in_step(self, vocabulary_head: Head, tied: bool, tmp_path: Path) -> None:
        model = self.model(vocabulary_head, vocab_size=149, tie_word_embeddings=tied)
        biases = [name for name, value in model.state_dict().items() if name.endswith("bias") and len(value) == 149]
        assert len(biases) >= 2 * len(self.decoders(model))
        with torch.no_grad():
            for name in biases:
                model.state_dict()[name][5] = 7.0
        before = {name: decoder.weight[:149].detach().clone() for name, decoder in self.decoders(model).items()}
        for size in (152, 150):
            model.resize_token_embeddings(size)
            assert model.config.vocab_size == size
            assert model.get_input_embeddings().weight.shape[0] == size
            decoders = self.decoders(model)
            assert set(decoders) == set(before)
            for name, decoder in decoders.items():
                assert decoder.out_features == size
                assert (decoder.weight is model.get_input_embeddings().weight) == tied
                assert_same(decoder.weight[:149], before[name], 0.0)
            state = model.state_dict()
            for name in biases:
                assert len(state[name]) == size
                assert state[name][5] == 7.0
                assert not state[name][149:].any()
            assert len({state[name].data_ptr() for name in biases}) == len(decoders)

            batch = self.labelled(vocabulary_head)
            for name in batch:
                if name in ("labels", "span_labels"):
                    batch[name] = torch.where(batch[name] != -100, size - 1, -100)
            batch["input_ids"][0, 1] = size - 1
            loss = model.train()(**batch).loss
            loss.backward()
            assert torch.isfinite(loss)
            for name, decoder in self.decoders(model).items():
                assert decoder.weight.grad[size - 1].abs().sum() > 0, name
                assert decoder.bias.grad[size - 1].abs() > 0, name
            model.zero_grad()
            del loss, decoder
        model.eval().save_pretrained(tmp_path)
        loaded, info = vocabulary_head.cls.from_pretrained(tmp_path, output_loading_info=True)
        assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
        with torch.no_grad():
            assert_same_outputs(loaded(**batch), model(**batch), 1e-6)

    def test_resizing_without_a_vocabulary_head(self, head: Head, tmp_path: Path) -> None:
        if head.kind == "vocabulary":
            return
        model = self.model(head)
        model.resize_token_embeddings(103, pad_to_multiple_of=8)
        assert model.get_input_embeddings().weight.shape[0] == model.config.vocab_size == 104
        batch = self.inputs(head)
        batch["input_ids"][:, ..., 1] = 103
        model.save_pretrained(tmp_path)
        loaded = head.cls.from_pretrained(tmp_path)
        assert loaded.config.vocab_size == 104
        with torch.no_grad():
            assert_same_outputs(loaded(**batch), model(**batch))

    def test_resizing_frozen_embeddings_keeps_them_frozen(self, vocabulary_head: Head) -> None:
        model = self.model(vocabulary_head)
        model.get_input_embeddings().weight.requires_grad_(False)
        model.resize_token_embeddings(103)
        assert not model.get_input_embeddings().weight.requires_grad
