"""Packages that are known by a module that they have."""

from collections.abc import Mapping
from typing import Final

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


def known_package(module: str) -> str:
    """Return the package that has a module, if it is a well-known one; else an empty text."""
    return _OTHER_NAMES.get(module) or (module.replace("_", "-") if module.casefold() in _SAME_NAMES else "")
