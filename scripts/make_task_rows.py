"""Write rows for the task types that have no data set of their own.

python scripts/make_task_rows.py extraction SCITLDR.jsonl rows.jsonl           copy the sentence that sums up a text
python scripts/make_task_rows.py pair-tagging FEWREL.jsonl rows.jsonl --relations relations.json
                                                     given a relation, tag its two arguments in a sentence

SciTLDR is in https://github.com/allenai/scitldr (Apache-2.0), FewRel in https://github.com/thunlp/FewRel (MIT);
files of JSON lines may be compressed (.gz). RELATIONS maps a relation to its name, or to {"name": ...}.
"""

import argparse
import json
from pathlib import Path

from hf_ptm_ext.data.rows import read_rows
from hf_ptm_ext.data.task_shapes import extraction_rows, relation_tagging_rows


def main() -> None:
    """Read the file that is named and write the other one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("extraction", "pair-tagging"))
    parser.add_argument("source", type=Path, help="JSON lines")
    parser.add_argument("target", type=Path, help="JSON lines, written anew")
    parser.add_argument("--relations", type=Path, help="names of relations, a JSON object")
    arguments = parser.parse_args()
    records = [row for _, row in read_rows([(arguments.source, "jsonl")])]
    if arguments.kind == "extraction":
        rows = list(extraction_rows(records))
    else:
        named = json.loads(arguments.relations.read_text(encoding="utf-8")) if arguments.relations else {}
        names = {key: value["name"] if isinstance(value, dict) else value for key, value in named.items()}
        rows = list(relation_tagging_rows(records, names))
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    arguments.target.write_text(text, encoding="utf-8")
    print(f"{len(rows)} rows in {arguments.target}")


if __name__ == "__main__":
    main()
