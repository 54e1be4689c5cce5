//! Rows of every table that plans need, as they are shown and allowed, and the order of tables.

use super::*;
use crate::ForwardingPipeline;

fn check(entry: &TableEntry, expected: &str) {
    let p4info = &ForwardingPipeline::embedded_sai().p4info;
    assert_eq!(p4info.display(entry).to_string(), expected);
    assert_eq!(p4info.check_constraints(entry), Ok(()));
    let encoded = crate::codec::encode_entry(entry);
    assert_eq!(crate::codec::decode_entry(p4info, &encoded).as_ref(), Ok(entry));
}

#[test]
fn rows_are_shown_and_allowed() {
    let [src, dst] = [[2, 0, 0, 0, 0, 0xfe], [2, 0, 10, 0, 1, 1]];
    let [interface, neighbor, nexthop] = port_rows(3, src, dst);
    check(
        &interface,
        "router_interface_table router_interface_id=\"interface-3\" -> \
         unicast_set_port_and_src_mac(port=\"3\", src_mac=02:00:00:00:00:fe)",
    );
    check(
        &neighbor,
        "neighbor_table router_interface_id=\"interface-3\" neighbor_id=fe80::1 -> \
         set_dst_mac(dst_mac=02:00:0a:00:01:01)",
    );
    check(
        &nexthop,
        "nexthop_table nexthop_id=\"port-3\" -> \
         set_ip_nexthop(router_interface_id=\"interface-3\", neighbor_id=fe80::1)",
    );
    check(
        &wcmp_group(2, [3, 4]).unwrap(),
        "wcmp_group_table wcmp_group_id=\"group-2\" -> \
         [1xset_nexthop_id(nexthop_id=\"port-3\"), 1xset_nexthop_id(nexthop_id=\"port-4\")]",
    );
    check(&l3_admit(src), "l3_admit_table dst_mac=02:00:00:00:00:fe priority=1 -> admit_to_l3()");
    check(&port_vrf(1), "vrf_table vrf_id=\"vrf-1\" -> no_action()");
    let host: Ipv4Addr = [10, 0, 2, 1].into();
    check(
        &route(Vrf::OfPort(1), IpAddr::from(host).into(), RouteTarget::Port(3)),
        "ipv4_table vrf_id=\"vrf-1\" ipv4_dst=10.0.2.1/32 -> set_nexthop_id(nexthop_id=\"port-3\")",
    );
    let prefix = IpPrefix::new("fd00::2:0".parse().unwrap(), 112).unwrap();
    check(
        &route(Vrf::Default, prefix, RouteTarget::Group(2)),
        "ipv6_table vrf_id=\"\" ipv6_dst=fd00::2:0/112 -> \
         set_wcmp_group_id(wcmp_group_id=\"group-2\")",
    );
    check(
        &port_class(1, Some(host), Vrf::OfPort(1), NonZeroU32::new(7)),
        "acl_pre_ingress_table is_ipv4=1 dst_ip=10.0.2.1 in_port=\"1\" priority=2 -> \
         set_vrf_and_acl_metadata(vrf_id=\"vrf-1\", acl_metadata=8)",
    );
    check(
        &port_class(1, None, Vrf::Default, None),
        "acl_pre_ingress_table in_port=\"1\" priority=1 -> set_acl_metadata(acl_metadata=1)",
    );
    check(
        &ether_type_trap(0x0806).unwrap(),
        "acl_ingress_table ether_type=2054 priority=1 -> acl_trap(qos_queue=\"0x1\")",
    );
    assert_eq!((ether_type_trap(0x0800), ether_type_trap(0x86dd)), (None, None));
    assert_eq!(neighbor_address().to_string(), "fe80::1");
}

#[test]
fn pins_and_levels_are_shown_and_allowed() {
    let flow = FlowKey::for_roce([10, 0, 1, 1], [10, 0, 2, 1], 50_000);
    check(
        &flow_redirect(&flow, 3).unwrap(),
        "acl_ingress_table is_ipv4=1 src_ip=10.0.1.1 dst_ip=10.0.2.1 ip_protocol=17 \
         l4_dst_port=4791 l4_src_port=50000 priority=1 -> \
         redirect_to_nexthop(nexthop_id=\"port-3\")",
    );
    check(
        &job_level(Some(NonZeroU32::MIN), PriorityLevel::new(5).unwrap()),
        "acl_ingress_qos_table acl_metadata=2 priority=1 -> \
         set_tc_and_dscp(traffic_class=5, dscp=40)",
    );
}

#[test]
fn ids_are_those_of_the_program() {
    let p4info = &ForwardingPipeline::embedded_sai().p4info;
    for (id, name) in table::ALL {
        let name = format!("{}_table", name.to_lowercase());
        assert_eq!(p4info.table_named(&name).unwrap().id, *id);
    }
    for (id, name) in action::ALL {
        assert_eq!(p4info.action_named(&name.to_lowercase()).unwrap().id, *id);
    }
}

/// A port is sent to its VRF after the routes in there, which `@refers_to` alone does not say.
#[test]
fn what_sends_packets_into_a_vrf_is_written_last() {
    let p4info = &ForwardingPipeline::embedded_sai().p4info;
    let rank = |table| p4info.table(table).unwrap().rank;
    assert!(rank(table::VRF) < rank(table::IPV4));
    assert!(rank(table::WCMP_GROUP) < rank(table::IPV6));
    assert!(rank(table::IPV4) < rank(table::ACL_PRE_INGRESS));
    assert!(rank(table::IPV6) < rank(table::ACL_PRE_INGRESS));
}
