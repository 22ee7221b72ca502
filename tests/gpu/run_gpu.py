"""Runs the GPU's tests and benchmarks, part by part, within so many minutes.

Needs .gpu/pack.tar.gz (tests/gpu/pack), which it unpacks beside .gpu/, a CUDA driver, and CUDA's
libraries: those that PyTorch brought, or a toolkit's. Without PyTorch the comparison with it is
left out; without compute-sanitizer its checks.

Each row of the report, and what each program prints, is in the results folder as soon as it is
known: a run that is killed loses nothing. Plans that are measured are kept there, too (plans/);
tests/gpu/pack --plans=FOLDER packs them for the next time.

Exits with 0 if all passed, 1 if something failed (a speed below its goal, too), 2 for bad usage, 3
if there is no GPU (or no library for it).
"""

import argparse
import glob
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tarfile

import parts
import processes
import results
import verdicts

_NO_GPU = 3
_HERE = os.path.dirname(os.path.realpath(__file__))
_ROOT = os.path.dirname(os.path.dirname(_HERE))
_INFO_SECONDS = 30


def library_folders(pack):
    """Where shared libraries are looked for: the pack, PyTorch's, the toolkit's."""
    folders = [os.path.join(pack, "lib")]
    torch = importlib.util.find_spec("torch")
    if torch and torch.submodule_search_locations:
        package = list(torch.submodule_search_locations)[0]
        folders += sorted(glob.glob(os.path.join(os.path.dirname(package), "nvidia", "*", "lib")))
        folders.append(os.path.join(package, "lib"))
    folders += [os.path.join(processes.TOOLKIT, "lib64"), os.path.join(processes.TOOLKIT, "lib")]
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


def take_plans(pack, out):
    """Plans that were measured before and came with the pack; what is in `out` stays as it is."""
    there = os.path.join(out, "plans")
    os.makedirs(there, exist_ok=True)
    for path in sorted(glob.glob(os.path.join(pack, "plans", "*"))):
        target = os.path.join(there, os.path.basename(path))
        if not os.path.exists(target):
            shutil.copyfile(path, target)
    return there


class DryRun:
    """A clock that only programs move, each of which takes all of its time and must be killed."""

    def __init__(self):
        self.now = 0.0

    def clock(self):
        return self.now

    def run(self, _command, _env, _given, _output, seconds):
        self.now += seconds + parts.KILL_SECONDS

    @staticmethod
    def has(_tool):
        return True


class Runner:
    """Runs steps, and gives each its row.

    programs  processes.Processes or DryRun
    """

    def __init__(self, found, programs, budget, pack, env):
        self.results, self.programs, self.budget, self.env = found, programs, budget, env
        self.words = {"pack": pack, "bin": os.path.join(pack, "bin"), "here": _HERE,
                      "capstan": os.path.join(pack, "capstan"), "python": sys.executable,
                      "out": found.folder}

    def run(self, part):
        start = self.programs.clock()
        for step in part.steps:
            self._step(part, step)
        taken = self.programs.clock() - start
        self.results.add(part.name, "all of it", "passed" if taken <= 60 * part.minutes else
                         "failed", taken, f"of {part.minutes} minutes")

    def _step(self, part, step):
        limit = self.budget.limit(step)
        if limit is None:
            return self.results.add(part.name, step.name, "skipped", note="no minutes left")
        if step.tool and not self.programs.has(step.tool):
            return self.results.add(part.name, step.name, "skipped",
                                    note=f"{step.tool} is not on this machine")
        command = [word.format(**self.words) for word in step.command]
        if step.tool:
            command[0] = processes.tool_path(step.tool) or step.tool
        start = self.programs.clock()
        with self._input(part, step) as given:
            code = self.programs.run(command, self._environment(step), given,
                                     self.results.output(part.output(step)), limit)
        notes = {0: "", None: f"not done in {limit:.0f} s",
                 verdicts.GOAL_MISSED: "a goal is missed"}
        self.results.add(part.name, step.name, "passed" if code == 0 else "failed",
                         self.programs.clock() - start, notes.get(code, f"exit code {code}"))
        return None

    def _environment(self, step):
        # PyTorch keeps the libstdc++ that it would have.
        return dict(os.environ if step.pytorch else self.env, **step.env)

    def _input(self, part, step):
        """A file with what the step reads; empty if that is nothing."""
        path = os.devnull
        if step.reads:
            path = self.results.output(next(part.output(other) for other in part.steps
                                            if other.name == step.reads))
        elif step.given:
            path = self.results.output(part.output(step).replace(".txt", ".in"))
            with open(path, "w", encoding="utf-8") as file:
                file.write(step.given)
        return open(path if os.path.exists(path) else os.devnull, "rb")


def some_parts(text):
    names = [part.name for part in parts.all_parts()]
    for name in text.split(","):
        if name not in names:
            raise argparse.ArgumentTypeError(f"got {name}, expected some of {','.join(names)}")
    return text.split(",")


def parse(arguments):
    known = parts.all_parts()
    about = "\n".join(f"  {part.name}  {part.minutes} min  {part.about}" for part in known)
    parser = argparse.ArgumentParser(description=f"{__doc__}\nParts:\n{about}",
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--pack", default=os.path.join(_ROOT, ".gpu"),
        help="the folder that tests/gpu/pack made, or one that is unpacked (%(default)s)")
    add("--unpack-only", action="store_true", help="unpack, and run nothing")
    add("--minutes", type=float, default=30.0, help="in which all is to be over (%(default)s)")
    add("--parts", type=some_parts, default=[part.name for part in known],
        help="which, with commas; in the order above (all)")
    add("--out", default=os.path.join(_ROOT, ".gpu-results"), help="results folder (%(default)s)")
    add("--dry-run", action="store_true",
        help="say when each step would end if all took as long as they may")
    add("--small", action="store_true", help="sizes for emulated GPUs")
    return parser.parse_args(arguments)


def chosen_parts(options):
    return [part for part in parts.all_parts(options.small) if part.name in options.parts]


class Timetable:
    """In place of results: prints when each row would be known."""

    folder = ""

    def __init__(self, clock):
        self.clock, self.rows = clock, []
        print("| part | check | minute it ends at | of it | note |\n|---|---|---|---|---|")

    def add(self, part, check, outcome, seconds=0.0, note=""):
        self.rows.append((part, check, outcome, self.clock(), seconds))
        print(f"| {part} | {check} | {self.clock() / 60:.2f} | {seconds:.0f} s | {note} |")

    def output(self, _name):
        return os.devnull


def dry_run(options):
    """Rows of (part, check, outcome, end, seconds)."""
    programs = DryRun()
    table = Timetable(programs.clock)
    runner = Runner(table, programs, parts.Budget(options.minutes, programs.clock), "", {})
    for part in chosen_parts(options):
        runner.run(part)
    return table.rows


def prepare(options):
    """The folder of what is packed; None, with the reason on stderr, if there is no pack."""
    made = os.path.realpath(options.pack)
    if os.path.isdir(os.path.join(made, "bin")):
        return made
    archive = os.path.join(made, "pack.tar.gz")
    if not os.path.exists(archive):
        print(f"run: {archive} is not there; run tests/gpu/pack first", file=sys.stderr)
        return None
    unpack(archive, made + "-unpacked")
    return made + "-unpacked"


def main(arguments):
    options = parse(arguments)
    if options.dry_run:
        dry_run(options)
        return 0
    programs = processes.Processes()
    budget = parts.Budget(options.minutes, programs.clock)
    pack = prepare(options)
    if pack is None or options.unpack_only:
        return 1 if pack is None else 0
    out = os.path.realpath(options.out)
    os.environ["CAPSTAN_CUDA_PLANS"] = take_plans(pack, out)
    if options.small:
        os.environ["CAPSTAN_GPU_SMALL"] = "1"
    env = environment(pack)
    info = subprocess.run([os.path.join(pack, "bin", "gpu_bench"), "--info"], env=env, check=False,
                          capture_output=True, timeout=_INFO_SECONDS)
    if info.returncode != 0:
        print("run: this machine cannot run the GPU's tests: "
              + info.stderr.decode().strip().removeprefix("gpu_bench: "), file=sys.stderr)
        return _NO_GPU if info.returncode == _NO_GPU else 1
    with open(os.path.join(pack, "commit"), encoding="utf-8") as file:
        title = f"commit {file.read().strip()}; {info.stdout.decode().strip()}"
    found = results.Results(out, title)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # So that what runs is ended, too.
    runner = Runner(found, programs, budget, pack, env)
    for part in chosen_parts(options):
        runner.run(part)
    print("\n" + found.report())
    return 1 if found.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
