"""BSP's promise: the trained model is bit-identical whoever computed it and whoever died.

One job with slots: 4 runs on 1, 2 and 4 workers times 1, 2 and 3 servers, with and without a worker
killed in the middle; every exported file has one sha256: that of the reference trainer (one
process, no network). --optimizer=lamb: a rule that takes norms of tensors, which no shard cuts.
"""

import argparse
import hashlib
import subprocess
import sys

import cluster
import synthetic

MODEL = """
  layers { name: "conv1" convolution { filters: 8 kernel: 3 padding: 1 bias: false } }
  layers { name: "norm1" batch_normalization {} }
  layers { name: "relu1" relu {} }
  layers { name: "pool1" max_pooling { kernel: 2 } }
  layers { name: "conv2" convolution { filters: 8 kernel: 3 padding: 1 } }
  layers { name: "join" inputs: "conv2" inputs: "pool1" add {} }
  layers { name: "fc1" fully_connected { units: 400 } }
  layers { name: "relu2" relu {} }
  layers { name: "drop" dropout { rate: 0.25 } }
  layers { name: "out" fully_connected { units: 10 } }
"""


def digest(folder):
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def job_text(live, workers, servers, epochs):
    return synthetic.job(
        live.folder,
        name=f"w{workers}s{servers}",
        model=MODEL,
        workers=workers,
        servers=servers,
        epochs=epochs,
        batch_size=16,
        training="slots: 4 seed: 11",
        data=live.data,
        optimizer=f"{live.optimizer} {{}} learning_rate: 0.002 weight_decay: 0.0001 "
        f"{live.clipping} "
        "schedule { cosine { steps: 60 minimum: 0.0001 } warmup_steps: 5 }",
    )


def reference(live, epochs):
    path = live.write_job(job_text(live, 4, 1, epochs), "reference.textproto")
    out = live.folder / "reference"
    trainer = str(cluster.runfile("tests/convergence/reference_trainer"))
    command = [trainer, f"--job={path}", f"--output={out}"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return digest(out)


def run(live, workers, servers, epochs, kill):
    job = live.submit(job_text(live, workers, servers, epochs))
    if kill:
        live.wait_iteration(job, 15)
        live.kill_task(job, workers - 1)
    status = live.wait(job)
    if status["state"] != "SUCCEEDED":
        sys.exit(f"{job}: {status}\n{live.logs()}")
    if kill and status.get("restarts", 0) < 1:
        sys.exit(f"{job}: the killed worker was not noticed: {status}")
    return digest(live.output(job))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--clip-norm", type=float, help="clip gradients: then they leave whole")
    parser.add_argument("--optimizer", default="adam")
    arguments = parser.parse_args()
    with cluster.Cluster(servers=3, workers=4) as live:
        live.optimizer = arguments.optimizer
        live.clipping = f"clip_norm: {arguments.clip_norm}" if arguments.clip_norm else ""
        live.data = synthetic.data_block(
            live.folder,
            train=1000,
            test=200,
            side=10,
            augmentation="crop_padding: 1 horizontal_flip: true",
        )
        expected = reference(live, arguments.epochs)
        print(f"reference trainer          {expected}", flush=True)
        wrong = 0
        for workers in (1, 2, 4):
            for servers in (1, 2, 3):
                for kill in (False, True):
                    got = run(live, workers, servers, arguments.epochs, kill)
                    wrong += got != expected
                    what = f"workers {workers} servers {servers} {'kill' if kill else '    '}"
                    verdict = "" if got == expected else "  DIFFERS"
                    print(f"{what}   {got}{verdict}", flush=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
