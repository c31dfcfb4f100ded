"""Ranges of characters (first, last) of scripts without spaces between words."""

CHINESE_AND_JAPANESE = [
    ("\u3005", "\u3007"),  # iteration marks
    ("\u3040", "\u30ff"),  # Japanese syllables
    ("\u31f0", "\u31ff"),
    ("\u3400", "\u4dbf"),  # Chinese characters
    ("\u4e00", "\u9fff"),
    ("\uf900", "\ufaff"),
    ("\U00020000", "\U0003ffff"),
]

WITHOUT_SPACES = [
    ("\u0e00", "\u0eff"),  # Thai, Lao
    ("\u1000", "\u109f"),  # Burmese
    ("\u1780", "\u17ff"),  # Khmer
    *CHINESE_AND_JAPANESE,
]
