"""Turns the offloads of this namespace's interfaces off: `offloads.py INTERFACE ...`.

A packet switch must see packets as they are on a wire: whole, of wire size, with checksums. Asks
the kernel itself (SIOCETHTOOL), so that ethtool need not be installed.
"""

import array
import fcntl
import socket
import struct
import sys

SIOCETHTOOL = 0x8946
# Of linux/ethtool.h; what an interface does not have is refused, which is as good as off.
SET_OFF = {
    "rx checksum": 0x15,
    "tx checksum": 0x17,
    "scatter-gather": 0x19,
    "TSO": 0x1F,
    "GSO": 0x24,
    "GRO": 0x2C,
}


def turn_off(interface):
    """Turns off what this kernel lets us."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for command in SET_OFF.values():
            value = array.array("B", struct.pack("II", command, 0))
            address, _ = value.buffer_info()
            request = struct.pack("16sP8x", interface.encode(), address)
            try:
                fcntl.ioctl(control, SIOCETHTOOL, request)
            except OSError:
                pass


if __name__ == "__main__":
    for name in sys.argv[1:]:
        turn_off(name)
