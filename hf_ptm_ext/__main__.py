"""`python -m hf_ptm_ext`, the same as `hf-ptm-ext`."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
