"""The switch of finsy's example networks: `crux switch` in the place of the image's BMv2.

Read by `mn --custom`; the examples want the first switch at port 50001, the second at 50002.
"""

import itertools

from crux_mininet import CruxSwitch


class ExampleSwitch(CruxSwitch):
    """A switch with the address, the device id and the port of the controller that examples have."""

    grpc_ports = itertools.count(50001)

    def __init__(self, name, config=None, **options):
        self.cpu_port = str((config or {}).get("cpu_port", 255))
        address = f"127.0.0.1:{next(self.grpc_ports)}"
        super().__init__(name, device_id=1, p4runtime=address, **options)

    def own_flags(self):
        return ["--dialect", "bmv2"]

    def command(self):
        command = super().command()
        command[command.index("--cpu-port") + 1] = self.cpu_port
        return command


switches = {"bmv2": ExampleSwitch, "stratum": ExampleSwitch}
