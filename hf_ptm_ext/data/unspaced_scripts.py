"""Which characters belong to scripts that are written without spaces between words.

Chinese, Japanese, Thai, Lao, Burmese and Khmer are; Korean is not: Hangul has spaces.
"""

# As (first, last) code points.
UNSPACED = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Burmese
    (0x1780, 0x17FF),  # Khmer
    (0x2E80, 0x2FDF),  # Han radicals
    (0x3005, 0x3007),  # Han iteration and closing marks, zero
    (0x3021, 0x3035),  # Hangzhou numerals, kana repeat marks
    (0x3040, 0x312F),  # Hiragana, Katakana, Bopomofo
    (0x31A0, 0x31BF),  # Bopomofo, extended
    (0x31F0, 0x31FF),  # Katakana, extended
    (0x3400, 0x4DBF),  # Han extension A
    (0x4E00, 0x9FFF),  # Han
    (0xF900, 0xFAFF),  # Han compatibility
    (0xFF66, 0xFF9F),  # Katakana, half width
    (0x1B000, 0x1B16F),  # Kana, supplement
    (0x20000, 0x323AF),  # Han extensions B to H
)
_FIRST = chr(UNSPACED[0][0])


def is_unspaced(character: str) -> bool:
    """Whether a character belongs to a script written without spaces.

    Args:
        character: one character, or an empty string.

    Returns:
        True for Chinese, Japanese, Thai, Lao, Burmese and Khmer characters.

    Example:
        >>> [is_unspaced(character) for character in ("汉", "の", "ก", "한", "a", "")]
        [True, True, True, False, False, False]
    """
    return character >= _FIRST and any(first <= ord(character) <= last for first, last in UNSPACED)


def is_spaced_letter(character: str) -> bool:
    """Whether a character is a letter or digit of a script that puts spaces between words.

    Args:
        character: one character, or an empty string.

    Returns:
        True for Latin, Cyrillic, Korean, ... letters and digits, false for punctuation and for `is_unspaced`.

    Example:
        >>> [is_spaced_letter(character) for character in ("a", "한", "7", "汉", ",")]
        [True, True, True, False, False]
    """
    return character.isalnum() and not is_unspaced(character)


__all__ = ["UNSPACED", "is_spaced_letter", "is_unspaced"]
