"""Fill masked spans with a saved SpanBERT, in a process where hf_ptm_ext cannot be imported.

    python scripts/fill_span.py FOLDER "in this paper , we [MASK] [MASK] [MASK] method ."

This is all that a user of a published checkpoint needs: transformers and `trust_remote_code=True`.
"""

import sys

sys.modules["hf_ptm_ext"] = None  # any import of the package fails from here on

from transformers import AutoModelForPreTraining, AutoTokenizer  # noqa: E402


def main(folder: str, text: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    model = AutoModelForPreTraining.from_pretrained(folder, trust_remote_code=True)
    print(f"\n{type(model).__module__}.{type(model).__name__}\n{text}")
    for span in model.fill_span(text, tokenizer, top_k=3):
        print(f"tokens {span['start']} to {span['end'] - 1}: {span['text']}")
        for candidates in span["candidates"]:
            print("   " + ", ".join(f"{token} {probability:.2f}" for token, probability in candidates))


if __name__ == "__main__":
    main(*sys.argv[1:3])
