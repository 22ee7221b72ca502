"""Licences in Debian's copyright files, as expressions of SPDX."""

import unittest

import debian_copyright

HEAD = """Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: thing

"""


def licenses_of(*paragraphs):
    return debian_copyright.licenses_of(HEAD + "\n\n".join(paragraphs) + "\n", "thing")


def files(license_field, names="*"):
    return f"Files: {names}\nCopyright: 2020 Somebody\nLicense: {license_field}"


class DebianCopyrightTest(unittest.TestCase):
    def test_names_become_identifiers_of_spdx(self):
        for name, expected in (
                ("Apache-2.0", "Apache-2.0"), ("BSD-3-clause", "BSD-3-Clause"), ("Expat", "MIT"),
                ("zlib", "Zlib"), ("GPL-2", "GPL-2.0-only"), ("GPL-3+", "GPL-3.0-or-later"),
                ("LGPL-2.1+", "LGPL-2.1-or-later"), ("LGPL-2", "LGPL-2.0-only"),
                ("Apache-2.0 with LLVM exception", "Apache-2.0 WITH LLVM-exception"),
                ("BSD-3-clause or GPL-2", "(BSD-3-Clause OR GPL-2.0-only)"),
                ("GPL-2+ or Expat and zlib", "(GPL-2.0-or-later OR (MIT AND Zlib))"),
                ("GPL-2+ or Expat, and zlib", "((GPL-2.0-or-later OR MIT) AND Zlib)")):
            self.assertEqual(licenses_of(files(name)),
                             debian_copyright.Licenses(expected), name)

    def test_all_files_count_except_the_packaging(self):
        found = licenses_of(files("Zlib"), files("GPL-2+", "debian/* debian/patches/*"),
                            files("Expat", "contrib/*\n debian/extra.c"), files("Zlib", "a b"),
                            "License: GPL-2+\n Not of a file.")
        self.assertEqual(found.expression, "MIT AND Zlib")

    def test_a_licence_without_identifier_comes_with_its_text(self):
        found = licenses_of(files("Lucent or MIT", "a"), files("X~Y\n Inline.\n .\n  Second.", "b"),
                            "License: lucent\n Use it.\n", "License: Expat\n Not used.")
        self.assertEqual(found.expression,
                         "(LicenseRef-thing-Lucent OR LicenseRef-thing-MIT) AND "
                         "LicenseRef-thing-X-Y")
        self.assertEqual(found.texts, (
            ("LicenseRef-thing-Lucent", "Lucent", "Use it."),
            ("LicenseRef-thing-MIT", "MIT", "The copyright file of thing has no text."),
            ("LicenseRef-thing-X-Y", "X~Y", "Inline.\n\n Second.")))

    def test_what_cannot_be_read_is_not_guessed(self):
        nothing = debian_copyright.Licenses("NOASSERTION")
        for text in ("", "This package was debianized by hand.\n\nLicense:\n\nFiles: *\n",
                     HEAD, HEAD + files(""), HEAD + files("Expat", "debian/*")):
            self.assertEqual(debian_copyright.licenses_of(text, "thing"), nothing, text)


if __name__ == "__main__":
    unittest.main()
