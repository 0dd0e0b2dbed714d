"""qkv.explain: the steps are the engine's own numbers, and a notebook can show them."""

from html.parser import HTMLParser

import numpy as np
import pytest

import qkv
from test_attention import tensors
from test_blocks import MHA, X

EXAMPLES = ("dot", "pixels", "channels", "journey", "causal", "heads", "scaling", "vit", "transformer")


class Balanced(HTMLParser):
    """Fails on a tag that is closed by another."""

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.seen.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.parametrize("name", EXAMPLES)
def test_worked_example(name):
    steps = qkv.explain(name)
    assert len(steps) > 0 and all(step.shape == step.array.shape for step in steps)
    texts = {str(steps.in_language(language)) for language in ("en", "vi", "ko", "zh")}
    assert len(texts) == 4
    for language in ("en", "vi", "ko", "zh"):
        page = Balanced()
        page.feed(steps.in_language(language)._repr_html_())
        assert page.open == [] and page.seen.count("h4") == len(steps)


def test_attention():
    q, k, v = tensors(B=1, Hkv=4, dtype=np.float64)
    steps = qkv.explain(q, k, v, causal="bottom_right", tokens=[f"t{i}" for i in range(37)])
    out, weights = qkv.attention(q, k, v, causal="bottom_right", return_weights=True)
    np.testing.assert_allclose(steps["weights"].array, weights, rtol=1e-12)
    np.testing.assert_allclose(steps[-1].array.reshape(out.shape), out, rtol=1e-12, atol=1e-14)
    name, formula, shape, array = steps[0]
    assert name in repr(steps) and shape == array.shape
    with pytest.raises(KeyError):
        steps["no such step"]


def test_blocks():
    block = qkv.TransformerAttention(MHA, num_heads=4)
    steps = qkv.explain(block, X, causal="top_left")
    np.testing.assert_allclose(steps["output"].array, block(X, causal="top_left"), rtol=1e-4, atol=1e-5)
    memory = X[:, :5]
    np.testing.assert_allclose(
        qkv.explain(block, X, memory=memory)["output"].array, block(X, memory), rtol=1e-4, atol=1e-5)


def test_html_escapes_labels():
    q, k, v = (np.ones((1, 1, 2, 2)) for _ in range(3))
    page = qkv.explain(q, k, v, tokens=["<b>", "&"])._repr_html_()
    assert "<b>" not in page and "&lt;b&gt;" in page


REFUSED = {
    "example": (ValueError, ("nothing",), {}, r"source: expected arrays, a block or one of dot, pixels"),
    "language": (ValueError, ("pixels",), dict(language="fr"), r"language: expected one of en, vi, ko, zh, found 'fr'"),
    "arrays": (TypeError, (X, X), {}, r"inputs: expected query, key and value, found 2 arrays"),
    "option": (TypeError, (X, X, X), dict(casual=1), r"casual: expected an option"),
    "rank": (ValueError, (X, X, X), {}, r"\[qkv.explain\] query"),
}


@pytest.mark.parametrize("kind, sources, options, message", REFUSED.values(), ids=REFUSED.keys())
def test_refused(kind, sources, options, message):
    with pytest.raises(kind, match=message):
        qkv.explain(*sources, **options)
