"""Write a small graph of English names (Paris, is a, national capital) for K-BERT, from WordNet and CoDEx.

python scripts/make_name_graph.py names.spo --wordnet RELATIONS SENSES GLOSSES --codex ENTITY_TYPES TYPE_LABELS

WN18RR's relations and glosses are in https://github.com/yao8839836/kg-bert (WordNet licence), CoDEx in
https://github.com/tsafavi/codex (MIT); senses are lines of lemma, part of speech and synsets.
"""

import argparse

from hf_ptm_ext.data.name_graphs import wikidata_names, wordnet_names, write_triples


def main() -> None:
    """Read the files that are named and write one graph."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", help="the triple file")
    parser.add_argument("--wordnet", nargs=3, metavar=("RELATIONS", "SENSES", "GLOSSES"))
    parser.add_argument("--codex", nargs=2, metavar=("ENTITY_TYPES", "TYPE_LABELS"))
    parser.add_argument("--depth", type=int, default=2, help="classes of a name, upwards (WordNet)")
    arguments = parser.parse_args()
    if not arguments.wordnet and not arguments.codex:
        parser.error("name --wordnet files, --codex files, or both")
    triples = []
    if arguments.wordnet:
        triples += wordnet_names(*arguments.wordnet, depth=arguments.depth)
    if arguments.codex:
        triples += wikidata_names(*arguments.codex)
    print(f"{write_triples(arguments.output, triples)} triples in {arguments.output}")


if __name__ == "__main__":
    main()
