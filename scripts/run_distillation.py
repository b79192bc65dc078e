"""`hf-ptm-ext distill` as a script, for `accelerate launch` and for copying.

python scripts/run_distillation.py distill_pkd.yaml --teacher_name_or_path TEACHER --train_file A --test_file B
"""

import sys

from hf_ptm_ext.cli import main

if __name__ == "__main__":
    sys.exit(main(["distill", *sys.argv[1:]]))
