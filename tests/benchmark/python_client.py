"""What the Python package costs, and how it compares: PyTorch scripts alone, with DDP, and as jobs.

One compute thread for each process; samples/s from a script's tenth batch to its last:

    lenet, resnet18   1 worker and 1 server, against the script alone; goal 0.9
    lenet, 2 workers  2 workers and 1 server, BSP, against DistributedDataParallel with gloo and two
                      processes; goal 1.0
    clicks            1 worker and 1 server, rows by key out of 10^7, against torch.nn.EmbeddingBag
                      in one process, with sparse gradients and Adagrad; for reference

And tables at a program's own pace, 1 worker and 1 server, against the same calls of the C interface
from C++ (`table_rounds`):

    tables    rounds that push to and pull from 64 tables of 1 MiB; goal 0.9 of C++
    table     a push and a pull of one table of 1 KiB; goal: at most 60 us more than C++

Exit codes: 0 the goals are met, 1 one is not.
"""

import argparse
import dataclasses
import json
import statistics
import subprocess
import sys
from typing import Optional

import cluster
import programs

WARM_UP = 10  # Batches of each process that are not counted.


@dataclasses.dataclass
class Case:
    name: str
    model: str
    batch: int
    batches: int
    goal: Optional[float]
    workers: int = 1


CASES = [Case("lenet", "lenet", 64, 150, 0.9), Case("resnet18", "resnet18", 16, 30, 0.9),
         Case("lenet, 2 workers", "lenet", 64, 300, 1.0, workers=2),
         Case("clicks", "clicks", 512, 60, None)]


def command(case, by, times, *more):
    return [sys.executable, str(cluster.runfile("tests/benchmark/python_program.py")),
            f"--model={case.model}", f"--by={by}", f"--batch={case.batch}",
            f"--batches={case.batches}", f"--workers={case.workers}", f"--times={times}", *more]


def rate(times, workers):
    """Samples per second of all processes that have written to the file."""
    lines = sorted(tuple(map(float, line.split())) for line in times.read_text().splitlines())
    times.unlink()
    counted = lines[WARM_UP * workers - 1:]
    return sum(samples for _, samples in counted[1:]) / (counted[-1][0] - counted[0][0])


def as_job(live, case):
    times = live.folder / "times"
    job = programs.declared(live.folder, command(case, "capstan", times))
    job["resources"] = {"workers": case.workers}
    status = live.wait(live.submit(json.dumps(job), "job.json"), seconds=600)
    if status["state"] != "SUCCEEDED":
        sys.exit(f"{case.name}: {status['state']}: {status['failure']}")
    return rate(times, case.workers)


def by_itself(live, case):
    times = live.folder / "times"
    rendezvous = live.folder / "rendezvous"
    by = "torch" if case.workers == 1 else "ddp"
    running = [subprocess.Popen(
        command(case, by, times, f"--rank={rank}", f"--rendezvous={rendezvous}"),
        env=programs.environment()) for rank in range(case.workers)]
    if any([each.wait() for each in running]):
        sys.exit(f"{case.name}: the script alone has failed")
    rendezvous.unlink(missing_ok=True)
    return rate(times, case.workers)


def table_job(by_python, tables, elements, rounds, times):
    program = [sys.executable, str(cluster.runfile("tests/benchmark/python_tables.py"))]
    if not by_python:
        program = [str(cluster.runfile("tests/benchmark/table_rounds"))]
    return {
        "program": {"command": [*program, str(rounds), str(times)], "own_pace": True,
                    "environment": programs.ENVIRONMENT,
                    "parameters": [{"name": f"w{i}", "shape": [elements]} for i in range(tables)]},
        "optimizer": {"sgd": {}, "learning_rate": 1e-3}, "consistency": {"asp": {}},
        "resources": {"workers": 1}}


def round_seconds(live, by_python, *size):
    """The median of a job's rounds, the first ones left out."""
    times = live.folder / "times"
    job = table_job(by_python, *size, times)
    status = live.wait(live.submit(json.dumps(job), "job.json"), seconds=600)
    if status["state"] != "SUCCEEDED":
        sys.exit(f"tables: {status['state']}: {status['failure']}")
    lines = [float(line) for line in times.read_text().splitlines()]
    times.unlink()
    return statistics.median(lines[WARM_UP:])


def compare_tables(live, arguments):
    """Prints both cases of tables; returns whether their goals are met."""
    met = True
    print(f"{'us a round':<18}{'C++':>9}{'Python':>10}", flush=True)
    for name, *size in (("tables", 64, 1 << 18, 60), ("table", 1, 1 << 8, 2000)):
        if arguments.only not in (None, name):
            continue
        pairs = [[1e6 * round_seconds(live, by_python, *size) for by_python in (False, True)]
                 for _ in range(arguments.rounds)]
        plain, python = (statistics.median(each) for each in zip(*pairs))
        ratios = sorted(a / b for a, b in pairs)
        reached = plain / python >= 0.9 if name == "tables" else python - plain <= 60
        goal = "0.9 of C++" if name == "tables" else "60 us more"
        met = met and reached
        print(f"{name:<18}{plain:>9.0f}{python:>10.0f}  {plain / python:.2f} ({ratios[0]:.2f} to "
              f"{ratios[-1]:.2f}), goal {goal}{'' if reached else ': NOT MET'}", flush=True)
    return met


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5, help="rounds each, at least 5 (default 5)")
    parser.add_argument("--only", help="the case of this name")
    arguments = parser.parse_args()
    if arguments.rounds < 5:
        parser.error(f"--rounds is {arguments.rounds}, expected at least 5")
    names = [case.name for case in CASES] + ["tables", "table"]
    if arguments.only and arguments.only not in names:
        parser.error(f"--only is {arguments.only!r}, expected one of {', '.join(names)}")
    met = True
    print(f"{'samples/s':<18}{'PyTorch':>9}{'as a job':>10}  ratio", flush=True)
    flags = ("--run-programs", "--program-uids=off")
    with cluster.Cluster(servers=1, workers=2, worker_flags=flags) as live:
        for case in CASES:
            if arguments.only not in (None, case.name):
                continue
            alone, jobs = [], []
            for _ in range(arguments.rounds):
                alone.append(by_itself(live, case))
                jobs.append(as_job(live, case))
            ratios = sorted(job / other for job, other in zip(jobs, alone))
            ratio = statistics.median(jobs) / statistics.median(alone)
            reached = case.goal is None or ratio >= case.goal
            met = met and reached
            goal = "" if case.goal is None else f", goal {case.goal}" + (
                "" if reached else ": NOT MET")
            print(f"{case.name:<18}{statistics.median(alone):>9.0f}{statistics.median(jobs):>10.0f}"
                  f"  {ratio:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}){goal}", flush=True)
        if arguments.only in (None, "tables", "table"):
            met = compare_tables(live, arguments) and met
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
