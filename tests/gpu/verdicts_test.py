"""The goals of the GPU's comparisons, and that a missed one fails the run: without a GPU."""

import contextlib
import io
import os
import re
import tempfile
import unittest

import compare_pytorch
import compare_training
import parts
import processes
import results
import run_gpu
import verdicts

# A card that copies 8 MB in 4 us, does 4 operations a picosecond, and needs 40 us to convolve.
_PRODUCT = "product\tn=1 c=1 o=1\t10.00\t1000\t40000000"
_COPY = "copy\tn=1000000\t4.00\t8000000\t0"
_CONVOLUTION = "conv_forward\tn=1 h=8 c=4 o=4 k=3 s=1 p=1\t40.00\t1000\t80000000"


def measured(kind, microseconds, moved):
    return verdicts.Measured(f"{kind}\tn=1000000\t{microseconds}\t{moved}\t0")


class VerdictsTest(unittest.TestCase):
    def test_a_ratio_below_its_goal_is_missed(self):
        self.assertEqual(str(verdicts.Ratio(0.97, 0.97)), "0.970 reached")
        self.assertFalse(verdicts.Ratio(0.97, 0.97).missed)
        self.assertEqual(str(verdicts.Ratio(0.96999, 0.97)), "0.969 missed")
        self.assertTrue(verdicts.Ratio(0.96999, 0.97).missed)
        self.assertTrue(verdicts.Ratio(float("nan"), 0.97).missed)
        self.assertEqual(str(verdicts.Ratio(0.5)), "0.50")
        self.assertFalse(verdicts.Ratio(0.5).missed)

    def test_what_was_not_measured_is_not_missed(self):
        self.assertEqual(str(verdicts.Ratio(None, 1.0)), "")
        self.assertFalse(verdicts.Ratio(None, 1.0).missed)

    def test_convolutions_are_held_against_the_best_plan(self):
        for kind in ("conv_forward", "conv_backward_data", "conv_backward_weights"):
            case = verdicts.Measured(_CONVOLUTION.replace("conv_forward", kind))
            self.assertFalse(verdicts.beside_pytorch(case, 38.8).missed)
            self.assertTrue(verdicts.beside_pytorch(case, 38.7).missed)
            self.assertEqual(str(verdicts.beside_copy(case, verdicts.Measured(_COPY))), "")

    def test_optimizers_are_held_against_pytorch_and_the_cards_copy(self):
        copy = verdicts.Measured(_COPY)
        for kind, moved in (("sgd_momentum", 20e6), ("adam", 28e6)):
            copied = moved / 2e6  # Microseconds at the copy's rate.
            fast, slow = (measured(kind, copied / rate, moved) for rate in (0.8605, 0.8405))
            self.assertEqual(str(verdicts.beside_copy(fast, copy)), "0.860 reached")
            self.assertEqual(str(verdicts.beside_copy(slow, copy)), "0.840 missed")
            self.assertFalse(verdicts.beside_pytorch(fast, fast.microseconds).missed)
            self.assertTrue(verdicts.beside_pytorch(fast, 0.99 * fast.microseconds).missed)
            self.assertFalse(verdicts.beside_copy(slow, None).missed)

    def test_other_kernels_have_no_goal(self):
        for kind in ("norm", "cast_bf16", "relu", "copy", "fc_forward"):
            case = measured(kind, 100.0, 1)
            self.assertFalse(verdicts.beside_pytorch(case, 1.0).missed)
            self.assertFalse(verdicts.beside_copy(case, verdicts.Measured(_COPY)).missed)

    def test_a_line_that_is_none_is_refused(self):
        with self.assertRaisesRegex(ValueError, "has 2 columns, expected 5: adam"):
            verdicts.Measured("adam\tn=1")
        with self.assertRaisesRegex(ValueError, "took 0.00 microseconds"):
            verdicts.Measured(_COPY.replace("4.00", "0.00"))

    def test_a_row_shows_times_rates_and_verdicts(self):
        copy, product = verdicts.Measured(_COPY), verdicts.Measured(_PRODUCT)
        self.assertEqual(
            compare_pytorch.row(verdicts.Measured(_CONVOLUTION), 38.0, copy, product),
            ("| conv_forward | n=1 h=8 c=4 o=4 k=3 s=1 p=1 | 40.0 | 2.0 Tflop/s | 38.0 "
             "| 0.950 missed |  | 0.50 |", True))
        self.assertEqual(compare_pytorch.row(measured("adam", 16.0, 28e6), None, copy, None),
                         ("| adam | n=1000000 | 16.0 | 1750 GB/s |  |  | 0.875 reached | 0.88 |",
                          False))

    def test_the_floor_is_what_takes_longer_of_moving_and_computing(self):
        copy, product = verdicts.Measured(_COPY), verdicts.Measured(_PRODUCT)
        case = verdicts.Measured(_CONVOLUTION)
        self.assertEqual(str(verdicts.beside_floor(case, copy, product)), "0.50")
        self.assertEqual(str(verdicts.beside_floor(measured("relu", 8.0, 8e6), copy, product)),
                         "0.50")
        case.moved = 60e6  # 30 of its 40 us.
        self.assertEqual(str(verdicts.beside_floor(case, copy, product)), "0.75")
        self.assertEqual(str(verdicts.beside_floor(case, None, None)), "")

    def test_whole_models_are_held_against_the_better_pytorch(self):
        case = compare_training.CASES[0]
        times = {"Capstan": (10.0, 0.1), "PyTorch eager": (12.0, 1.0), "torch.compile": (9.9, 1.0)}
        line, missed = compare_training.row(case, times)
        self.assertTrue(missed)
        self.assertTrue(line.endswith("| 10.00 | 0.10 | 12.00 | 9.90 |  | 0.990 missed |"), line)
        times["reduce-overhead"] = (9.5, 1.0)
        self.assertIn("| 9.90 | 9.50 | 0.950 missed |", compare_training.row(case, times)[0])
        times.pop("reduce-overhead")
        times.pop("torch.compile")
        self.assertFalse(compare_training.row(case, times)[1])
        times.pop("PyTorch eager")
        self.assertFalse(compare_training.row(case, times)[1])


class RunTest(unittest.TestCase):
    """Steps of the runner with a gpu_bench that prints what the test says."""

    def compare(self, lines):
        """Whether something failed, the report, and the table of fp16."""
        with tempfile.TemporaryDirectory() as pack:
            os.mkdir(os.path.join(pack, "bin"))
            with open(os.path.join(pack, "lines"), "w", encoding="utf-8") as file:
                file.write("".join(line + "\n" for line in lines))
            bench = os.path.join(pack, "bin", "gpu_bench")
            with open(bench, "w", encoding="utf-8") as file:
                file.write(f"#!/bin/sh\nexec cat {pack}/lines\n")
            os.chmod(bench, 0o755)
            with contextlib.redirect_stdout(io.StringIO()):
                # PyTorch's times here would be a card's, beside ours that are made up.
                environment = dict(os.environ, CUDA_VISIBLE_DEVICES="")
                found = results.Results(os.path.join(pack, "out"), "commit 1; a card")
                programs = processes.Processes()
                runner = run_gpu.Runner(found, programs, parts.Budget(1, programs.clock), pack,
                                        environment)
                part = next(part for part in parts.all_parts() if part.name == "F")
                part.steps = [step for step in part.steps if step.name.startswith("kernels")]
                runner.run(part)
            with open(found.output(part.output(part.steps[-1])), encoding="utf-8") as file:
                return found.failed, found.report(), file.read()

    def expect(self, lines, outcome, note, table_has):
        failed, report, table = self.compare(lines)
        self.assertEqual(failed, outcome == "failed")
        rows = re.findall(r"^\| F \| kernels in \w+ beside .* \| (\w+) \| [0-9.]+ \| (.*) \|$",
                          report, re.MULTILINE)
        self.assertEqual(rows, [(outcome, note)] * 3, report)  # A mode each.
        self.assertIn(table_has, table)

    def test_a_missed_goal_fails_the_run_and_the_table_is_kept(self):
        self.expect([_COPY, "adam\tn=1000000\t20.00\t28000000\t0"], "failed", "a goal is missed",
                    "| 0.700 missed |")

    def test_reached_goals_pass(self):
        self.expect([_COPY, "adam\tn=1000000\t16.00\t28000000\t0", _CONVOLUTION], "passed", "",
                    "| 0.875 reached |")

    def test_a_benchmark_that_prints_nonsense_fails(self):
        self.expect(["Segmentation fault"], "failed", "exit code 1", "columns")


if __name__ == "__main__":
    unittest.main()
