"""Makes the wheel of the package capstan, with the programs and the libraries that they load.

    make_wheel.py --out=capstan-VERSION-py3-none-TAG.whl --licence=FILE FILE...

Each FILE is a module of the package (.py, py.typed), libcapstan_client.so or a program. In the
wheel are

    capstan/                      the modules and libcapstan_client.so
    capstan/bin/                  the command line and the daemons
    capstan.libs/                 copies of the shared libraries that they load
    capstan-VERSION.dist-info/    what installers read, licences/, and sboms/, a bill of materials

The same inputs give the same bytes.
"""

import argparse
import ast
import base64
import hashlib
import pathlib
import re
import shutil
import tempfile
import zipfile

import bundle
import wheel_bill

_EARLIEST = (1980, 1, 1, 0, 0, 0)  # The first time that a zip file can hold.
_LIBRARIES = "capstan.libs"

_METADATA = """Metadata-Version: 2.1
Name: capstan
Version: {version}
Summary: Train with a parameter server: the Python package, the daemons and the command line
License: Apache-2.0; that of each bundled library is in the folder licences
Requires-Python: >=3.10
Provides-Extra: numpy
Requires-Dist: numpy ; extra == 'numpy'
Provides-Extra: torch
Requires-Dist: torch (>=1.13) ; extra == 'torch'
Description-Content-Type: text/plain

{description}
"""

_WHEEL = """Wheel-Version: 1.0
Generator: capstan
Root-Is-Purelib: false
Tag: py3-none-{tag}
"""

_ENTRY_POINTS = """[console_scripts]
capstan = capstan.__main__:main
capstan-scheduler = capstan.__main__:become_daemon
capstan-server = capstan.__main__:become_daemon
capstan-worker = capstan.__main__:become_daemon
"""


def facts_of(init):
    """(version, docstring) of the package's __init__.py."""
    text = init.read_text(encoding="utf-8")
    version = re.search(r'^__version__ = "([0-9.]+)"$', text, re.MULTILINE)
    if version is None:
        raise SystemExit(f"{init}: found no version, expected a line __version__ = \"...\"")
    return version.group(1), ast.get_docstring(ast.parse(text))


def place_files(files, root):
    """Copies the package's files to their places below `root`; returns the ELF files' copies."""
    elf = []
    for file in files:
        is_program = bundle.is_elf(file) and not file.name.endswith(".so")
        place = root / "capstan" / ("bin" if is_program else "") / file.name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, place)
        if bundle.is_elf(place):
            elf.append(place)
        place.chmod(0o755 if is_program else 0o644)
    return elf


def record_line(name, data):
    """A file's line in RECORD."""
    checksum = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{name},sha256={checksum},{len(data)}\n"


def pack(root, info, out):
    """Writes all files below `root` into the zip file `out`, with RECORD in the folder `info`.

    Order, times and rights depend on names alone, not on the files' own.
    """
    record = f"{info}/RECORD"
    lines = ""
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        def add(name, data):
            entry = zipfile.ZipInfo(name, _EARLIEST)
            mode = 0o755 if name.startswith("capstan/bin/") else 0o644
            entry.external_attr = (0o100000 | mode) << 16
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED, compresslevel=9)

        names = sorted(path.relative_to(root).as_posix() for path in root.rglob("*")
                       if path.is_file())
        # The files that installers read come last, as PEP 427 advises.
        for name in sorted(names, key=lambda name: name.startswith(info)):
            data = (root / name).read_bytes()
            add(name, data)
            lines += record_line(name, data)
        add(record, (lines + f"{record},,\n").encode())


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--licence", type=pathlib.Path, required=True, help="that of Capstan")
    parser.add_argument("files", type=pathlib.Path, nargs="+")
    options = parser.parse_args()
    version, description = facts_of(
        next(file for file in options.files if file.name == "__init__.py"))
    name = re.fullmatch(r"capstan-(.+)-py3-none-(.+)\.whl", options.out.name)
    if name is None or name.group(1) != version or name.group(2) not in bundle.NEWEST_SYMBOLS:
        raise SystemExit(f"{options.out.name}: expected capstan-{version}-py3-none-TAG.whl with a "
                         f"TAG of {', '.join(bundle.NEWEST_SYMBOLS)}")
    tag = name.group(2)
    with tempfile.TemporaryDirectory(prefix="capstan-wheel-") as folder:
        root = pathlib.Path(folder)
        info = f"capstan-{version}.dist-info"
        elf = place_files(options.files, root)
        libraries = bundle.bundle_libraries(elf, root / _LIBRARIES, root / info / "licences", tag)
        (root / info / "sboms").mkdir()
        (root / info / "sboms" / "capstan.cdx.json").write_text(
            wheel_bill.document_of(version, libraries, root / _LIBRARIES), encoding="utf-8")
        shutil.copyfile(options.licence, root / info / "licences" / "capstan.LICENSE")
        for file, text in (("METADATA", _METADATA.format(version=version,
                                                         description=description)),
                           ("WHEEL", _WHEEL.format(tag=tag)),
                           ("entry_points.txt", _ENTRY_POINTS)):
            (root / info / file).write_text(text, encoding="utf-8")
        pack(root, info, options.out)


if __name__ == "__main__":
    main()
