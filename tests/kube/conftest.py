import pytest

import cluster


@pytest.fixture(scope="session")
def api_server(tmp_path_factory):
    server = cluster.ApiServer(tmp_path_factory.mktemp("api-server"))
    try:
        server.kubectl("apply", "--server-side", "-f", cluster.only("crds-*"))
        yield server
    finally:
        server.stop()
