"""What is true of rendered manifests: their schema, the restricted profile, the sidecar's own rules."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

from tests.conftest import need

OLDEST, MIDDLE, NEWEST = "1.29", "1.31", "1.37"
POLICIES = ("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding")
OF_OTHERS = ("PodMonitor", "PrometheusRule")
VOLUMES = {
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim",
    "projected", "secret",
}  # fmt: skip

Manifest = dict[str, Any]


def documents(text: str) -> list[Manifest]:
    return [one for one in yaml.safe_load_all(text) if one]


def kind(found: list[Manifest], name: str) -> list[Manifest]:
    return [one for one in found if one["kind"] == name]


def validate(found: list[Manifest], *versions: str) -> None:
    """Every manifest against the strict schema of Kubernetes, in each version that knows it."""
    try:
        import kubernetes_validate
    except ImportError:
        need("kubernetes-validate is not installed: manifests cannot be checked")
    for one in found:
        if one["kind"] in OF_OTHERS:
            continue
        for version in versions:
            if one["kind"] in POLICIES and version != NEWEST:
                continue
            kubernetes_validate.validate(one, version, strict=True)


def pods(found: list[Manifest]) -> Iterator[Manifest]:
    """The spec of every pod that comes of the manifests."""
    for one in found:
        if one["kind"] == "Pod":
            yield one["spec"]
        elif "template" in one.get("spec", {}):
            yield one["spec"]["template"]["spec"]


def sidecar_of(pod: Manifest) -> Manifest:
    every = [*pod.get("initContainers", ()), *pod["containers"]]
    (found,) = [one for one in every if one["name"] == "breaker-sidecar"]
    return found


def restricted(pod: Manifest) -> None:
    """The restricted profile of the Pod Security Standards, rule by rule."""
    assert not pod.get("hostNetwork")
    assert not pod.get("hostPID")
    assert not pod.get("hostIPC")
    for volume in pod.get("volumes", ()):
        assert set(volume) - {"name"} <= VOLUMES, volume
    whole = pod.get("securityContext", {})
    assert "sysctls" not in whole
    assert whole.get("runAsUser") != 0
    for one in [*pod.get("initContainers", ()), *pod["containers"]]:
        own = one.get("securityContext", {})
        assert own.get("allowPrivilegeEscalation") is False, one["name"]
        assert not own.get("privileged")
        assert own["capabilities"]["drop"] == ["ALL"]
        assert set(own["capabilities"].get("add", ())) <= {"NET_BIND_SERVICE"}
        assert own.get("runAsNonRoot", whole.get("runAsNonRoot")) is True
        assert own.get("runAsUser") != 0
        profile = own.get("seccompProfile", whole.get("seccompProfile"))
        assert profile["type"] in {"RuntimeDefault", "Localhost"}
        assert own.get("procMount", "Default") == "Default"
        assert not any("hostPort" in port for port in one.get("ports", ()))


def sidecar_is_sound(pod: Manifest) -> None:
    """What holds for the sidecar in every pod, whichever way it got there."""
    one = sidecar_of(pod)
    native = one in pod.get("initContainers", ())
    if native:
        # First, so that other init containers may call through it; told last, so no waiting hook.
        assert pod["initContainers"][0] is one
        assert one["restartPolicy"] == "Always"
        assert "lifecycle" not in one
    else:
        assert "restartPolicy" not in one
    (port,) = one["ports"]
    for name in ("startupProbe", "livenessProbe", "readinessProbe"):
        # The kubelet dials the pod's address: its loopback is the node's.
        get = one[name]["httpGet"]
        assert "host" not in get
        assert get["port"] == port["name"]
        assert get["path"] in {"/readyz", "/healthz"}
    environ = {item["name"]: item.get("value") for item in one["env"]}
    assert environ["BREAKER_SIDECAR_LISTEN"].startswith("localhost:")
    assert environ["BREAKER_SIDECAR_ADMIN"].startswith("localhost:")
    assert not environ["BREAKER_SIDECAR_PROBE"].startswith(("localhost", "127."))
    assert environ["BREAKER_SIDECAR_PROBE"].endswith(f":{port['containerPort']}")
    for mount in one["volumeMounts"]:
        assert "subPath" not in mount
        # What must survive a restart of the container is all that is written.
        assert mount.get("readOnly") is (None if mount["name"] == "breaker-sidecar-state" else True)
    assert one["securityContext"]["readOnlyRootFilesystem"] is True
    assert one["args"][-2:] == ["--unknown-keys", "warn"]
    assert one["resources"]["limits"]["memory"]
    assert pod["automountServiceAccountToken"] is False
    # Nobody but the sidecar can read its secrets.
    secret = {volume["name"] for volume in pod["volumes"] if "secret" in volume}
    ours = {name for name in secret if name.startswith("breaker-sidecar-")}
    for other in [*pod.get("initContainers", ()), *pod["containers"]]:
        if other is not one:
            assert not ours & {mount["name"] for mount in other.get("volumeMounts", ())}


# -- the language of admission policies -------------------------------------------------------

_TOKENS = re.compile(
    r'"(?:[^"\\]|\\.)*"|(?:Object|JSONPatch)[\w.]*\{|(?<=[{ ])[A-Za-z]\w*: |.', re.DOTALL
)
_TYPES = re.compile(r"\b(Object(?:\.\w+)*)\{")


def mutate(policy: Manifest, pod: Manifest) -> Manifest:
    """A pod as a MutatingAdmissionPolicy leaves it; its expressions are evaluated."""
    try:
        import cel
    except ImportError:
        need("common-expression-language is not installed: policies cannot be evaluated")
    for condition in policy["spec"].get("matchConditions", ()):
        if not cel.evaluate(_untyped(condition["expression"]), {"object": pod}):
            return pod
    for mutation in policy["spec"]["mutations"]:
        expression = mutation["jsonPatch"]["expression"]
        for step in cel.evaluate(_untyped(expression), {"object": pod}):
            pod = _patched(pod, step)
    return pod


def types_in(expression: str) -> set[str]:
    return set(_TYPES.findall(expression))


def _untyped(expression: str) -> str:
    """With plain maps in the place of typed objects, which only an API server knows."""
    parts = []
    for token in _TOKENS.findall(expression):
        if len(token) > 1 and token.endswith("{"):
            parts.append("{")
        elif token.endswith(": ") and token[0].isalpha():
            parts.append(f'"{token[:-2]}": ')
        else:
            parts.append(token)
    return "".join(parts)


def _patched(document: Manifest, step: Manifest) -> Manifest:
    """One operation of a JSON patch."""
    assert step["op"] == "add"
    made: Manifest = yaml.safe_load(yaml.safe_dump(document))
    *parents, last = step["path"].strip("/").split("/")
    place: Any = made
    for name in parents:
        place = place[int(name)] if isinstance(place, list) else place[name]
    if isinstance(place, list):
        place.insert(len(place) if last == "-" else int(last), step["value"])
    else:
        place[last] = step["value"]
    return made
