"""Score a bag of n-grams: what a classifier without any pre-training reaches on the same rows.

python scripts/linear_baseline.py --train_file train.tsv --test_file test.tsv --max_train_rows 4000

TF-IDF of words and of 1 to 4 characters (within words only if `--language` is not zh), logistic regression of
scikit-learn (extra `metrics`). Columns and forms of files as in `hf-ptm-ext finetune --task classification`.
"""

import argparse
from itertools import islice

from hf_ptm_ext.data.labelled_text import TextColumns, read_labelled_texts
from hf_ptm_ext.metrics import ngram_classifier


def main() -> None:
    """Fit on the one file, score on the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train_file", required=True)
    parser.add_argument("--test_file", required=True)
    parser.add_argument("--text_column", default="text")
    parser.add_argument("--label_column", default="label")
    parser.add_argument("--language", default="en")
    parser.add_argument("--max_train_rows", type=int)
    parser.add_argument("--strength", type=float, default=10.0, help="inverse of the L2 penalty (C)")
    arguments = parser.parse_args()
    columns = TextColumns(arguments.text_column, label=arguments.label_column)
    train = list(islice(read_labelled_texts(arguments.train_file, columns), arguments.max_train_rows))
    test = list(read_labelled_texts(arguments.test_file, columns))
    model = ngram_classifier(
        [row.text for row in train], [str(row.label) for row in train], arguments.language, arguments.strength
    )
    right = model.score([row.text for row in test], [row.label for row in test])
    seen = {row.text for row in train}
    repeated = sum(row.text in seen for row in test)
    print(f"accuracy {100 * right:.1f} on {len(test)} rows after {len(train)}, among which {repeated} test texts are")


if __name__ == "__main__":
    main()
