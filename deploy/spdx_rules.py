"""The rules of SPDX 2.3 that a document has to keep, as far as ours makes use of them. For tests.

Sections are of https://spdx.github.io/spdx-spec/v2.3.
"""

import hashlib
import re

NOTHING = ("NOASSERTION", "NONE")
DIGITS = {"SHA1": 40, "SHA256": 64}
RELATIONSHIPS = ("CONTAINS", "DESCRIBES", "DYNAMIC_LINK", "STATIC_LINK")
LICENSES = {"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0", "ISC", "MIT",
            "Zlib"} | {f"{name}-{suffix}" for name in (
                "GPL-1.0", "GPL-2.0", "GPL-3.0", "LGPL-2.0", "LGPL-2.1", "LGPL-3.0", "AGPL-3.0")
                for suffix in ("only", "or-later")}
EXCEPTIONS = {"LLVM-exception"}


def violations(document):
    """Yields a message for each error of a document."""
    elements = [document, *document.get("packages", []), *document.get("files", [])]
    ids = [each.get("SPDXID", "") for each in elements]
    yield from _document(document)
    for each in ids:
        if not re.fullmatch(r"SPDXRef-[A-Za-z0-9.-]+", each):
            yield f"'{each}' is no SPDXID"
        if ids.count(each) > 1:
            yield f"the SPDXID {each} is not unique"
    for each in document.get("packages", []):
        yield from _package(each, document)
    for each in document.get("files", []):
        yield from _file(each)
    yield from _relationships(document, set(ids))
    yield from _licenses(document)


def _document(document):  # Section 6.
    for name, pattern in (
            ("spdxVersion", r"SPDX-2\.3"), ("dataLicense", r"CC0-1\.0"), ("name", r".+"),
            ("SPDXID", r"SPDXRef-DOCUMENT"), ("documentNamespace", r"https?://[^\s#]+")):
        if not re.fullmatch(pattern, document.get(name, "")):
            yield f"{name} is '{document.get(name)}', expected {pattern}"
    made = document.get("creationInfo", {})
    if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", made.get("created", "")):
        yield f"created is '{made.get('created')}', expected a time in UTC"
    creators = made.get("creators", [])
    if not creators or not all(re.match(r"(Person|Organization|Tool): \S", each)
                               for each in creators):
        yield f"creators are {creators}"


def _package(package, document):  # Section 7.
    name = package.get("SPDXID")
    for each in ("name", "downloadLocation"):
        if not package.get(each):
            yield f"{name} has no {each}"
    contained = {each["relatedSpdxElement"] for each in document.get("relationships", [])
                 if each["relationshipType"] == "CONTAINS" and each["spdxElementId"] == name}
    files = [each for each in document.get("files", []) if each.get("SPDXID") in contained]
    code = package.get("packageVerificationCode", {}).get("packageVerificationCodeValue")
    if package.get("filesAnalyzed", True):
        sums = sorted(each["checksumValue"] for file in files
                      for each in file.get("checksums", []) if each["algorithm"] == "SHA1")
        if code != hashlib.sha1("".join(sums).encode()).hexdigest():
            yield f"{name} has the verification code {code}, which its files do not have"
    elif files or code or "licenseInfoFromFiles" in package:
        yield f"{name} says of files that were not analyzed"
    if not re.match(r"(Person|Organization): \S|NOASSERTION$",
                    package.get("supplier", "NOASSERTION")):
        yield f"{name} has the supplier {package['supplier']}"
    for each in package.get("externalRefs", []):
        if (each["referenceCategory"], each["referenceType"]) != ("PACKAGE-MANAGER", "purl") or (
                not re.fullmatch(r"pkg:deb/[a-z]+/[a-z0-9.%B-]+@[^@?\s]+\?arch=\w+&distro=\S+",
                                 each["referenceLocator"])):
            yield f"{name} has the external reference {each}"
    yield from _checksums(package)


def _file(file):  # Section 8.
    if not file.get("fileName", "").startswith("./"):
        yield f"{file.get('SPDXID')} has the name {file.get('fileName')}"
    if "SHA1" not in [each["algorithm"] for each in file.get("checksums", [])]:
        yield f"{file.get('SPDXID')} has no SHA-1"
    yield from _checksums(file)


def _checksums(element):
    for each in element.get("checksums", []):
        if not re.fullmatch(r"[0-9a-f]{%d}" % DIGITS[each["algorithm"]], each["checksumValue"]):
            yield f"{element.get('SPDXID')} has the checksum {each}"


def _relationships(document, ids):  # Section 11.
    found = [(each["spdxElementId"], each["relationshipType"], each["relatedSpdxElement"])
             for each in document.get("relationships", [])]
    for each in sorted(set(found)):
        element, kind, related = each
        if kind not in RELATIONSHIPS:
            yield f"{kind} is no kind of relationship that we use"
        for name in (element, related):
            if name not in ids:
                yield f"{kind} names {name}, which does not exist"
        if found.count(each) > 1:
            yield f"the relationship {each} stands twice"
    if "DESCRIBES" not in [kind for element, kind, _ in found if element == "SPDXRef-DOCUMENT"]:
        yield "the document describes nothing"


def _licenses(document):  # Section 10 and annex D.
    extracted = [each.get("licenseId", "") for each in
                 document.get("hasExtractedLicensingInfos", [])]
    used = set()
    for each in document.get("hasExtractedLicensingInfos", []):
        if not re.fullmatch(r"LicenseRef-[A-Za-z0-9.-]+", each.get("licenseId", "")):
            yield f"'{each.get('licenseId')}' is no identifier of a licence"
        if not each.get("extractedText"):
            yield f"{each.get('licenseId')} has no text"
    for element in [*document.get("packages", []), *document.get("files", [])]:
        for key in ("licenseConcluded", "licenseDeclared"):
            expression = element.get(key, "NOASSERTION")
            if expression in NOTHING:
                continue
            if not is_expression(expression, set(extracted)):
                yield f"{element.get('SPDXID')}: {key} is no expression: {expression}"
            used |= set(re.findall(r"LicenseRef-[A-Za-z0-9.-]+", expression))
    for each in extracted:
        if each not in used or extracted.count(each) > 1:
            yield f"{each} is used by no package, or stands twice"


def is_expression(text, references):
    """Whether `text` is a licence expression over the licences above and `references`."""
    tokens = re.findall(r"[()]|[^\s()]+", text)

    def operand():
        token = tokens.pop(0) if tokens else ""
        if token == "(":
            return operands() and bool(tokens) and tokens.pop(0) == ")"
        if token not in LICENSES | references:
            return False
        if tokens[:1] == ["WITH"]:
            exception = tokens[1:2]
            del tokens[:2]
            return bool(exception) and exception[0] in EXCEPTIONS
        return True

    def operands():
        while operand():
            if tokens[:1] not in (["AND"], ["OR"]):
                return True
            tokens.pop(0)
        return False

    return operands() and not tokens
