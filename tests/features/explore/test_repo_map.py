"""The map of a repository: the order of definitions and files for a task, and its text."""

import random
import tomllib
from pathlib import Path

import pytest

from orch23.features.explore.outlines import outline_of
from orch23.features.explore.repo_map import RepoMap, map_of, terms_of

SHOP = {
    "shop/basket.py": '''"""Baskets of a customer."""


class Basket:
    """What a customer wants to buy."""

    def add(self, article, count=1):
        """Put an article into the basket."""
        self.lines.append((article, count))

    def total(self):
        """Return the price of all articles, with the discount."""
        return reduced(sum(price_of(article) * count for article, count in self.lines))
''',
    "shop/prices.py": '''"""Prices."""


def price_of(article):
    return TABLE[article]


def reduced(amount):
    """Subtract ten percent from amounts over one hundred."""
    if amount > 100:
        return amount * 0.9
    return amount
''',
    "shop/mail.py": '''def send_receipt(customer, basket):
    """Send a receipt by mail; log "cannot reach the mail server" otherwise."""
    if not connect():
        log("cannot reach the mail server")


def connect():
    return open_socket(HOST)
''',
    "tests/test_prices.py": '''def test_ten_percent_less_over_one_hundred():
    """Amounts over one hundred: subtract ten percent."""
    assert reduced(200) == 180
''',
    "web/page.js": "function showBasket(basket) {\n  return basket.total()\n}\n",
    "README.md": "# Shop\nA shop with baskets, articles and prices.\n",
}


def build(task: str, files: dict[str, str]) -> RepoMap:
    return map_of(task, [outline_of(path, text) for path, text in files.items()])


def order(task: str, files: dict[str, str] = SHOP) -> list[str]:
    return [f"{path}#{one.name}" for path, one in build(task, files).places]


def test_behavior_finds_the_function_by_its_docstring_before_its_test() -> None:
    found = order("Amounts over a hundred are not reduced by ten percent.")
    assert found[0] == "shop/prices.py#reduced"
    assert "tests/test_prices.py#test_ten_percent_less_over_one_hundred" in found


def test_an_error_message_finds_the_function_that_has_it() -> None:
    assert order("I get `cannot reach the mail server` each time")[0] == "shop/mail.py#send_receipt"


@pytest.mark.parametrize(
    ("task", "first"),
    [
        ("Something is slow in `connect`", "shop/mail.py#connect"),
        ("Basket.add should count", "shop/basket.py#Basket.add"),
        ("please look at showBasket", "web/page.js#showBasket"),
        ("clean up shop/prices.py", "shop/prices.py#"),
        ("clean up (prices.py).", "shop/prices.py#"),
        ("the price of all articles, with the discount, and `connect`", "shop/mail.py#connect"),
        ("Subtract ten percent from amounts over one hundred, as in web/page.js", "web/page.js#"),
    ],
)
def test_what_the_task_names_is_first(task: str, first: str) -> None:
    assert order(task)[0].startswith(first)


def test_what_a_matching_definition_refers_to_is_before_what_nothing_refers_to() -> None:
    files = {
        "a.py": 'def report():\n    """Print the yearly balance."""\n    return helper_two()\n',
        "b.py": "def helper_one():\n    return 1\n\n\ndef helper_two():\n    return 2\n",
    }
    found = order("The yearly balance is wrong", files)
    assert found.index("b.py#helper_two") < found.index("b.py#helper_one")


def test_what_refers_to_a_matching_definition_is_before_what_refers_to_another_one() -> None:
    files = {
        "a.py": "def first():\n    return apples()\n\n\ndef second():\n    return pears()\n",
        "b.py": 'def apples():\n    return 1\n\n\ndef pears():\n    """Print the yearly balance."""\n',
    }
    found = order("The yearly balance is wrong", files)
    assert found.index("a.py#second") < found.index("a.py#first")


def test_common_words_of_a_sentence_do_not_count() -> None:
    files = {
        "a.py": 'def talk():\n    """It should only do this when there is no other."""\n',
        "b.py": 'def balance():\n    """Print one line for each year."""\n',
        "c.py": 'def year():\n    """Print one line for each month."""\n',
    }
    assert order("It should do this only when there is no balance", files)[0] == "b.py#balance"


def test_a_file_with_several_matching_definitions_is_before_one_with_a_single_one() -> None:
    other = "\n\ndef f():\n    return 1\n"
    pear = 'def pear():\n    """The price of fruit."""\n'
    files = {"a.py": pear + other * 2, "b.py": pear + other + other.replace("f()", "fruit_price()")}
    files["c.py"] = other * 9
    assert [one for one, _ in build("The price of a fruit is wrong", files).places[:2]] == ["b.py", "b.py"]


def test_a_definition_that_everything_uses_is_not_the_best_of_every_task() -> None:
    users = "".join(f'def user_{number}():\n    """Count apples."""\n    return base()\n\n\n' for number in range(60))
    files = {"a.py": users + 'def pears():\n    """Count apples and pears."""\n', "b.py": "def base():\n    return 1\n"}
    assert order("count the apples and pears", files)[0] == "a.py#pears"


def test_the_order_does_not_depend_on_the_order_of_the_files() -> None:
    shuffled = list(SHOP.items())
    random.Random(1).shuffle(shuffled)
    assert build("basket", dict(shuffled)) == build("basket", SHOP)


def test_the_text_has_paths_lines_kinds_and_signatures() -> None:
    text = build("Amounts over a hundred are not reduced by ten percent.", SHOP).render(4_000)
    assert text.startswith("shop/prices.py\n  L8-12 def reduced(amount)\n  L4-5 def price_of(article)\n")
    assert "\nweb/page.js\n  L1-3 function showBasket(basket)\n" in text
    assert "\nREADME.md\n" in text


def test_a_text_of_few_size_is_the_start_of_the_order() -> None:
    found = build("Amounts over a hundred are not reduced by ten percent.", SHOP)
    assert found.render(0) == ""
    assert found.render(44) == "shop/prices.py\n  L8-12 def reduced(amount)\n"
    lengths = [len(found.render(size)) for size in range(480)]
    assert all(length <= size for size, length in enumerate(lengths))
    assert lengths == sorted(lengths)


def test_a_long_map_starts_with_the_best_definitions_of_all_files() -> None:
    many = "".join(f'def price_{number}():\n    """The price of an apple."""\n\n\n' for number in range(300))
    files = {"a.py": many, "b.py": 'def pear():\n    """The price of a pear."""\n'}
    text = build("the price of an apple and of a pear", files).render(32_000)
    assert text.index("b.py") < len(text) // 4
    assert text.count("a.py\n") > 1
    assert text.count("  L") == 301


def test_the_note_says_which_files_have_no_exact_definitions() -> None:
    files = {
        "a.py": "def f(:\n",
        "b.py": "x = 1\n",
        "big.js": "x\n" * 300_000,
        "large.js": "x\n" * 300_000,
        "LOG.md": "x",
    }
    assert build("x", files).note == "syntax error: a.py; too large: big.js and 1 more"
    assert build("x", {"b.py": "x = 1\n"}).note == ""


def test_a_map_of_no_files_and_of_no_task_words() -> None:
    assert build("anything", {}) == RepoMap(())
    assert build("", SHOP).files.keys() == SHOP.keys()


@pytest.mark.parametrize(
    ("name", "terms"),
    [
        ("parse_tables", ("pars", "tabl", "parsetabl")),
        ("HTTPServer", ("http", "serv", "httpserv")),
        ("formatted", ("format",)),
        ("matches", ("match",)),
        ("x2", ("x", "2", "x2")),
        ("größe", ("größ",)),
        ("__", ()),
    ],
)
def test_terms_of_names(name: str, terms: tuple[str, ...]) -> None:
    assert terms_of(name) == terms


def test_no_issue_of_the_benchmark_names_its_function() -> None:
    cases = tomllib.loads((Path(__file__).parents[3] / "bench" / "explore_cases.toml").read_text())
    for case in [*cases["known"], *cases["held_out"], *cases["last"]]:
        name = case["place"].partition("#")[2].rpartition(".")[2]
        assert name.strip("_") not in case["issue"].lower().split(), case["place"]
        assert case["package"] in cases["packages"]
