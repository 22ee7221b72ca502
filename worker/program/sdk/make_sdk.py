"""Makes an archive of the client library for other languages: what a compiler needs of Capstan.

    make_sdk.py --out=FILE.tar.gz --version=VERSION FILE...

The FILEs are libcapstan_client.so, headers, examples (.c) and LICENSE. The archive has

    include/capstan_client.h        and capstan_rule.h, for update rules of the servers
    lib/libcapstan_client.so        also found by pkg-config, as `capstan`, wherever it is unpacked
    lib/capstan/                    copies of the shared libraries that it loads
    share/capstan/                  the examples, and licences/

The same inputs give the same bytes.
"""

import argparse
import gzip
import pathlib
import shutil
import tarfile
import tempfile

import bundle

_TAG = "manylinux_2_36_x86_64"
_PLACES = {".h": "include", ".so": "lib", ".c": "share/capstan", "": "share/capstan/licences"}

_PKG_CONFIG = """prefix=${{pcfiledir}}/../..

Name: capstan
Description: The client of Capstan, a parameter server: programs of jobs
Version: {version}
Cflags: -I${{prefix}}/include
Libs: -L${{prefix}}/lib -lcapstan_client
"""


def place_files(files, root):
    """Copies the files to their places below `root`; returns the library's copy."""
    for file in files:
        place = root / _PLACES[file.suffix] / file.name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, place)
    return root / "lib" / "libcapstan_client.so"


def pack(root, name, out):
    """Writes all files below `root` into a compressed tar file, in a folder `name`."""
    def plain(entry):
        entry.uid = entry.gid = entry.mtime = 0
        entry.uname = entry.gname = "root"
        entry.mode = 0o755 if entry.isdir() else 0o644
        return entry

    with open(out, "wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as stream, \
            tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path in sorted(root.rglob("*")):
            archive.add(path, f"{name}/{path.relative_to(root)}", recursive=False, filter=plain)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("files", type=pathlib.Path, nargs="+")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="capstan-sdk-") as folder:
        root = pathlib.Path(folder)
        library = place_files(options.files, root)
        bundle.bundle_libraries([library], root / "lib" / "capstan",
                                root / "share" / "capstan" / "licences" / "debian", _TAG)
        config = root / "lib" / "pkgconfig" / "capstan.pc"
        config.parent.mkdir()
        config.write_text(_PKG_CONFIG.format(version=options.version), encoding="utf-8")
        pack(root, f"capstan-{options.version}", options.out)


if __name__ == "__main__":
    main()
