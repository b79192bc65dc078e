"""`hf-ptm-ext finetune --task tagging` as a script, for `accelerate launch` and for copying.

python scripts/run_ner.py --model_name_or_path MODEL --train_file A --test_file B
"""

import sys

from hf_ptm_ext.cli import main

if __name__ == "__main__":
    sys.exit(main(["finetune", *sys.argv[1:], "--task", "tagging"]))
