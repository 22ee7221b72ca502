"""The examples of the Python package, as their READMEs say, on little data."""

import difflib
import json
import pathlib
import sys
import unittest

import cluster
import programs

try:
    import torch
except ImportError:
    torch = None

EXAMPLES = cluster.runfile("worker/python/examples/mnist.py").parent
FASHION = pathlib.Path("/usr/share/datasets/fashion-mnist")


def example(script, *arguments):
    return [sys.executable, str(EXAMPLES / script), *arguments]


@unittest.skipIf(torch is None, "PyTorch is missing: deploy/install --tests")
class ExamplesTest(programs.ProgramCase):
    @unittest.skipUnless(FASHION.exists(), f"{FASHION} is missing: deploy/install --tests")
    def test_the_mnist_example_has_the_losses_of_pytorch_alone(self):
        plain, ours = ((EXAMPLES / name).read_text().splitlines()
                       for name in ("mnist_plain.py", "mnist.py"))
        changed = list(difflib.unified_diff(plain, ours, "mnist_plain.py", "mnist.py", "", "",
                                            n=0, lineterm=""))
        print("\n".join(changed))
        self.assertLess(sum(line.startswith("+") for line in changed), 20)

        log = self.cluster.folder / "mnist.jsonl"
        recorded = [sys.executable, str(cluster.runfile("tests/integration/recorded.py"))]
        less = ["--samples=480", "--epochs=2"]
        self.train(self.declared(
            [*recorded, f"--log={log}", *example("mnist.py", *less)[1:]]), workers=1)
        replayed = programs.run(
            [*recorded, f"--replay={log}", *example("mnist_plain.py", *less)[1:]])
        found = programs.losses(log.read_text())
        expected = [json.loads(line)["loss"] for line in replayed.splitlines() if line[0] == "{"]
        self.assertEqual(len(found), 2 * 8)
        self.assertEqual(len(expected), len(found))
        for number, (mine, theirs) in enumerate(zip(found, expected)):
            self.assertAlmostEqual(mine, theirs, delta=1e-5, msg=f"batch {number}")
        self.assertLess(sum(found[-4:]), 0.8 * sum(found[:4]))


if __name__ == "__main__":
    unittest.main()
