"""What K-BERT's model classes have in common: loading, saving, initialisation, and the tied vocabulary head."""

from typing import Any

import torch
from torch import nn
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.modeling_utils import PreTrainedModel

from .configuration_kbert import AUTO_MAP, HF_PTM_EXT_VERSION, KBertConfig
from .encoder_kbert import KBertLayer, KBertSelfAttention
from .heads_kbert import KBertLMPredictionHead
from .loading_kbert import KBertLoading
from .normalization_kbert import use_uer_layer_norm


class KBertPredictionHead(nn.Module):
    """Container of the vocabulary head (`cls.predictions` in the state dict)."""

    def __init__(self, config: KBertConfig):
        super().__init__()
        self.predictions = KBertLMPredictionHead(config)


class KBertPreTrainingHeads(KBertPredictionHead):
    """The heads of pre-training: vocabulary and next sentence."""

    def __init__(self, config: KBertConfig):
        super().__init__(config)
        self.seq_relationship = nn.Linear(config.hidden_size, 2)


class KBertPreTrainedModel(KBertLoading, PreTrainedModel):
    """Loading, saving and initialisation shared by all K-BERT classes."""

    config: KBertConfig
    config_class = KBertConfig
    base_model_prefix = "bert"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flex_attn = True
    _supports_flash_attn = False  # flash ignores mask functions: knowledge would be read as text
    _supports_attention_backend = True
    _can_compile_fullgraph = True
    _no_split_modules = ["KBertEmbeddings", "KBertLayer"]
    _can_record_outputs = {"hidden_states": KBertLayer, "attentions": KBertSelfAttention}
    _auto_map = AUTO_MAP
    _code_version = HF_PTM_EXT_VERSION
    _legacy_keys = {r"^module\.": ""}

    def post_init(self) -> None:
        """As upstream; the config decides which LayerNorm the modules have."""
        self.config.check_choices()
        if self.config.layer_norm_style == "uer":
            use_uer_layer_norm(self)
        super().post_init()

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, KBertLMPredictionHead):
            init.zeros_(module.bias)

    def encode(self, *inputs: torch.Tensor | None, **kwargs: Any) -> BaseModelOutputWithPooling:
        """Run a head's encoder.

        Args:
            inputs: the eight inputs in the order in which every `forward` names them.
            kwargs: as in `KBertModel`.

        Returns:
            The encoder's output object.
        """
        return self.bert(*inputs, return_dict=True, **kwargs)

    @property
    def _classifier_dropout(self) -> float:
        """The classifier's own dropout, or the hidden one."""
        own = self.config.classifier_dropout
        return self.config.hidden_dropout_prob if own is None else own


class KBertWithVocabularyHead(KBertPreTrainedModel):
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
