"""Fabric and jobs documents, shrunk to what namespaces on a few cores can carry.

Rates and sizes are divided by one factor and times multiplied by another, so that a job shares links
in the same proportions and an iteration lasts `slower` times as long. Controller, switches, hosts
and the embedded fabric all read the same shrunk documents.
"""

import ipaddress
import json
import subprocess
import tomllib


def expanded(crux, fabric):
    """The explicit form of a fabric document."""
    command = [crux, "fabric", "expand", str(fabric), "--format", "json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def with_ipv6(fabric, folder):
    """A fabric document in TOML as one with IPv6 addresses, in a new file."""
    document = tomllib.loads(fabric.read_text())
    document["clos"]["ipv6"] = True
    target = folder / f"{fabric.stem}-ipv6.json"
    target.write_text(json.dumps(document))
    return target


def shrink(fabric, jobs, rate_scale, slower):
    """Divides rates by `rate_scale`; iterations take `slower` times as long."""
    for link in fabric["links"]:
        link["gbps"] /= rate_scale
    for job in jobs["jobs"]:
        job["compute_seconds"] *= slower
        for flow in job.get("flows", []):
            flow["bytes"] = round(flow["bytes"] * slower / rate_scale)
        if "collective" in job:
            job["collective"]["bytes"] *= slower / rate_scale


def give_addresses(fabric, first_port):
    """A P4Runtime address on the loopback for every switch."""
    for index, switch in enumerate(fabric["switches"]):
        switch["p4runtime"] = f"127.0.0.1:{first_port + index}"


def mac_of(host, nic):
    """The Ethernet address of a NIC, by the rule of the fabric document."""
    macs = host.get("macs") or []
    if nic < len(macs):
        return macs[nic]
    octets = ipaddress.ip_address(host["ips"][nic]).packed
    if len(octets) == 4:
        octets = b"\x02\x00" + octets
    else:
        octets = b"\x06" + octets[6:8] + octets[13:]
    return octets.hex(":")


def ends(link):
    """((name, port), (name, port)) of a link."""
    pairs = (link[end].rsplit(":", 1) for end in "ab")
    return tuple((name, int(port)) for name, port in pairs)
