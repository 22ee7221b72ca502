"""The reference trainer learns, and its bits depend on the seed and the slots alone."""

import hashlib
import pathlib
import subprocess
import sys
import tempfile

import synthetic

MODEL = """
  layers { name: "conv" convolution { filters: 4 kernel: 3 bias: false } }
  layers { name: "norm" batch_normalization {} }
  layers { name: "relu" relu {} }
  layers { name: "drop" dropout { rate: 0.1 } }
  layers { name: "out" fully_connected { units: 10 } }
"""


class Reference:
    """Runs the trainer on variants of one job."""

    def __init__(self, binary, folder):
        self.binary = binary
        self.folder = folder
        self.data = synthetic.data_block(folder, train=330, test=100, side=8)

    def run(self, name, **job):
        """Trains; returns the exit code, what was printed, and the model's hash."""
        settings = {"model": MODEL, "epochs": 3, "batch_size": 16, "training": "slots: 4 seed: 11",
                    "data": self.data, **job}
        path = self.folder / f"{name}.textproto"
        path.write_text(synthetic.job(self.folder, **settings))
        out = self.folder / name
        done = subprocess.run([self.binary, f"--job={path}", f"--output={out}"], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)
        model = out / "model.safetensors"
        digest = hashlib.sha256(model.read_bytes()).hexdigest() if model.exists() else None
        return done.returncode, done.stdout, digest


def expect(condition, what):
    if not condition:
        sys.exit(f"FAILED: {what}")
    print(f"ok: {what}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        reference = Reference(sys.argv[1], pathlib.Path(folder))
        code, output, first = reference.run("first", workers=1)
        expect(code == 0, f"it trains: {output}")
        lines = output.splitlines()
        expect(
            len(lines) == 3 and "iterations 18 " in lines[2],
            "330 samples in 4 x 16 are 6 iterations",
        )
        expect(float(lines[2].split()[-1]) > 0.9, "it learns the patterns")
        expect(reference.run("again", workers=4)[2] == first, "workers do not change the bits")
        slots = reference.run("slots", workers=1, training="slots: 3 seed: 11")[2]
        expect(slots not in (None, first), "slots do")
        seed = reference.run("seed", workers=1, training="slots: 4 seed: 12")[2]
        expect(seed not in (None, first), "the seed does")
        code, output, _ = reference.run("limit", training="slots: 4 iterations_max: 7")
        expect(code == 0 and "iterations 7 " in output, "iterations_max ends it")
        code, output, _ = reference.run("diverge", optimizer="sgd {} learning_rate: 1e38")
        expect(code == 1 and "diverged: layer" in output, f"divergence names the layer: {output}")
        code, output, _ = reference.run("bad", model='zoo: "vgg"')
        expect(code == 2 and "vgg" in output, f"a bad job is refused: {output}")
        code, output, _ = reference.run("ssp", consistency="ssp {}", training="")
        expect(code == 2 and "expected bsp" in output, f"only BSP has a reference: {output}")


if __name__ == "__main__":
    main()
