"""The published cases, from the folder that QKV_SHARED names (../shared by default)."""

import json
import os
import pathlib

import numpy as np
import pytest

FOLDER = pathlib.Path(
    os.environ.get("QKV_SHARED") or pathlib.Path(__file__).resolve().parents[3] / "shared") / "conformance"


def cases(kind):
    """One pytest.param a case; one that is skipped, and says why, where there are none."""
    files = sorted((FOLDER / kind).glob("*/case.json"))
    if not files:
        why = f"no cases in {FOLDER.name}/{kind}: QKV_SHARED names the folder that has them"
        return [pytest.param(None, id="absent", marks=pytest.mark.skip(reason=why))]
    return [pytest.param(file, id=file.parent.name) for file in files]


def load(file):
    """(case, inputs, outputs), the arrays by name."""
    case = json.loads(file.read_text())
    arrays = [{x["name"]: np.load(file.parent / x["file"]) for x in case[side]} for side in ("inputs", "outputs")]
    return (case, *arrays)


def printed():
    """One pytest.param a printed example, or one that is skipped."""
    file = FOLDER / "golden_examples.json"
    if not file.exists():
        why = f"no {FOLDER.name}/{file.name}: QKV_SHARED names the folder that has it"
        return [pytest.param(None, id="absent", marks=pytest.mark.skip(reason=why))]
    return [pytest.param(example, id=example["id"]) for example in json.loads(file.read_text())["examples"]]
