"""The process around a call: memory, forks, and PyTorch's OpenMP beside ours."""

import os
import resource
import signal

import numpy as np
import pytest

import qkv
from test_attention import tensors


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs Linux' /proc")
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_no_leak(library):
    """1e5 calls; one byte leaked in each would be 0.1 MB, an object of Python's 3 MB and more."""
    arrays = tensors(B=1, Hq=1, Hkv=1, Tq=1, Tk=2, D=8, Dv=8)
    if library == "torch":
        arrays = list(map(pytest.importorskip("torch").from_numpy, arrays))
    for _ in range(2000):
        qkv.attention(*arrays, key_lengths=[2], return_lse=True)
    before = resident()
    for _ in range(100_000):
        qkv.attention(*arrays, key_lengths=[2], return_lse=True)
    assert resident() - before < 1 << 21


def in_child(work):
    """Whether a forked child that does the work ends well, and in time."""
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # kills one that hangs
        os._exit(0 if work() else 1)
    return os.waitpid(child, 0)[1] == 0


def test_fork_after_use():
    q, k, v = tensors(Tq=64, Tk=64)
    expected = qkv.attention(q, k, v, threads=2)
    assert in_child(lambda: np.array_equal(qkv.attention(q, k, v, threads=2), expected))


def test_torch_threads_beside_ours():
    torch = pytest.importorskip("torch")
    arrays = tensors(Tq=64, Tk=64)
    q, k, v = map(torch.from_numpy, arrays)
    expected = qkv.attention(*arrays)
    a = torch.randn(128, 128)
    product = a @ a
    for _ in range(20):
        np.testing.assert_array_equal(qkv.attention(q, k, v, threads=2), expected)
        assert torch.equal(a @ a, product)


def test_data_loader_workers():
    torch = pytest.importorskip("torch")
    arrays = tensors()
    expected = qkv.attention(*arrays)
    (torch.randn(64, 64) @ torch.randn(64, 64)).sum()

    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, i):
            return qkv.attention(*arrays)

    loader = torch.utils.data.DataLoader(Data(), num_workers=2, timeout=60, multiprocessing_context="fork")
    for (got,) in loader:
        np.testing.assert_array_equal(got, expected)
