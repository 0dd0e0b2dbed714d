"""qkv.GPT and qkv.Tokenizer, on the trained model that sorts and on small random ones."""

import json
import os
import pathlib
import struct

import numpy as np
import pytest
from tiny_models import byte_tokenizer, make_parrot, save

import qkv

SHARED = pathlib.Path(os.environ.get("QKV_SHARED", pathlib.Path(__file__).parents[2] / ".." / "shared"))
SORT = SHARED / "models" / "nano-gpt-sort"
needs_sort = pytest.mark.skipif(not SORT.exists(), reason=f"no {SORT}")


@pytest.fixture
def parrot(tmp_path):
    def make(says):
        make_parrot(tmp_path, says)
        return qkv.GPT(tmp_path)

    return make


@needs_sort
def test_sorts():
    gpt = qkv.GPT(SORT)
    assert gpt.family == "gpt2" and gpt.tokenizer is None
    out = [token.id for token in gpt.generate([2, 0, 1, 2, 1, 0], max_tokens=6, temperature=0)]
    assert out == [0, 0, 1, 1, 2, 2]
    logits = gpt.logits([2, 0, 1, 2, 1, 0])
    assert logits.shape == (6, 3) and logits.dtype == np.float32 and logits[-1].argmax() == 0
    with pytest.raises(ValueError, match="no tokenizer"):
        gpt.generate("abc")


@needs_sort
def test_explains():
    steps = qkv.GPT(SORT).explain([2, 0, 1], layer=1, cached=2, language="vi")
    assert steps["weights"].shape == (1, 3, 1, 3)
    np.testing.assert_allclose(steps["weights"].array.sum(-1), 1, atol=1e-6)
    assert "‹2›" in str(steps)


def test_streams_whole_characters(parrot):
    gpt = parrot("é🙂 ok".encode() + b"\xe1")
    tokens = list(gpt.generate("x", temperature=0))
    assert "".join(token.text for token in tokens) == "é🙂 ok\ufffd"
    assert [token.text for token in tokens][:6] == ["", "é", "", "", "", "🙂"]
    assert tokens[-1] == (-1, "\ufffd")
    assert "".join(t.text for t in gpt.generate("x", temperature=0, stop=" o")) == "é🙂"
    assert len(list(gpt.generate("x", max_tokens=3))) <= 3
    iterator = gpt.generate("x", temperature=0)
    assert next(iterator).id == 0xC3  # the first comes before the others are computed
    assert gpt.decode(gpt.encode("Việt <|endoftext|>한글")) == "Việt 한글"


def test_refuses(parrot, tmp_path):
    gpt = parrot(b"abc")
    with pytest.raises(ValueError, match="tokens"):
        gpt.logits([])
    with pytest.raises(ValueError, match=r"tokens\[0\]"):
        gpt.logits([257])
    with pytest.raises(ValueError, match="temperature"):
        gpt.generate("x", temperature=-1)
    with pytest.raises(OSError):
        qkv.GPT(tmp_path / "none")
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(ValueError, match="bert"):
        qkv.GPT(tmp_path)


def test_tokenizer(parrot, tmp_path):
    parrot(b"abc")
    tokenizer = qkv.Tokenizer(tmp_path)
    assert tokenizer.encode("ab\udc80"[:2]) == [97, 98] == tokenizer.encode(b"ab")
    assert tokenizer.decode([0xED, 0x95, 0x9C]) == "한"
    assert tokenizer.bytes(0xED) == b"\xed" and len(tokenizer) == 257
    assert tokenizer.encode(b"\xff") == tokenizer.encode("\ufffd")
