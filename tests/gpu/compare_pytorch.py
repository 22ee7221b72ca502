"""Times the cases of gpu_bench in PyTorch on the same card; prints a Markdown table of both.

Usage: gpu_bench bf16 | compare_pytorch.py bf16        (or fp16, fp32, tf32)

With --small behind it nothing is missed: emulated GPUs reach no goals.

The first lines are the ceilings, `copy` and `product`: each case is shown beside its floor, the
time that it would take at these rates, and the ten that take longest once more at the end.

PyTorch runs eagerly with channels-last images, the fastest of cuDNN's plans (benchmark mode) and
its fused optimizers. Without PyTorch its columns are empty. Goals (verdicts.py): each convolution
beside PyTorch's, each optimizer beside PyTorch's fused one and beside the rate at which the card
copies its memory. The exit code is 4 if one is missed; what could not be measured is not.
"""

import sys

import verdicts

try:
    import torch
except ImportError:
    torch = None

_RUNS = 30
_ROUNDS = 5
_LONGEST = 10


def microseconds(step):
    """The time of one run, the best of a few rounds, as gpu_bench measures it."""
    for _ in range(3):
        step()
    best = None
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(_ROUNDS):
        begin.record()
        for _ in range(_RUNS):
            step()
        end.record()
        torch.cuda.synchronize()
        taken = begin.elapsed_time(end) * 1000.0 / _RUNS
        best = taken if best is None else min(best, taken)
    return best


def image(sizes, channels, dtype, height=None):
    height = height or sizes["h"]
    return torch.randn(sizes["n"], channels, height, height, device="cuda", dtype=dtype).to(
        memory_format=torch.channels_last)


def convolution(kind, s, dtype):
    x = image(s, s["c"], dtype)
    weight = torch.randn(s["o"], s["c"], s["k"], s["k"], device="cuda", dtype=dtype).to(
        memory_format=torch.channels_last)
    shape = {"stride": s["s"], "padding": s["p"]}
    if kind == "conv_forward":
        return lambda: torch.nn.functional.conv2d(x, weight, **shape)
    dy = torch.randn_like(torch.nn.functional.conv2d(x, weight, **shape))
    wanted = [kind == "conv_backward_data", kind == "conv_backward_weights", False]
    return lambda: torch.ops.aten.convolution_backward(
        dy, x, weight, None, [s["s"]] * 2, [s["p"]] * 2, [1, 1], False, [0, 0], 1, wanted)


def fully_connected(kind, s, dtype):
    x = torch.randn(s["n"], s["c"], device="cuda", dtype=dtype)
    weight = torch.randn(s["o"], s["c"], device="cuda", dtype=dtype)
    dy = torch.randn(s["n"], s["o"], device="cuda", dtype=dtype)
    if kind in ("fc_forward", "product"):
        return lambda: torch.nn.functional.linear(x, weight)
    return lambda: dy.t() @ x


def batch_norm(kind, s, dtype):
    x = image(s, s["c"], dtype)
    channels = {"device": "cuda", "dtype": torch.float32}
    scale, shift = torch.ones(s["c"], **channels), torch.zeros(s["c"], **channels)
    mean, variance = torch.zeros(s["c"], **channels), torch.ones(s["c"], **channels)
    if dtype == torch.bfloat16:  # PyTorch does not give it to cuDNN.
        return native_batch_norm(kind, x, scale, shift, mean, variance)
    forward = lambda: torch.ops.aten.cudnn_batch_norm(  # noqa: E731
        x, scale, shift, mean, variance, True, 0.1, 1e-5)
    if kind == "batch_norm_forward":
        return forward
    _, saved_mean, saved_variance, reserve = forward()
    dy = torch.randn_like(x)
    return lambda: torch.ops.aten.cudnn_batch_norm_backward(
        x, dy, scale, mean, variance, saved_mean, saved_variance, 1e-5, reserve)


def native_batch_norm(kind, x, scale, shift, mean, variance):
    forward = lambda: torch.ops.aten.native_batch_norm(  # noqa: E731
        x, scale, shift, mean, variance, True, 0.1, 1e-5)
    if kind == "batch_norm_forward":
        return forward
    _, saved_mean, saved_scale = forward()
    dy = torch.randn_like(x)
    return lambda: torch.ops.aten.native_batch_norm_backward(
        dy, x, scale, mean, variance, saved_mean, saved_scale, True, 1e-5, [True] * 3)


def optimizer(kind, s):
    parameter = torch.nn.Parameter(torch.randn(s["n"], device="cuda"))
    parameter.grad = torch.randn(s["n"], device="cuda")
    if kind == "adam":
        return torch.optim.Adam([parameter], lr=1e-6, fused=True).step
    return torch.optim.SGD([parameter], lr=1e-6, momentum=0.9, fused=True).step


def own(kind, s):
    values = torch.randn(s["n"], device="cuda")
    if kind == "copy":
        other = torch.empty_like(values)
        return lambda: other.copy_(values)
    if kind == "norm":
        return lambda: torch.linalg.vector_norm(values)
    half = torch.empty(s["n"], device="cuda", dtype=torch.bfloat16)
    return lambda: half.copy_(values)


def case(kind, s, dtype):
    """The same in PyTorch, as a function without arguments."""
    if kind.startswith("conv_"):
        return convolution(kind, s, dtype)
    if kind.startswith("fc_") or kind == "product":
        return fully_connected(kind, s, dtype)
    if kind.startswith("batch_norm"):
        return batch_norm(kind, s, dtype)
    if kind in ("sgd_momentum", "adam"):
        return optimizer(kind, s)
    if kind in ("copy", "norm", "cast_bf16"):
        return own(kind, s)
    if kind == "softmax_forward":
        logits = torch.randn(s["n"], s["c"], device="cuda", dtype=dtype)
        labels = torch.zeros(s["n"], device="cuda", dtype=torch.int64)
        return lambda: torch.nn.functional.cross_entropy(logits, labels)
    x = image(s, s["c"], dtype)
    if kind == "max_pool_forward":
        return lambda: torch.nn.functional.max_pool2d(x, s["k"], s["s"], s["p"],
                                                      return_indices=True)
    if kind == "relu":
        return lambda: torch.relu(x)
    addend = torch.randn_like(x)
    return lambda: torch.add(x, addend)


def pytorch_time(kind, sizes, dtype):
    """Microseconds, or None with the reason on stderr."""
    if torch is None or not torch.cuda.is_available():
        return None
    try:
        with torch.no_grad():
            return microseconds(case(kind, sizes, dtype))
    except Exception as error:  # Whatever PyTorch cannot: the row stays, without its time.
        print(f"compare_pytorch: {kind} {sizes}: {error}", file=sys.stderr)
        return None


def row(ours, theirs, copy, product):
    """A line of the table, and whether the case misses a goal; verdicts.py has the arguments."""
    ratios = (verdicts.beside_pytorch(ours, theirs), verdicts.beside_copy(ours, copy),
              verdicts.beside_floor(ours, copy, product))
    columns = [ours.kind, ours.sizes, f"{ours.microseconds:.1f}", ours.rate,
               f"{theirs:.1f}" if theirs else "", *(str(ratio) for ratio in ratios)]
    return f"| {' | '.join(columns)} |", any(ratio.missed for ratio in ratios)


def print_longest(cases, copy, product):
    print("\nThe longest:\n\n| case | sizes | microseconds | rate | floor / time |\n"
          "|---|---|---|---|---|")
    for case in sorted(cases, key=lambda one: -one.microseconds)[:_LONGEST]:
        print(f"| {case.kind} | {case.sizes} | {case.microseconds:.1f} | {case.rate} "
              f"| {verdicts.beside_floor(case, copy, product)} |")


def main(mode, small):
    dtype = None
    version = "not there"
    if torch is not None:
        version = torch.__version__
        torch.backends.cudnn.benchmark = True
        torch.backends.cuda.matmul.allow_tf32 = mode != "fp32"
        torch.backends.cudnn.allow_tf32 = mode != "fp32"
        dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(mode, torch.float32)
    # All lines: gpu_bench is done with the card then.
    cases = [verdicts.Measured(line) for line in sys.stdin.read().splitlines()]
    copy, product = (next((case for case in cases if case.kind == kind), None)
                     for kind in ("copy", "product"))
    if copy is None:
        raise SystemExit("gpu_bench has printed no `copy`, expected one to hold optimizers against")
    print(f"{mode}; PyTorch {version}; times in microseconds\n")
    print("| case | sizes | Capstan | rate | PyTorch | PyTorch / Capstan | rate / copy's "
          "| floor / time |")
    print("|---" * 8 + "|", flush=True)
    missed = []
    for ours in cases:
        line, misses = row(ours, pytorch_time(ours.kind, ours.numbers, dtype), copy, product)
        print(line, flush=True)
        if misses:
            missed.append(str(ours))
    print_longest(cases, copy, product)
    if missed:
        print(f"compare_pytorch: missed: {'; '.join(missed)}", file=sys.stderr)
    return verdicts.GOAL_MISSED if missed and not small else 0


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in ("fp32", "tf32", "bf16", "fp16") \
            or sys.argv[2:] not in ([], ["--small"]):
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], len(sys.argv) == 3))
