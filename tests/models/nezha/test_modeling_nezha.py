"""The NEZHA family passes the conformance suite, without a table of positions."""

import pytest
import torch

from hf_ptm_ext.models import modeling_nezha
from tests.conformance.bert_like import BertLikeConformance
from tests.conformance.family import LENGTHS, assert_same, prediction


class TestNezha(BertLikeConformance, modeling=modeling_nezha, prefix="Nezha"):
    config_kwargs = {**BertLikeConformance.config_kwargs, "max_relative_position": 3}
    compiles_shared_heads = True  # those of two sentences
    attention_implementations = ("sdpa", "eager")
    unread_fields = frozenset({"hf_ptm_ext_version", "max_position_embeddings"})
    test_inductor = None  # whole graphs are enough: their kernels are torch's

    @torch.no_grad()
    def test_more_tokens_than_positions_are_refused(self):
        """There are no positions: a longer row is as good as any."""
        model = self.model(self.head("encoder"), max_position_embeddings=8)
        assert torch.isfinite(model(torch.full((1, 9), 5)).last_hidden_state).all()

    @torch.no_grad()
    def test_a_packed_sequence_longer_than_the_position_table_is_refused(self, packed_head):
        packed = self.packed(self.inputs(packed_head))
        expected = prediction(packed_head, self.model(packed_head)(**packed))
        model = self.model(packed_head, max_position_embeddings=max(LENGTHS) - 1)
        assert_same(prediction(packed_head, model(**packed)), expected, 0.0)

    @torch.no_grad()
    def test_positions_that_skip_places_are_refused(self, row_head):
        """They would be other distances; padding's numbers say nothing."""
        model, inputs = self.model(row_head), self.inputs(row_head)
        positions = torch.arange(9).expand(3, 9).clone()
        positions[1:, LENGTHS[1] :] = 0
        expected = prediction(row_head, model(**inputs))
        assert_same(prediction(row_head, model(**inputs, position_ids=positions + 3)), expected, 0.0)
        positions[1, 2:] += 1
        with pytest.raises(ValueError, match=r"`position_ids` must rise by 1 .* step of 2 behind token 1 of row 1"):
            model(**inputs, position_ids=positions)
