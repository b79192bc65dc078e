"""The canonical encoder block, heads, inputs and loading: the one source of every BERT-like family's synced copies.

`scripts/sync_copies.py` writes `encoder_<family>.py`, `heads_<family>.py`, `inputs_<family>.py` (of families without
masks of their own) and `loading_<family>.py` from the files here; change these, never a copy.
"""
