"""MASS: an encoder-decoder that is pre-trained by predicting the masked fragment of a sentence."""
