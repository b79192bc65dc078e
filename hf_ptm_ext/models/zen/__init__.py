"""ZEN: a Chinese BERT beside an encoder of the n-grams that a lexicon finds in the text."""
