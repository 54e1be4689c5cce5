"""Fabric and jobs documents: what they say of a network, and the document of a network.

Pure but for `expanded`, which asks the program `crux`.
"""

import ipaddress
import json
import os
import subprocess
import tempfile


def expanded(crux, fabric):
    """The explicit form of a fabric document, which is a file."""
    command = [crux, "fabric", "expand", str(fabric), "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise ValueError(done.stderr.strip())
    return json.loads(done.stdout)


def expanded_clos(crux, name, clos):
    """The explicit form of a Clos with these fields of `[clos]`."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({"name": name, "clos": clos}, file)
        file.flush()
        return expanded(crux, file.name)


def scale_jobs(jobs, rate_scale, slower):
    """Divides sizes by `rate_scale`; iterations take `slower` times as long."""
    for job in jobs["jobs"]:
        job["compute_seconds"] *= slower
        for flow in job.get("flows", []):
            flow["bytes"] = round(flow["bytes"] * slower / rate_scale)
        if "collective" in job:
            job["collective"]["bytes"] *= slower / rate_scale


def mac_of(address):
    """The Ethernet address of a NIC with this IP address, by the rule of the fabric document."""
    octets = ipaddress.ip_address(address).packed
    if len(octets) == 4:
        octets = b"\x02\x00" + octets
    else:
        octets = b"\x06" + octets[6:8] + octets[13:]
    return octets.hex(":")


def ends(link):
    """((name, port), (name, port)) of a link."""
    pairs = (link[end].rsplit(":", 1) for end in "ab")
    return tuple((name, int(port)) for name, port in pairs)


def tiers(hosts, neighbours):
    """The tier of each switch: leaves have hosts, spines have leaves, all others are cores.

    `hosts` are names of hosts, `neighbours` the names beside each switch."""
    leaves = {name for name, beside in neighbours.items() if beside & hosts}
    spines = {name for name, beside in neighbours.items() if beside & leaves} - leaves
    return {
        name: "leaf" if name in leaves else "spine" if name in spines else "core"
        for name in neighbours
    }


def crux_program():
    """The program `crux`, or the one that the environment variable CRUX names."""
    return os.environ.get("CRUX", "crux")
