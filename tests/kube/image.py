#!/usr/bin/env python3
"""image.py TAG OUT.tar ENTRYPOINT_JSON PATH[:PATH_IN_IMAGE]...

Packs programs, with the shared libraries that they load, and folders into an image archive that
`ctr images import` takes. No base image, no registry; user 65532.
"""

import hashlib
import io
import json
import os
import platform
import re
import subprocess
import sys
import tarfile
from pathlib import Path

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def contents(specs):
    """What stands where: path in the image → path here."""
    found = {}
    for spec in specs:
        source, _, inside = spec.partition(":")
        inside = inside or source
        if Path(source).is_dir():
            for path in Path(source).rglob("*"):
                if path.is_file() and path.suffix != ".pyc":
                    found[f"{inside}/{path.relative_to(source)}"] = str(path)
        else:
            found[inside] = source
    for source in list(found.values()):
        if os.access(source, os.X_OK) or ".so" in source:
            linked = subprocess.run(["ldd", source], capture_output=True, text=True)
            if linked.returncode == 0:
                for library in re.findall(r"(/\S+) \(0x", linked.stdout):
                    found[library] = library
    return found


def layer(files):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for inside, source in sorted(files.items()):
            real = os.path.realpath(source)
            info = archive.gettarinfo(real, arcname=inside.lstrip("/"))
            info.uid = info.gid = 0
            info.mode |= 0o444
            with open(real, "rb") as file:
                archive.addfile(info, file)
    return buffer.getvalue()


def main(tag, out, entrypoint, *specs):
    data = layer(contents(specs))
    config = json.dumps(
        {
            "architecture": ARCHITECTURES[platform.machine()],
            "os": "linux",
            "config": {"Entrypoint": json.loads(entrypoint), "User": "65532:65532"},
            "rootfs": {
                "type": "layers",
                "diff_ids": ["sha256:" + hashlib.sha256(data).hexdigest()],
            },
        }
    ).encode()
    name = hashlib.sha256(config).hexdigest() + ".json"
    manifest = [{"Config": name, "RepoTags": [tag], "Layers": ["layer.tar"]}]
    parts = {name: config, "layer.tar": data, "manifest.json": json.dumps(manifest).encode()}
    with tarfile.open(out, "w") as archive:
        for name, part in parts.items():
            info = tarfile.TarInfo(name)
            info.size = len(part)
            archive.addfile(info, io.BytesIO(part))


if __name__ == "__main__":
    main(*sys.argv[1:])
