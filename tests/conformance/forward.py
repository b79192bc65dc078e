"""Checks of one forward pass: determinism, batching, padding, and the forms of inputs and outputs."""

import copy
import pickle

import pytest
import torch

from tests.tolerance import assert_agrees

from .family import LENGTHS, FamilyCase, Head, assert_same, assert_same_outputs, at_real_tokens, prediction


class ForwardChecks(FamilyCase):
    @torch.no_grad()
    def test_the_same_input_gives_the_same_output(self, head: Head) -> None:
        model, inputs = self.model(head, **dict.fromkeys(self.dropout_fields, 0.5)), self.inputs(head)
        assert_same_outputs(model(**inputs), model(**inputs), tolerance=0.0)

    @torch.no_grad()
    def test_a_row_does_not_depend_on_its_batch(self, head: Head) -> None:
        model, inputs = self.model(head), self.inputs(head)
        batch = model(**inputs)
        for row in range(len(LENGTHS)):
            single = model(**{name: value[row : row + 1] for name, value in inputs.items()})
            for name in head.outputs:
                assert_same(single[name], batch[name][row : row + 1], 1e-5, name)

    @torch.no_grad()
    @pytest.mark.parametrize("attention", ["eager", "sdpa"])
    def test_padding_changes_nothing_right_or_left(self, row_head: Head, attention: str) -> None:
        model = self.model(row_head, attention)
        right, left = self.inputs(row_head, "right"), self.inputs(row_head, "left")
        mask = right["attention_mask"].bool()
        for name in ("input_ids", "token_type_ids"):
            left[name][left["attention_mask"].bool()] = right[name][mask]
        outputs_right, outputs_left = model(**right), model(**left)
        for name in row_head.outputs:
            first, second = outputs_right[name], outputs_left[name]
            if first.shape[:2] == mask.shape:
                first, second = first[mask], second[left["attention_mask"].bool()]
            assert_same(first, second, 1e-5, name)
        for row, length in enumerate(LENGTHS):
            alone = model(
                **{
                    name: value[row : row + 1, :length] if value.dim() > 1 else value[row : row + 1]
                    for name, value in right.items()
                }
            )
            for name in row_head.outputs:
                batched = outputs_right[name][row : row + 1]
                assert_same(alone[name], batched[:, :length] if batched.shape[1] == mask.shape[1] else batched, 1e-5)

    @torch.no_grad()
    def test_left_padded_choices_score_as_right_padded_ones(self) -> None:
        head = self.head("choice")
        model, right, left = self.model(head), self.inputs(head, "right"), self.inputs(head, "left")
        for name in ("input_ids", "token_type_ids"):
            left[name][left["attention_mask"].bool()] = right[name][right["attention_mask"].bool()]
        assert_same(model(**right).logits, model(**left).logits, 1e-5)

    @torch.no_grad()
    def test_padding_ids_and_types_are_not_read(self, row_head: Head) -> None:
        model, inputs = self.model(row_head), self.inputs(row_head)
        changed = copy.deepcopy(inputs)
        changed["input_ids"][inputs["attention_mask"] == 0] = 7
        changed["token_type_ids"][inputs["attention_mask"] == 0] = 1
        expected, got = model(**inputs), model(**changed)
        for name in row_head.outputs:
            first, second = expected[name], got[name]
            if first.shape[:2] == inputs["attention_mask"].shape:
                first, second = (at_real_tokens(value, inputs["attention_mask"]) for value in (first, second))
            assert_same(first, second, 1e-6, name)

    @torch.no_grad()
    def test_hidden_states_and_attentions(self, head: Head) -> None:
        model, inputs = self.model(head, "eager"), self.inputs(head)
        layers, rows = model.config.num_hidden_layers, inputs["input_ids"].flatten(0, -2).shape
        plain = model(**inputs)
        assert "hidden_states" not in plain
        assert "attentions" not in plain
        outputs = model(**inputs, output_hidden_states=True, output_attentions=True)
        assert [tuple(state.shape) for state in outputs.hidden_states] == [(*rows, model.config.hidden_size)] * (
            layers + 1
        )
        assert [tuple(weights.shape) for weights in outputs.attentions] == [
            (rows[0], model.config.num_attention_heads, rows[1], rows[1])
        ] * layers
        for weights in outputs.attentions:
            assert_agrees(weights.sum(-1), torch.ones(weights.shape[:-1]), 1e-5)
        for name in head.outputs:
            assert_same(outputs[name], plain[name], 1e-6, name)

        model.config.output_hidden_states = True
        assert_same(model(**inputs).hidden_states, outputs.hidden_states)
        assert "hidden_states" not in model(**inputs, output_hidden_states=False)
        selected = model(**inputs, output_hidden_states=[0, layers]).hidden_states
        assert [state is None for state in selected] == [False, *[True] * (layers - 1), False]
        assert_same((selected[0], selected[layers]), (outputs.hidden_states[0], outputs.hidden_states[layers]))

    @torch.no_grad()
    def test_every_field_can_be_split_by_rows(self, head: Head) -> None:
        """As pipelines and the Trainer split what a model returns."""
        batch = self.labelled(head)
        for name, value in self.model(head)(**batch).items():
            if name != "cache" and not (name.endswith("loss") and value.dim() == 0):
                assert value.shape[0] == batch["input_ids"].shape[0], name

    @torch.no_grad()
    def test_tuples_hold_the_same_as_the_output_object(self, head: Head) -> None:
        model, batch = self.model(head, "eager"), self.labelled(head)
        named = model(**batch, output_hidden_states=True, output_attentions=True)
        for return_dict in (False, None):
            if return_dict is None:
                model.config.return_dict = False
            arguments = {} if return_dict is None else {"return_dict": return_dict}
            values = model(**batch, output_hidden_states=True, output_attentions=True, **arguments)
            assert isinstance(values, tuple)
            assert_same(values, named.to_tuple(), 0.0)

    @torch.no_grad()
    def test_embedded_inputs_equal_ids(self, head: Head) -> None:
        model, batch = self.model(head), self.labelled(head)
        embedded = {name: value for name, value in batch.items() if name != "input_ids"}
        embedded["inputs_embeds"] = model.get_input_embeddings()(batch["input_ids"])
        assert_same_outputs(model(**batch), model(**embedded))

    def test_exactly_one_of_ids_and_embeddings(self) -> None:
        head = self.head("encoder")
        model, inputs = self.model(head), self.inputs(head)
        with pytest.raises(ValueError, match="`input_ids`"):
            model(attention_mask=inputs["attention_mask"])
        with pytest.raises(ValueError, match="`inputs_embeds`"):
            model(**inputs, inputs_embeds=model.get_input_embeddings()(inputs["input_ids"]))

    def test_more_tokens_than_positions_are_refused(self) -> None:
        model = self.model(self.head("encoder"), max_position_embeddings=8)
        with pytest.raises(ValueError, match="`max_position_embeddings`"):
            model(torch.full((1, 9), 5))

    def test_arguments_that_nothing_reads_are_refused(self, head: Head) -> None:
        """A misspelt mask, a cache that an encoder lacks: ignored, they would give other outputs without notice."""
        model, inputs = self.model(head), self.inputs(head)
        with torch.no_grad(), pytest.raises(TypeError, match=r"`attention_maks`.*did you mean `attention_mask`"):
            model(input_ids=inputs["input_ids"], attention_maks=inputs["attention_mask"])
        for name in ("past_key_values", "cache", "encoder_hidden_states", "cu_seq_lens_q"):
            with torch.no_grad(), pytest.raises(TypeError, match=f"`{name}`"):  # a tensor is no cache either
                model(**inputs, **{name: torch.zeros(1)})

    @torch.no_grad()
    def test_arguments_of_upstreams_code_pass(self, head: Head) -> None:
        """What Trainer and wrappers hand through, and whatever is `None`."""
        model, inputs = self.model(head), self.inputs(head)
        extra = {"num_items_in_batch": torch.tensor(3), "use_cache": False, "output_attentions": None}
        expected = model(**inputs)
        assert_same_outputs(model(**inputs, **extra, past_key_values=None, head_mask=None), expected, 0.0)
        model.config.use_cache = False  # as Trainer sets it
        assert_same_outputs(model(**inputs), expected, 0.0)

    @torch.no_grad()
    def test_explicit_positions_and_no_mask_equal_the_defaults(self, row_head: Head) -> None:
        model = self.model(row_head)
        ids = self.rows((7, 7))["input_ids"]
        expected = model(ids)
        positions = torch.arange(7).expand(2, 7)
        for arguments in (
            {"attention_mask": torch.ones_like(ids)},
            {"position_ids": positions},
            {"token_type_ids": torch.zeros_like(ids)},
        ):
            assert_same_outputs(model(ids, **arguments), expected, 1e-6)

    def test_gradients_of_hidden_states_and_attentions_can_be_kept(self, head: Head) -> None:
        model = self.model(head, "eager")
        outputs = model(**self.inputs(head), output_hidden_states=True, output_attentions=True)
        kept = [*outputs.hidden_states[:-1], *outputs.attentions]
        for value in kept:
            value.retain_grad()
        prediction(head, outputs).square().sum().backward()
        assert all(value.grad is not None and value.grad.abs().sum() > 0 for value in kept)

    @torch.no_grad()
    def test_models_can_be_pickled_and_copied(self, head: Head) -> None:
        model, inputs = self.model(head), self.inputs(head)
        for twin in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
            assert_same_outputs(twin(**inputs), model(**inputs), 0.0)
