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


IDS = {
    r"prompt\[0\]: expected an integer, found 0.5": lambda gpt: gpt.logits([0.5]),
    r"prompt\[1\]: expected an integer, found '1'": lambda gpt: gpt.logits([1, "1"]),
    r"prompt\[0\]: expected an integer, found True": lambda gpt: gpt.generate([True]),
    r"prompt\[0\]: expected an integer, found 1.0": lambda gpt: gpt.explain(np.ones(3)),
    r"prompt\[0\]: expected an integer, found \[1, 2\]": lambda gpt: gpt.logits(np.array([[1, 2]])),
    r"prompt: expected token ids, found None": lambda gpt: gpt.logits(None),
    r"prompt: expected token ids, found 5": lambda gpt: gpt.logits(5),
    r"ids\[0\]: expected an integer, found 1.7": lambda gpt: gpt.decode([1.7]),
    r"ids: expected token ids, found 'ab'": lambda gpt: gpt.decode("ab"),
    r"id: expected an integer, found 1.5": lambda gpt: gpt.tokenizer.bytes(1.5),
    r"max_tokens: expected an integer, found 1.5": lambda gpt: gpt.generate("x", max_tokens=1.5),
    r"temperature: expected a number, found 'a'": lambda gpt: gpt.generate("x", temperature="a"),
    r"top_k: expected an integer, found None": lambda gpt: gpt.generate("x", top_k=None),
    r"top_p: expected a number, found None": lambda gpt: gpt.generate("x", top_p=None),
    r"seed: expected an integer, found 0.0": lambda gpt: gpt.generate("x", seed=0.0),
    r"stop: expected a str or several, found 5": lambda gpt: gpt.generate("x", stop=5),
    r"stop\[0\]: expected a str, found 1": lambda gpt: gpt.generate("x", stop=[1]),
    r"stop_at_end: expected True or False, found 1": lambda gpt: gpt.generate("x", stop_at_end=1),
    r"layer: expected an integer, found 'a'": lambda gpt: gpt.explain("ab", layer="a"),
}


@pytest.mark.parametrize("message", IDS)
def test_refuses_types(parrot, message):
    with pytest.raises(TypeError, match=message):
        IDS[message](parrot(b"abc"))


def test_refuses_values_at_once(parrot, tmp_path):
    gpt = parrot(b"abc")
    for seed in (-1, 2**64, 2**70):
        with pytest.raises(ValueError, match=f"seed: expected an integer .*, found {seed}"):
            gpt.generate("x", seed=seed)
    with pytest.raises(ValueError, match=r"prompt\[0\]: expected an integer of 32 bits"):
        gpt.logits([2**40])
    with pytest.raises(ValueError, match="prompt: expected one token or more, found none"):
        gpt.explain("")
    with pytest.raises(ValueError, match="cache: expected \"f32\", \"f16\", \"bf16\" or \"int8\", found 'int4'"):
        qkv.GPT(tmp_path, cache="int4")
    for threads in (-1, 0):
        with pytest.raises(ValueError, match=f"threads: expected None, or 1 or more, found {threads}"):
            qkv.GPT(tmp_path, threads=threads)


def test_ids_of_other_libraries(parrot):
    gpt = parrot(b"abc")
    wanted = gpt.logits([1, 2])
    for ids in (np.array([1, 2], np.uint8), [np.int64(1), 2], (1, 2), iter([1, 2])):
        np.testing.assert_array_equal(gpt.logits(ids), wanted)
    assert gpt.decode(np.array([97, 98])) == "ab"
    assert len(list(gpt.generate("x", max_tokens=np.int64(2), seed=2**64 - 1, stop=None,
                                 temperature=np.float32(0)))) == 2


def test_ids_of_torch(parrot):
    torch = pytest.importorskip("torch")
    gpt = parrot(b"abc")
    wanted = gpt.logits([1, 2])
    for ids in (torch.tensor([1, 2]), [torch.tensor(1), torch.tensor(2)]):
        np.testing.assert_array_equal(gpt.logits(ids), wanted)
    with pytest.raises(TypeError, match=r"prompt\[0\]: expected an integer, found tensor\(True\)"):
        gpt.logits([torch.tensor(True)])


def test_tokenizer(parrot, tmp_path):
    parrot(b"abc")
    tokenizer = qkv.Tokenizer(tmp_path)
    assert tokenizer.encode("ab\udc80"[:2]) == [97, 98] == tokenizer.encode(b"ab")
    assert tokenizer.decode([0xED, 0x95, 0x9C]) == "한"
    assert tokenizer.bytes(0xED) == b"\xed" and len(tokenizer) == 257
    assert tokenizer.encode(b"\xff") == tokenizer.encode("\ufffd")
