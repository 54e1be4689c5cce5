"""The switch of finsy's example networks: `crux switch` in the place of the image's BMv2.

Read by `mn --custom`; the examples want the first switch at port 50001, the second at 50002.
"""

import itertools

from crux_mininet import CruxSwitch


class ExampleSwitch(CruxSwitch):
    """A switch at the address and with the device id that the examples have."""

    grpc_ports = itertools.count(50001)

    def __init__(self, name, config=None, **options):
        address = f"127.0.0.1:{next(self.grpc_ports)}"
        super().__init__(name, device_id=1, p4runtime=address, **options)


switches = {"bmv2": ExampleSwitch, "stratum": ExampleSwitch}
