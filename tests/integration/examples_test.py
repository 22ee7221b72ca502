"""The examples of the Python package, as their READMEs say, on little data."""

import difflib
import importlib.util
import json
import os
import pathlib
import random
import subprocess
import sys
import unittest

import cluster
import programs

EXAMPLES = cluster.runfile("worker/python/examples/mnist.py").parent
FASHION = pathlib.Path("/usr/share/datasets/fashion-mnist")
needs_fashion = unittest.skipUnless(FASHION.exists(),
                                    f"{FASHION} is missing: deploy/install --tests")


def needs(module, packages="deploy/install --tests"):
    return unittest.skipIf(importlib.util.find_spec(module) is None,
                           f"{module} is missing: {packages}")


def example(script, *arguments):
    return [sys.executable, str(EXAMPLES / script), *arguments]


def real_data(path, otherwise):
    """A file under CAPSTAN_TEST_DATA (common/examples/README.md), else another one."""
    found = pathlib.Path(os.environ.get("CAPSTAN_TEST_DATA", "/nonexistent"), path)
    return found if found.exists() else otherwise


TEXT = real_data("tinyshakespeare/input.txt", "/usr/share/common-licenses/GPL-3")


def write_clicks(path, lines, seed):
    """Lines as Criteo's: the first four of 26 categories decide, all counts are missing."""
    known = random.Random(1)
    weights = [[known.gauss(0, 1.5) for _ in range(10)] for _ in range(4)]
    drawn = random.Random(seed)
    with open(path, "w", encoding="utf-8") as file:
        for _ in range(lines):
            categories = [drawn.randrange(10) for _ in range(26)]
            odds = sum(of_field[each] for of_field, each in zip(weights, categories))
            label = int(odds > drawn.gauss(0, 1))
            file.write("\t".join([str(label), *[""] * 13, *map(str, categories)]) + "\n")
    return path


class ExampleCase(programs.ProgramCase):
    def trained(self, script, *arguments):
        """The folder of the model that two workers train."""
        return self.train(self.declared(example(script, *arguments), workers=2), workers=2).parent

    def figure(self, words, script, *arguments):
        """The number after `words` in what a script prints."""
        said = programs.run(example(script, *arguments))
        self.assertIn(words, said)
        print(said)
        return float(said.split(words)[1].split()[0])


@needs("torch")
class TorchExamplesTest(ExampleCase):
    @needs_fashion
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

    @needs_fashion
    def test_a_cnn_learns_fashion_mnist(self):
        less = "--samples=2500"
        model = self.trained("fashion_mnist.py", less)
        self.assertGreater(self.figure("test accuracy", "fashion_mnist.py", less,
                                       f"--evaluate={model}"), 0.7)

    def test_a_dlrm_learns_clicks(self):
        folder = self.cluster.folder
        for train, test, epochs, bound in (
            (write_clicks(folder / "train.tsv", 4000, 2), write_clicks(folder / "test.tsv", 500, 3),
             2, 0.85),
            (real_data("criteo-sample/train.tsv", None), real_data("criteo-sample/test.tsv", None),
             1, 0.65),
        ):
            with self.subTest(train=train):
                if train is None:
                    self.skipTest("CAPSTAN_TEST_DATA names no folder with criteo-sample")
                model = self.trained("dlrm.py", f"--data={train}", f"--epochs={epochs}")
                self.assertGreater(self.figure("AUC", "dlrm.py", f"--data={test}",
                                               f"--evaluate={model}"), bound)

    def test_a_transformer_learns_a_text(self):
        less = [f"--text={TEXT}", "--characters=40000"]
        model = self.trained("char_lm.py", "--epochs=4", *less)
        self.assertLess(self.figure("tenth", "char_lm.py", *less, f"--evaluate={model}"), 2.9)

    def test_word_vectors_know_their_neighbours(self):
        less = [f"--text={TEXT}", "--words=6000"]
        model = self.trained("word2vec.py", "--epochs=5", *less)
        self.assertGreater(self.figure("than others", "word2vec.py", *less, f"--evaluate={model}"),
                           0.65)


def script_of(notebook):
    """A script that does what the cells of a notebook do, one after the other."""
    parts = ["import pathlib, subprocess"]
    for cell in json.loads(notebook.read_text())["cells"]:
        source = "".join(cell["source"])
        first, _, rest = source.partition("\n")
        if cell["cell_type"] != "code":
            continue
        if first.startswith("%%writefile "):
            parts.append(f"pathlib.Path({first.split()[1]!r}).write_text({rest!r})")
        elif first.startswith("!"):
            parts.append(f"subprocess.run({first[1:]!r}, shell=True, check=True)")
        else:
            parts.append(source)
    return "\n".join(parts) + "\n"


@needs("numpy")
class ArrayExamplesTest(ExampleCase):
    less = "--samples=6000"

    @needs_fashion
    def test_a_softmax_regression_with_numpy_alone(self):
        model = self.trained("softmax_regression.py", self.less)
        self.assertGreater(self.figure("test accuracy", "softmax_regression.py",
                                       f"--evaluate={model}"), 0.75)

    @needs("jax", "pip install jax")
    @needs_fashion
    def test_a_network_of_jax(self):
        model = self.trained("jax_mlp.py", self.less)
        self.assertGreater(self.figure("test accuracy", "jax_mlp.py", f"--evaluate={model}"), 0.75)

    @needs_fashion
    def test_the_cells_of_the_notebook(self):
        folder = self.cluster.folder / "notebook"
        folder.mkdir()
        script = folder / "cells.py"
        script.write_text(script_of(EXAMPLES / "notebook.ipynb"))
        # The command of the wheel: `run` is Python's, all else the C++ program's.
        command = folder / "capstan"
        command.write_text(f'#!/bin/sh\n[ "$1" = run ] && exec {sys.executable} -m capstan "$@"\n'
                           f'exec {cluster.runfile("scheduler/cli/capstan")} "$@"\n')
        command.chmod(0o755)
        paths = {"PATH": f"{folder}:{os.environ['PATH']}", "HOME": str(folder)}
        done = subprocess.run([sys.executable, str(script)], cwd=folder,
                              env={**programs.environment(), **paths}, text=True,
                              capture_output=True, timeout=cluster.DEADLINE_SECONDS, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        print(done.stdout)
        self.assertGreater(float(done.stdout.split("test accuracy")[1]), 0.75)


if __name__ == "__main__":
    unittest.main()
