"""Rules of a cpshardd, its configuration and its pod."""

from rules.documents import bytes_of, containers_of, place_of, servers, sockets, tag_of, tcp

MAX_SOCKET_PATH = 107  # bytes; sun_path holds 108 with the final zero
ALL_HOSTS = ("0.0.0.0", "[::]")

# The names that cpshardd's health service has. Any other is NOT_FOUND: to the kubelet, not well.
PROBES = {"startupProbe": "startup", "readinessProbe": "", "livenessProbe": "liveness"}


def there_is_a_server(documents):
    if not list(servers(documents)):
        yield "no container named cpshard with a cpshardd.json where the image looks for it"


def servers_are_sidecars(documents):
    for where, spec, container, config in servers(documents):
        if container.get("restartPolicy") != "Always":
            yield f"{where}: restartPolicy Always makes it a native sidecar"
        grace, drain = spec.get("terminationGracePeriodSeconds", 30), config["shutdown_seconds"]
        if drain + 30 > grace:
            yield f"{where}: terminationGracePeriodSeconds {grace} is under {drain} + 30"


def probes_ask_what_is_served(documents):
    for where, _, container, _ in servers(documents):
        ports = {port["containerPort"] for port in container.get("ports", [])}
        for kind, name in PROBES.items():
            asked = container.get(kind, {}).get("grpc")
            if asked is None:
                yield f"{where}: a {kind} by gRPC is wanted"
                continue
            if asked["port"] not in ports:
                yield f"{where}: {kind} asks port {asked['port']}, not one of {sorted(ports)}"
            if asked.get("service", "") != name:
                yield f"{where}: {kind} asks for '{asked.get('service', '')}', not '{name}'"


def ports_are_listened_on(documents):
    for where, _, container, config in servers(documents):
        ports = {port["containerPort"] for port in container.get("ports", [])}
        listened = {port for _, port in tcp(config)}
        if listened != ports:
            yield f"{where}: ports {sorted(ports)}, but listens on {sorted(listened)}"
        for host, _ in tcp(config):
            if host not in ALL_HOSTS:
                yield f"{where}: no probe and no loader reaches {host}; listen on {ALL_HOSTS[0]}"


def sockets_are_shared(documents):
    for where, spec, container, config in servers(documents):
        writable = {mount["name"] for mount in container["volumeMounts"]
                    if not mount.get("readOnly")}
        for path in sockets(config):
            volume = (place_of(container, path) or (None,))[0]
            if len(path) > MAX_SOCKET_PATH:
                yield f"{where}: the socket path {path} is over {MAX_SOCKET_PATH} bytes"
            if volume not in writable:
                yield f"{where}: no writable volume holds {path}"
            if not any(mount["name"] == volume for other in containers_of(spec)
                       if other is not container for mount in other.get("volumeMounts", [])):
                yield f"{where}: no container shares the volume of {path}"
        if sockets(config) and config["socket_mode"] != 0o660:
            yield f"{where}: socket_mode 0660 is wanted, not {config['socket_mode']:04o}"


def memory_is_enough(documents):
    for where, _, container, config in servers(documents):
        limit = bytes_of(container["resources"].get("limits", {}).get("memory", 0))
        keys = ("pool_bytes", "pinned_bytes") if config["executor"] == "cuda" else ("pool_bytes",)
        held = sum(config[key] for key in keys)
        if held > limit * 3 // 4:
            yield f"{where}: {' + '.join(keys)} {held} is over 3/4 of the limit {limit}"


def cuda_has_what_it_needs(documents):
    for where, _, container, config in servers(documents):
        if config["executor"] != "cuda":
            continue
        if not tag_of(container).endswith("-cuda"):
            yield f"{where}: executor cuda, but the tag of {container['image']} is no -cuda"
        pinned, pool = config["pinned_bytes"], config["pool_bytes"]
        if pinned < pool:
            yield f"{where}: pinned_bytes {pinned} does not hold the batches of pool_bytes {pool}"


RULES = (there_is_a_server, servers_are_sidecars, probes_ask_what_is_served, ports_are_listened_on,
         sockets_are_shared, memory_is_enough, cuda_has_what_it_needs)
