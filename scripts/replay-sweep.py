#!/usr/bin/env python3
"""Replays traces under several placements, volumes and seeds, and prints one table of them all.

    scripts/replay-sweep.py --crux target/release/crux --seeds 1 2 3 --volumes 4 8 16
    scripts/replay-sweep.py --table

A cell is the GPU utilisation in percent and, in brackets, the slowdown of the slowest job. `crux` is
Crux with compared plans, `one level` the same on one level, `plain` the phases of the paper alone.
A second table compares decisions on the same jobs: at each event of the replay under `crux`, what the
plan in force and the alternatives give to the jobs present, over the whole replay, and in brackets
the share of GPU time in which the alternative is better by more than 0.2 points.
What has been replayed is kept in a file (`--raw`) after every replay and not replayed again, so a
sweep can be interrupted; `--table` only prints what that file has.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
RAW = ROOT / "target/replays.json"
CLOS = ROOT / "topology/fabrics/crux-clos-173x16.toml"

# Name of a column: the scheduler, the levels, and the events that comparing plans may cost.
VARIANTS = {
    "ecmp": ("ecmp", 8, 0),
    "sincronia": ("sincronia", 8, 0),
    "taccl": ("taccl", 8, 0),
    "cassini": ("cassini", 8, 0),
    "one level": ("crux", 1, 50_000),
    "plain": ("crux", 8, 0),
    "crux": ("crux", 8, 50_000),
}

# What is judged beside `crux` at every event.
ALTERNATIVES = ["ecmp", "sincronia", "taccl", "cassini", "one-level", "unsearched"]


def arguments():
    parser = argparse.ArgumentParser(description="Replay traces and print one table.")
    parser.add_argument("--crux", default="crux", help="the crux program")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--volumes", type=float, nargs="+", default=[16.0])
    parser.add_argument("--placements", nargs="+", default=["first-fit"])
    parser.add_argument("--uplinks", type=float, nargs="+", default=[400.0], help="Gb/s")
    parser.add_argument("--days", type=float, default=1.2, help="of the trace")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--raw", type=pathlib.Path, default=RAW, help="keeps the results")
    parser.add_argument("--table", action="store_true", help="replay nothing")
    return parser.parse_args()


def cases(options):
    """All replays, those of the first seed first."""
    for seed in options.seeds:
        for placement in options.placements:
            for uplink in options.uplinks:
                for volume in options.volumes:
                    for variant in options.variants:
                        yield {
                            "placement": placement,
                            "uplink_gbps": uplink,
                            "volume": volume,
                            "days": options.days,
                            "seed": seed,
                            "variant": variant,
                        }


def replay(crux, case, folder):
    """The outcome of one replay."""
    scheduler, levels, events = VARIANTS[case["variant"]]
    fabric, rules = folder / "clos.toml", folder / "policy.toml"
    uplink = f"uplink_gbps = {case['uplink_gbps']}"
    fabric.write_text(re.sub(r"^uplink_gbps = .*$", uplink, CLOS.read_text(), flags=re.M))
    rules.write_text(f"levels = {levels}\n")
    command = [crux, "replay", "--trace", "lingjun-like", "--days", str(case["days"])]
    command += ["--fabric", str(fabric), "--policy", str(rules), "--format", "json"]
    command += ["--placement", case["placement"], "--volume", str(case["volume"])]
    command += ["--seed", str(case["seed"]), "--scheduler", scheduler]
    command += ["--search-events", str(events)]
    if case["variant"] == "crux":
        command += ["--alternatives", ",".join(ALTERNATIVES)]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    outcome = json.loads(printed)["outcomes"][0]
    kept = ["gpu_utilization", "mean_slowdown", "worst_slowdown", "completed", "unsure"]
    kept += ["alternatives"] if "alternatives" in outcome else []
    return case | {name: outcome[name] for name in kept}


def print_decisions(outcomes):
    """A row for each replay under Crux: GPU utilisation in force and under each alternative."""
    print("| placement, uplink Gb/s, volume, seed | in force |", " | ".join(ALTERNATIVES), "|")
    print("|---" * (len(ALTERNATIVES) + 2) + "|")
    for outcome in sorted(outcomes, key=replay_name):
        found = outcome["alternatives"]
        cells = [f"{found[0]['in_force'] * 100:.2f}"]
        cells += [f"{of['gpu_utilization'] * 100:.2f} ({of['ahead'] * 100:.1f} %)" for of in found]
        print(f"| {replay_name(outcome)} |", " | ".join(cells), "|")


def replay_name(outcome):
    placement, uplink = outcome["placement"], outcome["uplink_gbps"]
    return f"{placement}, {uplink:g}, x{outcome['volume']:g}, {outcome['seed']}"


def print_table(outcomes):
    """A row for each placement, uplink, volume and seed; a column for each variant."""
    rows = {}
    for outcome in outcomes:
        cell = f"{outcome['gpu_utilization'] * 100:.1f} ({outcome['worst_slowdown']:.1f})"
        rows.setdefault(replay_name(outcome), {})[outcome["variant"]] = cell
    columns = [name for name in VARIANTS if any(name in row for row in rows.values())]
    print("| placement, uplink Gb/s, volume, seed |", " | ".join(columns), "|")
    print("|---" * (len(columns) + 1) + "|")
    for name, row in sorted(rows.items()):
        print(f"| {name} |", " | ".join(row.get(column, "-") for column in columns), "|")


def main():
    options = arguments()
    outcomes = json.loads(options.raw.read_text()) if options.raw.exists() else []
    with tempfile.TemporaryDirectory() as folder:
        for case in cases(options) if not options.table else []:
            if any(case.items() <= outcome.items() for outcome in outcomes):
                continue
            print(", ".join(str(value) for value in case.values()), file=sys.stderr)
            outcomes.append(replay(options.crux, case, pathlib.Path(folder)))
            options.raw.write_text(json.dumps(outcomes, indent=1) + "\n")
    print_table(outcomes)
    compared = [outcome for outcome in outcomes if outcome.get("alternatives")]
    if compared:
        print()
        print_decisions(compared)


if __name__ == "__main__":
    main()
