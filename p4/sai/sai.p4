// Crux on SAI P4: the fixed tables of SONiC's P4Runtime application, and an ACL stage of our own.
//
// Names and ids of fixed tables, actions and match fields are those of the published P4Info, which
// a switch verifies. The ACL tables are ours; a switch accepts them by their @sai annotations.
// docs/sai.md says what each table is for.
//
// What a switch is configured with, and no table shows, is modelled here: the map of DSCP to
// traffic class by class selectors, and the hash of its WCMP groups.
#include <core.p4>
#include <v1model.p4>

#define CPU_PORT 255
#define ROLE "sdn_controller"
const bit<16> ETHERTYPE_IPV4 = 0x0800;
const bit<16> ETHERTYPE_IPV6 = 0x86dd;
const bit<8> PROTO_TCP = 6;
const bit<8> PROTO_UDP = 17;

typedef bit<48> mac_t;
typedef bit<32> ipv4_t;
typedef bit<128> ipv6_t;
typedef bit<6> dscp_t;
typedef bit<3> traffic_class_t;
typedef bit<32> acl_metadata_t;

// Ids are strings to the controller. The widths are those of the model alone.
@p4runtime_translation("", string) type bit<9> port_id_t;
@p4runtime_translation("", string) type bit<10> vrf_id_t;
@p4runtime_translation("", string) type bit<12> nexthop_id_t;
@p4runtime_translation("", string) type bit<12> wcmp_group_id_t;
@p4runtime_translation("", string) type bit<12> router_interface_id_t;
@p4runtime_translation("", string) type bit<8> cpu_queue_t;

@controller_header("packet_in")
header packet_in_t {
    @id(1) port_id_t ingress_port;
    @id(2) port_id_t target_egress_port;
    @id(3) @padding bit<6> unused_pad;
}

@controller_header("packet_out")
header packet_out_t {
    @id(1) port_id_t egress_port;
    @id(2) bit<1> submit_to_ingress;
    @id(3) @padding bit<6> unused_pad;
}

header ethernet_t { mac_t dst; mac_t src; bit<16> ether_type; }
header ipv4_h {
    bit<4> version; bit<4> ihl; dscp_t dscp; bit<2> ecn; bit<16> total_len;
    bit<16> identification; bit<3> flags; bit<13> frag_offset;
    bit<8> ttl; bit<8> protocol; bit<16> checksum; ipv4_t src; ipv4_t dst;
}
header ipv6_h {
    bit<4> version; dscp_t dscp; bit<2> ecn; bit<20> flow_label; bit<16> payload_len;
    bit<8> next_header; bit<8> hop_limit; ipv6_t src; ipv6_t dst;
}
header l4_h { bit<16> sport; bit<16> dport; }

struct headers_t {
    packet_out_t packet_out;
    packet_in_t packet_in;
    ethernet_t ethernet;
    ipv4_h ipv4;
    ipv6_h ipv6;
    l4_h l4;
}

struct meta_t {
    port_id_t ingress_port;
    vrf_id_t vrf;
    acl_metadata_t acl_metadata;
    bit<1> admitted;
    bit<1> trapped;
    bit<1> dropped;
    bit<1> have_wcmp_group;
    bit<1> have_nexthop;
    wcmp_group_id_t wcmp_group;
    nexthop_id_t nexthop;
    router_interface_id_t router_interface;
    ipv6_t neighbor;
    bit<16> selector;
    mac_t src_mac;
    mac_t dst_mac;
    bit<8> ttl;
    bit<8> protocol;
    bit<16> sport;
    bit<16> dport;
}

parser ParserImpl(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    state start {
        meta.ingress_port = (port_id_t)sm.ingress_port;
        transition select(sm.ingress_port) { CPU_PORT: parse_packet_out; default: parse_ethernet; }
    }
    state parse_packet_out { pkt.extract(hdr.packet_out); transition parse_ethernet; }
    state parse_ethernet {
        pkt.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            ETHERTYPE_IPV4: parse_ipv4;
            ETHERTYPE_IPV6: parse_ipv6;
            default: accept;
        }
    }
    // Ports behind options or in later fragments are not read: such packets match by their addresses.
    state parse_ipv4 {
        pkt.extract(hdr.ipv4);
        meta.ttl = hdr.ipv4.ttl;
        meta.protocol = hdr.ipv4.protocol;
        transition select(hdr.ipv4.ihl, hdr.ipv4.frag_offset, hdr.ipv4.protocol) {
            (5, 0, PROTO_TCP): parse_l4;
            (5, 0, PROTO_UDP): parse_l4;
            default: accept;
        }
    }
    state parse_ipv6 {
        pkt.extract(hdr.ipv6);
        meta.ttl = hdr.ipv6.hop_limit;
        meta.protocol = hdr.ipv6.next_header;
        transition select(hdr.ipv6.next_header) {
            PROTO_TCP: parse_l4;
            PROTO_UDP: parse_l4;
            default: accept;
        }
    }
    state parse_l4 {
        pkt.extract(hdr.l4);
        meta.sport = hdr.l4.sport;
        meta.dport = hdr.l4.dport;
        transition accept;
    }
}

control VerifyChecksumImpl(inout headers_t hdr, inout meta_t meta) { apply { } }

control IngressImpl(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    @id(0x13000101) direct_counter(CounterType.packets_and_bytes) acl_pre_ingress_counter;
    @id(0x13000102) direct_counter(CounterType.packets_and_bytes) acl_ingress_counter;
    @id(0x13000107) direct_counter(CounterType.packets_and_bytes) acl_ingress_qos_counter;

    // --- ACL stage before routing -------------------------------------------------------------

    // The routes of a port are those of its VRF; its metadata are the job of its packets.
    @id(0x01000180) @sai_action(SAI_PACKET_ACTION_FORWARD)
    action set_vrf_and_acl_metadata(
            @id(1) @sai_action_param(SAI_ACL_ENTRY_ATTR_ACTION_SET_VRF)
            @refers_to(vrf_table, vrf_id) vrf_id_t vrf_id,
            @id(2) @sai_action_param(SAI_ACL_ENTRY_ATTR_ACTION_SET_ACL_META_DATA)
            acl_metadata_t acl_metadata) {
        meta.vrf = vrf_id; meta.acl_metadata = acl_metadata; acl_pre_ingress_counter.count();
    }
    // A port with a job and no routes of its own stays in the default VRF.
    @id(0x0100010b) @sai_action(SAI_PACKET_ACTION_FORWARD)
    action set_acl_metadata(
            @id(1) @sai_action_param(SAI_ACL_ENTRY_ATTR_ACTION_SET_ACL_META_DATA)
            acl_metadata_t acl_metadata) {
        meta.acl_metadata = acl_metadata; acl_pre_ingress_counter.count();
    }

    @entry_restriction("
        dst_ip::mask != 0 -> is_ipv4 == 1;
        is_ipv4::mask != 0 -> is_ipv4 == 1;
        is_ipv6::mask != 0 -> is_ipv6 == 1;
        is_ipv4::mask != 0 -> is_ipv6::mask == 0;
        ::priority < 0x7fffffff;
    ")
    @id(0x02000101) @p4runtime_role(ROLE) @sai_acl(PRE_INGRESS) @sai_acl_priority(11)
    table acl_pre_ingress_table {
        key = {
            hdr.ipv4.isValid(): optional @id(2) @name("is_ipv4")
                @sai_field(SAI_ACL_TABLE_ATTR_FIELD_ACL_IP_TYPE/IPV4ANY);
            hdr.ipv6.isValid(): optional @id(3) @name("is_ipv6")
                @sai_field(SAI_ACL_TABLE_ATTR_FIELD_ACL_IP_TYPE/IPV6ANY);
            hdr.ipv4.dst: ternary @id(5) @name("dst_ip") @format(IPV4_ADDRESS)
                @sai_field(SAI_ACL_TABLE_ATTR_FIELD_DST_IP);
            meta.ingress_port: optional @id(8) @name("in_port")
                @sai_field(SAI_ACL_TABLE_ATTR_FIELD_IN_PORT);
        }
        actions = {
            @proto_id(1) set_vrf_and_acl_metadata; @proto_id(2) set_acl_metadata;
            @defaultonly NoAction;
        }
        const default_action = NoAction(); size = 254;
        counters = acl_pre_ingress_counter;
    }

    // --- Routing ------------------------------------------------------------------------------

    @id(0x01000008) action admit_to_l3() { meta.admitted = 1; }
    @id(0x02000047) @p4runtime_role(ROLE) table l3_admit_table {
        key = {
            hdr.ethernet.dst: ternary @id(1) @name("dst_mac") @format(MAC_ADDRESS);
            meta.ingress_port: optional @id(2) @name("in_port");
        }
        actions = { @proto_id(1) admit_to_l3; @defaultonly NoAction; }
        const default_action = NoAction(); size = 64;
    }

    @id(0x01798b9e) action no_action() { }
    // The default VRF is always there and is not written.
    @entry_restriction("vrf_id != 0;")
    @id(0x0200004a) @p4runtime_role(ROLE) table vrf_table {
        key = { meta.vrf: exact @id(1) @name("vrf_id"); }
        actions = { @proto_id(1) no_action; }
        const default_action = no_action(); size = 64;
    }

    @id(0x01000006) action drop() { meta.dropped = 1; }
    @id(0x01000005) action set_nexthop_id(
            @id(1) @refers_to(nexthop_table, nexthop_id) nexthop_id_t nexthop_id) {
        meta.have_nexthop = 1; meta.nexthop = nexthop_id;
    }
    @id(0x01000004) action set_wcmp_group_id(
            @id(1) @refers_to(wcmp_group_table, wcmp_group_id) wcmp_group_id_t wcmp_group_id) {
        meta.have_wcmp_group = 1; meta.wcmp_group = wcmp_group_id;
    }
    @id(0x02000044) @p4runtime_role(ROLE) table ipv4_table {
        key = {
            meta.vrf: exact @id(1) @name("vrf_id") @refers_to(vrf_table, vrf_id);
            hdr.ipv4.dst: lpm @id(2) @name("ipv4_dst") @format(IPV4_ADDRESS);
        }
        actions = { @proto_id(1) drop; @proto_id(2) set_nexthop_id; @proto_id(3) set_wcmp_group_id; }
        const default_action = drop(); size = 131072;
    }
    @id(0x02000045) @p4runtime_role(ROLE) table ipv6_table {
        key = {
            meta.vrf: exact @id(1) @name("vrf_id") @refers_to(vrf_table, vrf_id);
            hdr.ipv6.dst: lpm @id(2) @name("ipv6_dst") @format(IPV6_ADDRESS);
        }
        actions = { @proto_id(1) drop; @proto_id(2) set_nexthop_id; @proto_id(3) set_wcmp_group_id; }
        const default_action = drop(); size = 17000;
    }

    // --- ACL stage after routing --------------------------------------------------------------

    // A pinned flow leaves by its next hop, whatever its route says.
    @id(0x01000112) action redirect_to_nexthop(
            @id(1) @sai_action_param(SAI_ACL_ENTRY_ATTR_ACTION_REDIRECT)
            @sai_action_param_object_type(SAI_OBJECT_TYPE_NEXT_HOP)
            @refers_to(nexthop_table, nexthop_id) nexthop_id_t nexthop_id) {
        meta.have_nexthop = 1; meta.nexthop = nexthop_id;
        meta.have_wcmp_group = 0; meta.dropped = 0; acl_ingress_counter.count();
    }
    @id(0x01000102)
    @sai_action(SAI_PACKET_ACTION_TRAP, SAI_PACKET_COLOR_GREEN)
    @sai_action(SAI_PACKET_ACTION_DROP, SAI_PACKET_COLOR_RED)
    action acl_trap(@id(1) @sai_action_param(QOS_QUEUE) cpu_queue_t qos_queue) {
        meta.trapped = 1; acl_ingress_counter.count();
    }
    @id(0x01000109) @sai_action(SAI_PACKET_ACTION_DROP) action acl_drop() {
        meta.dropped = 1; meta.have_nexthop = 0; meta.have_wcmp_group = 0; acl_ingress_counter.count();
    }

    @entry_restriction("
        ether_type != 0x0800 && ether_type != 0x86dd;
        src_ip::mask != 0 -> is_ipv4 == 1;
        dst_ip::mask != 0 -> is_ipv4 == 1;
        src_ipv6::mask != 0 -> is_ipv6 == 1;
        dst_ipv6::mask != 0 -> is_ipv6 == 1;
        ttl::mask != 0 -> is_ipv4 == 1 || is_ipv6 == 1;
        ip_protocol::mask != 0 -> is_ipv4 == 1 || is_ipv6 == 1;
        l4_src_port::mask != 0 -> ip_protocol == 6 || ip_protocol == 17;
        l4_dst_port::mask != 0 -> ip_protocol == 6 || ip_protocol == 17;
        is_ipv4::mask != 0 -> is_ipv4 == 1;
        is_ipv6::mask != 0 -> is_ipv6 == 1;
        is_ipv4::mask != 0 -> is_ipv6::mask == 0;
    ")
    @id(0x02000100) @p4runtime_role(ROLE) @sai_acl(INGRESS) @sai_acl_priority(5)
    table acl_ingress_table {
        key = {
            hdr.ipv4.isValid(): optional @id(2) @name("is_ipv4")
                @sai_field(SAI_ACL_TABLE_ATTR_FIELD_ACL_IP_TYPE/IPV4ANY);
            hdr.ipv6.isValid(): optional @id(3) @name("is_ipv6")
                @sai_field(SAI_ACL_TABLE_ATTR_FIELD_ACL_IP_TYPE/IPV6ANY);
            hdr.ethernet.ether_type: ternary @id(4) @name("ether_type")
                @sai_field(SAI_ACL_TABLE_ATTR_FIELD_ETHER_TYPE);
            hdr.ipv4.src: ternary @id(6) @name("src_ip") @format(IPV4_ADDRESS)
                @sai_field(SAI_ACL_TABLE_ATTR_FIELD_SRC_IP);
            hdr.ipv4.dst: ternary @id(7) @name("dst_ip") @format(IPV4_ADDRESS)
                @sai_field(SAI_ACL_TABLE_ATTR_FIELD_DST_IP);
            // Switches match the upper halves of IPv6 addresses only.
            hdr.ipv6.src[127:64]: ternary @id(8) @name("src_ipv6") @format(IPV6_ADDRESS)
                @composite_field(@sai_field(SAI_ACL_TABLE_ATTR_FIELD_SRC_IPV6_WORD3),
                                 @sai_field(SAI_ACL_TABLE_ATTR_FIELD_SRC_IPV6_WORD2));
            hdr.ipv6.dst[127:64]: ternary @id(9) @name("dst_ipv6") @format(IPV6_ADDRESS)
                @composite_field(@sai_field(SAI_ACL_TABLE_ATTR_FIELD_DST_IPV6_WORD3),
                                 @sai_field(SAI_ACL_TABLE_ATTR_FIELD_DST_IPV6_WORD2));
            meta.ttl: ternary @id(10) @name("ttl") @sai_field(SAI_ACL_TABLE_ATTR_FIELD_TTL);
            meta.protocol: ternary @id(13) @name("ip_protocol")
                @sai_field(SAI_ACL_TABLE_ATTR_FIELD_IP_PROTOCOL);
            meta.dport: ternary @id(15) @name("l4_dst_port")
                @sai_field(SAI_ACL_TABLE_ATTR_FIELD_L4_DST_PORT);
            meta.sport: ternary @id(20) @name("l4_src_port")
                @sai_field(SAI_ACL_TABLE_ATTR_FIELD_L4_SRC_PORT);
        }
        actions = {
            @proto_id(2) acl_trap; @proto_id(5) acl_drop; @proto_id(7) redirect_to_nexthop;
            @defaultonly NoAction;
        }
        const default_action = NoAction(); size = 255;
        counters = acl_ingress_counter;
    }

    // The level of a job: one row, however many ports and flows the job has.
    @id(0x01000181) @sai_action(SAI_PACKET_ACTION_FORWARD)
    action set_tc_and_dscp(
            @id(1) @sai_action_param(SAI_ACL_ENTRY_ATTR_ACTION_SET_TC) traffic_class_t traffic_class,
            @id(2) @sai_action_param(SAI_ACL_ENTRY_ATTR_ACTION_SET_DSCP) dscp_t dscp) {
        sm.priority = traffic_class;
        if (hdr.ipv4.isValid()) { hdr.ipv4.dscp = dscp; }
        if (hdr.ipv6.isValid()) { hdr.ipv6.dscp = dscp; }
        acl_ingress_qos_counter.count();
    }
    // Metadata 0 means that no row before routing has matched.
    @entry_restriction("acl_metadata::mask != 0; acl_metadata != 0;")
    @id(0x02000107) @p4runtime_role(ROLE) @sai_acl(INGRESS) @sai_acl_priority(10)
    table acl_ingress_qos_table {
        key = {
            meta.acl_metadata: ternary @id(13) @name("acl_metadata")
                @sai_field(SAI_ACL_TABLE_ATTR_FIELD_ACL_USER_META);
        }
        actions = { @proto_id(1) set_tc_and_dscp; @defaultonly NoAction; }
        const default_action = NoAction(); size = 255;
        counters = acl_ingress_qos_counter;
    }

    // --- Resolution of next hops --------------------------------------------------------------

    @id(0x11dc4ec8) @max_group_size(512)
    action_selector(HashAlgorithm.identity, 49152, 16) wcmp_group_selector;
    @oneshot @id(0x02000043) @p4runtime_role(ROLE) table wcmp_group_table {
        key = {
            meta.wcmp_group: exact @id(1) @name("wcmp_group_id");
            meta.selector: selector;
        }
        actions = { @proto_id(1) set_nexthop_id; @defaultonly NoAction; }
        const default_action = NoAction(); implementation = wcmp_group_selector; size = 3968;
    }

    @id(0x01000014) action set_ip_nexthop(
            @id(1) @refers_to(router_interface_table, router_interface_id)
            @refers_to(neighbor_table, router_interface_id) router_interface_id_t router_interface_id,
            @id(2) @format(IPV6_ADDRESS) @refers_to(neighbor_table, neighbor_id) ipv6_t neighbor_id) {
        meta.router_interface = router_interface_id; meta.neighbor = neighbor_id;
    }
    @id(0x02000042) @p4runtime_role(ROLE) table nexthop_table {
        key = { meta.nexthop: exact @id(1) @name("nexthop_id"); }
        actions = { @proto_id(1) set_ip_nexthop; @defaultonly NoAction; }
        const default_action = NoAction(); size = 4096;
    }

    @id(0x01000001) action set_dst_mac(@id(1) @format(MAC_ADDRESS) mac_t dst_mac) {
        meta.dst_mac = dst_mac;
    }
    @id(0x02000040) @p4runtime_role(ROLE) table neighbor_table {
        key = {
            meta.router_interface: exact @id(1) @name("router_interface_id")
                @refers_to(router_interface_table, router_interface_id);
            meta.neighbor: exact @id(2) @name("neighbor_id") @format(IPV6_ADDRESS);
        }
        actions = { @proto_id(1) set_dst_mac; @defaultonly NoAction; }
        const default_action = NoAction(); size = 4096;
    }

    @action_restriction("src_mac != 0;")
    @id(0x01000030) action unicast_set_port_and_src_mac(
            @id(1) port_id_t port, @id(2) @format(MAC_ADDRESS) mac_t src_mac) {
        sm.egress_spec = (bit<9>)port; meta.src_mac = src_mac;
    }
    @id(0x02000041) @p4runtime_role(ROLE) table router_interface_table {
        key = { meta.router_interface: exact @id(1) @name("router_interface_id"); }
        actions = { @proto_id(3) unicast_set_port_and_src_mac; @defaultonly NoAction; }
        const default_action = NoAction(); size = 4096;
    }

    // CRC-16 sends flows with neighbouring ports to half of the members.
    action select_member() {
        bit<32> hash_value = 0;
        if (hdr.ipv4.isValid()) {
            hash(hash_value, HashAlgorithm.crc32, 32w0,
                 { hdr.ipv4.src, hdr.ipv4.dst, meta.protocol, meta.sport, meta.dport }, 33w0x100000000);
        } else {
            hash(hash_value, HashAlgorithm.crc32, 32w0,
                 { hdr.ipv6.src, hdr.ipv6.dst, meta.protocol, meta.sport, meta.dport }, 33w0x100000000);
        }
        meta.selector = hash_value[15:0];
    }

    apply {
        mark_to_drop(sm);
        if (hdr.packet_out.isValid()) {
            bit<1> again = hdr.packet_out.submit_to_ingress;
            bit<9> out_port = (bit<9>)hdr.packet_out.egress_port;
            hdr.packet_out.setInvalid();
            if (again == 0) { sm.egress_spec = out_port; exit; }
        }
        if (hdr.ipv4.isValid()) { sm.priority = hdr.ipv4.dscp[5:3]; }
        else if (hdr.ipv6.isValid()) { sm.priority = hdr.ipv6.dscp[5:3]; }
        acl_pre_ingress_table.apply();
        l3_admit_table.apply();
        vrf_table.apply();
        if (meta.admitted == 1) {
            if (hdr.ipv4.isValid()) { ipv4_table.apply(); }
            else if (hdr.ipv6.isValid()) { ipv6_table.apply(); }
        }
        acl_ingress_table.apply();
        acl_ingress_qos_table.apply();
        if (meta.trapped == 1) { sm.egress_spec = CPU_PORT; exit; }
        if (meta.dropped == 1 || meta.admitted == 0 || meta.ttl <= 1) { exit; }
        // The checksum of a header with options cannot be computed without them.
        if (hdr.ipv4.isValid() && hdr.ipv4.ihl != 5) { exit; }
        if (meta.have_wcmp_group == 1) { select_member(); wcmp_group_table.apply(); }
        if (meta.have_nexthop == 0 || !nexthop_table.apply().hit) { exit; }
        if (!neighbor_table.apply().hit) { exit; }
        router_interface_table.apply();
        hdr.ethernet.src = meta.src_mac;
        hdr.ethernet.dst = meta.dst_mac;
        if (hdr.ipv4.isValid()) { hdr.ipv4.ttl = hdr.ipv4.ttl - 1; }
        if (hdr.ipv6.isValid()) { hdr.ipv6.hop_limit = hdr.ipv6.hop_limit - 1; }
    }
}

control EgressImpl(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    apply {
        if (sm.egress_port == CPU_PORT) {
            hdr.packet_in.setValid();
            hdr.packet_in.ingress_port = meta.ingress_port;
            hdr.packet_in.target_egress_port = (port_id_t)9w0;
            hdr.packet_in.unused_pad = 0;
        }
    }
}

control ComputeChecksumImpl(inout headers_t hdr, inout meta_t meta) {
    apply {
        update_checksum(hdr.ipv4.isValid() && hdr.ipv4.ihl == 5,
            { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.dscp, hdr.ipv4.ecn, hdr.ipv4.total_len, hdr.ipv4.identification,
              hdr.ipv4.flags, hdr.ipv4.frag_offset, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src, hdr.ipv4.dst },
            hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control DeparserImpl(packet_out pkt, in headers_t hdr) {
    apply {
        pkt.emit(hdr.packet_in); pkt.emit(hdr.ethernet); pkt.emit(hdr.ipv4); pkt.emit(hdr.ipv6);
        pkt.emit(hdr.l4);
    }
}

V1Switch(ParserImpl(), VerifyChecksumImpl(), IngressImpl(), EgressImpl(), ComputeChecksumImpl(), DeparserImpl()) main;
