"""Static word vectors: every file that people have of them, training, and measures.

Files are read without the libraries that wrote them (`WordVectors.load`); `train_word_vectors` trains word2vec's and
fastText's by gensim, and GloVe's here.
"""

from .files import FORMATS
from .glove import GloVe, glove_cooccurrences
from .measures import AnalogyScores, SimilarityScore
from .subwords import Subwords
from .table import WordVectors, load_word_vectors
from .training import ALGORITHMS, train_word_vectors

__all__ = [
    "ALGORITHMS",
    "FORMATS",
    "AnalogyScores",
    "GloVe",
    "SimilarityScore",
    "Subwords",
    "WordVectors",
    "glove_cooccurrences",
    "load_word_vectors",
    "train_word_vectors",
]
