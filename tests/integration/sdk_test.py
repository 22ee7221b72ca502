"""The archive of the client library: what a stranger's compiler, pkg-config and job make of it."""

import ctypes
import os
import pathlib
import subprocess
import tarfile
import unittest

import cluster
import programs


class SdkTest(programs.ProgramCase):
    def setUp(self):
        archive, = cluster.runfile("worker/program").glob("capstan-sdk-*.tar.gz")
        with tarfile.open(archive) as packed:
            packed.extractall(self.cluster.folder)
        self.root, = self.cluster.folder.glob("capstan-[0-9]*")

    def compile(self, *arguments):
        """A program of these sources and options, found by pkg-config alone."""
        out = self.cluster.folder / "compiled"
        flags = subprocess.run(
            ["pkg-config", "--cflags", "--libs", "capstan"], capture_output=True, text=True,
            check=True, env={**os.environ, "PKG_CONFIG_PATH": str(self.root / "lib/pkgconfig")})
        subprocess.run(["cc", "-Wall", "-Wextra", "-Wpedantic", "-Werror", *map(str, arguments),
                        *flags.stdout.split(), f"-Wl,-rpath,{self.root}/lib", "-o", str(out)],
                       check=True)
        return out

    def test_the_example_compiles_and_trains(self):
        program = self.compile("-std=c99", self.root / "share/capstan/line.c")
        found = programs.tensors(self.finish(f"""
            program {{
              command: "{program}" samples: 64
              parameters {{ name: "slope" }} parameters {{ name: "offset" }}
            }}
            training {{ epochs: 30 batch_size: 8 }} optimizer {{ sgd {{}} learning_rate: 0.5 }}
            resources {{ workers: 2 }}
        """))
        self.assertAlmostEqual(found["slope"][0], 3, delta=1e-3)
        self.assertAlmostEqual(found["offset"][0], -1, delta=1e-3)

    def test_outside_of_a_job_the_program_says_so(self):
        program = self.compile("-std=c99", self.root / "share/capstan/line.c")
        ended = subprocess.run([program], capture_output=True, text=True, check=False)
        self.assertEqual(ended.returncode, 1)
        self.assertIn("line: CAPSTAN_TASK_SPEC and CAPSTAN_SCHEDULER are not set", ended.stderr)

    def test_the_header_is_for_cpp_too(self):
        source = self.cluster.folder / "user.cc"
        source.write_text("#include <capstan_client.h>\n"
                          "int main() { return capstan_task_start(nullptr) == nullptr ? 0 : 1; }\n")
        subprocess.run([self.compile("-std=c++11", "-x", "c++", source)], check=True)

    def test_an_update_rule_of_the_servers_compiles(self):
        plugin = self.cluster.folder / "signum.so"
        subprocess.run(["cc", "-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O2",
                        "-ffp-contract=off", "-shared", "-fPIC", f"-I{self.root}/include",
                        self.root / "share/capstan/signum.c", "-o", plugin], check=True)
        rules = ctypes.CDLL(str(plugin)).capstan_rule_plugin
        rules.restype = ctypes.POINTER(ctypes.c_int32)
        self.assertEqual(rules()[:2], [1, 1])  # The interface, and the number of rules.

    def test_it_loads_nothing_but_its_own_and_the_systems(self):
        loaded = subprocess.run(["ldd", self.root / "lib/libcapstan_client.so"],
                                capture_output=True, text=True, check=True).stdout
        ours = [line for line in loaded.splitlines() if str(self.root) in line]
        self.assertTrue(any("/libgrpc-" in line for line in ours), loaded)
        for line in loaded.splitlines():
            name = pathlib.Path(line.split()[0]).name
            system = name.startswith(("linux-vdso", "ld-linux", "libc.", "libm.", "libgcc_s.",
                                      "libstdc++."))
            self.assertTrue(system or line in ours, line)


if __name__ == "__main__":
    unittest.main()
