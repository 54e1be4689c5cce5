"""Crux in your own Mininet script: switches, hosts, a controller, Clos topologies and training jobs.

    net = Mininet(topo=ClosTopo(), switch=CruxSwitch, host=CruxHost, controller=CruxController)

Mininet itself is not on an index of Python packages; install Debian's package mininet.
"""

from .controller import ControllerProgram, CruxController
from .hosts import CruxHost
from .switches import Bmv2Switch, CruxSwitch, P4Switch
from .topologies import ClosTopo, FabricTopo
from .training import JobPrograms, TrainingRun

__all__ = [
    "Bmv2Switch",
    "ClosTopo",
    "ControllerProgram",
    "CruxController",
    "CruxHost",
    "CruxSwitch",
    "FabricTopo",
    "JobPrograms",
    "P4Switch",
    "TrainingRun",
]
