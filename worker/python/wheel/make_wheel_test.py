"""How the wheel is made: same inputs, same bytes; a tag that promises no more than it may."""

import json
import os
import pathlib
import sys
import tempfile
import unittest
import zipfile

sys.path += ["deploy", "worker/python/wheel"]

import bundle  # noqa: E402
import make_wheel  # noqa: E402
import wheel_bill  # noqa: E402

INFO = "capstan-1.dist-info"


class MakeWheelTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")))

    def packed(self, names, seconds, mode):
        root = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        for name in names:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(f"content of {name}")
            (root / name).chmod(mode)
            os.utime(root / name, (seconds, seconds))
        out = root.with_suffix(".whl")
        make_wheel.pack(root, INFO, out)
        return out

    def test_the_bytes_depend_on_names_and_contents_alone(self):
        names = ["capstan/bin/capstan", "capstan/torch.py", f"{INFO}/METADATA", "capstan.libs/a.so"]
        one, other = self.packed(names, 1e9, 0o600), self.packed(names[::-1], 2e9, 0o755)
        self.assertEqual(one.read_bytes(), other.read_bytes())
        with zipfile.ZipFile(one) as archive:
            self.assertEqual(archive.namelist(), [
                "capstan.libs/a.so", "capstan/bin/capstan", "capstan/torch.py", f"{INFO}/METADATA",
                f"{INFO}/RECORD"])
            modes = [entry.external_attr >> 16 & 0o777 for entry in archive.infolist()]
            self.assertEqual(modes, [0o644, 0o755, 0o644, 0o644, 0o644])
            record = archive.read(f"{INFO}/RECORD").decode().splitlines()
        # printf 'content of capstan/torch.py' | openssl dgst -sha256 -binary | basenc --base64url
        self.assertEqual(
            record[2], "capstan/torch.py,sha256=njFh-71QkrlGME8kHiFL75gleL9f9XzKfe410ct_DXE,27")
        self.assertEqual(record[-1], f"{INFO}/RECORD,,")

    def test_libraries_get_names_of_their_own_but_those_of_the_system(self):
        libraries = bundle.libraries_of(["/usr/bin/openssl"])
        self.assertIn("libcrypto.so.3", libraries)
        self.assertNotIn("libc.so.6", libraries)
        self.assertRegex(bundle.own_name("libssl.so.3", libraries["libssl.so.3"]),
                         r"^libssl-[0-9a-f]{8}\.so\.3$")
        for name in ("libstdc++.so.6", "libgcc_s.so.1", "libm.so.6", "ld-linux-x86-64.so.2"):
            self.assertRegex(name, bundle.SYSTEM_LIBRARIES)
        self.assertNotRegex("libcrypto.so.3", bundle.SYSTEM_LIBRARIES)

    def test_the_bill_of_materials_has_each_library_with_its_package(self):
        libraries = {bundle.own_name(name, path): path
                     for name, path in bundle.libraries_of(["/usr/bin/openssl"]).items()}
        for name in libraries:
            (self.folder / name).write_text(f"copy of {name}")
        text = wheel_bill.document_of("1", libraries, self.folder)
        again = wheel_bill.document_of("1", dict(reversed(libraries.items())), self.folder)
        self.assertEqual(text, again)
        document = json.loads(text)
        self.assertEqual((document["bomFormat"], document["specVersion"]), ("CycloneDX", "1.5"))
        self.assertRegex(document["serialNumber"], "^urn:uuid:[0-9a-f-]{36}$")
        own = document["metadata"]["component"]
        self.assertEqual((own["purl"], own["licenses"]),
                         ("pkg:pypi/capstan@1", [{"license": {"id": "Apache-2.0"}}]))
        self.assertEqual(
            sorted(file["name"] for part in document["components"]
                   for file in part.get("components", [])),
            sorted(f"{self.folder.name}/{name}" for name in libraries))
        parts = {part["name"]: part for part in document["components"]}
        self.assertIn("libcli11-dev", parts)
        ssl = next(part for name, part in parts.items() if name.startswith("libssl3"))
        version = bundle.bill_of_materials.run("dpkg-query", "-W", "-f=${Version}", ssl["name"])
        self.assertEqual(ssl["version"], version)
        self.assertIn(f"/{ssl['name']}@", ssl["purl"])
        self.assertIn("Apache-2.0", ssl["licenses"][0]["expression"])
        self.assertEqual([file["hashes"][0]["content"] for file in ssl["components"]],
                         [bundle.bill_of_materials.digest(self.folder / name, "sha256")
                          for name, path in sorted(libraries.items())
                          if path.rsplit("/", 1)[1].startswith(("libssl.", "libcrypto."))])
        self.assertEqual(sorted(document["dependencies"][0]["dependsOn"]),
                         sorted(part["bom-ref"] for part in parts.values()))

    def test_a_tag_that_is_too_old_is_refused(self):
        bundle.NEWEST_SYMBOLS["old"] = {"GLIBC": (2, 2, 4), "GLIBCXX": (3,), "CXXABI": (1,),
                                        "GCC": (3,)}
        with self.assertRaisesRegex(SystemExit, r"needs GLIBC_2\.\d+, expected at most GLIBC_2.2.4"
                                                " for the tag old"):
            bundle.check_platform(["/usr/bin/openssl"], "old")

    def test_unique_symbols_become_weak(self):
        library = self.folder / "library.so"
        library.write_bytes(pathlib.Path("/usr/lib/x86_64-linux-gnu/libstdc++.so.6").read_bytes())
        read = ["readelf", "--dyn-syms", "-W", str(library)]
        before = bundle.bill_of_materials.run(*read)
        bundle.make_process_local(library)
        after = bundle.bill_of_materials.run(*read)
        self.assertIn(" UNIQUE ", before)
        self.assertNotIn(" UNIQUE ", after)
        self.assertEqual(before.replace(" UNIQUE ", " WEAK   "), after)


if __name__ == "__main__":
    unittest.main()
