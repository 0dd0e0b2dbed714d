"""Ctrl-C in a long call."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
from tiny_models import make_parrot

import qkv

# A process that a shell put into the background ignores SIGINT, and Python then leaves it so.
CODE = """
import signal, numpy as np, qkv
signal.signal(signal.SIGINT, signal.default_int_handler)
x = np.ones((1, 1, 1 << 17, 64), np.float32)  # some minutes of work
print("ready", flush=True)
try:
    {call}
except KeyboardInterrupt:
    print("interrupted", flush=True)
small = x[:, :, :4]
assert (qkv.attention(small, small, small) == 1).all()  # the process is still usable
"""


def interrupted(call):
    child = subprocess.Popen([sys.executable, "-c", CODE.format(call=call)], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout.readline() == "ready\n"
        time.sleep(0.3)
        os.kill(child.pid, signal.SIGINT)
        out, _ = child.communicate(timeout=30)
        return out == "interrupted\n" and child.returncode == 0
    finally:
        child.kill()
        child.wait()


def test_attention():
    assert interrupted("qkv.attention(x, x, x)")


def test_block():
    assert interrupted(
        "qkv.ViTAttention.from_arrays(np.ones((192, 64)), np.ones((64, 64)), num_heads=4)(x[0])")


def longest_silence(call):
    """The part of a call's time in which Python's handlers did not run, at a stretch."""
    seen = [time.perf_counter()]
    before = signal.signal(signal.SIGALRM, lambda *_: seen.append(time.perf_counter()))
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
    try:
        call()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        seen.append(time.perf_counter())
        signal.signal(signal.SIGALRM, before)
    return max(b - a for a, b in zip(seen, seen[1:])) / (seen[-1] - seen[0])


def looks_at_signals(call):
    # Handlers run every 50 ms of a second or so; the machine's own pauses are forgiven by a second try.
    return any(longest_silence(call) < 0.5 for _ in range(3))


def test_explain():
    x = np.ones((1, 1, 1024, 8192), np.float32)  # large: time goes into the products, not into memory
    assert looks_at_signals(lambda: qkv.explain(x, x, x))


def test_explain_block():
    block = qkv.ViTAttention.from_arrays(np.ones((3 * 1536, 1536)), np.ones((1536, 1536)), num_heads=1)
    assert looks_at_signals(lambda: qkv.explain(block, np.ones((1, 256, 1536), np.float32)))


def test_explain_gpt(tmp_path):
    make_parrot(tmp_path, b"x" * 1000)
    gpt = qkv.GPT(tmp_path)
    assert looks_at_signals(lambda: gpt.explain([120] * 1000))
