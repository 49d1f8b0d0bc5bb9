"""The Dockerfile: what it copies exists, what it installs is pinned and an extra of ours, and it is not root."""

from __future__ import annotations

import json
import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.deploy import settings
from tests.deploy.manifests import DEPLOY
from tests.deploy.test_compose import SINGLE
from tests.deploy.test_kubernetes import DEPLOYMENTS

ROOT = DEPLOY.parent
LINES = re.sub(r"\\\n\s*", "", (DEPLOY / "Dockerfile").read_text()).splitlines()


def instructions(word: str) -> list[str]:
    return [line.removeprefix(word).strip() for line in LINES if line.startswith(f"{word} ")]


@pytest.mark.parametrize("copied", [each for each in instructions("COPY") if not each.startswith("--from")])
def test_what_is_copied_exists_and_is_sent_to_the_builder(copied):
    sent = [line[1:] for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines() if line.startswith("!")]
    *sources, _ = copied.split()
    for source in sources:
        assert (ROOT / source).exists()
        assert any(fnmatch(source, pattern) for pattern in sent)


def test_the_stages_build_on_each_other_and_the_one_that_is_built_exists():
    stages = [re.fullmatch(r"(\S+) AS (\S+)", line).groups() for line in instructions("FROM")]
    names = [name for _, name in stages]
    assert {parent for parent, _ in stages} - set(names) == {"python:3.13-slim"}
    assert SINGLE.services["gateway"].build.target in names


def test_only_extras_of_ours_are_installed_and_their_versions_are_pinned():
    [install] = [line for line in instructions("RUN") if "pip install" in line]
    extras = re.search(r"\[(.+)\]", install)[1].split(",")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(extras) <= set(project["optional-dependencies"])
    assert "--constraint constraints.txt" in install
    pinned = {
        re.split("[=<>]", line)[0].lower().replace("_", "-") for line in (ROOT / "constraints.txt").read_text().split()
    }
    needed = {
        re.split(r"[=<>;\[ ]", requirement)[0].lower().replace("_", "-")
        for requirement in [
            *project["dependencies"],
            *(each for extra in extras for each in project["optional-dependencies"][extra]),
        ]
    }
    assert needed - pinned - {"holdfast"} == set()


def test_it_runs_as_the_user_that_the_pods_run_as():
    [user] = instructions("USER")
    for deployment in DEPLOYMENTS.values():
        security = deployment.spec.template.spec.security_context
        assert user == f"{security.run_as_user}:{security.run_as_group}"


def test_it_starts_a_command_that_exists_with_settings_that_exist():
    [entry], [command] = instructions("ENTRYPOINT"), instructions("CMD")
    assert json.loads(entry) == ["holdfast"]
    assert settings.parsed(json.loads(command))["port"] == int(instructions("EXPOSE")[0])
    variables = {name for line in instructions("ENV") for name in re.findall(r"(HOLDFAST_\w+)=", line)}
    assert variables
    assert variables <= settings.VARIABLES


def test_the_example_has_a_pack():
    [packs] = [re.search(r"HOLDFAST_PACKS=(\S+)", line)[1] for line in instructions("ENV") if "PACKS" in line]
    assert Path(ROOT, *packs.split(".")).with_suffix(".py").is_file()
