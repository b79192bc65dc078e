"""The ZEN family passes the conformance suite, with n-grams in every batch."""

import pytest
import torch

from hf_ptm_ext.models import modeling_zen
from tests.conformance.bert_like import BertLikeConformance
from tests.conformance.family import LENGTHS, assert_same, prediction

NGRAMS = 14  # rows of the table
WIDTH = 4  # n-grams of a row, padding included


def without_ngrams(config, inputs):
    return dict.fromkeys(("ngram_ids", "ngram_positions", "ngram_lengths", "ngram_token_type_ids"))


def nothing_but_padding(config, inputs):
    return {name: torch.zeros_like(inputs[name]) for name in without_ngrams(config, inputs)}


def padding_is_seen(config, inputs):
    return {"ngram_attention_mask": torch.ones_like(inputs["ngram_ids"])}


class TestZen(BertLikeConformance, modeling=modeling_zen, prefix="Zen"):
    config_kwargs = {**BertLikeConformance.config_kwargs, "word_vocab_size": NGRAMS, "num_hidden_word_layers": 1}
    structured_inputs = {
        "no n-grams": without_ngrams,
        "nothing but padding": nothing_but_padding,
        "padding is seen": padding_is_seen,
    }

    def rows(self, lengths=LENGTHS, seed=0, padding="right"):
        """Overlapping and nested n-grams, fewer in every second row, the same ones wherever the padding is."""
        rows = super().rows(lengths, seed, padding)
        columns = {name: torch.zeros(len(lengths), WIDTH, dtype=torch.long) for name in without_ngrams(None, None)}
        for row, length in enumerate(lengths):
            first = rows["input_ids"].shape[1] - length if padding == "left" else 0
            spans = [(1, 2), (0, min(3, length)), (length - 2, 2)][: 3 - row % 2]
            for number, (start, size) in enumerate(spans):
                columns["ngram_ids"][row, number] = 1 + (seed + 5 * row + 3 * number) % (NGRAMS - 1)
                columns["ngram_positions"][row, number] = first + start
                columns["ngram_lengths"][row, number] = size
                columns["ngram_token_type_ids"][row, number] = (row + number) % 2
        return {**rows, **columns}

    def pack_column(self, name, value, offsets):
        """N-grams of all sequences side by side, places moved with their tokens."""
        if name == "ngram_positions":
            return (value + offsets[:, None]).flatten()[None]
        return value.flatten()[None]

    def packed(self, batch, width=None):
        packed = super().packed(batch, width)
        if packed.get("ngram_lengths") is not None:
            packed["ngram_positions"] = packed["ngram_positions"] * (packed["ngram_lengths"] > 0)
        return packed

    def shuffled(self, batch):
        """Other values; n-grams stay in their rows."""
        other = super().shuffled(batch)
        if "sequence_ids" in batch:
            other |= {name: batch[name] for name in batch if name.startswith("ngram")}
        return other

    def attentions(self, config):
        """LoRA on `query` and `value` reaches the n-grams too."""
        return config.num_hidden_layers + config.num_hidden_word_layers

    def extra_columns(self, head, inputs):
        return {"ngram_attention_mask": (inputs["ngram_ids"] != 0).long(), **super().extra_columns(head, inputs)}

    # ---- what only ZEN has ----

    @torch.no_grad()
    def test_ngrams_reach_their_tokens_and_no_others_in_one_layer(self):
        model = self.model(self.head("encoder"), num_hidden_layers=1, add_pooling_layer=False)
        inputs = self.rows((9,))
        changed = {**inputs, "ngram_ids": inputs["ngram_ids"].clone()}
        changed["ngram_ids"][0, 0] = 13  # spans the tokens 1 and 2; the others see it in their own layer
        alone = {name: value[:, :1] if name.startswith("ngram") else value for name, value in inputs.items()}
        alone_changed = {name: value[:, :1] if name.startswith("ngram") else value for name, value in changed.items()}
        moved = (model(**alone).last_hidden_state - model(**alone_changed).last_hidden_state).abs().amax(-1)[0] > 1e-6
        assert moved.tolist() == [False, True, True, *[False] * 6]

    @torch.no_grad()
    def test_a_matrix_is_the_same_as_pairs(self, row_head):
        model, inputs = self.model(row_head), self.inputs(row_head)
        expected = prediction(row_head, model(**inputs))
        places = torch.arange(9)[None, :, None]
        first, size = (inputs.pop(name)[:, None] for name in ("ngram_positions", "ngram_lengths"))
        matrix = ((places >= first) & (places < first + size)).float()
        assert_same(prediction(row_head, model(**inputs, ngram_position_matrix=matrix)), expected, 0.0)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"ngram_ids": None}, "`ngram_positions` needs `ngram_ids`"),
            ({"ngram_lengths": None}, "`ngram_ids` need either `ngram_positions` and `ngram_lengths`"),
            ({"ngram_position_matrix": torch.zeros(3, 9, WIDTH)}, "`ngram_ids` need either"),
            ({"ngram_ids": torch.full((3, WIDTH), NGRAMS)}, f"`word_vocab_size` = {NGRAMS}.*got {NGRAMS}"),
            ({"ngram_positions": torch.full((3, WIDTH), 8)}, "must stay in the row of 9 tokens, got 8 and 2 in row 0"),
            ({"ngram_token_type_ids": torch.zeros(3, 2, dtype=torch.long)}, "must have the shape of `ngram_ids`"),
            ({"ngram_ids": torch.zeros(2, WIDTH, dtype=torch.long)}, r"`ngram_ids` must be \(batch = 3, ngrams\)"),
        ],
    )
    def test_ngrams_that_do_not_fit_are_refused(self, change, message):
        model, inputs = self.model(self.head("encoder")), self.rows()
        with pytest.raises(ValueError, match=message):
            model(**{**inputs, **change})

    def test_a_bert_becomes_a_zen_whose_ngrams_are_new(self, tmp_path, monkeypatch):
        """The warning names the part that is not trained; a text without n-grams is that BERT."""
        from transformers import BertConfig, BertModel

        from hf_ptm_ext.models import loading_core

        sizes = {name: value for name, value in self.config_kwargs.items() if "word" not in name}
        bert = BertModel(BertConfig(**sizes)).eval()
        bert.save_pretrained(tmp_path)
        said = []
        monkeypatch.setattr(loading_core.logger, "warning", said.append)
        model = self.base_class.from_pretrained(tmp_path, word_vocab_size=NGRAMS, num_hidden_word_layers=1).eval()
        assert len(said) == 1
        assert "n-gram encoder" in said[0]
        ids = torch.tensor([[5, 6, 7, 8]])
        with torch.no_grad():
            assert_same(model(ids).last_hidden_state, bert(ids).last_hidden_state, 0.0)

    @pytest.mark.slow
    @pytest.mark.parametrize("kind", ["vocabulary", "sequence", "encoder"])
    def test_export_with_dynamic_batch_and_length(self, kind):
        """Their number is a dimension of its own."""
        head = self.head(kind)
        model, inputs = self.model(head), self.inputs(head)
        batch, length = torch.export.Dim("batch", min=2), torch.export.Dim("length", min=2, max=16)
        ngrams = torch.export.Dim("ngrams", min=2, max=40)
        shapes = {name: {0: batch, 1: ngrams if name.startswith("ngram") else length} for name in inputs}
        exported = torch.export.export(model, (), inputs, dynamic_shapes=shapes, strict=False)
        for lengths in (LENGTHS, (5, 3), (11, 2, 7, 7)):
            rows = self.rows(lengths)
            with torch.no_grad():
                expected, got = model(**rows), exported.module()(**rows)
            assert_same(prediction(head, got), prediction(head, expected), 1e-5)
