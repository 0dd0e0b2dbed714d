"""What users copy has to run: the scripts in examples/python, and the README's Python."""

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


def test_there_are_some():
    assert len(README) >= 2 and len(SCRIPTS) >= 2
