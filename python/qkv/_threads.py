from __future__ import annotations

from typing import Optional

from . import _core


def num_threads() -> int:
    """How many threads a call may use: as many as the process may run on, unless set otherwise.

    Examples
    --------
    >>> import qkv
    >>> qkv.num_threads() >= 1
    True
    """
    return _core.num_threads()


def set_num_threads(threads: Optional[int]) -> None:
    """Sets it for calls from every thread of the process; None goes back to the default.

    Never changes a bit of a result.

    Examples
    --------
    >>> import qkv
    >>> qkv.set_num_threads(1)
    >>> qkv.num_threads()
    1
    >>> qkv.set_num_threads(None)
    """
    _core.set_num_threads(threads)
