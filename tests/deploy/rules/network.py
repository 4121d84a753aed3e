"""Rules of who reaches what: services, policies, and the addresses that clients are given."""

from rules.documents import (SERVER, chosen, containers_of, of_kind, place_of, pods,
                             ports_of, servers, sockets, tcp)


def service_ports(documents, service):
    """{address: the pod's port, None if there is none} of a Service. One without an address of its
    own (clusterIP None) maps no port: clients reach the pod's.
    """
    spec, found = service["spec"], {}
    ports = {number: name for _, pod, labels in pods(documents)
             if spec["selector"].items() <= labels.items()
             for number, name in ports_of(pod).items()}
    for port in spec["ports"]:
        target = port.get("targetPort", port["port"])
        number = next((number for number in ports if target in (number, ports[number])), None)
        reached = number if spec.get("clusterIP") == "None" else port["port"]
        found[f"{service['metadata']['name']}:{reached or target}"] = number
    return found


def services_reach_pods(documents):
    for where, service in of_kind(documents, "Service"):
        for address, number in service_ports(documents, service).items():
            if number is None:
                yield f"{where}: no pod of its selector has port {address.rpartition(':')[2]}"
        if not service["spec"].get("publishNotReadyAddresses"):
            yield f"{where}: publishNotReadyAddresses is wanted, or loaders wait for the trainer"


def policies(documents, labels):
    """The NetworkPolicies of a pod."""
    return [policy for _, policy in of_kind(documents, "NetworkPolicy")
            if chosen(policy["spec"]["podSelector"], labels)]


def policies_open_what_is_there(documents):
    for where, policy in of_kind(documents, "NetworkPolicy"):
        types = policy["spec"].get("policyTypes", ["Ingress"])
        if types != ["Ingress"]:
            yield f"{where}: policyTypes [Ingress] is wanted, not {types}"
        ports = {port for _, spec, labels in pods(documents)
                 if chosen(policy["spec"]["podSelector"], labels) for port in ports_of(spec)}
        for rule in policy["spec"].get("ingress", []):
            if not rule.get("from") or not rule.get("ports"):
                yield f"{where}: a rule without peers or ports opens everything"
            for port in rule.get("ports", []):
                if port["port"] not in ports:
                    yield f"{where}: opens port {port['port']}, the pods have {sorted(ports)}"
            for peer in rule.get("from", []):
                selector = peer.get("podSelector", {})
                if len(peer) != 1 or not selector.get("matchLabels"):
                    yield f"{where}: lets in {peer}, not pods of this namespace by their labels"
                elif not any(chosen(selector, labels) for _, _, labels in pods(documents)):
                    yield f"{where}: lets in {selector['matchLabels']}, no pod has these"


def servers_are_behind_a_policy(documents):
    guarded = {where for where, _, labels in pods(documents) if policies(documents, labels)}
    for where, _, _, config in servers(documents):
        if tcp(config) and where.rpartition("/")[0] not in guarded:
            yield f"{where}: no NetworkPolicy chooses its pod, so its port is open to all"


def lets_in(policy, labels, number):
    """Whether a policy lets a pod of these labels reach a port."""
    return any(port["port"] == number and chosen(peer.get("podSelector", {}), labels)
               for rule in policy["spec"].get("ingress", [])
               for port in rule.get("ports", []) for peer in rule.get("from", []))


def socket_places(documents, spec):
    """Where in the volumes of a pod its servers' sockets lie."""
    return [place for _, pod, container, config in servers(documents) if pod is spec
            for place in (place_of(container, path) for path in sockets(config)) if place]


def clients_ask_a_server(documents):
    reached = {address: (service, number) for _, service in of_kind(documents, "Service")
               for address, number in service_ports(documents, service).items()}
    for pod, spec, labels in pods(documents):
        for container in containers_of(spec):
            where = f"{pod}/{container['name']}"
            address = {variable["name"]: variable.get("value", "")
                       for variable in container.get("env", [])}.get("CPSHARD_ADDRESS")
            if container["name"] == SERVER:
                continue
            if address is None:
                yield f"{where}: a CPSHARD_ADDRESS is wanted"
            elif address.startswith("unix:"):
                place = place_of(container, address.removeprefix("unix:"))
                if place not in socket_places(documents, spec):
                    yield f"{where}: CPSHARD_ADDRESS {address} is no socket of the pod's cpshardd"
            elif address not in reached:
                yield f"{where}: CPSHARD_ADDRESS {address} is none of {sorted(reached)}"
            elif not is_let_in(documents, labels, *reached[address]):
                yield f"{where}: no NetworkPolicy lets it reach {address}"


def is_let_in(documents, labels, service, number):
    """Whether a pod of these labels may reach every pod of a Service."""
    for _, _, theirs in pods(documents):
        found = policies(documents, theirs)
        if service["spec"]["selector"].items() <= theirs.items() and found:
            if not any(lets_in(policy, labels, number) for policy in found):
                return False
    return True


RULES = (services_reach_pods, policies_open_what_is_there, servers_are_behind_a_policy,
         clients_ask_a_server)
