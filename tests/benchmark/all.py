"""All benchmarks against goals of the data plane, in one table.

    bazel run //tests/benchmark:all -- --table [--rounds=5] [--seconds=0.5] [--only=bulk_goodput]

Runs each program with --json, one after the other, and prints measure, ours, baseline, ratio and
goal. Without --table: the JSON of all of them. Exit codes: 0 every goal that is measured is
reached, 1 one is not, 2 a program failed.
"""

import argparse
import json
import os
import subprocess
import sys

PROGRAMS = ("bulk_goodput", "dense_push_pull", "shared_memory", "small_rows", "sparse_push_pull",
            "sparse_table", "optimizer_speed", "server_scaling")
ALONE = ("optimizer_speed", "server_scaling", "sparse_table")  # Without servers.
WITHOUT_BASELINE = ("shared_memory",)  # Process.


def parse_args():
    parser = argparse.ArgumentParser(description="Runs all benchmarks that have a goal.")
    parser.add_argument("--programs", required=True, help="folder of the programs")
    parser.add_argument("--server", required=True, help="capstan-server")
    parser.add_argument("--baseline", required=True, help="baseline_server")
    parser.add_argument("--table", action="store_true", help="a table instead of JSON")
    parser.add_argument("--only", choices=PROGRAMS, help="one program alone")
    parser.add_argument("--rounds", type=int, default=5, help="rounds, at least 5")
    parser.add_argument("--seconds", type=float, default=0.5, help="of one turn")
    return parser.parse_args()


def command_of(program, args):
    command = [os.path.join(args.programs, program), "--json", f"--rounds={args.rounds}",
               f"--seconds={args.seconds}"]
    if program not in ALONE:
        command.append(f"--server={args.server}")
    if program not in ALONE + WITHOUT_BASELINE:
        command.append(f"--baseline={args.baseline}")
    return command


def measure(program, args):
    """The program's comparisons; None if it failed."""
    done = subprocess.run(command_of(program, args), stdout=subprocess.PIPE, check=False)
    if done.returncode not in (0, 1):
        print(f"{program} failed with exit code {done.returncode}", file=sys.stderr)
        return None
    return json.loads(done.stdout)


def row_of(comparison):
    verdict = "reached" if comparison.get("reached") else "missed"
    if "at_most" in comparison:
        unit = comparison["unit"]
        return (comparison["measure"], f"{comparison['value']:.2f} {unit}", "-", "-",
                f"at most {comparison['at_most']:.2f} {unit} {verdict}")
    ours, baseline = comparison["ours"], comparison["baseline"]
    goal = "-"
    if "goal" in comparison:
        goal = f"{comparison['goal']:.2f} {verdict}"
    return (comparison["measure"], f"{ours['gb_per_s']:.2f} GB/s",
            f"{baseline['name']}: {baseline['gb_per_s']:.2f} GB/s",
            f"{comparison['ratio']:.2f} ({comparison['ratio_low']:.2f} to "
            f"{comparison['ratio_high']:.2f})", goal)


def print_table(comparisons):
    rows = [("measure", "ours", "baseline", "ratio", "goal")] + [row_of(c) for c in comparisons]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    rows.insert(1, tuple("-" * width for width in widths))
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths))
        print("| " + " | ".join(cells) + " |")


def main():
    args = parse_args()
    comparisons, failed = [], False
    for program in [args.only] if args.only else PROGRAMS:
        measured = measure(program, args)
        failed |= measured is None
        comparisons += measured or []
    if args.table:
        print_table(comparisons)
    else:
        print(json.dumps(comparisons, indent=1))
    if failed:
        return 2
    return 0 if all(comparison.get("reached", True) for comparison in comparisons) else 1


if __name__ == "__main__":
    sys.exit(main())
