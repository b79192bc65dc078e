"""What K-BERT's model classes have in common: loading, saving and initialisation."""

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
