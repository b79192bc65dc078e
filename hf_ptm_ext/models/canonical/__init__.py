"""The canonical encoder block and heads: the one source of every BERT-like family's synced copies.

`scripts/sync_copies.py` writes `encoder_<family>.py` and `heads_<family>.py` from the two files here; change these,
never a copy.
"""
