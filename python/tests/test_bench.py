"""bench/compare, as far as it needs no peer: what a row means, and that a report is drawn."""

import itertools
import subprocess
import sys
import time
import xml.dom.minidom
from pathlib import Path

import numpy as np
import pytest

import oracle

BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))

import block_problem  # noqa: E402
import peers  # noqa: E402
import plots  # noqa: E402
import problem  # noqa: E402
import report  # noqa: E402
import rounds  # noqa: E402
from worker import Worker  # noqa: E402

SMALL = [
    dict(heads=2, T=20, D=8),
    dict(heads=[4, 2], T=20, D=8, causal=True),
    dict(B=2, heads=2, T=20, D=8, Dv=12, layout="bhdt"),
    dict(heads=[4, 2], T=20, D=8, causal=True, softcap=2),
    dict(heads=2, T=20, D=8, causal=True, bias=True),
    dict(heads=2, T=20, D=8, causal=True, key_lengths=[15]),
    dict(heads=2, T=20, D=8, causal=True, window=[4, 0]),
    dict(heads=2, T=20, D=8, causal=True, weights=3),
]


@pytest.mark.parametrize("row", SMALL, ids=str)
def test_a_problem_is_what_it_says(row):
    p = problem.Problem(name="small", **row)
    q, k, v, bias = p.inputs()
    if p.layout == "bhdt":
        q, k, v = (x.swapaxes(2, 3) for x in (q, k, v))
    wanted, weights, _ = oracle.attention(
        q, k, v, causal="top_left" if p.causal else None, softcap=p.softcap or None, bias=bias,
        key_lengths=p.key_lengths, window=p.window)
    rows = p.sample_rows()
    np.testing.assert_allclose(p.expected(rows), [wanted[r] for r in rows], rtol=1e-12, atol=1e-12)
    assert p.flops() == 2 * np.count_nonzero(weights) * (p.D + p.Dv)


@pytest.mark.parametrize("row", SMALL, ids=str)
def test_we_compute_it(row):
    answers = Worker("qkv", 1).prepare(dict(name="small", **row))
    assert answers["fused"]["error"] < 1e-5 and not answers["fused"]["wrong"]


def test_shapes_are_well_formed():
    names = [p.name for p in problem.load_shapes()]
    assert len(set(names)) == len(names) >= 16
    assert all(p.flops() > 0 for ps in problem.load_sweeps().values() for p in ps)
    for rows in (problem.load_shapes(), block_problem.load_blocks()):
        assert {p.beside for p in rows if p.beside} <= {p.name for p in rows}


def made_up_report():
    rows = []
    for p in problem.load_shapes()[:3]:
        results = {
            "qkv": {"fused": {"seconds": 1e-3, "wrong": False, "error": 1e-7, "count": 5, "dropped": 1, "sampled": True}},
            "torch": {"flash": {"seconds": 3e-3, "wrong": False, "error": 1e-7, "difference": 2e-7},
                      "math": {"seconds": 1e-4, "wrong": True, "error": 0.5}},
            "jax": {"dpa": {"unsupported": "no"}},
        }
        rows.append({**vars(p), "flops": p.flops(), "bytes": p.bytes(), "results": results})
    return {
        "machine": {"cpu": "A < B"}, "threads": 2, "versions": {"qkv": "0"}, "sweeps": [],
        "libraries": ["qkv", "torch", "jax"], "shapes": rows,
        "probes": {"fma": 4000.0, "fma_quartiles": (3800.0, 3900.0), "bandwidth": 20.0, "target": "avx2", "agree": 0.95,
                   "undisturbed": 0.8, "share_of_cores": 1, "fma_itself": (1.001, 0.96)},
    }


def test_table_and_plots(tmp_path):
    made_up = made_up_report()
    lines = report.table(made_up).splitlines()
    assert lines[1].split("  ")[0] == "T1024" and "3.00× PyTorch" in lines[1] and "–" in lines[1]
    assert "PyTorch math gives another result" in report.notes(made_up)
    assert "would have 100.1% by the first %, and 96.0% by the second" in report.notes(made_up)
    assert "– (no)" in report.details(made_up)
    report.save(made_up, tmp_path / "report.json")
    for path in plots.draw(made_up, tmp_path):
        xml.dom.minidom.parse(str(path))
    for n, row in enumerate(made_up["shapes"]):
        row["name"] = f"T={2 ** (n + 5)}"
    made_up["sweeps"] = ["T"]
    for path in plots.draw(made_up, tmp_path):
        xml.dom.minidom.parse(str(path))


def test_goals_say_which_peak_meets_them():
    row = made_up_report()["shapes"][0]
    row["goal"] = [80, 1.4]
    ours = row["results"]["qkv"]["fused"]
    ours["computable"] = row["flops"] / 0.9  # 90 % of the probes beside it
    best = row["flops"] / ours["seconds"] * 1e-9
    assert report.goal_cell(row, best / 0.85) == "met"
    assert report.goal_cell(row, best / 0.7) == "met beside (of the best probe: below 80 %)"
    ours["computable"] = row["flops"] / 0.75
    assert report.goal_cell(row, best / 0.7) == "below 80 %"
    row["goal"] = [60, 3.1]
    assert report.goal_cell(row, best / 0.7) == "below 3.1×"
    row["enough"] = 74
    assert report.goal_cell(row, best / 0.7) == "met beside (of the best probe: below 3.1×)"


def test_the_probe_is_a_contender_too(monkeypatch):
    speeds = itertools.chain([100.0] * 19 + [110.0], itertools.repeat(100.0))  # a clock that was higher for a moment
    monkeypatch.setattr(rounds._core, "fma_probe", lambda threads, target: next(speeds))
    monkeypatch.setattr(rounds._core, "bandwidth_probe", lambda threads: 20.0)
    monkeypatch.setattr(rounds, "SETTLE", 0)
    monkeypatch.setattr(rounds, "SAMPLE", 0.001)
    probes = rounds.Probes(2, "")
    assert probes.shares_of_itself() is None
    probes.sample_itself(2)
    assert probes.shares_of_itself() == (1, 100 / 110)


def test_rows_are_judged_beside_others():
    made_up = made_up_report()
    row = made_up["shapes"][0]
    row.update(beside="another", slower=15)
    variants = row["results"]["qkv"]
    assert report.goal_cell(row, 4000) == ""
    variants["beside"] = {**variants["fused"], "seconds": 1e-3}
    variants["fused"]["seconds"] = 1.1e-3
    assert report.goal_cell(row, 4000) == "+10.0 %: met"
    variants["fused"]["seconds"] = 1.2e-3  # the table's time, though the other one is faster
    assert report.goal_cell(row, 4000) == "+20.0 %: above 15 %"
    assert report.cell(row, "qkv", 4000).startswith("1.2 ")
    assert "qkv another, beside it: 1 ms" in report.details(made_up)
    row.update(slower=None, faster=2)
    variants["fused"]["seconds"] = 4e-4
    assert report.goal_cell(row, 4000) == "2.50× another: met"


def test_two_problems_are_ready_at_once():
    worker = Worker("qkv", 1)
    shape = dict(heads=1, T=24, D=8)
    capped, plain = dict(name="capped", softcap=0.1, **shape), dict(name="no cap", **shape)  # names are seeds
    answers = worker.prepare(capped, beside=plain)
    assert list(answers) == ["fused", "beside"] and not any(answer["wrong"] for answer in answers.values())
    assert worker.run("beside", 2)["seconds"] > 0
    for name, row in (("fused", capped), ("beside", plain)):
        expected = problem.Problem(**row).expected([(0, 0, 23)])[0]
        assert np.abs(np.array(worker.prepared[name].output())[0, 0, 23] - expected).max() < 1e-5
    worker.forget()
    assert not worker.prepared


def test_a_sample_is_the_median_of_its_calls():
    worker, calls = Worker("qkv", 1), iter([0, 0.02, 0, 0])  # one call, while it warms up, then three
    worker.prepared["interrupted"] = peers.Prepared(peers.repeat(lambda: time.sleep(next(calls))), lambda: None)
    assert worker.run("interrupted", 3)["seconds"] < 0.005
    worker.prepared["several at once"] = peers.Prepared(lambda times: time.sleep(0.01), lambda: None)
    assert worker.run("several at once", 2)["seconds"] >= 0.005


def test_what_is_beside_is_sampled_however_long_it_takes():
    def fine(seconds):
        return {"seconds": seconds, "wrong": False}

    assert rounds.worth_sampling({("qkv", "fused"): fine(1), ("qkv", "beside"): fine(3)}) == [("qkv", "fused"), ("qkv", "beside")]
    assert len(rounds.worth_sampling({("qkv", "fused"): fine(3), ("qkv", "beside"): fine(1)})) == 2
    assert rounds.worth_sampling({("qkv", "fused"): {"unsupported": "no"}, ("qkv", "beside"): fine(1)}) == []


def test_narrow_weights_are_ours_alone():
    row = dict(name="small", kind="vit_layer", T=5, dim=128, heads=4, storage="int8")
    answer = Worker("qkv", 1).prepare(row)["fused"]
    assert 1e-3 < answer["error"] < 0.05
    pytest.importorskip("torch")
    assert Worker("torch", 1).prepare(row) == {}


def test_the_program(tmp_path):
    listed = subprocess.run([sys.executable, str(BENCH / "compare"), "--list", "--only-us", "--shapes", "B32-T20"],
                            capture_output=True, text=True, env={"PYTHONPATH": ":".join(sys.path), "QKV_BENCH_PYTHON": sys.executable})
    assert listed.returncode == 0, listed.stderr
    assert listed.stdout.startswith("B32-T20")
    wrong = subprocess.run([sys.executable, str(BENCH / "compare"), "--shapes", "T1"], capture_output=True, text=True,
                           env={"QKV_BENCH_PYTHON": sys.executable})
    assert wrong.returncode != 0 and "--shapes: expected T1024" in wrong.stderr


SMALL_BLOCKS = [
    dict(kind="transformer", B=2, T=5, dim=32, heads=4),
    dict(kind="vit", B=2, T=5, dim=32, heads=4),
    dict(kind="vit_layer", T=5, dim=32, heads=4),
    dict(kind="vit_model", T=197, dim=32, heads=4, layers=2),
    dict(kind="gpt", T=7, dim=32, heads=4),
    dict(kind="detector", B=2, T=16, dim=32, heads=2),
    dict(kind="c2psa", B=2, T=16, dim=64, heads=1),
]


@pytest.mark.parametrize("library, needs", [("qkv", "numpy"), ("torch", "torch"), ("ort", "onnxruntime"),
                                            ("openvino", "openvino")])
@pytest.mark.parametrize("row", SMALL_BLOCKS, ids=lambda row: row["kind"])
def test_blocks_are_the_same_everywhere(library, needs, row):
    pytest.importorskip(needs)
    if library == "ort":
        pytest.importorskip("onnx")
    answers = Worker(library, 1).prepare(dict(name="small", **row), quick=True)
    right = [answer["error"] < 1e-5 for answer in answers.values() if "error" in answer]
    if not right and library == "qkv":
        pytest.skip(str(answers))
    assert right and all(right), answers


def test_blocks_count_their_products():
    rows = {p.name: p for p in block_problem.load_blocks()}
    T, d = 197, 768
    products, scores = 2 * T * 4 * d * d, 2 * T * T * 2 * d
    assert rows["ViT-B attention B1"].flops() == products + scores
    assert rows["ViT-B layer B8"].flops() == 8 * (3 * products + scores)
    assert rows["GPT-2 attention T1024"].flops() == 2 * 1024 * 4 * d * d + 2 * (1024 * 1025 // 2) * 2 * d
