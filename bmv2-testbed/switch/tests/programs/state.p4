// Every object of v1model that has state, in one small program: what a packet does to each of them
// follows from the first byte after its Ethernet header.

#include <core.p4>
#include <v1model.p4>

header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> kind;
}

// What the packet asks for, and an argument.
header order_t {
    bit<8>  verb;
    bit<16> value;
    bit<8>  answer;
}

struct headers_t {
    ethernet_t ethernet;
    order_t order;
}

struct note_t {
    bit<48> src;
    bit<16> value;
}

struct metadata_t {
    @field_list(1)
    bit<8> rounds;
    bit<2> color;
    bit<1> wanted;
}

parser ParserImpl(packet_in packet, out headers_t hdr, inout metadata_t meta,
                  inout standard_metadata_t standard) {
    @name("wanted") value_set<bit<16>>(4) wanted;

    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.kind) {
            0x1234: order;
            wanted: marked;
            default: accept;
        }
    }
    state marked {
        meta.wanted = 1;
        transition order;
    }
    state order {
        packet.extract(hdr.order);
        transition accept;
    }
}

control VerifyImpl(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control IngressImpl(inout headers_t hdr, inout metadata_t meta,
                    inout standard_metadata_t standard) {
    @name("metered") direct_meter<bit<2>>(MeterType.packets) metered;
    @name("metering") meter(4, MeterType.bytes) metering;
    @name("memory") register<bit<16>>(8) memory;
    @name("seen") counter(8, CounterType.packets_and_bytes) seen;

    action answer(bit<8> what) {
        hdr.order.answer = what;
    }
    action color() {
        metered.read(meta.color);
    }
    @name("by_source") table by_source {
        key = { hdr.ethernet.src: exact; }
        actions = { color; NoAction; }
        meters = metered;
        support_timeout = true;
        size = 16;
    }
    @name("by_value") table by_value {
        key = {
            hdr.order.value: range;
            hdr.ethernet.kind: optional;
        }
        actions = { answer; NoAction; }
        size = 16;
    }

    apply {
        standard.egress_spec = 2;
        if (!hdr.order.isValid()) {
            return;
        }
        by_source.apply();
        by_value.apply();
        bit<32> cell = (bit<32>) (hdr.order.value & 7);
        switch (hdr.order.verb) {
            1: { memory.write(cell, hdr.order.value); }
            2: { memory.read(hdr.order.value, cell); }
            3: {
                metering.execute_meter(cell & 3, meta.color);
            }
            4: { standard.mcast_grp = hdr.order.value; }
            5: { clone_preserving_field_list(CloneType.I2E, 7, 1); }
            6: {
                if (meta.rounds < 3) {
                    meta.rounds = meta.rounds + 1;
                    resubmit_preserving_field_list(1);
                }
            }
            7: { digest<note_t>(1, { hdr.ethernet.src, hdr.order.value }); }
            8: { random(hdr.order.value, 10, 19); }
            9: { truncate(16); }
            10: { assert(hdr.order.value != 0); }
            11: { mark_to_drop(standard); }
            12: { log_msg("value {} from {}", { hdr.order.value, hdr.ethernet.src }); }
            default: { }
        }
        seen.count(cell);
        if (hdr.order.verb != 2 && meta.color != 0) {
            hdr.order.answer = (bit<8>) meta.color;
        }
    }
}

control EgressImpl(inout headers_t hdr, inout metadata_t meta,
                   inout standard_metadata_t standard) {
    apply {
        if (!hdr.order.isValid()) {
            return;
        }
        if (hdr.order.verb == 13 && standard.instance_type == 0) {
            clone_preserving_field_list(CloneType.E2E, 7, 1);
        }
        if (hdr.order.verb == 14 && meta.rounds < 2) {
            meta.rounds = meta.rounds + 1;
            recirculate_preserving_field_list(1);
        }
        if (hdr.order.verb >= 4 && hdr.order.verb <= 6 || hdr.order.verb >= 13) {
            hdr.order.answer = (bit<8>) standard.instance_type << 4 | meta.rounds;
        }
        if (hdr.order.verb == 4) {
            hdr.order.answer = (bit<8>) standard.egress_rid;
        }
        if (meta.wanted == 1) {
            hdr.order.verb = 0xff;
        }
    }
}

control UpdateImpl(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control DeparserImpl(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(ParserImpl(), VerifyImpl(), IngressImpl(), EgressImpl(), UpdateImpl(), DeparserImpl())
    main;
