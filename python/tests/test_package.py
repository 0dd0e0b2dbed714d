"""The package itself."""

import ast
import doctest
import importlib
import pathlib
import subprocess
import sys

import pytest
from tiny_models import make_parrot, make_vit

import qkv
import qkv._core


@pytest.mark.parametrize("module, needs", [
    ("qkv", "numpy"),
    ("qkv._attention", "numpy"),
    ("qkv._blocks", "numpy"),
    ("qkv._explain", "numpy"),
    ("qkv._gpt", "numpy"),
    ("qkv._kv_cache", "numpy"),
    ("qkv._layers", "numpy"),
    ("qkv._onnx", "numpy"),
    ("qkv._plan", "numpy"),
    ("qkv._threads", "numpy"),
    ("qkv.torch", "torch"),
    ("qkv.transformers", "transformers"),
])
def test_examples_in_docstrings(module, needs, tmp_path, monkeypatch):
    pytest.importorskip(needs)
    # Small ones behind the names that the examples open.
    for name in ("gpt2", "vit-base-patch16-224"):
        (tmp_path / name).mkdir()
    make_parrot(tmp_path / "gpt2", b"nce upon a time, there was a cat.")
    make_vit(tmp_path / "vit-base-patch16-224", 1000)
    monkeypatch.chdir(tmp_path)
    result = doctest.testmod(importlib.import_module(module))
    assert result.attempted > 0 and result.failed == 0


def test_import_brings_no_framework():
    loaded = "import qkv, sys; print([m for m in ('numpy', 'torch', 'jax') if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", loaded], text=True).strip() == "[]"


def test_probes_measure_something():
    targets = qkv._core.probe_targets()
    assert all(qkv._core.fma_probe(1, target) > 0.1 for target in targets)
    assert qkv._core.fma_probe(2) > 0.1
    with pytest.raises(ValueError, match="target: expected one of .*, found mmx"):
        qkv._core.fma_probe(1, "mmx")
    assert qkv._core.bandwidth_probe(2) > 0.01


def test_every_public_function_has_an_example():
    for name in qkv.__all__:
        thing = getattr(qkv, name)
        if callable(thing) and name not in ("Explanation", "OnnxAttentionOutputs", "Plan", "Step", "Token"):
            assert ">>>" in (thing.__doc__ or ""), name


def test_info():
    info = qkv.info()
    assert set(info) == {"version", "cpu", "targets", "threads", "threading", "projection", "npz"}
    assert info["threads"] == qkv.num_threads() and "scalar" in info["targets"]


def test_import_is_fast():
    """50 ms of the CPU, since the machine may be busy: the best of a few."""
    code = "import time, numpy; t = time.process_time(); import qkv; print(time.process_time() - t)"
    run = lambda: float(subprocess.check_output([sys.executable, "-c", code], text=True))  # noqa: E731
    assert min(run() for _ in range(5)) < 0.05


def test_stubs_and_module_agree():
    folder = pathlib.Path(qkv.__file__).parent
    assert (folder / "py.typed").exists()
    stubs = ast.parse((folder / "_core.pyi").read_text())
    named = {n.name for n in stubs.body if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
    assert named == {n for n in dir(qkv._core) if not n.startswith("_")}


def test_pages_are_made_of_the_docstrings():
    script = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "python-docs"
    subprocess.run([sys.executable, str(script), "--check"], check=True)
