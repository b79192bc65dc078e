"""`hf-ptm-ext finetune-typing` as a script, for `accelerate launch` and for copying.

python scripts/run_entity_typing.py typing.yaml --model_name_or_path MODEL --train_file TRAIN --test_file TEST
"""

import sys

from hf_ptm_ext.cli import main

if __name__ == "__main__":
    sys.exit(main(["finetune-typing", *sys.argv[1:]]))
