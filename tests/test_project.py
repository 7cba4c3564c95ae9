"""Tests that release files agree with the package: recipe, workflows, wheel, citation."""

import hashlib
import json
import re
import tarfile
import tomllib
import zipfile
from pathlib import Path
from runpy import run_path

import pytest

from partwise import __version__

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def text(name):
    return (ROOT / name).read_text("utf-8")


def test_the_conda_recipe_asks_for_what_pip_installs():
    recipe = text("conda/recipe.yaml")
    run = recipe.split("  run:\n")[1].split("\n\n")[0]
    asked = {tuple(line.removeprefix("    - ").split(" ", 1)) for line in run.splitlines()}
    names = {"matplotlib": "matplotlib-base"}  # matplotlib-base has no graphical windows
    wanted = {("python", ">=${{ python_min }}")}
    assert f'python_min: "{PROJECT["requires-python"].removeprefix(">=")}"' in recipe
    for need in PROJECT["dependencies"]:
        name, lowest = re.fullmatch(r"([\w-]+)(>=[\d.]+)", need).groups()
        wanted.add((names.get(name, name), lowest))
    assert asked == wanted
    assert f'version: "{__version__}"' in recipe
    assert f"version: {__version__}" in text("CITATION.cff")


def test_the_workflow_runs_every_python_that_is_promised():
    listed = re.search(r"python: \[(.*)\]", text(".github/workflows/tests.yml"))[1]
    promised = [c.rsplit(" ", 1)[1] for c in PROJECT["classifiers"] if ":: 3." in c]
    assert promised and {f'"{version}"' for version in promised} == set(listed.split(", "))


def test_publishing_runs_the_tests_and_needs_no_secret():
    workflow = text(".github/workflows/publish.yml")
    assert "uses: ./.github/workflows/tests.yml" in workflow and "needs: test" in workflow
    assert "workflow_call" in text(".github/workflows/tests.yml")
    assert "id-token: write" in workflow and "secrets." not in workflow


def test_the_recipe_for_conda_forge_gets_the_checksum_of_the_sdist(tmp_path):
    fill = run_path(str(ROOT / "conda/fill_recipe.py"))["filled"]
    sdist = tmp_path / f"partwise-{__version__}.tar.gz"
    sdist.write_bytes(b"an archive")
    checksum = hashlib.sha256(b"an archive").hexdigest()
    assert f'sha256: "{checksum}"' in fill(text("conda/recipe.yaml"), sdist)
    with pytest.raises(SystemExit, match=r"9\.9\.9"):
        fill(text("conda/recipe.yaml"), tmp_path / "partwise-9.9.9.tar.gz")


def test_the_archive_on_zenodo_has_the_title_of_the_citation():
    zenodo = json.loads(text(".zenodo.json"))
    assert f'title: "{zenodo["title"]}"' in text("CITATION.cff")
    assert zenodo["license"] == PROJECT["license"]


def test_the_entry_for_scverse_repeats_the_project():
    entry = dict(re.findall(r"^(\w+): (.+)$", text("scverse/meta.yaml"), re.M))
    assert entry["project_home"] == PROJECT["urls"]["Source"]
    assert entry["documentation_home"].startswith(PROJECT["urls"]["Documentation"])
    assert entry["license"] == PROJECT["license"]


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    """Return the file names of a wheel and an sdist, and the description for the package index."""
    sdist = pytest.importorskip("hatchling.builders.sdist", reason="hatchling is not installed")
    from hatchling.builders.wheel import WheelBuilder

    folder = str(tmp_path_factory.mktemp("dist"))
    with zipfile.ZipFile(next(WheelBuilder(str(ROOT)).build(directory=folder))) as wheel:
        inside = wheel.namelist()
        page = wheel.read(f"partwise-{__version__}.dist-info/METADATA").decode()
    with tarfile.open(next(sdist.SdistBuilder(str(ROOT)).build(directory=folder))) as archive:
        return inside, [name.split("/", 1)[1] for name in archive.getnames()], page


def test_a_wheel_has_the_package_alone(release):
    wheel, sdist, _ = release
    assert {name.split("/")[0] for name in wheel} == {
        "partwise",
        f"partwise-{__version__}.dist-info",
    }
    assert {"partwise/py.typed", "partwise/apps/studio/page/studio.js"} <= set(wheel)
    data = (".npz", ".npy", ".mat", ".h5ad", ".parquet", ".mtx", ".pyc", ".nbi", ".nbc")
    assert not [name for name in (*wheel, *sdist) if name.endswith(data)]
    assert {"pyproject.toml", "README.md", "LICENSE", "tests/test_project.py"} <= set(sdist)


def test_links_of_readme_lead_somewhere_from_a_package_index(release):
    own = set(re.findall(r"\]\(([^)\s]+)\)", text("README.md")))
    shown = set(re.findall(r"\]\(([^)\s]+)\)", release[2]))
    assert all(link.startswith(("#", "https://")) for link in shown)
    inside = {link for link in own if not link.startswith(("#", "https://"))}
    assert inside and all(any(link.endswith(f"/main/{name}") for link in shown) for name in inside)
    assert "Description-Content-Type: text/markdown" in release[2]


def test_the_tool_for_mutants_names_modules_and_tests_that_exist():
    listed = run_path(str(ROOT / "tests" / "mutate.py"))["TESTS"]
    modules = [ROOT.joinpath("src", *name.split(".")).with_suffix(".py") for name in listed]
    assert [str(path) for path in modules if not path.exists()] == []
    known = {path.stem for path in (ROOT / "tests").rglob("test_*.py")}
    assert {name for names in listed.values() for name in names} <= known
