"""Rules of GPUs by dynamic resource allocation."""

from rules.documents import containers, of_kind, pods, servers


def claimed(container):
    return {claim["name"] for claim in container.get("resources", {}).get("claims", [])}


def claims_are_shared(documents):
    """A GPU that one container alone sees is of no use to the other."""
    for where, spec, container in containers(documents):
        names = {claim["name"] for claim in spec.get("resourceClaims", [])}
        resources = container.get("resources", {})
        if claimed(container) - names:
            yield f"{where}: no resourceClaims {sorted(claimed(container) - names)} in the pod"
        if names - claimed(container):
            yield f"{where}: does not list the pod's claims {sorted(names - claimed(container))}"
        for claim in resources.get("claims", []):
            if "request" in claim:
                yield f"{where}: lists {claim['request']} of a claim alone, not all of it"
        for kind in ("requests", "limits"):
            if names and "nvidia.com/gpu" in resources.get(kind, {}):
                yield f"{where}: nvidia.com/gpu beside a claim takes GPUs of its own"


def nodes_with_gpus_are_tolerated(documents):
    for where, spec, _ in pods(documents):
        tolerations = spec.get("tolerations", [])
        if spec.get("resourceClaims") and not any(map(tolerates_gpus, tolerations)):
            yield f"{where}: a toleration of nvidia.com/gpu:NoSchedule is wanted with a claim"


def tolerates_gpus(toleration):
    """tolerationSeconds goes with NoExecute alone: the API server refuses it here."""
    return (toleration.get("key") == "nvidia.com/gpu" and toleration.get("operator") == "Exists"
            and toleration.get("effect") in (None, "NoSchedule")
            and "tolerationSeconds" not in toleration)


def templates(documents):
    return {document["metadata"]["name"]: document
            for _, document in of_kind(documents, "ResourceClaimTemplate")}


def requests(template):
    """(name, what is asked for exactly)"""
    return [(request["name"], request.get("exactly", {}))
            for request in template["spec"]["spec"]["devices"]["requests"]]


def claims_have_a_template(documents):
    for where, spec, _ in pods(documents):
        for claim in spec.get("resourceClaims", []):
            if claim.get("resourceClaimTemplateName") not in templates(documents):
                yield f"{where}: claim {claim['name']} is of no ResourceClaimTemplate that is here"


def templates_ask_for_gpus(documents):
    for where, template in of_kind(documents, "ResourceClaimTemplate"):
        if template["apiVersion"] != "resource.k8s.io/v1":
            yield f"{where}: resource.k8s.io/v1 is wanted, not {template['apiVersion']}"
        for name, exactly in requests(template):
            if exactly.get("deviceClassName") != "gpu.nvidia.com":
                yield f"{where}: request {name} is not of gpu.nvidia.com"
            if exactly.get("allocationMode", "ExactCount") != "ExactCount":
                yield f"{where}: request {name}: ExactCount is wanted"


def claimed_gpus(documents, spec):
    """How many GPUs the claims of a pod bring."""
    found = templates(documents)
    names = [claim.get("resourceClaimTemplateName") for claim in spec.get("resourceClaims", [])]
    return sum(exactly.get("count", 1) for name in names if name in found
               for _, exactly in requests(found[name]))


def executor_is_what_the_pod_has(documents):
    """"auto" takes the CPU of a pod that has paid for GPUs, and elsewhere any GPU that it sees."""
    for where, spec, container, config in servers(documents):
        executor, device = config["executor"], config["cuda_device"]
        count = claimed_gpus(documents, spec)
        if claimed(container) and executor != "cuda":
            yield f"{where}: executor cuda is wanted with a claim, not {executor}"
        elif claimed(container) and not 0 <= device < count:
            yield f"{where}: cuda_device {device} of {count} claimed"
        elif not claimed(container) and executor != "cpu":
            yield f"{where}: executor cpu is wanted without a claim, not {executor}"


RULES = (claims_are_shared, nodes_with_gpus_are_tolerated, claims_have_a_template,
         templates_ask_for_gpus, executor_is_what_the_pod_has)
