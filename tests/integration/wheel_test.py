"""The wheel of //worker/python in a virtual environment: what `pip install` gives is enough."""

import hashlib
import importlib.util
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest

import cluster

sys.path.append(str(cluster.runfile("worker/python/tests/try_wheel.py").parent))

import try_wheel  # noqa: E402

# Debian's interpreter, for which there are Debian's torch and grpc.
PYTHON = "/usr/bin/python3"
# The libraries of glibc and GCC, which are in each process.
SYSTEM = re.compile(r"/(lib|lib64|usr/lib)/(x86_64-linux-gnu/)?"
                    r"(ld-linux-x86-64|libc|libm|libgcc_s|libstdc\+\+)\.so\.\d+$")


def missing():
    """Names of the modules that the tests need and this machine does not have."""
    return [name for name in ("ensurepip", "grpc", "torch") if not importlib.util.find_spec(name)]


def programs_below(folder):
    """The names of the programs below `folder` that run."""
    lines = [cluster.command_line(each.name) for each in pathlib.Path("/proc").iterdir()
             if each.name.isdigit()]
    return sorted(pathlib.Path(line[0].decode()).name for line in lines
                  if line and line[0].startswith(f"{folder}/".encode()))


def stop(process):
    """Ends what try_wheel.start started, if a test has failed before."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        process.communicate(timeout=60 * cluster.SLOWDOWN)


def read(*command):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          check=True, timeout=60 * cluster.SLOWDOWN).stdout


@unittest.skipIf(missing(), f"{missing()}: missing: deploy/install --tests")
class WheelTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="wheel-", dir=os.environ.get("TEST_TMPDIR"))
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name).resolve()
        # The link of Bazel's runfiles has the name that pip reads; the path is told to nobody else.
        wheel, = cluster.runfile("worker/python").glob("*.whl")
        cls.programs = try_wheel.install(wheel, PYTHON, cls.folder, "--system-site-packages")
        package, = (cls.folder / "venv").glob("lib/python3*/site-packages/capstan")
        cls.package, cls.libraries = package, package.with_name("capstan.libs")
        cls.elf = [*package.glob("bin/*"), package / "libcapstan_client.so",
                   *cls.libraries.iterdir()]

    def capstan(self, *arguments, program="capstan"):
        return try_wheel.run([self.programs / program, *arguments], self.folder)

    def test_a_script_trains_beside_grpc_and_pytorch_in_one_process(self):
        script = self.folder / "script.py"
        script.write_bytes(cluster.runfile("tests/integration/wheel_program.py").read_bytes())
        found = try_wheel.train(self.programs, self.folder, script, self.folder)
        self.assertAlmostEqual(found["weight"][0], 3, delta=1e-3)
        self.assertAlmostEqual(found["bias"][0], -1, delta=1e-3)
        for rank in range(2):
            loaded = (self.folder / f"maps-{rank}").read_text()
            files = set(re.findall(r"(/\S+\.so[.\d]*)$", loaded, re.MULTILINE))
            ours = {file for file in files if "/capstan" in file.removeprefix(str(self.folder))}
            own_grpc = [file for file in ours if "/libgrpc-" in file]
            self.assertEqual(len(own_grpc), 1, ours)
            self.assertTrue(any(re.search(r"/(cygrpc|libgrpc\.so)", file)
                                for file in files - ours), files)
            for file in ours:
                self.assertTrue(file.startswith(f"{self.package}"), file)

    def test_a_script_needs_the_standard_library_alone(self):
        script = self.folder / "line.py"
        script.write_bytes(cluster.runfile("worker/python/tests/line_program.py").read_bytes())
        found = try_wheel.train(self.programs, self.folder, script, workers=1)
        self.assertAlmostEqual(found["slope"][0], 3, delta=1e-3)

    def test_an_interrupt_takes_the_cluster_down(self):
        script = self.folder / "endless.py"
        script.write_bytes(cluster.runfile("worker/python/tests/line_program.py").read_bytes())
        for number, send, code in ((signal.SIGINT, os.killpg, 130),  # As Ctrl-C does.
                                   (signal.SIGTERM, os.kill, 143)):
            with self.subTest(number=number):
                process = try_wheel.start(
                    [self.programs / "capstan", "run", script, "1000000"], self.folder)
                self.addCleanup(stop, process)
                self.assertTrue(any("epoch 2/" in line for line in process.stdout), "it trains")
                running = programs_below(self.folder)
                for name in ("capstan", "capstan-scheduler", "capstan-server", "capstan-worker"):
                    self.assertIn(name, running)
                send(process.pid, number)
                said, _ = process.communicate(timeout=60 * cluster.SLOWDOWN)
                self.assertEqual(process.returncode, code, said)
                self.assertEqual(programs_below(self.folder), [])

    def test_the_other_commands_are_those_of_the_command_line(self):
        said = self.capstan("--help")
        self.assertIn("capstan run SCRIPT", said)
        self.assertIn("Submit and watch training jobs", said)
        self.assertIn("the script and its arguments", self.capstan("run", "--help"))
        version = re.search(r'__version__ = "(.+)"', (self.package / "__init__.py").read_text())
        self.assertIn(f"capstan {version.group(1)}", self.capstan("--version"))
        for daemon in ("capstan-scheduler", "capstan-server", "capstan-worker"):
            self.assertIn("--listen", self.capstan("--help", program=daemon))

    def test_the_command_line_has_no_run_of_its_own(self):
        done = subprocess.run([self.package / "bin/capstan", "run", "x"], capture_output=True,
                              text=True, check=False, timeout=60)
        self.assertEqual(done.returncode, 2, done)

    def test_the_library_exports_the_c_interface_alone(self):
        library = self.package / "libcapstan_client.so"
        names = [line.split()[-1] for line in read("nm", "-D", "--defined-only",
                                                   library).splitlines()]
        header = cluster.runfile("worker/program/capstan_client.h").read_text()
        declared = set(re.findall(r"\b(capstan_(?:task|snapshot)_\w+)\(", header))
        self.assertEqual(sorted(names), sorted(declared))

    def test_the_libraries_come_from_the_wheel_and_from_glibc_and_gcc(self):
        for file in self.elf:
            dynamic = read("readelf", "-dW", file)
            way, = re.findall(r"\(RPATH\).*\[(.*)\]", dynamic)
            self.assertIn(way, ("$ORIGIN", "$ORIGIN/../capstan.libs", "$ORIGIN/../../capstan.libs"))
            self.assertNotIn("(RUNPATH)", dynamic)
            self.assertNotIn(" UNIQUE ", read("readelf", "--dyn-syms", "-W", file)
                             if file.parent == self.libraries else "")
            for path in re.findall(r"=> (\S+)", read("ldd", file)):
                if not SYSTEM.match(path):
                    self.assertEqual(pathlib.Path(path).resolve().parent, self.libraries, path)

    @property
    def info(self):
        info, = self.package.parent.glob("capstan-*.dist-info")
        return info

    def test_each_library_is_in_the_bill_of_materials(self):
        bill = json.loads((self.info / "sboms" / "capstan.cdx.json").read_text())
        listed = {file["name"]: file["hashes"][0]["content"] for part in bill["components"]
                  for file in part.get("components", [])}
        self.assertEqual(listed, {f"capstan.libs/{path.name}":
                                  hashlib.sha256(path.read_bytes()).hexdigest()
                                  for path in self.libraries.iterdir()})

    def test_each_library_has_its_licence(self):
        licences = {path.name for path in (self.info / "licences").iterdir()}
        self.assertLessEqual({"capstan.LICENSE", "Apache-2.0", "GPL-3", "libgrpc29.copyright",
                              "libssl3.copyright", "libgomp1.copyright"}, licences)


if __name__ == "__main__":
    unittest.main()
