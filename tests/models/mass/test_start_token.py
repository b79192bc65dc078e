"""A start token that the vocabulary has not is named, not looked up."""

import pytest
import torch

from hf_ptm_ext import MassConfig, MassForConditionalGeneration
from tests.models.mass.test_mass import MassCase

IDS = torch.tensor([[7, 8, 3]])


@pytest.mark.parametrize(
    "use",
    [
        lambda model: model(IDS, labels=IDS),
        lambda model: model(IDS),
        lambda model: model.prepare_decoder_input_ids_from_labels(IDS),
        lambda model: model.generate(IDS, max_new_tokens=2),
    ],
)
def test_the_published_models_start_token_in_a_smaller_vocabulary(use):
    sizes = {name: value for name, value in MassCase.config_kwargs.items() if name != "decoder_start_token_id"}
    model = MassForConditionalGeneration(MassConfig(**sizes)).eval()
    with pytest.raises(ValueError, match=r"`decoder_start_token_id` must be .* below `vocab_size` = 99, got 102"):
        use(model)


def test_one_start_token_for_each_row_generates():
    model = MassForConditionalGeneration(MassConfig(**MassCase.config_kwargs)).eval()
    starts = [[3], [5]]
    text = model.generate(IDS.repeat(2, 1), decoder_start_token_id=starts, max_new_tokens=2, do_sample=False)
    assert text[:, 0].tolist() == [3, 5]
