"""`deploy/install` installs what is missing or too old, and says which version is not to be had.

dpkg and dpkg-query are the real ones, with a database of the test's own. apt-get is a stand-in that
replaces the database by the one that its release would lead to.
"""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import cluster

PACKAGE = """Package: {name}
Status: install ok installed
Architecture: all
Maintainer: Nobody <nobody@example.org>
Version: {version}
Description: stands for {name}

"""

APT_GET = """#!/bin/sh
echo "$@" >> {folder}/apt-get-calls
cp {folder}/release {folder}/dpkg/status
"""


class InstallPackagesTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")))
        for folder in ("bin", "deploy", "dpkg/info", "dpkg/triggers", "dpkg/updates"):
            (self.folder / folder).mkdir(parents=True)
        self.write_program("apt-get", APT_GET.format(folder=self.folder))
        self.write_program("apt-cache", "#!/bin/sh\n")  # Knows every package.
        self.write_program("sudo", '#!/bin/sh\n[ "$1" = -n ] && shift\nexec "$@"\n')
        shutil.copy(cluster.runfile("deploy/install"), self.folder / "deploy/install")

    def write_program(self, name, text):
        path = self.folder / "bin" / name
        path.write_text(text)
        path.chmod(0o755)

    def install(self, wanted, installed, release=None):
        """Runs deploy/install for the lines `wanted`. `installed` and `release` say what dpkg has
        before and after apt-get: {name: version}."""
        for name, packages in (("dpkg/status", installed), ("release", release or installed)):
            (self.folder / name).write_text("".join(
                PACKAGE.format(name=each, version=version) for each, version in packages.items()))
        (self.folder / "apt-get-calls").write_text("")
        (self.folder / "deploy/packages.txt").write_text(wanted)
        return subprocess.run(
            [str(self.folder / "deploy/install")], capture_output=True, text=True, check=False,
            env={"PATH": f"{self.folder / 'bin'}:/usr/bin:/bin",
                 "DPKG_ADMINDIR": str(self.folder / "dpkg")},
            timeout=60 * cluster.SLOWDOWN)

    def apt_get_calls(self):
        return (self.folder / "apt-get-calls").read_text().splitlines()

    def test_nothing_is_done_when_all_are_installed_and_new_enough(self):
        wanted = "# Comment.\nlibone-dev >= 1.51.1\n\n  two  # Any version.\n three >=  1:2.1\n"
        done = self.install(wanted, {"libone-dev": "1.51.1-3+b1", "two": "0.1", "three": "1:2.10"})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("all 3 packages are installed", done.stdout)
        self.assertEqual(self.apt_get_calls(), [])

    def test_missing_and_old_packages_are_installed(self):
        done = self.install("one >= 2\ntwo\nthree >= 1\n", {"one": "1.9-1", "three": "1.0-1"},
                            release={"one": "2.0-1", "two": "1", "three": "1.0-1"})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("installing 2 of 3 packages: one two", done.stdout)
        self.assertEqual(self.apt_get_calls(), [
            "-o DPkg::Lock::Timeout=120 install -y --no-install-recommends one two"])

    def test_a_version_that_is_not_to_be_had_is_named(self):
        wanted = "libgrpc++-dev >= 1.51.1\nzlib1g-dev >= 1:1.2.13\nthree >= 3\n"
        done = self.install(wanted, {"zlib1g-dev": "2.0-1", "three": "3.0-1"}, release={
            "libgrpc++-dev": "1.30.2-3", "zlib1g-dev": "2.0-1", "three": "3.0-1"})
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("libgrpc++-dev: found version 1.30.2-3, expected 1.51.1 or newer",
                      done.stderr)
        self.assertIn("zlib1g-dev: found version 2.0-1, expected 1:1.2.13 or newer", done.stderr)
        self.assertNotIn("three", done.stderr)

    def test_a_line_that_could_be_misread_is_refused(self):
        for line in ("one > 1", "one>=1", "one 1", "one >= ", "one >= 1 two", "one (>= 1)"):
            done = self.install(f"zero\n{line}\n", {"zero": "1", "one": "1"})
            self.assertEqual(done.returncode, 1, line)
            self.assertIn(f'found "{line.strip()}" in a list of packages, expected NAME or '
                          "NAME >= VERSION", done.stderr)
        self.assertEqual(self.apt_get_calls(), [])

    def test_the_lists_of_this_tree_can_be_read(self):
        wanted = "".join(cluster.runfile(f"deploy/{name}").read_text() for name in (
            "packages.txt", "packages-tests.txt"))
        lines = [line.split("#")[0].split() for line in wanted.splitlines()]
        oldest = {words[0]: words[2] if len(words) == 3 else "0" for words in lines if words}
        done = self.install(wanted, oldest)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"all {len(oldest)} packages are installed", done.stdout)


if __name__ == "__main__":
    unittest.main()
