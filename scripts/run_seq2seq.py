"""`hf-ptm-ext finetune-seq2seq` as a script, for `accelerate launch` and for copying.

python scripts/run_seq2seq.py unilm_summarization.yaml --train_file train.jsonl --test_file test.jsonl
accelerate launch --num_processes 2 scripts/run_seq2seq.py unilm_summarization.yaml --train_file train.jsonl
python scripts/run_seq2seq.py --model_name_or_path facebook/bart-base --train_file train.csv --test_file test.csv
"""

import sys

from hf_ptm_ext.cli import main

if __name__ == "__main__":
    sys.exit(main(["finetune-seq2seq", *sys.argv[1:]]))
