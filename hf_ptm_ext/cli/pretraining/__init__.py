"""Objectives of `hf-ptm-ext pretrain`: what each reads, trains and hides."""

from .base import Objective
from .bilm import BidirectionalLM
from .continual import Continual
from .cross_lingual import Unicoder
from .denoising import Mass, SpanCorruption, TextInfilling, TranslationMasking
from .infoword import InfoWord
from .lexical import LexicalRelations, SentimentMasking, SupersenseMasking
from .masking import (
    EntityDenoising,
    NgramMasking,
    SimilarWords,
    SpanMasking,
    TokenMasking,
    UniLMMasking,
    WholeWordMasking,
)
from .next_tokens import CausalLM
from .orders import Permutations, WordOrder
from .replaced_tokens import ReplacedTokens
from .units import UnitMasking

OBJECTIVES: dict[str, type[Objective]] = {
    cls.name: cls
    for cls in (
        *(SpanMasking, TokenMasking, WholeWordMasking, NgramMasking, SimilarWords, UniLMMasking, EntityDenoising),
        *(ReplacedTokens, InfoWord, Permutations, UnitMasking, WordOrder),
        *(SentimentMasking, SupersenseMasking, LexicalRelations),
        *(Continual, CausalLM),
        *(Mass, TextInfilling, SpanCorruption, TranslationMasking, Unicoder, BidirectionalLM),
    )
}
