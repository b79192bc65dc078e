"""`hf-ptm-ext finetune --task question-answering` as a script, for `accelerate launch` and for copying.

python scripts/run_question_answering.py --model_name_or_path MODEL --train_file A --test_file B
"""

import sys

from hf_ptm_ext.cli import main

if __name__ == "__main__":
    sys.exit(main(["finetune", *sys.argv[1:], "--task", "question-answering"]))
