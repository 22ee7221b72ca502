"""Runs the GPU's tests and benchmarks and prints one table of what came out.

Needs .gpu/pack.tar.gz (tests/gpu/pack), which it unpacks beside .gpu/, a CUDA driver, and CUDA's
libraries: those that PyTorch brought, or a toolkit's. Without PyTorch the comparison with it is
left out; without compute-sanitizer its checks.
Exits with 0 if all passed, 1 if something failed (a speed below its goal, too), 2 for bad usage, 3
if there is no GPU (or no library for it).
"""

import argparse
import glob
import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
import time

import verdicts

_NO_GPU = 3
_HERE = os.path.dirname(os.path.realpath(__file__))
_ROOT = os.path.dirname(os.path.dirname(_HERE))
_TOOLKIT = "/usr/local/cuda"
# The tests of own kernels, in words of Catch2.
_OWN_KERNELS = "[own],GPU pools*,GPU batch norm*,GPU element-wise*,GPU softmax*,GPU embedding*"


def library_folders(pack):
    """Where shared libraries are looked for: the pack, PyTorch's, the toolkit's."""
    folders = [os.path.join(pack, "lib")]
    torch = importlib.util.find_spec("torch")
    if torch and torch.submodule_search_locations:
        package = list(torch.submodule_search_locations)[0]
        folders += sorted(glob.glob(os.path.join(os.path.dirname(package), "nvidia", "*", "lib")))
        folders.append(os.path.join(package, "lib"))
    folders += [os.path.join(_TOOLKIT, "lib64"), os.path.join(_TOOLKIT, "lib")]
    return [folder for folder in folders if os.path.isdir(folder)]


def unpack(archive, folder):
    """Unpacks what tests/gpu/pack made, unless it has been unpacked there already."""
    found = os.stat(archive)
    stamp, stamp_file = f"{found.st_size} {found.st_mtime_ns}", os.path.join(folder, "stamp")
    if os.path.exists(stamp_file):
        with open(stamp_file, encoding="utf-8") as file:
            if file.read() == stamp:
                return
    shutil.rmtree(folder, ignore_errors=True)
    with tarfile.open(archive) as packed:
        safe = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        packed.extractall(folder, **safe)
    with open(stamp_file, "w", encoding="utf-8") as file:
        file.write(stamp)


def environment(pack):
    """The environment of what is packed."""
    changed = dict(os.environ)
    before = [changed["LD_LIBRARY_PATH"]] if changed.get("LD_LIBRARY_PATH") else []
    changed["LD_LIBRARY_PATH"] = ":".join(library_folders(pack) + before)
    changed["CAPSTAN_CUDA_PLUGIN"] = os.path.join(pack, "bin", "libcapstan_cuda.so")
    changed["CAPSTAN_REQUIRE_GPU"] = "1"
    return changed


class Report:
    """Rows of (check, outcome, seconds, note); anything but passed and skipped is a failure."""

    def __init__(self):
        self.rows = []

    def add(self, check, outcome, seconds=0.0, note=""):
        self.rows.append((check, outcome, seconds, note))
        print(f"-- {check}: {outcome} {note}".rstrip(), flush=True)

    def failed(self):
        return any(outcome not in ("passed", "skipped") for _, outcome, _, _ in self.rows)

    def table(self):
        lines = ["| check | outcome | seconds | note |", "|---|---|---|---|"]
        lines += [f"| {check} | {outcome} | {seconds:.1f} | {note} |"
                  for check, outcome, seconds, note in self.rows]
        return "\n".join(lines)


def run(report, check, command, env, timeout):
    """Runs a program that passes by exiting with 0; its output goes to ours."""
    print(f"-- {check}: {' '.join(command)}", flush=True)
    start = time.monotonic()
    try:
        code = subprocess.run(command, env=env, timeout=timeout, check=False).returncode
        note = "" if code == 0 else f"exit code {code}"
    except subprocess.TimeoutExpired:
        code, note = 1, f"not done in {timeout} s"
    report.add(check, "passed" if code == 0 else "failed", time.monotonic() - start, note)


def sanitize(report, pack, env, options):
    """compute-sanitizer over small sizes of the tests of own kernels."""
    tool = shutil.which("compute-sanitizer")
    if not tool and os.path.exists(f"{_TOOLKIT}/bin/compute-sanitizer"):
        tool = f"{_TOOLKIT}/bin/compute-sanitizer"
    for name in ("memcheck", "racecheck"):
        if not tool:
            report.add(name, "skipped", note="compute-sanitizer is not on this machine")
            continue
        run(report, name,
            [tool, "--tool", name, "--error-exitcode", "1",
             os.path.join(pack, "bin", "conformance_test"), _OWN_KERNELS],
            dict(env, CAPSTAN_GPU_SMALL="1"), options.timeout)
    return []


def comparison(script, arguments, timeout, given=None):
    """The table that a comparison prints, and a note unless it went well and no goal is missed.

    Its environment is PyTorch's own, without our libraries. `given`: for its standard input.
    """
    command = [sys.executable, "-B", os.path.join(_HERE, script)] + arguments
    print(f"-- {' '.join(command)}", flush=True)
    try:
        done = subprocess.run(command, input=given, timeout=timeout, check=False,
                              stdout=subprocess.PIPE)
    except subprocess.TimeoutExpired as stopped:
        return (stopped.stdout or b"").decode(), f"not done in {timeout} s"
    notes = {0: "", verdicts.GOAL_MISSED: "a goal is missed"}
    return done.stdout.decode(), notes.get(done.returncode, f"exit code {done.returncode}")


def compare(report, pack, env, options):
    """Every mode's benchmark, beside PyTorch's times where there is PyTorch."""
    tables = []
    if options.no_benchmarks:
        return tables
    for mode in ("fp32", "tf32", "bf16", "fp16"):
        start = time.monotonic()
        try:
            ours = subprocess.run([os.path.join(pack, "bin", "gpu_bench"), mode], env=env,
                                  timeout=options.timeout, check=True, stdout=subprocess.PIPE)
            table, note = comparison("compare_pytorch.py", [mode], options.timeout, ours.stdout)
            tables.append(table)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            note = str(error)
        report.add(f"benchmark {mode}", "failed" if note else "passed", time.monotonic() - start,
                   note)
    return tables


def compare_training(report, pack, _env, options):
    """Whole models, in turns with PyTorch."""
    if options.no_benchmarks:
        return []
    start = time.monotonic()
    # It gives our program the environment of the pack.
    table, note = comparison("compare_training.py", [f"--pack={pack}"], 3 * options.timeout)
    report.add("training beside PyTorch", "failed" if note else "passed",
               time.monotonic() - start, note)
    return [table]


def conformance(report, pack, env, options):
    bin_folder = os.path.join(pack, "bin")
    program = os.path.join(bin_folder, "conformance_test")
    run(report, "shared rules on the host", [os.path.join(bin_folder, "element_rules_test")], env,
        options.timeout)
    run(report, "own kernels", [program, "[own]"], env, options.timeout)
    run(report, "ops", [program, "~[own]"], env, options.timeout)
    return []


def tasks(report, pack, env, options):
    command = [sys.executable, "-B", os.path.join(_HERE, "end_to_end.py"), f"--pack={pack}"]
    run(report, "tasks on the GPU", command + ["--no-benchmarks"] * options.no_benchmarks, env,
        2 * options.timeout)
    return []


# What there is to run, in this order; each gives its tables.
PARTS = {
    "conformance": conformance,
    "tasks": tasks,
    "sanitizer": sanitize,
    "training": compare_training,
    "kernels": compare,
}


def some_parts(text):
    parts = text.split(",")
    for name in parts:
        if name not in PARTS:
            raise argparse.ArgumentTypeError(f"got {name}, expected some of {','.join(PARTS)}")
    return parts


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pack", default=os.path.join(_ROOT, ".gpu"),
                        help="the folder that tests/gpu/pack made (%(default)s)")
    parser.add_argument("--unpack-only", action="store_true", help="unpack, and run nothing")
    parser.add_argument("--no-benchmarks", action="store_true", help="tests only")
    parser.add_argument("--parts", type=some_parts, default=list(PARTS),
                        help=f"which of {','.join(PARTS)}, where no command may take long (all)")
    parser.add_argument("--timeout", type=int, default=540, help="seconds of one program")
    return parser.parse_args(arguments)


def main(arguments):
    options = parse(arguments)
    made = os.path.realpath(options.pack)
    archive, pack = os.path.join(made, "pack.tar.gz"), made + "-unpacked"
    if not os.path.exists(archive):
        print(f"run: {archive} is not there; run tests/gpu/pack first", file=sys.stderr)
        return 1
    unpack(archive, pack)
    if options.unpack_only:
        return 0
    bench = os.path.join(pack, "bin", "gpu_bench")
    env = environment(pack)
    info = subprocess.run([bench, "--info"], env=env, check=False, capture_output=True)
    if info.returncode != 0:
        print("run: this machine cannot run the GPU's tests: "
              + info.stderr.decode().strip().removeprefix("gpu_bench: "), file=sys.stderr)
        return _NO_GPU if info.returncode == _NO_GPU else 1
    report = Report()
    with open(os.path.join(pack, "commit"), encoding="utf-8") as file:
        title = f"commit {file.read().strip()}; {info.stdout.decode().strip()}"
    tables = []
    for name, part in PARTS.items():
        if name in options.parts:
            tables += part(report, pack, env, options)
    text = "\n\n".join([title, report.table()] + tables)
    print("\n" + text)
    with open(os.path.join(made, "report.md"), "w", encoding="utf-8") as file:
        file.write(text + "\n")
    return 1 if report.failed() else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
