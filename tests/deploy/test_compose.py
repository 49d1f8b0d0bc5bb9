"""The compose files: what they are made of exists, and they start what our command line knows."""

from __future__ import annotations

import ipaddress
import re

import pytest

from holdfast.engine.pace import Pace
from holdfast.gateway import health, server
from holdfast.gateway.endpoints import GatewaySettings
from holdfast.stores.redis.net import pubsub
from holdfast.stores.redis.pace import RedisPace
from tests.deploy import settings
from tests.deploy.manifests import DEPLOY, compose, documents
from tests.deploy.shapes import Project, Service, project

SINGLE = project(compose("compose.yaml"))
HIGHLY_AVAILABLE = project(compose("compose.yaml", "compose.ha.yaml"))
PROJECTS = {"single": SINGLE, "highly available": HIGHLY_AVAILABLE}
ROLES = ("gateway", "worker", "scheduler")
PACE = Pace()
# What a stop in order takes if no server replies any more: the work in hand, the requests, the last words to the store.
STOP_SECONDS = sum(
    (
        PACE.grace_seconds,
        PACE.clean_up_seconds,
        server.LAST_SECONDS,
        2 * PACE.last_words_seconds,
        RedisPace().last_words_seconds,
        pubsub.LAST_WORDS_SECONDS,
    )
)

each_project = pytest.mark.parametrize("whole", PROJECTS.values(), ids=PROJECTS)
each_service = pytest.mark.parametrize(
    ("whole", "name", "service"),
    [(whole, name, service) for whole in PROJECTS.values() for name, service in whole.services.items()],
    ids=[f"{title}:{name}" for title, whole in PROJECTS.items() for name in whole.services],
)
each_role = pytest.mark.parametrize(
    ("role", "service"),
    [(role, whole.services[role]) for whole in PROJECTS.values() for role in ROLES],
    ids=[f"{title}:{role}" for title in PROJECTS for role in ROLES],
)


def running(whole: Project) -> dict[str, Service]:
    """The services that `up` starts: no profile is asked for."""
    return {name: service for name, service in whole.services.items() if not service.profiles}


def seconds(duration: str) -> int:
    return int(duration.removesuffix("s"))


@each_role
def test_a_role_is_started_by_a_command_that_exists_and_names_that_role(role, service):
    options = settings.parsed(service.command)
    assert service.command[0] == "serve"
    assert role in str(options["roles"])
    assert options["host"] == "0.0.0.0"


@each_role
def test_a_role_gets_settings_that_are_known_and_accepted(role, service, tmp_path):
    assert set(service.environment) <= settings.VARIABLES
    accepted = settings.accepted(service.environment, tmp_path)
    assert accepted.url == service.environment["HOLDFAST_URL"]


@each_role
def test_a_role_has_longer_to_stop_than_it_takes(role, service):
    assert seconds(service.stop_grace_period) > STOP_SECONDS


@each_role
def test_the_health_of_a_role_is_asked_where_it_listens(role, service):
    [url] = re.findall(r"http://[^\"]+", " ".join(service.healthcheck.test))
    assert url == f"http://127.0.0.1:{settings.parsed(service.command)['port']}/readyz"
    assert "/readyz" in {endpoint.path for endpoint in health.ENDPOINTS}
    assert seconds(service.healthcheck.timeout) > GatewaySettings().store_seconds_max


@each_role
def test_a_role_can_write_nothing_and_gain_nothing(role, service):
    assert service.read_only
    assert service.cap_drop == ["ALL"]
    assert service.security_opt == ["no-new-privileges:true"]


@each_service
def test_what_a_service_is_made_of_exists(whole, name, service):
    assert {use.source for use in service.configs} <= set(whole.configs)
    assert {volume.partition(":")[0] for volume in service.volumes} <= set(whole.volumes)
    assert set(service.networks) <= set(whole.networks)
    assert service.build is None or (DEPLOY / service.build.context / service.build.dockerfile).is_file()
    mounted = {use.target for use in service.configs}
    named = {word for word in service.command if word.startswith("/etc/") or word.endswith(".sh")}
    assert named <= mounted, "the command names a file that is not mounted"


@each_project
def test_what_is_waited_for_is_started_and_can_be_healthy(whole):
    started = running(whole)
    for name, service in started.items():
        for other, awaited in service.depends_on.items():
            assert other in started, f"{name} waits for {other}, which is not started"
            if awaited.condition == "service_healthy":
                assert started[other].healthcheck is not None
            if awaited.condition == "service_completed_successfully":
                assert started[other].restart == "on-failure", f"{other} would never be over"


@each_project
def test_the_files_that_are_mounted_exist_and_none_is_forgotten(whole):
    files = {config.file for config in whole.configs.values()}
    assert all((DEPLOY / file).is_file() for file in files)
    assert {use.source for service in whole.services.values() for use in service.configs} == set(whole.configs)


@each_project
def test_every_volume_belongs_to_one_service(whole):
    used = [volume.partition(":")[0] for service in whole.services.values() for volume in service.volumes]
    assert sorted(used) == sorted(whole.volumes), "two servers on one directory would ruin it"


@each_project
def test_the_roles_are_sent_to_servers_that_are_started(whole):
    started = running(whole)
    for role in ROLES:
        for variable in ("HOLDFAST_URL", "HOLDFAST_BUS"):
            hosts = re.findall(r"(?:://|,)([\w-]+):(\d+)", started[role].environment[variable])
            assert hosts
            assert {host for host, _ in hosts} <= set(started)


def test_the_overlay_changes_only_services_that_are_there_or_that_it_describes():
    [overlay] = documents(DEPLOY / "compose.ha.yaml")
    unknown = {name for name, service in overlay["services"].items() if "image" not in service}
    assert unknown <= set(SINGLE.services)


def test_high_availability_means_more_than_one_of_everything():
    started = running(HIGHLY_AVAILABLE)
    assert {role: started[role].deploy.replicas >= 2 for role in ROLES} == dict.fromkeys(ROLES, True)
    assert "redis" not in started
    assert "nats" not in started
    assert len([name for name in started if re.fullmatch(r"redis-\d", name)]) == 6
    assert len([name for name in started if re.fullmatch(r"nats-\d", name)]) == 3


def test_each_gateway_has_a_port_of_this_machine():
    gateway = HIGHLY_AVAILABLE.services["gateway"]
    [ports] = gateway.ports
    low, high = re.fullmatch(r"127\.0\.0\.1:(\d+)-(\d+):8787", ports).groups()
    assert int(high) - int(low) + 1 == gateway.deploy.replicas


def test_the_cluster_is_made_of_all_nodes_by_addresses_that_stay():
    nodes = {
        f"{service.networks['default'].ipv4_address}:6379"
        for name, service in HIGHLY_AVAILABLE.services.items()
        if re.fullmatch(r"redis-\d", name)
    }
    init = HIGHLY_AVAILABLE.services["redis-init"]
    assert set(init.environment["NODES"].split()) == nodes
    assert len(nodes) == 6
    [subnet] = HIGHLY_AVAILABLE.networks["default"].ipam.config
    assert all(ipaddress.ip_address(node.partition(":")[0]) in ipaddress.ip_network(subnet.subnet) for node in nodes)


def test_each_node_of_nats_has_the_name_by_which_the_others_look_for_it():
    routes = re.findall(r"nats://([\w-]+):6222", (DEPLOY / "nats.cluster.conf").read_text())
    named = {
        name: service.environment["NATS_SERVER_NAME"]
        for name, service in HIGHLY_AVAILABLE.services.items()
        if re.fullmatch(r"nats-\d", name)
    }
    assert named == {route: route for route in routes}
