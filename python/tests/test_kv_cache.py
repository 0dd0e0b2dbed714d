import threading

import numpy as np
import pytest

import qkv


def tokens(rng, *shape):
    return rng.normal(size=shape).astype(np.float32)


def dense(x):
    return x.transpose(0, 2, 1, 3)


@pytest.mark.parametrize("kind", ["contiguous", "paged"])
@pytest.mark.parametrize("storage,error", [("f32", 1e-6), ("f16", 1e-2), ("bf16", 5e-2), ("int8", 5e-2)])
def test_token_by_token_is_all_at_once(kind, storage, error):
    rng = np.random.default_rng(1)
    q, k, v = tokens(rng, 1, 20, 4, 16), tokens(rng, 1, 20, 2, 16), tokens(rng, 1, 20, 2, 16)
    cache = qkv.KVCache(heads=2, D=16, capacity=32, kind=kind, storage=storage, page_tokens=16)
    s = cache.add()
    expected = qkv.attention(dense(q), dense(k), dense(v), causal=True)
    for t in range(20):
        cache.reserve(s, 1)
        cache.write(s, 0, k[0, t : t + 1], v[0, t : t + 1])
        out = cache.attention(dense(q)[:, :, t : t + 1], 0, s)
        cache.commit(s)
        np.testing.assert_allclose(out, expected[:, :, t : t + 1], atol=error)
    assert cache.length(s) == 20


def test_full_is_refused_and_unchanged():
    rng = np.random.default_rng(2)
    cache = qkv.KVCache(heads=1, D=4, capacity=16)
    s = cache.add()
    x = tokens(rng, 1, 16, 1, 4)
    cache.append(s, x, x)
    with pytest.raises(ValueError, match="at most 0 more"):
        cache.append(s, x[:, :1], x[:, :1])
    assert cache.length(s) == 16
    np.testing.assert_array_equal(cache.keys(s)[0], x[0, :, 0])


def test_forks_share_pages(tmp_path):
    rng = np.random.default_rng(3)
    cache = qkv.KVCache(heads=1, D=4, capacity=160, kind="paged", page_tokens=16)
    a = cache.add()
    x = tokens(rng, 1, 40, 1, 4)
    cache.append(a, x, x)
    b = cache.fork(a)
    assert cache.usage()["pages_used"] == 3 and cache.usage()["pages_shared"] == 3
    cache.append(b, x[:, :1], x[:, :1])
    assert cache.usage()["pages_used"] == 4 and cache.sequences == [a, b]
    cache.save(tmp_path / "cache.safetensors")
    back = qkv.KVCache.load(tmp_path / "cache.safetensors")
    assert back.usage() == cache.usage()
    np.testing.assert_array_equal(back.values(b), cache.values(b))
    damaged = (tmp_path / "cache.safetensors").read_bytes()[:-1]
    (tmp_path / "cache.safetensors").write_bytes(damaged)
    with pytest.raises(ValueError):
        qkv.KVCache.load(tmp_path / "cache.safetensors")
    cache.truncate(b, 16)
    cache.release(a)
    assert cache.usage()["pages_used"] == 1


def test_weights_and_lse():
    rng = np.random.default_rng(4)
    cache = qkv.KVCache(heads=1, D=4, capacity=16, sequences=2)
    ids = [cache.add(), cache.add()]
    x, y = tokens(rng, 1, 5, 1, 4), tokens(rng, 1, 3, 1, 4)
    cache.append(ids[0], x, x)
    cache.append(ids[1], y, y)
    q = tokens(rng, 2, 2, 1, 4)
    out, weights, lse = cache.attention(q, 0, ids, return_weights=True, return_lse=True)
    assert weights.shape == (2, 2, 1, 5) and np.all(weights[1, ..., 3:] == 0)
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-6)
    np.testing.assert_allclose(out[0], np.einsum("hqk,kd->hqd", weights[0], x[0, :, 0]), atol=1e-6)
    _, expected = qkv.attention(q[:1], dense(x), dense(x), return_lse=True)
    np.testing.assert_allclose(lse[:1], expected, atol=1e-6)


def test_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match="capacity"):
        qkv.KVCache(heads=1, D=4, capacity=0)
    with pytest.raises(ValueError, match="kind"):
        qkv.KVCache(heads=1, D=4, capacity=4, kind="round")
    cache = qkv.KVCache(heads=1, D=4, capacity=4)
    with pytest.raises(ValueError, match="sequence"):
        cache.length(7)
    s = cache.add()
    with pytest.raises(TypeError):
        cache.append(s, None, None)
    with pytest.raises(ValueError):
        cache.attention(np.zeros((1, 1, 1, 4), np.float32), 0, s)


def test_numbers_of_other_libraries_and_of_other_kinds():
    cache = qkv.KVCache(heads=1, D=4, capacity=4)
    s = np.int64(cache.add())
    x = np.ones((1, 1, 1, 4), np.float32)
    cache.append(s, x, x)
    assert cache.length(s) == 1
    np.testing.assert_array_equal(cache.attention(x, np.int32(0), s), x)
    np.testing.assert_array_equal(cache.attention(x, 0, np.array([s])), x)
    for message, call in {
        r"sequence: expected an integer, found 'a'": lambda: cache.length("a"),
        r"sequence: expected an integer, found 0.5": lambda: cache.append(0.5, x, x),
        r"sequence: expected an integer, found True": lambda: cache.release(True),
        r"length: expected an integer, found None": lambda: cache.truncate(s, None),
        r"layer: expected an integer, found 0.0": lambda: cache.keys(s, 0.0),
        r"sequences\[0\]: expected an integer, found 'a'": lambda: cache.commit("a"),
        r"sequences: expected an integer, found None": lambda: cache.attention(x, 0, None),
    }.items():
        with pytest.raises(TypeError, match=r"\[qkv.KVCache\] " + message):
            call()
    with pytest.raises(ValueError, match="sequence: expected an integer of 64 bits"):
        cache.length(2**70)


def test_threads_may_share_one():
    cache = qkv.KVCache(heads=1, D=4, capacity=4096, kind="paged", page_tokens=16)
    x = np.ones((1, 1, 1, 4), np.float32)

    def work():
        s = cache.add()
        for _ in range(100):
            cache.append(s, x, x)
            cache.attention(x, 0, s, threads=1)
        cache.release(s)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert cache.usage()["pages_used"] == 0
