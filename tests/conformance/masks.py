"""The one contract of attention masks: every form means the same on every attention implementation."""

from typing import Any

import pytest
import torch

from .family import FamilyCase, assert_same

Inputs = dict[str, Any]


def token_forms(mask: torch.Tensor) -> dict[str, torch.Tensor]:
    """A mask of tokens `(batch, keys)` of 1 and 0, in every type."""
    return {
        "long": mask,
        "bool": mask.bool(),
        "int8": mask.to(torch.int8),
        "uint8": mask.to(torch.uint8),
        "float": mask.float(),
        "half": mask.half(),
        "not one": mask * 3,
        "small": mask * 0.5,
        "negative": -mask,
    }


def query_forms(seen: torch.Tensor) -> dict[str, torch.Tensor]:
    """Who sees whom `(batch, queries, keys)`, bool, in every form."""
    hidden = torch.zeros(seen.shape).masked_fill(~seen, float("-inf"))
    forms: dict[str, torch.Tensor] = {}
    for name, mask in {
        "bool": seen,
        "long": seen.long(),
        "int32": seen.int(),
        "uint8": seen.to(torch.uint8),
        "not one": seen * 7,
        "added -inf": hidden,
        "added lowest": hidden.clamp(min=torch.finfo(torch.float32).min),
        "added double": hidden.double(),
    }.items():
        forms[f"3-D {name}"], forms[f"4-D {name}"] = mask, mask[:, None]
    return forms


def bad_forms(mask: torch.Tensor) -> dict[str, Any]:
    """What is no mask of a batch."""
    keys = mask.shape[1]
    square = mask.bool()[:, None].expand(-1, keys, -1)
    return {
        "list": mask.tolist(),
        "array": mask.numpy(),
        "1-D": mask[0],
        "5-D": square[:, None, None],
        "short": mask[:, :-1],
        "long": torch.nn.functional.pad(mask, (0, 1)),
        "other batch": torch.cat([mask, mask]),
        "other queries": square[:, :-1],
        "other keys": square[:, :, :-1],
        "other heads": square[:, None].expand(-1, 3, -1, -1),
        "turned": square.permute(1, 0, 2)[None],
        "complex": mask.to(torch.complex64),
        "3-D added 0 and 1": square.float(),
        "4-D added 0 and 1": square[:, None].double(),
    }


def some_see(mask: torch.Tensor) -> torch.Tensor:
    """A pattern that is no padding: each real query sees itself and some real keys; padding sees padding."""
    batch, keys = mask.shape
    real = mask.bool()
    drawn = torch.rand(batch, keys, keys, generator=torch.Generator().manual_seed(7)) < 0.5
    return torch.where(real[:, :, None], drawn & real[:, None], ~real[:, None]) | torch.eye(keys, dtype=torch.bool)


class MaskChecks(FamilyCase):
    """Of encoders with attention."""

    def with_finished_mask(self, inputs: Inputs, mask: torch.Tensor) -> Inputs:
        """Inputs whose mask of tokens is replaced by one of queries, and nothing of the text is lost."""
        return {**inputs, "attention_mask": mask}

    @torch.no_grad()
    @pytest.mark.parametrize("attention", ["eager", "sdpa"])
    def test_masks_of_tokens_mean_the_same_in_every_type(self, attention: str) -> None:
        head = self.head("encoder")
        model, inputs = self.model(head, attention), self.inputs(head)
        expected = model(**inputs).last_hidden_state
        for name, mask in token_forms(inputs["attention_mask"]).items():
            got = model(**{**inputs, "attention_mask": mask}).last_hidden_state
            assert_same(got, expected, 1e-6, name)
        packed = {**inputs, "sequence_ids": inputs["attention_mask"] * 2}
        if head.packs and "lm_mode" not in packed:
            expected = model(**packed).last_hidden_state
            for name, mask in token_forms(inputs["attention_mask"]).items():
                assert_same(model(**{**packed, "attention_mask": mask}).last_hidden_state, expected, 1e-6, name)

    @torch.no_grad()
    @pytest.mark.parametrize("attention", ["eager", "sdpa"])
    def test_masks_of_queries_mean_the_same_in_every_form(self, attention: str) -> None:
        """The same as padding, where they hide padding; and what eager attention makes of an added mask."""
        head = self.head("encoder")
        inputs = self.inputs(head)
        mask = inputs["attention_mask"]
        real = mask.bool()
        model = self.model(head, attention)
        padding = real[:, None].expand(-1, mask.shape[1], -1)
        added = torch.zeros(padding.shape)[:, None].masked_fill(~some_see(mask)[:, None], -1e30)
        others = self.model(head, "eager")(**self.with_finished_mask(inputs, added)).last_hidden_state
        plain = model(**self.with_finished_mask(inputs, padding)).last_hidden_state
        assert (others - plain)[real].abs().max() > 1e-4, "the pattern hides something"
        for seen, expected in ((padding, plain), (some_see(mask), others)):
            for name, form in query_forms(seen).items():
                got = model(**self.with_finished_mask(inputs, form)).last_hidden_state
                assert_same(got[real], expected[real], 1e-5, name)
        for name, form in {"one query": real[:, None], "one query, long": mask[:, None, None]}.items():
            assert_same(
                model(**self.with_finished_mask(inputs, form)).last_hidden_state[real], plain[real], 1e-5, name
            )

    @torch.no_grad()
    def test_a_query_that_would_see_nothing_is_defined(self) -> None:
        head = self.head("encoder")
        inputs = self.inputs(head)
        seen = some_see(inputs["attention_mask"])
        seen[0, 1] = False
        outputs = [
            self.model(head, attention)(**self.with_finished_mask(inputs, form)).last_hidden_state
            for attention in ("eager", "sdpa")
            for form in query_forms(seen).values()
        ]
        for output in outputs:
            assert torch.isfinite(output).all()
            assert_same(output, outputs[0], 1e-5)

    @torch.no_grad()
    @pytest.mark.parametrize("attention", ["eager", "sdpa"])
    def test_what_is_no_mask_is_refused(self, attention: str) -> None:
        head = self.head("encoder")
        model, inputs = self.model(head, attention), self.inputs(head)
        for name, form in bad_forms(inputs["attention_mask"]).items():
            with pytest.raises((ValueError, TypeError), match="`attention_mask`"):
                pytest.fail(f"{name}: {model(**self.with_finished_mask(inputs, form))}")
