from reverse_words import reverse_words


def test_words():
    assert reverse_words("one two three") == "three two one"


def test_spaces():
    assert reverse_words("  a   b ") == "b a"
