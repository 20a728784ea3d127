from count_words import count_words


def test_words():
    assert count_words("to be or not to be") == 6


def test_other_white_space():
    assert count_words("  two\twords\n") == 2


def test_nothing():
    assert count_words("") == 0
