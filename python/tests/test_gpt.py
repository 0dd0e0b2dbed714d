"""qkv.GPT and qkv.Tokenizer, on the trained model that sorts and on small random ones."""

import json
import os
import pathlib
import struct

import numpy as np
import pytest

import qkv

SHARED = pathlib.Path(os.environ.get("QKV_SHARED", pathlib.Path(__file__).parents[2] / ".." / "shared"))
SORT = SHARED / "models" / "nano-gpt-sort"
needs_sort = pytest.mark.skipif(not SORT.exists(), reason=f"no {SORT}")


def save(path, tensors):
    header, blob = {}, b""
    for name, array in tensors.items():
        data = np.ascontiguousarray(array, dtype=np.float32).tobytes()
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [len(blob), len(blob) + len(data)]}
        blob += data
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + blob)


def byte_tokenizer():
    """GPT-2's characters of the 256 bytes, an id each, and <|endoftext|>."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return {chr(b if b in plain else next(others)): b for b in range(256)} | {"<|endoftext|>": 256}


@pytest.fixture
def parrot(tmp_path):
    """Says the bytes of a text, one a position, whatever it is told."""

    def make(says):
        ids = list(says) + [256]
        n = len(ids)
        head = np.zeros((257, n))
        head[ids, range(n)] = 9
        zeros = {"wte": (257, n), "h.0.ln_1": (n,), "h.0.ln_2": (n,), "h.0.attn.c_attn": (3 * n, n),
                 "h.0.attn.c_proj": (n, n), "h.0.mlp.c_fc": (4 * n, n), "h.0.mlp.c_proj": (n, 4 * n)}
        save(tmp_path / "model.safetensors", {
            **{f"{name}.weight": np.zeros(shape) for name, shape in zeros.items()},
            "wpe.weight": np.eye(n), "ln_f.weight": np.ones(n), "lm_head.weight": head})
        (tmp_path / "config.json").write_text(json.dumps({
            "n_layer": 1, "n_head": 1, "n_embd": n, "vocab_size": 257, "block_size": n, "bias": False,
            "eos_token_id": 256}))
        (tmp_path / "vocab.json").write_text(json.dumps(byte_tokenizer()))
        (tmp_path / "merges.txt").write_text("#version: 0.2\n")
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
