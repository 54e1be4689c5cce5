#!/usr/bin/python3
"""Every cable between a leaf and a spine fails and heals in turn; pings must arrive all the time."""

import sys
import time

from crux_mininet import Bmv2Switch, ClosTopo, CruxController, CruxHost, CruxSwitch
from mininet.log import setLogLevel
from mininet.net import Mininet

KINDS = {"crux": CruxSwitch, "bmv2": Bmv2Switch}


def main(kind):
    setLogLevel("warning")
    topo = ClosTopo(leaves=4, spines=3, hosts_per_leaf=2)
    net = Mininet(topo=topo, switch=KINDS[kind], host=CruxHost, controller=CruxController)
    cables = [(f"leaf{leaf}", f"spine{spine}") for leaf in range(1, 5) for spine in range(1, 4)]
    lossy = []
    try:
        net.start()
        # A host has no other cable, so it is asked only once its cable works again.
        for ends in [*cables, ("h1", "leaf1")]:
            for state in ("down", "up"):
                net.configLinkStatus(*ends, state)
                time.sleep(2)
                if (state == "up" or ends in cables) and net.pingAll(timeout="1") > 0:
                    lossy.append((*ends, state))
        net.delLinkBetween(*net.get("leaf1", "spine1"))
        time.sleep(2)
        if net.pingAll(timeout="1") > 0:
            lossy.append("leaf1-spine1 removed")
    finally:
        net.stop()
    print(f"{kind}: {len(cables) + 2} failures, pings lost after {lossy or 'none'}")
    return 1 if lossy else 0


sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "crux"))
