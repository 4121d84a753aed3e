"""Rules of a pod by itself."""

from rules.documents import bytes_of, containers, of_kind, pods, tag_of

VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim",
           "projected", "secret"}


def pods_are_restricted(documents):
    for where, spec, _ in pods(documents):
        for key in ("hostNetwork", "hostPID", "hostIPC"):
            if spec.get(key):
                yield f"{where}: {key} is not allowed"
        for volume in spec.get("volumes", []):
            kinds = set(volume) - {"name"}
            if not kinds <= VOLUMES:
                yield f"{where}: volume {volume['name']} is a {', '.join(sorted(kinds))}"
        security = spec.get("securityContext", {})
        if security.get("runAsNonRoot") is not True or not security.get("runAsUser"):
            yield f"{where}: runAsNonRoot with a runAsUser is wanted"
        if security.get("seccompProfile", {}).get("type") not in ("RuntimeDefault", "Localhost"):
            yield f"{where}: seccompProfile RuntimeDefault is wanted"
        if spec.get("automountServiceAccountToken") is not False:
            yield f"{where}: automountServiceAccountToken: false is wanted"


def containers_are_restricted(documents):
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
        if tag_of(container) in ("", "latest"):
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
    maps = {document["metadata"]["name"] for _, document in of_kind(documents, "ConfigMap")}
    for where, spec, _ in pods(documents):
        for volume in spec.get("volumes", []):
            name = volume.get("configMap", {}).get("name")
            if name and name not in maps:
                yield f"{where}: no ConfigMap {name}"


def volumes_in_memory_leave_some(documents):
    """What is written there is of the container's memory."""
    for where, spec, container in containers(documents):
        limit = bytes_of(container.get("resources", {}).get("limits", {}).get("memory", 0))
        mounted = {mount["name"] for mount in container.get("volumeMounts", [])}
        for volume in spec.get("volumes", []):
            empty = volume.get("emptyDir", {})
            if volume["name"] in mounted and empty.get("medium") == "Memory":
                if bytes_of(empty.get("sizeLimit", limit)) >= limit:
                    yield f"{where}: volume {volume['name']} may fill the memory limit {limit}"


RULES = (pods_are_restricted, containers_are_restricted, images_have_a_version,
         resources_are_bounded, volumes_are_there, volumes_in_memory_leave_some)
