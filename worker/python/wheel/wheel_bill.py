"""The wheel's bill of materials: a document of CycloneDX 1.5 in JSON (PEP 770).

It has the package, the Debian packages whose libraries are bundled, each with the copies in the
wheel, and those whose headers are compiled in. The same inputs give the same bytes.
"""

import json
import uuid

import bill_of_materials
import debian_copyright


def _licences(package):
    """CycloneDX's `licenses` of a Debian package."""
    with open(f"/usr/share/doc/{package.name}/copyright", encoding="utf-8",
              errors="replace") as file:
        expression = debian_copyright.licenses_of(file.read(), package.source).expression
    if expression == debian_copyright.NOASSERTION:
        return [{"license": {"name": f"see licences/{package.name}.copyright"}}]
    return [{"expression": expression}]


def _component(package, system):
    url = bill_of_materials.package_url(package, system)
    return {"type": "library", "bom-ref": url, "name": package.name, "version": package.version,
            "purl": url, "licenses": _licences(package)}


def _file(name, path):
    digest = bill_of_materials.digest(path, "sha256")
    return {"type": "file", "name": name, "hashes": [{"alg": "SHA-256", "content": digest}]}


def document_of(version, libraries, folder):
    """The document's text.

    version: of the package capstan. libraries: {name of a copy in the wheel: path of the library}.
    folder: has the copies. Every library is of a Debian package.
    """
    system = bill_of_materials.distribution()
    headers = bill_of_materials.read_packages(bill_of_materials.HEADER_ONLY_PACKAGES).values()
    components = {package.name: _component(package, system) for package in headers}
    packages = bill_of_materials.packages_by_path(sorted(libraries.values()))
    for name, path in sorted(libraries.items()):
        package = packages[path]
        if package.name not in components:
            components[package.name] = _component(package, system)
        copies = components[package.name].setdefault("components", [])
        copies.append(_file(f"{folder.name}/{name}", folder / name))
    own = f"pkg:pypi/capstan@{version}"
    parts = [components[name] for name in sorted(components)]
    document = {
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": {"component": {
            "type": "application", "bom-ref": own, "name": "capstan", "version": version,
            "purl": own,
            "licenses": [{"license": {"id": bill_of_materials.PRODUCT_LICENSE}}]}},
        "components": parts,
        "dependencies": [{"ref": own, "dependsOn": [part["bom-ref"] for part in parts]}],
    }
    # Made from the content: each document has a name of its own, and the same one keeps its name.
    content = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(document))
    return json.dumps({**document, "serialNumber": f"urn:uuid:{content}"}, indent=1) + "\n"
