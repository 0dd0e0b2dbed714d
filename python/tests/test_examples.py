"""What users copy has to run: scripts and notebooks in examples/python, and the README's Python."""

import ast
import json
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
README = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)
SCRIPTS = {p.name: p.read_text() for p in sorted((ROOT / "examples" / "python").glob("*.py"))}
PIECES = {**{f"README {n}": code for n, code in enumerate(README)}, **SCRIPTS}


@pytest.mark.parametrize("code", PIECES.values(), ids=PIECES.keys())
def test_runs(code):
    for library in ("torch", "transformers"):
        if re.search(rf"import .*\b{library}\b", code):
            pytest.importorskip(library)
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def shown_by(cell, names):
    """What a notebook shows of a cell: its last line, if that is an expression."""
    tree = ast.parse("".join(cell["source"]))
    last = ast.Expression(tree.body.pop().value) if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    return None if last is None else eval(compile(last, "cell", "eval"), names)


def test_notebook():
    notebook = json.loads((ROOT / "examples" / "python" / "explain.ipynb").read_text())
    names = {}
    shown = [shown_by(c, names) for c in notebook["cells"] if c["cell_type"] == "code"]
    assert [hasattr(x, "_repr_html_") for x in shown] == [True, False, True, True]
    assert all("<table>" in x._repr_html_() for x in shown if hasattr(x, "_repr_html_"))


def test_there_are_some():
    assert len(README) >= 2 and len(SCRIPTS) >= 2
