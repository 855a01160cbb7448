#!/usr/bin/env python3
"""Writes packages of the static program that need no tool of their system; for scripts/release.sh.

    package.py wheel STAGE MACHINE DIR         a wheel that contains bin/inkling of STAGE
    package.py zip FOLDER FILE                 the files of a folder, and its name before them
    package.py image STAGE MACHINE FILE        an image for containers (docker load, podman load, skopeo)
    package.py sbom LICENSES FILE PROGRAM...   a list of the parts of the programs (SPDX 2.3)

SOURCE_DATE_EPOCH is the time of everything in them: the same input gives the same bytes."""
import base64
import datetime
import gzip
import hashlib
import io
import json
import os
import shlex
import sys
import tarfile
import zipfile

EPOCH = int(os.environ["SOURCE_DATE_EPOCH"])
DATE = datetime.datetime.fromtimestamp(EPOCH, datetime.timezone.utc)
ISO_DATE = DATE.strftime("%Y-%m-%dT%H:%M:%SZ")
VERSION = open("VERSION", encoding="ascii").read().strip()
with open("tools/packaging/about", encoding="utf-8") as about:
    ABOUT = dict(word.split("=", 1) for word in shlex.split(about.read().replace("\\\n", ""), comments=True))


def read(path):
    with open(path, "rb") as file:
        return file.read()


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def text_of(value):
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()


# ---- wheel ----

# A static program needs no C library, so it suits every tag of its processor. Old versions of pip know only old tags.
PLATFORMS = {"x86_64": "manylinux1_x86_64.manylinux2014_x86_64.musllinux_1_1_x86_64",
             "aarch64": "manylinux2014_aarch64.musllinux_1_1_aarch64",
             "windows": "win_amd64"}


def write_archive(path, files, is_program):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, data in files.items():
            info = zipfile.ZipInfo(name, DATE.timetuple()[:6])
            info.external_attr = (0o100755 if is_program(name) else 0o100644) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, data)


def write_zip(folder, out):
    names = sorted(os.listdir(folder))
    write_archive(out, {f"{os.path.basename(folder)}/{name}": read(f"{folder}/{name}") for name in names},
                  lambda name: name.endswith(".exe"))


def write_wheel(stage, machine, out):
    base = f"{ABOUT['wheel'].replace('-', '_')}-{VERSION}"
    home = f"Project-URL: Homepage, {os.environ['URL']}\n" if os.environ.get("URL") else ""
    metadata = (f"Metadata-Version: 2.4\nName: {ABOUT['wheel']}\nVersion: {VERSION}\nSummary: {ABOUT['summary']}\n"
                f"License-Expression: {ABOUT['license']}\nLicense-File: copyright\n{home}Description-Content-Type: text/plain\n\n"
                f"{ABOUT['description']}\n\n    inkling train book.txt\n    inkling generate book.run\n")
    wheel = "Wheel-Version: 1.0\nGenerator: inkling\nRoot-Is-Purelib: false\n"
    wheel += "".join(f"Tag: py3-none-{tag}\n" for tag in PLATFORMS[machine].split("."))
    program = "inkling.exe" if machine == "windows" else "inkling"
    files = {f"{base}.data/scripts/{program}": read(f"{stage}/bin/{program}")}
    for folder, _, names in sorted(os.walk(f"{stage}/share/man")):
        for name in sorted(names):
            path = os.path.join(folder, name)
            files[f"{base}.data/data/{os.path.relpath(path, stage)}"] = read(path)
    files[f"{base}.dist-info/licenses/copyright"] = read(f"{stage}/share/doc/inkling/copyright")
    files[f"{base}.dist-info/METADATA"] = metadata.encode()
    files[f"{base}.dist-info/WHEEL"] = wheel.encode()
    record = ""
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(data)}\n"
    files[f"{base}.dist-info/RECORD"] = (record + f"{base}.dist-info/RECORD,,\n").encode()
    name = f"{out}/{base}-py3-none-{PLATFORMS[machine]}.whl"
    write_archive(name, files, lambda name: "/scripts/" in name)


# ---- image ----

def tar_of(entries):
    """entries: {path: (mode, bytes, or None for a directory)}, parents first"""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path, (mode, data) in entries.items():
            info = tarfile.TarInfo(path)
            info.mode, info.mtime = mode, EPOCH
            info.type, info.size = (tarfile.DIRTYPE, 0) if data is None else (tarfile.REGTYPE, len(data))
            archive.addfile(info, None if data is None else io.BytesIO(data))
    return out.getvalue()


def write_image(stage, machine, out):
    """An OCI layout with the manifest.json of `docker save` beside it, which older versions of Docker read."""
    layer = tar_of({"bin": (0o755, None), "bin/inkling": (0o755, read(f"{stage}/bin/inkling")),
                    "copyright": (0o644, read(f"{stage}/share/doc/inkling/copyright")),
                    "tmp": (0o1777, None), "var": (0o755, None), "var/tmp": (0o1777, None), "work": (0o1777, None)})
    packed = gzip.compress(layer, 9, mtime=0)
    key = "org.opencontainers.image."
    labels = {key + "title": ABOUT["name"], key + "version": VERSION, key + "description": ABOUT["summary"],
              key + "licenses": ABOUT["license"]}
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}[machine]
    config = text_of({"os": "linux", "architecture": architecture, "created": ISO_DATE,
                      "config": {"Entrypoint": ["inkling"], "Env": ["PATH=/bin"], "WorkingDir": "/work",
                                 "Labels": labels},
                      "rootfs": {"type": "layers", "diff_ids": ["sha256:" + sha256(layer)]},
                      "history": [{"created": ISO_DATE, "created_by": "scripts/release.sh"}]})
    blobs = {}

    def blob(kind, data):
        blobs["blobs/sha256/" + sha256(data)] = (0o644, data)
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": "sha256:" + sha256(data), "size": len(data)}

    manifest = blob("manifest.v1+json", text_of(
        {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
         "config": blob("config.v1+json", config), "layers": [blob("layer.v1.tar+gzip", packed)]}))
    tag = f"{ABOUT['name']}:{VERSION}"
    manifest["annotations"] = {"io.containerd.image.name": f"docker.io/library/{tag}", key + "ref.name": VERSION}
    entries = {"oci-layout": (0o644, text_of({"imageLayoutVersion": "1.0.0"})),
               "index.json": (0o644, text_of({"schemaVersion": 2, "manifests": [manifest]})),
               "manifest.json": (0o644, text_of([{"Config": f"blobs/sha256/{sha256(config)}", "RepoTags": [tag],
                                                  "Layers": [f"blobs/sha256/{sha256(packed)}"]}])),
               "blobs": (0o755, None), "blobs/sha256": (0o755, None), **blobs}
    with open(out, "wb") as file:
        file.write(tar_of(entries))


# ---- sbom ----

LICENSES = {"jansson": "MIT", "mingw-w64": "ZPL-2.1 AND BSD-3-Clause AND MIT", "musl": "MIT", "pcre2": "BSD-3-Clause",
            "utf8proc": "MIT", "wasi-libc": "Apache-2.0 WITH LLVM-exception AND MIT",
            "winpthreads": "MIT AND BSD-3-Clause"}


def write_sbom(licenses, out, *programs):
    def package(name, version, license_id):
        return {"SPDXID": f"SPDXRef-{name}", "name": name, "versionInfo": version, "downloadLocation": "NOASSERTION",
                "filesAnalyzed": False, "licenseDeclared": license_id, "licenseConcluded": license_id,
                "copyrightText": "NOASSERTION",
                "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                                  "referenceLocator": f"pkg:generic/{name}@{version}"}]}

    parts = sorted(name.rsplit("-", 1) for name in os.listdir(licenses))
    parts = [package(name, version, LICENSES[name]) for name, version in parts]
    files = [{"SPDXID": f"SPDXRef-File-{i}", "fileName": "./" + "/".join(path.split("/")[-2:]),
              "checksums": [{"algorithm": "SHA1", "checksumValue": hashlib.sha1(read(path)).hexdigest()},
                            {"algorithm": "SHA256", "checksumValue": sha256(read(path))}],
              "licenseConcluded": "NOASSERTION", "copyrightText": "NOASSERTION"} for i, path in enumerate(programs)]
    digest = sha256(b"".join(read(path) for path in programs))
    relations = [("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-inkling")]
    relations += [("SPDXRef-inkling", "STATIC_LINK", part["SPDXID"]) for part in parts]
    relations += [(file["SPDXID"], "GENERATED_FROM", "SPDXRef-inkling") for file in files]
    document = {"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",
                "name": f"inkling-{VERSION}",
                "documentNamespace": f"https://spdx.org/spdxdocs/inkling-{VERSION}-{digest}",
                "creationInfo": {"created": ISO_DATE, "creators": ["Tool: scripts/package.py"]},
                "packages": [package("inkling", VERSION, ABOUT["license"])] + parts, "files": files,
                "relationships": [{"spdxElementId": a, "relationshipType": kind, "relatedSpdxElement": b}
                                  for a, kind, b in relations]}
    with open(out, "wb") as file:
        file.write(text_of(document))


{"wheel": write_wheel, "zip": write_zip, "image": write_image, "sbom": write_sbom}[sys.argv[1]](*sys.argv[2:])
