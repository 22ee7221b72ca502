#!/usr/bin/env python3
"""Makes expected.inc: what PyTorch's optimizers and schedulers compute, for reference_test.cc.

    /usr/bin/python3 make_expected.py > expected.inc        (Debian's python3-torch)

PyTorch runs in fp64 on hyperparameters that are exact fp32 numbers, so its results are exact as far
as the test is concerned, and the tolerance has to cover the roundings of the fp32 reference alone.
Weights start at (i - 2) / 4 and gradients follow a formula that is exact in fp32; both stand in
reference_test.cc as well. An entry of the output is {name, config, {{update, {weights}}, ...}}: the
weights after that many updates.

PyTorch has no Lion: LionByPaper is algorithm 2 of Chen et al., Symbolic Discovery of Optimization
Algorithms, 2023.

PyTorch has neither LARS nor LAMB: LarsByPaper is algorithm 1 of You, Gitman, Ginsburg, Large Batch
Training of Convolutional Networks, 2017, LambByPaper algorithm 2 of You et al., Large Batch
Optimization for Deep Learning: Training BERT in 76 minutes, 2020.

PyTorch has no FTRL. Without l1 and l2 it is Adagrad with beta for epsilon (McMahan,
Follow-the-Regularized-Leader and Mirror Descent, 2011), which PyTorch has; with them,
FtrlByDefinition minimises the sum that defines it, without the state z of the algorithm.
"""

import math
import struct

import torch
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, StepLR

ELEMENTS = 5
CHECKED_UPDATES = (1, 2, 3, 10, 24)


def f32(value):
    """The fp32 number nearest to value, which is what a job file can hold."""
    return struct.unpack("f", struct.pack("f", value))[0]


def gradient(step):
    values = [((step * 7 + i * 5) % 17 - 8) / 8 for i in range(ELEMENTS)]
    values[3] = 0.0  # An element that never gets a gradient.
    return torch.tensor(values, dtype=torch.float64)


class Case:
    """One optimizer with its settings: builds the PyTorch side and the C++ initialiser."""

    def __init__(self, name, kind, lr, make, rule="", decay=0.0, clip=0.0, schedule=None):
        self.name, self.kind, self.lr, self.make, self.rule = name, kind, f32(lr), make, rule
        self.decay, self.clip, self.schedule = f32(decay), f32(clip), schedule

    def config(self):
        fields = [f".kind = OptimizerKind::{self.kind}", f".learning_rate = {literal(self.lr)}"]
        if self.schedule:
            fields.append(".schedule = {" + self.schedule[0].replace(", ", ",\n   ") + "}")
        if self.decay:
            fields.append(f".weight_decay = {literal(self.decay)}")
        if self.clip:
            fields.append(f".clip_value = {literal(self.clip)}")
        if self.rule:
            fields.append(self.rule)
        return "{" + ",\n  ".join(fields) + "}"

    def run(self):
        weights = torch.tensor([(i - 2) / 4 for i in range(ELEMENTS)], dtype=torch.float64)
        weights.requires_grad_(True)
        optimizer = self.make([weights], lr=self.lr, weight_decay=self.decay)
        schedulers = self.schedule[1](optimizer) if self.schedule else []
        results = []
        for step in range(CHECKED_UPDATES[-1]):
            weights.grad = gradient(step)
            if self.clip:
                torch.nn.utils.clip_grad_value_([weights], self.clip)
            optimizer.step()
            for scheduler, last in schedulers:
                if step < last:  # A cosine would rise again after its minimum; ours stays there.
                    scheduler.step()
            if step + 1 in CHECKED_UPDATES:
                results.append((step + 1, weights.detach().tolist()))
        return results


def literal(value):
    text = repr(float("%.9g" % value))
    return text + "f"


def betas(beta1, beta2, epsilon):
    return f".beta1 = {beta1}f, .beta2 = {beta2}f, .epsilon = {epsilon}f"


def adam(algorithm, beta1=0.9, beta2=0.999, epsilon=1e-8, amsgrad=False):
    values = (f32(beta1), f32(beta2))
    return lambda p, **k: algorithm(p, betas=values, eps=f32(epsilon), amsgrad=amsgrad, **k)


def sgd(momentum=0.0, nesterov=False):
    return lambda p, **k: torch.optim.SGD(p, momentum=f32(momentum), nesterov=nesterov, **k)


def adagrad(epsilon, initial):
    return lambda p, **k: torch.optim.Adagrad(
        p, eps=f32(epsilon), initial_accumulator_value=f32(initial), **k)


def rmsprop(alpha, epsilon, momentum):
    return lambda p, **k: torch.optim.RMSprop(
        p, alpha=f32(alpha), eps=f32(epsilon), momentum=f32(momentum), **k)


def adadelta(rho, epsilon):
    return lambda p, **k: torch.optim.Adadelta(p, rho=f32(rho), eps=f32(epsilon), **k)


ALWAYS = 1 << 30


def step_schedule(every, factor):
    return (f".kind = ScheduleKind::kStep, .step_every = {every}, .step_factor = {factor}f",
            lambda o: [(StepLR(o, every, f32(factor)), ALWAYS)])


def cosine_schedule(steps, minimum):
    return (f".kind = ScheduleKind::kCosine, .cosine_steps = {steps}, "
            f".cosine_minimum = {minimum}f",
            lambda o: [(CosineAnnealingLR(o, steps, f32(minimum)), steps)])


def with_warmup(schedule, steps):
    """(t + 1) / steps: LinearLR from 1 / steps to 1 in steps - 1 updates, times the schedule."""
    text = f".warmup_steps = {steps}"
    def make(optimizer):
        warmup = LinearLR(optimizer, 1 / steps, 1.0, steps - 1)
        return (schedule[1](optimizer) if schedule else []) + [(warmup, ALWAYS)]
    return (schedule[0] + ", " + text if schedule else text, make)


class FtrlByDefinition(torch.optim.Optimizer):
    """After each gradient, w = argmin of

        G w  +  l1 |w|  +  l2 / 2 w^2  +  sum_s sigma_s / 2 (w - w_s)^2

    G is the sum of all gradients, w_s the weight that gradient s was of. The sigma add up to
    1 / rate = (beta + sqrt(sum g^2)) / lr; those before an element's first gradient are 0.
    Found by bisection.
    """

    def __init__(self, parameters, lr, weight_decay, beta, l1, l2):
        super().__init__(parameters, {"lr": lr})
        assert weight_decay == 0
        self.beta, self.l1, self.l2 = beta, l1, l2
        self.history = [[] for _ in range(ELEMENTS)]  # (gradient, weight, 1 / rate) of each step.

    def step(self):
        group = self.param_groups[0]
        weights = group["params"][0]
        for i, past in enumerate(self.history):
            g, w = weights.grad[i].item(), weights[i].item()
            squares = sum(h[0] ** 2 for h in past) + g ** 2
            if squares == 0:
                continue
            past.append((g, w, (self.beta + math.sqrt(squares)) / group["lr"]))
            weights.data[i] = self.minimum(past)

    def minimum(self, past):
        strengths = [0.0] + [h[2] for h in past]
        def slope(w, sign):  # The sum's slope at w; sign: that of w, or which side of 0.
            pull = sum((strengths[s + 1] - strengths[s]) * (w - h[1]) for s, h in enumerate(past))
            return sum(h[0] for h in past) + self.l1 * sign + self.l2 * w + pull
        if slope(0.0, -1) <= 0 <= slope(0.0, 1):
            return 0.0
        sign = 1 if slope(0.0, 1) < 0 else -1
        low, high = (0.0, 1e3) if sign > 0 else (-1e3, 0.0)
        for _ in range(100):
            middle = (low + high) / 2
            low, high = (middle, high) if slope(middle, sign) < 0 else (low, middle)
        return (low + high) / 2


class LionByPaper(torch.optim.Optimizer):
    """Algorithm 2, with c = beta1 m + (1 - beta1) g:

        w = w - lr (sign(c) + decay w);  m = beta2 m + (1 - beta2) g
    """

    def __init__(self, parameters, lr, weight_decay, beta1, beta2):
        super().__init__(parameters, {"lr": lr, "weight_decay": weight_decay})
        self.beta1, self.beta2 = beta1, beta2
        self.m = torch.zeros(ELEMENTS, dtype=torch.float64)

    def step(self):
        group = self.param_groups[0]
        weights = group["params"][0]
        sign = torch.sign(self.beta1 * self.m + (1 - self.beta1) * weights.grad)
        weights.data -= group["lr"] * (sign + group["weight_decay"] * weights.data)
        self.m = self.beta2 * self.m + (1 - self.beta2) * weights.grad


class LarsByPaper(torch.optim.Optimizer):
    """Algorithm 1, the weights being one layer:

        rate = lr trust |w| / (|g| + decay |w|);  v = m v + rate (g + decay w);  w = w - v
    """

    def __init__(self, parameters, lr, weight_decay, momentum, trust):
        super().__init__(parameters, {"lr": lr, "weight_decay": weight_decay})
        self.momentum, self.trust = momentum, trust
        self.v = torch.zeros(ELEMENTS, dtype=torch.float64)

    def step(self):
        group = self.param_groups[0]
        weights, decay = group["params"][0], group["weight_decay"]
        norm = weights.data.norm()
        ratio = self.trust * norm / (weights.grad.norm() + decay * norm)
        step = weights.grad + decay * weights.data
        self.v = self.momentum * self.v + group["lr"] * ratio * step
        weights.data -= self.v


class LambByPaper(torch.optim.Optimizer):
    """Algorithm 2, the weights being one layer and phi the identity:

        r = m' / (sqrt(v') + eps), m' and v' as Adam's;  u = r + decay w;  w = w - lr |w| / |u| u
    """

    def __init__(self, parameters, lr, weight_decay, beta1, beta2, epsilon):
        super().__init__(parameters, {"lr": lr, "weight_decay": weight_decay})
        self.beta1, self.beta2, self.epsilon = beta1, beta2, epsilon
        self.m = torch.zeros(ELEMENTS, dtype=torch.float64)
        self.v = torch.zeros(ELEMENTS, dtype=torch.float64)
        self.t = 0

    def step(self):
        group = self.param_groups[0]
        weights = group["params"][0]
        self.t += 1
        self.m = self.beta1 * self.m + (1 - self.beta1) * weights.grad
        self.v = self.beta2 * self.v + (1 - self.beta2) * weights.grad ** 2
        m, v = self.m / (1 - self.beta1 ** self.t), self.v / (1 - self.beta2 ** self.t)
        step = m / (v.sqrt() + self.epsilon) + group["weight_decay"] * weights.data
        weights.data -= group["lr"] * weights.data.norm() / step.norm() * step


def lars(momentum, trust):
    return lambda p, **k: LarsByPaper(p, momentum=f32(momentum), trust=f32(trust), **k)


def lars_rule(momentum, trust):
    return f".momentum = {momentum}f, .trust_coefficient = {trust}f"


def lamb(beta1, beta2, epsilon):
    return lambda p, **k: LambByPaper(
        p, beta1=f32(beta1), beta2=f32(beta2), epsilon=f32(epsilon), **k)


def lion(beta1, beta2):
    return lambda p, **k: LionByPaper(p, beta1=f32(beta1), beta2=f32(beta2), **k)


def lion_rule(beta1, beta2):
    return f".beta1 = {beta1}f, .beta2 = {beta2}f"


def ftrl(beta, l1, l2):
    if l1 == l2 == 0:
        return adagrad(beta, 0)
    return lambda p, **k: FtrlByDefinition(p, beta=f32(beta), l1=f32(l1), l2=f32(l2), **k)


def ftrl_rule(beta, l1, l2):
    return f".beta = {beta}f, .l1 = {l1}f, .l2 = {l2}f"


ADAM, ADAMW = torch.optim.Adam, torch.optim.AdamW
CASES = [
    Case("sgd", "kSgd", 0.1, sgd()),
    Case("sgd, decay", "kSgd", 0.1, sgd(), decay=0.05),
    Case("sgd, clip", "kSgd", 0.1, sgd(), clip=0.3),
    Case("sgd, decay and clip", "kSgd", 0.1, sgd(), decay=0.5, clip=0.3),
    Case("momentum", "kMomentum", 0.1, sgd(0.9), ".momentum = 0.9f"),
    Case("momentum, decay", "kMomentum", 0.1, sgd(0.8), ".momentum = 0.8f", decay=0.05),
    Case("nesterov", "kNesterov", 0.1, sgd(0.9, True), ".momentum = 0.9f"),
    Case("nesterov, decay", "kNesterov", 0.1, sgd(0.9, True), ".momentum = 0.9f", decay=0.05),
    Case("adagrad", "kAdagrad", 0.1, adagrad(1e-10, 0), ".epsilon = 1e-10f"),
    Case("adagrad, decay, accumulator", "kAdagrad", 0.1, adagrad(0.1, 0.5),
         ".epsilon = 0.1f, .initial_accumulator = 0.5f", decay=0.05),
    Case("rmsprop", "kRmsProp", 0.01, rmsprop(0.99, 1e-8, 0),
         ".momentum = 0.0f, .alpha = 0.99f, .epsilon = 1e-8f"),
    Case("rmsprop, decay", "kRmsProp", 0.01, rmsprop(0.9, 0.1, 0),
         ".momentum = 0.0f, .alpha = 0.9f, .epsilon = 0.1f", decay=0.05),
    Case("rmsprop, momentum", "kRmsProp", 0.01, rmsprop(0.9, 0.01, 0.8),
         ".momentum = 0.8f, .alpha = 0.9f, .epsilon = 0.01f"),
    Case("adam", "kAdam", 0.01, adam(ADAM), betas(0.9, 0.999, 1e-8)),
    Case("adam, decay, large epsilon", "kAdam", 0.1, adam(ADAM, 0.8, 0.95, 0.1),
         betas(0.8, 0.95, 0.1), decay=0.05),
    Case("adamw", "kAdamW", 0.01, adam(ADAMW), betas(0.9, 0.999, 1e-8)),
    Case("adamw, decay, clip", "kAdamW", 0.1, adam(ADAMW, 0.8, 0.95, 0.1),
         betas(0.8, 0.95, 0.1), decay=0.2, clip=0.3),
    Case("sgd, step", "kSgd", 0.1, sgd(), schedule=step_schedule(4, 0.5)),
    Case("sgd, cosine to a minimum", "kSgd", 0.1, sgd(), schedule=cosine_schedule(20, 0.02)),
    Case("sgd, warm-up", "kSgd", 0.1, sgd(), schedule=with_warmup(None, 8)),
    Case("momentum, warm-up and step", "kMomentum", 0.1, sgd(0.9), ".momentum = 0.9f",
         schedule=with_warmup(step_schedule(6, 0.3), 8)),
    Case("adamw, decay, warm-up and cosine", "kAdamW", 0.05, adam(ADAMW), betas(0.9, 0.999, 1e-8),
         decay=0.2, schedule=with_warmup(cosine_schedule(30, 0.0), 5)),
    Case("ftrl", "kFtrl", 0.1, ftrl(1.0, 0.0, 0.0), ftrl_rule(1.0, 0.0, 0.0)),
    Case("ftrl, clip, small beta", "kFtrl", 0.1, ftrl(0.01, 0.0, 0.0), ftrl_rule(0.01, 0.0, 0.0),
         clip=0.3),
    Case("ftrl, warm-up and step", "kFtrl", 0.1, ftrl(1.0, 0.0, 0.0), ftrl_rule(1.0, 0.0, 0.0),
         schedule=with_warmup(step_schedule(6, 0.3), 8)),
    Case("ftrl, l1", "kFtrl", 0.1, ftrl(1.0, 2.0, 0.0), ftrl_rule(1.0, 2.0, 0.0)),
    Case("ftrl, l2", "kFtrl", 0.1, ftrl(1.0, 0.0, 5.0), ftrl_rule(1.0, 0.0, 5.0)),
    Case("ftrl, l1, l2, no beta", "kFtrl", 0.5, ftrl(0.0, 0.5, 0.25), ftrl_rule(0.0, 0.5, 0.25)),
    Case("ftrl, l1, l2, warm-up and cosine", "kFtrl", 0.1, ftrl(1.0, 2.0, 0.5),
         ftrl_rule(1.0, 2.0, 0.5), schedule=with_warmup(cosine_schedule(30, 0.0), 5)),
    Case("amsgrad", "kAmsGrad", 0.01, adam(ADAM, amsgrad=True), betas(0.9, 0.999, 1e-8)),
    Case("amsgrad, decay, clip, short memory", "kAmsGrad", 0.1,
         adam(ADAM, 0.8, 0.6, 0.1, amsgrad=True), betas(0.8, 0.6, 0.1), decay=0.2, clip=0.7),
    Case("adadelta", "kAdadelta", 1.0, adadelta(0.9, 1e-6), ".epsilon = 1e-6f, .rho = 0.9f"),
    Case("adadelta, decay, clip, large epsilon", "kAdadelta", 0.5, adadelta(0.8, 0.01),
         ".epsilon = 0.01f, .rho = 0.8f", decay=0.2, clip=0.7),
    Case("adadelta, warm-up and step", "kAdadelta", 1.0, adadelta(0.95, 0.001),
         ".epsilon = 0.001f, .rho = 0.95f", schedule=with_warmup(step_schedule(6, 0.3), 8)),
    Case("lion", "kLion", 0.01, lion(0.9, 0.99), lion_rule(0.9, 0.99)),
    Case("lion, decay, clip", "kLion", 0.05, lion(0.8, 0.95), lion_rule(0.8, 0.95), decay=0.5,
         clip=0.3),
    Case("lion, decay, warm-up and cosine", "kLion", 0.05, lion(0.9, 0.99), lion_rule(0.9, 0.99),
         decay=0.2, schedule=with_warmup(cosine_schedule(30, 0.0), 5)),
    Case("lars", "kLars", 0.5, lars(0.9, 0.1), lars_rule(0.9, 0.1)),
    Case("lars, decay, clip, warm-up and cosine", "kLars", 0.5, lars(0.8, 0.05),
         lars_rule(0.8, 0.05), decay=0.2, clip=0.3,
         schedule=with_warmup(cosine_schedule(30, 0.0), 5)),
    Case("lamb", "kLamb", 0.01, lamb(0.9, 0.999, 1e-6), betas(0.9, 0.999, 1e-6)),
    Case("lamb, decay, clip, warm-up and step", "kLamb", 0.05, lamb(0.8, 0.95, 0.1),
         betas(0.8, 0.95, 0.1), decay=0.2, clip=0.3,
         schedule=with_warmup(step_schedule(6, 0.3), 8)),
]


def main():
    print(f"// Made by make_expected.py with PyTorch {torch.__version__} in fp64; do not edit.")
    print("// clang-format off")
    for case in CASES:
        print(f'{{"{case.name}",\n {case.config()},\n {{')
        for update, weights in case.run():
            print(f"  {{{update}, {{" + ", ".join("%.10g" % w for w in weights) + "}},")
        print(" }},")
    print("// clang-format on")


if __name__ == "__main__":
    main()
