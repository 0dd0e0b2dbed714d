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
    """How long a call took, and the part of that in which Python's handlers did not run, at a stretch."""
    seen = [time.perf_counter()]
    before = signal.signal(signal.SIGALRM, lambda *_: seen.append(time.perf_counter()))
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
    try:
        call()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        seen.append(time.perf_counter())
        signal.signal(signal.SIGALRM, before)
    took = seen[-1] - seen[0]
    return took, max(b - a for a, b in zip(seen, seen[1:])) / took


def looks_at_signals(call, tokens, most=1 << 14):
    """Of call(tokens), with as many as make it last: handlers run every 50 ms, which is little only beside a second."""
    while tokens < most and longest_silence(lambda: call(tokens))[0] < 0.7:
        tokens = min(tokens * 3 // 2, most)
    # The machine's own pauses are forgiven by another try.
    return any(longest_silence(lambda: call(tokens))[1] < 0.5 for _ in range(3))


def test_explain():
    def explain(tokens):
        x = np.ones((1, 1, tokens, 4096), np.float32)  # wide: time goes into the products, not into memory
        qkv.explain(x, x, x)

    assert looks_at_signals(explain, 1024)


def test_explain_block():
    block = qkv.ViTAttention.from_arrays(np.ones((3 * 1536, 1536)), np.ones((1536, 1536)), num_heads=1)
    assert looks_at_signals(lambda tokens: qkv.explain(block, np.ones((1, tokens, 1536), np.float32)), 256)


def test_explain_gpt(tmp_path):
    make_parrot(tmp_path, b"x" * 1400)
    gpt = qkv.GPT(tmp_path)
    assert looks_at_signals(lambda tokens: gpt.explain([120] * tokens), 1000, most=1400)
