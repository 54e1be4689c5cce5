// What a queue tells of a packet, written into its Ethernet addresses by egress. Packets leave by
// port 2; `left` is the priority when they come.

#include <core.p4>
#include <v1model.p4>

header order_t {
    bit<32> found;
    bit<32> waited;
    bit<32> left;
    bit<16> kind;
}

struct headers_t {
    order_t order;
}


struct meta_t { }

parser ParserImpl(packet_in pkt, out headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    state start { pkt.extract(hdr.order); transition accept; }
}
control VerifyChecksumImpl(inout headers_t hdr, inout meta_t meta) { apply { } }
control IngressImpl(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    apply {
        sm.egress_spec = 2;
        sm.priority = (bit<3>) hdr.order.left;
    }
}
control EgressImpl(inout headers_t hdr, inout meta_t meta, inout standard_metadata_t sm) {
    counter(8, CounterType.packets) left;
    apply {
        left.count((bit<32>) sm.priority);
        hdr.order.found = (bit<32>) sm.enq_qdepth;
        hdr.order.waited = sm.deq_timedelta;
        hdr.order.left = (bit<32>) sm.deq_qdepth;
    }
}
control ComputeChecksumImpl(inout headers_t hdr, inout meta_t meta) { apply { } }
control DeparserImpl(packet_out pkt, in headers_t hdr) { apply { pkt.emit(hdr.order); } }

V1Switch(ParserImpl(), VerifyChecksumImpl(), IngressImpl(), EgressImpl(), ComputeChecksumImpl(), DeparserImpl()) main;
