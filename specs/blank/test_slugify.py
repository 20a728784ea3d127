from slugify import slugify


def test_words():
    assert slugify("Hello, World!") == "hello-world"


def test_edges():
    assert slugify("  -- a  b -- ") == "a-b"


def test_nothing():
    assert slugify("!?") == ""
