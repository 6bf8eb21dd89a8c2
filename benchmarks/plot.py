"""Plots of the results: `python benchmarks/plot.py benchmarks/results/*.json --out benchmarks/results` (extra `plots`).

The field `benchmark` of a file says what to draw: throughput over the number of environments, seconds per update with
their parts, cost over the number of seeds, the peers beside ours, learning curves, or what a curriculum does.
"""

import argparse
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

PARTS = ("rollout", "update", "propose", "observe", "metrics")


def env_throughput(result: dict[str, Any], axes: Any) -> None:
    """Steps per second over the number of environments, with a line for each restart mode."""
    lines: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for row in result["rows"]:
        if row["what"].startswith("AMaze 13x13, 60"):
            lines[f"AMaze, {row['restart']}"].append((row["n_envs"], row["steps_per_second"]))
        elif row["what"].startswith("MiniGrid"):
            lines["MiniGrid"].append((row["n_envs"], row["steps_per_second"]))
    for name, points in lines.items():
        axes.plot(*zip(*sorted(points), strict=True), marker="o", label=name)
    axes.set(xscale="log", yscale="log", xlabel="environments", ylabel="steps per second")
    axes.legend()


def train_throughput(result: dict[str, Any], axes: Any) -> None:
    """Seconds per update of every program, with its parts if they were measured; over the seeds if they vary."""
    if len({row["seeds"] for row in result["rows"]}) > 1:
        return seeds(result, axes)
    rows = [row for row in result["rows"] if "seconds_per_update" in row]
    names = [
        f"{row['method']}\n{row['model']}"
        + (f" x{row['seeds']}" if row["seeds"] > 1 else "")
        + (f"\n{row['devices']} devices" if row.get("devices", 1) > 1 else "")
        for row in rows
    ]
    if any("parts_of_update" in row for row in rows):
        below = [0.0] * len(rows)
        for part in PARTS:
            heights = [row.get("parts_of_update", {}).get(part, 0.0) for row in rows]
            axes.bar(names, heights, bottom=below, label=part)
            below = [a + b for a, b in zip(below, heights, strict=True)]
        axes.plot(names, [row["seconds_per_update"] for row in rows], "k_", markersize=18, label="the whole step")
        axes.legend()
    else:
        axes.bar(names, [row["seconds_per_update"] for row in rows])
    axes.set(ylabel="seconds per update")
    axes.tick_params(axis="x", labelsize=7)
    axes.figure.set_size_inches(max(8.0, 0.8 * len(rows)), 4.5)


def seeds(result: dict[str, Any], axes: Any) -> None:
    """Cost of an update of S seeds beside S times that of one, with a line for each method and model."""
    axes.set(xlabel="seeds", ylabel="cost of an update, in that of one seed", xscale="log", yscale="log")
    lines: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for row in result["rows"]:
        lines[f"{row['method']}, {row['model']}"].append((row["seeds"], row["seconds_per_update"]))
    for name, points in lines.items():
        counts, times = zip(*sorted(points), strict=True)
        axes.plot(counts, [time / times[0] * counts[0] for time in times], marker="o", label=name)
    axes.plot(counts, counts, "k:", label="S times one seed")
    axes.set_xticks(counts, map(str, counts))
    axes.minorticks_off()
    axes.legend()


def learning_curves(result: dict[str, Any], axes: Any) -> None:
    """Training return over the run: a line for each variant, and a thin line for each of its seeds."""
    for name, curve in result["curves"].items():
        lines = np.array(list(curve["return"].values()))
        tenths = (np.arange(lines.shape[1]) + 0.5) / lines.shape[1]
        label = f"{name}, mean and each of {len(lines)} seeds"
        (mean,) = axes.plot(tenths, lines.mean(axis=0), marker="o", label=label)
        # Not a band from the lowest to the highest seed, which would be read as an interval.
        axes.plot(tenths, lines.T, color=mean.get_color(), linewidth=0.8, alpha=0.5)
    axes.set(xlabel="share of the run", ylabel="training return")
    axes.legend()


def peers(result: dict[str, Any], axes: Any) -> None:
    """How many times as long each peer takes: a bar for each program, with the range of the rounds."""
    found = [(peer, row) for peer in ("minimax", "jaxued") for row in result.get(peer, {}).get("rows", [])]
    rows = sorted(found, key=lambda one: (one[0] != "minimax", *(one[1][by] for by in ("program", "kind", "devices"))))
    for peer in ("minimax", "jaxued"):
        own = [(i, row) for i, (whose, row) in enumerate(rows) if whose == peer]
        if own:
            ratios = np.array([row["ratio"] for _, row in own])
            low, high = np.array([row["ratio_range"] for _, row in own]).T
            axes.bar([i for i, _ in own], ratios, yerr=[ratios - low, high - ratios], label=peer, capsize=3)
    names = [
        row["program"]
        + (", scoring" if row["kind"] == "score" else "")
        + (f", {row['devices']} devices" if row["devices"] > 1 else "")
        for _, row in rows
    ]
    axes.set_xticks(range(len(rows)), names, rotation=90, fontsize=8)
    axes.axhline(1.0, color="k", linestyle=":")
    axes.figure.set_size_inches(max(8.0, 0.35 * len(rows)), 5.0)
    axes.set(ylabel="times as long as ours", yscale="log")
    axes.legend()


def stale_replay(result: dict[str, Any], axes: Any) -> None:
    """Solved rate over the delay of the scores: while it trained, and on the evaluation tasks at the end."""
    delays = [row["delay"] for row in result["rows"]]
    places = np.arange(len(delays))
    over_run = np.array([[np.mean(parts) for parts in row["solved_rate"].values()] for row in result["rows"]])
    at_end = np.array([list(row["solved_on_tasks_at_end"].values()) for row in result["rows"]])
    for seeds, label in ((over_run, "training levels, over the run"), (at_end, "evaluation tasks, at the end")):
        (mean,) = axes.plot(places, seeds.mean(axis=1), marker="o", label=f"{label}; mean and each seed")
        axes.plot(places, seeds, color=mean.get_color(), linestyle="", marker=".", alpha=0.6)
    axes.set_xticks(places, delays)
    axes.set(xlabel="updates by which scores are late", ylabel="solved rate")
    axes.legend()


def task_curves(result: dict[str, Any], axes: Any) -> None:
    """The return on the whole range, and dashed how much of the range the tasks have."""
    right = axes.twinx()
    for name, runs in result["curves"].items():
        steps = [row["steps"] for row in next(iter(runs.values()))]
        returns = np.array([[row["return"] for row in rows] for rows in runs.values()])
        widths = np.array([[row["width"] for row in rows] for rows in runs.values()])
        (mean,) = axes.plot(steps, returns.mean(axis=0), label=name)
        right.plot(steps, widths.mean(axis=0), color=mean.get_color(), linestyle="--", linewidth=0.9)
    axes.set(xlabel="environment steps", ylabel=f"return on the whole range, mean of {len(returns)} seeds")
    right.set(ylabel="range of the first states (dashed)")
    axes.legend(loc="lower right")


PLOTS = {
    "env_throughput": env_throughput,
    "train_throughput": train_throughput,
    "learning_curves": learning_curves,
    "peers": peers,
    "stale_replay": stale_replay,
    "task_curves": task_curves,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    args = parser.parse_args()
    for file in args.files:
        result = json.loads(file.read_text())
        draw = PLOTS.get(result.get("benchmark", ""))
        if draw is None:
            print(f"{file}: nothing to draw")
            continue
        figure, axes = plt.subplots(figsize=(8, 4.5))
        draw(result, axes)
        axes.grid(alpha=0.3)
        facts = next(part for part in (result, *result.values()) if isinstance(part, dict) and "device" in part)
        machine = ", ".join(facts[name] for name in ("processor", "device") if name in facts)  # older files lack one
        axes.set_title(f"{result['benchmark']}: {machine}, revision {facts['revision']}", fontsize=9)
        args.out.mkdir(parents=True, exist_ok=True)
        path = args.out / f"{file.stem}.png"
        figure.savefig(path, dpi=110, bbox_inches="tight")
        plt.close(figure)
        print(path)


if __name__ == "__main__":
    main()
