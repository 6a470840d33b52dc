"""The chart's generated files: schema and README of the values, examples, the kustomize component.

The schema of `config` is that of breakers.yaml itself, from the configuration's one definition;
the README repeats the comments of values.yaml; examples and component are what the chart renders.
`python -m helm.generate [HELM]` writes them all, and a test compares.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from sidecar.config.export import json_schema

HERE = Path(__file__).resolve().parent
CHART = HERE / "breaker-sidecar"
COMPONENT = HERE / "kustomize"
SHIPPED = HERE.parent / "breakers.yaml"

Schema = dict[str, Any]


def plain() -> dict[Path, str]:
    """The files that are written without helm, each with its text."""
    return {
        CHART / "values.schema.json": json.dumps(values_schema(), indent=1, ensure_ascii=False)
        + "\n",
        CHART / "README.md": readme(),
        CHART / "files" / "breakers.yaml": default_config(),
        CHART / "files" / "keys.json": json.dumps(known_keys(), indent=1) + "\n",
        COMPONENT / "breakers.yaml": default_config(),
    } | monitoring()


def monitoring() -> dict[Path, str]:
    """The alerts and the dashboard of `monitoring/`, where the chart can read them."""
    source = HERE.parent / "monitoring"
    return {
        CHART / "files" / name: (source / name).read_text(encoding="utf-8")
        for name in ("rules.yaml", "dashboard.json")
        if (source / name).exists()
    }


def rendered(helm: str) -> dict[Path, str]:
    """The files that helm renders.

    Args:
        helm: the command.
    """
    files = {
        folder / "rendered.yaml": template(helm, folder / "values.yaml")
        for folder in sorted((CHART / "examples").iterdir())
        if (folder / "values.yaml").exists()
    }
    return files | component(helm)


def template(helm: str, values: Path | None = None, *options: str, release: str = "agent") -> str:
    """What `helm template` prints, for the namespace `agents` of a current cluster.

    Raises:
        subprocess.CalledProcessError: if it refuses; `stderr` says why.
    """
    command = [helm, "template", release, str(CHART), "--namespace", "agents"]
    command += ["--kube-version", "1.36.0", "--skip-tests", *options]
    if values is not None:
        command += ["--values", str(values)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - the command is the caller's
    return done.stdout


# -- the default configuration ----------------------------------------------------------------

_LISTENERS = re.compile(r"^listen: .*\nadmin:\n  listen: .*\n", re.MULTILINE)


def default_config() -> str:
    """The shipped breakers.yaml as it may stand in a pod.

    The chart says where the daemon listens, and nobody steers it from within.
    """
    admin = "admin:\n  mutations: false         # the agent shares the loopback of its sidecar\n"
    text, count = _LISTENERS.subn(admin, SHIPPED.read_text(encoding="utf-8"))
    if count != 1:
        raise ValueError("the shipped breakers.yaml no longer begins with its listeners")
    return text


# -- the keys of breakers.yaml ----------------------------------------------------------------


def known_keys() -> Schema:
    """The keys of breakers.yaml where it stands as text, which no schema of values looks into.

    Sections are mappings, `*` stands for any name, `[]` for an item of a list; everything else is
    `null`.
    """
    config = json_schema()

    def below(shape: Schema) -> Schema | None:
        for option in (shape, *shape.get("anyOf", ())):
            if "$ref" in option:
                return below(config["$defs"][option["$ref"].rpartition("/")[2]])
            if option.get("type") == "array" and (item := below(option.get("items", {}))):
                return {"[]": item}
            if "properties" in option:
                return {key: below(value) for key, value in option["properties"].items()}
            more = option.get("additionalProperties")
            if isinstance(more, dict):
                return {"*": below(more)}
        return None

    found = below(config)
    assert found is not None
    return found


# -- the schema -------------------------------------------------------------------------------

_NAME: Schema = {"type": "string", "pattern": "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", "maxLength": 50}
_NAME_OR_NONE: Schema = {"type": "string", "pattern": "^([a-z0-9]([a-z0-9.-]*[a-z0-9])?)?$"}
_PORT: Schema = {"type": "integer", "minimum": 1, "maximum": 65535}
_ANY: Schema = {"type": "object"}
_ANYTHING: Schema = {"type": "array", "items": _ANY}
_TEXTS: Schema = {"type": "array", "items": {"type": "string"}}
_KEY = r"^([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$"
_ANNOTATIONS: Schema = {
    "type": "object",
    "propertyNames": {"pattern": _KEY},
    "additionalProperties": {"type": "string"},
}
_LABELS: Schema = {
    **_ANNOTATIONS,
    "additionalProperties": {
        "type": "string",
        "pattern": "^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$",
    },
}
_SECRET_NAME: Schema = {
    "type": "string",
    "pattern": "^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$",
    "maxLength": 253,
}
_VARIABLE_NAME = "^[A-Za-z_.-][A-Za-z0-9_.-]*$"
_QUANTITIES: Schema = {
    "type": "object",
    "additionalProperties": {
        "type": ["string", "number"],
        "pattern": r"^[0-9]+(\.[0-9]+)?(m|k|[KMGTPE]i?)?$",
        "minimum": 0,
    },
}
_RESOURCES: Schema = {
    "type": "object",
    "properties": {"requests": _QUANTITIES, "limits": _QUANTITIES},
}
# What the restricted profile asks for can be tightened, and not given up.
_RESTRICTED: Schema = {
    "type": "object",
    "properties": {
        "allowPrivilegeEscalation": {"const": False},
        "privileged": {"const": False},
        "readOnlyRootFilesystem": {"const": True},
        "runAsNonRoot": {"const": True},
        "runAsUser": {"type": "integer", "minimum": 1},
        "capabilities": {
            "type": "object",
            "additionalProperties": False,
            "properties": {"drop": {"type": "array", "contains": {"const": "ALL"}}},
        },
    },
}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_COUNT_OR_NONE: Schema = {"type": ["integer", "null"], "minimum": 0}
_FLAG: Schema = {"type": "boolean"}
_TEXT: Schema = {"type": "string"}


_HOST: Schema = {"type": "string", "pattern": r"^[^\s/]+$"}
_INTERVAL: Schema = {"type": "string", "pattern": "^([0-9]+(ms|s|m|h))+$"}
_POSITIVE: Schema = {"type": "integer", "minimum": 1}


def _closed(properties: Schema, *required: str) -> Schema:
    made = {"type": "object", "additionalProperties": False, "properties": properties}
    return {**made, "required": list(required)} if required else made


def _choice(*words: str) -> Schema:
    return {"type": "string", "enum": list(words)}


_IMAGE = _closed(
    {
        "repository": {"type": "string", "pattern": r"^[^\s@]*$"},
        "tag": {"type": "string", "pattern": r"^[A-Za-z0-9_.-]*$"},
        "digest": {"type": "string", "pattern": r"^(sha256:[0-9a-f]{64})?$"},
        "pullPolicy": _choice("Always", "IfNotPresent", "Never"),
    }
)
_PROBE = _closed(
    {
        "periodSeconds": _POSITIVE,
        "failureThreshold": _POSITIVE,
        "timeoutSeconds": _POSITIVE,
        "initialDelaySeconds": _COUNT,
        "successThreshold": {"const": 1},
    }
)
_VARIABLE = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "name": {"type": "string", "pattern": _VARIABLE_NAME},
        "value": _TEXT,
        "valueFrom": _ANY,
    },
    "required": ["name"],
}
_SECRET = _closed({"name": _NAME, "secretName": _SECRET_NAME}, "name", "secretName")
_AGENT = _closed(
    {
        "image": _IMAGE,
        "command": _TEXTS,
        "args": _TEXTS,
        "env": {"type": "array", "items": _VARIABLE},
        "envFrom": _ANYTHING,
        "ports": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"containerPort": _PORT},
                "required": ["containerPort"],
            },
        },
        "resources": _RESOURCES,
        "securityContext": _ANY,
        "volumeMounts": _ANYTHING,
        "lifecycle": _ANY,
        "startupProbe": _ANY,
        "livenessProbe": _ANY,
        "readinessProbe": _ANY,
    }
)
_WORKLOAD = _closed(
    {
        "kind": _choice("none", "Deployment", "Job"),
        "replicas": _COUNT,
        "agent": _AGENT,
        "job": _closed(
            {
                "backoffLimit": _COUNT,
                "restartPolicy": _choice("Never", "OnFailure"),
                "activeDeadlineSeconds": _COUNT_OR_NONE,
                "ttlSecondsAfterFinished": _COUNT_OR_NONE,
            }
        ),
        "imagePullSecrets": _ANYTHING,
        "serviceAccountName": _NAME_OR_NONE,
        "terminationGracePeriodSeconds": _COUNT,
        "podLabels": _LABELS,
        "podAnnotations": _ANNOTATIONS,
        "podSecurityContext": _ANY,
        "initContainers": _ANYTHING,
        "volumes": _ANYTHING,
        "nodeSelector": _LABELS,
        "tolerations": _ANYTHING,
        "affinity": _ANY,
        "topologySpreadConstraints": _ANYTHING,
    }
)


def values_schema() -> Schema:
    """The JSON Schema of the chart's values; `config` is breakers.yaml's own."""
    config = json_schema()
    definitions = config.pop("$defs")
    root = {key: value for key, value in config.items() if key not in ("$schema", "title")}
    properties: Schema = {
        "nameOverride": _NAME_OR_NONE,
        "fullnameOverride": _NAME_OR_NONE,
        "image": _IMAGE,
        "mode": _choice("native", "classic"),
        "config": {
            "type": ["object", "string", "null"],
            "if": {"type": "object"},
            "then": {"$ref": "#/$defs/BreakersYaml"},
        },
        "existingConfigMap": _NAME_OR_NONE,
        "rollOnConfigChange": _FLAG,
        "agentEnv": {
            "type": ["object", "null"],
            "propertyNames": {"pattern": _VARIABLE_NAME},
            "additionalProperties": {"type": "string"},
        },
        "ports": _closed({"listen": _PORT, "admin": _PORT, "probe": _PORT}),
        "env": {"type": "array", "items": _VARIABLE},
        "secrets": {"type": "array", "items": _SECRET},
        "resources": _RESOURCES,
        "securityContext": _RESTRICTED,
        "probes": _closed(
            {
                "host": {"type": "string", "pattern": r"^[^\s/]+$"},
                "startup": _PROBE,
                "liveness": _PROBE,
                "readiness": _PROBE,
            }
        ),
        "preStopSeconds": _COUNT,
        "workload": _WORKLOAD,
        "injection": _closed(
            {
                "enabled": _FLAG,
                "namespaces": {"type": "array", "items": _NAME, "uniqueItems": True},
                "apiVersion": {
                    "type": "string",
                    "pattern": r"^(admissionregistration\.k8s\.io/v1((alpha|beta)\d+)?)?$",
                },
                "containers": {"type": "integer", "minimum": 1, "maximum": 32},
            }
        ),
        "podMonitor": _closed(
            {
                "enabled": _FLAG,
                "labels": _LABELS,
                "interval": _INTERVAL,
            }
        ),
        "prometheusRule": _closed({"enabled": _FLAG, "labels": _LABELS}),
        "dashboard": _closed({"enabled": _FLAG, "labels": _LABELS}),
        "networkPolicy": _closed(
            {
                "enabled": _FLAG,
                "agentPorts": {
                    "type": ["array", "null"],
                    "items": {
                        "anyOf": [
                            _PORT,
                            {"type": "string", "pattern": "^[a-z0-9]([a-z0-9-]{0,13}[a-z0-9])?$"},
                        ]
                    },
                },
                "monitoringNamespace": _LABELS,
                "podLabels": _LABELS,
            }
        ),
        # What helm itself puts there.
        "global": _ANY,
        "enabled": _FLAG,
    }
    for name, value in _defaults().items():
        if isinstance(value, dict):
            properties[name] = _required(properties[name], value)
    for path, text, _ in documented():
        place = properties
        *parents, last = path.split(".")
        for name in parents:
            place = place[name]["properties"]
        place[last] = {"description": text, **place[last]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Values of the chart breaker-sidecar",
        **_closed(properties, *_with_defaults(_defaults())),
        "$defs": {"BreakersYaml": root, **definitions},
    }


def _defaults() -> Schema:
    values: Schema = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    return values


def _with_defaults(values: Schema) -> list[str]:
    return [key for key, value in values.items() if value is not None]


def _required(shape: Schema, values: Schema) -> Schema:
    """A section that was set to `null` takes its defaults with it: that is said by its name."""
    if shape.get("additionalProperties") is not False:
        return shape
    inner = {
        key: _required(below, values[key]) if isinstance(values.get(key), dict) else below
        for key, below in shape["properties"].items()
    }
    return {**shape, "properties": inner, "required": _with_defaults(values)}


# -- the README -------------------------------------------------------------------------------


def documented() -> Iterator[tuple[str, str, Any]]:
    """Every value with a `# --` comment: its path, the comment, its default."""
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    parents: list[tuple[int, str]] = []
    comment = ""
    for line in (CHART / "values.yaml").read_text(encoding="utf-8").splitlines():
        stripped = line.strip()
        if stripped.startswith("# -- "):
            comment = stripped.removeprefix("# -- ")
            continue
        match = re.match(r"^( *)([A-Za-z]+):", line)
        if match is None:
            continue
        indent, name = len(match[1]), match[2]
        parents = [(depth, parent) for depth, parent in parents if depth < indent]
        parents.append((indent, name))
        if comment:
            path = [parent for _, parent in parents]
            value = values
            for key in path:
                value = value[key]
            yield ".".join(path), comment, value
            comment = ""


_HEAD = """\
# breaker-sidecar

<!-- Written by `python -m helm.generate`. Change values.yaml or that script, not this page. -->

A circuit breaker beside every agent, as a sidecar of its pod. It needs Kubernetes 1.29 and no
rights in the cluster. Nothing outside the pod can call it; the kubelet and Prometheus reach one
read-only listener.

## Three ways in

**The chart runs your agent**, as a Deployment or a Job:

```console
helm install my-agent helm/breaker-sidecar --values my-values.yaml
```

```yaml
workload:
  kind: Deployment
  agent:
    image: {repository: registry.example/agent, tag: "1.0"}
config:
  admin: {mutations: false}
  providers:
    openai: {upstream: https://api.openai.com, dialect: openai, env: {OPENAI_BASE_URL: /v1}}
```

**Your chart runs it.** Take this chart as a dependency, and include its templates in your pod. Its
values stand under `breaker-sidecar:` in yours.

```yaml
{{- $sidecar := index .Subcharts "breaker-sidecar" }}
spec:
  initContainers:
    {{- include "breaker-sidecar.container" $sidecar | nindent 4 }}
  containers:
    - name: my-agent
      envFrom:
        {{- include "breaker-sidecar.envFrom" $sidecar | nindent 8 }}
  volumes:
    {{- include "breaker-sidecar.volumes" $sidecar | nindent 4 }}
```

**Nobody's chart is touched.** With `injection.enabled` every new pod with the label
`breaker-sidecar/inject: "true"` gets the sidecar from the API server itself: a
MutatingAdmissionPolicy, no webhook to run, and a pod starts without its sidecar rather than not at
all. It takes Kubernetes 1.36, or an older one with the feature switched on. Or take the
[kustomize component](../kustomize).

## Good to know

* The sidecar starts before the agent and ends after it; a Job is complete when its agent is.
* What the daemon does is said in `config`, which is breakers.yaml as it stands, and in no other
  value. `helm` checks it against the same schema that the daemon reads it with.
* An edit of `config` reaches the running daemon by itself, within about a minute. No pod is
  restarted for it. A bad edit changes nothing; `/status` and the log say what is wrong with it.
* Secrets come by reference. `secrets` mounts them into the sidecar alone; the agent cannot read
  them.
* Every container in a pod can reach the sidecar's loopback. So either `config.admin.mutations` is
  `false`, or `config.admin.token_file` names a file of a secret in `secrets`.
* `config.state_file: /var/lib/breaker-sidecar/state.json` stands in a volume of the pod, so a
  container that is started again knows what it must not forget.
* Readiness never depends on an upstream: an outage takes no agent out of service.
* `helm test` runs a pod with the sidecar in your cluster, from the image to the probes.

## Upgrading

Every change of a value's name or meaning is listed here, with what to do. 0.1.0 is the first.

## Values

| value | default | meaning |
|---|---|---|
"""


def readme() -> str:
    """The chart's README.md."""
    rows = []
    for path, text, value in documented():
        shown = json.dumps(value, ensure_ascii=False)
        meaning = text.replace("|", "\\|")
        rows.append(f"| `{path}` | `{shown}` | {meaning} |\n")
    return _HEAD + "".join(rows)


# -- the kustomize component ------------------------------------------------------------------

_KINDS = ("Deployment", "StatefulSet", "DaemonSet", "Job")


def component(helm: str) -> dict[Path, str]:
    """The patches and the variables of the component, from the chart's own templates."""
    documents = [
        document
        for document in yaml.safe_load_all(
            template(
                helm,
                None,
                *("--set", "workload.kind=Deployment,workload.agent.image.repository=agent"),
                *("--set", "fullnameOverride=breaker-sidecar"),
            )
        )
        if document
    ]
    kinds = {(one["kind"], one["metadata"]["name"]): one for one in documents}
    pod = kinds["Deployment", "breaker-sidecar"]["spec"]["template"]["spec"]
    variables = kinds["ConfigMap", "breaker-sidecar-agent-env"]["data"]
    patch = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "any"},
        "spec": {
            "template": {
                "spec": {"initContainers": pod["initContainers"], "volumes": pod["volumes"]}
            }
        },
    }
    head = "# Written by `python -m helm.generate` from the chart's templates.\n"
    return {
        COMPONENT / "sidecar.yaml": head + yaml.safe_dump(patch, sort_keys=False),
        COMPONENT / "agent.env": head
        + "".join(f"{name}={value}\n" for name, value in sorted(variables.items())),
    }


def main() -> int:
    """Writes every generated file; without helm those that need none."""
    command = sys.argv[1] if len(sys.argv) > 1 else shutil.which("helm")
    _write(plain())
    if command is not None:
        # After the others: helm reads them.
        _write(rendered(command))
    return 0


def _write(files: dict[Path, str]) -> None:
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
