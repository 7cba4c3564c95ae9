"""Fixtures of the studio tests: a prepared project, and a client of its server."""

import shutil

import pytest

from studio_inputs import HERE, HOST, made
from studio_person import open_browser


@pytest.fixture(scope="session")
def browser():
    opened = open_browser()
    yield opened
    opened.quit()


@pytest.fixture
def samples():
    return made()[0]


@pytest.fixture(scope="session")
def kept(tmp_path_factory):
    """Return a stored project with part weights and a map, so that the studio opens immediately."""
    from partwise.apps.studio.workspace import Workspace

    folder = tmp_path_factory.mktemp("studio") / "project"
    workspace = Workspace(made()[0], folder)
    workspace.prepare()
    workspace.close()
    return folder


@pytest.fixture
def workspace(samples, kept, tmp_path):
    from partwise.apps.studio.workspace import Workspace

    shutil.copytree(kept, tmp_path / "project")
    workspace = Workspace(samples, tmp_path / "project")
    workspace.prepare()
    yield workspace
    workspace.close()


@pytest.fixture
def client(workspace):
    from starlette.testclient import TestClient

    from partwise.apps.studio.access import Guard
    from partwise.apps.studio.app import make_app

    guard = Guard(make_app(workspace), {HOST})
    client = TestClient(guard, base_url=f"http://{HOST}", headers=HERE)
    client.get(f"/?token={guard.new_token()}")
    return client
