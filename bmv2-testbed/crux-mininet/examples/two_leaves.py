#!/usr/bin/python3
"""A Clos of your own in Mininet: pings, training jobs, and the same jobs on the embedded fabric."""

import pathlib
import sys

from crux_mininet import ClosTopo, CruxController, CruxHost, CruxSwitch, TrainingRun
from mininet.net import Mininet

JOBS = pathlib.Path(__file__).parents[2] / "scenarios" / "lab-jobs.json"


def main():
    topo = ClosTopo(leaves=2, spines=2, hosts_per_leaf=4)
    net = Mininet(topo=topo, switch=CruxSwitch, host=CruxHost, controller=CruxController)
    try:
        net.start()
        lost = net.pingAll()
        run = TrainingRun(net, JOBS, iterations=3)
        here, embedded = run.train(), run.rehearse()
    finally:
        net.stop()
    for job, seconds in here.items():
        print(f"{job}: {seconds:.4f} s, on the embedded fabric {embedded[job]:.4f} s")
    worst = max(abs(here[job] / embedded[job] - 1) for job in embedded)
    print(f"{lost:.0f} % of pings lost; times within {worst:.1%} of the embedded fabric")
    return 0 if lost == 0 and worst < 0.05 else 1


sys.exit(main())
