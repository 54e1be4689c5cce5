"""The messages of crux.telemetry.v1 that a reporter sends, as protobuf bytes; field numbers are
those of controller/api/proto/telemetry.proto.

A message is a dictionary, as on the socket of the agent; missing fields are left out.
"""

import struct


def varint(number):
    """Seven bits a byte, the lowest first."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def integer(field, number):
    return varint(field << 3) + varint(number)


def double(field, number):
    return varint(field << 3 | 1) + struct.pack("<d", number)


def chunk(field, content):
    """Bytes, text, or a message."""
    content = content.encode() if isinstance(content, str) else content
    return varint(field << 3 | 2) + varint(len(content)) + content


def doubles(field, numbers):
    return chunk(field, struct.pack(f"<{len(numbers)}d", *numbers)) if numbers else b""


def encode_report(message):
    """A JobReport from a message of the agent's socket."""
    ((kind, content),) = message.items()
    if kind == "job":
        return chunk(1, announcement(content))
    if kind == "iteration":
        return chunk(2, window(content))
    return chunk(3, chunk(1, content))


def announcement(job):
    encoded = chunk(1, job["id"])
    for field, name in ((2, "tenant"), (3, "model")):
        if job.get(name) is not None:
            encoded += chunk(field, job[name])
    for host, gpus in job["gpus"].items():
        encoded += chunk(4, chunk(1, host) + integer(2, gpus)) + chunk(12, host)
    for host, indices in (job.get("gpu_indices") or {}).items():
        indices = b"".join(varint(gpu) for gpu in indices)
        encoded += chunk(13, chunk(1, host) + chunk(2, chunk(1, indices)))
    for flow in job.get("flows") or []:
        encoded += chunk(5, one_flow(flow))
    if job.get("collective"):
        encoded += chunk(6, collective(job["collective"]))
    if job.get("profile") is not None:
        encoded += chunk(7, job["profile"])
    for field, name in ((8, "flop_per_iteration"), (9, "compute_seconds"), (10, "overlap_from")):
        if job.get(name) is not None:
            encoded += double(field, job[name])
    for sent in job.get("rank_traffic") or []:
        pair = integer(1, sent["src"]) + integer(2, sent["dst"]) + double(3, sent["bytes"])
        if sent.get("overlap_from") is not None:
            pair += double(4, sent["overlap_from"])
        encoded += chunk(14, pair)
    if job.get("can_wait"):
        encoded += integer(15, 1)
    for one in job.get("collectives") or []:
        encoded += chunk(16, collective(one))
    return encoded


def one_flow(flow):
    encoded = chunk(1, flow["src"]) + chunk(2, flow["dst"])
    encoded += integer(3, flow.get("src_nic", 0)) + integer(4, flow.get("dst_nic", 0))
    if flow.get("udp_src_port") is not None:
        encoded += integer(5, flow["udp_src_port"])
    encoded += double(6, flow.get("bytes", 0.0))
    for field, name in ((7, "src_gpu"), (8, "dst_gpu")):
        if flow.get(name) is not None:
            encoded += integer(field, flow[name])
    if flow.get("overlap_from") is not None:
        encoded += double(9, flow["overlap_from"])
    return encoded


def collective(collective):
    encoded = chunk(1, collective["kind"]) + double(2, collective.get("bytes") or 0.0)
    if collective.get("channels") is not None:
        encoded += integer(3, collective["channels"])
    if collective.get("groups"):
        groups = collective["groups"]
        encoded += chunk(4, integer(1, groups["size"]) + integer(2, groups["stride"]))
    if collective.get("overlap_from") is not None:
        encoded += double(5, collective["overlap_from"])
    return encoded


def window(iteration):
    """A window of one iteration, which begins with it."""
    encoded = chunk(1, iteration["job"]) + double(2, iteration["seconds"]) + doubles(3, [0.0])
    encoded += double(4, iteration.get("flop", 0.0))
    encoded += double(5, iteration.get("compute_seconds", 0.0))
    encoded += double(6, iteration.get("communication_seconds", 0.0))
    if iteration.get("bytes") is not None:
        encoded += double(8, iteration["bytes"])
    if iteration.get("slot_offset_seconds") is not None:
        encoded += double(9, iteration["slot_offset_seconds"])
    return encoded


def decode_feedback(encoded):
    """A ReportFeedback as a dictionary: job, severity, text, and slot if it has one."""
    names = {1: "job", 2: "severity", 3: "text"}
    feedback, at = dict.fromkeys(names.values(), ""), 0
    while at < len(encoded):
        key, at = read_varint(encoded, at)
        length, at = read_varint(encoded, at)
        if key & 7 != 2:
            raise ValueError("ReportFeedback has only texts and messages")
        content = encoded[at : at + length]
        if key >> 3 in names:
            feedback[names[key >> 3]] = content.decode()
        elif key >> 3 == 5:
            feedback["slot"] = decode_slot(content)
        at += length
    return feedback


def decode_slot(encoded):
    """A StartSlot as a dictionary."""
    names = {1: "period_seconds", 2: "first_send_seconds", 3: "most_wait_seconds"}
    slot, at = dict.fromkeys(names.values(), 0.0), 0
    while at < len(encoded):
        key, at = read_varint(encoded, at)
        if key & 7 != 1:
            raise ValueError("StartSlot has only numbers")
        (number,) = struct.unpack_from("<d", encoded, at)
        if key >> 3 in names:
            slot[names[key >> 3]] = number
        at += 8
    return slot


def read_varint(encoded, at):
    number = shift = 0
    while encoded[at] & 0x80:
        number |= (encoded[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
    return number | encoded[at] << shift, at + 1
