from word_count import word_count


def test_counts():
    assert word_count("a b a") == {"a": 2, "b": 1}


def test_lower_case():
    assert word_count("Red red RED blue") == {"red": 3, "blue": 1}


def test_empty():
    assert word_count("") == {}
