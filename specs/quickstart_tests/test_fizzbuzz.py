from fizzbuzz import fizzbuzz


def test_fizz():
    assert fizzbuzz(9) == "Fizz"


def test_buzz():
    assert fizzbuzz(10) == "Buzz"


def test_both():
    assert fizzbuzz(30) == "FizzBuzz"


def test_neither():
    assert fizzbuzz(7) == "7"
