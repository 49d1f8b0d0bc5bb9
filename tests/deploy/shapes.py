"""What a compose file and the manifests of Kubernetes may hold: the part of their schemas that `deploy/` uses.

Rules
- A field that is not here is refused, and so is a value of another type: a misspelt field would be ignored, or refused,
  by the program that really uses the file, at a worse time.
- What has no default must be there, because something would be wrong without it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct, field

Duration = Annotated[str, Meta(pattern=r"^[1-9]\d*(ms|s|m)$")]
Name = Annotated[str, Meta(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=63)]
Port = Annotated[int, Meta(ge=1, le=65_535)]
Positive = Annotated[int, Meta(ge=1)]
Words = Annotated[list[str], Meta(min_length=1)]


class Compose(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A compose file."""


class Build(Compose):
    context: str
    dockerfile: str
    target: str


class Awaited(Compose):
    condition: Literal["service_started", "service_healthy", "service_completed_successfully"]


class Healthcheck(Compose):
    test: Words
    interval: Duration
    timeout: Duration
    retries: Positive
    start_period: Duration | None = None


class Replicas(Compose):
    replicas: Positive = 1


class ConfigUse(Compose):
    source: str
    target: Annotated[str, Meta(pattern="^/")]


class Attachment(Compose):
    ipv4_address: Annotated[str, Meta(pattern=r"^\d+\.\d+\.\d+\.\d+$")]


class Service(Compose):
    image: Annotated[str, Meta(pattern=r"^[a-z0-9/.-]+:[\w.-]+$")]
    command: Words
    restart: Literal["unless-stopped", "on-failure"]
    build: Build | None = None
    configs: list[ConfigUse] = []
    environment: dict[str, str] = {}
    depends_on: dict[str, Awaited] = {}
    deploy: Replicas = Replicas()
    healthcheck: Healthcheck | None = None
    networks: dict[str, Attachment] = {}
    ports: list[Annotated[str, Meta(pattern=r"^127\.0\.0\.1:\d+(-\d+)?:\d+$")]] = []
    profiles: list[str] = []
    stop_grace_period: Duration | None = None
    volumes: list[Annotated[str, Meta(pattern=r"^[\w-]+:/[\w/-]+$")]] = []
    read_only: bool = False
    tmpfs: list[str] = []
    cap_drop: list[str] = []
    security_opt: list[str] = []


class ConfigFile(Compose):
    file: str


class Subnet(Compose):
    subnet: str


class Addresses(Compose):
    config: list[Subnet]


class Network(Compose):
    ipam: Addresses


class Project(Compose):
    name: Name
    services: dict[Name, Service]
    configs: dict[Name, ConfigFile] = {}
    networks: dict[Name, Network] = {}
    volumes: dict[Name, None] = {}


class Kubernetes(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, rename="camel"):
    """A part of a manifest."""


Labels = dict[Annotated[str, Meta(pattern=r"^([a-z0-9.-]+/)?[A-Za-z0-9._-]+$")], Annotated[str, Meta(max_length=63)]]
Quantity = Annotated[str, Meta(pattern=r"^\d+(m|Ki|Mi|Gi)?$")]


class Metadata(Kubernetes):
    name: Name


class Selector(Kubernetes):
    match_labels: Annotated[Labels, Meta(min_length=1)]


class TemplateMetadata(Kubernetes):
    labels: Labels


class RollingUpdate(Kubernetes):
    max_surge: int
    max_unavailable: int


class Strategy(Kubernetes):
    type: Literal["RollingUpdate"]
    rolling_update: RollingUpdate


class SeccompProfile(Kubernetes):
    type: Literal["RuntimeDefault"]


class PodSecurity(Kubernetes):
    run_as_non_root: bool
    run_as_user: int
    run_as_group: int
    seccomp_profile: SeccompProfile


class Spread(Kubernetes):
    max_skew: Positive
    topology_key: str
    when_unsatisfiable: Literal["ScheduleAnyway", "DoNotSchedule"]
    label_selector: Selector


class Reference(Kubernetes):
    name: Name


class EnvironmentSource(Kubernetes):
    config_map_ref: Reference | None = None
    secret_ref: Reference | None = None


class ContainerPort(Kubernetes):
    name: Name
    container_port: Port
    protocol: Literal["TCP", "UDP"]


class HttpGet(Kubernetes):
    path: str
    port: str


class Probe(Kubernetes):
    http_get: HttpGet
    period_seconds: Positive
    timeout_seconds: Positive
    failure_threshold: Positive


class Exec(Kubernetes):
    command: Words


class Hook(Kubernetes):
    exec: Exec


class Lifecycle(Kubernetes):
    pre_stop: Hook


class Requests(Kubernetes):
    cpu: Quantity
    memory: Quantity


class Limits(Kubernetes):
    memory: Quantity


class Resources(Kubernetes):
    requests: Requests
    limits: Limits


class Capabilities(Kubernetes):
    drop: list[str]


class ContainerSecurity(Kubernetes):
    allow_privilege_escalation: bool
    read_only_root_filesystem: bool
    capabilities: Capabilities


class VolumeMount(Kubernetes):
    name: Name
    mount_path: str


class Container(Kubernetes):
    name: Name
    image: str
    args: Words
    env_from: list[EnvironmentSource]
    ports: list[ContainerPort]
    startup_probe: Probe
    liveness_probe: Probe
    readiness_probe: Probe
    resources: Resources
    security_context: ContainerSecurity
    volume_mounts: list[VolumeMount]
    lifecycle: Lifecycle | None = None


class EmptyDir(Kubernetes):
    size_limit: Quantity


class Volume(Kubernetes):
    name: Name
    empty_dir: EmptyDir


class PodSpec(Kubernetes):
    service_account_name: Name
    automount_service_account_token: bool
    enable_service_links: bool
    termination_grace_period_seconds: Positive
    security_context: PodSecurity
    topology_spread_constraints: list[Spread]
    containers: Annotated[list[Container], Meta(min_length=1)]
    volumes: list[Volume]


class Template(Kubernetes):
    metadata: TemplateMetadata
    spec: PodSpec


class DeploymentSpec(Kubernetes):
    revision_history_limit: int
    selector: Selector
    strategy: Strategy
    template: Template
    replicas: Positive | None = None


class DisruptionSpec(Kubernetes):
    max_unavailable: int
    unhealthy_pod_eviction_policy: Literal["AlwaysAllow", "IfHealthyBudget"]
    selector: Selector


class ServicePort(Kubernetes):
    name: Name
    port: Port
    target_port: str
    protocol: Literal["TCP"]


class ServiceSpec(Kubernetes):
    type: Literal["ClusterIP"]
    selector: Labels
    ports: list[ServicePort]


class Target(Kubernetes):
    api_version: str
    kind: str
    name: Name


class Utilization(Kubernetes):
    type: Literal["Utilization"]
    average_utilization: Annotated[int, Meta(ge=1, le=100)]


class ResourceMetric(Kubernetes):
    name: Literal["cpu", "memory"]
    target: Utilization


class ScalingMetric(Kubernetes):
    type: Literal["Resource"]
    resource: ResourceMetric


class ScalingPolicy(Kubernetes):
    type: Literal["Pods", "Percent"]
    value: Positive
    period_seconds: Annotated[int, Meta(ge=1, le=1800)]


class ScalingRules(Kubernetes):
    stabilization_window_seconds: Annotated[int, Meta(ge=0, le=3600)]
    policies: list[ScalingPolicy]


class ScalingBehavior(Kubernetes):
    scale_down: ScalingRules


class ScalingSpec(Kubernetes):
    scale_target_ref: Target
    min_replicas: Positive
    max_replicas: Positive
    metrics: list[ScalingMetric]
    behavior: ScalingBehavior


class AllowedPort(Kubernetes):
    port: Port | str
    protocol: Literal["TCP", "UDP"]


class Peer(Kubernetes):
    namespace_selector: Selector


class Ingress(Kubernetes):
    ports: list[AllowedPort]
    from_: list[Peer] = field(default_factory=list, name="from")


class Egress(Kubernetes):
    ports: list[AllowedPort]


class PolicySpec(Kubernetes):
    pod_selector: Selector
    policy_types: list[Literal["Ingress", "Egress"]]
    ingress: list[Ingress]
    egress: list[Egress] = []


class Credentials(Kubernetes):
    name: Name
    key: str


class Authorization(Kubernetes):
    type: Literal["Bearer"]
    credentials: Credentials


class MetricsEndpoint(Kubernetes):
    port: str
    path: str
    interval: Duration
    authorization: Authorization


class MonitorSpec(Kubernetes):
    selector: Selector
    pod_metrics_endpoints: list[MetricsEndpoint]


class Manifest(Kubernetes):
    api_version: str
    kind: str
    metadata: Metadata


class Deployment(Manifest):
    spec: DeploymentSpec


class PodDisruptionBudget(Manifest):
    spec: DisruptionSpec


class NetworkPolicy(Manifest):
    spec: PolicySpec


class KubernetesService(Manifest):
    spec: ServiceSpec


class HorizontalPodAutoscaler(Manifest):
    spec: ScalingSpec


class PodMonitor(Manifest):
    spec: MonitorSpec


class ServiceAccount(Manifest):
    automount_service_account_token: bool


class Secret(Manifest):
    type: Literal["Opaque"]
    string_data: dict[str, str]


class Image(Kubernetes):
    name: str
    new_name: str
    new_tag: str


class GeneratedMap(Kubernetes):
    name: Name
    literals: list[str]


class LabelRule(Kubernetes):
    include_templates: bool
    pairs: Labels


class Kustomization(Kubernetes):
    api_version: str
    kind: str
    resources: Annotated[list[str], Meta(min_length=1)]
    images: list[Image] = []
    config_map_generator: list[GeneratedMap] = []
    labels: list[LabelRule] = []


KINDS: dict[tuple[str, str], type[Any]] = {
    ("apps/v1", "Deployment"): Deployment,
    ("policy/v1", "PodDisruptionBudget"): PodDisruptionBudget,
    ("networking.k8s.io/v1", "NetworkPolicy"): NetworkPolicy,
    ("autoscaling/v2", "HorizontalPodAutoscaler"): HorizontalPodAutoscaler,
    ("monitoring.coreos.com/v1", "PodMonitor"): PodMonitor,
    ("v1", "Service"): KubernetesService,
    ("v1", "ServiceAccount"): ServiceAccount,
    ("v1", "Secret"): Secret,
    ("kustomize.config.k8s.io/v1beta1", "Kustomization"): Kustomization,
    ("kustomize.config.k8s.io/v1alpha1", "Component"): Kustomization,
}


def project(raw: Any) -> Project:
    """A compose file, or why it is none."""
    return msgspec.convert(raw, Project)


def manifest(raw: Any) -> Any:
    """A manifest of Kubernetes, or why it is none."""
    return msgspec.convert(raw, KINDS[raw["apiVersion"], raw["kind"]])
