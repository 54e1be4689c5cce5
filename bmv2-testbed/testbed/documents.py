"""Fabric and jobs documents, shrunk to what namespaces on a few cores can carry.

Rates and sizes are divided by one factor and times multiplied by another, so that a job shares links
in the same proportions and an iteration lasts `slower` times as long. Controller, switches, hosts
and the embedded fabric all read the same shrunk documents.
"""

import json
import tomllib

from crux_mininet.documents import ends, expanded, scale_jobs

__all__ = ["ends", "expanded", "give_addresses", "shrink", "with_ipv6"]


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
    scale_jobs(jobs, rate_scale, slower)


def give_addresses(fabric, first_port):
    """A P4Runtime address on the loopback for every switch."""
    for index, switch in enumerate(fabric["switches"]):
        switch["p4runtime"] = f"127.0.0.1:{first_port + index}"
