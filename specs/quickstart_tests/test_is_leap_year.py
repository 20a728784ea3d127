from is_leap_year import is_leap_year


def test_ordinary():
    assert is_leap_year(2023) is False


def test_fourth():
    assert is_leap_year(2024) is True


def test_century():
    assert is_leap_year(1900) is False


def test_fourth_century():
    assert is_leap_year(2000) is True
