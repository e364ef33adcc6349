"""The files in packaging/ that people paste: manifests_test.py SOURCE_DIR BUILD_DIR

Every key is known and has a value of its kind; names, labels, ports and volumes of one file fit together; and the
dlaunch and dlaunchd of the build take the commands, with the variables that a cluster sets.
"""
import copy
import os
import re
import subprocess
import sys

try:
    import yaml
except ImportError:
    print("skipped: Python has no yaml (package python3-yaml)")
    sys.exit(77)

SOURCE, BUILD = map(os.path.abspath, sys.argv[1:])
KUBERNETES = f"{SOURCE}/packaging/kubernetes"


class Wrong(Exception):
    """What is wrong with a file, and where in it."""


# ---- Kinds of values ----

class Text:
    def __init__(self, pattern=".+"):
        self.pattern = pattern

    def check(self, value, where):
        if not isinstance(value, str) or not re.fullmatch(self.pattern, value, re.DOTALL):
            raise Wrong(f"{where}: {value!r} is not text like {self.pattern}")


class Number:
    def __init__(self, least=0, most=2**31 - 1):
        self.least, self.most = least, most

    def check(self, value, where):
        if not isinstance(value, int) or isinstance(value, bool) or not self.least <= value <= self.most:
            raise Wrong(f"{where}: {value!r} is not a number from {self.least} to {self.most}")


class Truth:
    def check(self, value, where):
        if not isinstance(value, bool):
            raise Wrong(f"{where}: {value!r} is neither true nor false")


class OneOf:
    def __init__(self, *kinds):
        self.kinds = [Text(re.escape(kind)) if isinstance(kind, str) else kind for kind in kinds]

    def check(self, value, where):
        reasons = []
        for kind in self.kinds:
            try:
                return kind.check(value, where)
            except Wrong as why:
                reasons.append(str(why))
        raise Wrong("; ".join(reasons))


class Each:
    def __init__(self, kind, least=1):
        self.kind, self.least = kind, least

    def check(self, value, where):
        if not isinstance(value, list) or len(value) < self.least:
            raise Wrong(f"{where}: {value!r} is not a list of {self.least} or more")
        for index, item in enumerate(value):
            self.kind.check(item, f"{where}[{index}]")


class Table:
    """Any keys of one form."""

    def __init__(self, kind, key="[a-z0-9A-Z._/-]+"):
        self.kind, self.key = kind, key

    def check(self, value, where):
        if not isinstance(value, dict):
            raise Wrong(f"{where}: {value!r} is not a table")
        for key, item in value.items():
            Text(self.key).check(key, f"{where}, a key")
            self.kind.check(item, f"{where}.{key}")


class Fields:
    """Keys by name; one whose name ends with _ here has to be there."""

    def __init__(self, **kinds):
        self.required = {name.rstrip("_") for name in kinds if name.endswith("_")}
        self.kinds = {name.rstrip("_"): kind for name, kind in kinds.items()}

    def check(self, value, where):
        if not isinstance(value, dict):
            raise Wrong(f"{where}: {value!r} is not a table")
        for key, item in value.items():
            if key not in self.kinds:
                raise Wrong(f"{where}: unknown key {key!r}")
            self.kinds[key].check(item, f"{where}.{key}")
        for key in sorted(self.required - set(value)):
            raise Wrong(f"{where}: {key} is missing")


# ---- Kubernetes, as far as the files use it. A name with _ at its end is required. ----

NAME = Text("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
LABELS = Table(Text("[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"), "([a-z0-9.-]+/)?[A-Za-z0-9._-]+")
WORD = Text()
PORT = Number(1, 65535)
CODES = Each(Number(0, 255))
METADATA = Fields(name_=NAME, labels=LABELS, annotations=Table(Text(".*")))
TEMPLATE_METADATA = Fields(labels=LABELS, annotations=Table(Text(".*")))
SELECTOR = Fields(matchLabels_=LABELS)
QUANTITIES = Table(Text("[0-9]+(m|Ki|Mi|Gi)?"), "cpu|memory|nvidia.com/gpu")
VARIABLE = Fields(name_=Text("[A-Z_]+"), value=WORD,
                  valueFrom=Fields(fieldRef_=Fields(fieldPath_=Text(r"metadata\.(name|annotations\['[a-z0-9./-]+'\])"))))
PROBE = Fields(exec=Fields(command_=Each(WORD)), httpGet=Fields(path_=Text("/.*"), port_=PORT),
               periodSeconds=Number(1), timeoutSeconds=Number(1), failureThreshold=Number(1))
RESTART_RULE = Fields(action_=OneOf("Restart", "RestartAllContainers"),
                      exitCodes_=Fields(operator_=OneOf("In", "NotIn"), values_=CODES))
SECCOMP = Fields(type_=OneOf("RuntimeDefault"))
CONTAINER = Fields(
    name_=NAME, image_=Text("registry.example/[a-z-]+"), command=Each(WORD), args=Each(WORD), env=Each(VARIABLE),
    ports=Each(Fields(name_=Text("[a-z][a-z-]{0,14}"), containerPort_=PORT, protocol=OneOf("TCP"))),
    restartPolicy=OneOf("Always", "Never"), restartPolicyRules=Each(RESTART_RULE),
    livenessProbe=PROBE, readinessProbe=PROBE, startupProbe=PROBE,
    resources=Fields(requests=QUANTITIES, limits=QUANTITIES),
    securityContext=Fields(allowPrivilegeEscalation=Truth(), readOnlyRootFilesystem=Truth(),
                           capabilities=Fields(drop_=Each(OneOf("ALL")))),
    volumeMounts=Each(Fields(name_=NAME, mountPath_=Text("/.*"), readOnly=Truth())))
POD = Fields(
    containers_=Each(CONTAINER), initContainers=Each(CONTAINER), subdomain=NAME, serviceAccountName=NAME,
    automountServiceAccountToken=Truth(), restartPolicy=OneOf("Never", "OnFailure", "Always"),
    terminationGracePeriodSeconds=Number(0),
    securityContext=Fields(runAsNonRoot=Truth(), runAsUser=Number(1), runAsGroup=Number(1), fsGroup=Number(1),
                           seccompProfile=SECCOMP),
    volumes=Each(Fields(name_=NAME, emptyDir=Fields(), secret=Fields(secretName_=NAME, defaultMode=Number(0, 0o777)),
                        persistentVolumeClaim=Fields(claimName_=NAME))))
JOB = Fields(
    completionMode=OneOf("Indexed"), completions_=Number(1), parallelism_=Number(1), backoffLimit_=Number(0),
    podReplacementPolicy=OneOf("Failed", "TerminatingOrFailed"),
    podFailurePolicy=Fields(rules_=Each(Fields(
        action_=OneOf("FailJob"),
        onExitCodes_=Fields(containerName=NAME, operator_=OneOf("In", "NotIn"), values_=CODES)))),
    template_=Fields(metadata=TEMPLATE_METADATA, spec_=POD))
JOBSET = Fields(
    failurePolicy=Fields(
        maxRestarts=Number(0), restartStrategy=OneOf("Recreate", "BlockingRecreate", "InPlaceRestart"),
        rules=Each(Fields(name_=Text("[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"),
                          action_=OneOf("FailJobSet", "RestartJobSet", "RestartJobSetAndIgnoreMaxRestarts"),
                          onJobFailureReasons=Each(OneOf("BackoffLimitExceeded", "PodFailurePolicy"))))),
    replicatedJobs_=Each(Fields(name_=NAME, replicas=Number(1), template_=Fields(spec_=JOB))))
# Trainer fills in what a Job lacks.
RUNTIME_JOB = Fields(name_=NAME, template_=Fields(
    metadata=TEMPLATE_METADATA,
    spec_=Fields(template_=Fields(metadata=TEMPLATE_METADATA, spec_=POD))))
RULE = Fields(
    **{"from": Each(Fields(podSelector_=SELECTOR))},
    ports=Each(Fields(protocol_=OneOf("TCP"), port_=PORT)))
RBAC = "rbac.authorization.k8s.io"
KINDS = {
    ("v1", "Service"): Fields(
        clusterIP=OneOf("None"), publishNotReadyAddresses=Truth(), selector_=LABELS,
        ports=Each(Fields(name_=WORD, port_=PORT, targetPort=OneOf(Text("[a-z-]+"), PORT)))),
    ("v1", "ServiceAccount"): None,
    ("v1", "PersistentVolumeClaim"): Fields(
        accessModes_=Each(OneOf("ReadWriteOnce", "ReadWriteOncePod")), storageClassName=NAME,
        resources_=Fields(requests_=Fields(storage_=Text("[0-9]+(Mi|Gi)")))),
    ("batch/v1", "Job"): JOB,
    ("apps/v1", "Deployment"): Fields(
        replicas_=Number(0), selector_=SELECTOR, strategy=Fields(type_=OneOf("Recreate")),
        template_=Fields(metadata_=TEMPLATE_METADATA, spec_=POD)),
    ("networking.k8s.io/v1", "NetworkPolicy"): Fields(
        podSelector_=SELECTOR, policyTypes_=Each(OneOf("Ingress", "Egress")), ingress=Each(RULE), egress=Each(RULE, 0)),
    (f"{RBAC}/v1", "Role"): None,
    (f"{RBAC}/v1", "RoleBinding"): None,
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): JOBSET,
    ("trainer.kubeflow.org/v1alpha1", "ClusterTrainingRuntime"): Fields(
        mlPolicy_=Fields(numNodes_=Number(1), torch_=Fields()),
        template_=Fields(spec_=Fields(replicatedJobs_=Each(RUNTIME_JOB)))),
    ("trainer.kubeflow.org/v1alpha1", "TrainJob"): Fields(
        runtimeRef_=Fields(name_=NAME), trainer=Fields(numNodes=Number(1), numProcPerNode=Number(1), command=Each(WORD))),
}
# What has no `spec`.
OTHERS = {
    "ServiceAccount": {},
    "Role": {"rules_": Each(Fields(apiGroups_=Each(Text(".*")), resources_=Each(WORD), verbs_=Each(WORD)))},
    "RoleBinding": {"subjects_": Each(Fields(kind_=OneOf("ServiceAccount"), name_=NAME, namespace_=NAME)),
                    "roleRef_": Fields(kind_=OneOf("Role"), name_=NAME, apiGroup_=OneOf(RBAC))},
}


class Strict(yaml.SafeLoader):
    """Refuses a key that stands twice."""


def no_key_twice(loader, node, deep=False):
    loader.flatten_mapping(node)
    seen = set()
    for key_node, _ in node.value:
        key = loader.construct_object(key_node, deep=deep)
        if key in seen:
            raise Wrong(f"line {key_node.start_mark.line + 1}: {key} stands twice")
        seen.add(key)
    return yaml.SafeLoader.construct_mapping(loader, node, deep)


Strict.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, no_key_twice)


def read(path):
    return list(yaml.load_all(open(path), Loader=Strict))


def check_forms(documents):
    for document in documents:
        kind = (document.get("apiVersion"), document.get("kind"))
        if kind not in KINDS:
            raise Wrong(f"unknown kind {kind}")
        fields = {"apiVersion_": WORD, "kind_": WORD, "metadata_": METADATA}
        if KINDS[kind] is not None:
            fields["spec_"] = KINDS[kind]
        Fields(**fields, **OTHERS.get(kind[1], {})).check(document, kind[1])


def pods(documents):
    """Each pod template: its labels, its pod's spec, and the job that it belongs to, if any."""
    for document in documents:
        spec, kind = document.get("spec", {}), document["kind"]
        if kind in ("Job", "Deployment"):
            yield document, spec["template"], spec if kind == "Job" else None
        elif kind == "JobSet":
            for replicated in spec["replicatedJobs"]:
                job = replicated["template"]["spec"]
                yield document, job["template"], job
        elif kind == "ClusterTrainingRuntime":
            for replicated in spec["template"]["spec"]["replicatedJobs"]:
                yield document, replicated["template"]["spec"]["template"], None


def option(command, name):
    return command[command.index(name) + 1] if name in command else None


def seconds(text):
    return int(text.rstrip("s"))


def check_fit(documents):
    """That one thing names another that is there."""
    named = {(document["kind"], document["metadata"]["name"]): document for document in documents}
    labelled = [template.get("metadata", {}).get("labels", {}) for _, template, _ in pods(documents)]
    for (kind, name), document in named.items():
        spec = document.get("spec", {})
        if kind == "NetworkPolicy":
            selected = spec["podSelector"]["matchLabels"].items()
            if not any(selected <= labels.items() for labels in labelled):
                raise Wrong(f"NetworkPolicy {name} selects no pod of the file")
        if kind == "Service":
            by_job = spec["selector"].get("batch.kubernetes.io/job-name")
            if by_job is not None and ("Job", by_job) not in named:
                raise Wrong(f"Service {name}: there is no Job {by_job}")
            if by_job is None and not any(spec["selector"].items() <= labels.items() for labels in labelled):
                raise Wrong(f"Service {name} selects no pod of the file")
        if kind == "RoleBinding":
            for subject in document["subjects"]:
                if ("ServiceAccount", subject["name"]) not in named:
                    raise Wrong(f"RoleBinding {name}: there is no ServiceAccount {subject['name']}")
            if ("Role", document["roleRef"]["name"]) not in named:
                raise Wrong(f"RoleBinding {name}: there is no such Role")
        if kind == "Deployment" and not (spec["selector"]["matchLabels"].items()
                                         <= spec["template"]["metadata"]["labels"].items()):
            raise Wrong(f"Deployment {name} does not select its own pods")
        if kind == "TrainJob" and ("ClusterTrainingRuntime", spec["runtimeRef"]["name"]) not in named:
            raise Wrong(f"TrainJob {name}: there is no such runtime")
    for document, template, job in pods(documents):
        where, pod = f"{document['kind']} {document['metadata']['name']}", template["spec"]
        volumes = {volume["name"] for volume in pod.get("volumes", [])}
        check_claims(where, document, pod, named)
        account = pod.get("serviceAccountName")
        if account is not None and ("ServiceAccount", account) not in named:
            raise Wrong(f"{where}: there is no ServiceAccount {account}")
        if "subdomain" in pod:
            service = named.get(("Service", pod["subdomain"]))
            if service is None or service["spec"].get("clusterIP") != "None":
                raise Wrong(f"{where}: subdomain {pod['subdomain']} is no headless Service of the file")
        for container in pod["containers"] + pod.get("initContainers", []):
            for mount in container.get("volumeMounts", []):
                if mount["name"] not in volumes:
                    raise Wrong(f"{where}: there is no volume {mount['name']}")
            patience = option(container.get("command", []), "--shutdown-timeout") or option(
                container.get("command", []), "--drain-timeout")
            if patience and seconds(patience) >= pod["terminationGracePeriodSeconds"]:
                raise Wrong(f"{where}: terminationGracePeriodSeconds leaves no time for {patience}")
            if not state_is_on_a_volume(container.get("command", []), pod):
                raise Wrong(f"{where}: the state file is on no claim")
            nodes = option(container.get("command", []), "--nnodes")
            if job and nodes and not int(nodes) == job["completions"] == job["parallelism"]:
                raise Wrong(f"{where}: --nnodes {nodes}, but completions or parallelism differ")
        names = {container["name"] for container in pod["containers"]}
        for rule in (job or {}).get("podFailurePolicy", {}).get("rules", []):
            if rule["onExitCodes"].get("containerName", next(iter(names))) not in names:
                raise Wrong(f"{where}: podFailurePolicy names no container")
        if job and "podFailurePolicy" in job and pod["restartPolicy"] != "Never":
            raise Wrong(f"{where}: podFailurePolicy needs restartPolicy Never")
    check_restarts_in_place(documents)


def check_claims(where, document, pod, named):
    """A claim that a volume names is of the file, and no two pods have it at once."""
    for volume in pod.get("volumes", []):
        claim = volume.get("persistentVolumeClaim", {}).get("claimName")
        if claim is None:
            continue
        if ("PersistentVolumeClaim", claim) not in named:
            raise Wrong(f"{where}: there is no PersistentVolumeClaim {claim}")
        spec = document["spec"]
        if document["kind"] != "Deployment" or spec["replicas"] > 1 or spec.get("strategy") != {"type": "Recreate"}:
            raise Wrong(f"{where}: two pods would have the claim {claim}")
        if "fsGroup" not in pod.get("securityContext", {}):
            raise Wrong(f"{where}: the pod's user cannot write to the claim {claim}")


def state_is_on_a_volume(command, pod):
    """A state file lies where the pod has a claim."""
    kind, _, path = (option(command, "--state") or "memory").partition(":")
    claimed = {volume["name"] for volume in pod.get("volumes", []) if "persistentVolumeClaim" in volume}
    folders = [mount["mountPath"] for container in pod["containers"] for mount in container.get("volumeMounts", [])
               if mount["name"] in claimed]
    return kind != "sqlite" or os.path.dirname(path) in folders


def check_restarts_in_place(documents):
    """What JobSet asks of its strategy, and that a code restarts a pod or fails its Job, not both."""
    for document in documents:
        if document.get("spec", {}).get("failurePolicy", {}).get("restartStrategy") != "InPlaceRestart":
            continue
        for _, template, job in pods([document]):
            if job["backoffLimit"] != 2**31 - 1 or job.get("podReplacementPolicy") != "Failed":
                raise Wrong("InPlaceRestart needs backoffLimit 2147483647 and podReplacementPolicy Failed")
            agent, = [container for container in template["spec"]["initContainers"]]
            code, = [entry["value"] for entry in agent["env"] if entry["name"] == "IN_PLACE_RESTART_EXIT_CODE"]
            if agent["restartPolicyRules"][0]["exitCodes"] != {"operator": "In", "values": [int(code)]}:
                raise Wrong("the agent's rule does not name the code it exits with")
            hopeless = set(job["podFailurePolicy"]["rules"][0]["onExitCodes"]["values"])
            for container in template["spec"]["containers"]:
                kept = container["restartPolicyRules"][0]["exitCodes"]
                if kept["operator"] != "NotIn" or set(kept["values"]) != hopeless | {0}:
                    raise Wrong("a code both restarts the pod and fails its Job, or does neither")


# ---- The commands, by the programs themselves ----

def take(command, variables):
    """The build's program reads the command, with nothing but these variables."""
    program, *arguments = command
    extra = "--check" if program == "dlaunchd" else "--dry-run"
    done = subprocess.run([f"{BUILD}/bin/{program}", extra, *arguments], capture_output=True, text=True, timeout=60,
                          cwd="/tmp", env={"PATH": os.environ["PATH"], **variables})
    # The images have the programs; this host has not.
    elsewhere = program == "dlaunch" and done.returncode == 127 and "there is no " in done.stderr
    elsewhere |= program == "dlaunchd" and "this build has no SQLite" in done.stderr
    if done.returncode != 0 and not elsewhere:
        raise Wrong(f"{' '.join(command)}: {done.stderr}")
    return done.stdout


def expect_value(said, name, value):
    if not re.search(rf"^ *{name} +{re.escape(value)}( |$)", said, re.MULTILINE):
        raise Wrong(f"{name} is not {value} in:\n{said}")


def check_commands():
    secret = f"{BUILD}/tests/manifests_credentials"
    os.makedirs(secret, exist_ok=True)
    with open(f"{secret}/dlaunchd.secret", "w") as file:
        file.write("%064x" % 123456789)
    with open(f"{secret}/dlaunchd.operators", "w") as file:
        file.write("ada %064x" % 987654321)
    pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "JOB_COMPLETION_INDEX": "1"}
    command_of = {}
    for file in sorted(os.listdir(KUBERNETES)):
        for document, template, _ in pods(read(f"{KUBERNETES}/{file}")):
            command_of[file] = [word if word != "./train" else "/bin/true"
                                for word in template["spec"]["containers"][0]["command"]]
    said = take(command_of["indexed-job.yaml"], {**pod, "HOSTNAME": "train-1.train.space.svc.cluster.local"})
    expect_value(said, "node-rank", "1")
    expect_value(said, "nnodes", "3")
    for file in ("jobset.yaml", "jobset-in-place.yaml"):
        said = take(command_of[file], {**pod, "HOSTNAME": "llm-workers-0-1.llm.space.svc.cluster.local",
                                       "JOBSET_NAME": "llm", "REPLICATED_JOB_NAME": "workers"})
        expect_value(said, "node-rank", "1")
        expect_value(said, "rdzv-id", "llm-workers")
    said = take(command_of["trainer.yaml"], {
        **pod, "HOSTNAME": "train-node-0-1", "PET_NNODES": "3", "PET_NPROC_PER_NODE": "4", "PET_NODE_RANK": "1",
        "PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": "29400"})
    expect_value(said, "nnodes", "3")
    expect_value(said, "nproc-per-node", "4")
    take(command_of["dlaunchd.yaml"], {"CREDENTIALS_DIRECTORY": secret})
    compose = read(f"{SOURCE}/packaging/container/compose.yaml")[0]["services"]
    take(compose["dlaunchd"]["entrypoint"], {"CREDENTIALS_DIRECTORY": secret})
    words = [word.replace("dlaunchd:29400", "127.0.0.1:29400") for word in compose["node-0"]["command"]]
    take(["dlaunch", *words], {"CREDENTIALS_DIRECTORY": secret})


# ---- The other files ----

HEALTH = Fields(test_=Each(WORD), interval=Text("[0-9]+s"), timeout=Text("[0-9]+s"), retries=Number(1))
SERVICE = Fields(
    image_=WORD, entrypoint=Each(WORD), command=Each(WORD), environment=Table(WORD, "[A-Z_]+"), secrets=Each(WORD),
    depends_on=Table(Fields(condition_=OneOf("service_healthy"))), healthcheck=HEALTH, read_only=Truth(),
    cap_drop=Each(OneOf("ALL")), security_opt=Each(WORD))
COMPOSE = Fields(
    name_=NAME,
    **{"x-node": SERVICE},
    services_=Table(SERVICE),
    secrets_=Table(Fields(file_=WORD)))


def check_compose(compose):
    COMPOSE.check(compose, "compose")
    services = compose["services"]
    for name, service in services.items():
        for other in service.get("depends_on", {}):
            if "healthcheck" not in services.get(other, {}):
                raise Wrong(f"{name} waits for the health of {other}, which has none")
        for secret in service.get("secrets", []):
            if secret not in compose["secrets"]:
                raise Wrong(f"{name}: there is no secret {secret}")


def check_sbatch(path):
    subprocess.run(["bash", "-n", path], check=True)
    text = open(path).read()
    given = dict(re.findall(r"^#SBATCH --([a-z-]+)(?:=(.*))?$", text, re.MULTILINE))
    known = {"job-name", "nodes", "ntasks-per-node", "cpus-per-task", "time", "signal", "requeue"}
    if set(given) != known or re.search(r"^#SBATCH(?! --[a-z])", text, re.MULTILINE):
        raise Wrong(f"{path}: {sorted(set(given) ^ known)}")
    if given["ntasks-per-node"] != "1":
        raise Wrong("dlaunch is started once on a node")


def check_wrong_ones():
    """The checks above find what is put in by hand."""
    documents = read(f"{KUBERNETES}/indexed-job.yaml")

    def refused(change, expected, where=documents):
        wrong = copy.deepcopy(where)
        change(wrong)
        try:
            check_forms(wrong)
            check_fit(wrong)
        except Wrong as why:
            if expected not in str(why):
                raise AssertionError(f"'{why}' does not say '{expected}'") from None
            return
        raise AssertionError(f"not found: {expected}")

    refused(lambda d: d[1]["spec"].update(completion=3), "unknown key 'completion'")
    refused(lambda d: d[1]["spec"].update(completions="3"), "is not a number")
    refused(lambda d: d[1]["spec"].pop("template"), "template is missing")
    refused(lambda d: d[0]["metadata"].update(name="other"), "no headless Service")
    refused(lambda d: d[0]["spec"]["selector"].update({"batch.kubernetes.io/job-name": "x"}), "there is no Job x")
    refused(lambda d: d[1]["spec"].update(completions=4), "--nnodes 3")
    refused(lambda d: d[1]["spec"]["template"]["spec"].update(terminationGracePeriodSeconds=50), "leaves no time")
    refused(lambda d: d[1]["spec"]["template"]["metadata"]["labels"].clear(), "selects no pod")
    in_place = read(f"{KUBERNETES}/jobset-in-place.yaml")
    refused(lambda d: d[3]["spec"]["replicatedJobs"][0]["template"]["spec"].update(backoffLimit=0),
            "InPlaceRestart needs", in_place)
    refused(lambda d: d[0]["metadata"].update(name="x"), "there is no ServiceAccount", in_place)
    durable = read(f"{KUBERNETES}/dlaunchd.yaml")
    refused(lambda d: d[0]["metadata"].update(name="x"), "there is no PersistentVolumeClaim dlaunchd", durable)
    refused(lambda d: d[0]["spec"].update(accessModes=["ReadWriteMany"]), "ReadWriteOnce", durable)
    refused(lambda d: d[2]["spec"].update(replicas=2), "two pods would have", durable)
    refused(lambda d: d[2]["spec"]["template"]["spec"]["volumes"].pop(), "there is no volume state", durable)
    refused(lambda d: d[2]["spec"]["template"]["spec"]["containers"][0]["command"].__setitem__(-1, "sqlite:/tmp/x"),
            "on no claim", durable)
    try:
        list(yaml.load_all("a: 1\na: 2\n", Loader=Strict))
    except Wrong as why:
        assert "stands twice" in str(why)
    else:
        raise AssertionError("a key that stands twice was not found")


def main():
    for file in sorted(os.listdir(KUBERNETES)):
        try:
            documents = read(f"{KUBERNETES}/{file}")
            check_forms(documents)
            check_fit(documents)
        except Wrong as why:
            raise Wrong(f"{file}: {why}") from None
        print(f"{file}: {', '.join(document['kind'] for document in documents)}")
    check_compose(read(f"{SOURCE}/packaging/container/compose.yaml")[0])
    check_sbatch(f"{SOURCE}/packaging/slurm/dlaunch.sbatch")
    check_wrong_ones()
    check_commands()
    print("names fit together, and the programs take the commands")


if __name__ == "__main__":
    try:
        main()
    except Wrong as why:
        sys.exit(f"manifests_test: {why}")
