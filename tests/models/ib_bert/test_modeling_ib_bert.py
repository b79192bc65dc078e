"""The IB-BERT family passes the conformance suite."""

import torch

from hf_ptm_ext.models import modeling_ib_bert
from tests.conformance.bert_like import BertLikeConformance
from tests.conformance.family import assert_same


class TestIBBert(BertLikeConformance, modeling=modeling_ib_bert, prefix="IBBert"):
    config_kwargs = {**BertLikeConformance.config_kwargs, "intra_bottleneck_size": 48, "embedding_size": 12}
    test_inductor = test_a_finished_block_mask_goes_through = None  # SpanBERT's attention, whole graphs are tested

    def with_finished_mask(self, inputs, mask):
        return {**inputs, "attention_mask": mask, "sequence_ids": inputs["attention_mask"]}

    @torch.no_grad()
    def test_a_finished_mask_goes_through(self):
        """It does not say which neighbours are padding: `sequence_ids` do."""
        head = self.head("encoder")
        inputs = self.inputs(head)
        length = inputs["input_ids"].shape[1]
        mask = inputs["attention_mask"].bool()[:, None, None].expand(-1, -1, length, -1)
        additive = torch.zeros(mask.shape).masked_fill(~mask, torch.finfo(torch.float32).min)
        for attention, finished in (("sdpa", mask), ("sdpa", additive), ("eager", additive)):
            model = self.model(head, attention)
            changed = {**inputs, "attention_mask": finished, "sequence_ids": inputs["attention_mask"]}
            got = model(**changed).last_hidden_state
            real = inputs["attention_mask"].bool()
            assert_same(got[real], model(**inputs).last_hidden_state[real], 1e-5)
