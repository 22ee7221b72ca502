"""The cost of the Python package: compares PyTorch scripts alone, with DDP, and as jobs.

One compute thread for each process. Gradients leave while backward() computes others
(overlap=True), as those of DistributedDataParallel do. A job stands still while the script by
itself has its turn:

    lenet, resnet18   1 worker and 1 server, against the script alone; goal 0.9
    lenet, 2 workers  2 workers and 1 server, BSP, against DistributedDataParallel with gloo and two
                      processes; goal 1.0
    clicks            1 worker and 1 server, rows by key out of 10^7, against torch.nn.EmbeddingBag
                      in one process, with sparse gradients and Adagrad; for reference

Jobs take turns as a whole, 1 worker and 1 server:

    factors   a factorization machine of an EmbeddingBag and its samples, against the job file that
              trains the same; goal 0.7

And tables at a program's own pace, 1 worker and 1 server, against the same calls of the C interface
from C++ (`table_rounds`):

    tables    rounds that push to and pull from 64 tables of 1 MiB; goal 0.9 of C++
    table     a push and a pull of one table of 1 KiB; goal: at most 60 us more than C++

Exit codes: 0 the goals are met, 1 one is not.
"""

import argparse
import contextlib
import dataclasses
import json
import multiprocessing.connection
import statistics
import subprocess
import sys
import tempfile
import threading
from typing import Optional

import cluster
import programs

WARM_UP = 10  # Rounds of tables that are not counted.
TURNS = 2  # In an epoch.


@dataclasses.dataclass
class Case:
    name: str
    model: str
    batch: int
    turn: int  # Iterations.
    goal: Optional[float]
    workers: int = 1


CASES = [Case("lenet", "lenet", 64, 30, 0.9), Case("resnet18", "resnet18", 16, 5, 0.9),
         Case("lenet, 2 workers", "lenet", 64, 30, 1.0, workers=2),
         Case("clicks", "clicks", 512, 30, None)]
FACTORS = Case("factors", "factors", 1024, 40, 0.7)


def command(case, rounds, *more):
    """The command of one epoch of TURNS turns that make the rows, and `rounds` rounds after it."""
    return [sys.executable, str(cluster.runfile("tests/benchmark/python_program.py")),
            f"--model={case.model}", f"--batch={case.batch}",
            f"--batches={TURNS * case.turn * case.workers}",
            f"--epochs={1 + -(-(rounds + 1) // TURNS)}", f"--turn={case.turn}",
            f"--workers={case.workers}", *more]


class Alone:
    """The script by itself: a process for each worker, which waits for its turns."""

    def __init__(self, case, folder):
        self._turn = case.turn
        more = [f"--rendezvous={folder}/rendezvous"] if case.workers > 1 else []
        self._processes = [subprocess.Popen(
            command(case, 1, f"--rank={rank}", *more), env=programs.environment(), text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE) for rank in range(case.workers)]

    def turn(self):
        """Samples a second of all."""
        for process in self._processes:
            process.stdin.write(f"{self._turn}\n")
            process.stdin.flush()
        return sum(float(process.stdout.readline()) for process in self._processes)

    def close(self):
        for process in self._processes:
            process.communicate()


def serve_turns(listener, case, alone, pairs):
    """Takes a job's rates, and lets the other have a turn after each: pairs of samples a second."""
    with listener.accept() as connection, contextlib.suppress(EOFError):
        while True:
            ours = connection.recv() * case.batch * case.workers
            pairs.append((alone.turn() if alone else None, ours))
            connection.send(None)


def run_job(live, case, rounds, alone):
    """Pairs of samples a second, the script's by itself and the job's, after the first epoch."""
    pairs = []
    with tempfile.TemporaryDirectory() as folder, \
            multiprocessing.connection.Listener(f"{folder}/turns", "AF_UNIX") as listener:
        server = threading.Thread(target=serve_turns, args=(listener, case, alone, pairs))
        server.start()
        job = programs.declared(live.folder, command(case, rounds, f"--turns={folder}/turns"))
        job["resources"] = {"workers": case.workers}
        succeed(live, json.dumps(job), "job.json")
        server.join()
    return pairs[TURNS:]


def succeed(live, text, file):
    status = live.wait(live.submit(text, file), seconds=900)
    if status["state"] != "SUCCEEDED":
        sys.exit(f"{status['state']}: {status['failure']}")
    return status


def say(name, pairs, goal):
    """Prints the medians of pairs and of their ratios; returns whether the goal is met."""
    ratios = sorted(ours / other for other, ours in pairs)
    ratio = statistics.median(ratios)
    met = goal is None or ratio >= goal
    wanted = "" if goal is None else f", goal {goal}" + ("" if met else ": NOT MET")
    others, ours = (statistics.median(each) for each in zip(*pairs))
    print(f"{name:<18}{others:>10.0f}{ours:>10.0f}  {ratio:.2f} ({ratios[0]:.2f} to "
          f"{ratios[-1]:.2f}){wanted}", flush=True)
    return met


def compare_scripts(live, rounds, only):
    met = True
    print(f"{'samples/s':<18}{'PyTorch':>10}{'as a job':>10}  ratio", flush=True)
    for case in CASES:
        if only not in (None, case.name):
            continue
        with tempfile.TemporaryDirectory() as folder, \
                contextlib.closing(Alone(case, folder)) as alone:
            alone.turn()
            met = say(case.name, run_job(live, case, rounds, alone), case.goal) and met
    return met


def write_examples(folder, samples):
    """The samples of `factors`, for the job file."""
    script = (f"import python_program as p\nd = p.Clicks({samples})\n"
              "for keys, label in zip(d.keys.tolist(), d.labels.tolist()):\n"
              "    print(int(label), *[f'{k}:1' for k in sorted(set(keys))])")
    path = folder / "factors.svm"
    with open(path, "w", encoding="utf-8") as file:
        subprocess.run([sys.executable, "-c", script], check=True, stdout=file,
                       cwd=cluster.runfile("tests/benchmark/python_program.py").parent)
    return path


def file_rate(live, case, samples, path):
    """Samples a second of the job file, after the first epoch."""
    status = succeed(live, f"""
        model {{ sparse {{ factorization_machine {{ rank: 16 }} }} }}
        data {{ format: SVMLIGHT train {{ files: "{path}" }} }}
        training {{ epochs: 3 batch_size: {case.batch} slots: 1 }}
        optimizer {{ adagrad {{}} learning_rate: 0.05 }}
        consistency {{ bsp {{}} }} resources {{ workers: 1 servers: 1 }}""", "job.textproto")
    seconds = statistics.median(result["seconds"] for result in status["results"][1:])
    return samples / seconds


def compare_factors(live, rounds):
    print(f"{'samples/s':<18}{'job file':>10}{'Python':>10}  ratio", flush=True)
    case, samples = FACTORS, TURNS * FACTORS.turn * FACTORS.batch
    path = write_examples(live.folder, samples)
    pairs = [(file_rate(live, case, samples, path),
              statistics.median(rate for _, rate in run_job(live, case, 3, None)))
             for _ in range(rounds)]
    return say(case.name, pairs, case.goal)


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
    succeed(live, json.dumps(job), "job.json")
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
    parser.add_argument("--rounds", type=int, default=9, help="rounds each, at least 5 (default 9)")
    parser.add_argument("--only", help="the case of this name")
    arguments = parser.parse_args()
    if arguments.rounds < 5:
        parser.error(f"--rounds is {arguments.rounds}, expected at least 5")
    names = [case.name for case in CASES] + ["factors", "tables", "table"]
    only = arguments.only
    if only and only not in names:
        parser.error(f"--only is {only!r}, expected one of {', '.join(names)}")
    met = True
    flags = ("--run-programs", "--program-uids=off")
    with cluster.Cluster(servers=1, workers=2, worker_flags=flags) as live:
        if only not in ("factors", "tables", "table"):
            met = compare_scripts(live, arguments.rounds, only)
        if only in (None, "factors"):
            met = compare_factors(live, arguments.rounds) and met
        if only in (None, "tables", "table"):
            met = compare_tables(live, arguments) and met
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
