"""Checks of `generate`: shapes, caches, padding, scores, limits, refusals. For families with a head that generates.

class TestUniLMGeneration(GenerationChecks):
    generation_options = {"seq2seq": {"lm_mode": 3}, "left-to-right": {"lm_mode": 1}}
    ... and what `FamilyCase` wants
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import DynamicCache, GenerationConfig

from .family import FamilyCase, Head, assert_same

SOURCES = (4, 7, 12)  # tokens of the prompts
NEW_TOKENS = 9
SEARCHES = {"greedy": {}, "beams": {"num_beams": 3}}


class GenerationChecks(FamilyCase):
    # Ways of generating, by name: arguments that `generate` gets.
    generation_options: dict[str, dict[str, Any]] = {"plain": {}}
    paddings: tuple[str, ...] = ("right", "left")
    # Whether the prompt comes back before the continuation, as from a decoder.
    returns_prompt = True
    # Tokens in front of a continuation that does not begin with the prompt: what a decoder is fed first.
    start_tokens = 0
    # Arguments that cannot work, and what the error must name.
    refused_options: dict[str, Callable[["GenerationChecks"], Any]] = {
        "assistant_model": lambda case: case.generator_model(),
        "prompt_lookup_num_tokens": lambda case: 3,
        "cache_implementation": lambda case: "static",
    }

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        super().pytest_generate_tests(metafunc)
        if "options" in metafunc.fixturenames:
            metafunc.parametrize("options", self.generation_options.values(), ids=self.generation_options)

    # ---- objects ----

    @property
    def generating_head(self) -> Head:
        return next(head for head in self.heads if head.generates)

    def generator_model(self, attention: str = "sdpa", **overrides: Any) -> Any:
        """The head that generates; no token ends a text, so that every row has all tokens asked for."""
        model = self.model(self.generating_head, attention, eos_token_id=None, **overrides)
        model.generation_config.eos_token_id = None
        return model

    def prompts(self, lengths: tuple[int, ...] = SOURCES, padding: str = "left") -> dict[str, torch.Tensor]:
        """Padded prompts; a row's tokens depend on its own length alone."""
        width, vocab_size = max(lengths), self.config().vocab_size
        ids, mask = torch.zeros(2, len(lengths), width, dtype=torch.long)
        for row, length in enumerate(lengths):
            where = slice(width - length, width) if padding == "left" else slice(0, length)
            ids[row, where] = torch.randint(5, vocab_size, (length,), generator=self.generator(length))
            mask[row, where] = 1
        return {"input_ids": ids, "attention_mask": mask}

    def generate(self, model: Any, prompts: dict[str, torch.Tensor], **arguments: Any) -> Any:
        """All that a greedy or beam search returns, sequences without their prompts."""
        defaults = {"max_new_tokens": NEW_TOKENS, "do_sample": False}
        flags = {"return_dict_in_generate": True, "output_logits": True, "output_scores": True}
        result = model.generate(**prompts, **{**defaults, **flags, **arguments})
        result.sequences = result.sequences[:, self.start_tokens :]
        if self.returns_prompt:
            width = prompts["input_ids"].shape[1]
            repeats = result.sequences.shape[0] // prompts["input_ids"].shape[0]
            assert torch.equal(result.sequences[:, :width], prompts["input_ids"].repeat_interleave(repeats, 0))
            result.sequences = result.sequences[:, width:]
        return result

    # ---- shapes ----

    def test_shapes(self, options: dict[str, Any]) -> None:
        model, prompts = self.generator_model(), self.prompts()
        width = prompts["input_ids"].shape[1] if self.returns_prompt else self.start_tokens
        for arguments, rows in (
            ({}, 3),
            ({"do_sample": True, "top_k": 5}, 3),
            ({"do_sample": True, "num_return_sequences": 2}, 6),
            ({"num_beams": 3}, 3),
            ({"num_beams": 3, "num_return_sequences": 2, "length_penalty": 0.6}, 6),
            ({"num_beams": 2, "do_sample": True}, 3),
            ({"repetition_penalty": 1.3, "no_repeat_ngram_size": 2, "min_new_tokens": 2}, 3),
        ):
            torch.manual_seed(0)
            output = model.generate(**prompts, **options, max_new_tokens=5, **arguments)
            assert output.shape == (rows, width + 5), arguments
            assert output.dtype == torch.long

    def test_sampling_follows_the_seed(self, options: dict[str, Any]) -> None:
        model, prompts, outputs = self.generator_model(), self.prompts(), []
        for seed in (0, 0, 1):
            torch.manual_seed(seed)
            outputs.append(model.generate(**prompts, **options, max_new_tokens=NEW_TOKENS, do_sample=True))
        assert torch.equal(outputs[0], outputs[1])
        assert not torch.equal(outputs[0], outputs[2])

    # ---- caches and padding ----

    @pytest.mark.parametrize("search", SEARCHES)
    @pytest.mark.parametrize("attention", ["eager", "sdpa"])
    def test_a_row_is_what_it_is_alone_whatever_the_cache_and_the_padding(
        self, options: dict[str, Any], search: str, attention: str
    ) -> None:
        model = self.generator_model(attention)
        beams = SEARCHES[search].get("num_beams", 1)
        lengths = (*SOURCES, max(SOURCES) + 20)
        alone = {
            length: self.generate(model, self.prompts((length,)), **options, **SEARCHES[search], use_cache=False)
            for length in lengths
        }
        for use_cache in (True, False):
            for batch in ((SOURCES[0],), SOURCES, lengths):
                for padding in self.paddings:
                    prompts = self.prompts(batch, padding)
                    got = self.generate(model, prompts, **options, **SEARCHES[search], use_cache=use_cache)
                    for row, length in enumerate(batch):
                        name = f"{length} of {batch}, {padding}, cache {use_cache}"
                        assert got.sequences[row].tolist() == alone[length].sequences[0].tolist(), name
                        for step in range(NEW_TOKENS):
                            logits = got.logits[step][row * beams : (row + 1) * beams]
                            assert_same(logits, alone[length].logits[step], 1e-5, f"{name}, step {step}")

    @pytest.mark.parametrize("search", SEARCHES)
    def test_rows_that_end_early_disturb_no_other(self, options: dict[str, Any], search: str) -> None:
        model, prompts = self.generator_model(), self.prompts()
        free = self.generate(model, prompts, **options).sequences
        end = int(free[0, 2])
        arguments = {**options, **SEARCHES[search], "eos_token_id": end, "pad_token_id": 0}
        together = self.generate(model, prompts, **arguments).sequences
        if search == "greedy":
            assert together[0].tolist()[: free[0].tolist().index(end) + 1][-1] == end
            assert not together[0, free[0].tolist().index(end) + 1 :].any()
        for row, length in enumerate(SOURCES):
            single = self.generate(model, self.prompts((length,)), **arguments).sequences[0]
            assert together[row, : len(single)].tolist() == single.tolist()
            # Upstream's beam search fills up with the end token where the padding token is 0.
            assert set(together[row, len(single) :].tolist()) <= {0, end}

    def test_the_mask_is_read_off_the_padding(self, options: dict[str, Any]) -> None:
        model = self.generator_model()
        for padding in self.paddings:
            prompts = self.prompts(padding=padding)
            expected = model.generate(**prompts, **options, max_new_tokens=NEW_TOKENS)
            got = model.generate(prompts["input_ids"], **options, max_new_tokens=NEW_TOKENS)
            assert torch.equal(got, expected)

    def test_half_precision(self, options: dict[str, Any]) -> None:
        model, prompts = self.generator_model().to(torch.bfloat16), self.prompts()
        for use_cache in (True, False):
            result = self.generate(model, prompts, **options, num_beams=2, use_cache=use_cache)
            assert all(torch.isfinite(logits).all() for logits in result.logits)

    # ---- scores ----

    def test_scores(self, options: dict[str, Any]) -> None:
        model, prompts = self.generator_model(), self.prompts()
        plain = self.generate(model, prompts, **options)
        assert len(plain.scores) == len(plain.logits) == NEW_TOKENS
        for step, scores in enumerate(plain.scores):
            assert scores.shape == (len(SOURCES), model.config.vocab_size)
            assert torch.equal(scores.argmax(-1), plain.sequences[:, step])
        beams = self.generate(model, prompts, **options, num_beams=3, length_penalty=0.0)
        assert len(beams.scores) == NEW_TOKENS
        assert beams.scores[0].shape == (3 * len(SOURCES), model.config.vocab_size)
        transitions = model.compute_transition_scores(beams.sequences, beams.scores, beams.beam_indices)
        assert_same(transitions.sum(1), beams.sequences_scores, 1e-4)
        # Along the best beam, a log-probability is the one of that beam's logits.
        for row in range(len(SOURCES)):
            for step in range(NEW_TOKENS):
                logits = beams.logits[step][beams.beam_indices[row, step]]
                assert_same(logits.log_softmax(-1)[beams.sequences[row, step]], transitions[row, step], 1e-5)
        assert (beams.sequences_scores > self.sums_of(plain) - 1e-4).any()

    @staticmethod
    def sums_of(result: Any) -> torch.Tensor:
        """Log-probability of greedy sequences."""
        each = [logits.log_softmax(-1) for logits in result.logits]
        return sum(values.gather(1, result.sequences[:, [step]])[:, 0] for step, values in enumerate(each))

    # ---- limits ----

    def test_new_tokens_are_counted_per_row(self, options: dict[str, Any]) -> None:
        """A long source leaves a short one its tokens."""
        model = self.generator_model()
        prompts = self.prompts((3, 30))
        assert self.generate(model, prompts, **options, max_new_tokens=5).sequences.shape == (2, 5)

    def test_max_length_below_the_prompt_is_refused(self, options: dict[str, Any]) -> None:
        if not self.returns_prompt:
            return
        model = self.generator_model()
        result = self.generate(model, self.prompts((30,)), **options, max_new_tokens=None, max_length=35)
        assert result.sequences.shape == (1, 5)
        for length in (20, 30):
            with pytest.raises(ValueError, match="max_new_tokens"):
                model.generate(**self.prompts((30,)), **options, max_length=length)

    def test_more_tokens_than_positions_are_refused_before_the_first_step(
        self, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        model = self.generator_model(max_position_embeddings=32)
        short, long = self.prompts((28,)), self.prompts((5, 33))
        model.generate(**short, **options, max_new_tokens=4)

        def never(*args: Any, **kwargs: Any) -> None:
            raise AssertionError("a step was made")

        monkeypatch.setattr(model, "forward", never)
        for prompts, arguments in (
            (short, {"max_new_tokens": 5}),
            (short, {"max_length": 33}),
            (short, {"generation_config": GenerationConfig(max_new_tokens=5)}),
            (long, {"max_new_tokens": 1}),
            (long, {}),
        ):
            with pytest.raises(ValueError, match="`max_position_embeddings`"):
                model.generate(**prompts, **options, **arguments)
        model.generation_config.max_new_tokens = 5  # what a checkpoint brings along
        with pytest.raises(ValueError, match="`max_position_embeddings`"):
            model.generate(**short, **options)

    # ---- refusals ----

    def test_what_cannot_work_is_refused(self, options: dict[str, Any]) -> None:
        model, prompts = self.generator_model(), self.prompts((7,))
        for name, value in self.refused_options.items():
            with pytest.raises(ValueError, match=f"`{name}`"):
                model.generate(**prompts, **options, max_new_tokens=3, **{name: value(self)})

    def test_what_cannot_work_is_refused_in_configurations_too(self, options: dict[str, Any]) -> None:
        model, prompts = self.generator_model(), self.prompts((7,))
        for name in ("prompt_lookup_num_tokens", "cache_implementation"):
            if name not in self.refused_options:
                continue
            given = GenerationConfig(max_new_tokens=3, **{name: self.refused_options[name](self)})
            with pytest.raises(ValueError, match=f"`{name}`"):
                model.generate(**prompts, **options, generation_config=given)

    def test_the_old_name_of_the_cache_is_not_swallowed(self, options: dict[str, Any]) -> None:
        model, prompts, cache = self.generator_model(), self.prompts((7,)), DynamicCache()
        with pytest.warns(FutureWarning, match="past_key_values"):
            got = model.generate(**prompts, **options, past_key_values=cache, max_new_tokens=3)
        assert cache.get_seq_length() > 0
        assert torch.equal(got, model.generate(**prompts, **options, max_new_tokens=3))

    def test_misspelt_arguments_are_refused(self, options: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match="max_new_tokns"):
            self.generator_model().generate(**self.prompts((7,)), **options, max_new_tokns=3)
