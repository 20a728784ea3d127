from count_vowels import count_vowels


def test_none():
    assert count_vowels("rhythm") == 0


def test_lower_case():
    assert count_vowels("banana") == 3


def test_upper_case():
    assert count_vowels("AEIOU xyz") == 5


def test_empty():
    assert count_vowels("") == 0
