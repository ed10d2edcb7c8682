import grpc
import pytest

import servers


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("servers")


@pytest.fixture(scope="module")
def redis_server(directory):
    server = servers.Redis(directory)
    yield server
    server.kill()


@pytest.fixture(scope="module")
def dedupd(request, directory, redis_server):
    """With the module's own CONFIG."""
    service = servers.Dedupd(directory, redis_server.url, request.module.CONFIG)
    yield service
    service.process.kill()


@pytest.fixture(scope="module")
def channel(dedupd):
    with grpc.insecure_channel(dedupd.address) as channel:
        yield channel
