"""Arguments that are no arrays, judged before the engine sees them: its errors, in its words."""

from __future__ import annotations

import operator
from typing import Any, List, Sequence


def refuse(kind, where, subject, expected, found):
    raise kind(f"[{where}] {subject}: expected {expected}, found {found}")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + "…"


def integer(where: str, name: str, value: Any, bits: int = 64) -> int:
    """An int of any library that fits into so many bits, signed; a bool is none."""
    if not isinstance(value, bool) and not str(getattr(value, "dtype", "")).endswith("bool"):
        try:
            number = operator.index(value)
        except TypeError:
            pass
        else:
            if not -(1 << (bits - 1)) <= number < 1 << (bits - 1):
                refuse(ValueError, where, name, f"an integer of {bits} bits", _shown(value))
            return number
    refuse(TypeError, where, name, "an integer", _shown(value))


def seed(where: str, value: Any) -> int:
    number = integer(where, "seed", value, 80)
    if not 0 <= number < 1 << 64:
        refuse(ValueError, where, "seed", "an integer from 0 to 2⁶⁴ - 1", _shown(value))
    return number


def number(where: str, name: str, value: Any) -> float:
    """A number of any library; a bool or a string is none."""
    if not isinstance(value, (bool, str, bytes)):
        try:
            return float(value)
        except (TypeError, ValueError, OverflowError):
            pass
    refuse(TypeError, where, name, "a number", _shown(value))


def boolean(where: str, name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        refuse(TypeError, where, name, "True or False", _shown(value))
    return value


def word(where: str, name: str, value: Any, words: Sequence[str]) -> str:
    if not isinstance(value, str) or value not in words:
        quoted = [f'"{w}"' for w in words]
        refuse(ValueError, where, name, f"{', '.join(quoted[:-1])} or {quoted[-1]}", _shown(value))
    return value


def threads(where: str, value: Any) -> Any:
    if value is not None and integer(where, "threads", value, 32) < 1:
        refuse(ValueError, where, "threads", "None, or 1 or more", _shown(value))
    return value


def token_ids(where: str, name: str, ids: Any) -> List[int]:
    """Integers of 32 bits: a list, an array or anything else that gives them one by one."""
    if hasattr(ids, "tolist"):  # NumPy's and PyTorch's, in one go
        ids = ids.tolist()
    if isinstance(ids, (str, bytes, dict, set)) or not hasattr(ids, "__iter__"):
        refuse(TypeError, where, name, "token ids", _shown(ids))
    return [integer(where, f"{name}[{i}]", id, 32) for i, id in enumerate(ids)]


def texts(where: str, name: str, given: Any) -> List[str]:
    """A text, texts, or None for none."""
    if given is None or isinstance(given, str):
        return [] if given is None else [given]
    if isinstance(given, bytes) or not hasattr(given, "__iter__"):
        refuse(TypeError, where, name, "a str or several", _shown(given))
    given = list(given)
    for i, one in enumerate(given):
        if not isinstance(one, str):
            refuse(TypeError, where, f"{name}[{i}]", "a str", _shown(one))
    return given
