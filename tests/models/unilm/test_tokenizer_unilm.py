"""The tokenizer set up for UniLM, and the published folders, whose config.json names no model."""

import json

import pytest
import torch
from transformers import AutoModel, AutoTokenizer, BertTokenizerFast, PreTrainedTokenizerFast

import hf_ptm_ext
from hf_ptm_ext import UniLMConfig, UniLMForConditionalGeneration, unilm_tokenizer
from hf_ptm_ext.cli import main

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "##d"]
CASED = [*PIECES, "Berlin", "##D"]
VOCAB = {piece: number for number, piece in enumerate(PIECES)}
SIZES = {
    "vocab_size": len(CASED),
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 24,
    "type_vocab_size": 6,
}
HEADS = sorted(
    {name for family in hf_ptm_ext.FAMILIES if family.model_type == "unilm" for name in family.models.values()}
)


def settings(tokenizer):
    return type(tokenizer), tokenizer.padding_side, tokenizer.model_input_names, tokenizer.model_max_length


class TestTokenizer:
    def test_it_is_upstreams_class_and_loads_as_it_was_saved(self, tmp_path):
        tokenizer = unilm_tokenizer(VOCAB, model_max_length=24)
        tokenizer.save_pretrained(tmp_path)
        assert not list(tmp_path.rglob("*.py"))
        loaded = AutoTokenizer.from_pretrained(tmp_path, trust_remote_code=False)
        assert settings(loaded) == settings(tokenizer)
        assert settings(loaded) == (BertTokenizerFast, "left", ["input_ids", "attention_mask"], 24)
        expected = {"input_ids": [[2, 5, 6, 3], [0, 2, 7, 3]], "attention_mask": [[1, 1, 1, 1], [0, 1, 1, 1]]}
        assert dict(loaded(["a B", "c"], padding=True)) == expected

    def test_token_types_for_pairs_if_asked_for(self, tmp_path):
        pairs = unilm_tokenizer(VOCAB, token_types=True, padding_side="right")
        assert pairs("a", "b")["token_type_ids"] == [0, 0, 0, 1, 1]
        pairs.save_pretrained(tmp_path)
        again = unilm_tokenizer(tmp_path)
        assert (again.padding_side, again.model_input_names) == ("left", ["input_ids", "attention_mask"])
        assert again("a", "b", return_token_type_ids=True)["token_type_ids"] == [0, 0, 0, 1, 1]

    def test_a_tokenizer_is_set_up_in_place(self, tmp_path):
        tokenizer = BertTokenizerFast(vocab=VOCAB, do_lower_case=False)
        assert unilm_tokenizer(tokenizer) is tokenizer
        tokenizer.save_pretrained(tmp_path)
        loaded = AutoTokenizer.from_pretrained(tmp_path)
        assert settings(loaded) == settings(tokenizer)
        assert loaded("a B")["input_ids"] == [2, 5, 1, 3]

    @pytest.mark.parametrize(("pieces", "text", "ids"), [(PIECES, "aD", [5, 8]), (CASED, "aD Berlin", [5, 10, 9])])
    @pytest.mark.parametrize("source", ["file", "folder", "mapping"])
    def test_the_case_is_seen_from_the_pieces(self, tmp_path, pieces, text, ids, source):
        (tmp_path / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
        given = {"file": tmp_path / "vocab.txt", "folder": str(tmp_path), "mapping": dict(zip(pieces, range(99)))}  # noqa: B905
        assert unilm_tokenizer(given[source])(text)["input_ids"] == [2, *ids, 3]
        lower = unilm_tokenizer(given[source], do_lower_case=True)(text)["input_ids"]
        assert (lower == [2, *ids, 3]) == (pieces is PIECES)

    def test_what_cannot_be(self, tmp_path):
        for token in ("[MASK]", "[SEP]"):
            vocab = {piece: number for piece, number in VOCAB.items() if piece != token}
            with pytest.raises(ValueError, match=rf"`vocab` must be .* without \{token[:-1]}\]"):
                unilm_tokenizer(vocab)
        with pytest.raises(ValueError, match="`padding_side`"):
            unilm_tokenizer(VOCAB, padding_side="both")
        with pytest.raises(ValueError, match="`do_lower_case` must be left out"):
            unilm_tokenizer(BertTokenizerFast(vocab=VOCAB), do_lower_case=True)
        backend = BertTokenizerFast(vocab=VOCAB).backend_tokenizer
        with pytest.raises(ValueError, match="`mask_token`"):
            unilm_tokenizer(
                PreTrainedTokenizerFast(
                    tokenizer_object=backend, pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]"
                )
            )
        (tmp_path / "vocab.txt").write_text("[PAD]\n[PAD]\n", encoding="utf-8")
        with pytest.raises(ValueError, match=r"line 2: .* twice"):
            unilm_tokenizer(tmp_path)

    def test_generation_needs_nothing_else(self):
        """Batches of prompts, types or none, give what each prompt gives alone."""
        torch.manual_seed(0)
        config = UniLMConfig(**SIZES, mask_token_id=4, eos_token_id=3, initializer_range=0.5)
        model = UniLMForConditionalGeneration(config).eval()
        texts = ["a b c a b", "c"]
        expected = [
            model.generate(**unilm_tokenizer(VOCAB)(text, return_tensors="pt"), max_new_tokens=5)[0, -5:].tolist()
            for text in texts
        ]
        for token_types in (False, True):
            for mode, padding_side in ((3, "left"), (1, "left"), (3, "right")):
                tokenizer = unilm_tokenizer(VOCAB, token_types=token_types, padding_side=padding_side)
                batch = tokenizer(texts, padding=True, return_tensors="pt")
                got = model.generate(**batch, lm_mode=mode, max_new_tokens=5)[:, -5:].tolist()
                single = [
                    model.generate(
                        **unilm_tokenizer(VOCAB)(text, return_tensors="pt"), lm_mode=mode, max_new_tokens=5
                    )[0, -5:].tolist()
                    for text in texts
                ]
                assert got == single
                assert mode == 1 or got == expected


@pytest.fixture(scope="module")
def original():
    """A model, and its weights as the original's files name them."""
    torch.manual_seed(0)
    config = UniLMConfig(**SIZES, layer_norm_eps=1e-3, initializer_range=0.5)
    model = hf_ptm_ext.UniLMForPreTraining(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape) * 0.1)

    def older(name):
        return name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")

    tensors = {older(name): value for name, value in model.state_dict().items() if not name.endswith("decoder.bias")}
    return model, {**tensors, "crit_mask_lm_smoothed.one_hot": torch.zeros(1, SIZES["vocab_size"])}


@pytest.fixture
def published(original, tmp_path):
    """A folder in the shape of `microsoft/unilm-base-cased`: nothing says what model it is."""
    config = {**SIZES, "layer_norm_epsilon": 1e-3, "hidden_act": "gelu", "hidden_dropout_prob": 0.1}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (tmp_path / "vocab.txt").write_text("\n".join(CASED) + "\n", encoding="utf-8")
    torch.save(original[1], tmp_path / "pytorch_model.bin")
    return tmp_path


class TestPublishedFolders:
    @pytest.mark.parametrize("head", HEADS)
    def test_every_head_reads_them(self, original, published, head):
        model, info = getattr(hf_ptm_ext, head).from_pretrained(published, output_loading_info=True)
        assert not info["mismatched_keys"]
        assert all(name.startswith(("classifier.", "qa_outputs.")) for name in info["missing_keys"]), info
        assert {name for name in info["unexpected_keys"] if name.startswith("bert.")} <= {
            "bert.pooler.dense.weight",
            "bert.pooler.dense.bias",
        }
        assert model.config.layer_norm_eps == 1e-3
        inputs = {"lm_mode": torch.tensor([3]), "source_lengths": torch.tensor([4])}
        ids = torch.tensor([[2, 5, 9, 3, 6, 3]])
        with torch.no_grad():
            expected = original[0].bert(ids, **inputs).last_hidden_state
            got = model.eval().base_model(ids, **inputs).last_hidden_state
        torch.testing.assert_close(got, expected)
        if hasattr(model, "cls"):
            with torch.no_grad():
                torch.testing.assert_close(
                    model.cls.predictions(got), original[0].cls.predictions(expected), atol=1e-5, rtol=1e-5
                )

    def test_auto_classes_do_not_know_them_until_they_are_saved_again(self, published, tmp_path):
        """The error that the README explains."""
        with pytest.raises(ValueError, match=r"Unrecognized model.*model_type"):
            AutoModel.from_pretrained(published)
        again = tmp_path / "again"
        UniLMForConditionalGeneration.from_pretrained(published).save_pretrained(again)
        unilm_tokenizer(published).save_pretrained(again)
        assert type(AutoModel.from_pretrained(again)).__name__ == "UniLMModel"
        assert AutoTokenizer.from_pretrained(again)("Berlin")["input_ids"] == [2, 9, 3]

    def test_the_command_converts_them_with_their_tokenizer(self, published, tmp_path, capsys):
        target = tmp_path / "converted"
        assert main(["convert", "unilm", str(published), str(target)]) == 0
        assert "cased" in capsys.readouterr().out
        config = UniLMConfig.from_pretrained(target)
        assert (config.pad_token_id, config.eos_token_id, config.mask_token_id) == (0, 3, 4)
        tokenizer = AutoTokenizer.from_pretrained(target)
        assert settings(tokenizer) == (BertTokenizerFast, "left", ["input_ids", "attention_mask"], 24)
        assert (target / "custom_generate" / "generate.py").is_file()
        model = hf_ptm_ext.UniLMForConditionalGeneration.from_pretrained(target).eval()
        source = tokenizer(["a Berlin", "b"], padding=True, return_tensors="pt")
        assert model.generate(**source, max_new_tokens=3, search_beam_size=2).shape[0] == 2
        card = (target / "README.md").read_text(encoding="utf-8")
        assert "search_beam_size" in card
        assert "1905.03197" in card
