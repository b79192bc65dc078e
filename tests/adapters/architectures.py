"""Tiny models of every architecture that has default targets, with inputs."""

from typing import Any

import torch
from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM

from hf_ptm_ext.adapters.placements import PLACEMENTS
from hf_ptm_ext.registration import FAMILIES

VOCABULARY = 60
ENCODER = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 40,
}
ENCODER_DECODER = {
    "vocab_size": VOCABULARY,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_position_embeddings": 40,
    "pad_token_id": 0,
    "decoder_start_token_id": 2,
}
T5 = {
    "vocab_size": VOCABULARY,
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 64,
    "num_layers": 2,
    "num_decoder_layers": 2,
    "num_heads": 4,
    "pad_token_id": 0,
    "decoder_start_token_id": 0,
}
SIZES: dict[str, dict[str, Any]] = {
    "albert": {**ENCODER, "embedding_size": 16},
    "transfo_xl": {**ENCODER, "cutoffs": [20], "mem_len": 8},
    "ib_bert": {**ENCODER, "embedding_size": 16, "intra_bottleneck_size": 48},
    "distilbert": {
        "vocab_size": VOCABULARY,
        "dim": 32,
        "n_layers": 2,
        "n_heads": 4,
        "hidden_dim": 64,
        "max_position_embeddings": 40,
    },
    "k_adapter": {
        "encoder_config": {**ENCODER, "model_type": "roberta"},
        "freeze_encoder": False,
        "adapter_hidden_size": 16,
        "adapter_intermediate_size": 32,
        "adapter_num_attention_heads": 4,
        "adapter_num_hidden_layers": 1,
        "adapter_layers": [0, 1],
    },
    "weighted_layers": {"encoder_config": {**ENCODER, "model_type": "roberta"}, "freeze_encoder": False},
    "ktnet": {"encoder_config": {**ENCODER, "model_type": "bert"}, "knowledge_bases": {"wordnet": [20, 8]}},
    "rembert": {**ENCODER, "input_embedding_size": 16, "output_embedding_size": 16},
    **dict.fromkeys(("t5", "mt5", "umt5"), T5),
    **dict.fromkeys(
        (
            *("bart", "plbart", "marian", "blenderbot-small", "mbart", "pegasus", "m2m_100", "blenderbot"),
            *("mass", "mass_nmt"),
        ),
        ENCODER_DECODER,
    ),
}
# Recurrent networks have neither the places of adapters nor the projections of LoRA.
RECURRENT = ("awd_lstm", "static_embedding", "distilled_bilstm", "elmo", "cove", "context2vec", "skip_thought")
OURS = tuple(
    family.model_type for family in FAMILIES if "AutoModel" in family.models and family.model_type not in RECURRENT
)
# Those that the two tests with a whole life of an adapter run on; placement is tested on all.
MAIN = (*OURS, "bert", "roberta", "distilbert", "electra", "albert", "deberta-v2", "mpnet", "bart", "t5", "mt5")
ALL = tuple(model_type for model_type in PLACEMENTS if model_type != "san")  # which has no bare encoder
# Sub-layers that are followed by no dropout.
WITHOUT_DROPOUT = {"distilbert": ("out_lin",), "albert": ("ffn_output",), "ib_bert": ("",)}
DROPOUTS = ("hidden_dropout_prob", "dropout", "dropout_rate")
NO_DROPOUTS = ("attention_probs_dropout_prob", "attention_dropout", "activation_dropout")


def config_of(model_type: str, **fields: Any) -> Any:
    """A tiny configuration."""
    sizes = SIZES.get(model_type, ENCODER)
    return AutoConfig.for_model(model_type, **{**sizes, **fields})


def dropout_fields(model_type: str, probability: float) -> dict[str, Any]:
    """Dropout of hidden states alone."""
    fields = dict.fromkeys(DROPOUTS, probability) | dict.fromkeys(NO_DROPOUTS, 0.0)
    if "encoder_config" in SIZES.get(model_type, {}):
        return {"encoder_config": {**SIZES[model_type]["encoder_config"], **fields}}
    known = config_of(model_type).to_dict()
    return {name: value for name, value in fields.items() if name in known}


def make_model(model_type: str, seed: int = 0, **fields: Any) -> Any:
    """A tiny model with random weights, in evaluation."""
    torch.manual_seed(seed)
    config = config_of(model_type, **fields)
    auto_class = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModel
    return auto_class.from_config(config).eval()


def make_inputs(model_type: str, config: Any) -> dict[str, torch.Tensor]:
    """Two rows, the second one padded."""
    generator = torch.Generator().manual_seed(7)
    ids = torch.randint(5, VOCABULARY, (2, 9), generator=generator)
    mask = torch.ones_like(ids)
    mask[1, 6:] = 0
    inputs = {"input_ids": ids, "attention_mask": mask}
    if config.is_encoder_decoder:
        inputs["decoder_input_ids"] = ids[:, :6]
    if model_type == "mass_nmt":
        inputs |= {"langs": torch.zeros(2, dtype=torch.long), "decoder_langs": torch.ones(2, dtype=torch.long)}
    if model_type == "zen":
        inputs |= {
            "ngram_ids": torch.tensor([[5, 6], [7, 0]]),
            "ngram_positions": torch.tensor([[1, 3], [2, 0]]),
            "ngram_lengths": torch.tensor([[2, 3], [2, 0]]),
        }
    if model_type == "layoutlm":
        inputs["bbox"] = torch.zeros(2, 9, 4, dtype=torch.long)
    return inputs


def output_of(model: Any, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """Hidden states or logits."""
    return model(**inputs)[0]
