#!/usr/bin/env python3
"""Asks `crux place` where gated jobs should run, and opens their gates.

An example for pods with the scheduling gate crux.fabric/place (jobset.yaml). Once as many pods of
a JobSet wait as their annotation place.crux.fabric/pods says, they get a node affinity for the hosts that the placement with the
shortest iteration has, and lose the gate. If crux has no answer, they lose it all the same. Run it
every few seconds, as a user that may list and patch pods:

    place-gated.py --model gpt-24l/A100 -- --controller 10.0.0.1:9300 --placement crius

What follows `--` goes to `crux place`. Needs kubectl and crux on the path.
"""

import argparse
import json
import subprocess

GATE = "crux.fabric/place"
JOB = "jobset.sigs.k8s.io/jobset-name"
SIZE = "place.crux.fabric/pods"
RESOURCE = "nvidia.com/gpu"


def gated_jobs(pods):
    """Gated pods by namespace and JobSet."""
    jobs = {}
    for pod in pods:
        gates = [gate["name"] for gate in pod["spec"].get("schedulingGates", [])]
        name = pod["metadata"].get("labels", {}).get(JOB)
        if GATE in gates and name:
            jobs.setdefault((pod["metadata"]["namespace"], name), []).append(pod)
    return jobs


def gpus(pod):
    limits = (box.get("resources", {}).get("limits", {}) for box in pod["spec"]["containers"])
    return sum(int(limit.get(RESOURCE, 0)) for limit in limits)


def best_hosts(count, model, arguments):
    """Hosts of the best placement; none if crux has no answer."""
    command = ["crux", "place", "--gpus", str(count), "--model", model, "--format", "json"]
    try:
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=10)
        advices = json.loads(done.stdout) if done.returncode == 0 else []
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return []
    placed = [advice for advice in advices if advice.get("gpus")]
    best = min(placed, key=lambda advice: advice["iteration_seconds"], default={"gpus": {}})
    return sorted(best["gpus"])


def patch(pod, hosts):
    """Opens the gate, with an affinity for these hosts."""
    gates = [gate for gate in pod["spec"]["schedulingGates"] if gate["name"] != GATE]
    steps = [{"op": "replace", "path": "/spec/schedulingGates", "value": gates}]
    if hosts:
        term = {"key": "kubernetes.io/hostname", "operator": "In", "values": hosts}
        required = {"nodeSelectorTerms": [{"matchExpressions": [term]}]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
        steps.insert(0, {"op": "add", "path": "/spec/affinity", "value": affinity})
    meta = pod["metadata"]
    subprocess.run(["kubectl", "patch", "pod", meta["name"], "--namespace", meta["namespace"],
                    "--type", "json", "--patch", json.dumps(steps)], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="as crux place takes it")
    parser.add_argument("arguments", nargs="*", help="arguments of crux place")
    arguments = parser.parse_args()
    listed = subprocess.run(["kubectl", "get", "pods", "--all-namespaces", "--output", "json"],
                            check=True, capture_output=True, text=True)
    for pods in gated_jobs(json.loads(listed.stdout)["items"]).values():
        size = pods[0]["metadata"].get("annotations", {}).get(SIZE)
        if size is not None and len(pods) < int(size):
            continue
        count = sum(gpus(pod) for pod in pods)
        hosts = best_hosts(count, arguments.model, arguments.arguments) if count else []
        for pod in pods:
            patch(pod, hosts)


if __name__ == "__main__":
    main()
