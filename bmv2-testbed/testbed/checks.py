"""What must be there before a run, each with what to do about it."""

import json
import os
import pathlib
import shutil
import subprocess
import time


def problems(crux, kind, cores_needed):
    """Everything that is in the way, in the words of the one who must mend it."""
    found = []
    if os.geteuid() != 0:
        found.append("not root: namespaces and veth pairs need it; run it with sudo")
    try:
        import mininet.net  # noqa: F401
    except ImportError:
        found.append("no Mininet for /usr/bin/python3: apt-get install mininet")
    for tool, package in (("ip", "iproute2"), ("tc", "iproute2"), ("sysctl", "procps")):
        if shutil.which(tool) is None:
            found.append(f"no {tool}: apt-get install {package}")
    if shutil.which(crux) is None:
        found.append(f"no {crux}: cargo build --release, or give --crux")
    elif kind == "bmv2":
        found += bmv2_problems(crux)
    if not found:
        found += kernel_problems(kind) + headroom_problems(cores_needed)
    return found


def bmv2_problems(crux):
    """What `crux doctor --bmv2` finds wrong with the simple_switch_grpc of this machine."""
    command = [crux, "doctor", "--bmv2", "--format", "json"]
    return json.loads(subprocess.run(command, capture_output=True, text=True).stdout)["problems"]


def kernel_problems(kind):
    """Veth pairs, and for bmv2 the queueing disciplines that shape its ports."""
    names = f"crx{os.getpid() % 100_000}a", f"crx{os.getpid() % 100_000}b"
    pair = ["ip", "link", "add", names[0], "type", "veth", "peer", "name", names[1]]
    made = subprocess.run(pair, capture_output=True, text=True)
    if made.returncode != 0:
        return [f"no veth pairs in this kernel: {made.stderr.strip()}"]
    found = []
    try:
        if kind == "bmv2":
            found += [
                f"this kernel has no {name}: {said}"
                for name, arguments in (
                    ("sch_htb", ["root", "handle", "1:", "htb"]),
                    ("sch_pfifo", ["parent", "1:10", "pfifo", "limit", "20"]),
                )
                if (said := added_qdisc(names[0], arguments)) is not None
            ]
    finally:
        subprocess.run(["ip", "link", "del", names[0]], check=False)
    return found


def added_qdisc(interface, arguments):
    """None if the kernel took it, else what it said."""
    if arguments[0] == "parent":
        rate = ["rate", "1mbit"]
        leaf = ["tc", "class", "add", "dev", interface, "parent", "1:", "classid", arguments[1]]
        subprocess.run([*leaf, "htb", *rate], capture_output=True, check=False)
    command = ["tc", "qdisc", "add", "dev", interface, *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    return None if done.returncode == 0 else done.stderr.strip()


def headroom_problems(cores_needed):
    """Idle processors now, over one second."""
    before = processor_times()
    time.sleep(1)
    idle = idle_cores(before, processor_times())
    if idle < cores_needed:
        return [
            f"{idle:.1f} processor cores are idle and {cores_needed:.1f} are needed: stop other "
            "work, or give --slower a larger number"
        ]
    return []


def processor_times():
    """(idle, total) ticks of all processors since boot."""
    first = pathlib.Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    ticks = [int(tick) for tick in first[:8]]
    return ticks[3] + ticks[4], sum(ticks)


def idle_cores(before, after):
    """Cores that did nothing between two readings."""
    idle, total = after[0] - before[0], after[1] - before[1]
    return os.cpu_count() * idle / max(total, 1)


class Watch:
    """Looks once a second whether processors have anything to spare."""

    # Less than this is idle: some program had to wait for a processor.
    SPARE_CORES = 0.1
    # A run is invalid if it lasted this share of the time.
    SHARE = 0.1

    def __init__(self):
        self.before = processor_times()
        self.idle = []

    def look(self):
        """One second has passed."""
        now = processor_times()
        self.idle.append(idle_cores(self.before, now))
        self.before = now

    def verdict(self):
        """What a report says of the processors."""
        saturated = sum(idle < self.SPARE_CORES for idle in self.idle)
        share = saturated / max(len(self.idle), 1)
        return {
            "seconds": len(self.idle),
            "mean_idle_cores": sum(self.idle) / max(len(self.idle), 1),
            "saturated_share": share,
            "valid": share <= self.SHARE,
        }
