"""Which tensors of a module capstan.torch trains and averages, and how they come back."""

import ctypes
import unittest
from unittest import mock

try:
    import torch
    import capstan.torch
    from capstan import _network, _rules, _session, optimizers
except ImportError:
    torch = None


@unittest.skipIf(torch is None, "PyTorch is missing: deploy/install --tests")
class NetworkTest(unittest.TestCase):
    def setUp(self):
        self.net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))

    def network(self, parameters=None):
        return _network.Network(self.net, torch.optim.AdamW(parameters or self.net.parameters()))

    def refused(self, words, call):
        with self.assertRaisesRegex(capstan.Error, words):
            call()

    def test_integers_are_rounded(self):
        """A mean of three is 2.9999998 where the weights of ten slots are not exact."""
        network = self.network()
        values = {name: (ctypes.c_float * tensor.numel())(*[2.9999998] * tensor.numel())
                  for name, tensor in self.net.state_dict().items()}
        network.take(mock.Mock(values=values.__getitem__))
        self.assertEqual(int(self.net[1].num_batches_tracked), 3)
        self.assertLess(float(self.net[1].running_mean[0]), 3)

    def test_integers_that_fp32_has_not_are_refused(self):
        self.net.register_buffer("flags", torch.tensor([True, False]))
        self.network()
        self.net.register_buffer("numbers", torch.tensor([-(1 << 24) - 1]))
        self.refused("'numbers' is torch.int64 and has 16777217, expected at most 16777216",
                     self.network)

    def test_what_requires_no_gradient_is_not_trained(self):
        self.net[0].requires_grad_(False)
        network = self.network()
        self.assertEqual(list(network.parameters), ["1.weight", "1.bias"])
        session = mock.Mock()
        network.add_to(session, _rules.server_optimizers(torch.optim.AdamW(self.net.parameters())))
        self.assertIn("0.weight", session.averages)
        self.net.requires_grad_(False)
        self.refused("the optimizer has no parameter that requires a gradient", self.network)

    def test_what_is_trained_stays_so(self):
        network = self.network()
        self.net[0].weight.requires_grad_(False)
        self.refused("'0.weight' requires no gradient any more",
                     lambda: network.put(mock.Mock(), set()))
        network = self.network()
        self.net[0].weight.requires_grad_(True)
        self.refused("'0.weight' requires a gradient, and the optimizer does not have it",
                     network.look_again)

    def test_what_requires_a_gradient_has_a_rule(self):
        self.refused("'0.weight' requires a gradient, and the optimizer does not have it",
                     lambda: self.network(self.net[1].parameters()))

    def test_tables_of_rows_have_names_of_their_own(self):
        for dim in (4, 8):
            self.net.add_module(f"ads{dim}", capstan.torch.EmbeddingBag(
                "ads", dim, keys=lambda batch: batch, optimizer=optimizers.Adagrad(0.05)))
        self.refused("there are two EmbeddingBags 'ads', of the dimensions 4 and 8", self.network)

    def test_a_batch_that_is_named_again_is_kept(self):
        with mock.patch.object(_session, "_maker", None):
            session = _session.Session("a test", "bsp", None, 1)
        session.task = mock.Mock()
        for number in (*range(8), 0, 8):
            session._name_keys(mock.Mock(epoch=0, seed=number), None, {})
        self.assertEqual([seed for _, seed in session._made], [2, 3, 4, 5, 6, 7, 0, 8])


if __name__ == "__main__":
    unittest.main()
