import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from domainbert.corpus.documents import Cleaned, clean

ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=[]))


@given(ANY_TEXT)
def test_a_cleaned_text_is_clean(text: str) -> None:
    cleaned = clean(text).text
    assert clean(cleaned) == Cleaned(cleaned, line_breaks=False, control_characters=0, normalized=False)
    assert unicodedata.is_normalized("NFC", cleaned)
    assert all(character in "\n\t" or unicodedata.category(character) not in ("Cc", "Cs") for character in cleaned)
    cleaned.encode()


@given(ANY_TEXT)
def test_no_two_words_are_joined(text: str) -> None:
    words = f"left{text}right end".split()
    visible = [word for word in words if any(unicodedata.category(character) not in ("Cc", "Cs") for character in word)]
    assert len(clean(f"left{text}right\x0cend").text.split()) >= len(visible)


def test_what_is_changed_and_counted() -> None:
    assert clean("  cafe\u0301 ") == Cleaned("café", line_breaks=False, control_characters=0, normalized=True)
    assert clean("a\r\nb\rc\x0cd\u2028e") == Cleaned("a\nb\nc\nd\ne", True, 0, False)
    assert clean("\ufeffa\x00\x07b\ud800") == Cleaned("ab", False, 4, False)
    assert clean("2010\x962015 is\x94") == Cleaned("2010 2015 is", False, 2, False)
    assert clean("tab\tand\nline, ﬁ and ½ stay") == Cleaned("tab\tand\nline, ﬁ and ½ stay", False, 0, False)
