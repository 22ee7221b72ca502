"""Prints a bill of materials (SPDX 2.3, JSON) of Capstan's programs: what they link, from where.

  bazel run //deploy:bill_of_materials > capstan.spdx.json
  bazel run //deploy:bill_of_materials -- bazel-bin/kernels/cuda/libcapstan_cuda.so   also of this

Names the shared libraries that the programs load, the Debian packages that hold them, and the
libraries that are compiled in. The same programs, packages and commit give the same bytes.
"""

import argparse
import collections
import datetime
import hashlib
import json
import os
import re
import subprocess
import sys
import urllib.parse
import uuid
from dataclasses import dataclass, field

import debian_copyright
from debian_copyright import NOASSERTION

TOOL = "capstan-bill-of-materials"
PRODUCT_ID = "SPDXRef-Package-capstan"
PRODUCT_LICENSE = "Apache-2.0"

# The packages of packages.txt that hold headers alone. They are compiled in, so the programs' list
# of shared libraries does not name them.
HEADER_ONLY_PACKAGES = ("libcli11-dev",)

_COMMAND_SECONDS_MAX = 120


@dataclass
class Package:
    """A Debian package, or a library that none holds."""
    name: str
    version: str = ""
    architecture: str = ""
    source: str = ""
    source_version: str = ""
    homepage: str = ""
    path: str = ""  # Where the library lies that no package holds; "" for a package.
    libraries: set = field(default_factory=set)  # The names of the libraries that programs load.

    @property
    def spdx_id(self):
        return "SPDXRef-Package-" + re.sub(r"[^A-Za-z0-9.-]", "-", self.name)


def run(*command, may_fail=False):
    """The standard output of a program, in the C locale and with no LD_PRELOAD or the like. If it
    `may_fail`, what it wrote before it failed."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("LD_")}
    environment["LC_ALL"] = "C"
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False,
                              env=environment, timeout=_COMMAND_SECONDS_MAX)
    except FileNotFoundError as error:
        if may_fail:
            return ""
        raise SystemExit(f"found no program {command[0]}, expected those of Debian's dpkg, "
                         "libc-bin and binutils") from error
    if done.returncode != 0 and not may_fail:
        raise SystemExit(f"{command[0]} {command[1]} failed with code {done.returncode}: "
                         f"{done.stderr.strip()}")
    return done.stdout


def digest(path, algorithm):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def loaded_libraries(program):
    """{name: path} of the shared libraries that the loader finds for `program`."""
    found = {}
    for line in run("ldd", program).splitlines():
        if line.endswith("=> not found"):
            raise SystemExit(f"{program}: the loader finds no {line.split()[0]}")
        if match := re.match(r"\s*(?:(\S+) => )?(/\S+) \(0x[0-9a-f]+\)$", line):
            name, path = match.groups()
            found[name or os.path.basename(path)] = path
    return found


def needed_by(paths):
    """{path: names of the libraries that the file there asks for itself}."""
    needed = {path: set() for path in paths}
    current = paths[0]
    for line in run("readelf", "-dW", *paths).splitlines():
        if line.startswith("File: "):
            current = line.removeprefix("File: ")
        elif match := re.search(r"\(NEEDED\).*\[(.+)\]$", line):
            needed[current].add(match.group(1))
    return needed


def packages_by_path(paths):
    """{path: the Package that holds the file there}."""
    # dpkg knows a file by the path in its package, which may lack the /usr that the system has.
    spellings = {}
    for path in paths:
        bare = [each.removeprefix("/usr") for each in (path, os.path.realpath(path))]
        spellings[path] = bare + [f"/usr{each}" for each in bare]
    asked = sorted({each for spelled in spellings.values() for each in spelled})
    holders = {}
    for line in run("dpkg", "-S", *asked, may_fail=True).splitlines():
        names, _, path = line.partition(": ")
        if not names.startswith("diversion "):
            holders[path] = names.split(", ")[0]
    packages = read_packages(set(holders.values()))
    found = {}
    for path in paths:
        names = [holders[each] for each in spellings[path] if each in holders]
        found[path] = packages[names[0]] if names else Package(os.path.basename(path), path=path)
    return found


def read_packages(names):
    """{name as given: Package} of installed packages."""
    form = "\\t".join("${%s}" % each for each in (
        "Package", "Version", "Architecture", "source:Package", "source:Version", "Homepage"))
    packages = {}
    for name in sorted(names):
        packages[name] = Package(*run("dpkg-query", "-W", f"-f={form}", name).split("\t"))
    return packages


def distribution():
    """{key: value} of /etc/os-release."""
    with open("/etc/os-release", encoding="utf-8") as file:
        pairs = [line.strip().partition("=") for line in file if "=" in line]
    return {key: value.strip("\"'") for key, _, value in pairs}


def commit_of(folder):
    """(commit, its time) of the source tree at `folder`. Where git knows of no commit, that is ""
    and the time of SOURCE_DATE_EPOCH (seconds since 1970) or 0."""
    git = ["git", "--no-optional-locks", "-C", folder]
    try:
        commit, seconds = run(*git, "log", "-1", "--format=%H %ct", may_fail=True).split()
        if run(*git, "status", "--porcelain").strip():
            commit += "-modified"
    except ValueError:
        print(f"git knows of no commit of {folder}: the document names none", file=sys.stderr)
        commit, seconds = "", os.environ.get("SOURCE_DATE_EPOCH", "0")
    time = datetime.datetime.fromtimestamp(int(seconds), datetime.timezone.utc)
    return commit, time.strftime("%Y-%m-%dT%H:%M:%SZ")


def package_url(package, system):
    """The name that databases of vulnerabilities have for a package: a purl."""
    def quoted(text):
        return urllib.parse.quote(text, safe=".~-_:")

    family = system.get("ID", "debian")
    upstream = quoted(f"{package.source}@{package.source_version}")
    return (f"pkg:deb/{family}/{quoted(package.name)}@{quoted(package.version)}"
            f"?arch={package.architecture}&distro={family}-{system.get('VERSION_ID', 'unknown')}"
            f"&upstream={upstream}")


def package_element(package, system, extracted):
    """SPDX's element for `package`. Adds its licences that SPDX has no name for to `extracted`:
    {LicenseRef: element}."""
    element = {
        "SPDXID": package.spdx_id,
        "name": package.name,
        "downloadLocation": NOASSERTION,
        "filesAnalyzed": False,
        "licenseConcluded": NOASSERTION,
        "licenseDeclared": NOASSERTION,
        "copyrightText": NOASSERTION,
        "primaryPackagePurpose": "LIBRARY",
    }
    if package.libraries:
        element["comment"] = "Libraries loaded: " + " ".join(sorted(package.libraries))
    if package.path:
        element["checksums"] = [checksum(package.path, "SHA256")]
        return element
    copyright_file = f"/usr/share/doc/{package.name}/copyright"
    licenses = debian_copyright.Licenses()
    if os.path.exists(copyright_file):
        with open(copyright_file, encoding="utf-8", errors="replace") as file:
            licenses = debian_copyright.licenses_of(file.read(), package.source)
    for reference, name, text in licenses.texts:
        extracted.setdefault(reference, {
            "licenseId": reference, "name": name, "extractedText": text})
    element |= {
        "versionInfo": package.version,
        "supplier": f"Organization: {system.get('NAME', 'Debian GNU/Linux')}",
        "sourceInfo": f"built from the source package {package.source} {package.source_version}",
        "licenseDeclared": licenses.expression,
        "externalRefs": [{
            "referenceCategory": "PACKAGE-MANAGER",
            "referenceType": "purl",
            "referenceLocator": package_url(package, system),
        }],
    }
    if re.match(r"https?://\S+$", package.homepage):
        element["homepage"] = package.homepage
    return element


def checksum(path, algorithm):
    return {"algorithm": algorithm, "checksumValue": digest(path, algorithm.lower())}


def file_element(program):
    name = os.path.basename(program)
    return {
        "SPDXID": file_id(program),
        "fileName": f"./{name}",
        "fileTypes": ["BINARY"],
        "checksums": [checksum(program, "SHA1"), checksum(program, "SHA256")],
        "licenseConcluded": PRODUCT_LICENSE,
        "licenseInfoInFiles": [NOASSERTION],
        "copyrightText": NOASSERTION,
    }


def file_id(program):
    return "SPDXRef-File-" + re.sub(r"[^A-Za-z0-9.-]", "-", os.path.basename(program))


def product_element(files, commit):
    sums = sorted(each["checksums"][0]["checksumValue"] for each in files)
    element = {
        "SPDXID": PRODUCT_ID,
        "name": "capstan",
        "downloadLocation": NOASSERTION,
        "filesAnalyzed": True,
        # Section 7.9 of the specification asks for SHA-1.
        "packageVerificationCode": {
            "packageVerificationCodeValue": hashlib.sha1("".join(sums).encode()).hexdigest()},
        "licenseConcluded": PRODUCT_LICENSE,
        "licenseDeclared": PRODUCT_LICENSE,
        "licenseInfoFromFiles": [NOASSERTION],
        "copyrightText": NOASSERTION,
        "primaryPackagePurpose": "APPLICATION",
    }
    if commit:
        element |= {"versionInfo": commit, "sourceInfo": f"built from the git commit {commit}"}
    return element


def relationship(element, kind, related, comment=""):
    entry = {"spdxElementId": element, "relationshipType": kind, "relatedSpdxElement": related}
    return entry | ({"comment": comment} if comment else {})


def link_graph(programs):
    """({SPDX identifier: package}, sorted pairs of identifiers: the first links the second)."""
    paths = {program: loaded_libraries(program) for program in programs}
    libraries = sorted({path for found in paths.values() for path in found.values()})
    holders = packages_by_path(libraries)
    needed = needed_by([*programs, *libraries])
    packages, links = {}, set()
    for program, found in paths.items():
        for name, path in found.items():
            package = packages.setdefault(holders[path].spdx_id, holders[path])
            package.libraries.add(name)
            for dependency in needed[path] & found.keys():
                links.add((package.spdx_id, holders[found[dependency]].spdx_id))
        for dependency in needed[program] & found.keys():
            links.add((file_id(program), holders[found[dependency]].spdx_id))
    return packages, sorted(link for link in links if link[0] != link[1])


def header_only_packages(list_path):
    with open(list_path, encoding="utf-8") as file:
        listed = {line.split("#")[0].split()[0] for line in file if line.split("#")[0].split()}
    for name in HEADER_ONLY_PACKAGES:
        if name not in listed:
            raise SystemExit(f"{list_path} does not list {name}, which HEADER_ONLY_PACKAGES names")
    return list(read_packages(HEADER_ONLY_PACKAGES).values())


def document_of(programs, source_tree):
    commit, created = commit_of(source_tree)
    system = distribution()
    linked, links = link_graph(programs)
    headers = header_only_packages(os.path.join(source_tree, "deploy", "packages.txt"))
    packages = linked | {package.spdx_id: package for package in headers}
    files = [file_element(program) for program in programs]
    extracted = {}
    elements = [package_element(packages[each], system, extracted) for each in sorted(packages)]
    relationships = [relationship("SPDXRef-DOCUMENT", "DESCRIBES", PRODUCT_ID)]
    relationships += [relationship(PRODUCT_ID, "CONTAINS", each["SPDXID"]) for each in files]
    relationships += [relationship(PRODUCT_ID, "STATIC_LINK", package.spdx_id,
                                   "headers alone, compiled into the programs")
                      for package in headers]
    relationships += [relationship(user, "DYNAMIC_LINK", used) for user, used in links]
    document = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": "capstan",
        "creationInfo": {"created": created, "creators": [f"Tool: {TOOL}"]},
        "packages": [product_element(files, commit), *elements],
        "files": files,
        "hasExtractedLicensingInfos": [extracted[each] for each in sorted(extracted)],
        "relationships": relationships,
    }
    # Made from the content: each document has a name of its own, and the same one keeps its name.
    content = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(document))
    document["documentNamespace"] = f"https://spdx.org/spdxdocs/capstan-{content}"
    return document


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="+", help="programs and plugins of Capstan")
    programs = []
    for program in parser.parse_args().programs:
        # bazel run starts programs elsewhere and says here where the user is.
        path = os.path.join(os.environ.get("BUILD_WORKING_DIRECTORY", ""), program)
        programs.append(os.path.realpath(program if os.path.exists(program) else path))
        if not os.path.isfile(programs[-1]):
            raise SystemExit(f"{program}: found no such file, expected a program of Capstan")
    twice = [name for name, count in collections.Counter(map(file_id, programs)).items()
             if count > 1]
    if twice:
        raise SystemExit(f"two programs have the name {twice[0].removeprefix('SPDXRef-File-')}")
    source_tree = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    document = document_of(sorted(programs, key=os.path.basename), source_tree)
    json.dump(document, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
