"""KnowBERT configuration: BERT's fields, and for each knowledge base where its layer is and how large it is."""

from typing import Any

from huggingface_hub.dataclasses import strict

from .configuration_core import BertFamilyConfig, in_stated_order

HF_PTM_EXT_VERSION = "0.1.0"

AUTO_MAP = {
    "AutoConfig": "configuration_knowbert.KnowBertConfig",
    "AutoModel": "modeling_knowbert.KnowBertModel",
    "AutoModelForPreTraining": "modeling_knowbert.KnowBertForPreTraining",
    "AutoModelForMaskedLM": "modeling_knowbert.KnowBertForMaskedLM",
    "AutoModelForNextSentencePrediction": "modeling_knowbert.KnowBertForNextSentencePrediction",
    "AutoModelForSequenceClassification": "modeling_knowbert.KnowBertForSequenceClassification",
    "AutoModelForTokenClassification": "modeling_knowbert.KnowBertForTokenClassification",
    "AutoModelForQuestionAnswering": "modeling_knowbert.KnowBertForQuestionAnswering",
    "AutoModelForMultipleChoice": "modeling_knowbert.KnowBertForMultipleChoice",
}
LINKING_LOSSES = ("margin", "softmax")
# The released wiki model's values; `None` must be given, or follows from others.
DEFAULTS: dict[str, Any] = {
    "entity_vocab_size": None,
    "insert_after_layer": None,
    "entity_size": 300,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
    "num_hidden_layers": 1,
    "linker_hidden_size": 100,
    "linking_loss": "margin",
    "margin": 0.2,
    "threshold": None,
    "unknown_entity_id": 1,
    "null_entity_id": 2,
    "mask_entity_id": 3,
    "freeze_entity_embeddings": True,
    "part_of_speech_size": 0,
    "raw_entity_size": None,
}
# Values of a knowledge base that are sizes or rows, and the least that they can be.
INTEGERS = {
    **dict.fromkeys(("entity_size", "num_attention_heads", "intermediate_size", "num_hidden_layers"), 1),
    **dict.fromkeys(("linker_hidden_size", "raw_entity_size", "unknown_entity_id", "null_entity_id"), 1),
    **{"mask_entity_id": 1, "entity_vocab_size": 1, "insert_after_layer": 0, "part_of_speech_size": 0},
}


@strict
class KnowBertConfig(BertFamilyConfig):
    """Configuration of the KnowBERT family (Peters et al., EMNLP 2019, https://arxiv.org/abs/1909.04164).

    Fields not listed are BERT's, with BERT's defaults. The values of a knowledge base below are completed with those
    of the released Wikipedia model; the released WordNet model has `entity_size=200`, `linking_loss="softmax"`,
    `part_of_speech_size=25`, and layer 10 beside Wikipedia's 9.

    Args:
        knowledge_bases: name -> values of a knowledge base, in the order in which layers of one place run; a BERT
            without any (default) is a BERT. `entity_vocab_size` rows of the entity table, special ones included, and
            `insert_after_layer`, the number of BERT's layer behind which it acts, from 0, must be given. The others:
            `entity_size` width of entities and of the layer inside (300); `num_attention_heads` (4),
            `intermediate_size` (1024) and, of the span encoder, `num_hidden_layers` (1) inside; `linker_hidden_size`
            of the score's perceptron (100); `linking_loss` "margin" (default) or "softmax"; `margin` (0.2);
            `threshold` a link's score must reach (margin: 0, softmax: -990, which every real candidate does);
            `unknown_entity_id`, `null_entity_id`, `mask_entity_id` special rows (1, 2, 3; 0 is padding);
            `freeze_entity_embeddings` whether the table is left as it is (True); `part_of_speech_size` width of
            embeddings of parts of speech that are joined to the table's rows, 0 for none (0); `raw_entity_size` width
            of the table's rows in that case (default: `entity_size`).
        knowledge_base_names: their order, which the dictionary in a file lacks (default: the order given).
        knowledge_layer_norm_eps: of the LayerNorms around the knowledge (reference: 1e-5; BERT layers inside have
            `layer_norm_eps`).
        inverse_bias: whether the bias of the projection back undoes the one of the projection into the knowledge
            base, where it is new (default); the reference adds it instead. Both begin with 0 in a new model.

    Examples:
        >>> from hf_ptm_ext import KnowBertConfig
        >>> config = KnowBertConfig(knowledge_bases={"wiki": {"entity_vocab_size": 100, "insert_after_layer": 9}})
        >>> config.knowledge_bases["wiki"]["entity_size"], config.knowledge_bases["wiki"]["threshold"]
        (300, 0.0)
    """

    model_type = "knowbert"
    keys_to_ignore_at_inference = [
        *BertFamilyConfig.keys_to_ignore_at_inference,
        "linking_loss",
        "linking_scores",
        "entity_attentions",
    ]

    knowledge_bases: dict[str, Any] | None = None
    knowledge_base_names: list[str] | None = None
    knowledge_layer_norm_eps: float | int = 1e-5
    inverse_bias: bool = True
    hf_ptm_ext_version: str | None = HF_PTM_EXT_VERSION

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        given = in_stated_order(self.knowledge_bases or {}, self.knowledge_base_names)
        self.knowledge_bases = {name: self._completed(name, values) for name, values in given.items()}
        self.knowledge_base_names = list(given)

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """As upstream, which sets what a caller gives behind all checks; knowledge bases must be completed."""
        given = {name: kwargs.pop(name) for name in ("knowledge_bases",) if name in kwargs}
        if given:
            given["knowledge_base_names"] = None
        return super().from_dict({**config_dict, **given}, **kwargs)

    def _completed(self, name: str, values: Any) -> dict[str, Any]:
        """The values of one knowledge base, with defaults; what is no value, or out of range, is refused."""
        where = f"`knowledge_bases`[{name!r}]"
        if not name.isidentifier() or not isinstance(values, dict):
            raise ValueError(
                f"`knowledge_bases` must map names (letters, digits, _) to values, got {where} = {values}."
            )
        unknown = sorted(values.keys() - DEFAULTS)
        if unknown:
            raise ValueError(f"{where} has {unknown}, which nothing reads: its values are {', '.join(DEFAULTS)}.")
        full = {**DEFAULTS, **values}
        for field, least in INTEGERS.items():
            value = full[field]
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
                raise ValueError(f"{where}: `{field}` must be an integer of at least {least}, got {value!r}.")
        if full["linking_loss"] not in LINKING_LOSSES:
            raise ValueError(f"{where}: `linking_loss` must be one of {LINKING_LOSSES}, got {full['linking_loss']!r}.")
        if full["threshold"] is None:
            full["threshold"] = 0.0 if full["linking_loss"] == "margin" else -990.0
        if full["raw_entity_size"] is None:
            full["raw_entity_size"] = full["entity_size"]
        layer, rows = full["insert_after_layer"], full["entity_vocab_size"]
        if layer is None or layer >= self.depth:
            raise ValueError(
                f"{where}: `insert_after_layer` must be a layer's number, 0 to {self.depth - 1}, got {layer}."
            )
        special = max(full[f"{kind}_entity_id"] for kind in ("unknown", "null", "mask"))
        if rows is None or rows <= special:
            raise ValueError(
                f"{where}: `entity_vocab_size` must be the rows of the entity table, of which the first are padding "
                f"and the special ones up to {special}, got {rows}."
            )
        if full["entity_size"] % full["num_attention_heads"]:
            raise ValueError(
                f"{where}: `num_attention_heads` must divide `entity_size`, got {full['num_attention_heads']} and "
                f"{full['entity_size']}."
            )
        projected = full["part_of_speech_size"] and full["linking_loss"] == "softmax"
        if full["raw_entity_size"] != full["entity_size"] and not projected:
            raise ValueError(
                f"{where}: `raw_entity_size` must be `entity_size` but with parts of speech and the softmax loss, got "
                f"{full['raw_entity_size']} and {full['entity_size']}."
            )
        return full
