from truncate import truncate


def test_short():
    assert truncate("abc", 5) == "abc"


def test_exact():
    assert truncate("abcde", 5) == "abcde"


def test_long():
    assert truncate("abcdefgh", 5) == "abcde..."
