"""Ids of a word's characters: those of allenai/bilm-tf + 1, since 0 is padding. Bytes are 1 to 256, then marks."""

BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, BEHIND_WORD = range(257, 262)
CHARACTERS = 262
