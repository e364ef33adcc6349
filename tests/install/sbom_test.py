"""The SPDX list of a build: its form, and that it is true: sbom_test.py SOURCE_DIR BUILD_DIR"""
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys

SKIPPED = 77
LICENCES = {"Apache-2.0", "BSL-1.0", "MIT", "Zlib", "BSD-3-Clause", "LGPL-2.1-or-later",
            "GPL-3.0-or-later WITH GCC-exception-3.1", "GPL-2.0-only WITH Linux-syscall-note",
            "Apache-2.0 WITH LLVM-exception", "blessing"}
DOCUMENT = {"spdxVersion", "dataLicense", "SPDXID", "name", "documentNamespace", "creationInfo",
            "documentDescribes", "packages", "files", "relationships"}
KINDS = {"DESCRIBES", "CONTAINS", "STATIC_LINK", "DYNAMIC_LINK"}


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


def check_form(bill):
    expect(set(bill) == DOCUMENT, f"the document has {sorted(set(bill) ^ DOCUMENT)} too many or too few")
    expect(bill["spdxVersion"] == "SPDX-2.3" and bill["dataLicense"] == "CC0-1.0", bill["spdxVersion"])
    expect(re.fullmatch(r"https://[^#\s]+", bill["documentNamespace"]), bill["documentNamespace"])
    expect(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", bill["creationInfo"]["created"]), "created")
    known = {"SPDXRef-DOCUMENT"}
    for element in bill["packages"] + bill["files"]:
        name = element["SPDXID"]
        expect(re.fullmatch(r"SPDXRef-[A-Za-z0-9.-]+", name), name)
        expect(name not in known, f"{name} stands twice")
        expect(element["licenseConcluded"] in LICENCES, f"{name}: licence {element['licenseConcluded']}")
        known.add(name)
    for package in bill["packages"]:
        expect(package["versionInfo"] and package["downloadLocation"], package["SPDXID"])
        expect(package["filesAnalyzed"] == ("packageVerificationCode" in package), package["SPDXID"])
    for relation in bill["relationships"]:
        expect(set(relation) == {"spdxElementId", "relationshipType", "relatedSpdxElement"}, relation)
        expect(relation["relationshipType"] in KINDS, relation)
        expect({relation["spdxElementId"], relation["relatedSpdxElement"]} <= known, relation)


def check_truth(bill, build):
    for file in bill["files"]:
        content = open(f"{build}/{file['fileName']}", "rb").read()
        for checksum in file["checksums"]:
            kind = checksum["algorithm"].lower()
            expect(hashlib.new(kind, content).hexdigest() == checksum["checksumValue"], file["fileName"])
    names = {package["SPDXID"]: package["name"] for package in bill["packages"]}
    has = {(relation["spdxElementId"][len("SPDXRef-File-"):], relation["relationshipType"],
            re.sub(r"[-.]?[0-9][0-9.]*$", "", names[relation["relatedSpdxElement"]]))
           for relation in bill["relationships"] if relation["spdxElementId"].startswith("SPDXRef-File-")}
    for fact in (("dlaunch", "CONTAINS", "boost"), ("dlaunch", "CONTAINS", "nlohmann-json"),
                 ("dlaunchd", "CONTAINS", "fmtlib"), ("dlaunch", "DYNAMIC_LINK", "glibc"),
                 ("libdlaunch.so", "DYNAMIC_LINK", "gcc"), ("libdlaunch-tls.so", "DYNAMIC_LINK", "openssl")):
        expect(fact in has, f"{' '.join(fact)} is not told")
    cache = open(f"{build}/CMakeCache.txt").read()

    def found(name):
        return re.search(rf"^{name}:FILEPATH=/", cache, re.MULTILINE) is not None

    linked = {kind for file, kind, name in has if (file, name) == ("dlaunchd", "sqlite") and kind != "CONTAINS"}
    archive, shared = found("DLAUNCH_SQLITE_ARCHIVE"), found("SQLite3_LIBRARY")
    expect(linked == ({"STATIC_LINK"} if archive else {"DYNAMIC_LINK"} if shared else set()),
           "dlaunchd's SQLite is not told as it is")
    for file in ("dlaunch", "dlaunchd", "libdlaunch.so", "libdlaunch-nccl.so"):
        expect(not any(entry[0] == file and entry[2] == "openssl" for entry in has), f"{file} has no OpenSSL")


def main(source, build):
    for program in ("ninja", "dpkg", "readelf"):
        if shutil.which(program) is None:
            print(f"skipped: there is no {program}")
            return SKIPPED
    made = subprocess.run([f"{source}/packaging/make-sbom", build], capture_output=True, text=True,
                          env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000"})
    expect(made.returncode == 0, made.stderr)
    bill = json.loads(made.stdout)
    expect(bill["creationInfo"]["created"] == "2023-11-14T22:13:20Z", bill["creationInfo"])
    check_form(bill)
    check_truth(bill, build)
    refused = subprocess.run([f"{source}/packaging/make-sbom", source], capture_output=True, text=True)
    expect(refused.returncode == 69 and "is no build by Ninja" in refused.stderr, refused.stderr)
    print(f"{len(bill['files'])} files of {len(bill['packages']) - 1} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
