"""Three terms with three denominators: gradient accumulation changes nothing, whatever the rows hold."""

import pytest
import torch
from datasets import Dataset

from hf_ptm_ext.models.configuration_spanbert import SpanBertConfig
from hf_ptm_ext.models.modeling_spanbert import SpanBertForPreTraining
from hf_ptm_ext.trainers import PtmTrainer
from tests.conformance.trainer import arguments

LENGTHS = (9, 4, 6, 12, 5, 7, 10, 8)


def rows() -> Dataset:
    """Eight rows of different lengths and label numbers; the third and the sixth have no span pair."""
    generator, width = torch.Generator().manual_seed(0), max(LENGTHS)
    records = []
    for number, length in enumerate(LENGTHS):
        ids = torch.randint(5, 99, (width,), generator=generator)
        labels = torch.full((width,), -100)
        boundaries, targets = torch.zeros(2, 2, dtype=torch.long), torch.full((2, 4), -100)
        labels[2 : 2 + length // 3] = ids[2 : 2 + length // 3]
        if number not in (2, 5):
            boundaries[0] = torch.tensor([1, 2 + length // 3])
            targets[0, : length // 3] = ids[2 : 2 + length // 3]
        mask = (torch.arange(width) < length).long()
        record = {
            "input_ids": ids * mask,
            "attention_mask": mask,
            "labels": labels,
            "span_boundaries": boundaries,
            "span_labels": targets,
            "next_sentence_label": torch.tensor(-100 if number == 4 else number % 2),
        }
        records.append({name: value.tolist() for name, value in record.items()})
    return Dataset.from_list(records)


def run(folder, size: int, steps: int, **overrides) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
    torch.manual_seed(0)
    config = SpanBertConfig(
        vocab_size=99,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=37,
        max_position_embeddings=16,
        max_pair_targets=4,
        pair_positional_embedding_size=10,
        next_sentence_prediction=True,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = SpanBertForPreTraining(config)
    trainer = PtmTrainer(
        model=model,
        args=arguments(folder, per_device_train_batch_size=size, gradient_accumulation_steps=steps, **overrides),
        train_dataset=rows(),
    )
    trainer.train()
    logged = next(entry for entry in trainer.state.log_history if "loss" in entry)
    return {name: value.detach() for name, value in model.named_parameters()}, logged


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return run(tmp_path_factory.mktemp("whole"), 8, 1)


@pytest.mark.parametrize(("size", "steps"), [(4, 2), (2, 4), (1, 8)])
def test_every_term_is_a_mean_over_the_update(whole, size, steps, tmp_path):
    expected, expected_log = whole
    parameters, logged = run(tmp_path, size, steps)
    for name, value in expected.items():
        torch.testing.assert_close(
            parameters[name], value, atol=1e-6, rtol=1e-5, msg=lambda text, n=name: f"{n}: {text}"
        )
    for name in ("loss", "mlm_loss", "sbo_loss", "nsp_loss"):
        assert logged[name] == pytest.approx(expected_log[name], rel=1e-4), name
    assert logged["grad_norm"] == pytest.approx(expected_log["grad_norm"], rel=1e-4)
