"""p4runtime-shell (a synchronous client for people) against a switch."""

import contextlib

import p4runtime_sh.shell as sh
from p4runtime_sh.p4runtime import P4RuntimeException, P4RuntimeWriteException


@contextlib.contextmanager
def session(address, p4info, device):
    """The only controller of a switch that runs a program."""
    config = sh.FwdPipeConfig(str(p4info), str(device))
    sh.setup(1, address, election_id=(0, 1), config=config, verbose=False)
    try:
        yield
    finally:
        sh.teardown()


def same(found, wanted, what):
    if found != wanted:
        raise SystemExit(f"{what}: {found!r}, not {wanted!r}")


def entries(entry):
    """What a wildcard read finds."""
    found = []
    entry.read(found.append)
    return found


def refused(write, what):
    """A write that must fail, and say why for its one update."""
    try:
        write()
    except P4RuntimeWriteException as error:
        same(len(error.errors), 1, what)
    except P4RuntimeException:
        pass
    else:
        raise SystemExit(f"{what} was taken")


def check_fabric(address, p4info, device):
    with session(address, p4info, device):
        same(sh.APIVersion(), "1.5.0", "version")
        check_table("local_host", {"dst": "10.0.0.1"}, "to_host", {"port": "1", "dmac": "2"})
        check_table("dst_leaf", {"dst": "10.0.1.0/24"}, "set_dst_leaf", {"id": "7"})
        key = {"src": "10.0.0.0&&&0xff000000", "sport": "0xc000&&&0xc000"}
        check_table("job_classify", key, "set_job", {"job": "3"}, priority=5)
        check_default()
        check_selector()
        check_counters()
        check_packets()


def check_table(table, match, action, arguments, priority=0):
    def entry(**changed):
        entry = sh.TableEntry(f"IngressImpl.{table}")(action=f"IngressImpl.{action}")
        for name, value in match.items():
            entry.match[name] = value
        for name, value in (arguments | changed).items():
            entry.action[name] = value
        entry.priority = priority
        return entry

    first = next(iter(arguments))
    entry().insert()
    refused(lambda: entry().insert(), f"a second {table} entry")
    entry(**{first: "9"}).modify()
    all_of_table = entries(sh.TableEntry(f"IngressImpl.{table}"))
    same(len(all_of_table), 1, table)
    same(all_of_table[0].action[first].value, b"\x09", f"{table}, modified")
    entry().delete()
    same(entries(sh.TableEntry(f"IngressImpl.{table}")), [], f"{table}, deleted")
    refused(lambda: entry().delete(), f"deleting a {table} entry twice")


def check_default():
    entry = sh.TableEntry("IngressImpl.switch_salt")(action="IngressImpl.set_salt")
    entry.is_default = True
    entry.action["salt"], entry.action["shift"] = "5", "8"
    entry.modify()
    [found] = entries(entry)
    same(found.action["salt"].value, b"\x05", "default action")


def check_selector():
    profile = "IngressImpl.ecmp_selector"
    members = []
    for member_id in (1, 2):
        member = sh.ActionProfileMember(profile)(
            member_id=member_id, action="IngressImpl.to_ecmp_port"
        )
        member.action["port"] = str(member_id)
        member.insert()
        members.append(member)
    group = sh.ActionProfileGroup(profile)(group_id=1)
    group.max_size = 2
    for member in members:
        group.add(member.member_id)
    group.insert()
    same(len(entries(sh.ActionProfileMember(profile))), 2, "members")
    same(len(entries(sh.ActionProfileGroup(profile))[0].members), 2, "members of the group")
    entry = sh.TableEntry("IngressImpl.ecmp_group")(group_id=1)
    entry.match["dst_leaf"] = "7"
    entry.insert()
    refused(members[0].delete, "deleting a member that a group has")
    refused(group.delete, "deleting a group that an entry has")
    group.clear()
    group.add(1)
    group.modify()
    entry.delete()
    group.delete()
    for member in members:
        member.delete()
    # One-shot: the members come with the entry and go with it.
    entry = sh.TableEntry("IngressImpl.ecmp_group")
    entry.match["dst_leaf"] = "8"
    for port in ("1", "2"):
        action = sh.Action("IngressImpl.to_ecmp_port")
        action["port"] = port
        entry.oneshot.add(action)
    entry.insert()
    [found] = entries(sh.TableEntry("IngressImpl.ecmp_group"))
    same(len(found.oneshot.actions), 2, "one-shot members")
    entry.delete()


def check_counters():
    counter = sh.CounterEntry("EgressImpl.port_level")
    counter.index = 3
    counter.packet_count, counter.byte_count = 7, 700
    counter.modify()
    [found] = entries(counter)
    same((found.packet_count, found.byte_count), (7, 700), "counter")
    pin = sh.TableEntry("IngressImpl.flow_pin")(action="IngressImpl.pin")
    key = {"src": "10.0.0.1", "dst": "10.0.1.1", "proto": "17", "sport": "49152", "dport": "4791"}
    for name, value in key.items():
        pin.match[name] = value
    pin.action["path"], pin.action["job"] = "1", "2"
    pin.insert()
    direct = sh.DirectCounterEntry("IngressImpl.pin_counter")
    direct.table_entry.match["src"] = key["src"]
    for name, value in key.items():
        direct.table_entry.match[name] = value
    direct.packet_count, direct.byte_count = 5, 500
    direct.modify()
    found = entries(sh.DirectCounterEntry("IngressImpl.pin_counter"))
    same([(one.packet_count, one.byte_count) for one in found], [(5, 500)], "direct counter")
    pin.delete()


def check_packets():
    """Out with submit_to_ingress, and punted in again."""
    punt = sh.TableEntry("IngressImpl.acl_punt")(action="IngressImpl.punt")
    punt.match["ether_type"] = "0x88cc&&&0xffff"
    punt.priority = 1
    punt.insert()
    listening = sh.PacketIn()
    payload = bytes.fromhex("0180c200000e0200000000aa88cc") + b"hello" * 10
    sh.PacketOut(payload, egress_port="0", submit_to_ingress="1").send()
    [packet] = listening.sniff(timeout=2)
    same(packet.packet.payload, payload, "packet in")
    punt.delete()


def check_state(address, p4info, device):
    with session(address, p4info, device):
        check_replication()
        check_meters()
        check_digest()
        check_shapes()


def check_replication():
    group = sh.MulticastGroupEntry(5)
    group.add(1, 1).add(2, 1)
    group.insert()
    [found] = entries(sh.MulticastGroupEntry(5))
    same(len(found.replicas), 2, "multicast")
    group.add(3, 1)
    group.modify()
    group.delete()
    clone = sh.CloneSessionEntry(7)
    clone.add(3, 1)
    clone.insert()
    [found] = entries(sh.CloneSessionEntry(7))
    same(len(found.replicas), 1, "clone session")
    clone.delete()


def check_meters():
    meter = sh.MeterEntry("IngressImpl.metering")
    meter.index = 1
    meter.cir, meter.cburst, meter.pir, meter.pburst = 100, 10, 200, 20
    meter.modify()
    [found] = entries(meter)
    same((found.cir, found.cburst, found.pir, found.pburst), (100, 10, 200, 20), "meter")
    entry = source_entry()
    entry.insert()
    direct = sh.DirectMeterEntry("IngressImpl.metered")
    direct.table_entry.match["hdr.ethernet.src"] = "02:00:00:00:00:01"
    direct.cir, direct.cburst, direct.pir, direct.pburst = 1, 2, 3, 4
    direct.modify()
    found = entries(sh.DirectMeterEntry("IngressImpl.metered"))
    same([(one.cir, one.pburst) for one in found], [(1, 4)], "direct meter")
    entry.delete()


def source_entry():
    """With an idle timeout of a minute."""
    entry = sh.TableEntry("IngressImpl.by_source")(action="IngressImpl.color")
    entry.match["hdr.ethernet.src"] = "02:00:00:00:00:01"
    entry.idle_timeout_ns = 60 * 10**9
    return entry


def check_digest():
    digest = sh.DigestEntry("note_t")
    digest.max_timeout_ns, digest.max_list_size, digest.ack_timeout_ns = 10**6, 5, 10**9
    digest.insert()
    [found] = entries(sh.DigestEntry("note_t"))
    same((found.max_list_size, found.ack_timeout_ns), (5, 10**9), "digest")
    digest.max_list_size = 6
    digest.modify()
    digest.delete()


def check_shapes():
    """Range and optional keys."""
    entry = sh.TableEntry("IngressImpl.by_value")(action="IngressImpl.answer")
    entry.match["hdr.order.value"] = "3..9"
    entry.match["hdr.ethernet.kind"] = "0x1234"
    entry.action["what"] = "8"
    entry.priority = 1
    entry.insert()
    same(len(entries(sh.TableEntry("IngressImpl.by_value"))), 1, "range and optional")
    entry.delete()
