"""Volumes that the hook counts against what gloo sends between two hosts, which are network
namespaces here. Needs PyTorch, root and `ip`; left out where one is missing."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

HOSTS, PER_HOST = 2, 2
ADDRESSES = ["10.213.0.1", "10.213.0.2"]
PORT = 29_613
LIMIT = 0.05


def missing():
    """Why this cannot run here; none if it can."""
    try:
        import torch  # noqa: F401
    except ImportError:
        return "no PyTorch here"
    if shutil.which("ip") is None or os.geteuid() != 0:
        return "no program ip, or not root"
    return None


def ip(*arguments):
    return subprocess.run(["ip", *arguments], check=True, capture_output=True)


class GlooVolumes(unittest.TestCase):
    def setUp(self):
        reason = missing()
        if reason:
            self.skipTest(reason)
        # Names of this process, so that two runs do not meet.
        self.names = [f"crux{os.getpid() % 100_000}{side}" for side in "ab"]
        for name in self.names:
            try:
                ip("netns", "add", name)
            except subprocess.CalledProcessError:
                self.skipTest("no network namespaces here")
            self.addCleanup(ip, "netns", "delete", name)
        one, other = self.names
        ip("link", "add", one, "netns", one, "type", "veth", "peer", "name", other, "netns", other)
        for name, address in zip(self.names, ADDRESSES):
            inside = ("-n", name, "link", "set")
            ip(*inside, "lo", "up")
            # Large packets: headers count as well.
            ip(*inside, name, "mtu", "65000", "up")
            ip("-n", name, "address", "add", f"{address}/24", "dev", name)

    def test_volumes_are_within_five_percent_of_what_gloo_sends(self):
        ranks, folder = HOSTS * PER_HOST, pathlib.Path(__file__).parent.parent
        processes = []
        for rank in range(ranks):
            name = self.names[rank // PER_HOST]
            command = ["ip", "netns", "exec", name, sys.executable, "-m", "tests.gloo_rank"]
            command += [str(rank), str(ranks), str(PER_HOST), name, f"tcp://{ADDRESSES[0]}:{PORT}"]
            environment = {**os.environ, "GLOO_SOCKET_IFNAME": name, "OMP_NUM_THREADS": "1"}
            pipe = subprocess.PIPE
            process = subprocess.Popen(
                command, env=environment, cwd=folder, stdout=pipe, stderr=pipe, text=True
            )
            self.addCleanup(process.wait)
            self.addCleanup(process.kill)
            processes.append(process)
        output, problems = processes[0].communicate(timeout=120)
        self.assertEqual(processes[0].returncode, 0, problems)
        rows = [json.loads(line) for line in output.splitlines()]
        self.assertEqual(len(rows), 4, problems)
        for row in rows:
            share = row["counted"] / row["carried"] - 1
            print(f"{row['case']}: {share:+.2%} of {row['carried'] / 1e6:.2f} MB that gloo sent")
            self.assertLess(abs(share), LIMIT, row)
        for process in processes[1:]:
            process.communicate(timeout=30)


if __name__ == "__main__":
    unittest.main()
