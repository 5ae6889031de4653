"""The Kubernetes manifests, rendered by kustomize and checked against Kubernetes' own schemas and against the code."""

from __future__ import annotations

import shutil
import subprocess
import tomllib
from typing import Any

import kubernetes_validate
import pytest
import yaml

from common.config import ROOT, resolve

MANIFESTS = ROOT / "deploy" / "targets" / "kubernetes"
OVERLAYS = ("cpu", "nvidia")
VERSIONS = ("1.31", "1.34")  # of Kubernetes
ALONE = {"app.kubernetes.io/name": "shoal"}

Document = dict[str, Any]

pytestmark = pytest.mark.slow  # kubectl is run


def rendered(overlay: str) -> list[Document]:
    """What ``kubectl apply -k`` would send."""
    kubectl = shutil.which("kubectl")
    assert kubectl, "kubectl is needed, of 1.22 or later"
    command = [kubectl, "kustomize", str(MANIFESTS / "overlays" / overlay)]
    reply = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (reply.returncode, reply.stderr) == (0, ""), reply.stderr
    return list(yaml.safe_load_all(reply.stdout))


@pytest.fixture(scope="module", params=OVERLAYS)
def documents(request: pytest.FixtureRequest) -> list[Document]:
    return rendered(request.param)


@pytest.fixture(scope="module")
def nvidia() -> list[Document]:
    return rendered("nvidia")


def of_kind(documents: list[Document], kind: str) -> Document:
    (document,) = (document for document in documents if document["kind"] == kind)
    return document


def pod(documents: list[Document]) -> Document:
    return of_kind(documents, "StatefulSet")["spec"]["template"]


def container(documents: list[Document]) -> Document:
    (one,) = pod(documents)["spec"]["containers"]
    return one


@pytest.mark.parametrize("version", VERSIONS)
def test_every_document_fits_the_schema_of_its_kind(documents: list[Document], version: str) -> None:
    for document in documents:
        if document["apiVersion"] != "monitoring.coreos.com/v1":  # none of Kubernetes' own
            kubernetes_validate.validate(document, version, strict=True)


def test_every_manifest_is_part_of_an_overlay() -> None:
    named = set()
    for path in MANIFESTS.rglob("kustomization.yaml"):
        kustomization = yaml.safe_load(path.read_text())
        files = [*kustomization.get("resources", []), *(patch["path"] for patch in kustomization.get("patches", []))]
        named |= {(path.parent / file).resolve() for file in files}
    written = {path.resolve() for path in MANIFESTS.rglob("*.yaml") if path.name != "kustomization.yaml"}
    assert written <= named


def test_selectors_choose_the_pods_and_nothing_else(documents: list[Document]) -> None:
    assert ALONE.items() <= pod(documents)["metadata"]["labels"].items()
    for document in documents:
        spec = document.get("spec", {})
        if document["kind"] == "Service":
            assert spec["selector"] == ALONE
        elif document["kind"] == "NetworkPolicy":
            assert spec["podSelector"] == {"matchLabels": ALONE}
        elif document["kind"] in ("StatefulSet", "PodDisruptionBudget", "PodMonitor"):
            assert spec["selector"] == {"matchLabels": ALONE}


def test_ports_are_named_as_they_are_referred_to(nvidia: list[Document]) -> None:
    names = {port["name"] for port in container(nvidia)["ports"]}
    services = [document["spec"] for document in nvidia if document["kind"] == "Service"]
    assert {port["targetPort"] for spec in services for port in spec["ports"]} <= names
    (endpoint,) = of_kind(nvidia, "PodMonitor")["spec"]["podMetricsEndpoints"]
    assert endpoint["port"] in names
    assert of_kind(nvidia, "StatefulSet")["spec"]["serviceName"] in {
        document["metadata"]["name"] for document in nvidia if document["kind"] == "Service"
    }


def test_alerts_find_the_pods_under_the_job_they_ask_for(nvidia: list[Document]) -> None:
    job = pod(nvidia)["metadata"]["labels"][of_kind(nvidia, "PodMonitor")["spec"]["jobLabel"]]
    assert f'up{{job="{job}"}}' in (ROOT / "deploy" / "observe" / "prometheus" / "rules" / "alerts.yml").read_text()


def test_paths_that_are_asked_for_are_served(nvidia: list[Document]) -> None:
    health = (ROOT / "gateway" / "api" / "health.py").read_text()
    probes = [container(nvidia)[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "readiness", "liveness")]
    assert probes == ["/livez", "/readyz", "/livez"]
    (endpoint,) = of_kind(nvidia, "PodMonitor")["spec"]["podMetricsEndpoints"]
    for path in (*probes, endpoint["path"]):
        assert f'@routes.get("{path}")' in health


def test_the_autoscaler_watches_a_metric_that_exists_and_this_set(nvidia: list[Document]) -> None:
    spec = of_kind(nvidia, "HorizontalPodAutoscaler")["spec"]
    (metric,) = spec["metrics"]
    assert f'"{metric["pods"]["metric"]["name"]}"' in (ROOT / "scheduler" / "observe" / "metrics.py").read_text()
    target = of_kind(nvidia, "StatefulSet")
    assert spec["scaleTargetRef"] == {
        "apiVersion": target["apiVersion"],
        "kind": target["kind"],
        "name": target["metadata"]["name"],
    }
    assert "replicas" not in target["spec"], "or each apply would undo what the autoscaler did"


def test_a_pod_has_time_to_drain(documents: list[Document]) -> None:
    spec = pod(documents)["spec"]
    (_, pause) = container(documents)["lifecycle"]["preStop"]["exec"]["command"]
    config = resolve()
    drains = config.gateway.drain_timeout + config.scheduler.drain_timeout
    assert spec["terminationGracePeriodSeconds"] > int(pause) + drains


def test_every_directory_that_is_written_is_a_volume(documents: list[Document]) -> None:
    one = container(documents)
    assert one["securityContext"]["readOnlyRootFilesystem"]
    mounts = {mount["mountPath"]: mount["name"] for mount in one["volumeMounts"]}
    assert {"/data", "/run/shoal", "/tmp", "/dev/shm"} <= mounts.keys()
    declared = {volume["name"] for volume in pod(documents)["spec"]["volumes"]}
    claims = of_kind(documents, "StatefulSet")["spec"]["volumeClaimTemplates"]
    assert set(mounts.values()) == declared | {claim["metadata"]["name"] for claim in claims}


def test_one_pod_takes_one_gpu(nvidia: list[Document]) -> None:
    assert container(nvidia)["resources"]["limits"]["nvidia.com/gpu"] == "1"
    resolved = resolve(MANIFESTS / "overlays" / "nvidia" / "shoal.toml")
    mounts = {mount["mountPath"]: mount for mount in container(nvidia)["volumeMounts"]}
    assert mounts[resolved.model.dir]["readOnly"]


def test_configurations_are_valid_and_those_of_the_preset() -> None:
    for overlay in OVERLAYS:
        resolve(MANIFESTS / "overlays" / overlay / "shoal.toml")
    preset = tomllib.loads((ROOT / "deploy" / "presets" / "h200.toml").read_text())
    nvidia = tomllib.loads((MANIFESTS / "overlays" / "nvidia" / "shoal.toml").read_text())
    for section, key in (("ar_worker", "slots"), ("ar_worker", "pages"), ("vocoder_worker", "slots")):
        assert nvidia[section][key] == preset[section][key]
