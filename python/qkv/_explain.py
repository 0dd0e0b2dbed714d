from __future__ import annotations

import html
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from . import _core
from ._blocks import _Attention

_LANGUAGES = ("en", "vi", "ko", "zh")


class Step(NamedTuple):
    """One step of a computation: what qkv.explain lists."""

    name: str
    formula: str
    shape: Tuple[int, ...]
    array: Any


class Explanation(List[Step]):
    """The steps of a computation, in their order. A notebook shows them; str() is for a terminal."""

    def __init__(self, data: Dict[str, Any], language: str) -> None:
        super().__init__(Step(name, formula, tuple(array.shape), array)
                         for name, formula, array, *_ in data["steps"])
        self._data = data
        self.language = language

    @property
    def title(self) -> str:
        return self._data["title"][self.language]

    @property
    def intro(self) -> str:
        return self._data["intro"][self.language]

    def __getitem__(self, key):  # also by a step's name
        if isinstance(key, str):
            for step in self:
                if step.name == key:
                    return step
            raise KeyError(key)
        return super().__getitem__(key)

    def in_language(self, language: str) -> "Explanation":
        """The same in another language: "en", "vi", "ko" or "zh"."""
        return Explanation(self._data, _checked(language))

    def __str__(self) -> str:
        return self._data["text"][self.language]

    def __repr__(self) -> str:
        return f"<qkv.Explanation {self._data['block']}: {', '.join(step.name for step in self)}>"

    def _repr_html_(self) -> str:
        parts = [f"<div lang='{self.language}'><h3>{html.escape(self.title)}</h3>",
                 f"<p>{html.escape(self.intro)}</p>"]
        for number, (step, data) in enumerate(zip(self, self._data["steps"]), 1):
            axes, rows, cols, shares, words = data[3:]
            title, meaning = words[self.language]
            named = ", ".join(f"{a}={n}" for a, n in zip(axes, step.shape)) or ", ".join(map(str, step.shape))
            parts.append(f"<h4>{number}. {html.escape(title)} <code>{html.escape(step.name)}</code> "
                         f"[{html.escape(named)}]</h4><p><code>{html.escape(step.formula)}</code></p>"
                         f"<p>{html.escape(meaning)}</p>{_table(step.array, rows, cols, shares)}")
        return "".join(parts) + "</div>"


def _table(array, rows, cols, shares, most=8):
    """The first matrix of an array, as HTML; what does not fit is left out, and says so."""
    while array.ndim > 2:
        if array.shape[0] == 0:
            return ""
        array = array[0]
    if array.ndim == 0:
        array = array[None]
    if array.ndim == 1:
        array, rows = array[None], []
    height, width = array.shape
    labels = cols or [str(j) for j in range(width)]
    more = "<td>…</td>" if width > most else ""
    head = "".join(f"<th>{html.escape(x)}</th>" for x in labels[:most])
    lines = [f"<tr><th></th>{head}{more}</tr>"]
    for i in range(min(height, most)):
        label = rows[i] if i < len(rows) else str(i)
        cells = "".join(_cell(float(array[i, j]), shares) for j in range(min(width, most)))
        lines.append(f"<tr><th>{html.escape(label)}</th>{cells}{more}</tr>")
    if height > most:
        lines.append("<tr><td>…</td></tr>")
    return f"<table>{''.join(lines)}</table>"


def _cell(value, shares):
    style = f" style='background:rgba(30,120,220,{value:.2f})'" if shares else ""
    return f"<td{style}>{value:.4g}</td>"


def _checked(language):
    if language not in _LANGUAGES:
        raise ValueError(f"[qkv.explain] language: expected one of {', '.join(_LANGUAGES)}, found {language!r}")
    return language


def explain(source: Any, *inputs: Any, language: str = "en", tokens: Optional[Sequence[str]] = None,
            memory: Any = None, **options: Any) -> Explanation:
    """Every step of a computation, with its name, formula, shape and numbers.

    Parameters
    ----------
    source, inputs
        One of: the name of a worked example ("dot", "pixels", "channels", "journey", "causal",
        "heads", "scaling", "vit", "transformer"); query [B, H, Tq, D], key [B, H, Tk, D] and value
        [B, H, Tk, Dv]; or a block and its input x.
    language : "en", "vi", "ko" or "zh"
    tokens : strings
        Labels of the tokens.
    memory : array
        For the cross-attention of a TransformerAttention.
    options
        Those of `qkv.attention`: causal, mask, …

    Returns
    -------
    Explanation
        A list of (name, formula, shape, array). A notebook shows it with titles, meanings and
        numbers. Sums are kept in f64.

    Examples
    --------
    >>> import qkv
    >>> steps = qkv.explain("pixels", language="vi")
    >>> name, formula, shape, array = steps["weights"]
    >>> formula, shape
    ('P = softmax(scaled)', (1, 1, 4, 4))
    """
    _checked(language)
    labels = [str(token) for token in tokens or ()]
    if isinstance(source, str):
        if inputs or options or tokens or memory is not None:
            raise TypeError(f"[qkv.explain] source: expected arrays or a block with other arguments, found {source!r}")
        data = _core.explain_example(source)
    elif isinstance(source, _Attention):
        if len(inputs) != 1:
            raise TypeError(f"[qkv.explain] inputs: expected a block and its input x, found {len(inputs)} inputs")
        data = source._block.explain(inputs[0], memory, options, labels)
    else:
        if memory is not None:
            raise TypeError("[qkv.explain] memory: expected a block that attends to it, found arrays")
        if len(inputs) != 2:
            raise TypeError(f"[qkv.explain] inputs: expected query, key and value, found {1 + len(inputs)} arrays")
        data = _core.explain_attention(source, *inputs, options, labels)
    return Explanation(data, language)
