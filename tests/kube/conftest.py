import os
import shutil

import pytest

import cluster
import workloads


@pytest.fixture(scope="session")
def api_server(tmp_path_factory):
    server = cluster.ApiServer(tmp_path_factory.mktemp("api-server"))
    try:
        server.wait_ready()
        server.kubectl("apply", "--server-side", "-f", os.environ["DEDUPD_TEST_CRDS"])
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def node(tmp_path_factory):
    directory = tmp_path_factory.mktemp("node")
    node = cluster.Node(directory)
    try:
        node.up()
        stripped = directory / "dedupd"
        cluster.run(["strip", "-o", stripped, cluster.servers.DEDUPD])
        image = f"{workloads.DEDUPD_REPOSITORY}:test"
        path = "/usr/local/bin/dedupd"  # as in the Dockerfile
        node.load_image(image, [path], f"{stripped}:{path}")
        grpcurl, busybox = os.environ["DEDUPD_TEST_GRPCURL"], shutil.which("busybox")
        specs = [f"{grpcurl}:/bin/grpcurl", f"{busybox}:/bin/busybox", f"{busybox}:/bin/sh"]
        node.load_image(workloads.APP_IMAGE, ["/bin/sh"], *specs)
        redis = shutil.which("redis-server")
        node.load_image(workloads.REDIS_IMAGE, ["/bin/redis-server"], f"{redis}:/bin/redis-server")
        node.make_namespace("data")
        node.apply(*workloads.redis("data", node.REDIS_ADDRESS))
        node.kubectl("rollout", "status", "-n", "data", "deployment/redis", "--timeout=60s")
        yield node
    finally:
        node.down()
