"""The counts of a small network's training step."""

import unittest

import step_counts

_LENET = step_counts.Case("LeNet", "lenet", 64, "FP32", "28x28x1", 10)


class StepCounts(unittest.TestCase):
    def test_a_step_of_lenet(self):
        # Forward: two convolutions and their biases, two pools, two products with biases, ReLU,
        # softmax: 10. Backward: softmax, ReLU and the pools 4, gradients of data 3, of weights 4,
        # of biases 4. The update.
        kernels = 10 + 4 + 3 + 4 + 4 + 1
        small = step_counts.count(_LENET)
        large = step_counts.count(_LENET._replace(batch=256))
        for counts in (small, large):
            self.assertEqual(counts.kernels, kernels)
            self.assertEqual(counts.graphs, 2)  # One a pass; the update is in the second.
        # The traffic of the parameters, and 0.58 MB a sample.
        self.assertAlmostEqual(large.bytes / 173.4e6, 1, delta=0.05)
        self.assertAlmostEqual((large.bytes - small.bytes) / (192 * 0.58e6), 1, delta=0.05)


if __name__ == "__main__":
    unittest.main()
