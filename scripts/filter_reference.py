"""What each filter of expressions and prompts does, with an example whose result the page shows."""

from collections.abc import Mapping
from typing import Final

# Filter -> (meaning, example).
FILTERS: Final[Mapping[str, tuple[str, str]]] = {
    "abs": ("Absolute value of a number.", "-3 | abs"),
    "batch": ("Split a list into lists of N values.", "[1, 2, 3] | batch(2)"),
    "capitalize": ("First letter in upper case, others in lower case.", "'mAIN' | capitalize"),
    "d": ("Short for `default`.", "'' | d('none', true)"),
    "default": (
        "Another value if the variable is undefined; with `true`, also if it is empty.",
        "'' | default('none', true)",
    ),
    "dictsort": ("List of the keys and values of a mapping, sorted by key.", "{'b': 1, 'a': 2} | dictsort"),
    "first": ("First value of a list.", "[1, 2] | first"),
    "float": ("Convert to a number.", "'2.5' | float"),
    "groupby": (
        "Group mappings by a member.",
        "[{'k': 'a', 'n': 1}, {'k': 'b', 'n': 2}] | groupby('k') | map('first')",
    ),
    "indent": ("Indent lines after the first, by 4 spaces or N.", "'a\\nb' | indent(2)"),
    "int": ("Convert to a whole number.", "'4' | int"),
    "items": ("List of the keys and values of a mapping, in its order.", "{'b': 1, 'a': 2} | items"),
    "join": ("Join texts, with text between them.", "['a', 'b'] | join(', ')"),
    "last": ("Last value of a list.", "[1, 2] | last"),
    "length": ("Number of values or characters.", "'abc' | length"),
    "list": ("Convert to a list.", "'abc' | list"),
    "lower": ("Lower case.", "'ABC' | lower"),
    "map": ("Apply a filter to each value, or take a member of each.", "[{'id': 1}, {'id': 2}] | map(attribute='id')"),
    "max": ("Largest value.", "[1, 3, 2] | max"),
    "min": ("Smallest value.", "[1, 3, 2] | min"),
    "reject": ("Values that do not pass a test.", "[1, 2, 3] | reject('odd')"),
    "rejectattr": ("Mappings whose member does not pass a test.", "[{'n': 1}, {'n': 2}] | rejectattr('n', 'odd')"),
    "replace": ("Replace a part of a text.", "'a-b' | replace('-', '_')"),
    "reverse": ("Reverse a list or text.", "'abc' | reverse"),
    "round": ("Round to N digits.", "2.567 | round(1)"),
    "select": ("Values that pass a test.", "[1, 2, 3] | select('odd')"),
    "selectattr": ("Mappings whose member passes a test.", "[{'n': 1}, {'n': 2}] | selectattr('n', 'eq', 2)"),
    "slice": ("Split a list into N lists.", "[1, 2, 3] | slice(2)"),
    "sort": ("Sort a list.", "[3, 1, 2] | sort"),
    "string": ("Convert to a text.", "3 | string"),
    "sum": ("Sum of numbers.", "[1, 2] | sum"),
    "title": ("First letter of each word in upper case.", "'two words' | title"),
    "tojson": ("JSON, in the order of the value; `indent=2` breaks lines.", "{'b': [1, none], 'a': 'é'} | tojson"),
    "trim": ("Without spaces and newlines at both ends.", "' a ' | trim"),
    "truncate": ("At most N characters, with `...` at the end.", "'one two three' | truncate(9, leeway=0)"),
    "under": (
        "A directory before each path of a path, a condition or a list of these.",
        "['a.py', 'b.py'] | under('src')",
    ),
    "unique": ("Without values that occur before.", "[1, 2, 1] | unique"),
    "upper": ("Upper case.", "'abc' | upper"),
    "wordcount": ("Number of words.", "'one two' | wordcount"),
}
# Filters of prompts and templates only; they make blocks of data.
BLOCK_FILTERS: Final[Mapping[str, str]] = {
    "block": "One input, or a text with a title (`text | block('rules')`), between delimiters.",
    "blocks": "Each value of a list of inputs, between delimiters.",
}
FUNCTIONS: Final[Mapping[str, tuple[str, str]]] = {
    "range": ("Whole numbers from 0, or from A, up to and without B.", "range(1, 4) | list")
}
