"""Ctrl-C in a long call."""

import os
import signal
import subprocess
import sys
import time

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
