"""The MASS-NMT family passes the conformance suite of encoder-decoders, and what is its own."""

import pytest
import torch
from transformers.modeling_outputs import BaseModelOutput

from hf_ptm_ext.models.configuration_mass_nmt import MassNmtConfig
from hf_ptm_ext.models.modeling_mass_nmt import MassNmtForConditionalGeneration, MassNmtModel
from tests.conformance.encoder_decoder import (
    EncoderDecoderConformance,
    EncoderDecoderGenerationChecks,
    target_labels,
)
from tests.conformance.family import Head, assert_same, assert_same_outputs

MASK = 4


class MassNmtCase:
    """What every check of the family stands on: two languages, different from row to row."""

    config_class = MassNmtConfig
    base_class = MassNmtModel
    heads = (
        Head(MassNmtModel, "AutoModel", None, ("last_hidden_state", "encoder_last_hidden_state"), "encoder"),
        Head(
            MassNmtForConditionalGeneration,
            "AutoModelForSeq2SeqLM",
            target_labels,
            ("logits",),
            "vocabulary",
            task_type="SEQ_2_SEQ_LM",
        ),
    )
    config_kwargs = {
        "vocab_size": 99,
        "d_model": 32,
        "encoder_layers": 2,
        "encoder_attention_heads": 4,
        "encoder_ffn_dim": 37,
        "decoder_layers": 2,
        "decoder_attention_heads": 2,
        "decoder_ffn_dim": 41,
        "max_position_embeddings": 48,
        "n_langs": 2,
        "bos_token_id": 2,
        "eos_token_id": 3,
        "pad_token_id": 0,
        "decoder_start_token_id": 3,
        "mask_token_id": MASK,
    }
    embeddings_name = "encoder.embed_tokens"
    needed_inputs = ("input_ids", "attention_mask", "langs", "decoder_langs")
    unread_fields = EncoderDecoderConformance.unread_fields | {"forced_eos_token_id", "id2lang"}
    dropout_fields = ("dropout", "attention_dropout")

    def rows(self, *args, **kwargs):
        rows = super().rows(*args, **kwargs)
        number = torch.arange(len(rows["input_ids"]))
        return {**rows, "langs": number % 2, "decoder_langs": (number + 1) // 2 % 2}

    def table(self, model, side):
        return model.base_model.get_submodule(f"{side.removesuffix('_') or 'encoder'}.embed_tokens")

    def tied_table(self, model):
        return self.table(model, "decoder_")


class TestMassNmt(MassNmtCase, EncoderDecoderConformance):
    test_inductor = test_flex_equals_sdpa = None  # MASS's layers, tested there

    @torch.no_grad()
    def test_missing_and_unknown_languages_are_refused(self, head):
        model, inputs = self.model(head), self.inputs(head)
        for name in ("langs", "decoder_langs"):
            without = {key: value for key, value in inputs.items() if key != name}
            with pytest.raises(ValueError, match=rf"`{name}` must be given.*`n_langs` is 2"):
                model(**without)
            for wrong in (torch.tensor([0, 2, 1]), torch.tensor([-1, 0, 1])):
                with pytest.raises(ValueError, match=rf"`{name}` must be ids of languages.*got \[(2|-1)\]"):
                    model(**{**inputs, name: wrong})
            with pytest.raises(ValueError, match=rf"`{name}` must be a tensor of language ids.*batch = 3"):
                model(**{**inputs, name: torch.tensor([0, 1])})
        named = self.model(head, lang2id={"en": 0, "fr": 1})
        with pytest.raises(ValueError, match=r"the languages are \{'en': 0, 'fr': 1\}"):
            named(**{key: value for key, value in inputs.items() if key != "langs"})

    @torch.no_grad()
    def test_languages_per_token_are_read(self, head):
        """As upstream's XLM has them; the row's language in cross-attention is the largest id."""
        model, inputs = self.model(head), self.inputs(head)
        expected = model(**inputs)
        per_token = {
            "langs": inputs["langs"][:, None].expand_as(inputs["input_ids"]),
            "decoder_langs": inputs["decoder_langs"][:, None].expand_as(inputs["decoder_input_ids"]),
        }
        assert_same_outputs(model(**{**inputs, **per_token}), expected, 1e-6)

    @torch.no_grad()
    def test_one_language_needs_no_id(self, head):
        model, inputs = self.model(head, n_langs=1), self.inputs(head)
        plain = {name: value for name, value in inputs.items() if not name.endswith("langs")}
        zeros = {name: torch.zeros(3, dtype=torch.long) for name in ("langs", "decoder_langs")}
        assert_same_outputs(model(**plain), model(**plain, **zeros), 0.0)

    @torch.no_grad()
    def test_each_language_has_a_part_in_both_ends(self, head):
        model, inputs = self.model(head), self.inputs(head)
        expected = model(**inputs)
        for name, field in (("langs", "encoder_last_hidden_state"), ("decoder_langs", head.outputs[0])):
            changed = model(**{**inputs, name: 1 - inputs[name]})
            assert (changed[field] - expected[field]).abs().max() > 1e-3
        model.base_model.decoder.embed_languages.weight[1] = model.base_model.decoder.embed_languages.weight[0]
        first, second = (model(**{**inputs, "decoder_langs": torch.full((3,), language)}) for language in (0, 1))
        assert (first[head.outputs[0]] - second[head.outputs[0]]).abs().max() > 1e-3  # the output projections

    @torch.no_grad()
    @pytest.mark.parametrize("attention", ["eager", "sdpa"])
    def test_the_decoder_does_not_look_at_masked_tokens(self, attention):
        head = self.head("vocabulary")
        model, inputs = self.model(head, attention), self.inputs(head)
        inputs["input_ids"][0, 2:5] = MASK
        output = model(**inputs)
        encoded = model.get_encoder()(**{name: inputs[name] for name in ("input_ids", "attention_mask", "langs")})
        assert encoded.cross_attention_mask[0].tolist() == [True] * 2 + [False] * 3 + [True] * 4
        spoilt = encoded.last_hidden_state.clone()
        spoilt[0, 2:5] = 9.0
        for given in (spoilt, encoded.last_hidden_state):
            encoded.last_hidden_state = given
            assert_same(model(**inputs, encoder_outputs=encoded).logits, output.logits, 1e-6)
        # A bare output has no mask of its own: `input_ids` tell.
        bare = BaseModelOutput(last_hidden_state=spoilt)
        assert_same(model(**inputs, encoder_outputs=bare).logits, output.logits, 1e-6)
        # The encoder does look at them.
        inputs["input_ids"][0, 2:5] = 7
        assert (model(**inputs).encoder_last_hidden_state[0, 0] - encoded.last_hidden_state[0, 0]).abs().max() > 1e-3

    @torch.no_grad()
    def test_a_source_of_masks_alone_gives_numbers(self):
        head = self.head("vocabulary")
        for attention in ("eager", "sdpa"):
            model, inputs = self.model(head, attention), self.inputs(head)
            inputs["input_ids"][0] = MASK
            assert torch.isfinite(model(**inputs).logits).all()

    @torch.no_grad()
    def test_original_positions_place_a_fragment(self):
        head = self.head("vocabulary")
        model, inputs = self.model(head), self.inputs(head)
        width = inputs["decoder_input_ids"].shape[1]
        counted = torch.arange(width).expand(3, -1)
        real = inputs["decoder_input_ids"] != 0
        expected = model(**inputs).logits
        assert_same(model(**inputs, decoder_position_ids=counted.masked_fill(~real, -1)).logits, expected, 0.0)
        assert (model(**inputs, decoder_position_ids=counted + 3).logits - expected).abs().max() > 1e-3
        for wrong in (48, -2):
            with pytest.raises(ValueError, match=r"`decoder_position_ids`.*max_position_embeddings"):
                model(**inputs, decoder_position_ids=torch.full((3, width), wrong))

    def test_configurations_that_contradict_themselves_are_refused(self):
        for wrong, message in (
            ({"lang2id": {"en": 0, "fr": 2}}, "`lang2id` must number"),
            ({"lang2id": {"en": 0, "fr": 1}, "id2lang": {0: "fr", 1: "en"}}, "`id2lang` must be the inverse"),
            ({"n_langs": 0}, "`n_langs`"),
            ({"attention_setting": "v3"}, "`attention_setting`"),
            ({"decoder_attention_heads": 3}, "`decoder_attention_heads`"),
            ({"pad_token_id": 99}, "`pad_token_id`"),
            ({"activation_function": "gulo"}, "`activation_function`"),
            ({"attention_dropout": 1.5}, "`attention_dropout`"),
        ):
            with pytest.raises(Exception, match=message):
                self.config(**wrong)
        assert self.config(id2lang={"0": "en", "1": "fr"}).lang2id == {"en": 0, "fr": 1}


class TestMassNmtGeneration(MassNmtCase, EncoderDecoderGenerationChecks):
    generation_options = {"0 to 1": {"langs": 0, "decoder_langs": 1}}

    def generator_model(self, *args, **kwargs):
        return super().generator_model(*args, forced_eos_token_id=None, **kwargs)

    def test_languages_by_code_id_and_row(self, options):
        model, prompts = self.generator_model(lang2id={"en": 0, "fr": 1}), self.prompts()
        expected = model.generate(**prompts, **options, max_new_tokens=6)
        for langs, decoder_langs in (
            ("en", "fr"),
            (torch.zeros(3, dtype=torch.long), torch.ones(3, dtype=torch.long)),
        ):
            got = model.generate(**prompts, langs=langs, decoder_langs=decoder_langs, max_new_tokens=6)
            assert torch.equal(got, expected)
        for arguments, message in (
            ({"langs": "en"}, "`decoder_langs` must be given"),
            ({"decoder_langs": "fr"}, "`langs` must be given"),
            ({"langs": "en", "decoder_langs": "de"}, r"`decoder_langs` must be a language of the model \(en, fr\)"),
            ({"langs": 2, "decoder_langs": 1}, "`langs` must be ids of languages"),
        ):
            with pytest.raises(ValueError, match=message):
                model.generate(**prompts, **arguments, max_new_tokens=6)
        with pytest.raises(ValueError, match=r"none: `config.lang2id` is not set"):
            self.generator_model().generate(**prompts, langs="en", decoder_langs="fr")

    @pytest.mark.parametrize("use_cache", [True, False])
    def test_masks_in_the_source_stay_hidden_from_every_beam(self, options, use_cache):
        model, prompts = self.generator_model(), self.prompts()
        prompts["input_ids"][:, -3:-1] = MASK
        beams = self.generate(model, prompts, **options, num_beams=3, use_cache=use_cache)
        for row in range(3):
            single = {name: value[row : row + 1] for name, value in prompts.items()}
            with torch.no_grad():
                logits = model(
                    **single,
                    langs=torch.tensor([0]),
                    decoder_langs=torch.tensor([1]),
                    decoder_input_ids=torch.tensor([[3, *beams.sequences[row, :3].tolist()]]),
                ).logits
            place = beams.beam_indices[row, 3]
            assert_same(beams.logits[3][place], logits[0, -1], 1e-5)

    def test_the_end_at_the_limit_is_forced_as_in_the_reference(self, options):
        model, prompts = self.model(self.generating_head, forced_eos_token_id=3, use_cache=True), self.prompts()
        texts = model.generate(**prompts, **options, max_new_tokens=4, min_new_tokens=4)
        assert texts.shape == (3, 5)
        assert (texts[:, -1] == 3).all()

    def test_the_references_search_refuses_what_it_does_not_do(self, options):
        model, prompts = self.generator_model(), self.prompts()
        with pytest.raises(ValueError, match="`do_sample` must be False"):
            model.generate(**prompts, **options, search_beam_size=2, do_sample=True, eos_token_id=3, max_length=5)
        with pytest.raises(ValueError, match="`eos_token_id` must be"):
            model.generate(**prompts, **options, search_beam_size=2, max_length=5)
