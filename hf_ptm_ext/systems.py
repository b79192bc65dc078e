"""Every pre-trained-model system of the package in one table: what it is made of, and the paper behind it."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class System:
    """One system.

    Args:
        name: as the field calls it.
        family: `model_type` of our model family, `None` for systems that train models of others.
        models: our model classes, by full name.
        collators: collator classes, by full name.
        objectives: terms of its loss; each is an output `<term>_loss`.
        trainers: Trainer classes, by full name; empty if the plain Trainer does.
        paper: title.
        link: address of the paper.
        trains: what it trains, for systems without a family.
        status: `"stable"` or `"experimental"`.
    """

    name: str
    family: str | None
    models: tuple[str, ...]
    collators: tuple[str, ...]
    objectives: tuple[str, ...]
    trainers: tuple[str, ...]
    paper: str
    link: str
    status: str = "experimental"
    trains: str = "any encoder"


_COLLATORS = "hf_ptm_ext.collators"
_TRAINER = "hf_ptm_ext.trainers.PreTrainingTrainer"

_DISTILLATION = "hf_ptm_ext.distillation.DistillationTrainer"


def _distilled(name: str, objectives: tuple[str, ...], paper: str, link: str, trains: str = "any encoder") -> System:
    """A system that is a preset of `DistillationTrainer`."""
    return System(name, None, (), (), objectives, (_DISTILLATION,), paper, link, trains=trains)


SYSTEMS = (
    System(
        name="SpanBERT",
        family="spanbert",
        models=("hf_ptm_ext.SpanBertForPreTraining",),
        collators=(f"{_COLLATORS}.DataCollatorForSpanMasking",),
        objectives=("mlm", "sbo", "nsp"),
        trainers=(_TRAINER,),
        paper="SpanBERT: Improving Pre-training by Representing and Predicting Spans",
        link="https://arxiv.org/abs/1907.10529",
    ),
    System(
        name="UniLM",
        family="unilm",
        models=("hf_ptm_ext.UniLMForPreTraining", "hf_ptm_ext.UniLMForConditionalGeneration"),
        collators=(
            f"{_COLLATORS}.DataCollatorForUniLMPreTraining",
            f"{_COLLATORS}.DataCollatorForUniLMSeq2Seq",
            f"{_COLLATORS}.DataCollatorForUniLMGeneration",
        ),
        objectives=("mlm", "nsp"),
        trainers=(_TRAINER, "hf_ptm_ext.trainers.PtmSeq2SeqTrainer"),
        paper="Unified Language Model Pre-training for Natural Language Understanding and Generation",
        link="https://arxiv.org/abs/1905.03197",
    ),
    System(
        name="MASS",
        family="mass",
        models=("hf_ptm_ext.MassForConditionalGeneration",),
        collators=(f"{_COLLATORS}.DataCollatorForMassPreTraining",),
        objectives=("mass",),
        trainers=(_TRAINER,),
        paper="MASS: Masked Sequence to Sequence Pre-training for Language Generation",
        link="https://arxiv.org/abs/1905.02450",
    ),
    System(
        name="MASS-NMT",
        family="mass_nmt",
        models=("hf_ptm_ext.MassNmtForConditionalGeneration",),
        collators=(f"{_COLLATORS}.DataCollatorForMassPreTraining",),
        objectives=("mass",),
        trainers=(),
        paper="MASS: Masked Sequence to Sequence Pre-training for Language Generation",
        link="https://arxiv.org/abs/1905.02450",
    ),
    System(
        name="ERNIE-THU",
        family="ernie_thu",
        models=("hf_ptm_ext.ErnieThuForPreTraining",),
        collators=(f"{_COLLATORS}.DataCollatorForDenoisingEntities",),
        objectives=("mlm", "nsp", "entity"),
        trainers=(_TRAINER,),
        paper="ERNIE: Enhanced Language Representation with Informative Entities",
        link="https://arxiv.org/abs/1905.07129",
    ),
    System(
        name="K-BERT",
        family="kbert",
        models=(
            "hf_ptm_ext.KBertForSequenceClassification",
            "hf_ptm_ext.KBertForTokenClassification",
            "hf_ptm_ext.KBertForPreTraining",
        ),
        collators=(f"{_COLLATORS}.DataCollatorForMaskedLanguageModeling",),
        objectives=("mlm", "nsp"),
        trainers=(),
        paper="K-BERT: Enabling Language Representation with Knowledge Graph",
        link="https://arxiv.org/abs/1909.07606",
    ),
    System(
        name="NEZHA",
        family="nezha",
        models=("hf_ptm_ext.NezhaForPreTraining",),
        collators=(f"{_COLLATORS}.DataCollatorForWholeWordMasking",),
        objectives=("mlm", "nsp"),
        trainers=(_TRAINER,),
        paper="NEZHA: Neural Contextualized Representation for Chinese Language Understanding",
        link="https://arxiv.org/abs/1909.00204",
    ),
    System(
        name="ZEN",
        family="zen",
        models=("hf_ptm_ext.ZenForPreTraining",),
        collators=(f"{_COLLATORS}.DataCollatorWithNgrams",),
        objectives=("mlm", "nsp"),
        trainers=(_TRAINER,),
        paper="ZEN: Pre-training Chinese Text Encoder Enhanced by N-gram Representations",
        link="https://arxiv.org/abs/1911.00720",
    ),
    System(
        name="IB-BERT (MobileBERT's teacher)",
        family="ib_bert",
        models=("hf_ptm_ext.IBBertForPreTraining",),
        collators=(f"{_COLLATORS}.DataCollatorForMaskedLanguageModeling",),
        objectives=("mlm", "nsp"),
        trainers=(_TRAINER,),
        paper="MobileBERT: a Compact Task-Agnostic BERT for Resource-Limited Devices",
        link="https://arxiv.org/abs/2004.02984",
    ),
    System(
        name="BERT masked language model",
        family=None,
        models=(),
        collators=(f"{_COLLATORS}.DataCollatorForMaskedLanguageModeling",),
        objectives=("mlm",),
        trainers=(_TRAINER,),
        paper="BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding",
        link="https://arxiv.org/abs/1810.04805",
    ),
    System(
        name="RoBERTa dynamic masking",
        family=None,
        models=(),
        collators=(f"{_COLLATORS}.DataCollatorForMaskedLanguageModeling",),
        objectives=("mlm",),
        trainers=(_TRAINER,),
        paper="RoBERTa: A Robustly Optimized BERT Pretraining Approach",
        link="https://arxiv.org/abs/1907.11692",
    ),
    System(
        name="BERT-WWM",
        family=None,
        models=(),
        collators=(f"{_COLLATORS}.DataCollatorForWholeWordMasking",),
        objectives=("mlm",),
        trainers=(_TRAINER,),
        paper="BERT: whole word masking models",
        link="https://github.com/google-research/bert",
    ),
    System(
        name="Chinese-BERT-wwm",
        family=None,
        models=(),
        collators=(f"{_COLLATORS}.DataCollatorForWholeWordMasking",),
        objectives=("mlm",),
        trainers=(_TRAINER,),
        paper="Pre-Training with Whole Word Masking for Chinese BERT",
        link="https://arxiv.org/abs/1906.08101",
    ),
    System(
        name="KEPLER",
        family=None,
        models=(),
        collators=(f"{_COLLATORS}.DataCollatorForKnowledgeEmbedding",),
        objectives=("mlm", "ke"),
        trainers=("hf_ptm_ext.trainers.KnowledgeEmbeddingTrainer",),
        paper="KEPLER: A Unified Model for Knowledge Embedding and Pre-trained Language Representation",
        link="https://arxiv.org/abs/1911.06136",
    ),
    System(
        name="WKLM",
        family=None,
        models=(),
        collators=(f"{_COLLATORS}.DataCollatorForEntityReplacement",),
        objectives=("mlm", "entity"),
        trainers=("hf_ptm_ext.trainers.EntityReplacementTrainer",),
        paper="Pretrained Encyclopedia: Weakly Supervised Knowledge-Pretrained Language Model",
        link="https://arxiv.org/abs/1912.09637",
    ),
    System(
        name="BART denoising",
        family=None,
        models=(),
        collators=(f"{_COLLATORS}.DataCollatorForTextInfilling",),
        objectives=("denoising",),
        trainers=(_TRAINER,),
        paper="BART: Denoising Sequence-to-Sequence Pre-training for Natural Language Generation, Translation, and "
        "Comprehension",
        link="https://arxiv.org/abs/1910.13461",
        trains="BART and its kind",
    ),
    System(
        name="T5 span corruption",
        family=None,
        models=(),
        collators=(f"{_COLLATORS}.DataCollatorForSpanCorruption",),
        objectives=("denoising",),
        trainers=(_TRAINER,),
        paper="Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer",
        link="https://arxiv.org/abs/1910.10683",
        trains="T5 and its kind",
    ),
    System(
        name="XLM translation language model",
        family=None,
        models=(),
        collators=(f"{_COLLATORS}.DataCollatorForTranslationLanguageModeling",),
        objectives=("mlm",),
        trainers=(_TRAINER,),
        paper="Cross-lingual Language Model Pretraining",
        link="https://arxiv.org/abs/1901.07291",
        trains="XLM",
    ),
    System(
        name="Extractive question answering",
        family=None,
        models=(),
        collators=(f"{_COLLATORS}.DataCollatorForQuestionAnswering",),
        objectives=("start", "end"),
        trainers=(),
        trains="any ...ForQuestionAnswering",
        paper="BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding",
        link="https://arxiv.org/abs/1810.04805",
    ),
    System(
        name="Weighted layers (ELMo's mix)",
        family="weighted_layers",
        models=("hf_ptm_ext.WeightedLayersForSequenceClassification",),
        collators=(),
        objectives=(),
        trainers=(),
        paper="Deep contextualized word representations",
        link="https://arxiv.org/abs/1802.05365",
    ),
    System(
        name="K-Adapter",
        family="k_adapter",
        models=("hf_ptm_ext.KAdapterForRelationClassification", "hf_ptm_ext.KAdapterForDependencyHeads"),
        collators=(),
        objectives=(),
        trainers=(),
        paper="K-Adapter: Infusing Knowledge into Pre-Trained Models with Adapters",
        link="https://arxiv.org/abs/2002.01808",
    ),
    System(
        name="MT-DNN",
        family=None,
        models=(),
        collators=(),
        objectives=("distillation", "smoothness"),
        trainers=("hf_ptm_ext.trainers.MultiTaskTrainer",),
        paper="Multi-Task Deep Neural Networks for Natural Language Understanding",
        link="https://arxiv.org/abs/1901.11504",
    ),
    System(
        name="ULMFiT's fine-tuning",
        family=None,
        models=(),
        collators=(),
        objectives=(),
        trainers=("hf_ptm_ext.trainers.GradualUnfreezingCallback",),
        paper="Universal Language Model Fine-tuning for Text Classification",
        link="https://arxiv.org/abs/1801.06146",
        trains="any model with layers",
    ),
    System(
        name="SiATL",
        family=None,
        models=(),
        collators=(),
        objectives=("lm",),
        trainers=(
            "hf_ptm_ext.trainers.AuxiliaryLanguageModelCallback",
            "hf_ptm_ext.trainers.SequentialUnfreezingCallback",
        ),
        paper="An Embarrassingly Simple Approach for Transfer Learning from Pretrained Language Models",
        link="https://arxiv.org/abs/1902.10547",
        trains="any causal model with a head",
    ),
    System(
        name="Houlsby adapters",
        family=None,
        models=("hf_ptm_ext.HoulsbyConfig",),
        collators=(),
        objectives=(),
        trainers=("hf_ptm_ext.adapters.AdapterTrainer",),
        paper="Parameter-Efficient Transfer Learning for NLP",
        link="https://arxiv.org/abs/1902.00751",
        trains="any encoder, BART's and T5's kind",
    ),
    System(
        name="Pfeiffer adapters",
        family=None,
        models=("hf_ptm_ext.PfeifferConfig",),
        collators=(),
        objectives=(),
        trainers=("hf_ptm_ext.adapters.AdapterTrainer",),
        paper="AdapterFusion: Non-Destructive Task Composition for Transfer Learning",
        link="https://arxiv.org/abs/2005.00247",
        trains="any encoder, BART's and T5's kind",
    ),
    _distilled(
        "DistilBERT",
        ("soft_label", "label", "cosine"),
        "DistilBERT, a distilled version of BERT: smaller, faster, cheaper and lighter",
        "https://arxiv.org/abs/1910.01108",
    ),
    _distilled(
        "TinyBERT",
        ("attention", "hidden", "soft_label"),
        "TinyBERT: Distilling BERT for Natural Language Understanding",
        "https://arxiv.org/abs/1909.10351",
    ),
    _distilled(
        "BERT-PKD",
        ("label", "soft_label", "patience"),
        "Patient Knowledge Distillation for BERT Model Compression",
        "https://arxiv.org/abs/1908.09355",
    ),
    _distilled(
        "MobileBERT",
        ("feature_map", "attention", "hidden_mean", "hidden_variance"),
        "MobileBERT: a Compact Task-Agnostic BERT for Resource-Limited Devices",
        "https://arxiv.org/abs/2004.02984",
    ),
    _distilled(
        "MiniLM",
        ("attention", "value_relation"),
        "MiniLM: Deep Self-Attention Distillation for Task-Agnostic Compression of Pre-Trained Transformers",
        "https://arxiv.org/abs/2002.10957",
    ),
    _distilled(
        "MiniLM v2",
        ("relation",),
        "MiniLMv2: Multi-Head Self-Attention Relation Distillation for Compressing Pretrained Transformers",
        "https://arxiv.org/abs/2012.15828",
    ),
    System(
        name="Distilled BiLSTM",
        family="distilled_bilstm",
        models=("hf_ptm_ext.DistilledBiLstmForSequenceClassification",),
        collators=(),
        objectives=("label", "soft_label"),
        trainers=(_DISTILLATION,),
        paper="Distilling Task-Specific Knowledge from BERT into Simple Neural Networks",
        link="https://arxiv.org/abs/1903.12136",
    ),
    System(
        name="Mixed-vocabulary training",
        family=None,
        models=("hf_ptm_ext.distillation.DualTrainModel",),
        collators=(f"{_COLLATORS}.DataCollatorForMixedVocabulary",),
        objectives=("projection", "label", "teacher_label"),
        trainers=(_DISTILLATION,),
        paper="Extreme Language Model Compression with Optimal Subwords and Shared Projections",
        link="https://arxiv.org/abs/1909.11687",
        trains="a pair of masked language models",
    ),
    _distilled(
        "MT-DNN ensembles",
        ("label", "soft_label"),
        "Improving Multi-Task Deep Neural Networks via Knowledge Distillation for Natural Language Understanding",
        "https://arxiv.org/abs/1904.09482",
        "any classifier",
    ),
    System(
        name="BERT-of-Theseus",
        family=None,
        models=(),
        collators=(),
        objectives=(),
        trainers=("hf_ptm_ext.distillation.TheseusTrainer",),
        paper="BERT-of-Theseus: Compressing BERT by Progressive Module Replacing",
        link="https://arxiv.org/abs/2002.02925",
        trains="any encoder",
    ),
)

HEADER = ("System", "Family", "Collators", "Loss terms", "Trainers", "Paper", "Status")


def systems_as_dicts() -> list[dict[str, Any]]:
    """The table as plain data.

    Returns:
        One dict per system, with the fields of `System`.

    Example:
        >>> systems_as_dicts()[0]["family"]
        'spanbert'
    """
    return [asdict(system) for system in SYSTEMS]


def table_rows(link: bool = False) -> list[tuple[str, ...]]:
    """The table as text cells in the order of `HEADER`, class names without their module.

    Args:
        link: whether papers are Markdown links to their address (default: title and address).

    Returns:
        One row per system.

    Example:
        >>> table_rows()[0][:2]
        ('SpanBERT', 'spanbert')
    """

    def bare(names: Sequence[str]) -> str:
        return ", ".join(name.rpartition(".")[2] for name in names)

    return [
        (
            system.name,
            system.family or system.trains,
            bare(system.collators),
            ", ".join(system.objectives),
            bare(system.trainers) or "Trainer",
            f"[{system.paper}]({system.link})" if link else f"{system.paper}, {system.link}",
            system.status,
        )
        for system in SYSTEMS
    ]


def markdown_table() -> str:
    """The table that README shows.

    Returns:
        Lines of Markdown.

    Example:
        >>> print(markdown_table().splitlines()[0])
        | System | Family | Collators | Loss terms | Trainers | Paper | Status |
    """
    rows = [HEADER, tuple("---" for _ in HEADER), *table_rows(link=True)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


__all__ = ["SYSTEMS", "System", "markdown_table", "systems_as_dicts", "table_rows"]
