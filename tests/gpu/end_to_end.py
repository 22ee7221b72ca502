"""Workers train on GPUs: real daemons, real jobs; what tests/gpu/run starts after the ops' tests.

Checks (each failure is printed; exit code 1):
  bits     BSP with one worker and one server leaves the model of the local trainer on the same
           card, bit for bit, in fp32, TF32, bf16 and fp16
  modes    bf16, fp16 and fp32 reach the same test accuracy within 0.3 points; fp32 reaches 95 %
  resident a server whose shards lie on the card (--device=cuda) leaves the same bits
  memory   a batch that does not fit fails the job with OUT_OF_MEMORY and says which would fit
  several  all GPUs of this machine, and two of them, share each batch: the bits of the local
           trainer on as many, and the accuracy; with one GPU that is skipped
  graphs   no task says that steps could not be recorded
  trace    the trace of a job under SSP(1) has forward, backward, upload and download spans; says
           how far pushes and pulls go beside them

Then it prints figures, as rows of a table: wall and processor time of a step of the local trainer
without servers, whose parameters stay on the card, and of a worker and a server under SSP(1), with
the ratio of both (goal for ResNet-50: 0.95; 0.98 where the server's shards lie on the card, too).

    tests/gpu/end_to_end.py --pack=.gpu-unpacked [--checks | --figures=resnet50,resnet18]

With --device=cpu it tries itself on a machine without a card: fp32, and what needs no device. With
--small, on emulated GPUs: the checks bits, trace and resident, and figures of tiny models;
there CAPSTAN_GPU_DRIVER names a folder with a driver for the daemons to ask, which the programs
that compute must not find (tests/gpu/emulated_run_test.py).
"""

import argparse
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys

import processes

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_ACCURACY_POINTS = 0.3
_ACCURACY_MIN = 0.95
_GPUS_MAX = 8  # GPUs that share a batch.
_REFUSED = "is not recorded as a graph"  # A task's words about a step (kernels/cuda).
_WARM_UP = 20
_TICKS = os.sysconf("SC_CLK_TCK")
_OPTIMIZER = "momentum {} learning_rate: 0.005"
# Under SSP(1) a GPU reads the next parameters while it computes, so that its gradients are of those
# before the last update. Where the loss has curvature c, momentum m then gives
# w(t+1) = (1 + m) w(t) - (m + rate c) w(t-1), which converges while rate c < 1 - m: below 0.1 for
# m = 0.9, where it would be 2 (1 + m) = 3.8 without the delay. At the rate above _NORMED diverges
# with gradients so delayed on a CPU without servers, too. A job on a CPU does not tell: its tasks
# read their own pushes before the next step.
_OPTIMIZER_STALE = "momentum {} learning_rate: 0.001"
_OPTIMIZER_TIMED = "momentum {} learning_rate: 0.0001"
# The environment of programs that compute and are no daemons.
_ENVIRONMENT = dict(os.environ)

_NORMED = """
  layers { name: "conv1" convolution { filters: 16 kernel: 3 padding: 1 bias: false } }
  layers { name: "norm1" batch_normalization {} }
  layers { name: "relu1" relu {} }
  layers { name: "pool1" max_pooling { kernel: 2 } }
  layers { name: "conv2" convolution { filters: 16 kernel: 3 padding: 1 } }
  layers { name: "join" inputs: "conv2" inputs: "pool1" add {} }
  layers { name: "drop" dropout { rate: 0.25 } }
  layers { name: "out" fully_connected { units: 10 } }"""


class Figure:
    """A case to be timed: a model, its batch, what it is computed with, steps, data.

    Images are of side x side pixels and three channels; classes are a thousand; parameters and
    gradients travel in what the model is computed with. The timed steps end before the epoch does:
    near its end leases are short, and little can be decoded ahead.
    """

    channels, classes = 3, 1000

    def __init__(self, zoo, batch, compute, side, steps, samples):
        self.zoo, self.batch, self.compute = zoo, batch, compute
        self.side, self.steps, self.samples = side, steps, samples
        self.local = None  # Milliseconds of a step without servers.

    def __str__(self):
        return f"{self.zoo} {self.batch} {self.compute}"

    def line(self, where, wall, processor):
        ratio = f"{self.local / wall:.2f}" if self.local and where else ""
        return f"| {self}, {where or 'no servers'} | {wall:.3f} | {processor:.3f} | {ratio} |"


def figures(names, small):
    """The figures whose models are among `names`."""
    if small:
        return [Figure("lenet", 4, "BF16", 28, 2, 8)] if names else []
    every = [Figure("lenet", 256, "FP32", 28, 200, 65536),
             Figure("resnet18", 128, "BF16", 32, 200, 40960),
             Figure("resnet50", 256, "BF16", 224, 40, 18432)]
    return [figure for figure in every if figure.zoo in names]


def digest(folder):
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def share(spans, track, other):
    """The share of the time of a track's spans in which a span of another track goes on."""
    def edges(name):
        return sorted((span["ts"], span["ts"] + span["dur"]) for span in spans
                      if span["cat"] == name)
    merged = []
    for begin, end in edges(other):
        if merged and begin <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([begin, end])
    both = sum(max(0, min(end, last) - max(begin, first))
               for begin, end in edges(track) for first, last in merged)
    return both / max(sum(end - begin for begin, end in edges(track)), 1e-9)


class EndToEnd:
    """Jobs on one cluster."""

    def __init__(self, live, synthetic, runfile, options, where=""):
        self.live = live
        self.where = where
        self.traces = options.traces
        self.small = options.small
        self.on_gpu = options.device != "cpu"
        self.device = options.device
        self.computes = ("FP32", "BF16") if options.small else ("FP32", "TF32", "BF16", "FP16")
        if not self.on_gpu:
            self.computes = ("FP32",)
        self.synthetic = synthetic
        self.runfile = runfile
        sizes = {"train": 100, "test": 50, "side": 16} if options.small else \
            {"train": 4000, "test": 1000, "side": 28}
        self.data = synthetic.data_block(live.folder, **sizes)
        self.failures = []

    def warm_up(self):
        return 1 if self.small else _WARM_UP

    def check(self, what, good, note):
        print(f"   {what}: {'passed' if good else 'FAILED'} ({note})", flush=True)
        if not good:
            self.failures.append(what)

    def job(self, name, compute="FP32", training="", **others):
        chosen = {"workers": 1, "data": self.data, "epochs": 3, "batch_size": 50,
                  "resources": f'device: "{self.device}"', "model": _NORMED,
                  "optimizer": _OPTIMIZER, **others}
        return self.synthetic.job(self.live.folder, name=name,
                                  training=f"compute: {compute} {training}", **chosen)

    def run(self, text):
        job = self.live.submit(text)
        status = self.live.wait(job, seconds=300)
        for line in self.live.run("job", "logs", job).stdout.splitlines():
            if _REFUSED in line:
                self.check("graphs", False, line)
        return job, status

    def local(self, text, name):
        """The local trainer's model of a job."""
        path = self.live.write_job(text, f"{name}.textproto")
        out = self.live.folder / f"local-{name}"
        subprocess.run([str(self.runfile("tests/convergence/reference_trainer")),
                        f"--job={path}", f"--output={out}"],
                       env=_ENVIRONMENT, check=True, stdout=subprocess.DEVNULL, timeout=300,
                       preexec_fn=processes.die_with_parent)
        return digest(out)

    def bits(self):
        for compute in self.computes:
            text = self.job(f"bits-{compute.lower()}", compute)
            job, status = self.run(text)
            if status["state"] != "SUCCEEDED":
                self.check(f"bits {compute}", False, status)
                continue
            mine = digest(self.live.output(job))
            local = self.local(text, compute.lower())
            self.check(f"bits {compute}", mine == local, f"{mine[:12]}, local {local[:12]}")

    def resident(self):
        """Where the server's shards lie on the card."""
        text = self.job("resident")
        job, status = self.run(text)
        good = status["state"] == "SUCCEEDED" and \
            digest(self.live.output(job)) == self.local(text, "resident")
        self.check("bits of shards on the card", good, status["state"])

    def gpus(self):
        """How many the worker has found."""
        nodes = self.live.json("node", "list")["nodes"]
        return sum(len(node.get("devices", {}).get("gpus", [])) for node in nodes)

    def several(self):
        there = self.gpus()
        if there < 2:
            print(f"   several: skipped (this machine has {there} GPU)", flush=True)
            return
        for count in sorted({2, min(there, _GPUS_MAX)}):
            for compute in self.computes:
                name = f"several-{count}-{compute.lower()}"
                text = self.job(name, compute, batch_size=48, epochs=6,
                                resources=f'device: "{self.device}" gpus: {count}')
                job, status = self.run(text)
                if status["state"] != "SUCCEEDED":
                    self.check(name, False, status)
                    continue
                mine, local = digest(self.live.output(job)), self.local(text, name)
                accuracy = float(status["results"][-1]["testAccuracy"])
                self.check(name, mine == local and accuracy >= _ACCURACY_MIN,
                           f"{mine[:12]}, local {local[:12]}; accuracy {accuracy}")

    def modes(self):
        reached = {}
        for compute in (mode for mode in self.computes if mode != "TF32"):
            _, status = self.run(self.job(f"modes-{compute.lower()}", compute, epochs=6,
                                          optimizer=_OPTIMIZER_STALE,
                                          consistency="ssp { staleness_bound: 1 }"))
            results = status.get("results", [])
            reached[compute] = float(results[-1]["testAccuracy"]) if results else 0.0
        self.check("accuracy of fp32", reached["FP32"] >= _ACCURACY_MIN, reached["FP32"])
        for half in ("BF16", "FP16"):
            if half not in reached:
                continue
            difference = 100 * abs(reached["FP32"] - reached[half])
            self.check(f"accuracy of {half.lower()}", difference <= _ACCURACY_POINTS,
                       f"{reached[half]}, {difference:.2f} points from fp32")

    def memory(self):
        if not self.on_gpu:
            return
        # Each of 40 layers passes 6.4 GB to the next, which are kept for the backward pass.
        layers = "".join(f'layers {{ name: "wide{i}" convolution {{ filters: 512 kernel: 1 }} }}\n'
                         for i in range(40))
        layers += 'layers { name: "out" fully_connected { units: 10 } }'
        _, status = self.run(self.job("memory", batch_size=4000, model=layers))
        said = json.dumps(status)
        named = "OUTOFMEMORY" in said.upper().replace("_", "")
        self.check("memory", status["state"] == "FAILED" and named
                   and "largest batch that fits is" in said, said[:400])

    def trace(self):
        job, status = self.run(self.job("trace", epochs=1, model='zoo: "lenet"',
                                        optimizer=_OPTIMIZER_STALE,
                                        consistency="ssp { staleness_bound: 1 }",
                                        more="output { trace_batches: 10 }"))
        files = list(self.live.output(job).glob("trace-0-*.json"))
        spans = []
        if status["state"] == "SUCCEEDED" and files:
            events = json.loads(files[0].read_text())["traceEvents"]
            spans = [event for event in events if event["ph"] == "X"]
        tracks = {span["cat"] for span in spans}
        wanted = {"forward", "backward", "push", "pull"}
        if self.on_gpu:
            wanted |= {"upload", "download"}
        shares = [f"{share(spans, compute, message):.0%} of {compute} beside {message}"
                  for compute in ("forward", "backward") for message in ("push", "pull")]
        self.check("trace", wanted <= tracks, f"tracks {sorted(tracks)}; {', '.join(shares)}")

    def local_figure(self, figure):
        """Milliseconds and processor milliseconds of a step without servers."""
        on_card = ["--gpu=0", "--update=device"] if self.on_gpu else []
        done = subprocess.run(
            [str(self.runfile("tests/benchmark/train_steps")), f"--zoo={figure.zoo}",
             f"--batch={figure.batch}", f"--compute={figure.compute}",
             f"--image={figure.side}x{figure.side}x{figure.channels}",
             f"--classes={figure.classes}", *on_card],
            input=f"{self.warm_up()}\n{figure.steps}\n", text=True, check=True, env=_ENVIRONMENT,
            stdout=subprocess.PIPE, timeout=300, preexec_fn=processes.die_with_parent)
        wall, processor, *_ = (float(word) for word in done.stdout.splitlines()[-1].split())
        figure.local = 1000 * wall / figure.steps
        return figure.local, 1000 * processor / figure.steps

    def job_figure(self, figure):
        """Between two looks at the task: its iteration, its processor time, its clock."""
        name = f"{figure.zoo}-{figure.batch}{self.where}"
        text = self.job(name, figure.compute,
                        f"iterations_max: {40 * figure.steps}",
                        model=f'zoo: "{figure.zoo}" classes: {figure.classes}',
                        batch_size=figure.batch, epochs=1000, optimizer=_OPTIMIZER_TIMED,
                        data=self.synthetic.colour_block(self.live.folder, figure.samples,
                                                         figure.side),
                        consistency="ssp { staleness_bound: 1 }", servers=1,
                        more=f"wire {{ gradients: {figure.compute} parameters: {figure.compute} }}"
                        + (f"output {{ trace_batches: {figure.steps} }}" if self.traces else ""))
        job = self.live.submit(text)
        begin = self.look(job, self.warm_up())
        end = self.look(job, begin[0] + figure.steps)
        self.live.run("job", "stop", job)
        self.live.wait(job, seconds=300)
        for trace in self.live.output(job).glob("trace-0-*.json") if self.traces else ():
            shutil.copy(trace, pathlib.Path(self.traces) / f"{name}.json")
        steps = end[0] - begin[0]
        return 1000 * (end[2] - begin[2]) / steps, 1000 * (end[1] - begin[1]) / steps

    def look(self, job, iteration):
        self.live.wait_iteration(job, iteration)
        status = self.live.status(job)
        pid = self.live.task_pids(job)[0]
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        uptime = float(pathlib.Path("/proc/uptime").read_text().split()[0])
        return int(status["iteration"]), (int(fields[11]) + int(fields[12])) / _TICKS, uptime


def resident(live, make, options, timed):
    """The same on a server whose shards lie on the card; what has failed."""
    on_card = make(live, "-resident")
    if not options.figures:
        on_card.resident()
    for figure in timed:
        if figure.zoo != "lenet" or options.small:
            print(figure.line("server with its shards on the card, SSP(1)",
                              *on_card.job_figure(figure)), flush=True)
    return on_card.failures


def print_figures(test, timed):
    print("\n| step | ms | processor ms | of it without servers |\n|---|---|---|---|")
    for figure in timed:
        print(figure.line("", *test.local_figure(figure)), flush=True)
        print(figure.line("one server, SSP(1)", *test.job_figure(figure)), flush=True)


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--pack", required=True, help="the folder that tests/gpu/run has unpacked")
    add("--device", default="cuda", choices=("cuda", "cpu"))
    add("--checks", action="store_true", help="no figures")
    add("--figures", default="", help="no checks; figures of these models of lenet, resnet18 and "
                                      "resnet50, with commas")
    add("--traces", help="a folder for traces of the figures' jobs; tracing takes time")
    add("--small", action="store_true", help="for emulated GPUs")
    return parser.parse_args()


def prepare(options):
    """The modules `cluster` and `synthetic`, whose programs are the pack's."""
    os.environ["RUNFILES_DIR"] = str(pathlib.Path(options.pack).resolve())
    if os.environ.get("CAPSTAN_GPU_DRIVER"):
        folders = [os.environ["CAPSTAN_GPU_DRIVER"], os.environ.get("LD_LIBRARY_PATH", "")]
        os.environ["LD_LIBRARY_PATH"] = ":".join(folder for folder in folders if folder)
    sys.path.insert(0, str(_ROOT / "tests" / "integration"))
    import cluster
    import synthetic
    # Whoever kills this program leaves no daemons on the card.
    cluster.before_daemon = processes.die_with_parent
    return cluster, synthetic


def main():
    options = parse()
    cluster, synthetic = prepare(options)
    make = lambda live, where="": EndToEnd(live, synthetic, cluster.runfile,  # noqa: E731
                                           options, where)
    with cluster.Cluster(servers=1, workers=1) as live:
        test = make(live)
        names = options.figures or ("" if options.checks else "lenet,resnet18,resnet50")
        timed = [figure for figure in figures(names.split(",") if names else [], options.small)
                 if figure.compute in test.computes]
        checks = (test.bits, test.trace) if options.small else \
            (test.bits, test.modes, test.several, test.memory, test.trace)
        for check in () if options.figures else checks:
            check()
        if timed:
            print_figures(test, timed)
    if test.on_gpu:
        with cluster.Cluster(servers=1, workers=1, server_flags=("--device=cuda",)) as live:
            test.failures += resident(live, make, options, timed)
    if test.failures:
        print(f"end_to_end: failed: {', '.join(test.failures)}", file=sys.stderr)
    return 1 if test.failures else 0


if __name__ == "__main__":
    sys.exit(main())
