"""SSP(1) and ASP beside BSP, as a job is written for BSP and as submission advises.

Trains the same model in each mode for the same number of epochs. The job is written for BSP:
momentum 0.9, and a cosine over BSP's updates. The settings:

  written       as it is written; SSP and ASP are warned
  advised       with all that the warnings of `capstan job submit` propose
  staleness     with rate_by_staleness, and what is proposed then
  compensation  with delay_compensation (--lambda), and what is proposed then

Prints a table of the last epoch's training loss and the test accuracy, means over the seeds.
A job that diverges has an infinite loss, and the accuracy 0.
Fails if a job that follows the warnings is warned again, if its mean training loss is more than 5 %
above BSP's, or if its mean test accuracy is more than --accuracy-points below BSP's.

Data: Debian's dataset-fashion-mnist for lenet. ResNet-20 needs --cifar FOLDER, with train.bin.gz
and test.bin.gz in the binary form of CIFAR-10.
"""

import argparse
import gzip
import json
import math
import pathlib
import re
import statistics
import sys

import cluster

FASHION = "/usr/share/datasets/fashion-mnist"
FASHION_SAMPLES = 60_000
CIFAR_RECORD_BYTES = 3073
LOSS_RATIO_MAX = 1.05
MODES = {"BSP": "bsp {}", "SSP(1)": "ssp { staleness_bound: 1 }", "ASP": "asp {}"}
ADVICE = re.compile(r"--set (optimizer\.[a-z_.]+=[0-9.]+)")
WRITTEN = "written"
SETTINGS = (WRITTEN, "advised", "staleness", "compensation")
# The machine may be busy with other things: none of its processes is to be taken for dead.
LEASE = "20s"


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


def samples_of(arguments):
    if not arguments.cifar:
        return FASHION_SAMPLES
    with gzip.open(arguments.cifar / "train.bin.gz") as train:
        return len(train.read()) // CIFAR_RECORD_BYTES


def job(arguments, data, mode, workers, seed):
    updates = arguments.epochs * -(-samples_of(arguments) // (workers * arguments.batch_size))
    return f"""
name: "{arguments.model}"
model {{ zoo: "{arguments.model}" }}
data {{ {data} }}
training {{ epochs: {arguments.epochs} batch_size: {arguments.batch_size} seed: {seed} }}
optimizer {{
  momentum {{}} learning_rate: {arguments.rate} schedule {{ cosine {{ steps: {updates} }} }}
}}
consistency {{ {MODES[mode]} }}
resources {{ workers: {workers} }}
"""


def submit(live, text, overrides):
    """The job's id, and what submission advises for it: arguments of --set."""
    flags = [flag for value in overrides for flag in ("--set", value)]
    answer = live.run("job", "submit", str(live.write_job(text)), "--no-wait", "-o", "json", *flags)
    answer = json.loads(answer.stdout)
    return answer["jobId"], ADVICE.findall("\n".join(answer["warnings"]))


def result(live, job_id, seconds):
    """The last epoch's training loss and the test accuracy in per cent; infinite if it diverged."""
    status = live.wait(job_id, seconds)
    if status.get("failure", {}).get("reason") == "DIVERGED":
        return math.inf, 0.0
    if status["state"] != "SUCCEEDED":
        sys.exit(f"{job_id}: {status}\n{live.logs()}")
    last = status["results"][-1]
    return last["trainLoss"], 100 * last["testAccuracy"]


def added_by(setting, mode, arguments):
    """The arguments of --set by which a setting changes the job as it is written."""
    field = f"consistency.{mode[:3].lower()}"
    return {
        "staleness": [f"{field}.rate_by_staleness=true"],
        "compensation": [f"{field}.delay_compensation={arguments.delay_lambda}"],
    }.get(setting, [])


def submit_advised(live, text, added):
    """The id of the job with what is added, and with what its submission then advises."""
    job_id, advice = submit(live, text, added)
    if not advice:
        return job_id
    live.run("job", "stop", job_id)
    live.wait(job_id)
    job_id, again = submit(live, text, advice + added)
    if again:
        sys.exit(f"{text}\nfollowed {advice + added}, and is told {again}")
    return job_id


def train(live, arguments, data, mode, workers, seed):
    """(setting, loss, accuracy) of each setting that is asked for; of BSP, of the one it has."""
    text = job(arguments, data, mode, workers, seed)
    rows = []
    for setting in SETTINGS:
        if mode == "BSP" and setting != WRITTEN:
            continue
        if mode != "BSP" and setting not in arguments.settings:
            continue
        if setting == WRITTEN:
            job_id, advice = submit(live, text, [])
            if mode == "BSP" and advice:
                sys.exit(f"{text}\nis told {advice}")
        else:
            job_id = submit_advised(live, text, added_by(setting, mode, arguments))
        rows.append((setting, *result(live, job_id, arguments.seconds)))
    return rows


def measure(arguments, data, workers):
    """(mode, setting) -> [(loss, accuracy) for each seed]."""
    found = {}
    with cluster.Cluster(servers=2, workers=workers, lease=LEASE) as live:
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
    (bsp_loss, bsp_accuracy) = means[("BSP", WRITTEN)]
    failures = []
    for (mode, setting), (loss, accuracy) in means.items():
        runs = found[mode, setting]
        diverged = sum(math.isinf(run[0]) for run in runs)
        figures = f"{loss:.4f} | {loss / bsp_loss:.3f} | {accuracy:.2f} %"
        if diverged:
            figures = f"{diverged} of {len(runs)} diverged | |"
        print(f"| {arguments.model} | {workers} | {mode} | {setting} | {figures} |", flush=True)
        if setting == WRITTEN:
            continue
        which = f"{mode}, {workers} workers, {setting}"
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
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=SETTINGS)
    parser.add_argument("--lambda", dest="delay_lambda", type=float, default=0.04)
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
