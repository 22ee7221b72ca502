"""capstan.torch without a cluster: which models and scripts are taken, and what is declared."""

import json
import os
import pathlib
import struct
import tempfile
import types
import unittest
from unittest import mock

try:
    import torch
    import capstan.torch
    from capstan import _client, _job, _network, _overlap, _rules, _session, _skipped, optimizers
except ImportError:
    torch = None


@unittest.skipIf(torch is None, "PyTorch is missing: deploy/install --tests")
class TorchOptimizerTest(unittest.TestCase):
    def setUp(self):
        self.forget()
        self.net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))

    @staticmethod
    def forget():
        """As in a new process."""
        capstan.torch._made = _session._maker = None

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
                self.forget()
                optimizer = make()
                if "schedule" in settings:
                    settings["schedule"] = settings["schedule"](optimizer)
                capstan.torch.Optimizer(optimizer, self.net, **settings)
                with self.assertRaises(SystemExit):
                    next(capstan.torch.batches(range(100), 10, epochs=2))
            return json.loads(pathlib.Path(folder, "job.json").read_text())

    def trained(self, job, make, environment=(), schedule=None, **settings):
        """The batches of the script of `declared` in a task of its job, which has none for it."""
        def task():
            tensors = tuple(_client.Tensor(name, shape, 0, 0)
                            for name, shape in capstan.torch._made._session.shapes().items())
            return mock.Mock(tables=[_client.Table("all", _client.PARAMETERS, 0, tensors)],
                             closed=True, next=lambda: None)

        variables = {**job["program"]["environment"], **dict(environment),
                     "CAPSTAN_TASK_SPEC": "that of `task`"}
        with mock.patch.dict(os.environ, variables), mock.patch.object(_session, "Task", task):
            self.forget()
            optimizer = make()
            if schedule is not None:
                settings["schedule"] = schedule(optimizer)
            capstan.torch.Optimizer(optimizer, self.net, **settings)
            return list(capstan.torch.batches(range(100), 10, epochs=2))

    def test_a_rule_that_is_another_one_in_a_task_is_refused(self):
        def scaled_by(variable):
            return lambda: torch.optim.SGD(self.net.parameters(),
                                           lr=0.25 * int(os.environ[variable]))

        alone, in_task = {"WORLD_SIZE": "1", "CAPSTAN_WORKERS": "2"}, {"WORLD_SIZE": "2"}
        job = self.declared(scaled_by("WORLD_SIZE"), alone)
        self.refused("the rule of '0.weight' is {.*'learning_rate': 0.5, .*} in the script, and "
                     "was {.*'learning_rate': 0.25, .*} when it declared the job, expected the "
                     "same: WORLD_SIZE was 1 then, and CAPSTAN_WORKERS is the same in both",
                     lambda: self.trained(job, scaled_by("WORLD_SIZE"), in_task))
        job = self.declared(scaled_by("CAPSTAN_WORKERS"), alone)
        self.assertEqual(job["optimizer"]["learning_rate"], 0.5)
        self.assertEqual(self.trained(job, scaled_by("CAPSTAN_WORKERS"), in_task), [])

    def test_a_schedule_that_is_another_one_in_a_task_is_refused(self):
        made = []

        def schedule(sgd):
            steps = 20 // int(os.environ["WORLD_SIZE"])
            made.append(torch.optim.lr_scheduler.OneCycleLR(sgd, 1.0, steps, cycle_momentum=False))
            return made[-1]

        alone = {"WORLD_SIZE": "1", "CAPSTAN_WORKERS": "2"}
        job = self.declared(self.sgd, alone, schedule=schedule)
        self.refused("the rule of '0.weight' is {.*'schedule': 'checksum ",
                     lambda: self.trained(job, self.sgd, {"WORLD_SIZE": "2"}, schedule))
        self.assertEqual(self.trained(job, self.sgd, {"WORLD_SIZE": "1"}, schedule), [])
        for each in made:  # Loops may step and show it.
            rate = each.optimizer.param_groups[0]["lr"]
            self.assertEqual((each.last_epoch, each.get_last_lr()), (0, [rate]))
            self.assertAlmostEqual(rate, 0.04, delta=1e-9)

    def groups(self):
        return torch.optim.SGD([{"params": self.net[0].parameters(), "weight_decay": 0.1},
                                {"params": self.net[1].parameters(), "lr": 0.25}], lr=0.5)

    def test_a_group_has_its_own_rule(self):
        job = self.declared(self.groups)
        self.assertEqual(job["optimizer"], {"sgd": {}, "learning_rate": 0.5, "weight_decay": 0.1})
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
            "lifetime": {"admit_after": 3, "evict_after_updates": 0, "ttl_seconds": 0,
                         "rows_max": 0, "memory_mib": 0}}])
        self.assertEqual(job["program"]["optimizers"][1]["learning_rate"], 0.05)
        self.assertEqual(len(job["program"]["parameters"]), 4)

    def test_an_embedding_may_have_a_time_to_live(self):
        self.net.add_module("ads", self.bag(ttl="30d"))
        lifetime = self.declared(self.groups)["program"]["rows"][0]["lifetime"]
        self.assertEqual(lifetime["ttl_seconds"], 2_592_000)

    def test_a_rule_of_a_plugin_is_declared_by_its_name(self):
        rule = optimizers.Plugin("signum", 0.5, [0.75], weight_decay=0.25)
        self.net.add_module("ads", capstan.torch.EmbeddingBag(
            "ads", 2, keys=lambda batch: batch[0], optimizer=rule))
        job = self.declared(self.groups)
        self.assertEqual(job["program"]["optimizers"][1], {
            "plugin": {"rule": "signum", "numbers": [0.75]}, "learning_rate": 0.5,
            "weight_decay": 0.25})

    def test_a_rule_may_be_given_in_place_of_a_torch_optimizer(self):
        rule = optimizers.Plugin("signum", 0.5, [0.75])
        self.net[0].bias.requires_grad_(False)
        job = self.declared(lambda: rule)
        self.assertEqual(job["optimizer"], rule)
        self.assertEqual(job["program"]["optimizers"], [])
        self.assertEqual([tensor["name"] for tensor in job["program"]["parameters"]],
                         ["0.weight", "1.weight", "1.bias"])
        self.forget()
        optimizer = capstan.torch.Optimizer(rule, self.net)
        self.backward()
        self.assertIsNotNone(self.net[0].weight.grad)
        optimizer.zero_grad()
        self.assertIsNone(self.net[0].weight.grad)
        self.assertEqual([group["lr"] for group in optimizer.param_groups], [0.5])
        self.refused("the optimizer is a rule, expected one of torch.optim for the schedule",
                     lambda: self.declared(lambda: rule, schedule=lambda _: object()))
        head, body = list(self.net[1].parameters()), [self.net[0].weight]
        other = optimizers.SGD(0.25) | optimizers.Cosine(100, warmup=5)
        job = self.declared(lambda: [(head, rule), (body, other)])
        self.assertEqual(job["optimizer"], rule)
        self.assertEqual(job["program"]["optimizers"], [other])
        self.assertEqual([(tensor["name"], tensor.get("optimizer"))
                          for tensor in job["program"]["parameters"]],
                         [("1.weight", None), ("1.bias", None), ("0.weight", 1)])
        self.refused("the optimizer is .., expected .* or pairs of parameters and their rule",
                     lambda: self.declared(lambda: []))
        with mock.patch.dict(os.environ):
            self.forget()
            optimizer = capstan.torch.Optimizer(rule, self.net)
        with mock.patch.object(optimizer, "_session"):
            self.refused("step.. is given a function, expected the loss",
                         lambda: optimizer.step(lambda: 1.0))
        self.refused("the optimizer is .Parameter containing", lambda: self.declared(lambda: head))
        self.net = torch.nn.ModuleDict({"ads": self.bag()})
        self.refused("the model has no parameter that requires a gradient, expected None",
                     lambda: self.declared(lambda: rule))

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

    def test_embeddings_alone_need_no_torch_optimizer(self):
        self.net = torch.nn.ModuleDict({"ads": self.bag()})
        job = self.declared(lambda: None)
        self.assertEqual(job["program"]["parameters"], [])
        self.assertEqual(job["optimizer"]["learning_rate"], 0.05)
        self.assertEqual(job["program"]["optimizers"], [])
        self.assertNotIn("optimizer", job["program"]["rows"][0])
        self.net["head"] = torch.nn.Linear(2, 1)
        self.refused("the optimizer is None, expected one of torch.optim for the parameter "
                     "'head.weight'", lambda: self.declared(lambda: None))
        self.net = torch.nn.BatchNorm1d(2, affine=False)
        self.refused("expected one of torch.optim for a model without an EmbeddingBag",
                     lambda: self.declared(lambda: None))

    def sgd(self):
        return torch.optim.SGD(self.net.parameters(), lr=0.5)

    def test_parameters_that_servers_cannot_hold_are_refused(self):
        for dtype in (torch.float16, torch.bfloat16):
            self.net.to(dtype)
            self.declared(self.sgd)
        self.refused("the parameter '0.weight' is torch.float64, expected float32, float16 or",
                     lambda: self.declared(lambda: self.net.double() and self.sgd()))
        self.net = torch.nn.Linear(3, 2, device="meta")
        self.refused("the parameter 'weight' is on the device 'meta', expected 'cpu'",
                     lambda: self.declared(self.sgd))
        on_gpu = types.SimpleNamespace(dtype=torch.float32, device=torch.device("cuda"))
        self.refused("the parameter 'w' is on the device 'cuda', expected 'cpu'",
                     lambda: _network._check_parameter("w", on_gpu))

    def test_a_model_that_has_changed_since_is_looked_at_again(self):
        optimizer = capstan.torch.Optimizer(self.sgd(), self.net)
        self.net.double()  # This makes new buffers.
        self.refused("the parameter '0.weight' is torch.float64",
                     lambda: next(capstan.torch.batches(range(100), 10)))
        self.net.float()
        optimizer._network.look_again()
        self.assertIs(optimizer._network._averages["1.running_mean"], self.net[1].running_mean)
        self.net[0] = torch.nn.Linear(3, 2)
        self.refused("the model's parameter '0.weight' is another one than capstan.torch.Optimizer",
                     lambda: next(capstan.torch.batches(range(100), 10)))

    def test_data_without_numbers_are_refused(self):
        class Stream(torch.utils.data.IterableDataset):
            def __iter__(self):
                return iter(range(10))

        def batches(*arguments, **named):
            return lambda: next(capstan.torch.batches(*arguments, **named))

        capstan.torch.Optimizer(self.sgd(), self.net)
        self.refused("the dataset is a Stream, expected one with __len__ and __getitem__",
                     batches(Stream(), 10))
        self.refused("the dataset is an empty list, expected at least one sample", batches([], 1))
        self.refused("the test data is a generator, expected one with __len__",
                     batches([1], 1, test=(x for x in ()), evaluate=len))
        self.refused("test and evaluate belong together", batches([1], 1, test=[1]))
        self.refused("workers is -1 and prefetch is 2, expected at least 0", batches([1], 1,
                                                                                    workers=-1))

    def test_an_evaluation_sees_no_gradients_and_leaves_the_modes_of_modules(self):
        self.net[0].eval()

        def evaluate(batch):
            self.assertFalse(torch.is_grad_enabled())
            self.assertFalse(self.net[1].training)
            return batch

        network = _network.Network(self.net, self.sgd())

        def run(batch):
            return network.evaluate(evaluate, batch)

        self.assertEqual(run((torch.tensor(2.5), torch.tensor(3))), (2.5, 3))
        self.assertEqual(run(torch.tensor(2.5)), (2.5, 0))
        self.refused("evaluate has returned NoneType, expected a batch's mean loss",
                     lambda: run(None))
        self.assertEqual([module.training for module in self.net], [False, True])

    def overlapped(self, calls):
        """The net with its tensors in one table, and what it puts and releases in `calls`."""
        tensors, first = [], 0
        for name, tensor in self.net.named_parameters():
            tensors.append(_client.Tensor(name, tuple(tensor.shape), first, tensor.numel()))
            first += tensor.numel()
        return _overlap.Overlap(
            dict(self.net.named_parameters()),
            _client.Table("parameters", _client.PARAMETERS, 0, tuple(tensors)),
            lambda name, gradient: calls.append((name, gradient.numel())), calls.append)

    def backward(self):
        self.net(torch.tensor([[1.0, 2.0, 3.0], [2.0, 4.0, 0.0]])).square().sum().backward()

    def test_gradients_leave_during_backward_from_the_end_of_the_table_on(self):
        calls = []
        overlap = self.overlapped(calls)
        self.backward()  # There is no batch.
        self.assertEqual(calls, [])
        overlap.begin()
        self.backward()
        self.assertEqual(sorted(call for call in calls if isinstance(call, tuple)),
                         [("0.bias", 2), ("0.weight", 6), ("1.bias", 2), ("1.weight", 2)])
        releases = [call for call in calls if isinstance(call, int)]
        self.assertEqual(releases, sorted(releases, reverse=True))
        self.assertEqual(releases[-1], 0)
        self.assertLess(calls.index(releases[0]), len(calls) - 2)
        self.assertEqual(overlap.end(), dict(self.net.named_parameters()).keys())

    def test_a_tensor_without_a_gradient_holds_back_what_lies_before_it(self):
        calls = []
        overlap = self.overlapped(calls)
        overlap.begin()
        self.net[0](torch.ones(1, 3)).sum().backward()
        self.assertEqual(calls, [("0.bias", 2), ("0.weight", 6)])
        self.assertEqual(overlap.end(), {"0.bias", "0.weight"})

    def test_gradients_that_have_left_cannot_change(self):
        overlap = self.overlapped([])
        overlap.begin()
        self.backward()
        self.refused("backward.. adds to the gradient of '[01].[a-z]*', which has left",
                     self.backward)
        self.net.zero_grad()
        overlap.begin()
        self.backward()
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), 1e6)
        self.refused("was changed after backward.., as by clipping, and has left before",
                     overlap.end)

    def test_a_step_that_was_left_out_is_noticed_wherever_gradients_are_cleared(self):
        weight = torch.nn.Parameter(torch.zeros(2))
        for clears_at_end in (False, True):
            skipped = _skipped.SkippedSteps(lambda: [weight])

            def compute(gradient, at_end=clears_at_end, skipped=skipped):
                if not at_end:
                    skipped.before_clearing()
                    weight.grad = None
                weight.grad = torch.tensor([gradient, 1.0])
                if gradient < float("inf"):
                    skipped.stepped()
                if at_end:
                    skipped.before_clearing()
                    weight.grad = None

            for _ in range(2):
                compute(2.0)
                for _ in range(_skipped._REPEATS_MAX):
                    compute(float("inf"))
                    self.assertTrue(skipped.comes_again())
            compute(float("inf"))
            self.refused("infinite after 40 skipped steps", skipped.comes_again)
            skipped.stepped()
            weight.grad = None
            self.assertFalse(skipped.comes_again())

    def test_a_scaler_finds_the_rows_of_the_batch_among_the_parameter_groups(self):
        bag = self.bag()
        self.net.add_module("ads", bag)
        optimizer = capstan.torch.Optimizer(self.sgd(), self.net)
        dense, rows = optimizer.param_groups
        self.assertEqual(len(dense["params"]), 4)
        self.assertEqual(rows, {"params": [], "lr": 0.05, "weight_decay": 0.0})

        def backward():
            bag(torch.tensor([[4]])).sum().backward()
            return optimizer.param_groups[1]["params"][0]

        bag.take(torch.zeros(1, 2), torch.tensor([4]), torch.tensor([0]))
        self.assertEqual(backward().grad.tolist(), [[1.0, 1.0]])
        optimizer.zero_grad()
        self.assertEqual(backward().grad.tolist(), [[1.0, 1.0]])
        self.assertFalse(optimizer._skipped.comes_again())
        backward().grad.fill_(float("inf"))
        optimizer.zero_grad()
        self.assertTrue(optimizer._skipped.comes_again())
        self.assertFalse(optimizer._skipped.comes_again())
        bag.gradient()
        self.assertEqual(optimizer.param_groups[1]["params"], [])
        optimizer.param_groups[1]["lr"] = 0.5
        self.assertNotEqual(optimizer._current_rates(), optimizer._rates)

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
        self.refused("has capstan.torch.Optimizer and capstan.init.., expected one of the two",
                     capstan.init)

    def test_the_model_must_be_the_optimizers(self):
        sgd = torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), lr=0.5)
        self.refused("has 2 parameters, and 0 of them are the model's",
                     lambda: capstan.torch.Optimizer(sgd, self.net))


if __name__ == "__main__":
    unittest.main()
