"""Every pre-trained-model system of the package in one table: what it is made of, and the paper behind it."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .evidence import evidence_of
from .hints import did_you_mean


@dataclass(frozen=True)
class System:
    """One system, its classes by full name; `family` is None where it trains others' models, which `trains` names."""

    name: str
    family: str | None
    models: tuple[str, ...]
    collators: tuple[str, ...]
    objectives: tuple[str, ...]
    trainers: tuple[str, ...]
    paper: str
    link: str
    page: str
    command: str
    status: str = "experimental"
    trains: str = "any encoder"


# system | family, or what it trains in brackets | models | collators | loss terms | Trainers
#     | number of arXiv or address | paper
#     | page of docs | a command of it, without the name of the program
_TABLE = """
SpanBERT | spanbert | SpanBertForPreTraining | DataCollatorForSpanMasking | mlm sbo nsp | trainers.PreTrainingTrainer
    | 1907.10529 | SpanBERT: Improving Pre-training by Representing and Predicting Spans
    | families/spanbert | pretrain spanbert_continue.yaml --model_name_or_path BERT --train_file corpus.txt
UniLM | unilm | UniLMForPreTraining UniLMForConditionalGeneration
    | DataCollatorForUniLMPreTraining DataCollatorForUniLMSeq2Seq DataCollatorForUniLMGeneration | mlm nsp
    | trainers.PreTrainingTrainer trainers.PtmSeq2SeqTrainer
    | 1905.03197 | Unified Language Model Pre-training for Natural Language Understanding and Generation
    | families/unilm | pretrain unilm.yaml
MASS | mass | MassForConditionalGeneration | DataCollatorForMassPreTraining | mass | trainers.PreTrainingTrainer
    | 1905.02450 | MASS: Masked Sequence to Sequence Pre-training for Language Generation
    | families/mass | pretrain mass.yaml
MASS-NMT | mass_nmt | MassNmtForConditionalGeneration | DataCollatorForMassPreTraining | mass | -
    | 1905.02450 | MASS: Masked Sequence to Sequence Pre-training for Language Generation
    | families/mass_nmt | convert mass_nmt mass.pth TARGET --codes codes
ERNIE-THU | ernie_thu | ErnieThuForPreTraining
    | DataCollatorForDenoisingEntities | mlm nsp entity | trainers.PreTrainingTrainer
    | 1905.07129 | ERNIE: Enhanced Language Representation with Informative Entities
    | families/ernie_thu | pretrain ernie_thu.yaml --entity_table entities.safetensors
AWD-LSTM, ULMFiT | awd_lstm | AwdLstmForCausalLM AwdLstmForSequenceClassification
    | DataCollatorForBackpropagationThroughTime | lm ar tar | trainers.BpttTrainer
    | 1801.06146 | Universal Language Model Fine-tuning for Text Classification
    | families/awd_lstm | pretrain awd_lstm.yaml --train_file corpus.txt
K-BERT | kbert | KBertForSequenceClassification KBertForTokenClassification KBertForPreTraining
    | DataCollatorForMaskedLanguageModeling | mlm nsp | -
    | 1909.07606 | K-BERT: Enabling Language Representation with Knowledge Graph
    | families/kbert
    | finetune kbert_ner.yaml --model_name_or_path BERT --kg graph.spo --train_file a.tsv --validation_file b.tsv
KnowBERT | knowbert | KnowBertForPreTraining
    | DataCollatorForEntityCandidates | mlm nsp linking | -
    | 1909.04164 | Knowledge Enhanced Contextual Word Representations
    | families/knowbert | convert knowbert weights.th TARGET --config config.json
KT-NET | ktnet | KtNetForQuestionAnswering
    | DataCollatorForConcepts | qa | -
    | https://aclanthology.org/P19-1226 | Enhancing Pre-Trained Language Representations with Rich Knowledge for MRC
    | families/ktnet | finetune ktnet.yaml --model_name_or_path BERT --concepts wn=words.tsv --concept_vectors wn=v.txt
    --train_file train.json --test_file dev.json
NEZHA | nezha | NezhaForPreTraining | DataCollatorForWholeWordMasking | mlm nsp | trainers.PreTrainingTrainer
    | 1909.00204 | NEZHA: Neural Contextualized Representation for Chinese Language Understanding
    | families/nezha | pretrain wwm_zh.yaml --model_name_or_path NEZHA --next_sentence_prediction true
ZEN | zen | ZenForPreTraining | DataCollatorWithNgrams | mlm nsp | trainers.PreTrainingTrainer
    | 1911.00720 | ZEN: Pre-training Chinese Text Encoder Enhanced by N-gram Representations
    | families/zen
    | pretrain --objective mlm --model_name_or_path ZEN --next_sentence_prediction true --train_file corpus.txt
IB-BERT (MobileBERT's teacher) | ib_bert | IBBertForPreTraining
    | DataCollatorForMaskedLanguageModeling | mlm nsp | trainers.PreTrainingTrainer
    | 2004.02984 | MobileBERT: a Compact Task-Agnostic BERT for Resource-Limited Devices
    | families/ib_bert
    | pretrain --objective mlm --family ib_bert --next_sentence_prediction true --train_file corpus.txt
Transformer-XL | transfo_xl | TransfoXLLMHeadModel TransfoXLForSequenceClassification
    | DataCollatorForBackpropagationThroughTime | lm | trainers.BpttTrainer
    | 1901.02860 | Transformer-XL: Attentive Language Models beyond a Fixed-Length Context
    | families/transfo_xl | pretrain transfo_xl.yaml --train_file corpus.txt
BERT masked language model | (any encoder) | -
    | DataCollatorForMaskedLanguageModeling | mlm | trainers.PreTrainingTrainer
    | 1810.04805 | BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding
    | how-to/pretrain | pretrain --objective mlm --model_name_or_path BERT --train_file corpus.txt
RoBERTa dynamic masking, FULL-SENTENCES | (any encoder) | -
    | DataCollatorForMaskedLanguageModeling | mlm | trainers.PreTrainingTrainer
    | 1907.11692 | RoBERTa: A Robustly Optimized BERT Pretraining Approach
    | how-to/pretrain
    | pretrain --objective mlm --model_name_or_path ROBERTA --budget roberta --block_mode full_sentences --corpus en
BioBERT | (any encoder) | - | DataCollatorForMaskedLanguageModeling | mlm | trainers.PreTrainingTrainer
    | 1901.08746 | BioBERT: a pre-trained biomedical language representation model for biomedical text mining
    | how-to/domain_adaptation | pretrain domain_adaptation.yaml --model_name_or_path BERT --train_file abstracts.txt
SciBERT | (any encoder) | - | DataCollatorForMaskedLanguageModeling | mlm | trainers.PreTrainingTrainer
    | 1903.10676 | SciBERT: A Pretrained Language Model for Scientific Text
    | how-to/domain_adaptation | pretrain domain_adaptation.yaml --model_name_or_path BERT --train_file papers.txt
ClinicalBERT | (any encoder) | - | DataCollatorForMaskedLanguageModeling | mlm | trainers.PreTrainingTrainer
    | 1904.05342 | ClinicalBERT: Modeling Clinical Notes and Predicting Hospital Readmission
    | how-to/domain_adaptation | pretrain domain_adaptation.yaml --model_name_or_path BERT --train_file notes.txt
PatentBERT | (any encoder) | - | - | - | -
    | 1906.02124 | PatentBERT: Patent Classification with Fine-Tuning a Pre-Trained BERT Model
    | how-to/domain_adaptation
    | finetune bert_classification.yaml --model_name_or_path BERT --train_file claims.tsv --test_file test.tsv
BERT-WWM | (any encoder) | - | DataCollatorForWholeWordMasking | mlm | trainers.PreTrainingTrainer
    | https://github.com/google-research/bert | BERT: whole word masking models
    | how-to/chinese_whole_words | pretrain --objective wwm --model_name_or_path BERT --train_file corpus.txt
Chinese-BERT-wwm | (any encoder) | - | DataCollatorForWholeWordMasking | mlm | trainers.PreTrainingTrainer
    | 1906.08101 | Pre-Training with Whole Word Masking for Chinese BERT
    | how-to/chinese_whole_words | pretrain wwm_zh.yaml --model_name_or_path BERT
BERTje | (BERT) | - | DataCollatorForWholeWordMasking | mlm | trainers.PreTrainingTrainer
    | 1912.09582 | BERTje: A Dutch BERT Model
    | how-to/pretrain | pretrain bertje.yaml --model_name_or_path BERT --train_file dutch.txt
RobBERT | (RoBERTa) | - | DataCollatorForMaskedLanguageModeling | mlm | trainers.PreTrainingTrainer
    | 2001.06286 | RobBERT: a Dutch RoBERTa-based Language Model
    | how-to/pretrain | pretrain robbert.yaml --model_name_or_path ROBERTA --train_file dutch.txt
CamemBERT | (CamemBERT) | - | DataCollatorForWholeWordMasking | mlm | trainers.PreTrainingTrainer
    | 1911.03894 | CamemBERT: a Tasty French Language Model
    | how-to/pretrain | pretrain camembert.yaml --model_name_or_path CAMEMBERT --train_file french.txt
ERNIE 1.0 (Baidu) | (any encoder) | - | DataCollatorForErnieMasking | mlm | trainers.PreTrainingTrainer
    | 1904.09223 | ERNIE: Enhanced Representation through Knowledge Integration
    | how-to/pretrain | pretrain ernie_zh.yaml
ERNIE 2.0 | (ERNIE) | - | DataCollatorForErnieTask DataCollatorForErnieMasking | -
    | trainers.ContinualMultiTaskTrainer
    | 1907.12412 | ERNIE 2.0: A Continual Pre-training Framework for Language Understanding
    | how-to/ernie2 | pretrain ernie2.yaml
ALBERT n-grams | (any encoder) | - | DataCollatorForNgramMasking | mlm | trainers.PreTrainingTrainer
    | 1909.11942 | ALBERT: A Lite BERT for Self-supervised Learning of Language Representations
    | how-to/pretrain | pretrain ngram.yaml
MacBERT | (any encoder) | - | DataCollatorForMacBertMasking | mlm | trainers.PreTrainingTrainer
    | 2004.13922 | Revisiting Pre-Trained Models for Chinese Natural Language Processing
    | how-to/pretrain | pretrain macbert.yaml --similar_words vectors.txt
ALBERT | (ALBERT) | - | DataCollatorForNgramMasking | mlm sop | trainers.SentencePairTrainer
    | 1909.11942 | ALBERT: A Lite BERT for Self-supervised Learning of Language Representations
    | how-to/pretrain | pretrain albert.yaml
StructBERT | (BERT and its kind) | - | DataCollatorForWordOrder | mlm structure | trainers.SentencePairTrainer
    | 1908.04577 | StructBERT: Incorporating Language Structures into Pre-training for Deep Language Understanding
    | how-to/pretrain | pretrain structbert.yaml
ELECTRA | (ELECTRA) | - | DataCollatorForMaskedLanguageModeling | mlm rtd
    | trainers.ReplacedTokenDetectionTrainer
    | 2003.10555 | ELECTRA: Pre-training Text Encoders as Discriminators Rather Than Generators
    | how-to/pretrain | pretrain electra.yaml
XLNet | (XLNet) | - | DataCollatorForPermutationLanguageModeling | mlm | trainers.PreTrainingTrainer
    | 1906.08237 | XLNet: Generalized Autoregressive Pretraining for Language Understanding
    | how-to/pretrain | pretrain xlnet.yaml
InfoWord | (any encoder) | - | DataCollatorForInfoWord | mlm dim | trainers.InfoWordTrainer
    | 1910.08350 | A Mutual Information Maximization Perspective of Language Representation Learning
    | how-to/own_trainer | pretrain --objective infoword --model_name_or_path BERT --train_file corpus.txt
KEPLER | (any encoder) | - | DataCollatorForKnowledgeEmbedding | mlm ke | trainers.KnowledgeEmbeddingTrainer
    | 1911.06136 | KEPLER: A Unified Model for Knowledge Embedding and Pre-trained Language Representation
    | families/kepler_and_wklm | -
KG-BERT | (any encoder) | TripleScorer | - | - | -
    | 1909.03193 | KG-BERT: BERT for Knowledge Graph Completion
    | how-to/triples
    | finetune triples.yaml --model_name_or_path BERT --train_file train.tsv --test_file test.tsv
E-BERT | (any encoder) | EBertEntities | - | - | -
    | 1911.03681 | E-BERT: Efficient-Yet-Effective Entity Embeddings for BERT
    | how-to/triples | -
WKLM | (any encoder) | - | DataCollatorForEntityReplacement | mlm entity | trainers.EntityReplacementTrainer
    | 1912.09637 | Pretrained Encyclopedia: Weakly Supervised Knowledge-Pretrained Language Model
    | families/kepler_and_wklm | -
SentiLARE | (any encoder) | - | DataCollatorForSentimentMasking | mlm pos_tag word_polarity sentence_polarity
    | trainers.AuxiliaryObjectiveTrainer
    | 1911.02493 | SentiLARE: Sentiment-Aware Language Representation Learning with Linguistic Knowledge
    | how-to/lexical_knowledge | pretrain sentilare.yaml --opinion_words positive.txt negative.txt
LIBERT | (any encoder) | - | DataCollatorForLexicalRelations | mlm relation | trainers.LexicalRelationTrainer
    | 1909.02339 | Specializing Unsupervised Pretraining Models for Word-Level Semantic Similarity
    | how-to/lexical_knowledge
    | pretrain libert.yaml --lexical_constraints synonyms.txt hypernyms.txt --word_vectors vectors.txt
SenseBERT | (any encoder) | - | DataCollatorForSupersenseMasking | mlm supersense
    | trainers.AuxiliaryObjectiveTrainer
    | 1908.05646 | SenseBERT: Driving Some Sense into BERT
    | how-to/lexical_knowledge | pretrain sensebert.yaml --supersenses wordnet/dict
BART denoising | (BART and its kind) | - | DataCollatorForTextInfilling | denoising | trainers.PreTrainingTrainer
        | 1910.13461 | BART: Denoising Sequence-to-Sequence Pre-training for Natural Language Generation, Translation,
      and Comprehension
    | how-to/denoising | pretrain bart.yaml
T5 span corruption | (T5 and its kind) | - | DataCollatorForSpanCorruption | denoising | trainers.PreTrainingTrainer
    | 1910.10683 | Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer
    | how-to/denoising | pretrain t5.yaml
Unicoder | (XLM) | - | DataCollatorForUnicoder | mlm recovery paraphrase mixed | trainers.UnicoderTrainer
    | 1909.00964 | Unicoder: A Universal Language Encoder by Pre-training with Multiple Cross-lingual Tasks
    | how-to/cross_lingual | pretrain unicoder.yaml --train_file pairs.jsonl --languages en de
XLM translation language model | (XLM) | -
    | DataCollatorForTranslationLanguageModeling | mlm | trainers.PreTrainingTrainer
    | 1901.07291 | Cross-lingual Language Model Pretraining
    | how-to/denoising | pretrain tlm.yaml --train_file train.en --target_train_file train.de --languages en de
Extractive question answering | (any ...ForQuestionAnswering) | - | DataCollatorForQuestionAnswering | start end | -
    | 1810.04805 | BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding
    | how-to/question_answering
    | finetune question_answering.yaml --model_name_or_path BERT --train_file train.json --test_file dev.json
ELMo | elmo | ElmoForPreTraining
    | DataCollatorForBidirectionalLanguageModeling | forward backward | trainers.PreTrainingTrainer
    | 1802.05365 | Deep contextualized word representations
    | families/elmo | pretrain elmo.yaml
Weighted layers (ELMo's mix) | weighted_layers | WeightedLayersForSequenceClassification | - | - | -
    | 1802.05365 | Deep contextualized word representations
    | families/weighted_layers | -
K-Adapter | k_adapter | KAdapterForRelationClassification KAdapterForDependencyHeads | - | - | -
    | 2002.01808 | K-Adapter: Infusing Knowledge into Pre-Trained Models with Adapters
    | families/k_adapter | convert k_adapter pytorch_model.bin TARGET --encoder ROBERTA
MT-DNN | san | SanForSequenceClassification | - | distillation smoothness | trainers.MultiTaskTrainer
    | 1901.11504 | Multi-Task Deep Neural Networks for Natural Language Understanding
    | how-to/several_tasks | multitask my.yaml
ULMFiT's fine-tuning | (any model with layers) | - | - | - | trainers.GradualUnfreezingCallback
    | 1801.06146 | Universal Language Model Fine-tuning for Text Classification
    | how-to/schedules | -
SiATL | (any causal model with a head) | -
    | - | lm | trainers.AuxiliaryLanguageModelCallback trainers.SequentialUnfreezingCallback
    | 1902.10547 | An Embarrassingly Simple Approach for Transfer Learning from Pretrained Language Models
    | how-to/schedules | -
Houlsby adapters | (any encoder, BART's and T5's kind) | HoulsbyConfig | - | - | adapters.AdapterTrainer
    | 1902.00751 | Parameter-Efficient Transfer Learning for NLP
    | how-to/adapters | adapt adapt_classification.yaml --model_name_or_path BERT --train_file a.tsv --test_file b.tsv
Pfeiffer adapters | (any encoder, BART's and T5's kind) | PfeifferConfig | - | - | adapters.AdapterTrainer
    | 2005.00247 | AdapterFusion: Non-Destructive Task Composition for Transfer Learning
    | how-to/adapters | adapt adapt_classification.yaml --model_name_or_path BERT --train_file a.tsv --test_file b.tsv
DistilBERT | (any encoder) | - | - | soft_label label cosine | distillation.DistillationTrainer
    | 1910.01108 | DistilBERT, a distilled version of BERT: smaller, faster, cheaper and lighter
    | how-to/distil
    | distill distill_distilbert.yaml --teacher_name_or_path TEACHER --train_file a.tsv --test_file b.tsv
TinyBERT | (any encoder) | - | - | attention hidden soft_label | distillation.DistillationTrainer
    | 1909.10351 | TinyBERT: Distilling BERT for Natural Language Understanding
    | how-to/distil
    | distill distill_tinybert.yaml --teacher_name_or_path TEACHER --train_file a.tsv --test_file b.tsv
BERT-PKD | (any encoder) | - | - | label soft_label patience | distillation.DistillationTrainer
    | 1908.09355 | Patient Knowledge Distillation for BERT Model Compression
    | how-to/distil
    | distill distill_pkd.yaml --teacher_name_or_path TEACHER --train_file a.tsv --test_file b.tsv
MobileBERT | (any encoder) | -
    | - | feature_map attention hidden_mean hidden_variance | distillation.DistillationTrainer
    | 2004.02984 | MobileBERT: a Compact Task-Agnostic BERT for Resource-Limited Devices
    | how-to/distil
    | distill distill_mobilebert.yaml --teacher_name_or_path IB_BERT --train_file corpus.txt --test_file held.txt
MiniLM | (any encoder) | - | - | attention value_relation | distillation.DistillationTrainer
    | 2002.10957 | MiniLM: Deep Self-Attention Distillation for Task-Agnostic Compression of Pre-Trained Transformers
    | how-to/distil
    | distill distill_minilm.yaml --teacher_name_or_path TEACHER --train_file a.tsv --test_file b.tsv
MiniLM v2 | (any encoder) | - | - | relation | distillation.DistillationTrainer
    | 2012.15828 | MiniLMv2: Multi-Head Self-Attention Relation Distillation for Compressing Pretrained Transformers
    | how-to/distil
    | distill distill_minilm_v2.yaml --teacher_name_or_path TEACHER --train_file a.tsv --test_file b.tsv
Distilled BiLSTM | distilled_bilstm | DistilledBiLstmForSequenceClassification
    | - | label soft_label | distillation.DistillationTrainer
    | 1903.12136 | Distilling Task-Specific Knowledge from BERT into Simple Neural Networks
    | families/distilled_bilstm
    | distill distill_bilstm.yaml --teacher_name_or_path TEACHER --train_file a.tsv --test_file b.tsv
word2vec, GloVe, fastText | static_embedding | StaticEmbeddingForSequenceClassification StaticEmbeddingModel
    | - | - | -
    | 1301.3781 | Efficient Estimation of Word Representations in Vector Space
    | how-to/word_vectors | convert static_embedding vectors.txt TARGET
CoVe | cove | CoveModel CoveForPreTraining | - | - | -
    | 1708.00107 | Learned in Translation: Contextualized Word Vectors
    | families/ancestors | convert cove wmtlstm.pth TARGET --word_vectors glove.txt
Context2Vec | context2vec | Context2VecForMaskedLM | - | - | -
    | https://aclanthology.org/K16-1006 | context2vec: Learning Generic Context Embedding with Bidirectional LSTM
    | families/ancestors | convert context2vec MODEL.params TARGET
Skip-thought | skip_thought | SkipThoughtForPreTraining SkipThoughtModel | - | - | -
    | 1506.06726 | Skip-Thought Vectors
    | families/ancestors | convert skip_thought FOLDER TARGET
Mixed-vocabulary training | (a pair of masked language models) | distillation.DualTrainModel
    | DataCollatorForMixedVocabulary | projection label teacher_label | distillation.DistillationTrainer
    | 1909.11687 | Extreme Language Model Compression with Optimal Subwords and Shared Projections
    | how-to/distil | -
MT-DNN ensembles | (any classifier) | - | - | label soft_label | distillation.DistillationTrainer
        | 1904.09482 | Improving Multi-Task Deep Neural Networks via Knowledge Distillation for Natural Language
      Understanding
    | how-to/distil
    | distill distill_ensemble.yaml --teacher_name_or_path TEACHER --train_file a.tsv --test_file b.tsv
BERT-of-Theseus | (any encoder) | - | - | - | distillation.TheseusTrainer
    | 2002.02925 | BERT-of-Theseus: Compressing BERT by Progressive Module Replacing
    | how-to/distil
    | distill distill_theseus.yaml --teacher_name_or_path TEACHER --train_file a.tsv --test_file b.tsv
LayerDrop | (any encoder) | - | - | - | compression.LayerDropCallback
    | 1909.11556 | Reducing Transformer Depth on Demand with Structured Dropout
    | how-to/compress
    | finetune --task classification --layer_drop 0.2 --model_name_or_path BERT --train_file a.tsv --test_file b.tsv
Compressing BERT | (any model) | - | - | - | compression.PruningCallback
    | 2002.08307 | Compressing BERT: Studying the Effects of Weight Pruning on Transfer Learning
    | how-to/compress
    | compress compress.yaml --methods prune --model_name_or_path BERT --train_file a.tsv --test_file b.tsv
Q8BERT | (any model) | - | - | - | -
    | 1910.06188 | Q8BERT: Quantized 8Bit BERT
    | how-to/compress
    | compress compress.yaml --methods quantise --model_name_or_path BERT --train_file a.tsv --test_file b.tsv
Parameter sharing | (BERT-like families) | - | - | - | -
    | 1909.11942 | ALBERT: A Lite BERT for Self-supervised Learning of Language Representations
    | how-to/compress
    | pretrain --config_overrides num_hidden_groups=1,embedding_size=128 --tokenizer_name BERT --train_file a.txt
Q-BERT | (any encoder) | - | - | - | -
    | 1909.05840 | Q-BERT: Hessian Based Ultra Low Precision Quantization of BERT
    | how-to/compress | -
"""


def _system(row: str) -> System:
    name, family, models, collators, terms, trainers, link, paper, page, command = row.split(" | ")

    def names(cell: str, package: str) -> tuple[str, ...]:
        return tuple(f"{package}{one}" for one in cell.split() if one != "-")

    return System(
        name,
        None if family.startswith("(") else family,
        names(models, "hf_ptm_ext."),
        names(collators, "hf_ptm_ext.collators."),
        names(terms, ""),
        names(trainers, "hf_ptm_ext."),
        paper,
        link if "/" in link else f"https://arxiv.org/abs/{link}",
        page,
        "" if command == "-" else f"hf-ptm-ext {command}",
        trains=family.strip("()") if family.startswith("(") else System.trains,
    )


SYSTEMS = tuple(_system(row) for row in re.sub(r"\n +", " ", _TABLE).strip().splitlines())

HEADER = ("system", "family, or what it trains", "loss terms", "evidence", "paper")


def systems_as_dicts() -> list[dict[str, Any]]:
    """The table as plain data."""
    return [asdict(system) for system in SYSTEMS]


def table_rows() -> list[tuple[str, ...]]:
    """The narrow table as text cells in the order of `HEADER`."""
    return [
        (one.name, one.family or one.trains, ", ".join(one.objectives), evidence_of(one.name), one.link)
        for one in SYSTEMS
    ]


def facts_of(system: System) -> dict[str, str]:
    """What one system is made of: class names are those of `hf_ptm_ext`."""

    def listed(names: Sequence[str]) -> str:
        return ", ".join(name.removeprefix("hf_ptm_ext.") for name in names)

    facts = {
        "family": system.family or f"none: trains {system.trains}",
        "models": listed(system.models),
        "collators": listed(system.collators),
        "loss terms": ", ".join(system.objectives),
        "trainers": listed(system.trainers) or "transformers' Trainer",
        "paper": f"{system.paper}, {system.link}",
        "page": f"docs/{system.page}.md",
        "command": system.command,
        "evidence": evidence_of(system.name),
        "status": system.status,
    }
    return {name: value for name, value in facts.items() if value}


def find_system(name: str) -> System:
    """A system by its name or family, whatever its case, or by its recipe of `pretrain`."""
    wanted = name.lower()
    for system in SYSTEMS:
        if wanted in (system.name.lower(), system.family):
            return system
    for system in SYSTEMS:
        if f"pretrain {wanted}.yaml" in system.command or f"--objective {wanted} " in system.command:
            return system
    known = {one for system in SYSTEMS for one in (system.name, system.family) if one}
    raise ValueError(f"there is no system {name!r}.{did_you_mean(name, known)} See `hf-ptm-ext systems`.")


def markdown_page() -> str:
    """The page of the documentation: the table, and a section a system."""
    head = ("system", "family, or what it trains", "loss terms", "evidence", "page")
    rows = [head, tuple("---" for _ in head)]
    for system in SYSTEMS:
        terms = ", ".join(system.objectives)
        cells = (system.name, system.family or system.trains, terms, evidence_of(system.name))
        rows.append((*cells, f"[{system.page.rpartition('/')[2]}]({system.page}.md)"))
    parts = ["# Papers", "\n".join(f"| {' | '.join(row)} |" for row in rows)]
    for system in SYSTEMS:
        facts = facts_of(system)
        command = facts.pop("command", "")
        lines = [f"## {system.name}", f"[{system.paper}]({system.link})."]
        lines.append(
            "\n".join(f"* {name}: {facts[name]}" for name in ("models", "collators", "trainers") if name in facts)
        )
        if command:
            lines.append(f"```bash\n{command}\n```")
        parts += [line for line in lines if line]
    return "\n\n".join(parts) + "\n"
