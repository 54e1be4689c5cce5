#!/usr/bin/env python3
"""What the control plane sends, and its share of the bandwidth of the fabric.

`scripts/measure-control-bandwidth.py target/release/crux [--fabric FILE ...] [--setup NAME ...]`
starts every switch, every agent and the controller of a fabric as a process of its own, and counts
what passes between them (bandwidth/management_network.py). Jobs report as live ones do. Three
periods are counted: the start, --seconds of rest in which the jobs run, and --seconds in which a
job leaves or arrives every 5 s and a cable fails and works again.

A setup is `default` (the defaults of the controller, in the clear), one or more of counters,
learning, discovery, tls, etcd and without-gnmi joined by +, or `all`, the first five of
these. Needs iproute2, util-linux, and root or user namespaces; etcd for that feature.
"""

import argparse
import datetime
import json
import os
import pathlib
import shutil
import sys
import tempfile
import time

TREE = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "bandwidth"))
import emulated_jobs  # noqa: E402
import management_network  # noqa: E402

FABRICS = [TREE / "topology/fabrics" / name for name in ("lab.toml", "crux-testbed.toml")]
# Preamble, check sequence and gap of a frame of Ethernet, which no interface counts.
FRAME_BYTES = 24
CHANGE_SECONDS = 5
# More than the time between two full reads of a switch.
SETTLE_SECONDS = 15
MANAGEMENT_GBPS = 1.0
# Defaults of reconcile.check_entries and reconcile.interval_ms.
CHECK_ENTRIES, FULL_SECONDS = 500, 10
SAMPLE_SECONDS = 3.7


class Period:
    """Counts from its start to its end."""

    def __init__(self, plane):
        self.plane, self.begun = plane, time.monotonic()
        self.before = plane.read_counters()

    def end(self):
        seconds = time.monotonic() - self.begun
        counted, services = self.plane.read_counters(), {}
        for (service, number), values in sorted(counted.items()):
            before = self.before.get((service, number), (0, 0, 0, 0))
            received, in_frames, sent, out_frames = (b - a for a, b in zip(before, values))
            services.setdefault(service, []).append({
                "received": received + FRAME_BYTES * in_frames,
                "sent": sent + FRAME_BYTES * out_frames,
                "frames": in_frames + out_frames,
            })
        return {"seconds": seconds, "services": services}


def measure(arguments, fabric, setup, folder):
    """Periods of one fabric with one setup."""
    features = management_network.ALL if setup == "all" else setup.split("+")
    plane = management_network.ControlPlane(
        folder, arguments.crux, fabric, () if setup == "default" else features
    )
    report(f"{plane.fabric['name']}, {setup}: {len(plane.switches)} switches, "
           f"{len(plane.hosts)} hosts")
    plane.build()
    plane.start_switches()
    begin = Period(plane)
    plane.start_controllers()
    plane.verified()
    plane.start_agents()
    jobs = emulated_jobs.EmulatedJobs(plane, arguments.share, arguments.seed)
    jobs.fill()
    plane.verified(jobs.running)
    start = begin.end()
    report(f"verified with {len(jobs.running)} jobs after {start['seconds']:.1f} s")
    time.sleep(SETTLE_SECONDS)
    rest = measure_rest(plane, arguments.seconds)
    rest["jobs"], rest["leaders"] = len(jobs.running), leaders(plane, jobs)
    rest["entries"] = [row["verified_entries"] for row in plane.verified(jobs.running)]
    change = measure_changes(plane, jobs, arguments.seconds)
    jobs.stop()
    return describe_fabric(plane) | {
        "setup": setup, "hosts_with_jobs": arguments.share, "seed": arguments.seed,
        "periods": {"start": start, "rest": rest, "change": change},
    }


def measure_rest(plane, seconds):
    """Also how often a switch is read: twice the mean time since it last was, if it was."""
    period, ages = Period(plane), []
    while (left := period.begun + seconds - time.monotonic()) > 0:
        time.sleep(min(left, SAMPLE_SECONDS))
        ages += [row["verified_age_seconds"] for row in plane.ask("/v1/switches")]
    known = [age for age in ages if age is not None]
    lost = len(ages) - len(known)
    return period.end() | {"check_seconds": 2 * sum(known) / len(known), "lost": lost / len(ages)}


def leaders(plane, jobs):
    """Numbers of the hosts whose agents report a job."""
    return sorted(plane.hosts[job.hosts[0]] for job in jobs.running.values())


def measure_changes(plane, jobs, seconds):
    """Jobs leave and arrive in turn; a cable fails after a third and works after two thirds."""
    period, cable = Period(plane), plane.switch_links()[0]
    names = {f"{cable['a']}>{cable['b']}", f"{cable['b']}>{cable['a']}"}
    steps = int(seconds / CHANGE_SECONDS)
    # Nothing else reports the state of a port here.
    has_ports = not {"without-gnmi"} <= set(plane.features) or "discovery" in plane.features
    for step in range(steps):
        if has_ports and step == steps // 3:
            plane.set_cable(cable, "down")
        if has_ports and step == 2 * steps // 3:
            states = {row["state"] for row in plane.ask("/v1/links") if row["link"] in names}
            assert states == {"down"}, f"{names} should be down: {states}"
            plane.set_cable(cable, "up")
        jobs.end_one() if step % 2 == 0 else jobs.fill()
        time.sleep(max(0, period.begun + (step + 1) * CHANGE_SECONDS - time.monotonic()))
    counted = period.end()
    jobs.fill()
    plane.verified(jobs.running)
    return counted | {"job_changes": steps, "cable_changes": 2 * has_ports}


def describe_fabric(plane):
    links = plane.switch_links()
    hosts = [link["gbps"] for link in plane.fabric["links"] if link not in links]
    tiers = {switch["tier"] for switch in plane.fabric["switches"]}
    return {
        "fabric": plane.fabric["name"], "switches": len(plane.switches),
        "hosts": len(plane.hosts), "cables": len(links),
        "fabric_gbps": sum(link["gbps"] for link in links), "host_gbps": min(hosts),
        "hops": 2 * (len(tiers) - 1), "ports": sum(len(ports) for ports in plane.ports.values()),
    }


def report(text):
    print(text, file=sys.stderr, flush=True)


def rates(period, service):
    """Bits a second of a service: received here, sent from here."""
    rows = period["services"].get(service, [])
    return [8 * sum(row[way] for row in rows) / period["seconds"] for way in ("received", "sent")]


def totals(period):
    """Bits a second of all services, by direction."""
    both = [rates(period, service) for service in period["services"]]
    return [sum(way) for way in zip(*both)]


def shares(result, period):
    """What the traffic is of the fabric, of a host link and of a management port."""
    received, sent = totals(period)
    switches = [
        max(sum(part[way] for part in parts) for way in ("received", "sent"))
        for parts in zip(period["services"]["P4Runtime"], period["services"]["gNMI"])
    ]
    fabric = (received + sent) / (2e9 * result["fabric_gbps"])
    busiest = 8 * max(switches) / period["seconds"]
    return {
        "fabric": fabric,
        "fabric_in_band": fabric * result["hops"],
        "controller_link": max(received, sent) / (1e9 * result["host_gbps"]),
        "management_port": busiest / (1e9 * MANAGEMENT_GBPS),
    }


def sum_rows(rows):
    """Counts of a service over its interfaces, and the most of one."""
    return {"interfaces": len(rows)} | {
        name: {"sum": sum(row[name] for row in rows), "most": max(row[name] for row in rows)}
        for name in ("received", "sent", "frames")
    }


def reporter_rates(result):
    """Bits a second, both ways, of a job and of a host at rest."""
    rest = result["periods"]["rest"]
    rows = [8 * (row["received"] + row["sent"]) / rest["seconds"]
            for row in rest["services"]["telemetry"]]
    leading = set(rest["leaders"])
    idle = [rate for number, rate in enumerate(rows) if number not in leading]
    host = sum(idle) / len(idle) if idle else 0.0
    jobs = sum(rows[number] for number in leading) - host * len(leading)
    return jobs / rest["jobs"], host


def add_figures(result):
    """What follows from the counts."""
    for period in result["periods"].values():
        period["bits_per_second"] = {
            service: rates(period, service) for service in period["services"]
        }
        period["shares"] = shares(result, period)
    rest = result["periods"]["rest"]
    job, host = reporter_rates(result)
    checked = sum(min(entries, CHECK_ENTRIES) for entries in rest["entries"])
    result["entries_read_per_second"] = (
        checked / rest["check_seconds"] + sum(rest["entries"]) / FULL_SECONDS
    )
    result["rest_bytes_per_entry"] = (
        sum(rates(rest, "P4Runtime")) / 8 / result["entries_read_per_second"]
    )
    result["rest_bits_per_second"] = {
        "switch": sum(rates(rest, "P4Runtime")) / result["switches"],
        "port": sum(rates(rest, "gNMI")) / result["ports"], "job": job, "host": host,
    }
    return result


def print_result(result):
    rest = result["periods"]["rest"]
    entries = rest["entries"]
    print(f"\n{result['fabric']}, {result['setup']}: {result['switches']} switches of "
          f"{min(entries)} to {max(entries)} entries, {result['ports']} ports, "
          f"{result['hosts']} hosts, {rest['jobs']} jobs at rest")
    print(f"  {'kbit/s, from and to the controller':<36}" + "".join(
        f"{name:>22}" for name in result["periods"]))
    for service in rest["services"]:
        cells = [period["bits_per_second"][service] for period in result["periods"].values()]
        print(f"  {service:<36}" + "".join(
            f"{a / 1e3:>12.1f}{b / 1e3:>10.1f}" for a, b in cells))
    for key, name in (
        ("fabric", f"of {result['fabric_gbps'] / 1e3:g} Tb/s between switches"),
        ("fabric_in_band", f"if every byte takes {result['hops']} of these links"),
        ("controller_link", f"of one host link of {result['host_gbps']:g} Gb/s"),
        ("management_port", f"of {MANAGEMENT_GBPS:g} Gb/s, the busiest switch"),
    ):
        print(f"  {name:<36}" + "".join(
            f"{100 * period['shares'][key]:>20.6f} %" for period in result["periods"].values()))
    each = {key: f"{value / 1e3:.2f}" for key, value in result["rest_bits_per_second"].items()}
    start = result["periods"]["start"]
    megabytes = sum(totals(start)) * start["seconds"] / 8e6
    print(f"  at rest, kbit/s both ways: {each['switch']} of P4Runtime a switch, {each['port']} of "
          f"gNMI a port, {each['job']} a job,\n  {each['host']} a host whose agent has no job to "
          f"report; a check of a switch about every {rest['check_seconds']:.1f} s\n"
          f"  about {result['entries_read_per_second']:.0f} entries read a second, P4Runtime takes "
          f"{result['rest_bytes_per_entry']:.0f} B for each\n"
          f"  start: {megabytes:.1f} MB in {start['seconds']:.1f} s")
    if rest["lost"] > 0:
        print(f"  warning: switches were not verified in {100 * rest['lost']:.1f} % of the samples "
              "at rest, so connections were lost: too few processors")


ASSUMPTIONS = f"""
Bytes are those of whole frames with {FRAME_BYTES} B each for preamble, check sequence and gap, and
frames have at most 1,500 bytes of IP. Both directions of the traffic are a share of both directions
of all links between switches, as if every byte took one of them; in-band it takes at most as many
as a path has, and nothing where the control network is separate. One host link is that of an
in-band controller, in its busier direction. With the default setup, another fabric of J jobs, H
hosts and switches with P ports takes (entries read a second) x (bytes of each) + P x (gNMI of a
port) + J x (a job) + H x (a host). Every second min(entries, {CHECK_ENTRIES}) of each switch are
read and every {FULL_SECONDS} s all, at most 50,000 a second of either kind in the whole fabric."""


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("crux", help="the program, built with --release")
    parser.add_argument("--fabric", type=pathlib.Path, action="append", help="a fabric document")
    parser.add_argument("--setup", action="append", help="default, all, or features joined by +")
    parser.add_argument("--seconds", type=float, default=60.0,
                        help="of rest, and of changes; 60 s have each periodic read in full")
    parser.add_argument("--share", type=float, default=0.75, help="of the hosts that have jobs")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=pathlib.Path, help="also write the counts to this file")
    arguments = parser.parse_args()
    arguments.crux = os.path.abspath(arguments.crux)
    arguments.fabric = arguments.fabric or FABRICS
    arguments.setup = arguments.setup or ["default", "all"]
    for setup in arguments.setup:
        unknown = set(setup.split("+")) - {"default", "all", *management_network.FEATURES}
        if unknown:
            parser.error(f"unknown setup: {', '.join(sorted(unknown))}")
        if setup != "default" and "etcd" in setup and shutil.which("etcd") is None:
            parser.error("no program etcd on the path; leave that feature out")
    return arguments


def run_one(arguments):
    """What the run in its own namespaces does: one fabric, one setup."""
    # A path of a Unix socket has at most 108 bytes.
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        result = measure(arguments, arguments.fabric[0], arguments.setup[0], pathlib.Path(folder))
    print(json.dumps(result))


def main():
    arguments = parse_arguments()
    if management_network.is_inside():
        run_one(arguments)
        return
    results = []
    for fabric in arguments.fabric:
        for setup in arguments.setup:
            words = [arguments.crux, "--fabric", str(fabric), "--setup", setup]
            words += ["--seconds", str(arguments.seconds), "--share", str(arguments.share)]
            output = management_network.run_inside([*words, "--seed", str(arguments.seed)])
            results.append(add_figures(json.loads(output)))
            print_result(results[-1])
            if arguments.json:
                write_counts(arguments.json, results)
    print(ASSUMPTIONS)


def write_counts(path, results):
    """Writes all results so far, with the counts of each service added up."""
    summed = []
    for result in results:
        periods = {
            name: period | {"services": {
                service: sum_rows(rows) for service, rows in period["services"].items()
            }}
            for name, period in result["periods"].items()
        }
        summed.append(result | {"periods": periods})
    head = {"date": datetime.date.today().isoformat(), "results": summed}
    path.write_text(json.dumps(head, indent=1) + "\n")


if __name__ == "__main__":
    main()
