"""The manifests for Kubernetes: each is one, they fit each other, and they ask for what Holdfast has."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.gateway import health
from holdfast.gateway.endpoints import GatewaySettings
from tests.deploy import settings
from tests.deploy.manifests import DEPLOY, documents
from tests.deploy.shapes import Deployment, Kubernetes, Kustomization, manifest
from tests.deploy.test_compose import ROLES, STOP_SECONDS

BASE = DEPLOY / "k8s"
FILES = sorted(BASE.rglob("*.yaml"))
ALL: list[Kubernetes] = [manifest(raw) for path in FILES for raw in documents(path)]
DEPLOYMENTS = {each.metadata.name: each for each in ALL if isinstance(each, Deployment)}
ENDPOINTS = {endpoint.path: endpoint for endpoint in health.ENDPOINTS}

each_deployment = pytest.mark.parametrize("deployment", DEPLOYMENTS.values(), ids=DEPLOYMENTS)


def of(kind: str) -> list[Any]:
    return [each for each in ALL if each.kind == kind]


def labels(deployment: Deployment) -> dict[str, str]:
    return deployment.spec.template.metadata.labels


def chosen(selector: dict[str, str]) -> set[str]:
    """The deployments whose pods a selector selects."""
    return {name for name, each in DEPLOYMENTS.items() if selector.items() <= labels(each).items()}


def only(deployment: Deployment) -> Any:
    [container] = deployment.spec.template.spec.containers
    return container


def test_there_is_a_deployment_for_each_role():
    assert set(DEPLOYMENTS) == {f"holdfast-{role}" for role in ROLES}


def test_every_file_is_applied_but_the_example_of_a_secret():
    for path in FILES:
        if path.name == "kustomization.yaml":
            [kustomization] = [manifest(raw) for raw in documents(path)]
            others = {file.name for file in path.parent.glob("*.yaml")} - {path.name, "secret.example.yaml"}
            assert set(kustomization.resources) == others


def test_nothing_is_tied_to_a_namespace():
    for path in FILES:
        assert all("namespace" not in raw.get("metadata", {}) for raw in documents(path))


@each_deployment
def test_a_role_is_started_by_a_command_that_exists_and_names_that_role(deployment):
    options = settings.parsed(only(deployment).args)
    assert only(deployment).args[0] == "serve"
    assert labels(deployment)["app.kubernetes.io/component"] in str(options["roles"])
    assert options["host"] == "0.0.0.0"
    assert options["port"] == only(deployment).ports[0].container_port


@each_deployment
def test_a_deployment_selects_its_own_pods_and_no_others(deployment):
    assert chosen(deployment.spec.selector.match_labels) == {deployment.metadata.name}
    for spread in deployment.spec.template.spec.topology_spread_constraints:
        assert chosen(spread.label_selector.match_labels) == {deployment.metadata.name}


@each_deployment
def test_there_are_at_least_two_of_each_and_one_at_a_time_may_be_taken_away(deployment):
    name = deployment.metadata.name
    scaled = [each.spec for each in of("HorizontalPodAutoscaler") if each.spec.scale_target_ref.name == name]
    assert (scaled[0].min_replicas if scaled else deployment.spec.replicas) >= 2
    assert not (scaled and deployment.spec.replicas), "each apply would undo what the autoscaler did"
    [budget] = [each.spec for each in of("PodDisruptionBudget") if chosen(each.spec.selector.match_labels) == {name}]
    assert budget.max_unavailable == 1
    assert deployment.spec.strategy.rolling_update.max_unavailable == 0


@each_deployment
def test_probes_ask_endpoints_that_exist_and_need_no_key(deployment):
    container = only(deployment)
    for probe in (container.startup_probe, container.liveness_probe, container.readiness_probe):
        assert ENDPOINTS[probe.http_get.path].scope is None
        assert probe.http_get.port in {port.name for port in container.ports}
    assert container.liveness_probe.http_get.path == "/livez", "a store in trouble is no reason to restart a process"
    assert container.readiness_probe.http_get.path == "/readyz"
    assert container.readiness_probe.timeout_seconds > GatewaySettings().store_seconds_max


@each_deployment
def test_a_pod_has_longer_to_stop_than_it_takes(deployment):
    lifecycle = only(deployment).lifecycle
    pause = 0 if lifecycle is None else int(lifecycle.pre_stop.exec.command[1])
    assert deployment.spec.template.spec.termination_grace_period_seconds > pause + STOP_SECONDS


def test_a_gateway_pauses_before_it_refuses_connections():
    command = only(DEPLOYMENTS["holdfast-gateway"]).lifecycle.pre_stop.exec.command
    assert command == ["sleep", "5"]


@each_deployment
def test_a_pod_can_write_nothing_and_gain_nothing(deployment):
    pod, container = deployment.spec.template.spec, only(deployment)
    assert pod.security_context.run_as_non_root
    assert pod.security_context.run_as_user > 0
    assert not pod.automount_service_account_token
    assert not container.security_context.allow_privilege_escalation
    assert container.security_context.read_only_root_filesystem
    assert container.security_context.capabilities.drop == ["ALL"]
    assert {mount.name for mount in container.volume_mounts} == {volume.name for volume in pod.volumes}


def test_the_account_of_the_pods_exists_and_has_no_token():
    accounts = {each.metadata.name: each for each in of("ServiceAccount")}
    assert {each.spec.template.spec.service_account_name for each in DEPLOYMENTS.values()} == set(accounts)
    assert not any(account.automount_service_account_token for account in accounts.values())


@each_deployment
def test_kubernetes_adds_no_variables_that_we_would_take_for_settings(deployment):
    assert not deployment.spec.template.spec.enable_service_links  # HOLDFAST_PORT=tcp://...


@each_deployment
def test_the_settings_come_from_a_map_and_a_secret_that_exist(deployment):
    [kustomization] = of("Kustomization")
    sources = only(deployment).env_from
    maps = {source.config_map_ref.name for source in sources if source.config_map_ref}
    secrets = {source.secret_ref.name for source in sources if source.secret_ref}
    assert maps == {generated.name for generated in kustomization.config_map_generator}
    assert secrets == {secret.metadata.name for secret in of("Secret")}


def test_the_settings_are_known_and_accepted(tmp_path):
    [kustomization], [secret] = of("Kustomization"), of("Secret")
    [generated] = kustomization.config_map_generator
    environment = dict(literal.split("=", 1) for literal in generated.literals) | secret.string_data
    assert set(environment) <= settings.VARIABLES
    assert settings.accepted(environment, tmp_path).url == secret.string_data["HOLDFAST_URL"]


def test_the_image_is_one_that_the_kustomization_names():
    [kustomization] = of("Kustomization")
    assert isinstance(kustomization, Kustomization)
    assert {only(each).image for each in DEPLOYMENTS.values()} == {image.name for image in kustomization.images}


def test_the_service_leads_to_the_gateways_and_to_nobody_else():
    [service] = of("Service")
    assert chosen(service.spec.selector) == {"holdfast-gateway"}
    names = {port.name for port in only(DEPLOYMENTS["holdfast-gateway"]).ports}
    assert {port.target_port for port in service.spec.ports} <= names


def test_every_deployment_has_a_network_policy_of_its_own():
    policies = [chosen(policy.spec.pod_selector.match_labels) for policy in of("NetworkPolicy")]
    assert sorted(policies, key=str) == sorted(({name} for name in DEPLOYMENTS), key=str)


def test_the_store_and_the_bus_can_be_reached_where_traffic_out_is_narrowed():
    for policy in of("NetworkPolicy"):
        if "Egress" in policy.spec.policy_types:
            open_ports = {(port.port, port.protocol) for rule in policy.spec.egress for port in rule.ports}
            assert {(53, "UDP"), (6379, "TCP"), (26379, "TCP"), (4222, "TCP")} <= open_ports


def test_metrics_are_read_from_every_role_where_they_are_served():
    [monitor] = of("PodMonitor")
    [endpoint] = monitor.spec.pod_metrics_endpoints
    assert chosen(monitor.spec.selector.match_labels) == set(DEPLOYMENTS)
    assert endpoint.path in ENDPOINTS
    for deployment in DEPLOYMENTS.values():
        assert endpoint.port in {port.name for port in only(deployment).ports}
