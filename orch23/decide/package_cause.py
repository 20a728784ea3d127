"""Decide which package a step lacks, and how to install it."""

from collections.abc import Mapping
from typing import Final, Protocol

from orch23.model.event_data import LikelyCause

# Packages that are known by the module that they have. A command names only these: a module that a model invented may
# be the name of a package of an attacker.
_OTHER_NAMES: Final[Mapping[str, str]] = {
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "Crypto": "pycryptodome",
    "cv2": "opencv-python",
    "dateutil": "python-dateutil",
    "docx": "python-docx",
    "dotenv": "python-dotenv",
    "git": "gitpython",
    "google.protobuf": "protobuf",
    "jwt": "pyjwt",
    "magic": "python-magic",
    "OpenSSL": "pyopenssl",
    "PIL": "pillow",
    "pptx": "python-pptx",
    "psycopg2": "psycopg2-binary",
    "pytest_asyncio": "pytest-asyncio",
    "pytest_cov": "pytest-cov",
    "pytest_mock": "pytest-mock",
    "serial": "pyserial",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "typing_extensions": "typing-extensions",
    "yaml": "pyyaml",
    "zmq": "pyzmq",
}
_SAME_NAMES_TEXT = (
    "aiohttp anthropic anyio boto3 botocore celery certifi charset_normalizer click colorama coverage "
    "cryptography django fastapi flask freezegun gunicorn httpx hypothesis idna jinja2 jsonschema keras lxml "
    "markdown markupsafe marshmallow matplotlib msgspec mypy networkx nltk numpy openai openpyxl orjson "
    "packaging pandas paramiko peewee plotly polars psutil psycopg pyarrow pydantic pygments pymongo pymysql "
    "pyparsing pytest redis regex requests respx responses rich ruff scipy seaborn setuptools six spacy "
    "sqlalchemy starlette statsmodels streamlit sympy tabulate tensorflow tiktoken toml tomlkit torch "
    "torchvision tornado tqdm transformers trio typer urllib3 uvicorn websockets werkzeug wheel xlrd"
)
_SAME_NAMES: Final = frozenset(_SAME_NAMES_TEXT.split())


class Interpreter(Protocol):
    """The interpreter of a step."""

    @property
    def interpreter(self) -> str:
        """Return its path."""

    @property
    def is_orch23s_interpreter(self) -> bool:
        """Return whether that is the one that orch23 is installed in, for lack of another."""

    @property
    def has_uv(self) -> bool:
        """Return whether the user has `uv` on PATH."""


def missing_package(module: str, known: Interpreter) -> LikelyCause:
    """Return the cause of a module that the interpreter does not have, with the command that installs it."""
    package = known_package(module)
    note = "" if package else f"; {_guess(module)}"
    name = package or "PACKAGE"
    text = f"`{module}` is not installed in the interpreter of the stage, {known.interpreter}"
    if known.is_orch23s_interpreter:
        text += ", which is that of orch23, since the project has no virtual environment"
        make = f"uv venv && uv pip install pytest {name}"
        if not known.has_uv:
            make = f"python3 -m venv .venv && .venv/bin/python -m pip install pytest {name}"
        return LikelyCause(kind="package", text=text, hint=f"make one that has it: `{make}`{note}")
    install = f"uv pip install --python {known.interpreter} {name}"
    if not known.has_uv:
        install = f"{known.interpreter} -m pip install {name}"
    hint = f"install the package that has it: `{install}`{note}; or name another interpreter in `python:`"
    return LikelyCause(kind="package", text=text, hint=hint)


def known_package(module: str) -> str:
    """Return the package that has a module, if it is a well-known one; else an empty text."""
    return _OTHER_NAMES.get(module) or (module.replace("_", "-") if module.casefold() in _SAME_NAMES else "")


def _guess(module: str) -> str:
    name = module.replace("_", "-").lower()
    return f"PACKAGE is often named as its module, here `{name}`, but check it first: the name may be invented"
