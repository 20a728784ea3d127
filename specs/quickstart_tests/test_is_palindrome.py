from is_palindrome import is_palindrome


def test_palindrome():
    assert is_palindrome("level") is True


def test_other_word():
    assert is_palindrome("house") is False


def test_upper_case():
    assert is_palindrome("Anna") is True
