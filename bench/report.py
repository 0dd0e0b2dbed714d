"""The table that is printed, and the JSON that is saved."""

import json
import math
from pathlib import Path

from rounds import best_variant

TITLES = {"qkv": "qkv", "torch": "PyTorch", "ort": "ONNX Runtime", "openvino": "OpenVINO", "jax": "JAX"}


def milliseconds(seconds):
    ms = seconds * 1e3
    return f"{ms:.3g}" if ms < 100 else f"{ms:.0f}"


def percent_of_peak(row, result, peak):
    """Of the FMA peak beside the samples or, where reading is all there is to do, of the bandwidth."""
    if row.get("memory") and result.get("readable"):
        return 100 * row["bytes"] / result["readable"]
    if result.get("computable"):
        return 100 * row["flops"] / result["computable"]
    return percent_of_best(row, result, peak)


def percent_of_best(row, result, peak):
    """Of the best FMA probe of the run, which may be of a moment at which the clock was higher."""
    return 100 * row["flops"] / result["seconds"] / (peak * 1e9)


def ratio_to_best_peer(row):
    """(best peer's time / our time, its library), or None."""
    ours = best_variant(row["results"].get("qkv"))
    peers = [(best[1]["seconds"], library) for library, variants in row["results"].items()
             if library != "qkv" and (best := best_variant(variants))]
    if not ours or not peers:
        return None
    seconds, library = min(peers)
    return seconds / ours[1]["seconds"], library


def cell(row, library, peak):
    best = best_variant(row["results"].get(library))
    if not best:
        return "–"
    name, result = best
    mark = "~" if result.get("noisy") else ""
    share = f"{percent_of_peak(row, result, peak):.0f}"
    if library != "qkv":
        return f"{milliseconds(result['seconds'])}{mark} ({share}) {name}"
    if not row.get("memory"):
        share += f", {percent_of_best(row, result, peak):.0f}"
    return f"{milliseconds(result['seconds'])}{mark} ({share})"


def beside_cell(row):
    """Whether a row is as fast as it should be beside another row of ours, which ran in the same rounds."""
    variants = row["results"].get("qkv") or {}
    ours, other = best_variant(variants), variants.get("beside")
    if not ours or not other or not other.get("sampled"):
        return ""
    times = other["seconds"] / ours[1]["seconds"]
    mark = "~" if ours[1].get("noisy") or other.get("noisy") else ""
    if row.get("faster"):
        off = f", {ours[1]['error']:.1%} off" if row.get("storage") else ""
        return f"{mark}{times:.2f}× {row['beside']}{off}: " + ("met" if times >= row["faster"] else f"below {row['faster']}×")
    percent = 100 * (1 / times - 1)
    return f"{mark}{percent:+.1f} %: " + ("met" if percent <= row["slower"] else f"above {row['slower']} %")


def missing(row, share, ratio):
    """What of a row's goal is not reached with this share of the FMA peak."""
    wanted_share, wanted_ratio = row["goal"]
    below = [f"{wanted_share} %"] if share < wanted_share else []
    if ratio < wanted_ratio and share < row.get("enough", 82):
        below.append(f"{wanted_ratio}×")
    return ", ".join(below)


def goal_cell(row, peak):
    """Whether the row's goal is met: the share of the peak, and the ratio (or enough of that peak). By the best probe of the
    run if it can be; else by those beside the samples, and then it says so."""
    if row.get("beside"):
        return beside_cell(row)
    ours, ratio = best_variant(row["results"].get("qkv")), ratio_to_best_peer(row)
    if not row.get("goal") or not ours or not ratio:
        return ""
    beside = missing(row, percent_of_peak(row, ours[1], peak), ratio[0])
    best = "" if row.get("memory") else missing(row, percent_of_best(row, ours[1], peak), ratio[0])
    if beside:
        return f"below {beside}"
    return f"met beside (of the best probe: below {best})" if best else "met"


def line(report):
    """The last row, in words."""
    row, peak = report["shapes"][-1], report["probes"]["fma"]
    ratio = ratio_to_best_peer(row)
    words = [f"{TITLES[name]} {cell(row, name, peak)}" for name in report["libraries"]]
    return ", ".join(words + ([f"{ratio[0]:.2f}×"] if ratio else []))


def table(report):
    """Rows of text, columns aligned."""
    libraries, peak = report["libraries"], report["probes"]["fma"]
    header = ["shape", *(TITLES[name] for name in libraries), "best peer / qkv", "goal"]
    lines = [header]
    for row in report["shapes"]:
        ratio = ratio_to_best_peer(row)
        lines.append([row["name"], *(cell(row, name, peak) for name in libraries),
                      f"{ratio[0]:.2f}× {TITLES[ratio[1]]}" if ratio else "–", goal_cell(row, peak)])
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    return "\n".join("  ".join(text.ljust(width) for text, width in zip(line, widths)).rstrip()
                     for line in lines)


def notes(report):
    """What a reader of the table has to know, a line each."""
    probes = report["probes"]
    lines = [
        f"ms (% of the FMA peak; decode: of the bandwidth), {report['threads']} threads, f32, medians (of OpenVINO's throughput "
        f"mode: of means); {report['machine']['cpu']}",
        f"peak: the better of the two FMA probes beside each sample ({probes['target']}; of all probes half were within "
        f"{probes['fma_quartiles'][0]:.0f}–{probes['fma_quartiles'][1]:.0f} GFLOP/s, the best {probes['fma']:.0f}: of that is "
        f"the second %); {probes['bandwidth']:.1f} GB/s from memory",
        f"dropped: samples whose probes differ by more than {1 - probes['agree']:.0%} or are below "
        f"{probes['undisturbed']:.0%} of the best, or while others worked; ~ where fewer than 3 are left",
        "goals are judged by either %, and say where only the first one meets them; a row beside another one, by what that one "
        "takes in the same rounds",
    ]
    if probes.get("fma_itself"):
        beside, best = probes["fma_itself"]
        lines.append(f"a contender that does nothing but multiply-adds would have {beside:.1%} by the first %, and {best:.1%} by "
                     "the second")
    if probes["share_of_cores"] < 0.8:
        lines.append(f"all threads together reached {probes['share_of_cores']:.0%} of what each can alone: the machine "
                     "is busy with something else, and these figures are worth little")
    for row in report["shapes"]:
        for library, variants in row["results"].items():
            for name, result in variants.items():
                if result.get("wrong"):
                    lines.append(f"{row['name']}: {TITLES[library]} {row['beside'] if name == 'beside' else name} gives another result "
                                 f"(error {result['error']:.1e}): not counted")
    far = [result["difference"] for row in report["shapes"] for variants in row["results"].values()
           for result in variants.values() if "difference" in result and not result["wrong"]]
    if far:
        lines.append(f"largest difference between our output and a peer's: {max(far):.1e}")
    return "\n".join(lines)


def details(report):
    """Every variant of every library: what was tried, and why it is not in the table."""
    peak, lines = report["probes"]["fma"], []
    for row in report["shapes"]:
        lines.append(f"{row['name']}: {row['flops'] / 1e9:.3g} GFLOP")
        for library, variants in row["results"].items():
            for name, result in variants.items():
                if name == "beside":
                    time = f"{milliseconds(result['seconds'])} ms" if "seconds" in result else f"– ({result['unsupported']})"
                    lines.append(f"  {TITLES[library]} {row['beside']}, beside it: {time}")
                    continue
                label = f"  {TITLES[library]} {name}"
                if "seconds" not in result:
                    lines.append(f"{label}: – ({result['unsupported']})")
                    continue
                share = percent_of_peak(row, result, peak)
                counted = (f"{result['count'] - result['dropped']} of {result['count']} samples"
                           if result.get("sampled") else "tried once, too slow to go on")
                lines.append(f"{label}: {milliseconds(result['seconds'])} ms, {share:.1f} %, "
                             f"{percent_of_best(row, result, peak):.1f} % of the best probe, {counted}, "
                             f"error {result['error']:.1e}"
                             + (f", from ours {result['difference']:.1e}" if "difference" in result else ""))
    return "\n".join(lines)


def save(report, path):
    """JSON without NaN, written whole."""

    def clean(value):
        if isinstance(value, dict):
            return {str(key): clean(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [clean(item) for item in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    aside = Path(f"{path}.part")
    aside.write_text(json.dumps(clean(report), indent=1, ensure_ascii=False) + "\n")
    aside.replace(path)
