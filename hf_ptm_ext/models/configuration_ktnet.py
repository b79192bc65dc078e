"""KT-NET configuration: the encoder's inside it, and the tables of concepts."""

from typing import Any

from huggingface_hub.dataclasses import strict

from .configuration_core import FamilyConfig, in_stated_order
from .inner_config_core import EncoderInside, encoder_config_of

HF_PTM_EXT_VERSION = "0.1.0"

AUTO_MAP = {
    "AutoConfig": "configuration_ktnet.KtNetConfig",
    "AutoModel": "modeling_ktnet.KtNetModel",
    "AutoModelForQuestionAnswering": "modeling_ktnet.KtNetForQuestionAnswering",
}
PARTS = 6  # what the self-matching joins: u, v, u * v, u - v, w, u - w


@strict
class KtNetConfig(EncoderInside, FamilyConfig):
    """Configuration of the KT-NET family (Yang et al., ACL 2019, https://aclanthology.org/P19-1226).

    Args:
        encoder_config: configuration of the encoder, or its dictionary with a `model_type` (reference: BERT-large,
            cased).
        knowledge_bases: name -> `[rows, width]` of a table of concepts, row 0 for padding, in order (reference:
            "wn" and "nell", width 100).
        knowledge_base_names: their order, which the dictionary in a file lacks (default: the order given).
        freeze_encoder: whether the encoder is left as it is (the reference's first stage; default False).
        freeze_concept_embeddings: whether the tables are left as they are (reference: yes).
        classifier_dropout: not used by the reference; before the answer's layer (default 0).
        initializer_range: of the projections and the answer's layer (reference: 0.02).

    Examples:
        >>> from hf_ptm_ext import KtNetConfig
        >>> config = KtNetConfig(encoder_config={"model_type": "bert"}, knowledge_bases={"wn": [5000, 100]})
        >>> config.knowledge_size, config.output_size
        (868, 5208)
    """

    model_type = "ktnet"
    _probabilities = ("classifier_dropout",)
    _activation = ""
    keys_to_ignore_at_inference = ["hidden_states", "attentions", "pooler_output"]

    encoder_config: Any = None
    knowledge_bases: dict[str, Any] | None = None
    knowledge_base_names: list[str] | None = None
    freeze_encoder: bool = False
    freeze_concept_embeddings: bool = True
    classifier_dropout: float | int = 0.0
    initializer_range: float | int = 0.02
    hf_ptm_ext_version: str | None = HF_PTM_EXT_VERSION

    def __post_init__(self, **kwargs: Any) -> None:
        self.encoder_config = encoder_config_of(
            {"model_type": "bert"} if self.encoder_config is None else self.encoder_config
        )
        super().__post_init__(**kwargs)
        given = in_stated_order(self.knowledge_bases or {}, self.knowledge_base_names).items()
        self.knowledge_bases = {n: list(sizes) if isinstance(sizes, list | tuple) else [sizes] for n, sizes in given}
        self.knowledge_base_names = list(self.knowledge_bases)
        for name, sizes in self.knowledge_bases.items():
            if not name.isidentifier() or len(sizes) != 2 or not all(type(n) is int and n > 0 for n in sizes):
                raise ValueError(
                    "`knowledge_bases` must map names (letters, digits, _) to [rows, width] of their tables, got "
                    f"{name!r}: {sizes}."
                )

    @property
    def knowledge_size(self) -> int:
        """Width of a token with what it took of each knowledge base."""
        bases: dict[str, Any] = self.knowledge_bases or {}
        return int(self.hidden_size) + sum(width for _, width in bases.values())

    @property
    def output_size(self) -> int:
        """Width of what the answer is read from."""
        return PARTS * self.knowledge_size


# Behind the class: importing AutoConfig registers it.
from transformers import AutoConfig  # noqa: E402

KtNetConfig.sub_configs = {"encoder_config": AutoConfig}  # type: ignore
