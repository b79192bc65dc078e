#!/usr/bin/env bash
# From nothing to a SpanBERT that loads anywhere: train a tokenizer and a small model on the embedded English corpus,
# verify the saved folder in a process without the package, and fill a masked span there.
# Usage: bash scripts/quickstart.sh [OUTPUT_FOLDER] [further arguments of hf-ptm-ext pretrain]
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/environment.sh viz
output="${1:-outputs/quickstart}"
shift || true
hf-ptm-ext pretrain quickstart.yaml --output_dir "$output" --overwrite true "$@"
hf-ptm-ext verify "$output"
python scripts/fill_span.py "$output" "in this paper , we propose a [MASK] [MASK] for image classification ."
