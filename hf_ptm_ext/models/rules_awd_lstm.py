"""fastai's rules of text (fastai/fastai, versions 2 and 1): what a text becomes before and behind its tokenizer.

Marks stand in front of what they say something about: `xxmaj` a capital, `xxup` capitals, `xxrep 5 !` a character five
times, `xxwrep 3 so` a word three times. Version 2 rewrites the text; version 1 marks capitals in the list of tokens.
"""

import html
import re
from collections.abc import Callable, Iterable

UNK, PAD, BOS, EOS, FLD = "xxunk", "xxpad", "xxbos", "xxeos", "xxfld"
REP, WREP, UP, MAJ, FAKE = "xxrep", "xxwrep", "xxup", "xxmaj", "xxfake"
# Version -> special tokens in the order of their ids.
SPECIALS = {2: (UNK, PAD, BOS, EOS, FLD, REP, WREP, UP, MAJ), 1: (UNK, PAD, BOS, EOS, FLD, MAJ, UP, REP, WREP)}
# Remains of markup and of WikiText's tokenizer -> what they stand for, in this order.
_REMAINS = (
    *(("#39;", "'"), ("amp;", "&"), ("#146;", "'"), ("nbsp;", " "), ("#36;", "$"), ("\\n", "\n"), ("quot;", "'")),
    *(("<br />", "\n"), ('\\"', '"'), ("<unk>", UNK), (" @.@ ", "."), (" @-@ ", "-")),
)
_OF_VERSION = {2: (("...", " …"),), 1: ((" @,@ ", ","), ("\\", " \\ "))}
_REPEATED = {2: re.compile(r"(\S)(\1{2,})"), 1: re.compile(r"(\S)(\1{3,})")}
_REPEATED_WORDS = re.compile(r"(?:\s|^)(\w+)\s+((?:\1\s+)+)\1(\s|\W|$)")
_REPEATED_WORDS_V1 = re.compile(r"(\b\w+\W+)(\1{3,})")
_SPACED = {2: re.compile(r"([/#\\])"), 1: re.compile(r"([/#\n])")}
_CAPITALS = re.compile(r"(\s|^)([A-Z]+[^a-z\s]*)(?=\s|$)")
_CAPITAL = re.compile(r"(\s|^)([A-Z][^A-Z\s]*)(?=\s|$)")


def fix_html(text: str, version: int = 2) -> str:
    """Replace remains of markup."""
    for old, new in (*_REMAINS, *_OF_VERSION[version]):
        text = text.replace(old, new)
    return html.unescape(text) if version == 2 else re.sub("  +", " ", html.unescape(text))


def replace_rep(text: str, version: int = 2) -> str:
    """Write repeated characters as mark, number and character: from three on, in version 1 from four."""
    return _REPEATED[version].sub(lambda found: f" {REP} {len(found[2]) + 1} {found[1]} ", text)


def replace_wrep(text: str, version: int = 2) -> str:
    """Write repeated words as mark, number and word: from three on, in version 1 from four."""
    if version == 1:
        return _REPEATED_WORDS_V1.sub(lambda m: f" {WREP} {len(m[2].split()) + 1} {m[1]} ", text)
    return _REPEATED_WORDS.sub(lambda m: f" {WREP} {len(m[2].split()) + 2} {m[1]} {m[3]}", text)


def spec_add_spaces(text: str, version: int = 2) -> str:
    """Put blanks around slashes and hashes; around backslashes too, in version 1 around line breaks."""
    return _SPACED[version].sub(r" \1 ", text)


def rm_useless_spaces(text: str) -> str:
    """Make several blanks one."""
    return re.sub(" {2,}", " ", text)


def replace_all_caps(text: str) -> str:
    """Mark and lower words of capitals (A to Z)."""
    return _CAPITALS.sub(lambda m: f"{m[1]}{f'{UP} ' * (len(m[2]) > 1)}{m[2].lower()}", text)


def replace_maj(text: str) -> str:
    """Mark and lower words that begin with a capital (A to Z)."""
    return _CAPITAL.sub(lambda m: f"{m[1]}{f'{MAJ} ' * (len(m[2]) > 1)}{m[2].lower()}", text)


def lowercase(text: str) -> str:
    """Lower what is left, and put the beginning in front."""
    return f"{BOS} {text.lower().strip()}"


def apply_rules(text: str) -> str:
    """A text as version 2's tokenizer reads it, with `xxbos` in front.

    >>> apply_rules("This movie was GREAT!!!!!")
    'xxbos xxmaj this movie was xxup great xxrep 5 !'
    """
    for rule in (fix_html, replace_rep, replace_wrep, spec_add_spaces, rm_useless_spaces):
        text = rule(text)
    return lowercase(replace_maj(replace_all_caps(text)))


def marked_capitals(tokens: Iterable[str]) -> list[str]:
    """Tokens as version 1 leaves them: lower case, with marks of capitals in front."""
    marked: list[str] = []
    for token in tokens:
        if token.isupper() and len(token) > 1:
            marked += [UP, token.lower()]
        elif token:
            starts = len(token) > 1 and token[0].isupper() and token[1:].islower()
            marked += [*[MAJ] * starts, token.lower()]
    return marked


def tokens_of_version_1(text: str, tokenize: Callable[[str], Iterable[str]]) -> list[str]:
    """The tokens of version 1, without `xxbos`.

    >>> tokens_of_version_1("A GREAT Naïve film", str.split)
    ['a', 'xxup', 'great', 'xxmaj', 'naïve', 'film']
    """
    for rule in (fix_html, replace_rep, replace_wrep, spec_add_spaces):
        text = rule(text, 1)
    return marked_capitals(tokenize(rm_useless_spaces(text)))
