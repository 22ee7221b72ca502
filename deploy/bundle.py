"""Makes programs independent of a machine's libraries: copies what they load, under own names.

Does what auditwheel does for extension modules of Python. Each copy has a name with a checksum in
it, so that a process which has another library of the same name (gRPC, protobuf) has both, and each
user finds its own. The programs find the copies by a path relative to themselves.
"""

import os
import pathlib
import re
import shutil
import struct

import bill_of_materials

# Parts of glibc, which must be of one build with the loader, and GCC's runtime for C++: a process
# has one of it, or exceptions and locales do not pass from one library to another. Both are
# backward compatible, and the platform tag says how old they may be (PEP 600).
SYSTEM_LIBRARIES = re.compile(
    r"(ld-linux-x86-64|lib(c|m|pthread|dl|rt|resolv|util|anl|mvec|stdc\+\+|gcc_s))\.so\.\d+$")

# The newest symbols that the oldest machine of a tag has: those of Debian 12 with GCC 12.
NEWEST_SYMBOLS = {
    "manylinux_2_36_x86_64": {
        "GLIBC": (2, 36), "GLIBCXX": (3, 4, 30), "CXXABI": (1, 3, 13), "GCC": (12, 0, 0)},
}


def libraries_of(programs):
    """{name: path} of the shared libraries that `programs` load, without those of the system."""
    found = {}
    for program in programs:
        found |= bill_of_materials.loaded_libraries(str(program))
    return {name: path for name, path in sorted(found.items())
            if not SYSTEM_LIBRARIES.match(name)}


def own_name(name, path):
    """libssl.so.3 becomes libssl-CHECKSUM.so.3."""
    stem, suffix = name.split(".so", 1)
    return f"{stem}-{bill_of_materials.digest(path, 'sha256')[:8]}.so{suffix}"


def copy_libraries(libraries, folder):
    """Copies `libraries`, {name: path}, into `folder` under own names; returns {name: own name}."""
    names = {name: own_name(name, path) for name, path in libraries.items()}
    folder.mkdir(parents=True)
    for name, path in libraries.items():
        copy = folder / names[name]
        shutil.copyfile(path, copy)
        make_process_local(copy)
        _patch(copy, "--set-soname", names[name])
        redirect(copy, names, "$ORIGIN")
    return names


def redirect(file, names, library_path):
    """Makes an ELF file ask for the libraries by their own names, along `library_path`."""
    needed = bill_of_materials.needed_by([str(file)])[str(file)]
    replaced = [word for name in sorted(needed & names.keys())
                for word in ("--replace-needed", name, names[name])]
    if replaced:
        _patch(file, *replaced)
    # DT_RPATH, not DT_RUNPATH: LD_LIBRARY_PATH must not come first.
    _patch(file, "--force-rpath", "--set-rpath", library_path)


def _patch(file, *options):
    # One kind of change at a time: patchelf 0.14 mixes up the names of several.
    bill_of_materials.run("patchelf", *options, str(file))


def make_process_local(file):
    """Makes the unique symbols of a shared library weak ones.

    GCC marks static variables of templates and inline functions as unique: the loader takes the
    first of a name in the process, also from libraries that are loaded out of sight. Two versions
    of gRPC or protobuf would share such a variable with different contents.
    """
    unique, weak = 10, 2  # STB_GNU_UNIQUE, STB_WEAK
    entry_bytes, info_offset = 24, 4  # sizeof(Elf64_Sym), offsetof(Elf64_Sym, st_info)
    data = bytearray(file.read_bytes())
    for offset, size in _dynamic_symbols(data):
        for info in range(offset + info_offset, offset + size, entry_bytes):
            if data[info] >> 4 == unique:
                data[info] = weak << 4 | data[info] & 0xF
    file.write_bytes(data)


def _dynamic_symbols(data):
    """Yields (offset, size) of the tables of dynamic symbols in an ELF file of 64 bits."""
    dynsym = 11  # SHT_DYNSYM
    (headers,) = struct.unpack_from("<Q", data, 0x28)  # e_shoff
    header_bytes, count = struct.unpack_from("<HH", data, 0x3A)  # e_shentsize, e_shnum
    for index in range(count):
        header = headers + index * header_bytes
        (kind,) = struct.unpack_from("<I", data, header + 4)
        if kind == dynsym:
            yield struct.unpack_from("<QQ", data, header + 0x18)


def is_elf(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def symbol_versions(files):
    """{family: the newest version, in numbers, that one of the ELF files asks for}."""
    newest = {}
    for line in bill_of_materials.run("readelf", "-VW", *map(str, files)).splitlines():
        if match := re.search(r"Name: (GLIBC|GLIBCXX|CXXABI|GCC)_([0-9.]+)\s", line):
            version = tuple(map(int, match.group(2).split(".")))
            newest[match.group(1)] = max(newest.get(match.group(1), ()), version)
    return newest


def check_platform(files, tag):
    """Exits with a message if one of the ELF files asks for more than machines of `tag` have."""
    for family, version in symbol_versions(files).items():
        if version > NEWEST_SYMBOLS[tag][family]:
            found, most = (".".join(map(str, each)) for each in (
                version, NEWEST_SYMBOLS[tag][family]))
            raise SystemExit(f"the wheel needs {family}_{found}, expected at most {family}_{most} "
                             f"for the tag {tag}")


def bundle_libraries(elf, folder, licences, tag):
    """Gives the programs and libraries `elf` copies in `folder` of what they load, and the licences
    of these to the folder `licences`. Returns {own name: path}. Exits if they ask for more than
    machines of `tag` have."""
    libraries = libraries_of(elf)
    names = copy_libraries(libraries, folder)
    for file in elf:
        # The names of functions remain, which make the trace of a crash readable.
        bill_of_materials.run("strip", "--strip-debug", str(file))
        redirect(file, names, f"$ORIGIN/{os.path.relpath(folder, file.parent)}")
    check_platform([*elf, *sorted(folder.iterdir())], tag)
    copy_licences(libraries, licences)
    return {names[name]: path for name, path in libraries.items()}


def copy_licences(libraries, folder):
    """Copies the copyright files of the Debian packages that hold `libraries`, {name: path}, into
    `folder`, and the texts that they name by their place on a Debian system."""
    folder.mkdir(parents=True)
    for package in bill_of_materials.packages_by_path(sorted(libraries.values())).values():
        source = pathlib.Path("/usr/share/doc", package.name, "copyright")
        if package.path or not source.exists():
            raise SystemExit(f"{package.path or source}: found no copyright file, expected a "
                             "library of a Debian package")
        text = source.read_text(encoding="utf-8", errors="replace")
        (folder / f"{package.name}.copyright").write_text(text, encoding="utf-8")
        for name in re.findall(r"/usr/share/common-licenses/([A-Za-z0-9.-]*[A-Za-z0-9])", text):
            common = pathlib.Path("/usr/share/common-licenses", name)
            if common.is_file():
                shutil.copyfile(common, folder / os.path.basename(name))
