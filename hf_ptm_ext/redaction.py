"""Secrets that must not be written down: tokens, passwords, keys. Known ones are replaced wherever text goes out.

Known are what a caller names, what the environment holds under a secret's name, the token of `hf auth login`, anything
like a Hub token, and the user's part of an address (`https://user:password@host`).
"""

import logging
import os
import re
import traceback
from collections.abc import Iterable, Mapping
from typing import Any

HIDDEN = "***"
# Names of fields and environment variables that hold secrets. A tokenizer's `mask_token` and a bare `token` are none.
_SECRET_NAME = re.compile(
    r"(^|_)((hub|hf|hugging_?face|hugging_face_hub|access|auth|api|bearer|session|refresh|write|read)_?token"
    r"|(api|access|secret|private|auth)_?key|password|passwd|secret|credentials?)$",
    re.IGNORECASE,
)
_SECRET_VARIABLE = re.compile(r"(^|_)TOKEN$", re.IGNORECASE)
# Wider, for variables that no other process needs.
_MAYBE_SECRET = re.compile("TOKEN|KEY|SECRET|PASS|CRED|AUTH|COOKIE|SESSION|PRIVATE", re.IGNORECASE)
# A shorter value of a variable would be found in ordinary words.
_SHORTEST = 6
_HUB_TOKEN = re.compile(r"\b(hf|api_org)_[A-Za-z0-9]{30,}\b")
_USER_IN_ADDRESS = re.compile(r"(?<=://)[^/\s'\"<>?#]*@")
_SECRET_IN_ADDRESS = re.compile(r"(?<=[?&])((?:[a-z_]*token|[a-z_]*key|secret|password|signature)=)[^&\s'\"]+", re.I)


def is_secret_name(name: str) -> bool:
    """Whether a field of this name holds a secret."""
    return _SECRET_NAME.search(name) is not None


def may_be_secret(name: str) -> bool:
    """Whether a variable of this name is better kept from a process that does not need it."""
    return _MAYBE_SECRET.search(name) is not None


def known_secrets(more: Iterable[str | None] = ()) -> list[str]:
    """The secrets that this process knows, the longest first."""
    found = {value for value in more if isinstance(value, str) and value}
    found |= {
        value
        for name, value in os.environ.items()
        if (_SECRET_VARIABLE.search(name) or is_secret_name(name)) and len(value) >= _SHORTEST
    }
    try:
        from huggingface_hub import get_token

        found.add(get_token() or "")
    except (ImportError, OSError):  # no client, or its file cannot be read: then nothing is stored for it to use
        pass
    return sorted({value.strip() for value in found} - {""}, key=len, reverse=True)


def redacted(value: Any, secrets: Iterable[str | None] = ()) -> Any:
    """The same value without secrets."""
    return _redacted(value, known_secrets(secrets))


def _redacted(value: Any, known: list[str]) -> Any:
    if isinstance(value, str):
        for secret in known:
            value = value.replace(secret, HIDDEN)
        value = _HUB_TOKEN.sub(HIDDEN, value)
        if "://" in value:
            value = _USER_IN_ADDRESS.sub(f"{HIDDEN}@", value)
        return _SECRET_IN_ADDRESS.sub(rf"\g<1>{HIDDEN}", value)
    if isinstance(value, Mapping):
        return {
            _redacted(name, known): HIDDEN
            if isinstance(name, str) and is_secret_name(name) and isinstance(one, str) and one
            else _redacted(one, known)
            for name, one in value.items()
        }
    if type(value) in (list, tuple, set):
        return type(value)(_redacted(one, known) for one in value)
    return value


class Secret(str):
    """A secret in use: text like any other, but shown and pickled without what must not be known."""

    __slots__ = ("shown",)
    shown: str | None

    def __new__(cls, value: str, shown: str | None = None) -> "Secret":
        made = super().__new__(cls, value)
        made.shown = shown
        return made

    def __repr__(self) -> str:
        return repr(HIDDEN if self.shown is None else self.shown)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        # None, or the redacted text; built-in types alone, so that whoever reads the pickle needs nothing of ours.
        return (type(None), ()) if self.shown is None else (str, (self.shown,))

    def __copy__(self) -> "Secret":
        return self

    def __deepcopy__(self, memo: Any) -> "Secret":
        return self


def hide_secrets(args: Any) -> list[str]:
    """Make secrets in a Trainer's arguments such that a pickle or a `repr` of them holds none; they stay in use."""
    named = {name: value for name, value in vars(args).items() if isinstance(value, str) and is_secret_name(name)}
    known = known_secrets(named.values())

    def hidden(value: Any, name: str = "") -> Any:
        if isinstance(value, Secret):
            return value
        if isinstance(value, str):
            if value and name and is_secret_name(name):
                return Secret(value)
            shown = _redacted(value, known)
            return value if shown == value else Secret(value, shown)
        if type(value) is dict:
            return {key: hidden(one, str(key)) for key, one in value.items()}
        if type(value) in (list, tuple):
            return type(value)(hidden(one) for one in value)
        return value

    for name, value in list(vars(args).items()):
        if type(value) in (str, dict, list, tuple):
            made = hidden(value, name)
            if made is not value:
                setattr(args, name, made)
    return [str(value) for value in named.values() if value]


_plain_factory: Any = None


def redact_log_records() -> None:
    """From now on every log record of this process is made without secrets, whoever logs and wherever it goes."""
    global _plain_factory
    if _plain_factory is not None:
        return
    _plain_factory = logging.getLogRecordFactory()

    def without_secrets(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = _plain_factory(*args, **kwargs)
        try:
            message = record.getMessage()
        except Exception:  # a malformed call: its handler says so
            return record
        clean = redacted(message)
        if clean != message:
            record.msg, record.args = clean, ()
        if record.exc_info and record.exc_info[0] is not None:  # formatters take a text that is there already
            record.exc_text = redacted("".join(traceback.format_exception(*record.exc_info)).rstrip("\n"))
        return record

    logging.setLogRecordFactory(without_secrets)
