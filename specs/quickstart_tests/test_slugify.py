from slugify import slugify


def test_lower_case():
    assert slugify("Hello") == "hello"


def test_spaces():
    assert slugify("Hello Big World") == "hello-big-world"


def test_other_characters():
    assert slugify("C3PO") == "c3po"
