// Headers of every shape: a stack, a union, a stack of unions, a variable-length field, a field of
// more than 128 bits; arithmetic that saturates; CRCs over all of it.

#include <core.p4>
#include <v1model.p4>

header start_t {
    bit<8> labels;
    bit<8> kind;
    bit<8> bytes;
    int<8> level;
}

header label_t {
    bit<20> value;
    bit<3>  class;
    bit<1>  last;
    bit<8>  ttl;
}

header small_t {
    bit<8> a;
}

header large_t {
    bit<256> key;
    bit<16>  check;
}

header_union body_t {
    small_t small;
    large_t large;
}

header text_t {
    bit<4>       first;
    varbit<128>  rest;
    bit<4>       last;
}

struct headers_t {
    start_t    start;
    label_t[3] labels;
    body_t     body;
    text_t     text;
    label_t    copy;
}

struct metadata_t {
    bit<256> key;
}

error { BadKind }

parser ParserImpl(packet_in packet, out headers_t hdr, inout metadata_t meta,
                  inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.start);
        verify(hdr.start.kind < 4, error.BadKind);
        transition select(hdr.start.labels) {
            0: body;
            default: label;
        }
    }
    state label {
        packet.extract(hdr.labels.next);
        transition select(hdr.labels.last.last) {
            0: label;
            default: body;
        }
    }
    state body {
        transition select(hdr.start.kind) {
            1: small;
            2: large;
            default: text;
        }
    }
    state small {
        packet.extract(hdr.body.small);
        transition text;
    }
    state large {
        packet.extract(hdr.body.large);
        meta.key = hdr.body.large.key;
        transition text;
    }
    state text {
        transition select(hdr.start.bytes) {
            0: accept;
            default: varying;
        }
    }
    state varying {
        packet.extract(hdr.text, (bit<32>) hdr.start.bytes * 8);
        transition accept;
    }
}

control VerifyImpl(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control IngressImpl(inout headers_t hdr, inout metadata_t meta,
                    inout standard_metadata_t standard) {
    apply {
        standard.egress_spec = 2;
        if (standard.parser_error != error.NoError) {
            standard.egress_spec = 3;
            return;
        }
        hdr.start.level = hdr.start.level |+| 100;
        switch (hdr.start.labels) {
            1: { hdr.labels.push_front(1); hdr.labels[0].setValid(); hdr.labels[0].ttl = 9; }
            2: { hdr.labels.pop_front(1); }
            3: { hdr.copy = hdr.labels[1]; }
            default: { }
        }
        if (hdr.labels[0].isValid()) {
            hdr.labels[0].ttl = hdr.labels[0].ttl |-| 3;
        }
        if (hdr.body.isValid()) {
            hdr.start.kind = hdr.start.kind | 0x80;
        }
        if (hdr.body.small.isValid()) {
            hdr.body.large.setValid();
            hdr.body.large.key = 256w0x1122334455667788990011223344556677889900aabbccddeeff001122334455;
            hdr.body.large.check = 0;
        } else if (meta.key == 256w7) {
            hdr.body.small.setValid();
            hdr.body.small.a = 7;
        }
    }
}

control EgressImpl(inout headers_t hdr, inout metadata_t meta,
                   inout standard_metadata_t standard) {
    apply { }
}

control UpdateImpl(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.body.large.isValid(),
            { hdr.start.kind, hdr.body.large.key, hdr.text.rest },
            hdr.body.large.check, HashAlgorithm.crc16);
    }
}

control DeparserImpl(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

V1Switch(ParserImpl(), VerifyImpl(), IngressImpl(), EgressImpl(), UpdateImpl(), DeparserImpl())
    main;
