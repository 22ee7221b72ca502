"""The type hints of the package are whole: mypy --strict has nothing to say.

PyTorch and NumPy count as untyped, whether they are installed or not: their hints differ from
version to version (PyTorch 1.13 has functions without any), and reading them takes mypy 40 s.
"""

import os
import pathlib
import shutil
import subprocess
import unittest

_PACKAGE = pathlib.Path("worker/python/capstan")
_SETTINGS = """[mypy]
python_version = 3.10
strict = True
[mypy-torch.*,numpy.*]
follow_imports = skip
ignore_missing_imports = True
"""


@unittest.skipIf(shutil.which("mypy") is None, "mypy is missing: deploy/install --tests")
class TypesTest(unittest.TestCase):
    def test_mypy_finds_nothing(self):
        folder = pathlib.Path(os.environ["TEST_TMPDIR"])
        settings = folder / "mypy.ini"
        settings.write_text(_SETTINGS)
        done = subprocess.run(["mypy", f"--config-file={settings}", f"--cache-dir={folder}",
                               "-p", "capstan"], cwd=_PACKAGE.parent, capture_output=True,
                              text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
