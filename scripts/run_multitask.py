"""`hf-ptm-ext multitask` as a script, for `accelerate launch` and for copying.

python scripts/run_multitask.py multitask.yaml --model_name_or_path MODEL --tasks.topic.train_file A ...
"""

import sys

from hf_ptm_ext.cli import main

if __name__ == "__main__":
    sys.exit(main(["multitask", *sys.argv[1:]]))
