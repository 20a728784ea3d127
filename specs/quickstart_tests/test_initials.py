from initials import initials


def test_two_words():
    assert initials("Ada Lovelace") == "AL"


def test_lower_case():
    assert initials("grace brewster hopper") == "GBH"
