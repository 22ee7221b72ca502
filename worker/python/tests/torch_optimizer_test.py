"""capstan.torch without a cluster: which optimizers and scripts are taken, and what is declared."""

import json
import os
import pathlib
import tempfile
import unittest
from unittest import mock

try:
    import torch
    import capstan.torch
except ImportError:
    torch = None


@unittest.skipIf(torch is None, "PyTorch is missing: deploy/install --tests")
class TorchOptimizerTest(unittest.TestCase):
    def setUp(self):
        capstan.torch._session = None
        self.net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))

    def rule(self, make, **settings):
        return capstan.torch.server_optimizer(make(self.net.parameters(), lr=0.5, **settings))

    def refused(self, words, call):
        with self.assertRaisesRegex((capstan.Error, ValueError), words):
            call()

    def test_optimizers_are_the_servers_rules(self):
        optim = torch.optim
        rest = {"learning_rate": 0.5, "weight_decay": 0}
        self.assertEqual(self.rule(optim.SGD), {"sgd": {}, **rest})
        self.assertEqual(self.rule(optim.SGD, momentum=0.9),
                         {"momentum": {"momentum": 0.9}, **rest})
        self.assertEqual(self.rule(optim.SGD, momentum=0.9, nesterov=True, weight_decay=0.1),
                         {"nesterov": {"momentum": 0.9}, **rest, "weight_decay": 0.1})
        adam = {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8}
        self.assertEqual(self.rule(optim.Adam), {"adam": adam, **rest})
        self.assertEqual(self.rule(optim.Adam, amsgrad=True), {"amsgrad": adam, **rest})
        self.assertEqual(self.rule(optim.AdamW), {"adamw": adam, **rest, "weight_decay": 0.01})
        self.assertEqual(self.rule(optim.Adagrad),
                         {"adagrad": {"epsilon": 1e-10, "initial_accumulator": 0}, **rest})
        self.assertEqual(self.rule(optim.RMSprop),
                         {"rmsprop": {"alpha": 0.99, "epsilon": 1e-8, "momentum": 0}, **rest})
        self.assertEqual(self.rule(optim.Adadelta),
                         {"adadelta": {"rho": 0.9, "epsilon": 1e-6}, **rest})

    def test_what_the_servers_do_not_have_is_refused(self):
        optim = torch.optim
        self.refused("dampening is 0.1, expected 0",
                     lambda: self.rule(optim.SGD, momentum=0.9, dampening=0.1))
        self.refused("centered is True, expected False",
                     lambda: self.rule(optim.RMSprop, centered=True))
        self.refused("the optimizer is Rprop, expected one of torch.optim's SGD, Adam",
                     lambda: capstan.torch.server_optimizer(optim.Rprop(self.net.parameters())))
        newer = optim.Adam(self.net.parameters())
        newer.param_groups[0]["decoupled_weight_decay"] = True  # A setting of later PyTorch.
        self.refused("decoupled_weight_decay is True, expected False",
                     lambda: capstan.torch.server_optimizer(newer))
        groups = [{"params": [parameter]} for parameter in self.net.parameters()]
        self.refused("4 parameter groups, expected 1",
                     lambda: capstan.torch.server_optimizer(optim.SGD(groups, lr=1)))

    def test_a_script_declares_its_job(self):
        with tempfile.TemporaryDirectory() as folder:
            with mock.patch.dict(os.environ, {"CAPSTAN_DECLARE": folder}):
                sgd = torch.optim.SGD(self.net.parameters(), lr=0.5)
                capstan.torch.Optimizer(sgd, self.net, sync="ssp:3", seed=9)
                with self.assertRaises(SystemExit):
                    next(capstan.torch.batches(range(100), 10, epochs=2))
            job = json.loads(pathlib.Path(folder, "job.json").read_text())
        self.assertEqual(job["consistency"], {"ssp": {"staleness_bound": 3}})
        self.assertEqual(job["program"]["samples"], 100)
        self.assertEqual(job["program"]["parameters"][0], {"name": "0.weight", "shape": [2, 3]})
        self.assertEqual([tensor["name"] for tensor in job["program"]["averages"]],
                         ["1.running_mean", "1.running_var", "1.num_batches_tracked"])
        self.assertEqual((job["training"]["epochs"], job["training"]["batch_size"],
                          job["training"]["seed"]), (2, 10, 9))

    def test_calls_out_of_order_are_refused(self):
        self.refused("there is no capstan.torch.Optimizer yet",
                     lambda: next(capstan.torch.batches([1], 1)))
        sgd = torch.optim.SGD(self.net.parameters(), lr=0.5)
        self.refused("sync is 'bps', expected",
                     lambda: capstan.torch.Optimizer(sgd, self.net, sync="bps"))
        optimizer = capstan.torch.Optimizer(sgd, self.net)
        self.refused("there is no batch", optimizer.step)
        self.refused("a second capstan.torch.Optimizer",
                     lambda: capstan.torch.Optimizer(sgd, self.net))

    def test_the_model_must_be_the_optimizers(self):
        sgd = torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), lr=0.5)
        self.refused("has 2 parameters, and 0 of them are the model's",
                     lambda: capstan.torch.Optimizer(sgd, self.net))


if __name__ == "__main__":
    unittest.main()
