"""What UniLM's model classes have in common: loading, saving, initialisation, and the tied vocabulary head."""

from typing import Any

import torch
from torch import nn
from transformers import initialization as init
from transformers.modeling_utils import PreTrainedModel

from .configuration_unilm import AUTO_MAP, HF_PTM_EXT_VERSION, UniLMConfig
from .encoder_unilm import UniLMLayer, UniLMSelfAttention
from .heads_unilm import UniLMLMPredictionHead
from .loading_unilm import UniLMLoading
from .outputs_unilm import UniLMModelOutput


class UniLMPredictionHead(nn.Module):
    """Container of the vocabulary head (`cls.predictions` in the state dict)."""

    def __init__(self, config: UniLMConfig):
        super().__init__()
        self.predictions = UniLMLMPredictionHead(config)


class UniLMPreTrainingHeads(UniLMPredictionHead):
    """The heads of pre-training: vocabulary, and the next sentence if the config asks for it."""

    def __init__(self, config: UniLMConfig):
        super().__init__(config)
        self.seq_relationship = nn.Linear(config.hidden_size, 2) if config.next_sentence_prediction else None


class UniLMPreTrainedModel(UniLMLoading, PreTrainedModel):
    """Loading, saving and initialisation shared by all UniLM classes."""

    config: UniLMConfig
    config_class = UniLMConfig
    base_model_prefix = "bert"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flex_attn = True
    _supports_flash_attn = False  # flash ignores mask functions: the modes would all be one
    _supports_attention_backend = True
    _can_compile_fullgraph = False  # every step of generation feeds another number of tokens
    _no_split_modules = ["UniLMEmbeddings", "UniLMLayer"]
    _can_record_outputs = {"hidden_states": UniLMLayer, "attentions": UniLMSelfAttention}
    _auto_map = AUTO_MAP
    _code_version = HF_PTM_EXT_VERSION
    _legacy_keys = {r"^module\.": ""}

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, UniLMLMPredictionHead):
            init.zeros_(module.bias)

    def encode(self, *inputs: torch.Tensor | None, **kwargs: Any) -> UniLMModelOutput:
        """Run a head's encoder.

        Args:
            inputs: `input_ids`, `attention_mask`, `token_type_ids`, `position_ids`, `sequence_ids`, `inputs_embeds`.
            kwargs: as in `UniLMModel`.

        Returns:
            The encoder's output object.
        """
        return self.bert(*inputs, return_dict=True, **kwargs)


class UniLMWithVocabularyHead(UniLMPreTrainedModel):
    """What the classes with `cls.predictions` share: the tied decoder and resizing."""

    _prediction_heads = {"cls.predictions": "masked-language-model head"}
    _tied_weights_keys = {
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    }

    def get_output_embeddings(self) -> nn.Module:
        return self.cls.predictions.decoder

    def set_output_embeddings(self, new_embeddings: nn.Module) -> None:
        self.cls.predictions.decoder = new_embeddings
        self.cls.predictions.bias = new_embeddings.bias

    def _get_resized_lm_head(self, old_lm_head: nn.Linear, *args: Any, **kwargs: Any) -> nn.Linear:
        size = old_lm_head.weight.shape[0]
        new = super()._get_resized_lm_head(old_lm_head, *args, **kwargs)
        with torch.no_grad():
            new.bias[size:] = 0.0  # a token never seen has no frequency to lean on
        return new
