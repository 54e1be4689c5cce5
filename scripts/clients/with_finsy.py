"""finsy (an asynchronous controller framework) against a switch."""

import asyncio

import finsy as fy
from finsy.p4entity import P4ValueSetMember


def check_fabric(address, p4info, device):
    asyncio.run(drive(address, p4info, device, fabric_entities))


def check_state(address, p4info, device):
    asyncio.run(drive(address, p4info, device, state_entities))


async def drive(address, p4info, device, check):
    """One session: the program is set, and everything of it is exercised."""
    options = fy.SwitchOptions(p4info=p4info, p4blob=device)
    async with fy.Switch("crux", address, options) as switch:
        same(switch.is_primary, True, "primary")
        await check(switch)
        await switch.delete_all()


def same(found, wanted, what):
    if found != wanted:
        raise SystemExit(f"{what}: {found!r}, not {wanted!r}")


async def read(switch, entity):
    return [found async for found in switch.read([entity])]


async def life(switch, entity, changed, wildcard):
    """Inserted once, modified, read, deleted."""
    await switch.insert([entity])
    try:
        await switch.insert([entity])
    except fy.P4ClientError as error:
        same(error.code, fy.GRPCStatusCode.UNKNOWN, f"a second {entity}")
    else:
        raise SystemExit(f"{entity} was taken twice")
    await switch.modify([changed])
    found = await read(switch, wildcard)
    same(len(found), 1, wildcard)
    await switch.delete([changed])
    same(await read(switch, wildcard), [], f"{wildcard}, deleted")
    return found[0]


async def fabric_entities(switch):
    await check_tables(switch)
    await check_selector(switch)
    await check_counters(switch)
    await check_packets(switch)


async def check_tables(switch):
    action = fy.P4TableAction
    cases = [
        ("local_host", {"dst": "10.0.0.1"}, "to_host", {"dmac": 2}, "port", 0),
        ("dst_leaf", {"dst": "10.0.1.0/24"}, "set_dst_leaf", {}, "id", 0),
        ("job_classify", {"src": "10.0.0.0/&255.0.0.0"}, "set_job", {}, "job", 5),
        ("roce_answer", {"opcode": 0x11}, "set_answer", {"dscp": 56}, "level", 0),
    ]
    for table, match, name, arguments, changing, priority in cases:
        entry = lambda value: fy.P4TableEntry(
            table,
            match=fy.P4TableMatch(match),
            action=action(name, **arguments, **{changing: value}),
            priority=priority,
        )
        found = await life(switch, entry(1), entry(7), fy.P4TableEntry(table))
        same(found.action.args[changing], 7, table)
    salt = fy.P4TableEntry(
        "switch_salt", action=action("set_salt", salt=5, shift=8), is_default_action=True
    )
    await switch.modify([salt])
    [found] = await read(switch, fy.P4TableEntry("switch_salt", is_default_action=True))
    same(found.action.args, {"salt": 5, "shift": 8}, "default action")


async def check_selector(switch):
    profile, action = "ecmp_selector", fy.P4TableAction
    member = lambda number: fy.P4ActionProfileMember(
        profile, member_id=number, action=action("to_ecmp_port", port=number)
    )
    await switch.insert([member(1), member(2)])
    group = lambda *members: fy.P4ActionProfileGroup(
        profile, group_id=1, max_size=2, members=[fy.P4Member(number, weight=1) for number in members]
    )
    await life(switch, group(1, 2), group(1), fy.P4ActionProfileGroup(profile))
    same(len(await read(switch, fy.P4ActionProfileMember(profile))), 2, "members")
    await switch.delete([member(1), member(2)])
    shots = lambda *ports: fy.P4TableEntry(
        "ecmp_group", match=fy.P4TableMatch(dst_leaf=7), action=one_shot(ports)
    )
    await life(switch, shots(1, 2), shots(3), fy.P4TableEntry("ecmp_group"))


def one_shot(ports):
    """An action set of equal weights."""
    action = [(1, fy.P4TableAction("to_ecmp_port", port=port)) for port in ports]
    return fy.P4IndirectAction(action)


async def check_counters(switch):
    data = fy.P4CounterData(byte_count=700, packet_count=7)
    await switch.modify([fy.P4CounterEntry("port_level", index=3, data=data)])
    [found] = await read(switch, fy.P4CounterEntry("port_level", index=3))
    same(found.data, data, "counter")
    match = fy.P4TableMatch(src="10.0.0.1", dst="10.0.1.1", proto=17, sport=49152, dport=4791)
    pin = fy.P4TableEntry("flow_pin", match=match, action=fy.P4TableAction("pin", path=1, job=2))
    await switch.insert([pin])
    key = fy.P4TableEntry("flow_pin", match=match)
    await switch.modify([fy.P4DirectCounterEntry("pin_counter", table_entry=key, data=data)])
    found = await read(switch, fy.P4DirectCounterEntry("pin_counter", table_entry=key))
    same([one.data for one in found], [data], "direct counter")
    await switch.delete([pin])


async def check_packets(switch):
    """Out with submit_to_ingress, and punted in again."""
    match = fy.P4TableMatch(ether_type=0x88CC)
    punt = fy.P4TableEntry(
        "acl_punt", match=match, action=fy.P4TableAction("punt"), priority=1
    )
    await switch.insert([punt])
    payload = bytes.fromhex("0180c200000e0200000000aa88cc") + b"hello" * 10
    packets = switch.read_packets(eth_types={0x88CC})
    arrived = asyncio.ensure_future(anext(packets))
    await asyncio.sleep(0)
    await switch.write([fy.P4PacketOut(payload, egress_port=0, submit_to_ingress=1, _pad=0)])
    packet = await asyncio.wait_for(arrived, 5)
    same(packet.payload, payload, "packet in")
    await switch.delete([punt])


async def state_entities(switch):
    await check_replication(switch)
    await check_meters(switch)
    await check_digest(switch)
    await check_arrays(switch)


async def check_replication(switch):
    group = lambda *ports: fy.P4MulticastGroupEntry(5, replicas=list(ports))
    await life(switch, group(1, 2), group(1, 2, 3), fy.P4MulticastGroupEntry())
    clone = lambda *ports: fy.P4CloneSessionEntry(7, replicas=list(ports))
    await life(switch, clone(3), clone(4), fy.P4CloneSessionEntry())


async def check_meters(switch):
    config = fy.P4MeterConfig(cir=100, cburst=10, pir=200, pburst=20)
    await switch.modify([fy.P4MeterEntry("metering", index=1, config=config)])
    [found] = await read(switch, fy.P4MeterEntry("metering", index=1))
    same(found.config, config, "meter")
    match = fy.P4TableMatch({"hdr.ethernet.src": "02:00:00:00:00:01"})
    entry = fy.P4TableEntry("by_source", match=match, action=fy.P4TableAction("color"))
    await switch.insert([entry])
    key = fy.P4TableEntry("by_source", match=match)
    await switch.modify([fy.P4DirectMeterEntry(table_entry=key, config=config)])
    found = await read(switch, fy.P4DirectMeterEntry(table_entry=key))
    same([one.config for one in found], [config], "direct meter")
    await switch.delete([entry])


async def check_digest(switch):
    digest = lambda size: fy.P4DigestEntry(
        "note_t", max_list_size=size, max_timeout_ns=10**6, ack_timeout_ns=10**9
    )
    found = await life(switch, digest(5), digest(6), fy.P4DigestEntry())
    same(found.max_list_size, 6, "digest")


async def check_arrays(switch):
    register = fy.P4RegisterEntry("memory", index=2, data=77)
    await switch.modify([register])
    [found] = await read(switch, fy.P4RegisterEntry("memory", index=2))
    same(found.data, 77, "register")
    values = fy.P4ValueSetEntry("wanted", members=[P4ValueSetMember(0x4321)])
    await switch.modify([values])
    found = await read(switch, fy.P4ValueSetEntry("wanted", members=[]))
    same([[member.value for member in one.members] for one in found], [[0x4321]], "value set")
