from sum_digits import sum_digits


def test_one_digit():
    assert sum_digits(7) == 7


def test_many_digits():
    assert sum_digits(12345) == 15


def test_zeros():
    assert sum_digits(0) == 0
    assert sum_digits(9009) == 18
