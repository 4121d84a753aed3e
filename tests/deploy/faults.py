"""Faults that the rules must find: each one edit of a copy of deploy/, and what is then said."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Fault:
    what: str
    file: str  # of deploy/
    old: str   # the first of these is replaced
    new: str
    said: str  # by the rule; a piece of it


JOB = "base/job.yaml"
LOADERS = "loaders/loaders.yaml"
SERVICE = "base/service.yaml"
POLICY = "base/networkpolicy.yaml"
CONFIG = "base/cpshardd.json"
DRA_CONFIG = "dra/cpshardd.json"
POD = "dra/pod.yaml"
CLAIM = "dra/claim.yaml"

RUN = "- {name: run, mountPath: /run/cpshard}"
TRAINERS = f"            {RUN}\n            - {{name: shm"
LOADER = "app.kubernetes.io/component: loader"
TRAINERS_CLAIM = """
          resources:
            claims:
              - {name: gpus}
"""
SIDECARS_CLAIM = """
            claims:
              - {name: gpus}
"""


def and_also(key):
    """A trainer that asks for GPUs of the device plugin too."""
    return TRAINERS_CLAIM.replace("claims", f"{key}: {{nvidia.com/gpu: 8}}\n            claims")


OF_A_POD = (
    *(Fault(key, JOB, "restartPolicy: Never", f"restartPolicy: Never\n      {key}: true",
            f"Job/training: {key} is not allowed")
      for key in ("hostNetwork", "hostPID", "hostIPC")),
    Fault("a folder of the node", LOADERS, "emptyDir: {sizeLimit: 10Gi}", "hostPath: {path: /tmp}",
          "Job/loaders: volume tmp is a hostPath"),
    Fault("root", JOB, "runAsNonRoot: true", "runAsNonRoot: false",
          "Job/training: runAsNonRoot with a runAsUser is wanted"),
    Fault("no user", JOB, "        runAsUser: 10001\n", "",
          "Job/training: runAsNonRoot with a runAsUser is wanted"),
    Fault("all system calls", JOB, "type: RuntimeDefault", "type: Unconfined",
          "Job/training: seccompProfile RuntimeDefault is wanted"),
    Fault("a token of the API server", LOADERS, "      automountServiceAccountToken: false\n", "",
          "Job/loaders: automountServiceAccountToken: false is wanted"),
    Fault("more privileges than the parent", JOB, "            allowPrivilegeEscalation: false\n",
          "", "Job/training/cpshard: allowPrivilegeEscalation: false is wanted"),
    Fault("a writable root filesystem", JOB, "            readOnlyRootFilesystem: true\n", "",
          "Job/training/cpshard: readOnlyRootFilesystem: true is wanted"),
    Fault("capabilities that are kept", JOB, "drop: [ALL]", "drop: [NET_RAW]",
          "Job/training/cpshard: capabilities must drop ALL"),
    Fault("a capability that is added", JOB, "{drop: [ALL]}", "{drop: [ALL], add: [NET_ADMIN]}",
          "Job/training/cpshard: no privilege may be added"),
    Fault("a privileged container", JOB, "readOnlyRootFilesystem: true\n",
          "readOnlyRootFilesystem: true\n            privileged: true\n",
          "Job/training/cpshard: no privilege may be added"),
    Fault("an image that changes", "base/kustomization.yaml", "newTag: 0.1.0", "newTag: latest",
          "needs a tag other than latest"),
    Fault("no memory limit", LOADERS, "            limits: {memory: 8Gi}\n", "",
          "Job/loaders/loader: a memory limit is wanted"),
    Fault("no request of a CPU", LOADERS, 'requests: {cpu: "2", memory: 8Gi}',
          "requests: {memory: 8Gi}", "Job/loaders/loader: requests of cpu and memory are wanted"),
    Fault("a mount without a volume", JOB, RUN, "- {name: rum, mountPath: /run/cpshard}",
          "Job/training/cpshard: no volume rum"),
    Fault("a configuration that is not updated", JOB, "mountPath: /etc/cpshard,",
          "mountPath: /etc/cpshard, subPath: a,", "Job/training/cpshard: a subPath is not updated"),
    Fault("a misspelt ConfigMap", JOB, "configMap: {name: cpshardd}", "configMap: {name: cpshrdd}",
          "Job/training: no ConfigMap cpshrdd"),
    Fault("a volume of all the memory", JOB, "sizeLimit: 16Gi", "sizeLimit: 64Gi",
          "Job/training/trainer: volume shm may fill the memory limit 68719476736"),
    Fault("a volume of any size in memory", JOB, "{medium: Memory, sizeLimit: 16Mi}",
          "{medium: Memory}",
          "Job/training/cpshard: volume run may fill the memory limit 8589934592"),
)

OF_THE_NETWORK = (
    Fault("a Service of nothing", SERVICE, "selector: {app.kubernetes.io/name: training}",
          "selector: {app.kubernetes.io/name: trainings}", "no pod of its selector has port grpc"),
    Fault("a port that has another name", SERVICE, "targetPort: grpc", "targetPort: grcp",
          "Service/training: no pod of its selector has port grcp"),
    Fault("loaders and trainer that wait for each other", SERVICE,
          "publishNotReadyAddresses: true", "publishNotReadyAddresses: false",
          "Service/training: publishNotReadyAddresses is wanted"),
    Fault("a policy of what goes out", POLICY, "policyTypes: [Ingress]", "policyTypes: [Egress]",
          "NetworkPolicy/training: policyTypes [Ingress] is wanted, not ['Egress']"),
    Fault("a policy that shuts what goes out", POLICY, "[Ingress]", "[Ingress, Egress]",
          "NetworkPolicy/training: policyTypes [Ingress] is wanted, not ['Ingress', 'Egress']"),
    Fault("a policy for all pods and namespaces", POLICY,
          f"from:\n        - podSelector:\n            matchLabels: {{{LOADER}}}\n      ports",
          "ports", "NetworkPolicy/training: a rule without peers or ports opens everything"),
    Fault("a policy for another port", POLICY, "port: 7070", "port: 7077",
          "NetworkPolicy/training: opens port 7077, the pods have [7070]"),
    Fault("a policy for all pods", POLICY, f"podSelector:\n            matchLabels: {{{LOADER}}}",
          "podSelector: {}", "NetworkPolicy/training: lets in {'podSelector': {}}, not pods"),
    Fault("a policy for other namespaces", POLICY, "        - podSelector:",
          "        - namespaceSelector: {}\n          podSelector:", "not pods of this namespace"),
    Fault("a policy for pods that are not there", POLICY, LOADER, LOADER + "s",
          "NetworkPolicy/training: lets in {'app.kubernetes.io/component': 'loaders'}, no pod"),
    Fault("a policy that keeps the loaders out", POLICY, LOADER, "app.kubernetes.io/name: training",
          "Job/loaders/loader: no NetworkPolicy lets it reach training:7070"),
    Fault("a policy of another pod", POLICY, "matchLabels: {app.kubernetes.io/name: training}",
          "matchLabels: {app.kubernetes.io/name: trainer}",
          "Job/training/cpshard: no NetworkPolicy chooses its pod"),
    Fault("no policy", "base/kustomization.yaml", "  - networkpolicy.yaml\n", "",
          "Job/training/cpshard: no NetworkPolicy chooses its pod"),
    Fault("a client without an address", LOADERS, "CPSHARD_ADDRESS", "CPSHARD_ADRESS",
          "Job/loaders/loader: a CPSHARD_ADDRESS is wanted"),
    Fault("a trainer that asks another socket", JOB, 'cpshard.sock"', 'other.sock"',
          "Job/training/trainer: CPSHARD_ADDRESS unix:/run/cpshard/other.sock is no socket"),
    Fault("a trainer that has the socket elsewhere", JOB, TRAINERS,
          TRAINERS.replace("/run/cpshard", "/run/server"),
          "Job/training/trainer: CPSHARD_ADDRESS unix:/run/cpshard/cpshard.sock is no socket"),
    Fault("loaders that ask another port", LOADERS, "training:7070", "training:7071",
          "Job/loaders/loader: CPSHARD_ADDRESS training:7071 is none of ['training:7070']"),
    Fault("loaders that ask another Service", LOADERS, "training:7070", "trainer:7070",
          "Job/loaders/loader: CPSHARD_ADDRESS trainer:7070 is none of ['training:7070']"),
)

OF_THE_SERVER = (
    Fault("no container of that name", JOB, "- name: cpshard\n", "- name: server\n",
          "no container named cpshard with a cpshardd.json"),
    Fault("a configuration where the image does not look", JOB, "mountPath: /etc/cpshard,",
          "mountPath: /etc/cpshardd,", "no container named cpshard with a cpshardd.json"),
    Fault("no sidecar", JOB, "          restartPolicy: Always\n", "",
          "Job/training/cpshard: restartPolicy Always makes it a native sidecar"),
    Fault("a drain that is longer than the grace", CONFIG, '"shutdown_seconds": 60',
          '"shutdown_seconds": 160', "terminationGracePeriodSeconds 180 is under 160 + 30"),
    Fault("a probe that asks no name", JOB, "grpc: {port: 7070}\n", "tcpSocket: {port: 7070}\n",
          "Job/training/cpshard: a readinessProbe by gRPC is wanted"),
    Fault("a probe of another port", JOB, "{port: 7070, service: liveness}",
          "{port: 7071, service: liveness}", "livenessProbe asks port 7071, not one of [7070]"),
    Fault("a probe of liveness that kills for ever", JOB, "service: liveness", "service: livness",
          "Job/training/cpshard: livenessProbe asks for 'livness', not 'liveness'"),
    Fault("a probe of liveness that kills what drains", JOB, ", service: liveness", "",
          "Job/training/cpshard: livenessProbe asks for '', not 'liveness'"),
    Fault("a start that waits for readiness", JOB, ", service: startup", "",
          "Job/training/cpshard: startupProbe asks for '', not 'startup'"),
    Fault("another port than the container's", CONFIG, "0.0.0.0:7070", "0.0.0.0:7071",
          "Job/training/cpshard: ports [7070], but listens on [7071]"),
    Fault("a port for this pod alone", CONFIG, "0.0.0.0:7070", "127.0.0.1:7070",
          "Job/training/cpshard: no probe and no loader reaches 127.0.0.1"),
    Fault("a socket path that is too long", CONFIG, "cpshard.sock", "s" * 100,
          "is over 107 bytes"),
    Fault("a socket outside of the volumes", CONFIG, "unix:/run/cpshard/", "unix:/run/other/",
          "no writable volume holds /run/other/cpshard.sock"),
    Fault("a socket where nothing can be written", JOB, RUN, RUN.replace("}", ", readOnly: true}"),
          "no writable volume holds /run/cpshard/cpshard.sock"),
    Fault("a socket that no other container sees", JOB, TRAINERS, "            - {name: shm",
          "no container shares the volume of /run/cpshard/cpshard.sock"),
    Fault("a socket for everybody", CONFIG, '"socket_mode": 432', '"socket_mode": 511',
          "Job/training/cpshard: socket_mode 0660 is wanted, not 0777"),
    Fault("a pool that is larger than the memory", CONFIG, "4294967296", "8589934592",
          "Job/training/cpshard: pool_bytes 8589934592 is over 3/4 of the limit 8589934592"),
    Fault("a pool that is not given", CONFIG, '  "pool_bytes": 4294967296,\n', "",
          "Job/training/cpshard: pool_bytes 8589934592 is over 3/4 of the limit 8589934592"),
    Fault("a pool and pinned memory that are larger than the memory", DRA_CONFIG,
          '"pinned_bytes": 4294967296', '"pinned_bytes": 12884901888',
          "pool_bytes + pinned_bytes 17179869184 is over 3/4 of the limit 17179869184"),
    Fault("an image without CUDA", "dra/kustomization.yaml", "newTag: 0.1.0-cuda", "newTag: 0.1.0",
          "executor cuda, but the tag of registry.example.com/cpshard:0.1.0 is no -cuda"),
    Fault("an image with CUDA whose name is misspelt", "dra/kustomization.yaml",
          "name: registry.example.com/cpshard\n", "name: registry.example.com/cpshrad\n",
          "executor cuda, but the tag of registry.example.com/cpshard:0.1.0 is no -cuda"),
    *(Fault(f"{pinned} bytes of pinned memory", DRA_CONFIG, '"pinned_bytes": 4294967296',
            f'"pinned_bytes": {pinned}',
            f"pinned_bytes {pinned} does not hold the batches of pool_bytes 4294967296")
      for pinned in (0, 1)),
)

OF_CLAIMS = (
    Fault("a claim that the trainer does not list", POD, TRAINERS_CLAIM, "\n",
          "Job/training/trainer: does not list the pod's claims ['gpus']"),
    Fault("a claim that the sidecar does not list", POD, SIDECARS_CLAIM, "\n",
          "Job/training/cpshard: does not list the pod's claims ['gpus']"),
    Fault("a claim that the pod does not have", POD, TRAINERS_CLAIM,
          TRAINERS_CLAIM.replace("gpus", "gpu"), "no resourceClaims ['gpu'] in the pod"),
    Fault("a request that is not there, or is a part of the claim", POD, SIDECARS_CLAIM,
          SIDECARS_CLAIM.replace("gpus", "gpus, request: other"),
          "Job/training/cpshard: lists other of a claim alone, not all of it"),
    *(Fault(f"{key} of the device plugin beside a claim", POD, TRAINERS_CLAIM, and_also(key),
            "Job/training/trainer: nvidia.com/gpu beside a claim")
      for key in ("limits", "requests")),
    *(Fault(f"no toleration, but {new}", POD, old, new, "a toleration of nvidia.com/gpu:NoSchedule")
      for old, new in (("key: nvidia.com/gpu", "key: nvidia.com/gpus"),
                       ("effect: NoSchedule", "effect: NoExecute"),
                       ("effect: NoSchedule", "effect: NoSchedule, tolerationSeconds: 5"))),
    Fault("a template that is not there", CLAIM, "name: training-gpus", "name: gpus",
          "claim gpus is of no ResourceClaimTemplate"),
    Fault("an older API", CLAIM, "resource.k8s.io/v1", "resource.k8s.io/v1beta2",
          "resource.k8s.io/v1 is wanted, not resource.k8s.io/v1beta2"),
    Fault("other devices", CLAIM, "gpu.nvidia.com", "gpu.example.com",
          "request gpus is not of gpu.nvidia.com"),
    Fault("all devices", CLAIM, "ExactCount\n            count: 8", "All",
          "request gpus: ExactCount is wanted"),
    *(Fault(f"{executor} with a claim", DRA_CONFIG, '"cuda"', f'"{executor}"',
            f"executor cuda is wanted with a claim, not {executor}")
      for executor in ("auto", "cpu")),
    *(Fault(f"{executor} without a claim", CONFIG, '"cpu"', f'"{executor}"',
            f"executor cpu is wanted without a claim, not {executor}")
      for executor in ("auto", "cuda")),
    Fault("an executor that is not given", CONFIG, ',\n  "executor": "cpu"', "",
          "executor cpu is wanted without a claim, not auto"),
    Fault("a device that is not claimed", DRA_CONFIG, '"cuda_device": 0', '"cuda_device": 8',
          "cuda_device 8 of 8 claimed"),
)

FAULTS = OF_A_POD + OF_THE_NETWORK + OF_THE_SERVER + OF_CLAIMS
