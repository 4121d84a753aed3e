"""What the rules read out of rendered documents."""

import json
import re

UNITS = {"": 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}
SERVER = "cpshard"                                # the name of its container
CONFIGURATION = ("/etc/cpshard", "cpshardd.json")  # where the image's command looks for it

# What cpshardd takes where its file is silent, of the keys that rules read.
DEFAULTS = {"listen": ["127.0.0.1:7070"], "socket_mode": 0o660, "shutdown_seconds": 30,
            "pool_bytes": 8 << 30, "executor": "auto", "cuda_device": 0, "pinned_bytes": 1 << 30}


def bytes_of(quantity):
    number, unit = re.fullmatch(r"(\d+)(Ki|Mi|Gi|Ti)?", str(quantity)).groups("")
    return int(number) * UNITS[unit]


def of_kind(documents, kind):
    """(where, document) of every object of a kind."""
    for document in documents:
        if document["kind"] == kind:
            yield f"{kind}/{document['metadata']['name']}", document


def pods(documents):
    """(where, pod spec, labels) of everything that makes pods."""
    for document in documents:
        template = document.get("spec", {}).get("template")
        if template:
            where = f"{document['kind']}/{document['metadata']['name']}"
            yield where, template["spec"], template["metadata"].get("labels", {})


def containers_of(spec):
    return spec.get("initContainers", []) + spec.get("containers", [])


def containers(documents):
    """(where, pod spec, container)"""
    for where, spec, _ in pods(documents):
        for container in containers_of(spec):
            yield f"{where}/{container['name']}", spec, container


def chosen(selector, labels):
    """Whether an object of these labels is one of a selector's."""
    return selector.get("matchLabels", {}).items() <= labels.items()


def ports_of(spec):
    """{port: its name} of a pod."""
    return {port["containerPort"]: port.get("name") for container in containers_of(spec)
            for port in container.get("ports", [])}


def place_of(container, path):
    """(volume, path in it) of what a container calls path; None: it lies on no volume."""
    mounts = [mount for mount in container.get("volumeMounts", [])
              if path.startswith(mount["mountPath"] + "/")]
    if not mounts:
        return None
    mount = max(mounts, key=lambda mount: len(mount["mountPath"]))
    return mount["name"], path.removeprefix(mount["mountPath"])


def servers(documents):
    """(where, pod spec, container, configuration) of every cpshardd."""
    texts = {document["metadata"]["name"]: document["data"]
             for _, document in of_kind(documents, "ConfigMap")}
    folder, file = CONFIGURATION
    for where, spec, container in containers(documents):
        if container["name"] != SERVER:
            continue
        mounted = {mount["name"] for mount in container.get("volumeMounts", [])
                   if mount["mountPath"] == folder}
        for volume in spec.get("volumes", []):
            data = texts.get(volume.get("configMap", {}).get("name"), {})
            if volume["name"] in mounted and file in data:
                yield where, spec, container, DEFAULTS | json.loads(data[file])


def sockets(config):
    """The paths that a server listens on."""
    return [address.removeprefix("unix:") for address in config["listen"]
            if address.startswith("unix:")]


def tcp(config):
    """[(host, port)] that a server listens on."""
    split = [address.rpartition(":") for address in config["listen"]
             if not address.startswith("unix:")]
    return [(host, int(port)) for host, _, port in split]


def tag_of(container):
    return container["image"].rsplit("/", 1)[-1].partition(":")[2]
