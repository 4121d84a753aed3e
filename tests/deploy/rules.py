"""What a schema does not say of rendered manifests: the Restricted profile of Pod Security, and that
ports, paths, memory and times of different objects fit each other. A rule yields one line per
violation: where, what, and what is wanted.
"""

import json
import re

UNITS = {"": 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}
MAX_SOCKET_PATH = 107  # bytes; sun_path holds 108 with the final zero


def bytes_of(quantity):
    number, unit = re.fullmatch(r"(\d+)(Ki|Mi|Gi|Ti)?", str(quantity)).groups("")
    return int(number) * UNITS[unit]


def pods(documents):
    """(where, pod spec, labels) of everything that makes pods."""
    for document in documents:
        template = document.get("spec", {}).get("template")
        if template:
            where = f"{document['kind']}/{document['metadata']['name']}"
            yield where, template["spec"], template["metadata"].get("labels", {})


def containers(documents):
    """(where, pod spec, container)"""
    for where, spec, _ in pods(documents):
        for kind in ("initContainers", "containers"):
            for container in spec.get(kind, []):
                yield f"{where}/{container['name']}", spec, container


def restricted_profile(documents):
    for where, spec, _ in pods(documents):
        for key in ("hostNetwork", "hostPID", "hostIPC"):
            if spec.get(key):
                yield f"{where}: {key} is not allowed"
        for volume in spec.get("volumes", []):
            kinds = set(volume) - {"name"}
            if not kinds <= {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral",
                             "persistentVolumeClaim", "projected", "secret"}:
                yield f"{where}: volume {volume['name']} is a {kinds}"
        security = spec.get("securityContext", {})
        if security.get("runAsNonRoot") is not True or not security.get("runAsUser"):
            yield f"{where}: runAsNonRoot with a runAsUser is wanted"
        if security.get("seccompProfile", {}).get("type") not in ("RuntimeDefault", "Localhost"):
            yield f"{where}: seccompProfile RuntimeDefault is wanted"
        if spec.get("automountServiceAccountToken") is not False:
            yield f"{where}: automountServiceAccountToken: false is wanted"
    for where, _, container in containers(documents):
        security = container.get("securityContext", {})
        if security.get("allowPrivilegeEscalation") is not False:
            yield f"{where}: allowPrivilegeEscalation: false is wanted"
        if security.get("readOnlyRootFilesystem") is not True:
            yield f"{where}: readOnlyRootFilesystem: true is wanted"
        if security.get("capabilities", {}).get("drop") != ["ALL"]:
            yield f"{where}: capabilities must drop ALL"
        if security.get("privileged") or security.get("capabilities", {}).get("add"):
            yield f"{where}: no privilege may be added"


def images_have_a_version(documents):
    for where, _, container in containers(documents):
        tag = container["image"].rsplit("/", 1)[-1].partition(":")[2]
        if tag in ("", "latest"):
            yield f"{where}: image {container['image']} needs a tag other than latest"


def resources_are_bounded(documents):
    for where, _, container in containers(documents):
        resources = container.get("resources", {})
        if "memory" not in resources.get("limits", {}):
            yield f"{where}: a memory limit is wanted"
        if not {"cpu", "memory"} <= set(resources.get("requests", {})):
            yield f"{where}: requests of cpu and memory are wanted"


def volumes_are_there(documents):
    for where, spec, container in containers(documents):
        names = {volume["name"] for volume in spec.get("volumes", [])}
        for mount in container.get("volumeMounts", []):
            if mount["name"] not in names:
                yield f"{where}: no volume {mount['name']}"
            if "subPath" in mount:
                yield f"{where}: a subPath is not updated with its volume"
    maps = {document["metadata"]["name"] for document in documents
            if document["kind"] == "ConfigMap"}
    for where, spec, _ in pods(documents):
        for volume in spec.get("volumes", []):
            name = volume.get("configMap", {}).get("name")
            if name and name not in maps:
                yield f"{where}: no ConfigMap {name}"


def probes_reach_a_port(documents):
    for where, _, container in containers(documents):
        ports = {port["containerPort"] for port in container.get("ports", [])}
        for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
            port = container.get(kind, {}).get("grpc", {}).get("port")
            if port is not None and port not in ports:
                yield f"{where}: {kind} asks port {port}, the container has {sorted(ports)}"


def ports_of(documents, selector):
    """{port: its name} of all pods that a selector chooses."""
    chosen = [spec for _, spec, labels in pods(documents) if selector.items() <= labels.items()]
    return {port["containerPort"]: port.get("name") for spec in chosen
            for kind in ("initContainers", "containers") for container in spec.get(kind, [])
            for port in container.get("ports", [])}


def services_reach_pods(documents):
    for document in documents:
        if document["kind"] != "Service":
            continue
        where = f"Service/{document['metadata']['name']}"
        ports = ports_of(documents, document["spec"]["selector"])
        for port in document["spec"]["ports"]:
            target = port.get("targetPort", port["port"])
            if target not in ports and target not in ports.values():
                yield f"{where}: no pod of its selector has port {target}"
        if not document["spec"].get("publishNotReadyAddresses"):
            yield f"{where}: publishNotReadyAddresses is wanted, or loaders wait for the trainer"


def policies_open_ports_that_are_there(documents):
    for document in documents:
        if document["kind"] != "NetworkPolicy":
            continue
        where = f"NetworkPolicy/{document['metadata']['name']}"
        ports = ports_of(documents, document["spec"]["podSelector"]["matchLabels"])
        for rule in document["spec"].get("ingress", []):
            if not rule.get("from") or not rule.get("ports"):
                yield f"{where}: a rule without peers or ports opens everything"
            for port in rule.get("ports", []):
                if port["port"] not in ports:
                    yield f"{where}: opens port {port['port']}, the pods have {sorted(ports)}"


def server_configurations(documents):
    """(where, pod spec, container, configuration) of every cpshardd."""
    texts = {document["metadata"]["name"]: document["data"] for document in documents
             if document["kind"] == "ConfigMap"}
    for where, spec, container in containers(documents):
        if container["name"] != "cpshard":
            continue
        for volume in spec["volumes"]:
            data = texts.get(volume.get("configMap", {}).get("name"), {})
            if "cpshardd.json" in data:
                yield where, spec, container, json.loads(data["cpshardd.json"])


def server_fits_its_pod(documents):
    found = list(server_configurations(documents))
    if not found:
        yield "no container named cpshard with a cpshardd.json"
    for where, spec, container, config in found:
        if container.get("restartPolicy") != "Always":
            yield f"{where}: restartPolicy Always makes it a native sidecar"
        ports = {port["containerPort"] for port in container.get("ports", [])}
        tcp = {int(address.rsplit(":", 1)[1]) for address in config["listen"]
               if not address.startswith("unix:")}
        if tcp != ports:
            yield f"{where}: ports {sorted(ports)}, but cpshardd.json listens on {sorted(tcp)}"
        mounts = [mount["mountPath"] for mount in container["volumeMounts"]
                  if not mount.get("readOnly")]
        for address in config["listen"]:
            path = address.removeprefix("unix:")
            if path == address:
                continue
            if len(path) > MAX_SOCKET_PATH:
                yield f"{where}: the socket path {path} is over {MAX_SOCKET_PATH} bytes"
            if not any(path.startswith(mount + "/") for mount in mounts):
                yield f"{where}: no writable volume holds {path}"
            if not any(other is not container and mount["mountPath"] in mounts
                       for other in spec["containers"] for mount in other["volumeMounts"]):
                yield f"{where}: no container shares the volume of {path}"
        limit = bytes_of(container["resources"]["limits"]["memory"])
        if config["pool_bytes"] > limit * 3 // 4:
            yield (f"{where}: pool_bytes {config['pool_bytes']} leaves too little of the memory "
                   f"limit {limit}")
        grace = spec.get("terminationGracePeriodSeconds", 30)
        if config["shutdown_seconds"] + 30 > grace:
            yield (f"{where}: terminationGracePeriodSeconds {grace} is not 30 s more than "
                   f"shutdown_seconds {config['shutdown_seconds']}")


RULES = (restricted_profile, images_have_a_version, resources_are_bounded, volumes_are_there,
         probes_reach_a_port, services_reach_pods, policies_open_ports_that_are_there,
         server_fits_its_pod)


def violations(documents):
    return [line for rule in RULES for line in rule(documents)]
