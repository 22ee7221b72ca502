"""Momentum under asynchrony: BSP beside SSP(1) and ASP, with and without what submission advises.

Trains the same model in each mode for the same number of epochs, as it is written for BSP (momentum
0.9) and with the momentum that `capstan job submit` proposes: the number is read from its warning.
Prints a table of the last epoch's training loss and the test accuracy, means over the seeds.
A job that diverges has an infinite loss, and the accuracy 0.
Fails if a job that follows the warning is warned again, if its mean training loss is more than 5 %
above BSP's, or if its mean test accuracy is more than --accuracy-points below BSP's.

Data: Debian's dataset-fashion-mnist for lenet. ResNet-20 needs --cifar FOLDER, with train.bin.gz
and test.bin.gz in the binary form of CIFAR-10.
"""

import argparse
import json
import math
import pathlib
import re
import statistics
import sys

import cluster

FASHION = "/usr/share/datasets/fashion-mnist"
LOSS_RATIO_MAX = 1.05
MODES = {"BSP": "bsp {}", "SSP(1)": "ssp { staleness_bound: 1 }", "ASP": "asp {}"}
ADVICE = re.compile(r"--set (optimizer\.momentum\.momentum=[0-9.]+)")


def fashion_data():
    return f"""
      format: IDX
      train {{
        images: "{FASHION}/train-images-idx3-ubyte.gz"
        labels: "{FASHION}/train-labels-idx1-ubyte.gz"
      }}
      test {{
        images: "{FASHION}/t10k-images-idx3-ubyte.gz" labels: "{FASHION}/t10k-labels-idx1-ubyte.gz"
      }}
      augmentation {{ mean: 0.2860 std: 0.3530 }}"""


def cifar_data(folder):
    return f"""
      format: CIFAR10_BINARY
      train {{ files: "{folder}/train.bin.gz" }}
      test {{ files: "{folder}/test.bin.gz" }}
      augmentation {{ mean: [ 0.4914, 0.4822, 0.4465 ] std: [ 0.2470, 0.2435, 0.2616 ] }}"""


def job(arguments, data, mode, workers, seed):
    return f"""
name: "{arguments.model}"
model {{ zoo: "{arguments.model}" }}
data {{ {data} }}
training {{ epochs: {arguments.epochs} batch_size: {arguments.batch_size} seed: {seed} }}
optimizer {{ momentum {{}} learning_rate: {arguments.rate} }}
consistency {{ {MODES[mode]} }}
resources {{ workers: {workers} }}
"""


def submit(live, text, *overrides):
    """The job's id, and what submission advises for it: an argument of --set, or None."""
    flags = [flag for value in overrides for flag in ("--set", value)]
    answer = live.run("job", "submit", str(live.write_job(text)), "--no-wait", "-o", "json", *flags)
    answer = json.loads(answer.stdout)
    found = ADVICE.search("\n".join(answer["warnings"]))
    return answer["jobId"], found and found[1]


def result(live, job_id, seconds):
    """The last epoch's training loss and the test accuracy in per cent; infinite if it diverged."""
    status = live.wait(job_id, seconds)
    if status.get("failure", {}).get("reason") == "DIVERGED":
        return math.inf, 0.0
    if status["state"] != "SUCCEEDED":
        sys.exit(f"{job_id}: {status}\n{live.logs()}")
    last = status["results"][-1]
    return last["trainLoss"], 100 * last["testAccuracy"]


def train(live, arguments, data, mode, workers, seed):
    """(setting, loss, accuracy) of the job as written and, if it is warned, of the one advised."""
    text = job(arguments, data, mode, workers, seed)
    job_id, advice = submit(live, text)
    rows = [("momentum 0.9", *result(live, job_id, arguments.seconds))]
    if advice:
        job_id, again = submit(live, text, advice)
        if again:
            sys.exit(f"{mode}, {workers} workers: followed {advice}, and is told {again}")
        rows.append((f"momentum {advice.split('=')[1]}", *result(live, job_id, arguments.seconds)))
    return rows


def measure(arguments, data, workers):
    """(mode, setting) -> [(loss, accuracy) for each seed]."""
    found = {}
    with cluster.Cluster(servers=2, workers=workers) as live:
        for seed in range(1, arguments.seeds + 1):
            for mode in MODES:
                for setting, loss, accuracy in train(live, arguments, data, mode, workers, seed):
                    found.setdefault((mode, setting), []).append((loss, accuracy))
                    print(f"seed {seed}, {workers} workers, {mode}, {setting}: "
                          f"{loss:.4f}, {accuracy:.2f} %", file=sys.stderr, flush=True)
    return found


def show(arguments, workers, found):
    """Prints the rows of one number of workers; returns what misses its bound."""
    means = {key: [statistics.mean(column) for column in zip(*runs)] for key, runs in found.items()}
    (bsp_loss, bsp_accuracy) = means[("BSP", "momentum 0.9")]
    failures = []
    for (mode, setting), (loss, accuracy) in means.items():
        runs = found[mode, setting]
        diverged = sum(math.isinf(run[0]) for run in runs)
        figures = f"{loss:.4f} | {loss / bsp_loss:.3f} | {accuracy:.2f} %"
        if diverged:
            figures = f"{diverged} of {len(runs)} diverged | | "
        print(f"| {arguments.model} | {workers} | {mode} | {setting} | {figures} |", flush=True)
        if setting == "momentum 0.9":
            continue
        which = f"{mode}, {workers} workers"
        if loss > LOSS_RATIO_MAX * bsp_loss:
            failures.append(f"{which}: training loss {loss:.4f}, BSP {bsp_loss:.4f}")
        if accuracy < bsp_accuracy - arguments.accuracy_points:
            failures.append(f"{which}: {accuracy:.2f} %, BSP {bsp_accuracy:.2f} %")
    return failures


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", choices=("lenet", "resnet20"), default="lenet")
    parser.add_argument("--cifar", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--rate", type=float, default=0.02)
    parser.add_argument("--accuracy-points", type=float, default=0.5)
    parser.add_argument("--seconds", type=int, default=1800, help="deadline of each job")
    arguments = parser.parse_args()
    if arguments.model == "resnet20" and arguments.cifar is None:
        parser.error("--model=resnet20 needs --cifar=FOLDER")
    data = cifar_data(arguments.cifar.resolve()) if arguments.cifar else fashion_data()
    print("| model | workers | mode | setting | training loss | of BSP's | test accuracy |\n"
          "|---|---|---|---|---|---|---|", flush=True)
    failures = []
    for workers in arguments.workers:
        failures += show(arguments, workers, measure(arguments, data, workers))
    if failures:
        sys.exit("\n".join(failures))


if __name__ == "__main__":
    main()
