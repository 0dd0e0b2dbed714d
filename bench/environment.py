"""Where the contenders live (.venv-bench), and what this machine is."""

import os
import platform
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv-bench"
MODULE = ROOT / "build" / "release" / "python"

# PyTorch is pinned to the version that the figures in the README are of.
PACKAGES = ["numpy", "torch==2.13.0", "onnxruntime", "onnx", "openvino", "jax"]


def install():
    """Makes .venv-bench, or brings it up to date. A CPU build of PyTorch is enough."""
    python = VENV / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *PACKAGES], check=True)
    print(f"installed: {', '.join(PACKAGES)}", file=sys.stderr)


def use_best_python():
    """Goes on in .venv-bench where it is; there, or anywhere, `make build`'s qkv is importable."""
    wanted = VENV / "bin" / "python"
    path = os.environ.get("PYTHONPATH", "")
    if str(MODULE) not in path.split(os.pathsep):
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(MODULE), path]))
        if not os.environ.get("QKV_BENCH_PYTHON") and wanted.exists():
            os.environ["QKV_BENCH_PYTHON"] = str(wanted)
        python = os.environ.get("QKV_BENCH_PYTHON", sys.executable)
        os.execv(python, [python, *sys.argv])


def machine():
    from qkv import _core

    return {
        "cpu": _core.cpu_model(),
        "architecture": platform.machine(),
        "cpus": len(os.sched_getaffinity(0)),
        "targets": _core.probe_targets(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }
