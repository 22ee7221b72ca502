"""capstan.torch without a cluster: which optimizers and scripts are taken, and what is declared."""

import json
import os
import pathlib
import struct
import tempfile
import unittest
from unittest import mock

try:
    import torch
    import capstan.torch
    from capstan import _job, _rules, optimizers
except ImportError:
    torch = None


@unittest.skipIf(torch is None, "PyTorch is missing: deploy/install --tests")
class TorchOptimizerTest(unittest.TestCase):
    def setUp(self):
        capstan.torch._session = None
        self.net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))

    def rule(self, make, **settings):
        return _rules.server_optimizers(make(self.net.parameters(), lr=0.5, **settings))[0]

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
                     lambda: _rules.server_optimizers(optim.Rprop(self.net.parameters())))
        newer = optim.Adam(self.net.parameters())
        newer.param_groups[0]["decoupled_weight_decay"] = True  # A setting of later PyTorch.
        self.refused("decoupled_weight_decay is True, expected False",
                     lambda: _rules.server_optimizers(newer))

    def declared(self, make, environment=(), **settings):
        """The job of a script that trains 100 samples in batches of 10, twice."""
        with tempfile.TemporaryDirectory() as folder:
            with mock.patch.dict(os.environ, {"CAPSTAN_DECLARE": folder, **dict(environment)}):
                capstan.torch._session = None
                optimizer = make()
                if "schedule" in settings:
                    settings["schedule"] = settings["schedule"](optimizer)
                capstan.torch.Optimizer(optimizer, self.net, **settings)
                with self.assertRaises(SystemExit):
                    next(capstan.torch.batches(range(100), 10, epochs=2))
            return json.loads(pathlib.Path(folder, "job.json").read_text())

    def groups(self):
        return torch.optim.SGD([{"params": self.net[0].parameters(), "weight_decay": 0.1},
                                {"params": self.net[1].parameters(), "lr": 0.25}], lr=0.5)

    def test_a_group_has_its_own_rule(self):
        job = self.declared(self.groups)
        self.assertEqual(job["optimizer"],
                         {"sgd": {}, "learning_rate": 0.5, "weight_decay": 0.1})
        self.assertEqual(job["program"]["optimizers"],
                         [{"sgd": {}, "learning_rate": 0.25, "weight_decay": 0}])
        self.assertEqual([tensor.get("optimizer", 0) for tensor in job["program"]["parameters"]],
                         [0, 0, 1, 1])

    def test_a_schedule_is_declared_in_pieces(self):
        schedulers = torch.optim.lr_scheduler
        steps = {"schedule": lambda sgd: schedulers.StepLR(sgd, 3, gamma=0.5), "slots": 2}
        job = self.declared(self.groups, **steps)  # 5 updates an epoch.
        self.assertEqual(job["optimizer"]["learning_rate"], 0.5)
        self.assertEqual(job["optimizer"]["schedule"]["pieces"],
                         {"begins": [0, 3, 6, 9], "factors": [1, 0.5, 0.25, 0.125]})
        self.assertEqual(job["program"]["optimizers"][0]["schedule"],
                         job["optimizer"]["schedule"])
        job = self.declared(self.groups, schedule_every="epoch", sync="asp",
                            schedule=lambda sgd: schedulers.StepLR(sgd, 1, gamma=0.5))
        self.assertEqual(job["optimizer"]["schedule"]["pieces"],
                         {"begins": [0, 10], "factors": [1, 0.5]})
        warm_up = {"schedule": lambda sgd: schedulers.LambdaLR(sgd, lambda t: min(1, t / 2))}
        job = self.declared(self.groups, {"CAPSTAN_WORKERS": "10"}, **warm_up)
        self.assertEqual(job["optimizer"]["learning_rate"], 0.5)
        self.assertEqual(job["optimizer"]["schedule"]["pieces"],
                         {"begins": [0, 1], "factors": [0, 0.5]})

    def test_schedules_that_cannot_be_written_down_are_refused(self):
        schedulers = torch.optim.lr_scheduler
        self.refused("ReduceLROnPlateau, expected one that needs no losses",
                     lambda: self.declared(self.groups, slots=1,
                                           schedule=schedulers.ReduceLROnPlateau))
        self.refused("a schedule needs the number of slots",
                     lambda: self.declared(self.groups,
                                           schedule=lambda sgd: schedulers.StepLR(sgd, 1)))
        with mock.patch.object(_rules, "PIECES_MAX", 5):
            self.refused("more than 5 rates: step it once an epoch",
                         lambda: self.declared(self.groups, slots=1, schedule=lambda sgd:
                                               schedulers.ExponentialLR(sgd, 0.9)))

    def test_a_schedule_of_more_than_the_learning_rate_is_refused(self):
        def one_cycle(cycle_momentum):
            return lambda sgd: torch.optim.lr_scheduler.OneCycleLR(
                sgd, 1.0, total_steps=20, cycle_momentum=cycle_momentum)

        def momentum():
            return torch.optim.SGD(self.net.parameters(), lr=0.5, momentum=0.9)

        self.refused("changes momentum of torch.optim.SGD, expected one of the learning rate alone",
                     lambda: self.declared(momentum, slots=1, schedule=one_cycle(True)))
        self.declared(momentum, slots=1, schedule=one_cycle(False))

    def bag(self, **settings):
        return capstan.torch.EmbeddingBag("ads", 2, keys=lambda batch: batch[0],
                                          optimizer=optimizers.Adagrad(0.05), **settings)

    def test_an_embedding_is_declared_and_no_parameter(self):
        self.net.add_module("ads", self.bag(admit_after=3, initial_std=0))
        job = self.declared(self.groups)
        self.assertEqual(job["program"]["rows"], [{
            "name": "ads", "dim": 2, "initial_std": 0, "optimizer": 2,
            "lifetime": {"admit_after": 3, "evict_after_updates": 0, "rows_max": 0,
                         "memory_mib": 0}}])
        self.assertEqual(job["program"]["optimizers"][1]["learning_rate"], 0.05)
        self.assertEqual(len(job["program"]["parameters"]), 4)

    def test_a_rule_of_a_plugin_is_declared_by_its_name(self):
        rule = optimizers.Plugin("signum", 0.5, [0.75], weight_decay=0.25)
        self.net.add_module("ads", capstan.torch.EmbeddingBag(
            "ads", 2, keys=lambda batch: batch[0], optimizer=rule))
        job = self.declared(self.groups)
        self.assertEqual(job["program"]["optimizers"][1], {
            "plugin": {"rule": "signum", "numbers": [0.75]}, "learning_rate": 0.5,
            "weight_decay": 0.25})

    def test_an_embedding_computes_what_torchs_does(self):
        keys = torch.tensor([[7, -1, 7], [5, 5, 9]])
        rows = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]])
        named = torch.tensor([9, 7, -1, 5])
        places = torch.tensor([3, 0, 1, 2])
        for mode in ("sum", "mean"):
            bag = self.bag(mode=mode)
            bag.take(rows.clone(), named, places)
            plain = torch.nn.EmbeddingBag.from_pretrained(rows, freeze=False, mode=mode)
            bag(keys).square().sum().backward()
            plain(torch.tensor([[0, 1, 0], [2, 2, 3]])).square().sum().backward()
            self.assertTrue(torch.equal(bag.gradient(), plain.weight.grad))
        bag.take(rows.clone(), named, places)
        bags = bag(named, torch.tensor([0, 2]))
        self.assertTrue(torch.equal(bags, torch.tensor([[4.0, 5.0], [4.0, 5.0]])))

    def test_a_model_is_loaded(self):
        self.net.add_module("ads", self.bag())
        tensors = [(name, tensor.shape, torch.full_like(tensor, 2.0, dtype=torch.float32))
                   for name, tensor in self.net.state_dict().items()]
        with tempfile.TemporaryDirectory() as folder:
            _job.write_safetensors(pathlib.Path(folder, "model.safetensors"), (
                (name, shape, tensor.numpy().tobytes()) for name, shape, tensor in tensors))
            header = json.dumps({"keys": {"dtype": "U64", "shape": [2], "data_offsets": [0, 16]},
                                 "rows": {"dtype": "F32", "shape": [2, 2],
                                          "data_offsets": [16, 32]}}).encode()
            rows = pathlib.Path(folder, "rows-ads.safetensors")
            rows.write_bytes(struct.pack("<Q", len(header)) + header +
                             struct.pack("<QQffff", 7, (1 << 64) - 1, 1, 2, 3, 4))
            capstan.torch.load(self.net, folder)
            for tensor in self.net.state_dict().values():
                self.assertTrue(bool((tensor == 2).all()))
            found = self.net.ads(torch.tensor([[-1, 7], [7, 5]]))
            self.assertEqual(found.tolist(), [[4, 6], [1, 2]])
            wider = torch.nn.Sequential(torch.nn.Linear(3, 5))
            self.refused(r"'0.weight' has the shape \(2, 3\), expected \(5, 3\)",
                         lambda: capstan.torch.load(wider, folder))
            rows.unlink()
            self.refused("there is no file .*rows-ads.safetensors",
                         lambda: capstan.torch.load(self.net, folder))

    def test_an_embedding_refuses_what_it_cannot_look_up(self):
        bag = self.bag()
        self.refused("'ads' has rows only in the loop", lambda: bag(torch.tensor([[1]])))
        bag.take(torch.zeros(1, 2), torch.tensor([4]), torch.tensor([0]))
        self.refused("key 3 is looked up, and `keys` has not named it",
                     lambda: bag(torch.tensor([[4, 3]])))
        self.refused("keys are torch.float32, expected", lambda: bag(torch.tensor([[4.0]])))
        self.refused("keys are list, expected", lambda: bag.keys_of([[4]]))
        self.refused("mode is 'max'", lambda: self.bag(mode="max"))

    def test_a_script_declares_its_job(self):
        job = self.declared(lambda: torch.optim.SGD(self.net.parameters(), lr=0.5),
                            sync="ssp:3", seed=9)
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
