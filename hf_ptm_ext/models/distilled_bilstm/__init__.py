"""Distilled BiLSTM: a one-layer bidirectional LSTM over word vectors that learns from a fine-tuned encoder."""
