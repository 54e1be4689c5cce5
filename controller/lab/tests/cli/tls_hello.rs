//! The first message of a TLS client, made by hand: versions and ciphers that no library offers.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// TLS 1.2.
pub(crate) const TLS12: u16 = 0x0303;
/// ECDHE with ECDSA and AES-GCM, which every server of Crux has.
pub(crate) const STRONG: &[u16] = &[0xc02b, 0xc02c];
/// Without forward secrecy, without authentication, or with RC4, 3DES, export keys or CBC.
pub(crate) const WEAK: &[u16] = &[
    0x0001, 0x0003, 0x0004, 0x0005, 0x0009, 0x000a, 0x0018, 0x002f, 0x0035, 0x003c, 0x009c, 0xc007,
    0xc008, 0xc009, 0xc00a, 0xc011, 0xc013, 0xc014, 0xc023, 0xc027,
];

const HANDSHAKE: u8 = 22;
const ALERT: u8 = 21;

/// The answer of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HelloAnswer {
    /// It goes on with the handshake.
    Accepted,
    /// It sends an alert, or closes the connection.
    Refused,
}

/// Offers one version and these ciphers.
pub(crate) fn offer(server: SocketAddr, version: u16, ciphers: &[u16]) -> HelloAnswer {
    let mut stream = TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(&client_hello(version, ciphers)).unwrap();
    let mut first = [0];
    match stream.read(&mut first) {
        Ok(1) if first[0] == HANDSHAKE => HelloAnswer::Accepted,
        Ok(0) | Err(_) => HelloAnswer::Refused,
        Ok(_) => {
            assert_eq!(first[0], ALERT, "neither a handshake nor an alert");
            HelloAnswer::Refused
        }
    }
}

/// A record with a ClientHello (RFC 5246, 7.4.1.2).
fn client_hello(version: u16, ciphers: &[u16]) -> Vec<u8> {
    let groups = [0x001d, 0x0017].map(u16::to_be_bytes).concat();
    let signatures = [0x0403, 0x0503, 0x0804, 0x0401].map(u16::to_be_bytes).concat();
    let extensions = [
        extension(0x000a, &with_length16(&groups)),
        extension(0x000b, &[1, 0]),
        extension(0x000d, &with_length16(&signatures)),
    ]
    .concat();
    let ciphers: Vec<u8> = ciphers.iter().flat_map(|cipher| cipher.to_be_bytes()).collect();
    let body = [
        &version.to_be_bytes()[..],
        &[7; 32],
        &[0],
        &with_length16(&ciphers),
        &[1, 0],
        &with_length16(&extensions),
    ]
    .concat();
    let message = [&[1, 0], &with_length16(&body)[..]].concat();
    [&[HANDSHAKE, 3, 1], &with_length16(&message)[..]].concat()
}

fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &with_length16(content)].concat()
}

fn with_length16(content: &[u8]) -> Vec<u8> {
    [&(content.len() as u16).to_be_bytes()[..], content].concat()
}
