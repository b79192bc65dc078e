"""A head's `forward` names the encoder's inputs before its own arguments, and takes both by position."""

import inspect

import pytest
import torch
from transformers.utils.generic import find_labels

import hf_ptm_ext
from hf_ptm_ext.models.modeling_nezha import NezhaModel, NezhaPreTrainedModel
from hf_ptm_ext.models.task_heads_core import TaskHead
from hf_ptm_ext.registration import FAMILIES

# A model of a head alone has the encoder itself for its base.
ENCODERS = {
    family.model_type: family
    for family in FAMILIES
    if "AutoModel" in family.models and family.model_type not in ("mass", "mass_nmt")
}
NOT_NAMED = {"num_sequences", "inner_layer", "encoder_hidden_states", "output_hidden_states", "output_attentions"}
NOT_NAMED |= {"initial_state", "keep_boundaries", "past_state", "use_cache"}
LABELS = {"labels", "start_positions", "end_positions", "next_labels", "previous_labels"}
SIZES = {"vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}


@pytest.mark.parametrize("family", ENCODERS)
def test_every_column_of_the_encoder_is_one_of_its_heads(family):
    classes = {name: getattr(hf_ptm_ext, name) for _, name in ENCODERS[family].model_classes()}
    encoder = inspect.signature(classes.pop(ENCODERS[family].models["AutoModel"]).forward).parameters
    columns = [name for name in encoder if name not in {"cache"} | NOT_NAMED]
    for name, head in classes.items():
        named = list(inspect.signature(head.forward).parameters)
        assert named[0] == "self"
        assert named[-1] == "kwargs"
        if issubclass(head, TaskHead):
            left_out = {"sequence_ids"} if "MultipleChoice" in name else set()
            inputs = [column for column in columns[1:-1] if column not in left_out]
            assert set(inputs) <= set(named), name
            if family != "unilm":  # its heads have an order of their own
                assert named[1 : len(inputs) + 1] == inputs, name
        assert set(find_labels(head)) <= LABELS, name


class Counted(TaskHead, NezhaPreTrainedModel, encoder=NezhaModel):
    def __init__(self, config):
        super().__init__(config)
        self.add_encoder(pooled=True)
        self.post_init()

    def forward(self, labels=None, **inputs):
        return labels, sorted(inputs)


class Inherits(Counted):
    """A class of a user's, which says nothing of an encoder."""


@pytest.mark.parametrize("head", [Counted, Inherits])
def test_arguments_come_by_name_or_by_position(head):
    model = head(hf_ptm_ext.NezhaConfig(**SIZES))
    ids, labels = torch.tensor([[2, 7, 3]]), torch.tensor([0])
    assert model(ids, labels=labels) == (labels, ["input_ids"])
    everything = [ids, None, None, None, None, None, labels]
    names = list(inspect.signature(head.forward).parameters)[1:-1]
    assert model(*everything) == (labels, sorted(names[:-1]))
    with pytest.raises(TypeError, match="at most 7 arguments without a name, got 8"):
        model(*everything, None)
    with pytest.raises(TypeError, match="multiple values for keyword argument 'input_ids'"):
        model(ids, input_ids=ids)


@pytest.mark.parametrize("family", ENCODERS)
def test_help_shows_every_argument_of_an_encoder_and_an_example_of_every_class(family):
    classes = {name: getattr(hf_ptm_ext, name) for _, name in ENCODERS[family].model_classes()}
    encoder = classes[ENCODERS[family].models["AutoModel"]]
    for name in list(inspect.signature(encoder.forward).parameters)[1:]:
        assert inspect.getdoc(encoder.forward).count(f"\n    {name}: ") == 1, name
    for name, head in classes.items():
        assert inspect.getdoc(head).count("\nExamples:\n    >>> ") == 1, name
        assert f"{name}(" in inspect.getdoc(head)


@torch.no_grad()
def test_one_value_a_row_holds_for_all_its_choices():
    sizes = {"vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4}
    config = hf_ptm_ext.UniLMConfig(**sizes, mask_token_id=4, eos_token_id=3)
    model, ids = hf_ptm_ext.UniLMForMultipleChoice(config).eval(), torch.randint(5, 60, (2, 3, 7))
    lengths = torch.tensor([4, 2])
    each = model(input_ids=ids, source_lengths=lengths[:, None].expand(2, 3)).logits
    assert torch.equal(model(input_ids=ids, source_lengths=lengths).logits, each)
