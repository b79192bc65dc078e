"""NEZHA: a Chinese BERT with functional relative positions in the scores and in the values."""
