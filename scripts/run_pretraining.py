"""`hf-ptm-ext pretrain` as a script, for `accelerate launch` and for copying.

python scripts/run_pretraining.py quickstart.yaml
accelerate launch --num_processes 2 scripts/run_pretraining.py quickstart.yaml --output_dir outputs/two_processes
python scripts/run_pretraining.py --model_name_or_path google-bert/bert-base-cased --train_file "data/*.txt.gz"
"""

import sys

from hf_ptm_ext.cli import main

if __name__ == "__main__":
    sys.exit(main(["pretrain", *sys.argv[1:]]))
