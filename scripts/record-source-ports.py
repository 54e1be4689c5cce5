#!/usr/bin/env python3
"""Records the UDP source ports of Soft RoCE beside the numbers of its queue pairs.

Two guests of QEMU run Debian's kernel with rdma_rxe and send over many connections with perftest,
while QEMU captures their packets. The result is a table of the numbers of both ends and the ports of
the packets in each direction, which the tests of crux agent compare with its formula. With --crux,
it also says how many of these connections `crux agent --queue-pairs` lists with that port there.

Needs root, debootstrap, qemu-system-x86_64 and e2fsprogs; packages come from the archive that this
machine uses. Takes about six minutes, and a few more where the processor is emulated.

Example:
    scripts/record-source-ports.py --crux target/release/crux --pairs 1000 --output ports.csv
"""

import argparse
import json
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time

PACKAGES = "linux-image-amd64,perftest,rdma-core,iproute2,iputils-ping,kmod,ibverbs-providers"
ROCE_PORT = 4791

# What a guest runs. Other queue pairs of the first guest make the numbers of both ends differ.
GUEST = r"""#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc; mount -t sysfs sys /sys
for word in $(cat /proc/cmdline); do
  case $word in number=*) number=${word#number=};; pairs=*) pairs=${word#pairs=};; esac
done
modprobe virtio_net; modprobe rdma_rxe; modprobe ib_uverbs
device=$(ls /sys/class/net | grep -v lo | head -1)
ip link set lo up; ip addr add 10.9.0.$number/24 dev $device; ip link set $device up
rdma link add rxe0 type rxe netdev $device
ulimit -l unlimited
common="-d rxe0 -x 1 -m 1024"
if [ $number = 1 ]; then
  ib_write_bw $common -q 37 -D 120 -p 19999 > /dev/null 2>&1 &
  sleep 2; ib_write_bw $common -q 37 -D 120 -p 19999 10.9.0.1 > /dev/null 2>&1 &
  sleep 4; peer=
else
  until ping -c 1 -W 1 10.9.0.1 > /dev/null 2>&1; do sleep 1; done
  sleep 10; peer=10.9.0.1
fi
ib_write_bw $common -q $pairs -D 30 -t 5 -s 64 $peer > /tmp/numbers 2>&1 &
measured=$!
echo '[]' > /tmp/listed
while kill -0 $measured 2> /dev/null; do
  [ -x /crux ] && /crux agent --queue-pairs > /tmp/now 2> /tmp/error && mv /tmp/now /tmp/listed
  sleep 0.5
done
echo; echo KERNEL $(uname -r); cat /tmp/numbers; echo LISTED; cat /tmp/listed; echo; echo END; cat /tmp/error
echo o > /proc/sysrq-trigger; sleep 9
"""


def archive():
    """The archive that apt uses for Debian's main packages."""
    targets = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME)", "Created-By: Packages",
         "Component: main", "Origin: Debian"],
        check=True, capture_output=True, text=True,
    ).stdout.split()
    return targets[0], targets[1].removesuffix("-updates").removesuffix("-security")


def build_image(folder, crux):
    """A disk with Debian, its kernel, and what a guest runs."""
    uri, codename = archive()
    root = folder / "root"
    subprocess.run(
        ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", codename, root, uri],
        check=True, stdout=subprocess.DEVNULL,
    )
    (root / "guest.sh").write_text(GUEST)
    (root / "guest.sh").chmod(0o755)
    if crux:
        shutil.copy(crux, root / "crux")
    image = folder / "disk.img"
    subprocess.run(["mke2fs", "-q", "-t", "ext4", "-d", root, image, "2500M"], check=True)
    return root, image


def start_guest(folder, root, image, number, pairs):
    """Starts a guest; the first one waits for the second."""
    kernel, initrd = (next((root / "boot").glob(f"{name}-*")) for name in ("vmlinuz", "initrd.img"))
    link = "listen=127.0.0.1:7901" if number == 1 else "connect=127.0.0.1:7901"
    command = [
        "qemu-system-x86_64", "-accel", "tcg", "-cpu", "max", "-m", "1500", "-nographic",
        "-no-reboot", "-snapshot", "-kernel", kernel, "-initrd", initrd, "-append",
        f"root=/dev/vda rw console=ttyS0 quiet init=/guest.sh number={number} pairs={pairs}",
        "-drive", f"file={image},format=raw,if=virtio", "-netdev", f"socket,id=net,{link}",
        "-device", f"virtio-net-pci,netdev=net,mac=52:54:00:00:00:0{number}", "-object",
        f"filter-dump,id=dump,netdev=net,file={folder}/{number}.pcap,maxlen=128",
    ]
    log = open(folder / f"{number}.log", "wb")
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def captured_ports(capture):
    """The source ports of each (sender, queue pair of the receiver) in a capture."""
    ports, at = {}, 24
    while at + 16 <= len(capture):
        (length,) = struct.unpack_from("<I", capture, at + 8)
        frame = capture[at + 16 : at + 16 + length]
        at += 16 + length
        is_udp = len(frame) >= 54 and frame[12:14] == b"\x08\x00" and frame[23] == 17
        if not is_udp or frame[36:38] != ROCE_PORT.to_bytes(2, "big"):
            continue
        key = (frame[29], int.from_bytes(frame[47:50], "big"))
        ports.setdefault(key, set()).add(int.from_bytes(frame[34:36], "big"))
    return ports


def the_one(ports):
    """The only port of a connection."""
    if len(ports) != 1:
        raise SystemExit(f"a connection has the ports {sorted(ports)}; one was expected")
    return next(iter(ports))


def main():
    """Runs the guests and writes the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=1000, help="connections [default: 1000]")
    parser.add_argument("--crux", type=pathlib.Path, help="program to run in the guests as well")
    parser.add_argument("--output", type=pathlib.Path, required=True, help="table to write (CSV)")
    parser.add_argument("--timeout", type=int, default=900, help="seconds for both guests")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=pathlib.Path.cwd()) as name:
        folder = pathlib.Path(name)
        print("building a guest", file=sys.stderr)
        root, image = build_image(folder, arguments.crux)
        print("running two guests", file=sys.stderr)
        guests = [start_guest(folder, root, image, 1, arguments.pairs)]
        # The cable is a TCP connection, and the second guest tries it only once.
        time.sleep(3)
        guests.append(start_guest(folder, root, image, 2, arguments.pairs))
        try:
            for guest in guests:
                guest.wait(timeout=arguments.timeout)
        finally:
            for guest in guests:
                guest.kill()
        log = (folder / "2.log").read_text(errors="replace").replace("\r", "")
        ports = captured_ports((folder / "2.pcap").read_bytes())
    print(next(line for line in log.splitlines() if line.startswith("KERNEL")), file=sys.stderr)
    ends = [
        [int(found, 16) for found in re.findall(rf"{side} address:.*QPN 0x([0-9a-f]+)", log)]
        for side in ("local", "remote")
    ]
    if not len(ends[0]) == len(ends[1]) == arguments.pairs:
        raise SystemExit(f"{len(ends[0])} connections, not {arguments.pairs}; the guest said:\n{log}")
    rows = [
        (local, remote, the_one(ports.get((2, remote), ())), the_one(ports.get((1, local), ())))
        for local, remote in zip(*ends)
    ]
    lines = ["local,remote,sent_from,received_from"] + [",".join(map(str, row)) for row in rows]
    arguments.output.write_text("\n".join(lines) + "\n")
    print(f"{len(rows)} connections recorded in {arguments.output}")
    if arguments.crux:
        listed = json.loads(log.split("LISTED\n", 1)[1].split("\nEND", 1)[0])
        flows = {(f["local_number"], f["remote_number"]): f["udp_src_port"] for f in listed["flows"]}
        hits = sum(flows.get((local, remote)) == port for local, remote, port, _ in rows)
        print(f"crux agent listed {hits} of them with their port")


if __name__ == "__main__":
    main()
