"""The stubs of the repository's own `proto/`, generated when this is first imported."""

import sys
import tempfile
from pathlib import Path

import grpc_tools
from grpc_tools import protoc

# Lives as long as the module that holds it.
OUT = tempfile.TemporaryDirectory(prefix="dedupd-stubs-")


def generate():
    proto = Path(__file__).parents[2] / "proto"
    well_known = Path(grpc_tools.__file__).parent / "_proto"
    files = [str(path.relative_to(proto)) for path in sorted(proto.glob("dedupd/v1/*.proto"))]
    arguments = [f"-I{proto}", f"-I{well_known}"]
    arguments += [f"--python_out={OUT.name}", f"--grpc_python_out={OUT.name}"]
    assert files and protoc.main(["protoc", *arguments, *files]) == 0
    sys.path.insert(0, OUT.name)


generate()

from dedupd.v1 import (  # noqa: E402, F401
    dedup_pb2,
    dedup_pb2_grpc,
    event_pb2,
    inspect_pb2,
    inspect_pb2_grpc,
    verdict_pb2,
)
