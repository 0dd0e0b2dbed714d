"""All contenders on one problem, in rounds: each runs once a round, between two probes.

What a core can do changes by the second on a machine that is shared: its clock follows what others do. So
samples are short and many, and each is compared with what the machine could do at that moment: the better of
the two probes beside it. A sample counts only if these agree, so that it was one moment, and nobody else had
the cores meanwhile. Contenders are processes of their own (worker.py), of which one runs at a time.
"""

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from qkv import _core

AGREE = 0.95  # of the better of the two FMA probes beside a sample, by the other
UNDISTURBED = 0.8  # of the run's best FMA probe, by both: below that somebody else is on the cores
STEADY = 0.85  # of the better of two bandwidth probes, by the other
OTHERS = 0.08  # of the cores' time during a sample that others may have had; or a tick, which is how finely that is known
SETTLE = 0.05  # seconds that idle threads of the last contender may still spin (ONNX Runtime's: 30 ms)
PATIENCE = 10  # probes that a sample waits for a quiet moment
SAMPLE = 0.05  # seconds that a sample takes at least, by repetition


def busy_seconds():
    """What all CPUs of this machine have worked, and what its host took away; 0 where that is not told."""
    try:
        with open("/proc/stat") as file:
            user, nice, system, _idle, _wait, irq, softirq, steal = map(int, file.readline().split()[1:9])
    except OSError:
        return 0.0
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def others_allowed(seconds):
    """The share of so many seconds of all cores together that may be missing, of a sample that counts."""
    return max(OTHERS, 1.5 / os.sysconf("SC_CLK_TCK") / seconds)


class Contender:
    """A library, behind its pipe."""

    def __init__(self, library, threads, target):
        environment = dict(os.environ, OMP_NUM_THREADS=str(threads), TF_CPP_MIN_LOG_LEVEL="2")
        if target:
            environment["QKV_TARGET"] = target
        self.library = library
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("worker.py")), library, str(threads)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
            start_new_session=True)  # Ctrl-C ends this process, not those

    def ask(self, do, **arguments):
        try:
            self.process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise RuntimeError(f"{self.library}: its process ended (exit code {self.process.wait()})")
        return json.loads(answer)

    def close(self):
        self.process.stdin.close()
        self.process.wait()

    def kill(self):
        """Whatever it is at."""
        self.process.kill()
        self.process.wait()


class Probes:
    """What the machine could do beside each sample."""

    def __init__(self, threads, target):
        self.threads, self.target = threads, target or ""
        self.fma, self.bandwidth = [], []
        self.samples_of_itself = []
        for _ in range(20):  # the peak, before anything is judged by it
            self.measure(memory=True)

    def measure(self, memory):
        """(GFLOP/s, GB/s) of this moment; the latter is the last one known where `memory` does not matter."""
        time.sleep(SETTLE)
        self.fma.append(_core.fma_probe(self.threads, self.target))
        if memory:
            self.bandwidth.append(_core.bandwidth_probe(self.threads))
        return self.fma[-1], self.bandwidth[-1]

    def wait_for_quiet(self, now, memory):
        """The probe before a sample: `now`, or a later one if that was disturbed."""
        for _ in range(PATIENCE):
            if self.is_quiet(now, now):
                break
            now = self.measure(memory)
        return now

    def peak(self):
        """No probe can be too fast: the best is what the machine can do."""
        return max(self.fma), max(self.bandwidth)

    def sample_itself(self, times=3):
        """What a sample of a contender would be that does nothing but multiply-adds."""
        after = self.measure(memory=False)
        for _ in range(times):
            before, end = self.wait_for_quiet(after, False), time.perf_counter() + SAMPLE
            calls = [_core.fma_probe(self.threads, self.target)]
            while time.perf_counter() < end:
                calls.append(_core.fma_probe(self.threads, self.target))
            after = self.measure(memory=False)
            if self.is_quiet(before, after):
                self.samples_of_itself.append((statistics.median(calls), max(before[0], after[0])))

    def shares_of_itself(self):
        """How much of the probes beside it, and of the best one of the run, the FMA loop gets as a contender; or None."""
        if not self.samples_of_itself:
            return None
        peak = max(self.fma)
        return (statistics.median(own / beside for own, beside in self.samples_of_itself),
                statistics.median(own / peak for own, _ in self.samples_of_itself))

    def quartiles(self):
        """Between which half of the FMA probes were."""
        low, _, high = statistics.quantiles(self.fma, n=4)
        return low, high

    def is_quiet(self, before, after):
        """Whether the machine was undisturbed, and the same one, in two probes."""
        low, high = sorted((before[0], after[0]))
        return low >= UNDISTURBED * self.peak()[0] and low >= AGREE * high

    def share_of_cores(self):
        """What all threads reach, of as many times what one reaches: near 1 on a machine of one's own."""
        alone = max(_core.fma_probe(1, self.target) for _ in range(5))
        return max(self.fma) / (alone * self.threads)


def prepare(problem, beside, contenders, quick, log):
    """{(library, variant): result so far}; a library that failed is reported and left out. Of qkv, `beside` is a variant."""
    results = {}
    for contender in list(contenders):
        try:
            judged = beside and contender.library == "qkv"
            answers = contender.ask("prepare", shape=problem.facts(), quick=quick,
                                    beside=beside.facts() if judged else None)
        except RuntimeError as error:
            log(f"  {error}")
            contenders.remove(contender)
            continue
        for variant, answer in answers.items():
            results[contender.library, variant] = {**answer, "samples": []}
    return results


def compare_outputs(contenders, results):
    """Each peer's whole output against ours, if we are there."""
    if "seconds" not in results.get(("qkv", "fused"), {}):
        return
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "ours.npy")
        by_name = {contender.library: contender for contender in contenders}
        by_name["qkv"].ask("save", variant="fused", path=path)
        for (library, variant), result in results.items():
            if "seconds" in result and library != "qkv":
                result.update(by_name[library].ask("difference", variant=variant, path=path))


def worth_sampling(results):
    """Variants within reach of their library's best one, by the first measurement."""
    best = {}
    for (library, variant), result in results.items():
        if "seconds" in result and not result["wrong"] and variant != "beside":
            best[library] = min(best.get(library, 1e9), result["seconds"])
    return [key for key, result in results.items() if "seconds" in result and not result["wrong"]
            and key[0] in best and (key[1] == "beside" or result["seconds"] < 1.6 * best[key[0]])]


def sample(contenders, results, chosen, probes, rounds, budget, memory):
    """Fills results[…]["samples"]."""
    by_name = {contender.library: contender for contender in contenders}
    for library, contender in by_name.items():
        contender.ask("keep", variants=[variant for name, variant in chosen if name == library])
    after = probes.measure(memory)
    for turn in range(3 * rounds):  # `rounds` good samples; a busy machine gets three chances for each
        start = turn % len(chosen)
        for library, variant in chosen[start:] + chosen[:start]:
            result = results[library, variant]
            good = sum(sample["quiet"] for sample in result["samples"])
            if good >= rounds or good >= 3 and result.get("spent", 0) > budget:
                continue
            if result.get("spent", 0) > 3 * budget and len(result["samples"]) >= 3:
                continue  # slow, and no quiet moment to be had: the others go on without it
            times = max(2 if variant == "throughput" else 1, math.ceil(SAMPLE / result["seconds"]))
            before, busy = probes.wait_for_quiet(after, memory), busy_seconds()
            answer = by_name[library].ask("run", variant=variant, times=times)
            spent = answer["lasted"]
            others = (busy_seconds() - busy - answer["worked"]) / (spent * probes.threads)
            after = probes.measure(memory)
            quiet = probes.is_quiet(before, after) and others < others_allowed(spent * probes.threads)
            if memory:  # shared with other machines of the host, whose turns take seconds
                quiet = quiet and min(before[1], after[1]) >= STEADY * max(before[1], after[1])
            result["samples"].append({
                "seconds": answer["seconds"], "quiet": quiet, "others": others,
                "fma": max(before[0], after[0]), "bandwidth": (before[1] + after[1]) / 2})
            result["spent"] = result.get("spent", 0) + spent


def summarise(results):
    """Samples become a median of the undisturbed ones; fewer than 3, and it is of the least disturbed, with a mark."""
    for result in results.values():
        samples = result.pop("samples", [])
        result.pop("spent", None)
        if not samples:
            continue
        good = [sample for sample in samples if sample["quiet"]]
        result["count"], result["dropped"] = len(samples), len(samples) - len(good)
        result["noisy"] = len(good) < 3
        if result["noisy"]:
            good = sorted(samples, key=lambda sample: sample["others"])[:3]
        result["seconds"] = statistics.median(sample["seconds"] for sample in good)
        # What could have been computed, and read, in that time at that moment.
        result["computable"] = statistics.median(s["seconds"] * s["fma"] for s in good) * 1e9
        result["readable"] = statistics.median(s["seconds"] * s["bandwidth"] for s in good) * 1e9
        result["fastest"] = min(sample["seconds"] for sample in samples)
        result["sampled"] = True


def measure(problem, beside, contenders, probes, rounds, budget, quick, log):
    """{library: {variant: result}} of one problem; of qkv also "beside", of another one in the same rounds if it is given."""
    results = prepare(problem, beside, contenders, quick, log)
    compare_outputs(contenders, results)
    chosen = worth_sampling(results)
    if chosen:
        sample(contenders, results, chosen, probes, rounds, budget, getattr(problem, "memory", False))
    summarise(results)
    for contender in contenders:
        contender.ask("forget")
    tree = {}
    for (library, variant), result in results.items():
        tree.setdefault(library, {})[variant] = result
    return tree


def best_variant(variants):
    """(name, result) of a library's fastest right answer; None if it has none."""
    right = [(not result.get("sampled"), result["seconds"], name) for name, result in (variants or {}).items()
             if "seconds" in result and not result["wrong"] and name != "beside"]
    if not right:
        return None
    name = min(right)[2]
    return name, variants[name]
