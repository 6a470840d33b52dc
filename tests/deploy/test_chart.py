"""The chart under the real helm: what it renders, what it refuses, and what it says then."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helm import generate
from helm.generate import CHART
from sidecar.config.load import load

from .manifests import (
    MIDDLE,
    NEWEST,
    OLDEST,
    documents,
    kind,
    mutate,
    pods,
    restricted,
    sidecar_is_sound,
    sidecar_of,
    types_in,
    validate,
)

VALUE_FILES = sorted((CHART / "ci").glob("*.yaml"))
EXAMPLES = sorted((CHART / "examples").glob("*/values.yaml"))
AGENT = {"image": {"repository": "agent", "tag": "1"}}
DEPLOYMENT = {"workload": {"kind": "Deployment", "agent": AGENT}}
CONFIG = {
    "admin": {"mutations": False},
    "providers": {"one": {"upstream": "https://one.example", "env": {"ONE_URL": "/v1"}}},
}


class Refused(Exception):
    """helm renders nothing."""


@pytest.fixture(scope="session")
def render(helm, tmp_path_factory):
    """The manifests for some values, the test of the release included."""
    folder = tmp_path_factory.mktemp("values")

    def run(values=None, *options, chart=CHART, kube="1.36.0"):
        file = folder / "values.yaml"
        if isinstance(values, Path):
            file = values
        else:
            file.write_text(json.dumps(values or {}, ensure_ascii=False))
        done = subprocess.run(
            [helm, "template", "agent", str(chart), "--namespace", "agents", "--kube-version", kube,
             "--values", str(file), *options],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise Refused(done.stderr)
        # A warning is a value that did not arrive where it was meant.
        assert "warning" not in done.stderr.lower(), done.stderr
        return documents(done.stdout)

    return run


def pod_of(found):
    """The pod of the workload, not that of the release's test."""
    (pod,) = [one["spec"]["template"]["spec"] for one in found if "template" in one.get("spec", {})]
    return pod


# -- what ships is what is generated ----------------------------------------------------------


@pytest.mark.parametrize("path", sorted(generate.plain()), ids=lambda path: path.name)
def test_the_generated_files_are_up_to_date(path):
    assert path.read_text() == generate.plain()[path], "say: python -m helm.generate"


def test_the_rendered_files_are_up_to_date(helm):
    for path, text in generate.rendered(helm).items():
        assert path.read_text() == text, f"{path}: say: python -m helm.generate"


def test_the_readme_tells_every_value():
    told = {path for path, _, _ in generate.documented()}

    def leaves(value, path):
        if path in told:
            return
        assert isinstance(value, dict), f"{path} has no comment"
        assert value, path
        for key, below in value.items():
            leaves(below, f"{path}.{key}" if path else key)

    leaves(yaml.safe_load((CHART / "values.yaml").read_text()), "")


def test_the_versions_are_those_of_the_package():
    from sidecar import __version__

    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == __version__


@pytest.mark.parametrize("file", [None, *VALUE_FILES, *EXAMPLES], ids=str)
def test_the_chart_passes_the_linter(helm, file):
    command = [helm, "lint", "--strict", "--kube-version", "1.36.0", str(CHART)]
    command += ["--values", str(file)] if file else []
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[WARNING]" not in done.stdout


# -- what it renders --------------------------------------------------------------------------


def test_there_are_enough_value_files():
    assert len(VALUE_FILES) >= 12
    assert len(EXAMPLES) >= 4


@pytest.mark.parametrize(
    "file", [*VALUE_FILES, *EXAMPLES], ids=lambda f: f"{f.parent.name}-{f.stem}"
)
def test_f134_every_value_file_renders_soundly(render, file):
    found = render(file)
    validate(found, OLDEST, MIDDLE, NEWEST)
    every = list(pods(found))
    assert every
    for pod in every:
        restricted(pod)
        sidecar_is_sound(pod)
    names = [
        (one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"]) for one in found
    ]
    assert len(names) == len(set(names))
    for _, _, name in names:
        assert len(name) <= 63


@pytest.mark.parametrize(
    "file", [*VALUE_FILES, *EXAMPLES], ids=lambda f: f"{f.parent.name}-{f.stem}"
)
def test_the_daemon_takes_the_configuration_as_it_stands(render, file, tmp_path):
    """And gives the agent the variables that `breaker-sidecar env` would."""
    values = yaml.safe_load(file.read_text())
    found = render(file)
    maps = {one["metadata"]["name"]: one["data"] for one in kind(found, "ConfigMap")}
    variables = next(data for name, data in maps.items() if name.endswith("-agent-env"))
    if values.get("existingConfigMap"):
        assert not any("breakers.yaml" in data for data in maps.values())
        return
    text = next(data["breakers.yaml"] for data in maps.values() if "breakers.yaml" in data)
    if isinstance(values.get("config"), str):
        assert text.rstrip() == values["config"].rstrip()
    # The secrets of the pod, at another place.
    secrets = tmp_path / "secrets"
    for path in re.findall(r"/run/secrets/([\w./-]+)", text):
        place = secrets / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("secret")
    text = re.sub(r"(?m)^.*\btls: .*$|^\s*tls:\n\s+ca: .*$", "", text) if "ca.pem" in text else text
    config = tmp_path / "breakers.yaml"
    config.write_text(text.replace("/run/secrets/", f"{secrets}/"))
    environ = {
        item["name"]: item.get("value") or "given" for item in sidecar_of(next(pods(found)))["env"]
    }
    loaded = load(config, environ=environ)
    port = environ["BREAKER_SIDECAR_LISTEN"].rpartition(":")[2]
    expected = {
        variable: f"http://localhost:{port}/{name}{path}"
        for name, provider in loaded.providers.items()
        for variable, path in provider.env.items()
    }
    admin = {"BREAKER_SIDECAR_ADMIN": f"http://{environ['BREAKER_SIDECAR_ADMIN']}"}
    assert variables == expected | admin


@pytest.mark.parametrize("mode", ["native", "classic"])
def test_f121_the_configuration_is_a_folder(render, mode):
    pod = pod_of(render({"mode": mode, **DEPLOYMENT}))
    (mount,) = [
        mount
        for mount in sidecar_of(pod)["volumeMounts"]
        if mount["name"] == "breaker-sidecar-config"
    ]
    assert mount == {
        "name": "breaker-sidecar-config", "mountPath": "/etc/breaker-sidecar", "readOnly": True,
    }  # fmt: skip
    assert "subPath" not in json.dumps(pod)


def test_f131_only_a_classic_sidecar_waits(render):
    native = sidecar_of(pod_of(render(DEPLOYMENT)))
    classic = sidecar_of(pod_of(render({"mode": "classic", "preStopSeconds": 7, **DEPLOYMENT})))
    assert "lifecycle" not in native
    command = classic["lifecycle"]["preStop"]["exec"]["command"]
    # By what the image has, which is no shell.
    assert command[0] == "/opt/breaker-sidecar/bin/python"
    assert "sleep(7)" in command[-1]
    without = sidecar_of(pod_of(render({"mode": "classic", "preStopSeconds": 0, **DEPLOYMENT})))
    assert "lifecycle" not in without


def test_f129_the_agent_waits_for_the_startup_probe(render):
    pod = pod_of(render(DEPLOYMENT))
    sidecar = pod["initContainers"][0]
    assert sidecar["name"] == "breaker-sidecar"
    probe = sidecar["startupProbe"]
    assert probe["httpGet"]["path"] == "/readyz"
    assert probe["periodSeconds"] == 1
    assert probe["failureThreshold"] * probe["periodSeconds"] >= 30


def test_f137_an_edit_of_the_configuration_restarts_nobody(render):
    other = {
        **CONFIG,
        "providers": {
            **CONFIG["providers"],
            "two": {"upstream": "https://two.example", "env": {"TWO_URL": ""}},
        },
    }
    before, after = (pod_of(render({"config": config, **DEPLOYMENT})) for config in (CONFIG, other))
    assert before == after
    asked = [
        render({"config": config, "rollOnConfigChange": True, **DEPLOYMENT})
        for config in (CONFIG, other)
    ]
    sums = [
        kind(found, "Deployment")[0]["spec"]["template"]["metadata"]["annotations"][
            "checksum/config"
        ]
        for found in asked
    ]
    assert sums[0] != sums[1]


def test_f135_no_probe_asks_about_upstreams(render):
    for pod in pods(render(DEPLOYMENT)):
        one = sidecar_of(pod)
        assert one["readinessProbe"]["httpGet"]["path"] == "/readyz"
        assert one["livenessProbe"]["httpGet"]["path"] == "/healthz"


def test_f136_the_image_starts_without_a_shell(render):
    for pod in pods(render(DEPLOYMENT)):
        one = sidecar_of(pod)
        assert "command" not in one
        assert one["args"][0] == "serve"


@pytest.mark.parametrize("way", [DEPLOYMENT, {"injection": {"enabled": True}}])
def test_the_state_outlives_the_container(render, way):
    """A container that is started again in its pod finds the file; nothing else is writable."""
    file = "/var/lib/breaker-sidecar/state.json"
    found = render({"config": {**CONFIG, "state_file": file}, **way})
    validate(found, OLDEST, NEWEST)
    spec = {"containers": [{"name": "app", "image": "app"}], "automountServiceAccountToken": False}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "app"}, "spec": spec}
    made = [mutate(policy, pod)["spec"] for policy in kind(found, "MutatingAdmissionPolicy")]
    for one in [*pods(found), *made]:
        sidecar_is_sound(one)
        mounts = {mount["name"]: mount for mount in sidecar_of(one)["volumeMounts"]}
        assert mounts["breaker-sidecar-state"]["mountPath"] == "/var/lib/breaker-sidecar"
        assert {"name": "breaker-sidecar-state", "emptyDir": {}} in one["volumes"]
    without = pod_of(render(DEPLOYMENT))
    assert "breaker-sidecar-state" not in json.dumps(without)


def test_a_secret_of_the_agent_s_own_is_its_own(render):
    values = _deployment(
        OWNED,
        volumes=[{"name": "owned", "secret": {"secretName": "another"}}],
        agent={**AGENT, "envFrom": [{"secretRef": {"name": "keys"}}]},
    )
    sidecar_is_sound(pod_of(render(values)))


def test_what_the_agent_sets_itself_stands_above(render):
    values = {
        "workload": {
            "kind": "Deployment",
            "agent": {**AGENT, "envFrom": [{"secretRef": {"name": "keys"}}]},
        }
    }
    (agent,) = pod_of(render(values))["containers"]
    assert list(agent["envFrom"][0]) == ["configMapRef"]
    assert list(agent["envFrom"][1]) == ["secretRef"]


# -- what it refuses --------------------------------------------------------------------------

OWNED = {"secrets": [{"name": "admin", "secretName": "owned"}]}


def _deployment(values=None, **more):
    return {**(values or {}), "workload": {"kind": "Deployment", "agent": AGENT, **more}}


MISSPELT = [
    ({"imgae": {}}, "imgae"),
    ({"image": {"repositry": "x"}}, "repositry"),
    ({"config": {"providers": {"a": {"upstream": "https://x", "upstraem": 1}}}}, "upstraem"),
    ({"config": {"defaults": {"breaker": {"open_fro": "1s"}}, "providers": {"a": {"upstream": "https://x"}}}}, "open_fro"),
    ({"workload": {"agent": {"comand": []}}}, "comand"),
    ({"probes": {"startup": {"periodSecond": 1}}}, "periodSecond"),
    ({"secrets": [{"name": "a", "secret": "b"}]}, "secret"),
    ({"networkPolicy": {"enabled": True, "ports": [1]}}, "ports"),
    ({"env": [{"name": "A", "vaule": "x"}]}, "vaule"),
    # Text, into which no schema looks.
    ({"config": "admin: {mutations: false}\nlisen: 1\nproviders: {a: {upstream: 'https://x'}}"}, "config.lisen: no such key; there are admin, "),
    ({"config": "admin: {mutations: false}\nproviders: {a: {upstream: 'https://x', breaker: {open_fro: 1s}}}"}, "config.providers.a.breaker.open_fro"),
    ({"config": "admin: {mutations: false}\ndefaults: {rules: [{name: x, wen: {}}]}\nproviders: {a: {upstream: 'https://x'}}"}, "config.defaults.rules[0].wen"),
]  # fmt: skip
MISTYPED = [
    ({"mode": "side"}, "native"),
    ({"ports": {"listen": "7600"}}, "/ports/listen"),
    ({"ports": {"listen": 70000}}, "/ports/listen"),
    ({"workload": {"kind": "StatefulSet"}}, "Deployment"),
    ({"workload": {"replicas": -1}}, "/workload/replicas"),
    ({"image": {"digest": "abc"}}, "/image/digest"),
    ({"secrets": {"a": "b"}}, "/secrets"),
    ({"secrets": [{"name": "Upper", "secretName": "x"}]}, "/secrets/0/name"),
    ({"rollOnConfigChange": "yes"}, "/rollOnConfigChange"),
    ({"config": []}, "/config"),
    ({"config": {"providers": {}}}, "/config/providers"),
    ({"config": {"providers": {"A b": {"upstream": "https://x"}}}}, "'A b' does not match"),
    ({"config": {"providers": {"a": {"upstream": "https://x", "breaker": {"open_for": "soon"}}}}}, "open_for"),
    ({"config": {"providers": {"a": {"upstream": "https://x", "breaker": {"failure_ratio": 2}}}}}, "failure_ratio"),
    ({"config": {"providers": {"a": {"upstream": "https://x", "mode": False}}}}, "mode"),
    ({"injection": {"namespaces": ["a", "a"]}}, "/injection/namespaces"),
    ({"networkPolicy": {"agentPorts": [0]}}, "agentPorts"),
    ({"networkPolicy": {"agentPorts": ["not a port"]}}, "agentPorts"),
    ({"image": None}, "missing property 'image'"),
    ({"workload": {"agent": {"image": None}}}, "missing property 'image'"),
    ({"mode": None}, "missing property 'mode'"),
    ({"resources": {"requests": {"cpu": "lots"}}}, "/resources/requests/cpu"),
    ({"securityContext": {"runAsUser": 0}}, "/securityContext/runAsUser"),
    ({"securityContext": {"runAsNonRoot": False}}, "/securityContext/runAsNonRoot"),
    ({"securityContext": {"privileged": True}}, "/securityContext/privileged"),
    ({"securityContext": {"readOnlyRootFilesystem": False}}, "/securityContext/readOnly"),
    ({"securityContext": {"capabilities": {"add": ["NET_ADMIN"]}}}, "/securityContext/capabilities"),
    ({"probes": {"liveness": {"periodSeconds": 0}}}, "/probes/liveness/periodSeconds"),
    ({"probes": {"host": "no host"}}, "/probes/host"),
    ({"podMonitor": {"interval": "soon"}}, "/podMonitor/interval"),
    ({"secrets": [{"name": "a", "secretName": "Not A Name"}]}, "/secrets/0/secretName"),
    ({"agentEnv": {"no name": "x"}}, "'no name' does not match"),
    ({"workload": {"podLabels": {"team": "night watch"}}}, "/workload/podLabels/team"),
    ({"dashboard": {"labels": {"team": "x" * 64}}}, "/dashboard/labels/team"),
    ({"workload": {"podAnnotations": {"no key": "any text"}}}, "'no key' does not match"),
    ({"config": {"providers": {"a": {"upstream": "https://x", "dialect": "opnai"}}}}, "'openai'"),
    ({"config": {"providers": {"a": {"upstream": "ftp://x"}}}}, "/config/providers/a/upstream"),
    ({"config": {"providers": {"a": {"upstream": "https://x", "env": {"no name": ""}}}}}, "'no name' does not match"),
    ({"config": {"providers": {"a": {"upstream": "https://x", "env": {"X_URL": "v1"}}}}}, "X_URL"),
    ({"config": "hello"}, "a mapping is needed"),
    ({"config": "- a"}, "a mapping is needed"),
    ({"config": "admin: {mutations: false}\nproviders: {a: {upstream: 'ftp://x'}}"}, "config.providers.a.upstream"),
    ({"config": "admin: {mutations: false}\nproviders: {a: }"}, "config.providers.a.upstream"),
]  # fmt: skip
IMPOSSIBLE = [
    ({"config": CONFIG, "existingConfigMap": "mine"}, "keep one of them"),
    ({"existingConfigMap": "mine", "rollOnConfigChange": True}, "rollOnConfigChange"),
    ({"ports": {"admin": 7600}}, "must differ"),
    ({"config": "providers: [\n"}, "no YAML"),
    ({"config": "admin: {mutations: false}\n"}, "config.providers is missing"),
    ({"config": {"providers": CONFIG["providers"]}}, "mutations: false"),
    ({"config": {**CONFIG, "listen": "0.0.0.0:7600"}}, "config.listen"),
    ({"config": {**CONFIG, "listen": ["localhost:1"]}}, "config.listen"),
    ({"config": {**CONFIG, "admin": {"listen": "localhost:1", "mutations": False}}}, "config.admin.listen"),
    ({"config": {**CONFIG, "probe": {"listen": "0.0.0.0:1"}}}, "ports.probe"),
    ({"config": {**CONFIG, "admin": {"token_file": "/run/secrets/admin/token"}}}, "{name: admin, secretName"),
    ({"config": {**CONFIG, "admin": {"token_file": "/etc/token"}}}, "/run/secrets/NAME"),
    ({"config": {**CONFIG, "providers": {"a": {"upstream": "https://x", "set_headers": {"authorization": {"value": "Bearer sk-1"}}}}}}, "no place for a secret"),
    ({"config": {**CONFIG, "providers": {"a": {"upstream": "https://x", "tls": {"ca": "/run/secrets/ca/x"}}}}}, "called ca"),
    ({"secrets": [{"name": "a", "secretName": "x"}, {"name": "a", "secretName": "y"}]}, "same name"),
    ({"workload": {"kind": "Deployment"}}, "your agent's image"),
    ({"mode": "classic", "workload": {"kind": "Job", "agent": AGENT}}, "set `mode: native`"),
    ({"config": CONFIG, "workload": {"kind": "Job", "agent": {**AGENT, "env": [{"name": "ONE_URL", "value": "https://x"}]}}}, "ONE_URL"),
    ({"workload": {"kind": "Job", "agent": {**AGENT, "env": [{"name": "HTTP_PROXY", "value": "http://p"}]}}}, "add NO_PROXY"),
    ({"workload": {"kind": "Deployment", "agent": {**AGENT, "ports": [{"containerPort": 7602}]}}}, "7602 is a port of the sidecar"),
    ({"mode": "classic", "injection": {"enabled": True}}, "native sidecar"),
    ({"existingConfigMap": "x", "injection": {"enabled": True}}, "existingConfigMap"),
    ({"injection": {"enabled": True, "namespaces": ["kube-system"]}}, "namespace of the system"),
    ({"networkPolicy": {"enabled": True}, **DEPLOYMENT}, "networkPolicy.agentPorts"),
    ({"networkPolicy": {"enabled": True, "agentPorts": []}}, "networkPolicy.podLabels"),
    ({"podMonitor": {"enabled": True}}, "podMonitor"),
    ({"env": [{"name": "BREAKER_SIDECAR_LISTEN", "value": "0.0.0.0:7600"}]}, "BREAKER_SIDECAR_LISTEN is set by the chart"),
    ({"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}, "A stands twice"),
    ({"env": [{"name": "A", "value": "1", "valueFrom": {}}, {"name": "B", "value": "1", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]}, "B has both"),
    ({"env": [{"name": "OPENAI_API_KEY", "value": "sk-1"}]}, "OPENAI_API_KEY is a secret by its name"),
    ({"image": {"repository": ""}}, "image.repository is empty"),
    ({"resources": {"requests": {"memory": "256Mi"}}}, "requests.memory is 256Mi, more than resources.limits.memory, which is 128Mi"),
    ({"resources": {"requests": {"cpu": 0.5}, "limits": {"cpu": "100m"}}}, "requests.cpu is 0.5, more than"),
    (_deployment(agent={**AGENT, "resources": {"requests": {"memory": 2000000000}, "limits": {"memory": "1Gi"}}}), "workload.agent.resources.requests.memory"),
    ({"resources": {"requests": {"memory": "8Mi"}, "limits": {"memory": "32M"}}}, "it would be killed at once"),
    ({"probes": {"host": "10.0.0.1"}}, "nobody knows a pod's address before it runs"),
    ({"probes": {"host": "[fd00::1]"}}, "nobody knows a pod's address before it runs"),
    ({"probes": {"host": "127.0.0.1"}}, "the kubelet dials the pod's address"),
    ({"probes": {"host": "[::1]"}}, "the kubelet dials the pod's address"),
    ({"config": {**CONFIG, "state_file": "/tmp/state.json"}}, "/var/lib/breaker-sidecar/state.json"),
    ({"config": {**CONFIG, "state_file": "/var/lib/breaker-sidecar/../x"}}, "/var/lib/breaker-sidecar/state.json"),
    ({"config": {**CONFIG, "providers": {name: {"upstream": "https://x", "env": {"X_URL": ""}} for name in "ab"}}}, "config.providers.b.env.X_URL: a has this variable too"),
    (_deployment(podLabels={"app.kubernetes.io/name": "x"}), "workload.podLabels"),
    (_deployment(volumes=[{"name": "breaker-sidecar-config", "emptyDir": {}}]), "the sidecar's own volumes"),
    (_deployment(initContainers=[{"name": "breaker-sidecar", "image": "x"}]), "choose another name"),
    (_deployment(initContainers=[{"name": "agent", "image": "x"}]), "choose another name"),
    # Who could read the token could steer its own breakers.
    (_deployment(agent={**AGENT, "volumeMounts": [{"name": "breaker-sidecar-secret-admin", "mountPath": "/x"}]}), "of the sidecar alone"),
    (_deployment(OWNED, volumes=[{"name": "x", "secret": {"secretName": "owned"}}]), "reads secret owned"),
    (_deployment(OWNED, volumes=[{"name": "x", "projected": {"sources": [{"secret": {"name": "owned"}}]}}]), "reads secret owned"),
    (_deployment(OWNED, agent={**AGENT, "envFrom": [{"secretRef": {"name": "owned"}}]}), "reads secret owned"),
    (_deployment(OWNED, initContainers=[{"name": "first", "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "owned", "key": "k"}}}]}]), "reads secret owned"),
    (_deployment(terminationGracePeriodSeconds=5), "may take 20 s to end"),
    (_deployment({"mode": "classic", "preStopSeconds": 60}), "may take 80 s to end"),
    (_deployment({"config": {**CONFIG, "drain": {"delay": "1500ms", "timeout": "10m"}}}), "may take 602 s to end"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("values", "said"),
    [*MISSPELT, *MISTYPED, *IMPOSSIBLE],
    ids=lambda value: re.sub(r"\W+", "-", value) if isinstance(value, str) else "",
)
def test_f125_wrong_values_are_refused_with_what_to_change(render, values, said):
    with pytest.raises(Refused) as refused:
        render(values)
    assert said in str(refused.value)


def test_every_mistake_is_told_at_once(render):
    with pytest.raises(Refused) as refused:
        render({"ports": {"admin": 7600}, "workload": {"kind": "Job"}, "mode": "classic"})
    assert str(refused.value).count("\n  - ") == 3


def test_an_older_cluster_is_told_so(render):
    with pytest.raises(Refused, match=r"Kubernetes 1\.36, or 1\.34"):
        render({"injection": {"enabled": True}}, kube="1.33.0")
    with pytest.raises(Refused, match=r"1\.29"):
        render(kube="1.28.0")
    found = render({"injection": {"enabled": True}}, kube="1.34.2")
    (policy,) = kind(found, "MutatingAdmissionPolicy")
    assert policy["apiVersion"] == "admissionregistration.k8s.io/v1beta1"


# -- injection --------------------------------------------------------------------------------

BARE = {"containers": [{"name": "app", "image": "app"}]}
FULL = {
    "initContainers": [{"name": "first", "image": "x"}],
    "volumes": [{"name": "work", "emptyDir": {}}],
    "automountServiceAccountToken": False,
    "containers": [
        {"name": "app", "image": "app", "envFrom": [{"secretRef": {"name": "keys"}}]},
        {"name": "helper", "image": "app"},
    ],
}


@pytest.mark.parametrize("spec", [BARE, FULL], ids=["bare", "full"])
@pytest.mark.parametrize("file", ["injection", "injection-with-secrets"])
def test_the_policy_puts_the_same_sidecar_in(render, spec, file):
    found = render(CHART / "ci" / f"{file}.yaml")
    (policy,) = kind(found, "MutatingAdmissionPolicy")
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "app"}, "spec": spec}
    made = mutate(policy, pod)
    validate([made], OLDEST, NEWEST)
    # The release's own test has it by the templates.
    test = kind(found, "Pod")[0]["spec"]
    assert made["spec"]["initContainers"][0] == test["initContainers"][0]
    assert made["spec"]["volumes"][len(spec.get("volumes", ())) :] == test["volumes"]
    sidecar_is_sound({"automountServiceAccountToken": False, **made["spec"]})
    for container in made["spec"]["containers"]:
        assert list(container["envFrom"][0]) == ["configMapRef"]
    names = {one["metadata"]["name"] for one in kind(found, "ConfigMap")}
    assert made["spec"]["containers"][0]["envFrom"][0]["configMapRef"]["name"] in names
    # What was there stays, and a second time changes nothing.
    for name in ("initContainers", "volumes"):
        for one in spec.get(name, ()):
            assert one in made["spec"][name]
    assert mutate(policy, made) == made


def test_the_policy_cannot_stop_a_pod_and_leaves_the_system_alone(render):
    found = render({"injection": {"enabled": True, "namespaces": ["agents", "research"]}})
    (policy,) = kind(found, "MutatingAdmissionPolicy")
    (binding,) = kind(found, "MutatingAdmissionPolicyBinding")
    assert policy["spec"]["failurePolicy"] == "Ignore"
    where = binding["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"]
    assert {
        "key": "kubernetes.io/metadata.name",
        "operator": "In",
        "values": ["agents", "research"],
    } in where
    assert any(one["operator"] == "NotIn" and "kube-system" in one["values"] for one in where)
    assert binding["spec"]["matchResources"]["objectSelector"] == {
        "matchLabels": {"breaker-sidecar/inject": "true"}
    }
    # Each namespace has what the injected pods mount.
    maps = {
        (one["metadata"]["namespace"], one["metadata"]["name"]) for one in kind(found, "ConfigMap")
    }
    assert {namespace for namespace, _ in maps} == {"agents", "research"}
    # Every object has the type of its place, or the API server refuses it.
    for mutation in policy["spec"]["mutations"]:
        for name in types_in(mutation["jsonPatch"]["expression"]):
            assert name.startswith(
                (
                    "Object.spec.initContainers",
                    "Object.spec.volumes",
                    "Object.spec.containers.envFrom",
                )
            )


# -- a chart that depends on this one ---------------------------------------------------------

PARENT = """
{{- $sidecar := index .Subcharts "breaker-sidecar" }}
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: theirs}
spec:
  serviceName: theirs
  selector: {matchLabels: {app: theirs}}
  template:
    metadata: {labels: {app: theirs}}
    spec:
      automountServiceAccountToken: false
      securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
      initContainers:
        {{- include "breaker-sidecar.container" $sidecar | nindent 8 }}
      containers:
        - name: theirs
          image: theirs
          securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
          envFrom:
            {{- include "breaker-sidecar.envFrom" $sidecar | nindent 12 }}
      volumes:
        {{- include "breaker-sidecar.volumes" $sidecar | nindent 8 }}
"""


def test_another_chart_includes_the_templates(render, tmp_path):
    parent = tmp_path / "theirs"
    (parent / "templates").mkdir(parents=True)
    shutil.copytree(CHART, parent / "charts" / "breaker-sidecar")
    chart = {
        "apiVersion": "v2", "name": "theirs", "version": "1.0.0",
        "dependencies": [{"name": "breaker-sidecar", "version": "0.1.0"}],
    }  # fmt: skip
    (parent / "Chart.yaml").write_text(yaml.safe_dump(chart))
    (parent / "templates" / "theirs.yaml").write_text(PARENT)
    values = {
        "breaker-sidecar": {
            "config": CONFIG,
            "ports": {"listen": 7700},
            "secrets": [{"name": "a", "secretName": "b"}],
        }
    }
    found = render(values, chart=parent)
    validate(found, OLDEST, MIDDLE, NEWEST)
    (theirs,) = kind(found, "StatefulSet")
    pod = theirs["spec"]["template"]["spec"]
    restricted(pod)
    sidecar_is_sound(pod)
    names = {one["metadata"]["name"]: one["data"] for one in kind(found, "ConfigMap")}
    assert pod["volumes"][0]["configMap"]["name"] in names
    source = pod["containers"][0]["envFrom"][0]["configMapRef"]["name"]
    assert names[source]["ONE_URL"] == "http://localhost:7700/one/v1"


def test_alerts_and_dashboard_come_from_the_chart_s_files(render, tmp_path):
    chart = tmp_path / "breaker-sidecar"
    shutil.copytree(CHART, chart)
    rules = "groups:\n  - name: a\n    rules:\n      - {alert: B, expr: c, annotations: {d: '{{ $labels.e }}'}}\n"
    (chart / "files" / "rules.yaml").write_text(rules)
    (chart / "files" / "dashboard.json").write_text('{"title": "{{ x }}"}')
    values = {
        "prometheusRule": {"enabled": True, "labels": {"a": "b"}},
        "dashboard": {"enabled": True},
    }
    found = render(values, chart=chart)
    (rule,) = kind(found, "PrometheusRule")
    assert rule["spec"] == yaml.safe_load(rules)
    (dashboard,) = [
        one for one in kind(found, "ConfigMap") if "breaker-sidecar.json" in one["data"]
    ]
    assert json.loads(dashboard["data"]["breaker-sidecar.json"]) == {"title": "{{ x }}"}
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"


@pytest.mark.parametrize(
    "file", [*VALUE_FILES, *EXAMPLES], ids=lambda f: f"{f.parent.name}-{f.stem}"
)
def test_the_notes_say_what_to_do(helm, file):
    done = subprocess.run(
        [helm, "install", "agent", str(CHART), "--dry-run=client", "--namespace", "agents", "--values", file],
        capture_output=True, text=True, check=False, env={"HOME": "/nonexistent", "KUBECONFIG": "/dev/null"},
    )  # fmt: skip
    if "injection needs" in done.stderr:
        # Without a cluster helm takes itself for one of its own version.
        return
    assert done.returncode == 0, done.stderr
    notes = done.stdout.partition("NOTES:")[2]
    assert "BREAKER_SIDECAR_ADMIN=http://localhost:" in notes
    warned = "[WARNING]" in notes
    values = yaml.safe_load(file.read_text())
    assert warned == (bool(values.get("existingConfigMap")) and "agentEnv" not in values)


# -- the kustomize component ------------------------------------------------------------------


def test_the_component_puts_the_chart_s_sidecar_in(kubectl, render, tmp_path):
    done = subprocess.run(
        [kubectl, "kustomize", "helm/examples/kustomize"],
        cwd=CHART.parents[1], capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = documents(done.stdout)
    validate(found, OLDEST, MIDDLE, NEWEST)
    (pod,) = pods(found)
    restricted(pod)
    sidecar_is_sound(pod)
    own = pod_of(render(DEPLOYMENT))
    assert sidecar_of(pod) == sidecar_of(own)
    names = {one["metadata"]["name"] for one in kind(found, "ConfigMap")}
    assert names == {"breaker-sidecar", "breaker-sidecar-agent-env"}
    assert pod["volumes"][0]["configMap"]["name"] in names


@pytest.mark.parametrize("what", ["StatefulSet", "DaemonSet", "Job", "unlabelled"])
def test_the_component_and_other_workloads(kubectl, tmp_path, what):
    shutil.copytree(generate.COMPONENT, tmp_path / "component")
    (tmp_path / "app").mkdir()
    workload = documents((CHART.parent / "examples/kustomize/agent.yaml").read_text())[0]
    if what == "unlabelled":
        workload["metadata"]["labels"] = {}
    else:
        workload["kind"] = what
    (tmp_path / "app/agent.yaml").write_text(yaml.safe_dump(workload))
    (tmp_path / "app/kustomization.yaml").write_text(
        "resources: [agent.yaml]\ncomponents: [../component]\n"
    )
    done = subprocess.run(
        [kubectl, "kustomize", tmp_path / "app"], capture_output=True, text=True, check=True
    )
    (pod,) = pods(documents(done.stdout))
    if what == "unlabelled":
        assert "initContainers" not in pod
    else:
        sidecar_is_sound(pod)


# -- any values -------------------------------------------------------------------------------

names = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,10}[a-z0-9])?", fullmatch=True)
ports = st.integers(1, 65535)
texts = st.text(st.characters(codec="utf-8", exclude_categories=["C"]), max_size=12)
providers = st.dictionaries(
    names,
    st.fixed_dictionaries(
        {"upstream": names.map(lambda name: f"https://{name}.example")},
        optional={
            "mode": st.sampled_from(["enforce", "observe"]),
            "scope": st.sampled_from(["model", "provider"]),
            "env": st.dictionaries(st.from_regex(r"[A-Z][A-Z_]{0,8}", fullmatch=True), st.sampled_from(["", "/v1"]), max_size=2),
            "breaker": st.fixed_dictionaries({}, optional={"consecutive_failures": st.integers(1, 1_000_000), "failure_ratio": st.floats(0.01, 1), "jitter": st.sampled_from([0, 0.5, 1])}),
        },
    ),
    min_size=1,
    max_size=3,
)  # fmt: skip
some_values = st.fixed_dictionaries(
    {"config": st.fixed_dictionaries({"admin": st.just({"mutations": False}), "providers": providers})},
    optional={
        "mode": st.sampled_from(["native", "classic"]),
        "ports": st.fixed_dictionaries({"listen": ports, "admin": ports, "probe": ports}),
        "preStopSeconds": st.integers(0, 60),
        "nameOverride": names,
        "env": st.lists(st.fixed_dictionaries({"name": st.from_regex(r"[A-Z][A-Z_]{0,8}", fullmatch=True), "value": texts}), max_size=2),
        "secrets": st.lists(st.fixed_dictionaries({"name": names, "secretName": names}), max_size=2),
        "workload": st.fixed_dictionaries(
            {"kind": st.sampled_from(["none", "Deployment", "Job"]), "agent": st.just(AGENT)},
            optional={"podLabels": st.dictionaries(names, names, max_size=2), "podAnnotations": st.dictionaries(names, texts, max_size=2), "terminationGracePeriodSeconds": st.integers(0, 1000)},
        ),
        "injection": st.fixed_dictionaries({"enabled": st.booleans()}),
        "networkPolicy": st.fixed_dictionaries({"enabled": st.booleans(), "agentPorts": st.lists(ports, max_size=2)}),
        "rollOnConfigChange": st.booleans(),
    },
)  # fmt: skip


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(some_values)
def test_any_values_render_soundly_or_are_refused_in_words(render, tmp_path_factory, values):
    try:
        found = render(values)
    except Refused as refused:
        said = str(refused)
    else:
        said = ""
    if said:
        assert "These values do not go together" in said
        return
    validate(found, MIDDLE)
    for pod in pods(found):
        restricted(pod)
        sidecar_is_sound(pod)
    text = next(
        one["data"]["breakers.yaml"]
        for one in kind(found, "ConfigMap")
        if "breakers.yaml" in one["data"]
    )
    assert yaml.safe_load(text) == values["config"]
