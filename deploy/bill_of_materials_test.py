"""The bill of materials is a document of SPDX 2.3 and names what the programs link."""

import copy
import hashlib
import json
import pathlib
import re
import subprocess
import unittest

import bill_of_materials
import cluster
import spdx_rules

PROGRAMS = ("scheduler/capstan-scheduler", "scheduler/cli/capstan", "server/capstan-server",
            "worker/capstan-worker")
# Packages of packages.txt for benchmarks and for the compiler.
NOT_IN_PROGRAMS = ("libzmq3-dev", "gcc-12-plugin-dev")


def make(*programs):
    return subprocess.run(
        ["/usr/bin/python3", "-B", str(cluster.runfile("deploy/bill_of_materials.py")), *programs],
        capture_output=True, text=True, check=False, timeout=120 * cluster.SLOWDOWN)


class BillOfMaterialsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.programs = [str(cluster.runfile(each)) for each in PROGRAMS]
        done = make(*cls.programs)
        assert done.returncode == 0, done.stderr
        cls.text = done.stdout
        cls.document = json.loads(done.stdout)
        cls.packages = {each["name"]: each for each in cls.document["packages"]}

    def test_the_document_keeps_the_rules(self):
        self.assertEqual(list(spdx_rules.violations(self.document)), [])

    def test_the_same_programs_give_the_same_bytes(self):
        self.assertEqual(make(*reversed(self.programs)).stdout, self.text)

    def test_linked_packages_are_named_with_version_source_and_licence(self):
        for name, source, license_part in ((r"libgrpc\+\+[\d.]+(t64)?", "grpc", "Apache-2.0"),
                                           (r"libprotobuf\d+(t64)?", "protobuf", "BSD-3-Clause"),
                                           (r"libabsl\d+(t64)?", "abseil", "Apache-2.0"),
                                           (r"zlib1g", "zlib", "Zlib")):
            found = [each for each in self.packages if re.fullmatch(name, each)]
            self.assertEqual(len(found), 1, name)
            package = self.packages[found[0]]
            version = subprocess.run(["dpkg-query", "-W", "-f=${Version}", found[0]], check=True,
                                     capture_output=True, text=True).stdout
            self.assertEqual(package["versionInfo"], version)
            self.assertIn(f"the source package {source} ", package["sourceInfo"])
            self.assertIn(license_part, package["licenseDeclared"])
            self.assertIn(f"&upstream={source}%40", package["externalRefs"][0]["referenceLocator"])

    def test_links_are_named_also_those_of_libraries(self):
        links = {(each["spdxElementId"], each["relatedSpdxElement"])
                 for each in self.document["relationships"]
                 if each["relationshipType"] == "DYNAMIC_LINK"}
        ids = {name: each["SPDXID"] for name, each in self.packages.items()}
        grpc = next(each for name, each in ids.items() if name.startswith("libgrpc++"))
        self.assertIn(("SPDXRef-File-capstan-server", grpc), links)
        self.assertIn((grpc, ids["libc6"]), links)
        self.assertIn(("SPDXRef-File-capstan-scheduler", ids["libsqlite3-0"]), links)
        self.assertNotIn(("SPDXRef-File-capstan-server", ids["libsqlite3-0"]), links)

    def test_each_program_has_its_checksum(self):
        sums = {each["fileName"]: checksum["checksumValue"] for each in self.document["files"]
                for checksum in each["checksums"] if checksum["algorithm"] == "SHA256"}
        self.assertEqual(sums, {
            f"./{pathlib.Path(each).name}":
                hashlib.sha256(pathlib.Path(each).read_bytes()).hexdigest()
            for each in self.programs})

    def test_no_library_of_the_build_is_forgotten(self):
        """A library that is compiled in without being linked has to be named by hand."""
        listed = cluster.runfile("deploy/packages.txt").read_text()
        names = [each for each in re.findall(r"(?m)^([a-z0-9+.-]+-dev)\b", listed)
                 if each not in NOT_IN_PROGRAMS]
        self.assertIn("libgrpc++-dev", names)
        sources = " ".join(each.get("sourceInfo", "") for each in self.packages.values()) + " "
        for name, package in bill_of_materials.read_packages(names).items():
            self.assertIn(f" the source package {package.source} ", sources, name)
        for name in bill_of_materials.HEADER_ONLY_PACKAGES:
            self.assertIn(name, self.packages)

    def test_the_licence_of_a_package_without_a_readable_copyright_file_is_open(self):
        self.assertEqual(self.packages["libc6"]["licenseDeclared"], "NOASSERTION")

    def test_a_library_that_no_package_holds_is_named_with_its_checksum(self):
        found = bill_of_materials.packages_by_path([self.programs[0]])[self.programs[0]]
        element = bill_of_materials.package_element(found, {}, {})
        self.assertEqual(element["name"], "capstan-scheduler")
        self.assertEqual(element["checksums"][0]["checksumValue"],
                         hashlib.sha256(pathlib.Path(self.programs[0]).read_bytes()).hexdigest())

    def test_what_is_no_program_is_refused(self):
        for arguments, said in ((["/nowhere/capstan"], "/nowhere/capstan: found no such file"),
                                ([self.programs[0]] * 2, "two programs have the name"),
                                ([str(cluster.runfile("deploy/packages.txt"))], "ldd")):
            refused = make(*arguments)
            self.assertEqual(refused.returncode, 1)
            self.assertIn(said, refused.stderr)
            self.assertEqual(refused.stdout, "")


class SpdxRulesTest(unittest.TestCase):
    """The rules find what they are for."""

    FILE = {"SPDXID": "SPDXRef-File-f", "fileName": "./f", "licenseConcluded": "MIT",
            "checksums": [{"algorithm": "SHA1", "checksumValue": "0" * 40}]}
    PRODUCT = {"SPDXID": "SPDXRef-P", "name": "p", "downloadLocation": "NOASSERTION",
               "packageVerificationCode": {"packageVerificationCodeValue":
                                           hashlib.sha1(b"0" * 40).hexdigest()}}
    LIBRARY = {"SPDXID": "SPDXRef-L", "name": "l", "downloadLocation": "NONE",
               "filesAnalyzed": False, "licenseDeclared": "MIT AND LicenseRef-x"}
    GOOD = {
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",
        "name": "d", "documentNamespace": "https://example.org/d",
        "creationInfo": {"created": "2026-01-31T00:00:00Z", "creators": ["Tool: t"]},
        "packages": [PRODUCT, LIBRARY], "files": [FILE],
        "hasExtractedLicensingInfos": [{"licenseId": "LicenseRef-x", "extractedText": "x"}],
        "relationships": [
            {"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES",
             "relatedSpdxElement": "SPDXRef-P"},
            {"spdxElementId": "SPDXRef-P", "relationshipType": "CONTAINS",
             "relatedSpdxElement": "SPDXRef-File-f"},
        ],
    }

    def test_a_good_document_passes(self):
        self.assertEqual(list(spdx_rules.violations(self.GOOD)), [])

    def test_each_fault_is_found(self):
        for place, value, said in (
                ((("documentNamespace",), "https://example.org/#d", "documentNamespace is"),
                 (("creationInfo", "created"), "2026-01-31", "created is"),
                 (("creationInfo", "creators"), ["me"], "creators are"),
                 (("packages", 1, "SPDXID"), "SPDXRef-P", "not unique"),
                 (("packages", 1, "SPDXID"), "SPDXRef-a+b", "is no SPDXID"),
                 (("packages", 1, "downloadLocation"), "", "has no downloadLocation"),
                 (("packages", 1, "filesAnalyzed"), True, "verification code"),
                 (("packages", 0, "filesAnalyzed"), False, "not analyzed"),
                 (("packages", 1, "licenseDeclared"), "LicenseRef-x AND", "is no expression"),
                 (("packages", 1, "licenseDeclared"), "LicenseRef-y", "is no expression"),
                 (("packages", 1, "licenseDeclared"), "MIT", "is used by no package"),
                 (("files", 0, "fileName"), "f", "has the name"),
                 (("files", 0, "checksums"), [], "has no SHA-1"),
                 (("files", 0, "checksums", 0, "checksumValue"), "0" * 39, "has the checksum"),
                 (("relationships", 0, "relationshipType"), "CONTAINS", "describes nothing"),
                 (("relationships", 1, "relatedSpdxElement"), "SPDXRef-no", "does not exist"))):
            document = copy.deepcopy(self.GOOD)
            holder = document
            for step in place[:-1]:
                holder = holder[step]
            holder[place[-1]] = value
            found = "\n".join(spdx_rules.violations(document))
            self.assertIn(said, found, place)

    def test_expressions(self):
        for text in ("MIT", "(MIT OR Zlib) AND LicenseRef-x", "Apache-2.0 WITH LLVM-exception",
                     "GPL-2.0-or-later", "((MIT))"):
            self.assertTrue(spdx_rules.is_expression(text, {"LicenseRef-x"}), text)
        for text in ("", "MIT Zlib", "(MIT", "MIT)", "AND MIT", "Expat", "LicenseRef-x", "MIT WITH",
                     "MIT OR (", "()"):
            self.assertFalse(spdx_rules.is_expression(text, set()), text)


if __name__ == "__main__":
    unittest.main()
