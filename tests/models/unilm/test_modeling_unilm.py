"""The UniLM family passes the conformance suite, generation included."""

import json

import pytest
import torch
from transformers import DynamicCache, StaticCache

from hf_ptm_ext.models.configuration_unilm import UniLMConfig
from hf_ptm_ext.models.modeling_unilm import (
    UniLMForConditionalGeneration,
    UniLMForMaskedLM,
    UniLMForMultipleChoice,
    UniLMForPreTraining,
    UniLMForQuestionAnswering,
    UniLMForSequenceClassification,
    UniLMForTokenClassification,
    UniLMModel,
)
from hf_ptm_ext.models.modes_unilm import unilm_attention_mask
from tests.conformance.bert_like import BertLikeConformance
from tests.conformance.family import (
    LENGTHS,
    Head,
    answer_labels,
    assert_same,
    choice_labels,
    masked_lm_labels,
    sequence_labels,
    token_labels,
)
from tests.conformance.generation import GenerationChecks
from tests.conformance.parts import CHECKPOINT

BIDIRECTIONAL, LEFT_TO_RIGHT, RIGHT_TO_LEFT, SEQ2SEQ = range(4)
BEAM_SEARCH = {"search_beam_size": 4, "length_penalty": 0.6, "forbid_duplicate_ngrams": True, "ngram_size": 2}
MODE_INPUTS = ("lm_mode", "source_lengths")


def pretraining_labels(config, inputs, generator):
    """Masked tokens, and the next sentence where the mode is bidirectional."""
    labels = masked_lm_labels(config, inputs, generator)
    bidirectional = inputs["lm_mode"] == BIDIRECTIONAL
    return {**labels, "next_sentence_label": torch.where(bidirectional, torch.arange(len(bidirectional)) % 2, -100)}


def one_mode(mode):
    """All rows in one mode, with the token types of the modes."""
    return lambda config, inputs: {"lm_mode": torch.full_like(inputs["lm_mode"], mode), "token_type_ids": None}


def no_mode(config, inputs):
    """Plain BERT."""
    return {**dict.fromkeys(MODE_INPUTS), "token_type_ids": None}


def pseudo_masked(config, inputs):
    """A pseudo token for each of the last tokens but those, in seq2seq mode."""
    lengths = inputs["attention_mask"].sum(1)
    pseudo = lengths // 3
    return {**one_mode(SEQ2SEQ)(config, inputs), "source_lengths": lengths - 2 * pseudo, "pseudo_lengths": pseudo}


class UniLMCase:
    """What every check of the family stands on."""

    config_class = UniLMConfig
    base_class = UniLMModel
    heads = (
        Head(UniLMModel, "AutoModel", None, ("last_hidden_state", "pooler_output"), "encoder"),
        Head(UniLMForMaskedLM, "AutoModelForMaskedLM", masked_lm_labels, ("logits",), "vocabulary"),
        Head(
            UniLMForPreTraining,
            "AutoModelForPreTraining",
            pretraining_labels,
            ("prediction_logits", "seq_relationship_logits"),
            "vocabulary",
        ),
        Head(
            UniLMForSequenceClassification,
            "AutoModelForSequenceClassification",
            sequence_labels,
            ("logits",),
            "sequence",
            task_type="SEQ_CLS",
            config={"problem_type": "single_label_classification"},
        ),
        Head(
            UniLMForTokenClassification,
            "AutoModelForTokenClassification",
            token_labels,
            ("logits",),
            "token",
            task_type="TOKEN_CLS",
        ),
        Head(
            UniLMForQuestionAnswering,
            "AutoModelForQuestionAnswering",
            answer_labels,
            ("start_logits", "end_logits"),
            "span",
            task_type="QUESTION_ANS",
        ),
        Head(UniLMForMultipleChoice, "AutoModelForMultipleChoice", choice_labels, ("logits",), "choice"),
        Head(
            UniLMForConditionalGeneration,
            "AutoModelForCausalLM",
            masked_lm_labels,
            ("logits",),
            "vocabulary",
            task_type="CAUSAL_LM",
            also=("AutoModelForSeq2SeqLM",),
        ),
    )
    config_kwargs = {
        "vocab_size": 99,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 37,
        "max_position_embeddings": 48,
        "mask_token_id": 4,
        "eos_token_id": 3,
    }
    unread_fields = frozenset({"hf_ptm_ext_version", "bos_token_id", "eos_token_id", "use_cache"})
    # The same as SpanBERT's but for the modes, which the checks of one forward pass see; masked LM is in pre-training.
    second_tier_heads = (
        UniLMForMaskedLM,
        UniLMForSequenceClassification,
        UniLMForTokenClassification,
        UniLMForQuestionAnswering,
        UniLMForMultipleChoice,
    )
    encoder_is_a_copy = True  # SpanBERT's
    needed_inputs = ("input_ids", "attention_mask", "source_lengths")
    remote_generation = (
        {},
        {"num_beams": 2},
        BEAM_SEARCH,
        {**BEAM_SEARCH, "custom_generate": CHECKPOINT, "trust_remote_code": True},
        {"custom_generate": CHECKPOINT, "trust_remote_code": True},
    )
    structured_inputs = {
        "bidirectional": one_mode(BIDIRECTIONAL),
        "left-to-right": one_mode(LEFT_TO_RIGHT),
        "right-to-left": one_mode(RIGHT_TO_LEFT),
        "seq2seq": one_mode(SEQ2SEQ),
        "pseudo-masked": pseudo_masked,
        "no mode": no_mode,
    }

    def rows(self, lengths=LENGTHS, seed=0, padding="right"):
        """All modes in one batch, seq2seq first and bidirectional next."""
        rows = super().rows(lengths, seed, padding)
        rows["lm_mode"] = torch.tensor([SEQ2SEQ, BIDIRECTIONAL, LEFT_TO_RIGHT, RIGHT_TO_LEFT]).repeat(2)[
            : len(lengths)
        ]
        rows["source_lengths"] = torch.tensor([max(2, length // 2) for length in lengths])
        return rows


class TestUniLM(UniLMCase, BertLikeConformance):
    def inputs(self, head, *args, **kwargs):
        """A choice has no mode."""
        inputs = super().inputs(head, *args, **kwargs)
        return {name: value for name, value in inputs.items() if head.kind != "choice" or name not in MODE_INPUTS}

    def mask_cases(self, head):
        """Modes are no input of a choice; packed rows mix them too."""
        cases = super().mask_cases(head)
        if head.packs:
            packed = cases["packed"]
            for mode in range(4):
                cases[f"packed, mode {mode}"] = {**packed, "lm_mode": torch.full_like(packed["lm_mode"], mode)}
        return cases

    def test_modes_that_do_not_exist_are_refused(self):
        model, inputs = self.model(self.head("encoder")), self.inputs(self.head("encoder"))
        for wrong in (4, -1):
            with pytest.raises(ValueError, match=f"`lm_mode` must be 0 .*{wrong}"):
                model(**{**inputs, "lm_mode": torch.full((3,), wrong)})
        with pytest.raises(ValueError, match=r"`lm_mode` must be `.batch,.` without `sequence_ids`"):
            model(inputs["input_ids"], lm_mode=torch.zeros(3, 2, dtype=torch.long))
        with pytest.raises(ValueError, match=r"`lm_mode` 3 .seq2seq. needs `source_lengths`"):
            model(inputs["input_ids"], lm_mode=inputs["lm_mode"])

    def test_a_table_without_the_types_of_a_mode_is_refused(self):
        model, inputs = self.model(self.head("encoder"), type_vocab_size=2), self.inputs(self.head("encoder"))
        model(**inputs)
        inputs.pop("token_type_ids")
        with pytest.raises(ValueError, match="`type_vocab_size` is 2"):
            model(**inputs)

    @torch.no_grad()
    def test_holes_in_a_mask_do_not_count(self):
        """A row is one sequence: what stands behind a hole goes on, and sees what stands before it."""
        model, ids = self.model(self.head("encoder")), self.rows((7,))["input_ids"]
        mask = torch.tensor([[1, 1, 0, 0, 1, 1, 1]])
        modes = {"lm_mode": torch.tensor([SEQ2SEQ]), "source_lengths": torch.tensor([3])}
        for extra in ({}, modes):
            got = model(ids, attention_mask=mask, **extra).last_hidden_state[mask.bool()]
            assert_same(got[None], model(ids[mask.bool()][None], **extra).last_hidden_state, 1e-5)

    @torch.no_grad()
    def test_a_cache_with_tokens_needs_a_finished_mask(self):
        model, cache = self.model(self.head("encoder")), DynamicCache()
        ids = self.rows((7,))["input_ids"]
        model(ids, cache=cache)
        with pytest.raises(ValueError, match="`cache` that holds tokens"):
            model(ids, cache=cache)

    def with_finished_mask(self, inputs, mask):
        return {**{name: inputs[name] for name in ("input_ids", "token_type_ids")}, "attention_mask": mask}

    @torch.no_grad()
    def test_a_finished_mask_goes_through(self):
        """The public helper's mask is the one that the modes make."""
        head = self.head("encoder")
        inputs = self.inputs(head)
        lengths = inputs["attention_mask"].sum(1)
        mask = unilm_attention_mask(inputs["lm_mode"], lengths, inputs["source_lengths"])
        additive = torch.zeros(mask.shape).masked_fill(~mask, torch.finfo(torch.float32).min)
        real = inputs["attention_mask"].bool()
        for attention, finished in (("sdpa", mask), ("sdpa", additive), ("eager", additive)):
            model = self.model(head, attention)
            given = {"input_ids": inputs["input_ids"], "token_type_ids": inputs["token_type_ids"]}
            got = model(**given, attention_mask=finished).last_hidden_state
            assert_same(got[real], model(**inputs).last_hidden_state[real], 1e-5)


class TestUniLMGeneration(UniLMCase, GenerationChecks):
    generation_options = {"seq2seq": {"lm_mode": SEQ2SEQ}, "left-to-right": {"lm_mode": LEFT_TO_RIGHT}}
    refused_options = {
        **GenerationChecks.refused_options,
        "cache": lambda case: StaticCache(case.config(), max_cache_len=40),
        "assistant_early_exit": lambda case: 1,
        "use_mtp": lambda case: True,
        "prefill_chunk_size": lambda case: 2,
        "guidance_scale": lambda case: 1.5,
        "inputs_embeds": lambda case: torch.zeros(1, 7, 32),
        "position_ids": lambda case: torch.arange(7)[None] + 1,
        "sequence_ids": lambda case: torch.ones(1, 7),
    }

    @pytest.mark.parametrize("padding", ["right", "left"])
    def test_every_step_predicts_a_mask_behind_the_text(self, options, padding):
        """Logits of a step are those of one plain forward pass over [CLS] source [SEP] target [MASK]."""
        model, lengths = self.generator_model(), (4, 7, 12)
        result = self.generate(model, self.prompts(lengths, padding), **options)
        mode = options["lm_mode"]
        for row, length in enumerate(lengths):
            source = self.prompts((length,))["input_ids"]
            for step in range(9):
                text = [source, result.sequences[row : row + 1, :step], torch.tensor([[model.config.mask_token_id]])]
                with torch.no_grad():
                    logits = model(
                        torch.cat(text, 1), lm_mode=torch.tensor([mode]), source_lengths=torch.tensor([length])
                    ).logits
                assert_same(result.logits[step][row], logits[0, -1], 1e-5, f"row {row}, step {step}")

    def test_the_mode_changes_the_text(self):
        model, prompts = self.generator_model(), self.prompts()
        texts = [self.generate(model, prompts, **options).sequences for options in self.generation_options.values()]
        assert not torch.equal(*texts)
        assert torch.equal(self.generate(model, prompts).sequences, texts[0])

    @pytest.mark.parametrize("search", ["greedy", "beams"])
    def test_a_collators_batch_will_do(self, search):
        """Modes and lengths per row, types 0 and 1 of a tokenizer."""
        model, prompts = self.generator_model(), self.prompts()
        arguments = {"num_beams": 3} if search == "beams" else {}
        expected = self.generate(model, prompts, **arguments).sequences
        columns = {
            "token_type_ids": torch.zeros_like(prompts["input_ids"]),
            "lm_mode": torch.full((3,), SEQ2SEQ),
            "source_lengths": prompts["attention_mask"].sum(1),
        }
        assert torch.equal(self.generate(model, prompts, **columns, **arguments).sequences, expected)

    def test_modes_and_lengths_that_generation_cannot_follow(self):
        model, prompts = self.generator_model(), self.prompts()
        for modes in (torch.tensor([3, 1, 3]), 0, torch.tensor([2, 2, 2])):
            with pytest.raises(ValueError, match="`lm_mode` must be"):
                model.generate(**prompts, lm_mode=modes)
        with pytest.raises(ValueError, match="`source_lengths` must be the lengths of the prompts"):
            model.generate(**prompts, source_lengths=torch.tensor([4, 6, 12]))
        with pytest.raises(ValueError, match="`input_ids` must be given"):
            model.generate(max_new_tokens=3)
        model.config.mask_token_id = None
        with pytest.raises(ValueError, match="mask_token_id"):
            model.generate(**prompts)

    def test_left_to_right_text_goes_on_from_its_cache(self):
        model, prompts = self.generator_model(), self.prompts()
        whole = model.generate(**prompts, lm_mode=LEFT_TO_RIGHT, max_new_tokens=9)
        begun = model.generate(**prompts, lm_mode=LEFT_TO_RIGHT, max_new_tokens=4, return_dict_in_generate=True)
        assert begun.cache.get_seq_length() == 12 + 3  # no [MASK], and not yet the last token
        mask = torch.nn.functional.pad(prompts["attention_mask"], (0, 4), value=1)
        arguments = {"attention_mask": mask, "cache": begun.cache, "max_new_tokens": 5}
        assert torch.equal(model.generate(begun.sequences, lm_mode=LEFT_TO_RIGHT, **arguments), whole)
        for name in ("cache", "past_key_values"):
            with pytest.raises(ValueError, match="`cache` must be empty in seq2seq mode"):
                model.generate(begun.sequences, **{name: begun.cache}, max_new_tokens=5)

    def test_adapted_models_generate(self):
        """PEFT wraps `generate` and the preparation of inputs."""
        from peft import LoraConfig, get_peft_model

        config = LoraConfig(task_type="CAUSAL_LM", r=2, target_modules=["query"], init_lora_weights=False)
        torch.manual_seed(0)
        model, prompts = get_peft_model(self.generator_model(), config).eval(), self.prompts()
        adapted = model.generate(**prompts, max_new_tokens=9)
        with model.disable_adapter():
            assert not torch.equal(model.generate(**prompts, max_new_tokens=9), adapted)
        assert torch.equal(model.merge_and_unload().generate(**prompts, max_new_tokens=9), adapted)

    @pytest.mark.slow
    def test_a_pipeline_of_a_process_without_the_package(self, tmp_path):
        """`pipeline("text-generation")` answers a source, alone and in a batch."""
        from tests.hub.checkpoints import run_script, tiny_tokenizer

        tokenizer = tiny_tokenizer()
        tokenizer.padding_side = "left"
        special = {"mask_token_id": tokenizer.mask_token_id, "eos_token_id": tokenizer.sep_token_id}
        model = self.model(self.generating_head, vocab_size=149, **special)
        model.save_pretrained(tmp_path)
        tokenizer.save_pretrained(tmp_path)
        texts = ["the capital of france", "a river"]
        code = f"""
import json
from transformers import pipeline

generator = pipeline("text-generation", {str(tmp_path)!r}, trust_remote_code=True)
assert type(generator.model).__module__.startswith("transformers_modules."), type(generator.model)
arguments = dict(max_new_tokens=6, do_sample=False, return_tensors=True)
one = [generator(text, **arguments)[0]["generated_token_ids"] for text in {texts!r}]
two = [row[0]["generated_token_ids"] for row in generator({texts!r}, batch_size=2, **arguments)]
text = generator({texts[0]!r}, max_new_tokens=6, num_beams=2, return_full_text=False)[0]["generated_text"]
print(json.dumps([one, two, text]))
"""
        one, two, text = json.loads(run_script(code).splitlines()[-1])
        for row, source in enumerate(texts):
            encoded = tokenizer(source, return_tensors="pt")
            expected = model.generate(**encoded, max_new_tokens=6, do_sample=False)[0].tolist()
            assert one[row] == expected
            real = [token for token in two[row] if token != tokenizer.pad_token_id]
            assert real == [token for token in expected if token != tokenizer.pad_token_id]
        assert isinstance(text, str)
